//! Tests the commands on a simulated machine with prepared answers.
use super::*;
use crate::control::SpawnCall;
use pvm_core::codes;
use pvm_core::proto::{GroupPlace, Host, Mailbox, Office, Reply, Request, Spawn, TaskInfo, TraceSettings};
use pvm_core::tid::Tid;
use pvm_task::{OutputEvent, OutputKind};
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;

const OWN: Tid = Tid(0x40001);

/// A simulated machine of one host, which records the requests.
#[derive(Default)]
struct Fake {
    asked: Vec<Request>,
    options: BTreeMap<i32, i32>,
    spawned: Vec<i32>,
    tasks: Vec<TaskInfo>,
    collected: Vec<(i32, i32)>,
}

impl Control for Fake {
    fn tid(&self) -> Tid {
        OWN
    }
    fn ask(&mut self, request: Request) -> Result<Reply, Code> {
        let reply = match &request {
            Request::Config => Reply::Hosts {
                hosts: vec![Host {
                    tid: OWN.host(),
                    name: "vm".into(),
                    arch: "LINUX64".into(),
                    speed: 1000,
                    dsig: codes::DSIG_X86_64,
                    is_draining: false,
                    office: Office::Master,
                }],
                formats: 1,
            },
            Request::GroupPlaces => {
                let name = ByteBuf::from(b"ring".as_slice());
                let members = (1..=12).map(|task| Tid(OWN.host().0 + task)).collect();
                Reply::GroupPlaces(vec![GroupPlace { name, members, is_frozen: false, hosts: 3, at: OWN.host() }])
            }
            Request::Spawn(_) => Reply::Tids(self.spawned.clone()),
            Request::Tasks(_) => Reply::Tasks(self.tasks.clone()),
            Request::TaskStatus(tid) if *tid == OWN => Reply::Code(0),
            Request::TaskStatus(_) => Reply::Code(Code::NoTask.number()),
            Request::HostStatus(name) if **name == *b"vm" => Reply::Code(0),
            Request::HostStatus(_) => Reply::Code(Code::NoHost.number()),
            Request::Tickle(how) if how == &[5] => Reply::Ints(vec![2]),
            Request::Tickle(_) => Reply::Ints(vec![]),
            Request::MailboxInfo { .. } => {
                let entries = vec![(0, Tid(0x40007), 2)];
                Reply::Mailboxes(vec![Mailbox { name: ByteBuf::from(crate::control::NO_RESET_CLASS), entries }])
            }
            Request::PutInfo { .. } => Reply::Int(0),
            Request::Signal { tid, .. } => {
                self.tasks.retain(|task| task.tid != *tid);
                Reply::Done
            }
            _ => Reply::Done,
        };
        self.asked.push(request);
        Ok(reply)
    }
    fn option(&mut self, what: i32) -> Result<i32, Code> {
        Ok(self.options.get(&what).copied().unwrap_or(0))
    }
    fn set_option(&mut self, what: i32, value: i32) -> Result<i32, Code> {
        match value {
            9 => Err(Code::BadParam),
            _ => Ok(self.options.insert(what, value).unwrap_or(0)),
        }
    }
    fn set_child_trace_mask(&mut self, _mask: &[u8]) -> Result<(), Code> {
        Ok(())
    }
    fn collect_output(&mut self, context: i32, tag: i32) {
        self.collected.push((context, tag));
    }
    fn spawn_request(&mut self, call: &SpawnCall<'_>) -> Result<Request, Code> {
        Ok(Request::Spawn(Spawn {
            file: ByteBuf::from(call.file),
            arguments: call.arguments.iter().map(|word| ByteBuf::from(*word)).collect(),
            flags: call.flags,
            place: ByteBuf::from(call.place),
            count: call.count,
            environment: call.environment.iter().cloned().map(ByteBuf::from).collect(),
            children: TraceSettings::default(),
        }))
    }
}

struct Bench {
    console: Console,
    fake: Fake,
}

impl Bench {
    fn new() -> Bench {
        let mut fake = Fake::default();
        let console = Console::new(Variables::default(), 0x40001, 0x40002);
        console.prepare(&mut fake).unwrap();
        fake.options.insert(OptionNumber::AutoErr as i32, 1);
        Bench { console, fake }
    }

    /// Runs a line. Returns its output, its errors, and what the console does next.
    fn run(&mut self, line: &str) -> (String, String, Flow) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut screen = Screen { out: &mut out, err: &mut err };
        let flow = self.console.execute(line, &mut self.fake, &mut screen).unwrap();
        (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap(), flow)
    }

    /// Runs a line, checks that it causes no errors and that the console continues, and returns the text.
    fn out(&mut self, line: &str) -> String {
        let (out, err, flow) = self.run(line);
        assert_eq!((err.as_str(), flow), ("", Flow::Continue), "{line}");
        out
    }

    fn signals(&self) -> Vec<(Tid, i32)> {
        let signals = self.fake.asked.iter().filter_map(|request| match request {
            Request::Signal { tid, signal } => Some((*tid, *signal)),
            _ => None,
        });
        signals.collect()
    }
}

fn task(tid: u32, parent: i32, name: &str) -> TaskInfo {
    let name = ByteBuf::from(name.as_bytes());
    TaskInfo { tid: Tid(tid), parent, host: OWN.host(), flags: 6, name, pid: 99, output: (0, 0, 0) }
}

#[test]
fn the_places_of_barriers_are_listed() {
    let mut bench = Bench::new();
    let text = "1 group\n                   GROUP  MEMBERS    HOSTS              BARRIERS AT\n                    ring       12        3                       vm\n";
    assert_eq!(bench.out("conf -g"), text);
    let value: serde_json::Value = serde_json::from_str(&bench.out("conf -g --json")).unwrap();
    assert_eq!(value["groups"][0]["barriers_at"], "vm");
}

#[test]
fn wrong_words_are_told_in_the_words_of_pvm() {
    let mut bench = Bench::new();
    for (line, text) in [
        ("bogus", "bogus: not found\n"),
        ("CONF", "CONF: not found\n"),
        ("sig 0", "sig: wrong #args\n"),
        ("conf a", "conf: wrong #args\n"),
        ("quit a", "quit: wrong #args\n"),
        ("help x y", "help: wrong #args\n"),
        ("ps -a -l", "ps: wrong #args\n"),
        ("put a 0", "put: wrong #args\n"),
        ("put a 0 b c", "put: wrong #args\n"),
        ("names a b", "names: wrong #args\n"),
        ("tickle 1 2 3 4 5 6 7 8 9 10 11", "tickle: wrong #args\n"),
        ("reset info b 1 2", "reset: wrong #args\n"),
        ("reset foo", "\"foo\" arg to reset not valid\n"),
        ("echo \"a", "unmatched \"\n"),
        ("kill -c", "incorrect arg count\n"),
        ("spawn", "spawn: wrong #args\n"),
        ("spawn -2", "incorrect arg count\n"),
        ("getopt bogus", "PVM Option \"bogus\" Unknown.\n"),
        ("setopt bogus 1", "PVM Option \"bogus\" Unknown.\n"),
        ("", ""),
        ("   # comment", ""),
    ] {
        assert_eq!(bench.out(line), text, "{line}");
    }
}

#[test]
fn every_command_has_a_help_text() {
    let mut bench = Bench::new();
    let list = bench.out("help");
    for command in &help::COMMANDS {
        let text = bench.out(&format!("help {}", command.name));
        assert!(text.starts_with(&format!("{:<11} {}\nSyntax:  {}", command.name, command.summary, command.name)));
        assert_eq!(list.contains(&format!("\n  {:<11} ", command.name)), !command.hidden);
    }
    assert_eq!(bench.out("help bogus"), "");
}

#[test]
fn commands_are_in_the_order_of_their_names() {
    assert!(help::COMMANDS.is_sorted_by_key(|command| command.name));
}

#[test]
fn the_console_knows_itself() {
    let mut bench = Bench::new();
    assert_eq!(bench.out("id"), "t40001\n");
    assert_eq!(bench.out("version"), "3.4.6\n");
    assert_eq!(bench.run("quit").2, Flow::Quit);
    assert_eq!(bench.run("halt").2, Flow::Halt);
}

#[test]
fn aliases_are_kept_and_listed() {
    let mut bench = Bench::new();
    assert_eq!(bench.out("alias e echo hi") + &bench.out("e  there"), "hi there\n");
    bench.out("alias c version");
    assert_eq!(bench.out("c"), "3.4.6\n");
    assert_eq!(bench.out("alias x"), "c\tversion\ne\techo hi\n");
    bench.out("unalias c");
    assert_eq!(bench.out("alias"), "e\techo hi\n");
    bench.out("alias a b");
    bench.out("alias b a");
    assert_eq!(bench.out("a"), "alias loop\n");
}

#[test]
fn options_are_shown_and_changed() {
    let mut bench = Bench::new();
    let all = bench.out("getopt");
    assert_eq!(all.lines().count(), 23);
    assert!(all.starts_with("PvmRoute Currently Set to 1\nPvmDebugMask Currently Set to 0\n"));
    assert!(all.contains("\nPvmOutputTid Currently Set to -1\n"));
    assert_eq!(bench.out("setopt PvmRoute 2x"), "PvmRoute Changed from 1 to 2\n");
    assert_eq!(bench.out("getopt PvmRoute"), "PvmRoute Currently Set to 2\n");
    let (out, err, _) = bench.run("setopt PvmRoute 9");
    assert_eq!(out, "PvmRoute Changed from -2 to 9\n");
    assert_eq!(err, "libpvm [t40001]: pvm_setopt(): Bad parameter\n");
}

#[test]
fn states_of_hosts_and_tasks() {
    let mut bench = Bench::new();
    assert_eq!(bench.out("mstat vm no"), "                      vm  ok\n                      no  No such host\n");
    assert_eq!(bench.out("pstat t40001 t40002"), "t   40001  run\nt   40002  No such task\n");
    let (out, err, _) = bench.run("pstat zz");
    assert_eq!(out, "t       0  Bad parameter\n");
    assert_eq!(err, "libpvm [t40001]: pvm_pstat(): Bad parameter\n");
    bench.fake.options.insert(OptionNumber::AutoErr as i32, 0);
    assert_eq!(bench.run("pstat zz").1, "");
}

#[test]
fn ps_leaves_itself_out_unless_asked() {
    let mut bench = Bench::new();
    bench.fake.tasks = vec![task(0x40001, 0, ""), task(0x40002, -35, "prog"), task(0x40003, 0, "")];
    let head = crate::shape::task_head(false);
    let others = "                      vm    40002     6/c,f prog        \n                      vm    40003     6/c,f -           \n";
    assert_eq!(bench.out("ps -a"), format!("{head}{others}"));
    assert_eq!(bench.out("ps -x").lines().count(), 4);
    assert_eq!(bench.out("ps -nfoo").lines().next(), Some("unknown host foo"));
    assert_eq!(bench.out("ps -q").lines().next(), Some("unknown flag -q"));
    let value: serde_json::Value = serde_json::from_str(&bench.out("ps -x --json")).unwrap();
    assert_eq!(value[1]["tid"], "t40002");
    assert_eq!(value[1]["command"], "prog");
    let value: serde_json::Value = serde_json::from_str(&bench.out("conf --json")).unwrap();
    assert_eq!((&value["hosts"][0]["name"], &value["hosts"][0]["master"]), (&"vm".into(), &true.into()));
    assert!(bench.out("conf -v").ends_with(" master\n") && !bench.out("conf").contains("master"));
}

#[test]
fn a_job_lives_until_its_tasks_have_ended() {
    let mut bench = Bench::new();
    bench.fake.spawned = vec![0x40002, 0x40003];
    assert_eq!(bench.out("spawn -2 -> prog \"a b\""), "[1]\n2 successful\nt40002\nt40003\n");
    let Some(Request::Spawn(spawn)) = bench.fake.asked.last() else { panic!() };
    assert_eq!((&**spawn.file, &**spawn.arguments[0], spawn.count), (&b"prog"[..], &b"a b"[..], 2));
    assert_eq!(spawn.flags, codes::NO_SPAWN_PARENT);
    assert_eq!((spawn.children.output_tid, spawn.children.output_ctx), (0x40001, 0x40001));
    assert_eq!(spawn.children.output_tag, 1);
    assert_eq!(bench.fake.collected, [(0x40001, 1)]);
    assert_eq!(bench.out("jobs"), " 1: t40002 t40003\n");
    bench.fake.tasks = vec![task(0x40002, -35, "prog")];
    let row = "                      vm    40002     6/c,f prog        \n";
    assert_eq!(bench.out("jobs -l"), format!("{} 1:\n{row}", crate::shape::task_head(false)));
    let end = |task| OutputEvent { task: Tid(task), ctx: 0x40001, tag: 1, kind: OutputKind::End };
    bench.console.jobs.handle(&end(0x40002));
    bench.console.jobs.handle(&end(0x40003));
    assert_eq!(bench.out("jobs"), "");
}

#[test]
fn spawn_without_arrow_makes_no_job() {
    let mut bench = Bench::new();
    bench.fake.spawned = vec![-7, -7];
    assert_eq!(bench.out("spawn -2 nosuch"), "0 successful\nNo such file\nNo such file\n");
    assert_eq!(bench.out("spawn -> nosuch"), "[1]\n0 successful\nNo such file\nNo such file\n");
    assert_eq!(bench.out("jobs"), "");
    let (out, err, _) = bench.run("spawn -0 prog");
    assert_eq!((out.as_str(), err.as_str()), ("", "libpvm [t40001]: pvm_spawn(): Bad parameter\n"));
}

#[test]
fn exported_variables_reach_the_tasks() {
    let mut bench = Bench::new();
    bench.out("setenv XX a \"b c\"");
    assert_eq!(bench.out("setenv XX"), "a b c\n");
    assert_eq!(bench.out("setenv NOSUCH"), "");
    bench.out("export XX YY XX");
    assert_eq!(bench.out("export"), "PVM_EXPORT=XX:YY\n");
    bench.out("spawn prog");
    let Some(Request::Spawn(spawn)) = bench.fake.asked.last() else { panic!() };
    assert_eq!(spawn.environment, [ByteBuf::from(*b"PVM_EXPORT=XX:YY"), ByteBuf::from(*b"XX=a b c")]);
    bench.out("unexport XX");
    assert_eq!(bench.out("export"), "PVM_EXPORT=YY\n");
}

#[test]
fn signals_go_to_tasks_only() {
    let mut bench = Bench::new();
    bench.fake.tasks = vec![task(0x40003, 0x40002, "p"), task(0x40004, 0x40002, "p"), task(0x40005, 0, "p")];
    bench.out("sig 10 t40005 40006");
    bench.out("sig TERM t40007");
    bench.out("kill t40008");
    assert_eq!(bench.signals(), [(Tid(0x40005), 10), (Tid(0x40006), 10), (Tid(0x40007), 15), (Tid(0x40008), 15)]);
    bench.out("kill -c t40002");
    assert_eq!(bench.signals()[4..], [(Tid(0x40003), 15), (Tid(0x40004), 15)]);
    let (out, err, _) = bench.run("kill zz");
    assert_eq!(out, "");
    assert_eq!(err, "libpvm [t40001]: pvm_sendsig(): Bad parameter\nlibpvm [t40001]: pvm_kill(): Bad parameter\n");
    assert_eq!(bench.out("kill -q t40009"), "unknown flag -q\n");
}

#[test]
fn a_reset_spares_the_console_and_those_who_asked_for_it() {
    let mut bench = Bench::new();
    bench.fake.tasks = vec![task(0x40001, 0, ""), task(0x40002, 0, "p"), task(0x40007, 0, "p")];
    bench.out("reset");
    assert_eq!(bench.signals(), [(Tid(0x40002), 15)]);
    assert_eq!(bench.fake.asked.last(), Some(&Request::ResetInfo { name: None, index: None }));
    bench.out("reset info p 3");
    let name = Some(ByteBuf::from(*b"p"));
    assert_eq!(bench.fake.asked.last(), Some(&Request::ResetInfo { name, index: Some(3) }));
}

#[test]
fn texts_go_into_mailboxes() {
    let mut bench = Bench::new();
    assert_eq!(bench.out("put p 2 \"hello world\""), "");
    let Some(Request::PutInfo { name, flags, message }) = bench.fake.asked.last() else { panic!() };
    assert_eq!((&***name, *flags, message.src), (&b"p"[..], 2, OWN));
    assert_eq!(pvm_core::encoding::Reader::new(&message.body).string(), Some(&b"hello world"[..]));
    let (out, err, _) = bench.run("put \"\" 0 x");
    assert_eq!((out.as_str(), err.as_str()), ("Bad parameter\n", "libpvm [t40001]: pvm_putinfo(): Bad parameter\n"));
}

#[test]
fn tickle_prints_what_comes_back() {
    let mut bench = Bench::new();
    assert_eq!(bench.out("tickle 5"), "( 2 )\n");
    assert_eq!(bench.out("tickle 0x5"), "( 2 )\n");
    assert_eq!(bench.out("tickle 0"), "( )\n");
}

#[test]
fn traces_are_chosen() {
    let mut bench = Bench::new();
    assert_eq!(bench.out("trace").lines().count(), 26);
    assert_eq!(bench.out("trace + foo"), "no such event \"foo\"\n");
    assert_eq!(bench.out("trace buf"), "\nTrace Buffering set to 0 bytes\n\n");
    bench.out("trace buf 100");
    assert_eq!(bench.out("trace buf"), "\nTrace Buffering set to 100 bytes\n\n");
    assert_eq!(bench.out("trace opt"), "\nTrace Options set to \"full\"\n\n");
    bench.out("trace opt time");
    assert_eq!(bench.out("trace opt"), "\nTrace Options set to \"time\"\n\n");
    assert_eq!(bench.out("trace opt a b"), "\nError:  Unknown Trace Option \"a\"\n\nno such event \"b\"\n");
}
