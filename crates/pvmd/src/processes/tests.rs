//! Processes of tasks: real programs and pipes.
use super::*;
use crate::settings::tests_support;
use pvm_core::codes::Code;
use pvm_core::proto::RunSettings;
use rustix::event::epoll::CreateFlags;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

const TASK: Tid = Tid(0x40001);
const PATIENCE: Duration = Duration::from_secs(20);

fn processes() -> Processes {
    let spawner = ProcessSpawner::new(Path::new("/nowhere/s")).unwrap();
    Processes::new(spawner, Rc::new(epoll::create(CreateFlags::CLOEXEC).unwrap())).unwrap()
}

fn script(text: &str, run: RunSettings, input: bool) -> Start {
    let bytes = |text: &str| ByteBuf::from(text.as_bytes().to_vec());
    let arguments = ["sh", "-c", text].map(bytes).to_vec();
    let directory = Some(bytes("/"));
    Start { tid: TASK, cookie: 7, path: bytes("/bin/sh"), arguments, environment: Vec::new(), directory, run, input }
}

/// Starts one process.
fn started(processes: &mut Processes, settings: &Settings, start: Start) -> Result<i32, SpawnError> {
    all_started(processes, settings, &[start]).remove(0)
}

/// Starts processes, and returns the results in the same order.
fn all_started(processes: &mut Processes, settings: &Settings, starts: &[Start]) -> Vec<Result<i32, SpawnError>> {
    let mut ended: HashMap<Tid, _> =
        processes.start(settings, starts).into_iter().map(|started| (started.tid, started.result)).collect();
    wait_until("the processes are not started", || {
        ended.extend(processes.take_started().into_iter().map(|started| (started.tid, started.result)));
        ended.len() == starts.len()
    });
    starts.iter().map(|start| ended.remove(&start.tid).unwrap()).collect()
}

/// Returns the sources that are ready.
fn ready(epoll: &OwnedFd) -> Vec<Source> {
    let mut events = Vec::with_capacity(16);
    let now = rustix::time::Timespec::default();
    epoll::wait(epoll, rustix::buffer::spare_capacity(&mut events), Some(&now)).unwrap();
    events.iter().map(|event| Source::of(event.data)).collect()
}

fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn await_end(processes: &mut Processes) -> ExitStatus {
    let mut status = None;
    wait_until("the process does not end", || {
        status = processes.end(TASK);
        status.is_some()
    });
    let end = status.unwrap();
    // Even `true` needs memory.
    assert!(end.usage.memory_max_bytes > 0);
    ExitStatus::from_raw(end.status)
}

/// Returns everything that a task has printed to one stream.
fn printed(processes: &mut Processes, stream: Stream) -> String {
    let (mut all, mut bytes) = (Vec::new(), [0; 100]);
    loop {
        match processes.outputs.read(TASK, stream, &mut bytes) {
            0 => return String::from_utf8(all).unwrap(),
            count => all.extend_from_slice(&bytes[..count]),
        }
    }
}

/// A pipe whose ends do not block.
fn pipe() -> (OwnedFd, OwnedFd) {
    pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap()
}

#[test]
fn a_started_process_reports_its_output_its_errors_and_its_end_to_the_loop() {
    let (settings, mut processes) = (tests_support::settings("processes-start"), processes());
    let run = RunSettings { errors_tag: 5, ..RunSettings::default() };
    let process = started(&mut processes, &settings, script("echo out; echo bad >&2; exit 3", run, false)).unwrap();
    assert_eq!(processes.id_of(TASK), Some(process));
    let status = await_end(&mut processes);
    assert_eq!(status.code(), Some(3));
    let sources = ready(&processes.epoll);
    let all = [Source::Output(TASK, Stream::Output), Source::Output(TASK, Stream::Errors), Source::Process(TASK)];
    assert!(all.iter().all(|source| sources.contains(source)), "{sources:?}");
    processes.remove(TASK);
    assert_eq!(processes.id_of(TASK), None);
    assert!(!ready(&processes.epoll).contains(&Source::Process(TASK)));
    // The output can be read after the end of the process.
    assert_eq!(printed(&mut processes, Stream::Output), "out\n");
    assert_eq!(printed(&mut processes, Stream::Errors), "bad\n");
    assert!(processes.outputs.counts().0 == 0, "a pipe at its end is closed");
}

#[test]
fn a_program_that_is_not_there_is_no_process() {
    let (settings, mut processes) = (tests_support::settings("processes-none"), processes());
    let start = Start { path: ByteBuf::from(b"/nowhere/x".to_vec()), ..script("", RunSettings::default(), false) };
    let error = started(&mut processes, &settings, start).unwrap_err();
    assert_eq!(error.code, Code::NoFile);
    assert!(processes.running.is_empty() && processes.outputs.counts().0 == 0);
}

#[test]
fn many_processes_start_at_the_same_time_and_each_has_its_own_streams() {
    let (settings, mut processes) = (tests_support::settings("processes-many"), processes());
    let start = |number: u32| Start {
        tid: Tid(TASK.0 + number),
        ..script(
            &format!("echo {number}; echo error {number} >&2; cat"),
            RunSettings { errors_tag: 5, ..RunSettings::default() },
            true,
        )
    };
    let starts: Vec<Start> = (0..20).map(start).collect();
    let ids: Vec<i32> =
        all_started(&mut processes, &settings, &starts).into_iter().map(|result| result.unwrap()).collect();
    for (start, id) in starts.iter().zip(ids) {
        assert_eq!(processes.id_of(start.tid), Some(id));
        let text = format!("input of {}\n", start.tid);
        assert_eq!(processes.inputs.write(start.tid, ByteBuf::from(text.clone().into_bytes())), Some(true));
        processes.inputs.write(start.tid, ByteBuf::new());
        let number = start.tid.0 - TASK.0;
        for (stream, wanted) in
            [(Stream::Output, format!("{number}\n{text}")), (Stream::Errors, format!("error {number}\n"))]
        {
            let (mut all, mut bytes) = (String::new(), [0; 100]);
            wait_until("the task does not print", || {
                let count = processes.outputs.read(start.tid, stream, &mut bytes);
                all.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
                all.len() >= wanted.len()
            });
            assert_eq!(all, wanted);
        }
        wait_until("the process does not end", || processes.end(start.tid).is_some());
    }
}

#[test]
fn processes_that_start_at_the_same_time_have_no_signal_blocked() {
    let (settings, mut processes) = (tests_support::settings("processes-signals"), processes());
    // A real-time signal, as programs may send it.
    const SIGNAL: i32 = 40;
    let start =
        |number: u32| Start { tid: Tid(TASK.0 + number), ..script("exec sleep 1000", RunSettings::default(), false) };
    let starts: Vec<Start> = (0..4).map(start).collect();
    let results = all_started(&mut processes, &settings, &starts);
    for (start, process) in starts.iter().zip(results) {
        processes.signal(start.tid, process.unwrap(), SIGNAL, None);
    }
    for start in &starts {
        let mut end = None;
        wait_until("the signal does not end the process", || {
            end = processes.end(start.tid);
            end.is_some()
        });
        assert_eq!(ExitStatus::from_raw(end.unwrap().status).signal(), Some(SIGNAL));
    }
}

#[test]
fn after_a_failure_the_processes_that_were_not_tried_fail_alike() {
    let (settings, mut processes) = (tests_support::settings("processes-fail"), processes());
    let start = |number: u32| {
        let path = if number == 10 { "/nowhere/x" } else { "/bin/sh" };
        let start = script("exit 0", RunSettings::default(), false);
        Start { tid: Tid(TASK.0 + number), path: ByteBuf::from(path.as_bytes().to_vec()), ..start }
    };
    let starts: Vec<Start> = (0..60).map(start).collect();
    let results = all_started(&mut processes, &settings, &starts);
    assert!(results.len() == 60 && results[..10].iter().all(Result::is_ok));
    let failed = |result: &&Result<i32, SpawnError>| result.as_ref().is_err_and(|error| error.code == Code::NoFile);
    assert!(failed(&&results[10]));
    let failures = results.iter().filter(failed).count();
    let successes = results.iter().filter(|result| result.is_ok()).count();
    // The thread that fails may be slow, so it is not known how many processes the other ones start meanwhile.
    assert!(failures + successes == 60 && failures > 1, "{failures} {successes}");
    assert_eq!((processes.running.len(), processes.outputs.counts().0), (successes, successes));
    for (start, _) in starts.iter().zip(&results).filter(|(_, result)| result.is_ok()) {
        wait_until("the process does not end", || processes.end(start.tid).is_some());
    }
}

#[test]
fn more_starts_than_threads_wait_for_one_another() {
    let (settings, mut processes) = (tests_support::settings("processes-threads"), processes());
    let start =
        |number: usize| Start { tid: Tid(TASK.0 + number as u32), ..script("exit 0", RunSettings::default(), false) };
    let mut starts: Vec<Start> = (0..starters::STARTERS_MAX + 6).map(start).collect();
    for start in &starts {
        assert!(processes.start(&settings, std::slice::from_ref(start)).is_empty());
    }
    assert_eq!(processes.starters.counts(), (starters::STARTERS_MAX, 6));
    // One that waits is not wanted any more.
    processes.forget_task(starts.pop().unwrap().tid);
    assert_eq!((processes.starters.counts().1, processes.starting.len()), (5, starts.len()));
    let mut tids = Vec::new();
    wait_until("the processes are not started", || {
        tids.extend(processes.take_started().into_iter().filter(|started| started.result.is_ok()).map(|one| one.tid));
        tids.len() == starts.len()
    });
    assert_eq!(processes.starters.counts(), (starters::STARTERS_MAX, 0));
    for tid in tids {
        wait_until("the process does not end", || processes.end(tid).is_some());
    }
}

#[test]
fn a_process_that_nobody_expects_any_more_is_killed() {
    let (settings, mut processes) = (tests_support::settings("processes-late"), processes());
    let start = script("exec sleep 1000", RunSettings::default(), false);
    assert!(processes.start(&settings, &[start]).is_empty());
    assert!(processes.is_starting(7) && !processes.is_starting(8));
    processes.forget_task(TASK);
    assert!(!processes.is_starting(7));
    wait_until("the process is not started", || {
        assert!(processes.take_started().is_empty());
        !processes.killed.is_empty()
    });
    let process = processes.killed[0];
    wait_until("the process lives", || {
        processes.bury();
        processes.killed.is_empty()
    });
    assert!(rustix::process::test_kill_process(process).is_err());
    assert!(processes.starting.is_empty() && processes.running.is_empty() && processes.outputs.counts().0 == 0);
}

#[test]
fn a_signal_reaches_the_whole_group_and_a_death_by_signal_ends_the_rest_of_it() {
    let settings = tests_support::settings("processes-group");
    let run = RunSettings { group: true, ..RunSettings::default() };
    for by_group in [true, false] {
        let mut processes = processes();
        // The child keeps the pipe open for as long as it lives.
        let process = started(&mut processes, &settings, script("sleep 1000 & echo up; wait", run, false)).unwrap();
        let mut bytes = [0; 10];
        wait_until("the script does not run", || processes.outputs.read(TASK, Stream::Output, &mut bytes) > 0);
        match by_group {
            true => processes.signal_group(TASK, process, 15, None),
            false => processes.signal(TASK, process, 9, None),
        }
        wait_until("the process does not end", || ready(&processes.epoll).contains(&Source::Process(TASK)));
        if !by_group {
            assert!(processes.outputs.counts().0 > 0);
            // Another process of the group is the task: the group is not killed.
            processes.kill_group_after_signal(TASK, Some(process + 1));
            std::thread::sleep(Duration::from_millis(30));
            assert_eq!(processes.outputs.read(TASK, Stream::Output, &mut bytes), 0);
            assert!(processes.outputs.counts().0 > 0, "the child of the shell is gone");
            processes.kill_group_after_signal(TASK, Some(process));
        }
        assert_eq!(await_end(&mut processes).signal(), Some(if by_group { 15 } else { 9 }));
        wait_until("a process of the group lives", || {
            processes.outputs.read(TASK, Stream::Output, &mut bytes);
            processes.outputs.counts().0 == 0
        });
        processes.remove(TASK);
        processes.forget_task(TASK);
        assert!(processes.groups.is_empty());
    }
}

#[test]
fn a_task_that_has_closed_all_its_output_is_noticed_later() {
    let mut outputs = Outputs::new(Rc::new(epoll::create(CreateFlags::CLOEXEC).unwrap()));
    let (other, mut writers) = (Tid(0x40002), Vec::new());
    for (tid, stream) in [(TASK, Stream::Output), (TASK, Stream::Errors), (other, Stream::Output)] {
        let (reader, writer) = pipe();
        outputs.insert(tid, stream, reader);
        writers.push(writer);
    }
    let mut read = |outputs: &mut Outputs, tid, stream| {
        drop(writers.remove(0));
        assert_eq!(outputs.read(tid, stream, &mut [0; 8]), 0);
    };
    read(&mut outputs, TASK, Stream::Output);
    assert!(outputs.take_closed().is_empty() && outputs.take_closed().is_empty(), "one is open");
    read(&mut outputs, TASK, Stream::Errors);
    assert!(outputs.take_closed().is_empty());
    read(&mut outputs, other, Stream::Output);
    assert_eq!(outputs.take_closed(), [TASK]);
    outputs.remove(other);
    assert!(outputs.take_closed().is_empty(), "the process has ended meanwhile");
}

#[test]
fn a_paused_output_is_read_again_when_its_collector_has_caught_up() {
    let epoll = Rc::new(epoll::create(CreateFlags::CLOEXEC).unwrap());
    let mut outputs = Outputs::new(epoll.clone());
    let (other, source) = (Tid(0x40002), Source::Output(TASK, Stream::Output));
    let (reader, writer) = pipe();
    epoll::add(&epoll, &reader, source.data(), EventFlags::IN).unwrap();
    outputs.insert(TASK, Stream::Output, reader);
    rustix::io::write(&writer, b"text").unwrap();
    assert_eq!(ready(&epoll), [source]);
    outputs.pause(TASK, Stream::Output);
    // In the first call the pipe does not exist; in the second call it is paused already.
    outputs.pause(other, Stream::Output);
    outputs.pause(TASK, Stream::Output);
    assert_eq!(outputs.counts(), (1, 1));
    assert!(ready(&epoll).is_empty());
    outputs.resume(|tid| tid == TASK);
    assert!(ready(&epoll).is_empty(), "the collector is still behind");
    outputs.resume(|tid| tid != TASK);
    assert_eq!(ready(&epoll), [source]);
    assert_eq!(outputs.counts(), (1, 0));
    // A pipe that was closed meanwhile is not watched again.
    outputs.pause(TASK, Stream::Output);
    outputs.remove(TASK);
    outputs.resume(|_| false);
    assert!(ready(&epoll).is_empty());
    assert_eq!(outputs.counts(), (0, 0));
}

#[test]
fn an_input_that_the_pipe_does_not_take_at_once_is_written_when_there_is_room() {
    let epoll = Rc::new(epoll::create(CreateFlags::CLOEXEC).unwrap());
    let mut inputs = Inputs::new(epoll.clone());
    let (reader, writer) = pipe();
    inputs.insert(TASK, writer);
    assert_eq!(inputs.write(TASK, ByteBuf::from(b"short".to_vec())), Some(true));
    assert!(ready(&epoll).is_empty(), "a pipe with room is not watched");
    let long = vec![7; 200_000];
    assert_eq!(inputs.write(TASK, ByteBuf::from(long.clone())), None);
    assert_eq!(inputs.continue_write(TASK), None, "the pipe is full");
    let (mut read, mut bytes, mut result) = (Vec::new(), [0; 4096], None);
    while result.is_none() {
        poll(&mut [PollFd::new(&reader, PollFlags::IN)], None).unwrap();
        let count = rustix::io::read(&reader, &mut bytes).unwrap();
        read.extend_from_slice(&bytes[..count]);
        if ready(&epoll).contains(&Source::Input(TASK)) {
            result = inputs.continue_write(TASK);
        }
    }
    assert_eq!(result, Some(true));
    assert!(ready(&epoll).is_empty(), "nothing waits for room any more");
    while let Ok(count) = rustix::io::read(&reader, &mut bytes) {
        read.extend_from_slice(&bytes[..count]);
    }
    assert!(read == [b"short".to_vec(), long].concat());
    // Empty data ends the input; after that no data is taken.
    assert_eq!(inputs.write(TASK, ByteBuf::new()), Some(true));
    assert_eq!(rustix::io::read(&reader, &mut bytes), Ok(0));
    assert_eq!(inputs.write(TASK, ByteBuf::from(b"late".to_vec())), Some(false));
    assert_eq!(inputs.write(TASK, ByteBuf::new()), Some(false));
}

#[test]
fn an_input_that_nobody_reads_is_closed() {
    let mut inputs = Inputs::new(Rc::new(epoll::create(CreateFlags::CLOEXEC).unwrap()));
    let (reader, writer) = pipe();
    inputs.insert(TASK, writer);
    drop(reader);
    assert_eq!(inputs.write(TASK, ByteBuf::from(b"text".to_vec())), Some(false));
    assert!(!inputs.close(TASK), "it is closed already");
}
