use super::*;
use crate::envelope::Envelope;
use crate::state::TC_OUTPUT;
use crate::{ANY, Environment, Filter, Task};
use pvm_core::codes::{ENC_XDR, SYSCTX_TC};
use pvm_core::encoding::Writer;

const CHANNEL: Channel = (1, 2);
const RAW: Channel = (1, 3);

fn message(task: i32, length: i32, text: &[u8]) -> Vec<u8> {
    Writer::new().int(task).int(length).bytes(text).finish()
}

fn arrive(output: &mut Output, task: i32, length: i32, text: &[u8]) -> Vec<OutputKind> {
    output.on_message(CHANNEL, Reader::new(&message(task, length, text)));
    std::iter::from_fn(|| output.next()).map(|event| event.kind).collect()
}

fn text(output: &mut Output, task: i32, text: &[u8]) -> Vec<OutputKind> {
    arrive(output, task, text.len() as i32, text)
}

fn line(text: &str) -> OutputKind {
    OutputKind::Line(text.into())
}

fn collecting() -> Output {
    let mut output = Output::default();
    output.collect(CHANNEL);
    output
}

#[test]
fn lines_are_whole_whatever_the_pieces_were() {
    let mut output = collecting();
    assert_eq!(arrive(&mut output, 7, CREATED, b""), [OutputKind::Begin]);
    assert_eq!(arrive(&mut output, 7, ANNOUNCED, b""), []);
    assert_eq!(text(&mut output, 7, b"one"), []);
    assert_eq!(text(&mut output, 7, b" more"), []);
    assert_eq!(text(&mut output, 7, b" line\n\nla"), [line("one more line"), line("")]);
    assert_eq!(text(&mut output, 7, b"st\n"), [line("last")]);
    assert_eq!(arrive(&mut output, 7, AT_END, b""), [OutputKind::End], "there is no empty line at the end");
    assert_eq!(output.collecting(), 0);
}

#[test]
fn what_is_left_without_a_newline_is_a_line_at_the_end() {
    let mut output = collecting();
    assert_eq!(text(&mut output, 7, b"a\nrest"), [OutputKind::Begin, line("a")]);
    assert_eq!(arrive(&mut output, 7, AT_END, b""), [line("rest"), OutputKind::End]);
}

#[test]
fn tasks_and_channels_do_not_mix() {
    let mut output = collecting();
    output.collect((1, 5));
    text(&mut output, 7, b"sev");
    text(&mut output, 8, b"eig");
    output.on_message((1, 5), Reader::new(&message(7, 5, b"else\n")));
    let events: Vec<OutputEvent> = std::iter::from_fn(|| output.next()).collect();
    let event = |kind| OutputEvent { task: Tid(7), ctx: 1, tag: 5, kind };
    assert_eq!(events, [event(OutputKind::Begin), event(line("else"))]);
    assert_eq!(text(&mut output, 7, b"en\n"), [line("seven")]);
    assert_eq!(text(&mut output, 8, b"ht\n"), [line("eight")]);
    assert_eq!(output.collecting(), 3);
}

#[test]
fn a_task_is_finished_when_it_is_announced_and_at_its_end_in_either_order() {
    let mut output = collecting();
    assert_eq!(arrive(&mut output, 7, AT_END, b""), [OutputKind::Begin, OutputKind::End]);
    assert_eq!(output.collecting(), 1);
    assert_eq!(arrive(&mut output, 7, ANNOUNCED, b""), []);
    assert_eq!(output.collecting(), 0);
    assert_eq!(arrive(&mut output, 8, ANNOUNCED, b""), [OutputKind::Begin]);
    assert_eq!(output.collecting(), 1);
    assert_eq!(arrive(&mut output, 8, AT_END, b""), [OutputKind::End]);
    assert_eq!(output.collecting(), 0);
}

#[test]
fn what_is_no_output_is_dropped() {
    let mut output = collecting();
    output.on_message(CHANNEL, Reader::new(b"abc"));
    output.on_message(RAW, Reader::new(&message(7, 0, b"")));
    assert_eq!(output.next(), None);
    assert_eq!(arrive(&mut output, 7, 100, b"less"), [OutputKind::Begin], "a false length brings no text");
    assert_eq!(arrive(&mut output, 7, -3, b"text\n"), [], "nor does a negative one");
    assert_eq!(arrive(&mut output, 7, AT_END, b""), [OutputKind::End]);
}

#[test]
fn raw_output_comes_as_it_was_sent_and_is_not_remembered() {
    let mut output = Output::default();
    output.collect_raw(RAW);
    let mut kinds = |length, text: &[u8]| {
        output.on_message(RAW, Reader::new(&message(7, length, text)));
        let kinds: Vec<OutputKind> = std::iter::from_fn(|| output.next()).map(|event| event.kind).collect();
        assert_eq!(output.collecting(), 0);
        kinds
    };
    assert_eq!(kinds(CREATED, b""), [OutputKind::Begin]);
    assert_eq!(kinds(ANNOUNCED, b""), [OutputKind::Begin]);
    assert_eq!(kinds(5, b"a\nb\nc"), [OutputKind::Raw(b"a\nb\nc".to_vec())]);
    assert_eq!(kinds(9, b"cut"), [OutputKind::Raw(Vec::new())]);
    assert_eq!(kinds(AT_END, b""), [OutputKind::End]);
}

#[test]
fn output_of_children_does_not_pass_the_queue() {
    let mut task = Task::new(&Environment::from_lookup(|_| None));
    let come = |task: &mut Task, tag: i32| {
        let envelope =
            Envelope { src: 5, dst: 1, ctx: 1, tag, wid: 0, enc: ENC_XDR, format: pvm_core::codes::native_dsig() };
        task.state.on_message_bytes(envelope, message(7, 5, b"line\n"));
    };
    come(&mut task, 2);
    let any = Filter { src: ANY, tag: ANY, ctx: 1 };
    assert!(task.receive(&any).is_some(), "nothing is collected yet");
    task.collect_output(1, 2);
    task.collect_output(1, 2);
    come(&mut task, 2);
    come(&mut task, 3);
    let events: Vec<OutputKind> = std::iter::from_fn(|| task.next_output()).map(|event| event.kind).collect();
    assert_eq!(events, [OutputKind::Begin, line("line")]);
    assert_eq!(task.collecting(), 1);
    let mid = task.receive(&any).unwrap();
    assert_eq!(task.message_info(mid).unwrap().tag, 3);
    assert!(task.receive(&any).is_none());
}

#[test]
fn children_are_told_where_their_output_goes_while_it_is_caught() {
    let (mut task, _daemon) = crate::test_daemon::enrolled(Tid(0x40001));
    let destination = |task: &Task| {
        let children = task.child_settings();
        (children.output_tid, children.output_ctx, children.output_tag)
    };
    assert_eq!(destination(&task), (0, 0, 0));
    task.catch_output();
    assert_eq!(destination(&task), (0x40001, SYSCTX_TC, TC_OUTPUT));
    assert!(task.state.output.takes((SYSCTX_TC, TC_OUTPUT)));
    task.stop_catching_output();
    assert_eq!(destination(&task), (0, 0, 0));
    assert!(task.state.output.takes((SYSCTX_TC, TC_OUTPUT)), "children that run still send theirs");
}
