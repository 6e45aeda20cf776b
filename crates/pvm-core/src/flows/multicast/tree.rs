//! The tree of hosts along which the body of a multicast travels. The sender's host is the root.
use crate::binomial;
use crate::tid::{HOST_SHIFT, Tid};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// How a multicast reaches the hosts of its receivers.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum McastRoute {
    /// The sender's daemon chooses for each message.
    #[default]
    Automatic,
    /// The sender's host sends the body to each host.
    Iterative,
    /// The body travels along a binomial tree. Its nodes are numbered by their place in the list of hosts.
    Binomial,
    /// The body travels along the edges of a hypercube. Its nodes are numbered by the host table.
    Hypercube,
    /// Each part of the body reaches all hosts of the sender's network at once. Hosts elsewhere get it along a tree.
    Broadcast,
}

impl McastRoute {
    /// All routes, by the words that stand for them in messages, and by their names in hostfiles.
    const NAMES: [(McastRoute, &str); 5] = [
        (McastRoute::Automatic, "automatic"),
        (McastRoute::Iterative, "iterative"),
        (McastRoute::Binomial, "binomial"),
        (McastRoute::Hypercube, "hypercube"),
        (McastRoute::Broadcast, "broadcast"),
    ];

    /// Returns the name of a route.
    pub fn name(self) -> &'static str {
        McastRoute::NAMES[self as usize].1
    }

    /// Returns the route of that name.
    pub fn from_name(name: &str) -> Option<McastRoute> {
        McastRoute::NAMES.into_iter().find(|(_, other)| *other == name).map(|(route, _)| route)
    }

    /// Returns the route that a word stands for.
    pub fn from_word(word: u32) -> Option<McastRoute> {
        McastRoute::NAMES.get(usize::try_from(word).ok()?).map(|(route, _)| *route)
    }
}

/// The smallest number of hosts, beside the sender's, for which a tree differs from sending to each host.
pub(super) const TREE_HOSTS_MIN: usize = 3;
/// The shortest body that travels along a tree, in bytes. A shorter one costs less than the announcement of it.
pub(super) const TREE_BYTES_MIN: usize = 4 << 10;
/// The longest body that travels along a tree, in bytes. The sender's daemon does nothing else than compute the digest of
/// the body before it sends it.
pub(super) const TREE_BYTES_MAX: usize = 32 << 20;

/// The node of a host in the tree.
struct Node {
    position: usize,
    children: u32,
    /// Whether the message was announced to the host.
    is_announced: bool,
}

/// A tree of hosts.
///
/// The positions are those of a binomial tree ([`binomial`]). If positions are missing, the parent is the nearest
/// ancestor that exists.
pub struct Tree {
    root: Tid,
    nodes: BTreeMap<Tid, Node>,
    /// The hosts by position.
    hosts: BTreeMap<usize, Tid>,
}

impl Tree {
    /// Returns whether a message of `bytes` bytes to this number of hosts can travel along a tree.
    pub fn suits(hosts: usize, bytes: usize) -> bool {
        hosts >= TREE_HOSTS_MIN && (TREE_BYTES_MIN..=TREE_BYTES_MAX).contains(&bytes)
    }

    /// Makes a binomial tree. The host that follows the root in the host table has position 1, so trees of different
    /// roots burden different hosts.
    pub fn binomial(own: Tid, hosts: &[Tid]) -> Tree {
        let (lower, higher) = hosts.split_at(hosts.partition_point(|host| *host < own));
        let order = higher.iter().chain(lower);
        Tree::new(own, order.zip(1..).map(|(host, position)| (*host, position)))
    }

    /// Makes a tree of edges of a hypercube: a host's position is the exclusive or of its number and the root's. The
    /// numbers are those of `node` if all hosts have one and no two the same, or else those of the host table, from 0.
    pub fn hypercube(own: Tid, hosts: &[Tid], node: impl Fn(Tid) -> Option<u32>) -> Tree {
        let mut all: BTreeSet<u32> = hosts.iter().filter_map(|host| node(*host)).collect();
        all.extend(node(own));
        let are_physical = all.len() == hosts.len() + 1;
        let number = |host: Tid| node(host).filter(|_| are_physical).unwrap_or((host.0 >> HOST_SHIFT).wrapping_sub(1));
        Tree::new(own, hosts.iter().map(|host| (*host, (number(*host) ^ number(own)) as usize)))
    }

    fn new(root: Tid, positions: impl Iterator<Item = (Tid, usize)>) -> Tree {
        let hosts: BTreeMap<usize, Tid> = positions.map(|(host, position)| (position, host)).collect();
        let node =
            |(position, host): (&usize, &Tid)| (*host, Node { position: *position, children: 0, is_announced: false });
        let mut nodes: BTreeMap<Tid, Node> = hosts.iter().map(node).collect();
        for position in hosts.keys() {
            if let Some(parent) = ancestors(*position).find_map(|ancestor| hosts.get(&ancestor)) {
                nodes.get_mut(parent).expect("each host has a node").children += 1;
            }
        }
        Tree { root, nodes, hosts }
    }

    /// Returns all hosts of the tree but the root.
    pub fn hosts(&self) -> impl Iterator<Item = Tid> + '_ {
        self.nodes.keys().copied()
    }

    /// Returns the ancestors of a host to which the message was not announced yet, the nearest first. Returns nothing
    /// if it was announced to the host itself.
    pub fn unannounced_ancestors(&self, host: Tid) -> Vec<Tid> {
        let node = self.nodes.get(&host).filter(|node| !node.is_announced);
        let positions = node.into_iter().flat_map(|node| ancestors(node.position));
        positions
            .filter_map(|position| self.hosts.get(&position).copied())
            .filter(|host| !self.nodes[host].is_announced)
            .collect()
    }

    /// Notes that the message is announced to a host. Returns the host's parent, and how many children the host will
    /// probably have.
    ///
    /// The parent is the nearest ancestor to which the message was announced before, or for which `is_near` returns
    /// true. So a host that the message reaches late delays no other one.
    pub fn announce(&mut self, host: Tid, is_near: impl Fn(Tid) -> bool) -> Option<(Tid, u32)> {
        let node = self.nodes.get_mut(&host).filter(|node| !node.is_announced)?;
        node.is_announced = true;
        let (position, children) = (node.position, node.children);
        let is_usable = |host: &Tid| self.nodes[host].is_announced || is_near(*host);
        let parent = ancestors(position).filter_map(|ancestor| self.hosts.get(&ancestor)).find(|host| is_usable(host));
        Some((parent.copied().unwrap_or(self.root), children))
    }
}

/// Returns the ancestors of a position, from its parent up to the child of the root.
fn ancestors(position: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(binomial::parent(position), |position| binomial::parent(*position)).filter(|next| *next != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: u32) -> Tid {
        Tid::host_number(number)
    }

    /// Announces a message to hosts in this order. Returns each host's parent.
    fn parents(mut tree: Tree, order: &[Tid]) -> Vec<Tid> {
        order.iter().map(|host| tree.announce(*host, |_| true).expect("announced once").0).collect()
    }

    #[test]
    fn a_binomial_tree_has_a_logarithmic_depth_and_degree() {
        for count in 3..70 {
            let hosts: Vec<Tid> = (2..2 + count).map(host).collect();
            let tree = Tree::binomial(host(1), &hosts);
            let children: Vec<u32> = hosts.iter().map(|host| tree.nodes[host].children).collect();
            let parents = parents(tree, &hosts);
            let levels = count.ilog2() + 1;
            for at in 0..hosts.len() {
                let (mut depth, mut node) = (0, hosts[at]);
                while node != host(1) {
                    node = parents[hosts.iter().position(|other| *other == node).unwrap()];
                    depth += 1;
                }
                assert!(depth <= levels, "{count} hosts: depth {depth}");
                let fetching = parents.iter().filter(|parent| **parent == hosts[at]).count();
                assert_eq!(children[at] as usize, fetching, "in this order, each host has the children it expects");
            }
            let of_root = parents.iter().filter(|parent| **parent == host(1)).count();
            assert_eq!(of_root as u32, levels, "{count} hosts");
        }
    }

    #[test]
    fn hosts_in_a_hypercube_have_neighbours_as_parents() {
        for (count, root) in [(4, 1), (16, 1), (16, 6), (11, 3), (100, 37)] {
            let hosts: Vec<Tid> = (1..=count).filter(|number| *number != root).map(host).collect();
            for (child, parent) in hosts.iter().zip(parents(Tree::hypercube(host(root), &hosts, |_| None), &hosts)) {
                let number = |host: Tid| (host.0 >> HOST_SHIFT) - 1;
                let bits = (number(*child) ^ number(parent)).count_ones();
                // If the neighbour does not exist, the parent is farther away.
                assert!(bits == 1 || !count.is_power_of_two(), "{child} {parent}");
            }
        }
    }

    #[test]
    fn a_hypercube_is_numbered_by_the_physical_network_if_all_numbers_are_known() {
        let hosts = [2, 3, 4].map(host);
        let cube = |numbers: [Option<u32>; 4]| {
            let tree = Tree::hypercube(host(1), &hosts, |host| numbers[(host.0 >> HOST_SHIFT) as usize - 1]);
            parents(tree, &hosts)
        };
        let table = [host(1), host(1), host(2)];
        assert_eq!(cube([None; 4]), table);
        assert_eq!(
            cube([Some(5), Some(6), Some(4), Some(7)]),
            [host(3), host(1), host(1)],
            "5 has the neighbours 4, 7"
        );
        assert_eq!(cube([Some(5), Some(6), None, Some(7)]), table, "one number is missing");
        assert_eq!(cube([Some(5), Some(6), Some(6), Some(7)]), table, "two hosts have the same number");
    }

    #[test]
    fn a_late_host_is_no_parent() {
        let hosts: Vec<Tid> = (2..10).map(host).collect();
        let mut tree = Tree::binomial(host(1), &hosts);
        let late = |_| false;
        // Position 3 is below 1, position 7 below 3, position 5 below 1.
        assert_eq!(tree.announce(host(8), late), Some((host(1), 0)));
        assert_eq!(tree.announce(host(2), late), Some((host(1), 2)));
        assert_eq!(tree.announce(host(4), late), Some((host(2), 1)));
        assert_eq!(tree.announce(host(4), late), None, "a second time");
        assert_eq!(tree.announce(host(20), late), None, "not in the tree");
        let mut tree = Tree::binomial(host(1), &hosts);
        assert_eq!(tree.unannounced_ancestors(host(8)), [host(4), host(2)]);
        tree.announce(host(4), late);
        assert_eq!(tree.unannounced_ancestors(host(8)), [host(2)]);
        assert_eq!(tree.unannounced_ancestors(host(4)), []);
    }

    #[test]
    fn few_hosts_and_very_short_or_long_bodies_need_no_tree() {
        assert!(Tree::suits(TREE_HOSTS_MIN, TREE_BYTES_MIN) && Tree::suits(100, TREE_BYTES_MAX));
        assert!(!Tree::suits(TREE_HOSTS_MIN - 1, 1 << 20));
        assert!(!Tree::suits(100, TREE_BYTES_MIN - 1) && !Tree::suits(100, TREE_BYTES_MAX + 1));
        let routes = [0, 1, 2, 3, 4].map(McastRoute::from_word);
        assert!(routes.iter().all(Option::is_some) && McastRoute::from_word(5).is_none());
        for route in routes.into_iter().flatten() {
            assert_eq!(McastRoute::from_name(route.name()), Some(route));
        }
        assert_eq!(McastRoute::from_word(4), McastRoute::from_name("broadcast"));
    }
}
