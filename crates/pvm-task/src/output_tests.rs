use super::*;
use pvm_core::encoding::Writer;

const CHANNEL: Channel = (1, 2);

fn arrive(output: &mut Output, task: i32, length: i32, text: &[u8]) -> Vec<OutputKind> {
    output.on_message(CHANNEL, Reader::new(&Writer::new().int(task).int(length).bytes(text).finish()));
    output.events.drain(..).map(|event| event.kind).collect()
}

fn collecting() -> Output {
    Output { channels: vec![CHANNEL], ..Output::default() }
}

#[test]
fn lines_come_whole_whatever_the_pieces_were() {
    let mut output = collecting();
    assert_eq!(arrive(&mut output, 7, CREATED, b""), [OutputKind::Begin]);
    assert_eq!(arrive(&mut output, 7, ANNOUNCED, b""), []);
    assert_eq!(arrive(&mut output, 7, 3, b"one"), []);
    let lines = [OutputKind::Line(b"one more".to_vec()), OutputKind::Line(Vec::new())];
    assert_eq!(arrive(&mut output, 7, 9, b" more\n\nla"), lines);
    assert_eq!(arrive(&mut output, 7, 0, b""), [OutputKind::Line(b"la".to_vec()), OutputKind::End]);
    assert!(output.tasks.is_empty());
}

#[test]
fn a_task_is_finished_when_it_is_announced_and_at_its_end_in_either_order() {
    let mut output = collecting();
    assert_eq!(arrive(&mut output, 7, AT_END, b""), [OutputKind::Begin, OutputKind::End]);
    assert_eq!(output.tasks.len(), 1);
    assert_eq!(arrive(&mut output, 7, ANNOUNCED, b""), []);
    assert_eq!(output.tasks.len(), 0);
}

#[test]
fn what_is_no_output_is_dropped() {
    let mut output = collecting();
    output.on_message(CHANNEL, Reader::new(b"abc"));
    output.on_message((1, 3), Reader::new(&Writer::new().int(7).int(0).finish()));
    assert!(output.events.is_empty());
    assert_eq!(arrive(&mut output, 7, 100, b"less"), [OutputKind::Begin]);
}
