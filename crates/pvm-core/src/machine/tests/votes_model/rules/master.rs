//! What a master does: it lets outputs wait until its deputy keeps what they tell, and goes on without a deputy if it may.
use super::{Deputy, Frame, Host, LOST, Mistake, Model, Office, Output, Set, Standby, State, tid};
use crate::machine::council::{Deposition, Verdict};
use crate::tid::Tid;
use std::collections::BTreeSet;

impl State {
    /// Counts the marks of a master anew: only their order matters, and states that differ in nothing else are the same.
    pub(super) fn count_marks(&mut self, master: Host) {
        let (ways, node) = (&mut self.ways, &mut self.nodes[master as usize]);
        let Some(office) = &mut node.office else { return };
        let held = office.held.iter_mut().map(|(mark, _)| mark).filter(|mark| **mark < u8::MAX);
        let own = [&mut node.sent, &mut office.kept].into_iter().chain(held);
        let own = own.chain(office.tables.iter_mut().map(|(mark, _)| mark));
        let on_way = ways.iter_mut().filter(|((from, to), _)| *from == master || *to == master);
        let on_way = on_way.flat_map(|((from, _), frames)| {
            let sends = *from == master;
            frames.iter_mut().filter_map(move |frame| match frame {
                Frame::Backup { mark, .. } | Frame::Depose(_, mark) if sends => Some(mark),
                Frame::Kept(mark) | Frame::Deposed(mark) if !sends => Some(mark),
                _ => None,
            })
        });
        let mut marks: Vec<&mut u8> = own.chain(on_way).collect();
        let known: BTreeSet<u8> = marks.iter().map(|mark| **mark).collect();
        marks.iter_mut().for_each(|mark| **mark = known.range(..**mark).count() as u8);
    }

    /// Lets an output wait for the deputy if others do.
    pub(super) fn puts(&mut self, master: Host, output: Output) {
        match self.office(master).held.last_mut() {
            Some((_, outputs)) => outputs.push(output),
            None => self.tell(master, output),
        }
    }
    pub(super) fn tell(&mut self, master: Host, output: Output) {
        match output {
            Output::All(frame) => {
                let Office { all, awaited, .. } = *self.office(master);
                // A host that does not follow yet is told later.
                let hosts = all.hosts.without(master).members().filter(|host| !awaited.has(*host));
                hosts.for_each(|host| self.send(master, host, frame));
            }
            Output::Answer(change) => {
                self.answered = self.answered.with(change);
                let Office { term, all, .. } = *self.office(master);
                let is_known = match term == self.terms {
                    true => all.changes.holds(self.answered),
                    // The next master has kept it before it came.
                    false => self.newest.has(change),
                };
                if !is_known {
                    self.violation = Some(LOST);
                }
            }
        }
    }

    /// Sends the deputy all that has changed. What follows waits until that is kept.
    pub(super) fn back_up(&mut self, master: Host, begins: bool) {
        let Some(deputy) = self.office(master).keeper() else { return };
        self.node(master).sent += 1;
        let mark = self.at(master).sent;
        let office = self.office(master);
        let all = office.all;
        if office.tables.last().is_none_or(|(_, hosts)| *hosts != all.hosts) {
            office.tables.push((mark, all.hosts));
        }
        if matches!(office.deputy, Deputy::Ready(_)) {
            office.held.push((mark, Vec::new()));
        }
        self.send(master, deputy, Frame::Backup { begins, all, mark });
    }

    pub(super) fn kept(&mut self, master: Host, from: Host, mark: u8) {
        let sent = self.at(master).sent;
        let office = self.office(master);
        office.kept = mark;
        while office.tables.get(1).is_some_and(|(table, _)| *table <= mark) {
            office.tables.remove(0);
        }
        while self.office(master).held.first().is_some_and(|(held, _)| *held <= mark) {
            let (_, outputs) = self.office(master).held.remove(0);
            outputs.into_iter().for_each(|output| self.tell(master, output));
        }
        let office = self.office(master);
        if matches!(office.deputy, Deputy::Starting(_)) && mark == sent {
            office.deputy = Deputy::Ready(from);
            self.puts(master, Output::All(Frame::Deputy(from)));
        }
    }

    pub(super) fn depose(&mut self, model: &Model, master: Host, deputy: Host) {
        let office = self.office(master);
        if matches!(office.deputy, Deputy::Starting(_)) || model.errs(Mistake::TheMasterDoesNotAsk) {
            return self.does_without(master);
        }
        let mut tables: Vec<Set> = office.tables.drain(..).map(|(_, hosts)| hosts).collect();
        if model.errs(Mistake::OnlyTheNewestCouncilCounts) {
            tables.drain(..tables.len() - 1);
        }
        self.stops(master);
        let office = self.office(master);
        let awaited = office.awaited;
        let (hosts, number) = (office.all.hosts, self.at(master).sent);
        let mut deposition = self.begin(model, master, deputy, &tables);
        let mut members = deposition.members();
        members.insert(tid(deputy));
        let mut agreed = Set(0).with(master);
        for member in self.hosts().filter(|host| *host != master && members.contains(&tid(*host))) {
            if awaited.has(member) {
                agreed = agreed.with(member);
            } else if hosts.has(member) {
                self.send(master, member, Frame::Depose(deputy, number));
            }
        }
        deposition.agree(tid(master));
        self.office(master).deputy = Deputy::Deposed { deputy, tables, agreed };
        self.count_agreed(model, master);
    }

    fn begin(&self, model: &Model, master: Host, deputy: Host, tables: &[Set]) -> Deposition {
        Deposition::begin(tid(deputy), tables.iter().map(|hosts| model.council(master, deputy, *hosts)))
    }

    /// Returns what a master may do that has deposed its deputy.
    pub(super) fn verdict(&self, model: &Model, master: Host, may_answer: impl Fn(Host) -> bool) -> Option<Verdict> {
        let Deputy::Deposed { deputy, tables, agreed } = &self.at(master).office.as_ref()?.deputy else { return None };
        let mut deposition = self.begin(model, master, *deputy, tables);
        agreed.members().for_each(|host| deposition.agree(tid(host)));
        let is_mute = |host: Tid| self.hosts().all(|other| tid(other) != host);
        Some(deposition.verdict(|host| is_mute(host) || self.hosts().any(|one| tid(one) == host && may_answer(one))))
    }

    pub(super) fn count_agreed(&mut self, model: &Model, master: Host) {
        let hosts = self.office(master).all.hosts;
        match self.verdict(model, master, |host| hosts.has(host)) {
            Some(Verdict::Agreed) => self.gives_up(master),
            Some(Verdict::Lost) if model.errs(Mistake::TheLoserStillAnswers) => self.gives_up(master),
            Some(Verdict::Lost) => self.ends(master),
            Some(Verdict::Open) | None => {}
        }
    }

    /// Goes on without a deputy that it has deposed.
    fn gives_up(&mut self, master: Host) {
        let Deputy::Deposed { deputy, .. } = self.office(master).deputy else { return };
        let is_deputy = |output: &Output| matches!(output, Output::All(Frame::Deputy(_)));
        self.office(master).held.iter_mut().for_each(|(_, outputs)| outputs.retain(|output| !is_deputy(output)));
        if self.obeys(deputy, master) && matches!(self.at(deputy).standby, Standby::Keeps(_)) {
            self.node(deputy).is_deposed = true;
        }
        self.does_without(master);
    }

    pub(super) fn does_without(&mut self, master: Host) {
        let held = self.stops(master);
        self.office(master).held.clear();
        held.into_iter().flat_map(|(_, outputs)| outputs).for_each(|output| self.tell(master, output));
    }

    /// Sends the deputy nothing any more. Returns what has waited, and waits on.
    fn stops(&mut self, master: Host) -> Vec<(u8, Vec<Output>)> {
        self.node(master).sent += 1;
        let sent = self.at(master).sent;
        let office = self.office(master);
        (office.deputy, office.kept) = (Deputy::None, sent);
        office.tables.clear();
        let held = office.held.clone();
        office.held.push((u8::MAX, Vec::new()));
        held
    }
}
