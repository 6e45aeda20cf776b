//! Tree spawn: hosts that have joined run the scripts of `tests` as remote starts.
use super::remote_starts::RemoteStarts;
use super::tests::{Folder, PATIENCE, host, starter};
use super::*;

/// The hosts that have joined, and the orders of the master.
struct Fleet {
    starter: Starter,
    remote_starts: BTreeMap<Tid, RemoteStarts>,
    /// The orders by host.
    orders: Vec<(Tid, u64, StartOrder)>,
    remarks: Vec<String>,
    results: BTreeMap<usize, Result<Started, StartFailure>>,
    /// Whether a host that has been started gets a link to the master at once.
    come: bool,
}

impl Fleet {
    fn new(starts_max: usize, shell: RemoteShell) -> Fleet {
        let mut starter = starter(shell, None);
        starter.starts_max = starts_max;
        let (orders, remarks) = (Vec::new(), Vec::new());
        Fleet { starter, remote_starts: BTreeMap::new(), orders, remarks, results: BTreeMap::new(), come: true }
    }

    fn start(&mut self, hosts: std::ops::Range<usize>) {
        hosts.for_each(|index| self.starter.start(5, host(index, &format!("h{index} dx=pvmd"))));
    }

    fn come(&mut self, tid: Tid) {
        self.remote_starts.insert(tid, RemoteStarts::new().unwrap());
        self.starter.add_parent(tid);
    }

    fn step(&mut self) {
        for event in self.starter.step() {
            match event {
                StartEvent::Ended => {}
                StartEvent::Log(text) => self.remarks.push(text),
                StartEvent::Done { index, result, .. } => {
                    let well = result.is_ok();
                    assert!(self.results.insert(index, result).is_none(), "{index} has ended twice");
                    if well && self.come {
                        self.come(Tid::host_number(index as u32 + 2));
                    }
                }
                StartEvent::Order { parent, number, order } => {
                    let refusal = self.remote_starts.get_mut(&parent).and_then(|one| one.order(number, order.clone()));
                    self.orders.push((parent, number, order));
                    refusal.into_iter().for_each(|news| self.starter.handle_news(parent, number, news));
                }
            }
        }
        let all = self.remote_starts.iter_mut().map(|(host, remote_starts)| (*host, remote_starts.step()));
        for (host, news) in all.collect::<Vec<_>>() {
            news.into_iter().for_each(|(number, news)| self.starter.handle_news(host, number, news));
        }
    }

    fn until(&mut self, what: impl Fn(&Fleet) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !what(self) {
            assert!(Instant::now() < end, "{:?} {:?}", self.results, self.remarks);
            self.step();
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn all_come(&mut self, count: usize) {
        self.until(|fleet| fleet.results.len() == count);
        assert!(self.results.values().all(Result::is_ok), "{:?}", self.results);
        assert!(self.starter.is_idle());
    }

    fn runs(&self) -> usize {
        self.orders.iter().filter(|(_, _, order)| matches!(order, StartOrder::Run { .. })).count()
    }

    /// Begins the start of a host by the only parent, `host_number(9)`. Returns the number of the command.
    fn with_one_under_way(shell: RemoteShell) -> (Fleet, u64) {
        let mut fleet = Fleet::new(1, shell);
        let parent = Tid::host_number(9);
        fleet.starter.starts_max = 0;
        fleet.start(0..1);
        fleet.starter.add_parent(parent);
        fleet.step();
        fleet.starter.starts_max = 1;
        let Some((to, number, StartOrder::Run { .. })) = fleet.orders.first() else { panic!("{:?}", fleet.orders) };
        assert_eq!(*to, parent);
        let number = *number;
        (fleet, number)
    }
}

const PARENT: Tid = Tid(9 << pvm_core::tid::HOST_SHIFT);

fn line() -> String {
    let addresses = vec!["192.0.2.9:77".parse().unwrap()];
    Started { arch: "LINUX64".into(), dsig: 7, addresses, key: [9; 32], names: vec!["h".into()] }.line()
}

fn answering(folder: &Folder) -> RemoteShell {
    folder.shell(&format!("echo Welcome; echo careful >&2; sleep 0.05; echo '{}'; cat >/dev/null", line()))
}

#[test]
fn hosts_that_have_come_start_those_that_wait() {
    let folder = Folder::new();
    let mut fleet = Fleet::new(2, answering(&folder));
    fleet.start(0..30);
    fleet.all_come(30);
    assert!(fleet.runs() > 10, "{} of 30 were started by others", fleet.runs());
    assert!(fleet.remarks.iter().all(|text| !text.contains("not by")), "{:?}", fleet.remarks);
    let closed = fleet.orders.iter().filter(|(_, _, order)| *order == StartOrder::CloseInput).count();
    assert_eq!(closed, fleet.runs());
    // All commands end.
    let end = Instant::now() + PATIENCE;
    while !(fleet.starter.running.is_empty() && fleet.remote_starts.values().all(RemoteStarts::is_idle)) {
        assert!(Instant::now() < end);
        fleet.step();
    }
}

#[test]
fn a_master_of_few_processors_starts_fewer_itself() {
    assert_eq!([1, 2, 4, 128].map(starts_max), [16, 32, 64, 64]);
}

#[test]
fn as_many_as_the_master_starts_itself_take_no_other() {
    let folder = Folder::new();
    let mut fleet = Fleet::new(4, answering(&folder));
    (2..6).map(Tid::host_number).for_each(|tid| fleet.come(tid));
    fleet.start(6..10);
    fleet.all_come(4);
    assert_eq!(fleet.runs(), 0);
}

#[test]
fn where_only_the_master_can_start_hosts_it_starts_all() {
    let folder = Folder::new();
    let mut fleet = Fleet::new(2, answering(&folder));
    fleet.starter.parent_shell = RemoteShell::Program(vec!["/nowhere/rsh".into()]);
    fleet.start(0..20);
    fleet.all_come(20);
    // Tree spawn has turned out to be impossible, so no parent is asked again.
    let asked = fleet.runs();
    assert!(asked >= tree_spawn::FAN_OUT);
    fleet.start(20..40);
    fleet.all_come(40);
    assert_eq!(fleet.runs(), asked);
    assert!(fleet.remarks.iter().any(|text| text.contains("not by") && text.contains("/nowhere/rsh: No such file")));
}

#[test]
fn only_what_the_master_sees_itself_is_the_reason_of_a_failure() {
    let folder = Folder::new();
    let mut fleet = Fleet::new(1, folder.shell("echo Permission denied >&2; exit 255"));
    fleet.starter.parent_shell = folder.other_shell("echo No login from here >&2; exit 255");
    fleet.come(PARENT);
    fleet.start(0..2);
    fleet.until(|fleet| fleet.results.len() == 2);
    assert_eq!(fleet.runs(), 1);
    for result in fleet.results.values() {
        assert!(matches!(result, Err(failure) if failure.reason.contains("Permission denied")), "{result:?}");
    }
    assert!(fleet.remarks.iter().any(|text| text.contains("not by") && text.contains("No login from here")));
}

#[test]
fn where_pvmd_is_not_found_a_parent_tries_other_places_too() {
    let folder = Folder::new();
    let script = "case \"$2\" in /own/pvmd*) ;; *) echo not found >&2; exit 127;; esac";
    let mut fleet = Fleet::new(1, folder.shell(&format!("{script}; echo '{}'; cat >/dev/null", line())));
    fleet.starter.own_program = Some("/own/pvmd".into());
    fleet.come(PARENT);
    (0..2).for_each(|index| fleet.starter.start(5, host(index, &format!("h{index}"))));
    fleet.all_come(2);
    assert!(fleet.runs() > 0 && fleet.remarks.iter().all(|text| !text.contains("not by")), "{:?}", fleet.remarks);
}

#[test]
fn what_goes_by_another_way_does_not_go_by_other_hosts() {
    let starter = starter(RemoteShell::Program(vec!["rsh".into()]), None);
    let may_be_remote = |line: &str| starter.job(5, host(0, line)).may_be_remote;
    assert!(may_be_remote("h2") && may_be_remote("h2 lo=joe dx=my/pvmd ip=h2x"));
    assert!(!may_be_remote("h2 so=pw") && !may_be_remote("h2 so=ms"));
    for addresses in
        [vec![], vec!["127.0.1.1".parse().unwrap()], vec!["192.0.2.9".parse().unwrap(), "::1".parse().unwrap()]]
    {
        assert!(!starter.job(5, HostStart { addresses, ..host(0, "h2") }).may_be_remote);
    }
    let starter = super::tests::starter(RemoteShell::Srun, None);
    assert!(!starter.job(5, host(0, "h2")).may_be_remote);
}

#[test]
fn when_a_parent_leaves_the_master_starts_its_hosts() {
    let folder = Folder::new();
    let (mut fleet, number) = Fleet::with_one_under_way(answering(&folder));
    fleet.starter.handle_news(PARENT, number, StartNews::Output(b"ddpro<23".to_vec().into()));
    fleet.starter.remove_parent(PARENT);
    assert_eq!(fleet.starter.waiting.len(), 1);
    fleet.all_come(1);
    // Further news from the parent that has left is ignored.
    fleet.starter.handle_news(PARENT, number, StartNews::Ended(0));
    fleet.step();
    assert_eq!((fleet.runs(), fleet.results.len()), (1, 1));
}

#[test]
fn a_daemon_that_was_started_in_vain_is_waited_for() {
    let folder = Folder::new();
    let script = format!("if mkdir {}; then echo PvmDupHost; else echo '{}'; fi", folder.file("one").display(), line());
    let (mut fleet, _) = Fleet::with_one_under_way(folder.shell(&script));
    fleet.starter.remove_parent(PARENT);
    fleet.all_come(1);
    // A daemon that no parent can have started belongs to another machine.
    std::fs::remove_dir(folder.file("one")).unwrap();
    fleet.start(1..2);
    fleet.until(|fleet| fleet.results.len() == 2);
    assert!(matches!(&fleet.results[&1], Err(failure) if failure.code == Code::DupHost), "{:?}", fleet.results);
}

#[test]
fn a_parent_that_takes_too_long_is_told_to_stop() {
    let folder = Folder::new();
    let (mut fleet, number) = Fleet::with_one_under_way(answering(&folder));
    let wait = fleet.starter.next_wakeup().unwrap().saturating_duration_since(Instant::now());
    assert!(wait <= PARENT_WAIT && wait > PARENT_WAIT / 2);
    fleet.starter.running.values_mut().for_each(|running| running.job.deadline = Instant::now());
    fleet.all_come(1);
    assert!(fleet.orders.contains(&(PARENT, number, StartOrder::Kill)));
}

#[test]
fn a_parent_that_reports_too_much_has_failed() {
    let folder = Folder::new();
    let (mut fleet, number) = Fleet::with_one_under_way(answering(&folder));
    // News is ignored if it comes from another host or is about another command.
    let done = || StartNews::Output(format!("{}\n", line()).into_bytes().into());
    fleet.starter.handle_news(Tid::host_number(8), number, done());
    fleet.starter.handle_news(PARENT, number + 1, done());
    for _ in 0..START_OUTPUT_BYTES_MAX / 4096 {
        fleet.starter.handle_news(PARENT, number, StartNews::Output(vec![b'x'; 4096].into()));
    }
    assert!(fleet.starter.running.contains_key(&number) && fleet.results.is_empty());
    fleet.starter.handle_news(PARENT, number, StartNews::Errors(b"y".to_vec().into()));
    assert!(!fleet.starter.running.contains_key(&number));
    fleet.all_come(1);
    assert!(fleet.orders.contains(&(PARENT, number, StartOrder::Kill)));
}

#[test]
fn a_name_that_leads_elsewhere_from_a_parent_is_not_taken_for_the_host() {
    let folder = Folder::new();
    let (mut fleet, number) = Fleet::with_one_under_way(answering(&folder));
    let elsewhere = line().replace("192.0.2.9", "192.0.2.77");
    fleet.starter.handle_news(PARENT, number, StartNews::Output(format!("{elsewhere}\n").into_bytes().into()));
    fleet.all_come(1);
    let Some(Ok(started)) = fleet.results.get(&0) else { unreachable!() };
    assert_eq!(started.addresses, ["192.0.2.9:77".parse().unwrap()]);
    assert!(fleet.remarks.iter().any(|text| text.contains("another host")), "{:?}", fleet.remarks);
}

#[test]
fn after_every_failure_that_a_parent_can_report_the_master_starts_the_host() {
    let folder = Folder::new();
    let ends = [
        StartNews::Ended(0),
        StartNews::Ended(255 << 8),
        StartNews::Ended(-1),
        StartNews::NotRun(2),
        StartNews::NotRun(-7),
        StartNews::TooMuch,
        StartNews::Output(b"PvmDupHost\n".to_vec().into()),
        StartNews::Output(b"ddpro<0> arch<X>\n".to_vec().into()),
    ];
    for news in ends {
        let (mut fleet, number) = Fleet::with_one_under_way(answering(&folder));
        fleet.starter.handle_news(PARENT, number, news);
        fleet.all_come(1);
        assert_eq!(fleet.runs(), 1);
    }
}

/// A small pseudo-random number generator.
struct Prng(u64);

impl Prng {
    fn next_below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
    fn news(&mut self) -> StartNews {
        let text = |text: &str| ByteBuf::from(text.as_bytes().to_vec());
        match self.next_below(8) {
            0 => StartNews::Output(text(&format!("{}\n", line()))),
            1 => StartNews::Output(text("ddpro<")),
            2 => StartNews::Output(text("\nPvmCantStart\nPvmDupHost\n")),
            3 => StartNews::Errors(text("no\n")),
            4 => StartNews::Ended([0, 127 << 8, 255 << 8, 9][self.next_below(4) as usize]),
            5 => StartNews::NotRun(2),
            6 => StartNews::TooMuch,
            _ => StartNews::Output(vec![b'x'; START_OUTPUT_BYTES_MAX / 2].into()),
        }
    }
}

#[test]
fn whatever_parents_report_and_whenever_they_leave_each_host_has_one_result() {
    const HOSTS: usize = 12;
    for seed in 0..300 {
        let (mut prng, mut ends) = (Prng(seed), [0; HOSTS]);
        // The remote shell of the master itself does not exist, so its starts fail.
        let mut starter = starter(RemoteShell::Program(vec!["/nowhere/rsh".into()]), None);
        starter.starts_max = 0;
        (0..HOSTS).for_each(|index| starter.start(5, host(index, &format!("h{index}"))));
        for turn in 0..80 {
            let parent = Tid::host_number(20 + prng.next_below(3) as u32);
            match prng.next_below(8) {
                0 | 1 => starter.add_parent(parent),
                2 => starter.remove_parent(parent),
                3 => starter.starts_max = usize::from(turn > 40),
                _ => starter.handle_news(parent, prng.next_below(30), prng.news()),
            }
            count(&mut ends, starter.step());
        }
        starter.starts_max = 1;
        (20..23).for_each(|number| starter.remove_parent(Tid::host_number(number)));
        let end = Instant::now() + PATIENCE;
        while !starter.is_idle() && Instant::now() < end {
            count(&mut ends, starter.step());
        }
        assert!(starter.is_idle() && ends == [1; HOSTS], "{seed}: {ends:?}");
    }

    fn count(ends: &mut [usize], events: Vec<StartEvent>) {
        for event in events {
            if let StartEvent::Done { index, .. } = event {
                ends[index] += 1;
            }
        }
    }
}
