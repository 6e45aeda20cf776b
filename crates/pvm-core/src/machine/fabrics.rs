//! Introductions of two tasks on different hosts that exchange messages on a fabric ([`crate::fabric`]).
//!
//! A task asks its daemon, which asks the daemon of the other task, which asks that task. The introductions of the two
//! tasks travel with question and answer, so each task believes addresses only from its own daemon. The asking task
//! makes the secrets; they reach the other task by the encrypted control link, or not at all if messages travel in clear.
//! No task waits: messages take the default route until both tasks have the link, and also if there will be none.
use super::core::{Core, SubMachine};
use super::direct::{LinkQuestion, answer_of};
use super::event::Event;
use super::notify::Notify;
use crate::codes::Code;
use crate::fabric::INTRODUCTION_BYTES_MAX;
use crate::proto::{ByteBuf, FabricOffer, LinkCause, Reply, ToTask};
use crate::tid::Tid;
use crate::wire::{Frame, LinkAnswer, Refusal};
use std::collections::BTreeMap;

/// Questions of tasks of other hosts that tasks of this host have not answered, because they have not enrolled yet or
/// do not call the library.
///
/// * Filled by: all other hosts
/// * Setting: none, since messages without a link take the default route
/// * Reached: the link is refused
/// * Test: `the_questions_that_wait_for_a_task_are_limited`
pub(super) const QUESTIONS_MAX: usize = 4096;

/// A question of a task of this host.
struct Own {
    task: Tid,
    wait: u32,
    peer: Tid,
    is_sealed: bool,
}

/// The link for which a task of this host asks.
pub(super) struct Wanted {
    pub to: Tid,
    pub cause: LinkCause,
}

/// A question of a task of another host to a task of this one.
struct Question {
    number: u32,
    from: Tid,
    to: Tid,
    cause: LinkCause,
    /// Until the task has enrolled and is asked.
    offer: Option<FabricOffer>,
}

/// Links on fabrics for which tasks are being introduced.
#[derive(Default)]
pub(super) struct Fabrics {
    /// The number assigned last to a question.
    last: u32,
    /// Questions of tasks of this host, by number.
    own: BTreeMap<u32, Own>,
    /// Questions of tasks of other hosts that have not been answered yet.
    questions: Vec<Question>,
}

impl SubMachine for Fabrics {
    fn name(&self) -> &'static str {
        "introductions on fabrics"
    }
    fn is_idle(&self) -> bool {
        self.own.is_empty() && self.questions.is_empty()
    }
    fn on_event(&mut self, core: &mut Core, event: &Event) {
        match event {
            Event::TaskEnrolled { tid, .. } => self.ask_new_task(core, *tid),
            Event::TaskLeft { tid, .. } => self.forget_task(core, *tid),
            Event::HostGone(host) => self.forget_host(core, *host),
            _ => {}
        }
    }
}

/// Returns the encoded introduction, or `None` if it is longer than any.
fn checked(introduction: ByteBuf) -> Option<ByteBuf> {
    (introduction.len() <= INTRODUCTION_BYTES_MAX).then_some(introduction)
}

/// Asks a task of this host whether it wants a link.
fn ask_task(core: &mut Core, question: &mut Question) {
    if let Some(offer) = question.offer.take() {
        let &mut Question { number, from: peer, cause, .. } = question;
        core.send(question.to, ToTask::Fabric { number, peer, offer, cause });
    }
}

impl Fabrics {
    /// Returns whether that task has asked for a link to that peer.
    fn has_asked(&self, task: Tid, peer: Tid) -> bool {
        self.own.values().any(|own| own.task == task && own.peer == peer)
    }

    /// Handles the request of a task of this host for a link.
    pub fn ask(
        &mut self,
        core: &mut Core,
        from: Tid,
        wait: u32,
        Wanted { to, cause }: Wanted,
        mut offer: FabricOffer,
        always_sealed: bool,
    ) {
        let is_valid = to.is_task() && to.host() != core.own_host();
        let refusal = match is_valid && offer.introduction.len() <= INTRODUCTION_BYTES_MAX {
            false => Some(Code::BadParam),
            true if !core.may_live(to) => Some(Code::NoTask),
            true if self.has_asked(from, to) => Some(Code::Already),
            true => None,
        };
        if let Some(code) = refusal {
            return core.reply(from, wait, Err(code));
        }
        if !core.may_have_link(from, cause) {
            return core.reply(from, wait, Ok(Reply::Company));
        }
        if core.settings.trusted && !always_sealed {
            offer.secrets = None;
        }
        self.last = self.last.wrapping_add(1);
        let number = self.last;
        let is_sealed = offer.secrets.is_some();
        self.own.insert(number, Own { task: from, wait, peer: to, is_sealed });
        core.send_host(to.host(), Frame::Fabric { number, from, to, offer, cause });
    }

    /// Handles the question of a task of another host. `refuses`: whether the task of this host wants no links.
    pub fn link_requested(&mut self, core: &mut Core, question: LinkQuestion, offer: FabricOffer, refuses: bool) {
        let LinkQuestion { number, from, to, cause } = question;
        let refuse = |core: &mut Core, why| {
            core.send_host(from.host(), Frame::FabricAnswer { number, answer: LinkAnswer::Refused(why) });
        };
        // If both tasks ask, the question from the host with the lower number counts.
        let twice = core.own_host() < from.host() && self.has_asked(to, from);
        let fits = offer.introduction.len() <= INTRODUCTION_BYTES_MAX && self.questions.len() < QUESTIONS_MAX;
        if !core.tasks.takes_frames(to) || twice || refuses || !fits {
            return refuse(core, Refusal::Denied);
        }
        if !core.may_have_link(to, cause) {
            return refuse(core, Refusal::Company);
        }
        let mut question = Question { number, from, to, cause, offer: Some(offer) };
        if core.tasks.is_connected(to) {
            ask_task(core, &mut question);
        }
        self.questions.push(question);
    }

    /// Asks a task that has just enrolled the questions that waited for it.
    fn ask_new_task(&mut self, core: &mut Core, tid: Tid) {
        self.questions.iter_mut().filter(|question| question.to == tid).for_each(|question| ask_task(core, question));
    }

    /// Handles the answer of a task of this host.
    pub fn answer(
        &mut self,
        core: &mut Core,
        notify: &mut Notify,
        from: Tid,
        number: u32,
        peer: Tid,
        introduction: Option<ByteBuf>,
    ) -> Result<Reply, Code> {
        let is_it = |question: &Question| {
            (question.number, question.from, question.to) == (number, peer, from) && question.offer.is_none()
        };
        let at = self.questions.iter().position(is_it).ok_or(Code::NoTask)?;
        self.questions.swap_remove(at);
        let is_wanted = introduction.is_some();
        // Without the watch, the task would not learn of the end of its peer.
        let introduction = introduction.and_then(checked).filter(|_| notify.watch_link(core, from, peer));
        let is_told = introduction.is_some() == is_wanted;
        let answer = introduction.map_or(LinkAnswer::Refused(Refusal::Denied), LinkAnswer::Introduction);
        core.send_host(peer.host(), Frame::FabricAnswer { number, answer });
        if is_told { Ok(Reply::Done) } else { Err(Code::Denied) }
    }

    /// Handles the answer to a question of a task of this host.
    pub fn answered(&mut self, core: &mut Core, notify: &mut Notify, from: Tid, number: u32, answer: LinkAnswer) {
        if self.own.get(&number).is_none_or(|own| own.peer.host() != from) {
            return;
        }
        let Some(Own { task, wait, peer, is_sealed }) = self.own.remove(&number) else { return };
        let reply = match answer {
            LinkAnswer::Introduction(introduction) => match checked(introduction) {
                Some(introduction) if notify.watch_link(core, task, peer) => {
                    Ok(Reply::Fabric { introduction, sealed: is_sealed })
                }
                _ => Err(Code::Denied),
            },
            LinkAnswer::Refused(why) => answer_of(why),
        };
        core.reply(task, wait, reply);
    }

    /// Drops the questions of a task that has left, and answers those of others to it.
    fn forget_task(&mut self, core: &mut Core, tid: Tid) {
        self.own.retain(|_, own| own.task != tid);
        let (ended, others) = std::mem::take(&mut self.questions).into_iter().partition(|one| one.to == tid);
        self.questions = others;
        let ended: Vec<Question> = ended;
        for Question { number, from, .. } in ended {
            let answer = LinkAnswer::Refused(Refusal::Denied);
            core.send_host(from.host(), Frame::FabricAnswer { number, answer });
        }
    }

    /// Ends the questions from and to a lost host.
    fn forget_host(&mut self, core: &mut Core, host: Tid) {
        self.questions.retain(|question| question.from.host() != host);
        let lost = self.own.iter().filter(|(_, own)| own.peer.host() == host);
        for number in lost.map(|(number, _)| *number).collect::<Vec<u32>>() {
            if let Some(own) = self.own.remove(&number) {
                core.reply(own.task, own.wait, Err(Code::HostFail));
            }
        }
    }
}
