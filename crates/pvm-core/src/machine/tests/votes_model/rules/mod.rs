//! The model: the state of a few hosts, the steps that can follow, and the state after each. Time is not modelled.
//!
//! A host may lose another one at any moment by silence, and by a proof once the other one has ended. What a host has sent to
//! one that has given it up is lost; the rest comes in order, however late. What never comes is lost, too. The first host is the
//! oldest, and the first master.
mod master;
mod promises;

use crate::machine::council::Council;
use crate::tid::Tid;
use std::collections::{BTreeMap, VecDeque};

pub(super) const LOST: &str = "an answered change is lost";
pub(super) const TWO: &str = "two masters answer at once";

pub(super) type Host = u8;

/// A set of hosts, or of changes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub(super) struct Set(pub u8);

impl Set {
    pub fn has(self, member: u8) -> bool {
        self.0 & 1 << member != 0
    }
    pub fn with(self, member: u8) -> Set {
        Set(self.0 | 1 << member)
    }
    pub fn without(self, member: u8) -> Set {
        Set(self.0 & !(1 << member))
    }
    pub fn holds(self, other: Set) -> bool {
        other.0 & !self.0 == 0
    }
    pub fn members(self) -> impl Iterator<Item = u8> {
        (0..8).filter(move |member| self.has(*member))
    }
}

/// A mistake in the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mistake {
    AMinoritySuffices,
    TheMasterDoesNotAsk,
    OnlyTheNewestCouncilCounts,
    AHostAgreesAndStillSupports,
    TheLoserStillAnswers,
    AnswersBeforeTheDeputyKeeps,
    LateAnswersCount,
    AHostThatHasFollowedStillAgrees,
}

/// What the decision does not exclude.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hole {
    /// The master has gone on without its deputy, and ends before that one knows or has given it up.
    DeposedDeputyFindsProof,
    /// The deputy has taken the place of the master, and ends before the former one has given it up.
    FormerMasterFindsProof,
}

/// The hosts, and how often what is rare may happen.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub hosts: u8,
    /// How many more hosts the machine has, which say nothing.
    pub mutes: u32,
    pub deaths: u8,
    pub changes: u8,
    /// How many deputies masters choose, and how many of them they depose although they hear them.
    pub deputies: u8,
    pub replaced: u8,
    pub moves: u8,
    pub mistake: Option<Mistake>,
    pub hole: Option<Hole>,
}

/// What only the master knows, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Knowledge {
    hosts: Set,
    pub changes: Set,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Frame {
    Backup { begins: bool, all: Knowledge, mark: u8 },
    Kept(u8),
    Deputy(Host),
    Depose(Host, u8),
    Deposed(u8),
    Removed(Host),
    NewMaster(Host),
    Following,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Output {
    Answer(u8),
    All(Frame),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Deputy {
    None,
    Starting(Host),
    Ready(Host),
    Deposed { deputy: Host, tables: Vec<Set>, agreed: Set },
}

/// What a master has.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Office {
    pub all: Knowledge,
    pub deputy: Deputy,
    kept: u8,
    /// The tables that the deputy may have, with their marks.
    tables: Vec<(u8, Set)>,
    awaited: Set,
    held: Vec<(u8, Vec<Output>)>,
    /// How many masters have come after the first one.
    term: u8,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub(super) enum Standby {
    #[default]
    Off,
    Keeps(Knowledge),
    Stands {
        kept: Knowledge,
        proven: bool,
    },
}

#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub(super) struct Node {
    pub gone: bool,
    pub master: Host,
    pub deputy: Option<Host>,
    pub standby: Standby,
    early: Set,
    pub office: Option<Office>,
    /// The number of the last mark.
    sent: u8,
    /// The master has gone on without this deputy, which does not know that.
    pub is_deposed: bool,
    /// The masters in whose place this one has come.
    pub former: Set,
}

/// What may still happen.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Left {
    deaths: u8,
    deputies: u8,
    replaced: u8,
    moves: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct State {
    pub nodes: Vec<Node>,
    ways: BTreeMap<(Host, Host), VecDeque<Frame>>,
    answered: Set,
    changed: u8,
    /// How many masters have come after the first one, and what the newest one knows, or has known.
    terms: u8,
    newest: Set,
    left: Left,
    pub violation: Option<&'static str>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Comes { from: Host, to: Host, frame: Frame },
    Silence { at: Host, of: Host },
    Proof { at: Host, of: Host },
    GivesUpToStand(Host),
    Changes(Host),
    ChoosesDeputy { master: Host, deputy: Host },
    ReplacesDeputy(Host),
    HandsOver(Host),
    Dies(Host),
}

impl Model {
    pub fn first(&self) -> State {
        let hosts = Set((1 << self.hosts) - 1);
        let mut nodes = vec![Node::default(); self.hosts as usize];
        nodes[0].office = Some(Office::new(Knowledge { hosts, changes: Set(0) }, 0));
        let &Model { deaths, deputies, replaced, moves, .. } = self;
        let left = Left { deaths, deputies, replaced, moves };
        let (ways, answered) = (BTreeMap::new(), Set(0));
        State { nodes, ways, answered, changed: 0, terms: 0, newest: Set(0), left, violation: None }
    }
    fn errs(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }
    /// Returns the council of a master and its deputy.
    pub fn council(&self, master: Host, deputy: Host, hosts: Set) -> Council {
        let mutes = (1..=self.mutes).map(|mute| Tid::host_number(100 + mute));
        let hosts: Vec<Tid> = hosts.members().map(tid).chain(mutes).collect();
        Council::of(&hosts, tid(master), tid(deputy))
    }
}

fn tid(host: Host) -> Tid {
    Tid::host_number(u32::from(host) + 1)
}

impl Office {
    fn new(all: Knowledge, term: u8) -> Office {
        let (tables, held) = (Vec::new(), Vec::new());
        Office { all, deputy: Deputy::None, kept: 0, tables, awaited: Set(0), held, term }
    }
    /// Returns the host that gets all changes.
    fn keeper(&self) -> Option<Host> {
        match self.deputy {
            Deputy::Starting(deputy) | Deputy::Ready(deputy) => Some(deputy),
            Deputy::None | Deputy::Deposed { .. } => None,
        }
    }
    /// Returns the deputy of which all hosts have been told.
    fn announced(&self) -> Option<Host> {
        let tells = |output: &Output| matches!(output, Output::All(Frame::Deputy(_)));
        let waits = self.held.iter().flat_map(|(_, outputs)| outputs).any(tells);
        let Deputy::Ready(deputy) = self.deputy else { return None };
        (!waits).then_some(deputy)
    }
    /// Returns whether it answers at once.
    fn is_free(&self) -> bool {
        self.held.is_empty() && matches!(self.deputy, Deputy::None | Deputy::Starting(_))
    }
}

impl State {
    fn node(&mut self, host: Host) -> &mut Node {
        &mut self.nodes[host as usize]
    }
    pub fn at(&self, host: Host) -> &Node {
        &self.nodes[host as usize]
    }
    fn hosts(&self) -> impl Iterator<Item = Host> + use<> {
        0..self.nodes.len() as Host
    }
    fn office(&mut self, master: Host) -> &mut Office {
        self.node(master).office.as_mut().expect("a master")
    }
    pub fn is_master(&self, host: Host) -> bool {
        self.at(host).office.is_some()
    }
    /// Returns whether a host of the machine takes what another one says as the word of its master.
    fn obeys(&self, host: Host, master: Host) -> bool {
        let node = self.at(host);
        let stands = matches!(node.standby, Standby::Stands { .. });
        !node.gone && node.master == master && node.office.is_none() && !stands
    }
    /// Returns whether a master has nothing to do with a host any more.
    fn has_given_up(&self, master: Host, host: Host) -> bool {
        let node = self.at(master);
        node.gone || node.office.as_ref().is_some_and(|office| !office.all.hosts.has(host))
    }
    fn send(&mut self, from: Host, to: Host, frame: Frame) {
        self.ways.entry((from, to)).or_default().push_back(frame);
    }

    // ----- what can happen

    /// Returns all steps, and whether each is no fault: a host loses only one that has ended, or that it cannot hear any more.
    pub fn steps(&self, model: &Model) -> Vec<(Step, bool)> {
        let ways = self.ways.iter().map(|((from, to), frames)| (*from, *to, frames[0]));
        let mut steps: Vec<(Step, bool)> =
            ways.map(|(from, to, frame)| (Step::Comes { from, to, frame }, true)).collect();
        for host in self.hosts().filter(|host| !self.at(*host).gone) {
            if self.left.deaths > 0 {
                steps.push((Step::Dies(host), false));
            }
            match &self.at(host).office {
                Some(office) => self.steps_of_master(model, host, office, &mut steps),
                None if matches!(self.at(host).standby, Standby::Stands { .. }) => {
                    steps.push((Step::GivesUpToStand(host), false));
                }
                None => {
                    let master = self.at(host).master;
                    steps.push((Step::Silence { at: host, of: master }, self.has_given_up(master, host)));
                    let counts = !self.at(host).is_deposed || model.hole == Some(Hole::DeposedDeputyFindsProof);
                    if self.at(master).gone && counts {
                        steps.push((Step::Proof { at: host, of: master }, true));
                    }
                }
            }
        }
        steps
    }

    fn steps_of_master(&self, model: &Model, master: Host, office: &Office, steps: &mut Vec<(Step, bool)>) {
        for host in office.all.hosts.without(master).members() {
            let node = self.at(host);
            let gave_up = node.master != master || matches!(node.standby, Standby::Stands { .. });
            let comes = office.awaited.has(host) && self.ways.contains_key(&(host, master));
            steps.push((Step::Silence { at: master, of: host }, node.gone || gave_up && !comes));
            let counts = !node.former.has(master) || model.hole == Some(Hole::FormerMasterFindsProof);
            if node.gone && counts {
                steps.push((Step::Proof { at: master, of: host }, true));
            }
        }
        if self.changed < model.changes {
            steps.push((Step::Changes(master), true));
        }
        match office.deputy {
            Deputy::None if self.left.deputies > 0 => {
                let may = |host: &Host| *host != master && !office.awaited.has(*host);
                let hosts = office.all.hosts.members().filter(may);
                steps.extend(hosts.map(|deputy| (Step::ChoosesDeputy { master, deputy }, true)));
            }
            Deputy::Ready(_) => {
                if self.left.replaced > 0 {
                    steps.push((Step::ReplacesDeputy(master), true));
                }
                let is_quiet = office.kept == self.at(master).sent && office.held.is_empty() && office.awaited.0 == 0;
                if self.left.moves > 0 && is_quiet {
                    steps.push((Step::HandsOver(master), true));
                }
            }
            _ => {}
        }
    }

    // ----- what follows

    /// Returns the state after a step.
    pub fn after(&self, model: &Model, step: Step) -> State {
        let mut next = self.clone();
        match step {
            Step::Comes { from, to, .. } => next.comes(model, from, to),
            Step::Silence { at, of } => next.loses(model, at, of, false),
            Step::Proof { at, of } => next.loses(model, at, of, true),
            Step::GivesUpToStand(host) => next.ends(host),
            Step::Changes(master) => {
                let change = next.changed;
                next.changed += 1;
                let terms = next.terms;
                let office = next.office(master);
                office.all.changes = office.all.changes.with(change);
                if office.term == terms {
                    next.newest = next.newest.with(change);
                }
                if model.errs(Mistake::AnswersBeforeTheDeputyKeeps) {
                    next.tell(master, Output::Answer(change));
                    next.back_up(master, false);
                } else {
                    next.back_up(master, false);
                    next.puts(master, Output::Answer(change));
                }
            }
            Step::ChoosesDeputy { master, deputy } => {
                next.left.deputies -= 1;
                next.office(master).deputy = Deputy::Starting(deputy);
                next.back_up(master, true);
            }
            Step::ReplacesDeputy(master) => {
                next.left.replaced -= 1;
                let deputy = next.office(master).keeper().expect("a deputy");
                next.depose(model, master, deputy);
            }
            Step::HandsOver(master) => {
                next.left.moves -= 1;
                let deputy = next.office(master).keeper().expect("a deputy");
                next.tell(master, Output::All(Frame::NewMaster(deputy)));
                let node = next.node(master);
                node.office = None;
                next.follows(master, deputy);
            }
            Step::Dies(host) => {
                next.left.deaths -= 1;
                next.ends(host);
            }
        }
        for host in next.hosts() {
            next.takes_office_if_elected(model, host);
        }
        next.drop_unheard(model);
        for host in next.hosts() {
            if next.is_idle(host) {
                next.ends(host);
            }
            next.count_marks(host);
        }
        let is_free = |host: &Host| next.at(*host).office.as_ref().is_some_and(Office::is_free);
        if next.hosts().filter(is_free).count() > 1 {
            next.violation = Some(TWO);
        }
        next
    }

    /// Returns whether a host can only end: it knows no deputy, and its master says nothing more to it.
    fn is_idle(&self, host: Host) -> bool {
        let node = self.at(host);
        let has_part = node.office.is_some() || node.deputy.is_some() || matches!(node.standby, Standby::Stands { .. });
        let says_more = self.ways.contains_key(&(node.master, host)) || !self.has_given_up(node.master, host);
        !node.gone && !has_part && !says_more
    }
    fn ends(&mut self, host: Host) {
        let former = self.at(host).former;
        *self.node(host) = Node { gone: true, former, ..Node::default() };
    }

    fn comes(&mut self, model: &Model, from: Host, to: Host) {
        let frame = self.ways.get_mut(&(from, to)).and_then(VecDeque::pop_front).expect("a frame");
        match frame {
            Frame::Backup { begins, all, mark } => {
                if begins {
                    self.node(to).is_deposed = false;
                }
                if begins || matches!(self.at(to).standby, Standby::Keeps(_)) {
                    self.node(to).standby = Standby::Keeps(all);
                    self.send(to, from, Frame::Kept(mark));
                }
            }
            Frame::Kept(mark) => self.kept(to, from, mark),
            Frame::Deputy(host) => self.node(to).deputy = Some(host),
            Frame::Depose(deputy, number) => {
                let node = self.node(to);
                node.deputy.take_if(|known| *known == deputy && !model.errs(Mistake::AHostAgreesAndStillSupports));
                if deputy == to {
                    (node.standby, node.is_deposed) = (Standby::Off, false);
                }
                self.send(to, from, Frame::Deposed(number));
            }
            Frame::Deposed(number) => {
                let is_late = number != self.at(to).sent && !model.errs(Mistake::LateAnswersCount);
                if let Deputy::Deposed { agreed, .. } = &mut self.office(to).deputy {
                    if !is_late {
                        *agreed = agreed.with(from);
                        self.count_agreed(model, to);
                    }
                }
            }
            Frame::Removed(host) => _ = self.node(to).deputy.take_if(|known| *known == host),
            Frame::NewMaster(master) if master == to => match self.at(to).standby {
                Standby::Keeps(kept) => self.takes_office(to, kept, None),
                _ => self.ends(to),
            },
            Frame::NewMaster(master) => self.follows(to, master),
            Frame::Following => match &mut self.node(to).office {
                Some(office) => {
                    office.awaited = office.awaited.without(from);
                    if let Some(deputy) = office.announced() {
                        self.send(to, from, Frame::Deputy(deputy));
                    }
                }
                None => self.node(to).early = self.at(to).early.with(from),
            },
        }
    }

    /// Forgets what nobody takes any more.
    fn drop_unheard(&mut self, model: &Model) {
        let mut ways = std::mem::take(&mut self.ways);
        for ((from, to), frames) in &mut ways {
            let node = self.at(*to);
            let is_of = |office: &Office| office.keeper() == Some(*from);
            frames.retain(|frame| match frame {
                Frame::Following => !node.gone && node.office.as_ref().is_none_or(|office| office.awaited.has(*from)),
                Frame::Kept(mark) => node.office.as_ref().is_some_and(|office| is_of(office) && *mark > office.kept),
                Frame::Deposed(number) => node.office.as_ref().is_some_and(|office| {
                    let may_count = *number == node.sent || model.errs(Mistake::LateAnswersCount);
                    may_count && office.all.hosts.has(*from)
                }),
                Frame::Depose(..) if model.errs(Mistake::AHostThatHasFollowedStillAgrees) => {
                    !node.gone && node.office.is_none()
                }
                _ => self.obeys(*to, *from),
            });
        }
        ways.retain(|_, frames| !frames.is_empty());
        self.ways = ways;
    }

    // ----- losses, and the next master

    fn loses(&mut self, model: &Model, host: Host, lost: Host, proven: bool) {
        if !self.is_master(host) {
            return self.loses_master(model, host, proven);
        }
        let office = self.office(host);
        office.all.hosts = office.all.hosts.without(lost);
        office.awaited = office.awaited.without(lost);
        match &mut office.deputy {
            Deputy::Ready(deputy) if *deputy == lost && !proven => self.depose(model, host, lost),
            Deputy::Starting(deputy) | Deputy::Ready(deputy) if *deputy == lost => self.does_without(host),
            Deputy::Deposed { deputy, agreed, .. } => {
                if *deputy == lost && proven {
                    *agreed = agreed.with(lost);
                }
                self.count_agreed(model, host);
            }
            _ => {}
        }
        if self.is_master(host) {
            self.back_up(host, false);
            if self.nodes.iter().any(|node| node.deputy == Some(lost)) {
                self.puts(host, Output::All(Frame::Removed(lost)));
            }
        }
    }

    fn loses_master(&mut self, model: &Model, host: Host, proven: bool) {
        let node = self.node(host);
        let (master, standby) = (node.master, std::mem::take(&mut node.standby));
        match (node.deputy.take(), standby) {
            (Some(deputy), Standby::Keeps(kept)) if deputy == host => {
                if proven || model.council(master, host, kept.hosts).decides() {
                    self.node(host).standby = Standby::Stands { kept, proven };
                } else {
                    self.ends(host);
                }
            }
            (Some(deputy), _) if deputy != host => self.follows(host, deputy),
            _ => self.ends(host),
        }
    }

    fn follows(&mut self, host: Host, master: Host) {
        let node = self.node(host);
        (node.master, node.deputy, node.standby, node.is_deposed) = (master, None, Standby::Off, false);
        self.send(host, master, Frame::Following);
    }

    fn takes_office_if_elected(&mut self, model: &Model, host: Host) {
        let node = self.at(host);
        let Standby::Stands { kept, proven } = node.standby else { return };
        let (master, early) = (node.master, node.early);
        let votes = |voter: Host| voter == host || early.has(voter) || voter == master && proven;
        let council = model.council(master, host, kept.hosts);
        let has_majority = council.has_majority(|voter| self.hosts().any(|one| tid(one) == voter && votes(one)));
        if has_majority || model.errs(Mistake::AMinoritySuffices) {
            self.takes_office(host, kept, Some(master));
        }
    }

    fn takes_office(&mut self, host: Host, kept: Knowledge, lost: Option<Host>) {
        (self.terms, self.newest) = (self.terms + 1, kept.changes);
        let mut office = Office::new(kept, self.terms);
        office.all.hosts = lost.map_or(kept.hosts, |lost| kept.hosts.without(lost));
        let node = self.node(host);
        let early = std::mem::take(&mut node.early);
        let awaited = office.all.hosts.without(host).members().filter(|other| !early.has(*other));
        office.awaited = awaited.fold(Set(0), Set::with);
        node.former = lost.map_or(node.former, |lost| node.former.with(lost));
        (node.master, node.deputy, node.standby, node.is_deposed) = (host, None, Standby::Off, false);
        node.office = Some(office);
        if !kept.changes.holds(self.answered) {
            self.violation = Some(LOST);
        }
    }
}
