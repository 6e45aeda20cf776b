use super::*;
use crate::Task;
use std::time::Duration;

fn task() -> Task {
    Task::new(&Environment::from_lookup(|_| None))
}

#[test]
fn defaults_are_those_of_the_contract() {
    let task = task();
    for number in 1..=25 {
        let expected = match OptionNumber::from_number(number) {
            Some(OptionNumber::Route) => Ok(2),
            Some(OptionNumber::AutoErr | OptionNumber::ShowTids) => Ok(1),
            Some(OptionNumber::FragSize) => Ok(4080),
            Some(OptionNumber::PollType | OptionNumber::PollTime) => Err(Code::BadParam),
            _ => Ok(0),
        };
        assert_eq!(task.option(number), expected, "{number}");
    }
    assert_eq!(task.option(0), Err(Code::BadParam));
    assert_eq!(task.option(26), Err(Code::BadParam));
}

#[test]
fn values_are_checked_as_in_pvm_3_4() {
    let mut task = task();
    let cases = [
        (OptionNumber::Route, 0, Err(Code::BadParam)),
        (OptionNumber::Route, 3, Ok(2)),
        (OptionNumber::FragSize, 51, Err(Code::BadParam)),
        (OptionNumber::FragSize, 52, Ok(4080)),
        (OptionNumber::FragSize, 1_048_577, Err(Code::BadParam)),
        (OptionNumber::TraceOptions, 0, Err(Code::BadParam)),
        (OptionNumber::TraceOptions, 3, Ok(0)),
        (OptionNumber::OutputTid, 0x40005, Err(Code::BadParam)),
        (OptionNumber::OutputTid, 0, Ok(0)),
        (OptionNumber::OutputCode, -7, Ok(0)),
        (OptionNumber::SelfOutputContext, 1, Err(Code::NotImpl)),
        (OptionNumber::PollType, 1, Err(Code::NotImpl)),
        (OptionNumber::AutoErr, 7, Ok(1)),
    ];
    for (option, value, result) in cases {
        assert_eq!(task.set_option(option as i32, value), result, "{option:?} {value}");
    }
    assert_eq!(task.set_option(26, 1), Err(Code::BadParam));
}

#[test]
fn a_collector_of_this_task_gets_output_of_children_with_this_task_s_tag_and_context() {
    let mut task = task();
    let own = TraceSettings { output_tid: 0x40001, output_tag: 5, output_ctx: 7, ..nowhere() };
    task.state.settings.inherit(TraceSettings { trace_tid: 0x40002, trace_tag: 6, trace_ctx: 8, ..own });
    for (tid, code, context, collector, tag, ctx) in [
        (OptionNumber::OutputTid, OptionNumber::OutputCode, OptionNumber::OutputContext, 0x40001, 5, 7),
        (OptionNumber::TraceTid, OptionNumber::TraceCode, OptionNumber::TraceContext, 0x40002, 6, 8),
    ] {
        let mut set = |option: OptionNumber, value| task.set_option(option as i32, value);
        assert_eq!((set(code, 55), set(context, 55)), (Err(Code::BadParam), Err(Code::BadParam)));
        assert_eq!((set(code, tag), set(context, ctx)), (Ok(tag), Ok(ctx)));
        assert_eq!((set(tid, 0), set(code, 55), set(context, 56)), (Ok(collector), Ok(tag), Ok(ctx)));
        assert_eq!((set(tid, collector), set(code, tag), set(tid, collector)), (Err(Code::BadParam), Ok(55), Ok(0)));
        assert_eq!((set(context, 55), set(context, ctx)), (Err(Code::BadParam), Ok(56)));
    }
}

#[test]
fn the_wait_of_an_instance_is_its_number_times_the_backoff() {
    let mut task = task();
    let option = OptionNumber::Backoff as i32;
    assert!(!task.backs_off() && task.backoff(7).is_zero());
    assert_eq!(task.set_option(option, -1), Err(Code::BadParam));
    assert_eq!(task.set_option(option, 300), Ok(0));
    assert!(task.backs_off());
    assert_eq!((task.option(option), task.backoff(0)), (Ok(300), Duration::ZERO));
    assert_eq!(task.backoff(7), Duration::from_micros(2100));
    assert_eq!(task.set_option(option, i32::MAX), Ok(300));
    assert_eq!(task.backoff(u32::MAX).as_micros(), u128::from(i32::MAX.unsigned_abs()) * u128::from(u32::MAX));
}

#[test]
fn a_tag_for_own_output_needs_a_collector() {
    let mut task = task();
    assert_eq!(task.set_option(OptionNumber::SelfOutputCode as i32, 5), Ok(0));
    assert_eq!(task.option(OptionNumber::SelfOutputCode as i32), Ok(0));
    assert_eq!(task.set_option(OptionNumber::SelfOutputTid as i32, 0x40009), Ok(0));
    assert_eq!(task.set_option(OptionNumber::SelfOutputCode as i32, 5), Ok(0));
    assert_eq!(task.option(OptionNumber::SelfOutputCode as i32), Ok(5));
}

#[test]
fn barriers_can_meet_only_at_a_host() {
    let mut task = task();
    let option = OptionNumber::GroupHost as i32;
    for wrong in [-1, 7, 0x40001, i32::MIN] {
        assert_eq!(task.set_option(option, wrong), Err(Code::BadParam), "{wrong}");
    }
    assert_eq!(task.set_option(option, 0x40000), Ok(0));
    assert_eq!((task.set_option(option, 0), task.option(option)), (Ok(0x40000), Ok(0)));
}
