//! What is measured, in which order, and on which hosts.
use crate::measures::{Encoding, Measure, Sizes};
use clap::ValueEnum;

/// The tasks that make the measurements of some tables together.
#[derive(Debug, PartialEq, Eq)]
pub struct Crew {
    /// The host of each task.
    pub hosts: Vec<String>,
    /// Whether the director is also the first task; the director runs on the host of this command.
    pub joins: bool,
    /// What the tasks measure.
    pub tables: Vec<Table>,
}

impl Crew {
    /// Returns the hosts, each once.
    pub fn distinct_hosts(&self) -> Vec<&str> {
        distinct(self.hosts.iter().map(String::as_str))
    }

    /// Returns whether each task stays on one core.
    pub fn is_pinned(&self) -> bool {
        self.tables.iter().any(|table| table.measure.is_of_pairs())
    }
}

/// A measure with its settings: one table of the output.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// What is measured.
    pub measure: Measure,
    /// The encoding, if it matters.
    pub encoding: Option<Encoding>,
    /// The size in bytes of each row.
    pub sizes: Vec<u32>,
}

/// What the user wants.
pub struct Wish<'a> {
    /// The measures; empty for all.
    pub measures: &'a [Measure],
    /// The encodings.
    pub encodings: &'a [Encoding],
    /// The sizes; `None` for those of each measure.
    pub sizes: Option<&'a Sizes>,
    /// The hosts that the user has named.
    pub hosts: Option<&'a [String]>,
    /// The number of tasks of collective measures.
    pub tasks: usize,
}

/// Returns the crews to start, one after the other. `own` is the host of this command, `known` are the hosts of the
/// machine.
pub fn plan(wish: &Wish<'_>, own: &str, known: &[String]) -> Vec<Crew> {
    let all = Measure::value_variants();
    let measures = if wish.measures.is_empty() { all } else { wish.measures };
    let measures: Vec<Measure> = all.iter().copied().filter(|measure| measures.contains(measure)).collect();
    // The director is on this host; so that it can be the first task, this host is the first.
    let mut hosts = distinct(wish.hosts.unwrap_or(known).iter().map(String::as_str));
    hosts.sort_by_key(|host| *host != own);
    let first = hosts.first().copied().unwrap_or(own);
    let second = hosts.get(1).copied();
    let pairs: Vec<[&str; 2]> = match (wish.hosts, second) {
        (None, second) => std::iter::once([own; 2]).chain(second.map(|second| [own, second])).collect(),
        (Some(_), None) => vec![[first; 2]],
        (Some(_), Some(second)) => vec![[first, second]],
    };
    let crew = |hosts: Vec<String>, of_crew: &dyn Fn(Measure) -> bool| {
        let joins = hosts.first().is_some_and(|host| host == own);
        let measures = measures.iter().copied().filter(|measure| of_crew(*measure));
        Crew { hosts, joins, tables: measures.flat_map(|measure| tables(measure, wish)).collect() }
    };
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let of_pairs = pairs.iter().map(|pair| crew(owned(pair), &Measure::is_of_pairs));
    let many: Vec<&str> = hosts.iter().copied().cycle().take(wish.tasks).collect();
    let is_spawn = |measure| measure == Measure::Spawn;
    let of_many = [
        crew(owned(&many), &|measure: Measure| !measure.is_of_pairs() && !is_spawn(measure)),
        crew(owned(&many), &is_spawn),
    ];
    of_pairs.chain(of_many).filter(|crew| !crew.tables.is_empty()).collect()
}

/// Returns the tables of a measure: one for each encoding, if the measure has encodings.
fn tables(measure: Measure, wish: &Wish<'_>) -> Vec<Table> {
    let mut encodings = vec![None];
    if measure.has_encoding() {
        let of_pairs = measure.is_of_pairs();
        encodings = wish.encodings.iter().map(|one| Some(if of_pairs { *one } else { one.to_many() })).collect();
    }
    let encodings = distinct(encodings.into_iter());
    encodings.into_iter().map(|encoding| Table { measure, encoding, sizes: measure.sizes(wish.sizes) }).collect()
}

/// Returns the items without those that have occurred before.
fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut kept = Vec::new();
    for item in items {
        if !kept.contains(&item) {
            kept.push(item);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish<'a>(measures: &'a [Measure], hosts: Option<&'a [String]>) -> Wish<'a> {
        Wish { measures, encodings: &[Encoding::Psend, Encoding::Raw], sizes: None, hosts, tasks: 3 }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn without_hosts_two_tasks_of_this_host_and_two_tasks_of_two_hosts_are_measured() {
        let crews = plan(&wish(&[], None), "b", &names(&["a", "b", "c"]));
        let hosts: Vec<_> = crews.iter().map(|crew| crew.hosts.join(" ")).collect();
        assert_eq!(hosts, ["b b", "b a", "b a c", "b a c"]);
        assert!(crews.iter().all(|crew| crew.joins));
        assert_eq!(plan(&wish(&[], None), "b", &names(&["b"])).len(), 3);
    }

    #[test]
    fn hosts_that_are_named_are_the_only_ones() {
        let [a, two, both] = [&["a"][..], &["a", "c"], &["a", "b"]].map(names);
        let crew = |hosts: &[String]| {
            let known = names(&["a", "b", "c"]);
            let crews = plan(&wish(&[Measure::Latency, Measure::Barrier], Some(hosts)), "b", &known);
            crews.into_iter().map(|crew| (crew.hosts.join(" "), crew.joins)).collect::<Vec<_>>()
        };
        assert_eq!(crew(&a), [("a a".into(), false), ("a a a".into(), false)]);
        assert_eq!(crew(&two), [("a c".into(), false), ("a c a".into(), false)]);
        assert_eq!(crew(&both), [("b a".into(), true), ("b a b".into(), true)]);
    }

    #[test]
    fn each_encoding_that_matters_has_a_table() {
        let hosts = names(&["a"]);
        let crews = plan(&wish(&[Measure::Reduce, Measure::Mcast, Measure::Rate], None), "a", &hosts);
        let table = |crew: usize, table: usize| (crews[crew].tables[table].measure, crews[crew].tables[table].encoding);
        assert_eq!(table(0, 0), (Measure::Rate, Some(Encoding::Psend)));
        assert_eq!(table(0, 1), (Measure::Rate, Some(Encoding::Raw)));
        assert_eq!(table(1, 0), (Measure::Mcast, Some(Encoding::Raw)));
        assert_eq!(table(1, 1), (Measure::Reduce, None));
        assert_eq!(crews[1].tables.len(), 2);
        assert_eq!(crews[1].tables[1].sizes[..2], [8, 16]);
        assert!(crews[0].is_pinned() && !crews[1].is_pinned());
    }

    #[test]
    fn values_are_in_the_units_of_their_columns() {
        assert_eq!(Measure::Bandwidth.value(2.0, 1000), 500.0);
        assert_eq!(Measure::Bidirectional.value(2.0, 1000), 1000.0);
        assert_eq!(Measure::Rate.value(0.5, 8), 2e6);
        assert_eq!(Measure::Latency.value(0.5, 8), 0.5);
    }
}
