//! What must follow from a state if nobody loses anybody any more that lives.
use super::{Deputy, Frame, Host, Model, Office, Set, Standby, State, tid};
use crate::machine::council::Verdict;

impl State {
    /// Returns whether a master can answer.
    pub fn acts(&self) -> bool {
        self.hosts().any(|master| {
            let Some(office) = &self.at(master).office else { return false };
            match office.deputy {
                Deputy::Ready(deputy) => self.obeys(deputy, master) && self.keeps(deputy),
                _ => office.is_free(),
            }
        })
    }
    fn keeps(&self, host: Host) -> bool {
        matches!(self.at(host).standby, Standby::Keeps(_))
    }

    /// Returns whether enough hosts live and hear each other that a master goes on, or comes.
    pub fn promises_a_master(&self, model: &Model) -> bool {
        self.hosts().filter(|host| !self.at(*host).gone).any(|host| match &self.at(host).office {
            Some(office) => self.may_go_on(model, host, office),
            None => self.may_be_elected(model, host),
        })
    }

    fn may_go_on(&self, model: &Model, master: Host, office: &Office) -> bool {
        let is_provable = |host: Host| self.at(host).gone && !self.at(host).former.has(master);
        match &office.deputy {
            Deputy::None | Deputy::Starting(_) => true,
            Deputy::Ready(deputy) if is_provable(*deputy) => true,
            Deputy::Ready(deputy) if self.obeys(*deputy, master) => self.keeps(*deputy),
            Deputy::Ready(deputy) => {
                let hears = |host: Host| self.obeys(host, master) && office.all.hosts.has(host);
                let hears = self.hosts().filter(|host| hears(*host)).fold(Set(0).with(master), Set::with);
                let mut councils = office.tables.iter().map(|(_, hosts)| model.council(master, *deputy, *hosts));
                councils.all(|council| {
                    !council.decides() || council.has_majority(|host| hears.members().any(|one| tid(one) == host))
                })
            }
            Deputy::Deposed { deputy, .. } => {
                let hears = |host| self.obeys(host, master) && office.all.hosts.has(host);
                let verdict = self.verdict(model, master, hears);
                verdict != Some(Verdict::Lost) || is_provable(*deputy) && office.all.hosts.has(*deputy)
            }
        }
    }

    fn may_be_elected(&self, model: &Model, host: Host) -> bool {
        let node = self.at(host);
        let master = node.master;
        let is_dead = self.at(master).gone;
        let (kept, proven) = match node.standby {
            Standby::Off => return false,
            Standby::Keeps(kept) => (kept, is_dead && !node.is_deposed),
            Standby::Stands { kept, proven } => (kept, proven),
        };
        let council = model.council(master, host, kept.hosts);
        let follows = |other: Host| {
            let comes = self.ways.get(&(other, host)).is_some_and(|frames| frames.contains(&Frame::Following));
            comes || is_dead && self.obeys(other, master) && self.at(other).deputy == Some(host)
        };
        let votes = |other: Host| other == host || other == master && proven || node.early.has(other) || follows(other);
        let may_stand = node.deputy == Some(host) && self.has_given_up(master, host);
        let is_candidate = matches!(node.standby, Standby::Stands { .. }) || may_stand;
        is_candidate
            && (proven || council.decides())
            && council.has_majority(|one| self.hosts().any(|other| tid(other) == one && votes(other)))
    }
}
