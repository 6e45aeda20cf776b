//! The cases: what users do in jobs, and what befalls jobs.

use super::cgroups::Groups;
use super::cluster::{Cluster, Said};
use crate::hosts::network::{Host, is_daemon, name_of};
use crate::machine::wait_until;
use crate::processes::{find, signal};
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::time::Duration;

/// What Slurm needs for a case.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    /// Control groups that hold the processes of a step together.
    Groups,
    /// Control groups that limit memory, too.
    Memory,
}

impl Needs {
    /// Returns what is missing.
    pub fn missing(self, groups: Option<Groups>) -> Option<&'static str> {
        match self {
            Needs::Groups if groups.is_none() => Some("Slurm has no control groups here to hold a step together"),
            Needs::Memory if groups != Some(Groups::One) => {
                Some("Slurm needs control groups of version 1 to limit memory")
            }
            _ => None,
        }
    }
}

/// A case. After each case, no job, process or file may be left.
pub struct Case {
    pub name: &'static str,
    /// Whether the case belongs to the short form.
    pub short: bool,
    pub needs: Needs,
    pub run: fn(&Cluster<'_>) -> Result<()>,
}

const fn short(name: &'static str, run: fn(&Cluster<'_>) -> Result<()>) -> Case {
    Case { name, short: true, needs: Needs::Nothing, run }
}

const fn long(name: &'static str, run: fn(&Cluster<'_>) -> Result<()>) -> Case {
    Case { short: false, ..short(name, run) }
}

/// Returns a case after which Slurm itself has to find processes of a step whose parents have ended. Without control
/// groups it does not find them.
const fn held(name: &'static str, run: fn(&Cluster<'_>) -> Result<()>) -> Case {
    Case { needs: Needs::Groups, ..short(name, run) }
}

/// All cases. Those in which nodes fail come last.
pub const CASES: &[Case] = &[
    short("salloc_runs_a_program_over_all_nodes", salloc_runs),
    short("a_batch_script_runs_a_program", batch_runs),
    short("a_program_that_srun_starts_finds_the_machine", srun_starts_members),
    short("the_daemons_are_steps_of_the_job", daemons_are_steps),
    held("a_job_that_ends_takes_its_machine_with_it", job_ends),
    short("a_daemon_outlives_the_srun_that_started_it", srun_killed),
    held("scancel_leaves_nothing", scancelled_batch),
    short("scancel_of_salloc_leaves_nothing", scancelled_salloc),
    short("scancel_ends_a_machine_whose_master_is_outside_the_job", scancelled_up),
    long("a_job_that_is_killed_at_once_leaves_no_process", killed_at_once),
    long("the_time_limit_of_a_job_ends_its_machine", time_limit),
    long("two_jobs_on_the_same_nodes_do_not_meet", two_jobs),
    long("the_steps_of_the_user_and_the_daemons_share_the_nodes", steps_share),
    long("srun_with_several_processes_runs_the_program_once", srun_several),
    long("variables_of_srun_do_no_harm", variables_of_srun),
    long("tasks_may_use_all_processors_of_the_job", all_processors),
    long("doctor_and_info_name_slurm", doctor_and_info),
    Case { needs: Needs::Memory, ..long("a_task_beyond_the_memory_of_the_job_is_lost_alone", memory_limit) },
    long("a_daemon_that_is_killed_is_a_lost_host", daemon_killed),
    long("a_node_that_fails_is_told_and_the_job_goes_on", node_fails),
    short("the_first_node_fails_and_the_machine_goes_on", first_node_fails),
    long("the_first_node_of_a_batch_job_fails_and_its_tasks_end_the_job", first_node_of_batch_fails),
    long("without_no_kill_the_job_ends_with_its_first_node", first_node_ends_job),
];

/// Asks for all nodes, with two tasks on each.
const ALL: &str = "-N3 --ntasks-per-node=2";

/// Checks that a command has succeeded and printed this text.
fn says(said: &Said, wanted: &str) -> Result<()> {
    ensure!(said.succeeded && said.text.contains(wanted), "expected `{wanted}`: {}", said.text);
    Ok(())
}

/// Counts the lines that contain the text.
fn lines(text: &str, part: &str) -> usize {
    text.lines().filter(|line| line.contains(part)).count()
}

/// Checks that the output names each node this number of times.
fn names_each_node(cluster: &Cluster<'_>, text: &str, times: usize) -> Result<()> {
    for node in cluster.nodes() {
        let found = text.lines().filter(|line| *line == node.name).count();
        ensure!(found == times, "{} is named {found} times, not {times} times: {text}", node.name);
    }
    Ok(())
}

/// Submits a batch job with these options and lines, and returns its number.
fn submit(cluster: &Cluster<'_>, options: &str, lines: &str) -> Result<String> {
    let script = cluster.script("job.sh", lines)?;
    let said = cluster.sh(&format!("rm -f job.out; sbatch --parsable --output=job.out {options} {script}"))?;
    ensure!(said.succeeded, "sbatch: {}", said.text);
    Ok(said.text.trim().to_owned())
}

/// Waits until the output of the batch job has this text.
fn await_output(cluster: &Cluster<'_>, wanted: &str) -> Result<()> {
    let is_there = wait_until(Duration::from_secs(30), || cluster.file("job.out").contains(wanted));
    ensure!(is_there, "the job does not say `{wanted}`: {}", cluster.file("job.out"));
    Ok(())
}

/// Waits until a batch job has ended, and checks its state.
fn await_end(cluster: &Cluster<'_>, job: &str, state: &str) -> Result<()> {
    let show = || cluster.sh(&format!("scontrol show job {job}")).map(|said| said.text).unwrap_or_default();
    let is_over = wait_until(Duration::from_secs(45), || show().contains(&format!("JobState={state}")));
    let now = show().split_whitespace().find(|word| word.starts_with("JobState=")).unwrap_or_default().to_owned();
    ensure!(is_over, "job {job} is not {state} but {now}: {}", cluster.file("job.out"));
    Ok(())
}

fn salloc_runs(cluster: &Cluster<'_>) -> Result<()> {
    let said = cluster.sh(&format!("salloc -Q {ALL} pvm run --report hostname"))?;
    names_each_node(cluster, &said.text, 2)?;
    says(&said, "6 tasks on 3 hosts")
}

fn batch_runs(cluster: &Cluster<'_>) -> Result<()> {
    let job = submit(cluster, ALL, "pvm run -n 6 hostname\npvm run -n 1 sh -c 'exit 7'")?;
    await_end(cluster, &job, "FAILED")?;
    names_each_node(cluster, &cluster.file("job.out"), 2)?;
    let said = cluster.sh(&format!("scontrol show job {job}"))?;
    ensure!(said.text.contains("ExitCode=7:0"), "the exit code of the program is not that of the job: {}", said.text);
    Ok(())
}

fn srun_starts_members(cluster: &Cluster<'_>) -> Result<()> {
    let job = submit(cluster, "-N3 --ntasks-per-node=1", "pvm up && srun -n 3 member 3\npvm down")?;
    await_end(cluster, &job, "COMPLETED")?;
    let text = cluster.file("job.out");
    ensure!(text.contains("3 of 3 members on 3 hosts"), "{text}");
    Ok(())
}

fn daemons_are_steps(cluster: &Cluster<'_>) -> Result<()> {
    let job = submit(cluster, ALL, "pvm run -n 6 sh -c 'echo ready; sleep 30'")?;
    let are_ready = || lines(&cluster.file("job.out"), "ready") == 6;
    ensure!(wait_until(Duration::from_secs(30), are_ready), "{}", cluster.file("job.out"));
    for node in cluster.nodes() {
        let daemon = node.daemon().with_context(|| format!("no daemon on {}", node.name))?;
        let said = cluster.sh(&format!("srun --overlap --jobid={job} -w {} scontrol listpids {job}", node.name))?;
        let listed = |pid: u32| said.text.lines().any(|line| line.split_whitespace().next() == Some(&pid.to_string()));
        ensure!(listed(daemon), "Slurm does not list the daemon {daemon} of {}: {}", node.name, said.text);
        if let Some(groups) = cluster.groups {
            for pid in Cluster::processes(node).into_iter().filter(|pid| is_part(*pid)) {
                let own = std::fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
                let group = groups.step(&node.name, &job);
                ensure!(own.contains(&group), "{pid} on {} is not in {group}: {own}", node.name);
            }
        }
    }
    // The first node has the batch step, the others a step each.
    let count = || {
        let said = cluster.sh(&format!("sstat --noheader --parsable2 --allsteps --format=JobID,MaxRSS {job}"));
        let text = said.map(|said| said.text).unwrap_or_default();
        text.lines().filter(|line| line.split_once('|').is_some_and(|(_, memory)| memory.ends_with('K'))).count()
    };
    let mut steps = 0;
    let are_counted = wait_until(Duration::from_secs(10), || {
        steps = count();
        steps >= 3
    });
    ensure!(are_counted, "only {steps} steps use memory, by Slurm's accounting");
    cluster.sh(&format!("scancel {job}"))?;
    await_end(cluster, &job, "CANCELLED")
}

/// Returns whether a process is a daemon or a task.
fn is_part(pid: u32) -> bool {
    let words = find(pid).and_then(|process| process.cmdline().ok()).unwrap_or_default();
    is_daemon(pid) || words.iter().any(|word| word.contains("ready"))
}

fn job_ends(cluster: &Cluster<'_>) -> Result<()> {
    // The second machine uses the same paths as the first: both are named after the job. Tasks that ignore what asks
    // them to end keep the other nodes' daemons from ending at once.
    for program in ["/bin/sleep", &stubborn(cluster)?] {
        let job = submit(cluster, ALL, &format!("pvm up; pvm down; pvm up; echo 'spawn -4 {program} 300' | pvm"))?;
        await_end(cluster, &job, "COMPLETED")?;
        ensure!(cluster.file("job.out").contains("4 successful"), "{}", cluster.file("job.out"));
        cluster.nothing_is_left().with_context(|| format!("after a batch job with {program}"))?;
    }
    says(&cluster.sh(&format!("salloc -Q {ALL} pvm up"))?, "4 hosts")?;
    cluster.nothing_is_left().context("after salloc")
}

/// Kills all `srun`, as Slurm does at the end of a batch script in any order with the other processes of the script.
fn srun_killed(cluster: &Cluster<'_>) -> Result<()> {
    let shell = "rm -f go; pvm up; until [ -e go ]; do sleep 0.1; done; echo conf | pvm; pvm run -n 6 echo here";
    let mut running = cluster.begin(&format!("salloc -Q {ALL} sh -c '{shell}'"))?;
    running.says("4 hosts")?;
    // `srun` forks, but starts no `srun`.
    let is_srun = |pid: u32| name_of(pid) == "srun";
    let parent = |pid: u32| find(pid).and_then(|process| process.stat().ok()).map_or(0, |stat| stat.ppid as u32);
    let starters: Vec<u32> = cluster.controller().processes().into_iter().filter(|pid| is_srun(*pid)).collect();
    let starters: Vec<u32> = starters.into_iter().filter(|pid| !is_srun(parent(*pid))).collect();
    ensure!(starters.len() == cluster.nodes().len(), "{} srun for {} nodes", starters.len(), cluster.nodes().len());
    starters.into_iter().for_each(|pid| signal(pid, Signal::KILL));
    // Slurm needs some milliseconds to kill a step.
    std::thread::sleep(Duration::from_secs(1));
    cluster.sh("touch go")?;
    let said = running.end()?;
    ensure!(lines(&said.text, "4 hosts") == 2 && lines(&said.text, "here") == 6, "{}", said.text);
    cluster.nothing_is_left()
}

fn scancelled_batch(cluster: &Cluster<'_>) -> Result<()> {
    let job = submit(cluster, ALL, "pvm run -n 6 sh -c 'trap \"\" INT; echo ready; sleep 300'")?;
    await_output(cluster, "ready\nready\nready\nready\nready\nready\n")?;
    cluster.sh(&format!("scancel {job}"))?;
    await_end(cluster, &job, "CANCELLED")?;
    cluster.nothing_is_left()?;
    // Slurm kills what has not ended before the machine would.
    let stubborn = stubborn(cluster)?;
    let lines = format!("HPVM_HALT_GRACE=60 pvm up; echo 'spawn -4 {stubborn}' | pvm; echo waits; sleep 300");
    let job = submit(cluster, ALL, &lines)?;
    await_output(cluster, "waits")?;
    cluster.sh(&format!("scancel {job}"))?;
    await_end(cluster, &job, "CANCELLED")
}

/// Returns the command of a program that ignores what asks it to end.
fn stubborn(cluster: &Cluster<'_>) -> Result<String> {
    Ok(format!("/bin/sh {}", cluster.script("stubborn", "trap '' TERM HUP INT; sleep 300 & wait; wait")?))
}

fn scancelled_salloc(cluster: &Cluster<'_>) -> Result<()> {
    let mut running = cluster.begin(&format!("salloc -Q -J held {ALL} pvm run -n 6 sh -c 'echo ready; sleep 300'"))?;
    running.says("ready\nready\nready\nready\nready\nready\n")?;
    cluster.sh("scancel --name=held")?;
    let said = running.end()?;
    let is_told = said.text.contains("lost with its host") || said.text.contains("by signal 15");
    ensure!(!said.succeeded && is_told, "{}", said.text);
    Ok(())
}

fn scancelled_up(cluster: &Cluster<'_>) -> Result<()> {
    // The user's shell does not end with the job.
    let shell = "rm -f stop; pvm up; until [ -e stop ]; do sleep 0.1; done";
    let mut running = cluster.begin(&format!("salloc -Q -J held {ALL} sh -c '{shell}'"))?;
    running.says("4 hosts")?;
    let began = std::time::Instant::now();
    cluster.sh("scancel --name=held")?;
    let is_gone = wait_until(Duration::from_secs(10), || cluster.controller().daemon().is_none());
    if !is_gone {
        cluster.sh("touch stop")?;
    }
    ensure!(is_gone, "the master is there {} s after the end of its job", began.elapsed().as_secs());
    cluster.sh("touch stop")?;
    running.end()?;
    Ok(())
}

fn killed_at_once(cluster: &Cluster<'_>) -> Result<()> {
    let job = submit(cluster, ALL, "pvm run -n 6 sh -c 'trap \"\" TERM; echo ready; while :; do sleep 1; done'")?;
    await_output(cluster, "ready\nready\nready\nready\nready\nready\n")?;
    cluster.sh(&format!("scancel --full --signal=KILL {job}"))?;
    await_end(cluster, &job, "")?;
    let are_gone = || cluster.nodes().iter().all(|node| Cluster::processes(node).is_empty());
    ensure!(wait_until(Duration::from_secs(20), are_gone), "processes are left on the nodes");
    // Whoever is killed cannot remove its socket. The daemon of the next machine of this name would.
    cluster.nodes().iter().try_for_each(|node| node.sh("rm -rf /tmp/pvm[dl]*").map(|_| ()))
}

fn time_limit(cluster: &Cluster<'_>) -> Result<()> {
    let job = submit(cluster, ALL, "pvm run -n 6 sh -c 'echo ready; sleep 300'")?;
    await_output(cluster, "ready")?;
    cluster.sh(&format!("scontrol update JobId={job} EndTime=now"))?;
    await_end(cluster, &job, "TIMEOUT")
}

fn two_jobs(cluster: &Cluster<'_>) -> Result<()> {
    let run = "salloc -Q -N3 --ntasks-per-node=1 pvm run -n 3 member 3 2";
    let (first, second) = (cluster.begin(run)?, cluster.begin(run)?);
    for running in [first, second] {
        says(&running.end()?, "3 of 3 members on 3 hosts")?;
    }
    Ok(())
}

fn steps_share(cluster: &Cluster<'_>) -> Result<()> {
    // The user's step holds all processors and all memory while the daemons start.
    let lines = "srun -n 6 sleep 8 & sleep 1; pvm run -n 6 hostname; pvm up; srun -n 6 hostname; pvm down; kill %1";
    let job = submit(cluster, ALL, &format!("{lines}; wait; exit 0"))?;
    await_end(cluster, &job, "COMPLETED")?;
    names_each_node(cluster, &cluster.file("job.out"), 4)
}

fn srun_several(cluster: &Cluster<'_>) -> Result<()> {
    let said = cluster.sh("srun -N3 --ntasks-per-node=1 pvm run -n 3 hostname")?;
    names_each_node(cluster, &said.text, 1)?;
    says(&said, "pvm run: srun has started this command more than once")
}

fn variables_of_srun(cluster: &Cluster<'_>) -> Result<()> {
    let harm = "export SLURM_LABELIO=1 SLURM_EXACT=1 SRUN_CPUS_PER_TASK=1 SLURM_STDOUTMODE=none SLURM_EXPORT_ENV=NONE \
                SLURM_DISTRIBUTION=plane=1 SLURM_STDINMODE=none SLURM_CPU_BIND=verbose";
    let job = submit(cluster, ALL, &format!("{harm}\npvm run -n 6 hostname"))?;
    await_end(cluster, &job, "COMPLETED")?;
    names_each_node(cluster, &cluster.file("job.out"), 2)
}

fn all_processors(cluster: &Cluster<'_>) -> Result<()> {
    let processors = std::thread::available_parallelism()?.get().min(2);
    for options in ["-N3 --ntasks-per-node=2", "-N3 --ntasks-per-node=1 --cpus-per-task=2", "-N3 --exclusive"] {
        let said = cluster.sh(&format!("salloc -Q {options} pvm run -n 3 --map-by node nproc"))?;
        let all = lines(&said.text, &processors.to_string());
        ensure!(said.succeeded && all == 3, "with {options}: {}", said.text);
    }
    Ok(())
}

fn doctor_and_info(cluster: &Cluster<'_>) -> Result<()> {
    let said =
        cluster.sh(&format!("salloc -Q {ALL} sh -c 'echo job $SLURM_JOB_ID; pvm info; pvm doctor bravo delta'"))?;
    let job = said.text.lines().find_map(|line| line.strip_prefix("job ")).unwrap_or_default().to_owned();
    for wanted in ["SLURM_JOB_NODELIST", "srun  (from the job)", &format!("slurm-{job}  (from the job)")] {
        says(&said, wanted)?;
    }
    Ok(())
}

fn memory_limit(cluster: &Cluster<'_>) -> Result<()> {
    let said = cluster.sh("salloc -Q -N3 --ntasks-per-node=1 --mem=150M pvm run -n 1 survivor delta:400")?;
    says(&said, "1 answered, 1 lost")
}

fn daemon_killed(cluster: &Cluster<'_>) -> Result<()> {
    let job = submit(cluster, "-N3 --ntasks-per-node=1", "pvm run -n 1 survivor loss")?;
    await_output(cluster, "2 workers wait")?;
    let node = cluster.nodes().last().context("there are nodes")?;
    signal(node.daemon().context("no daemon")?, Signal::KILL);
    await_end(cluster, &job, "COMPLETED")?;
    ensure!(cluster.file("job.out").contains("1 answered, 1 lost"), "{}", cluster.file("job.out"));
    node.sh("rm -rf /tmp/pvm[dl]*")?;
    Ok(())
}

fn node_fails(cluster: &Cluster<'_>) -> Result<()> {
    let job = submit(cluster, "--no-kill -N3 --ntasks-per-node=1", "pvm run -n 1 survivor loss")?;
    await_output(cluster, "2 workers wait")?;
    let node = cluster.nodes().last().context("there are nodes")?;
    node.sh("ip link set eth0 down")?;
    kill_all(node)?;
    let ended = await_end(cluster, &job, "COMPLETED");
    node.sh("ip link set eth0 up")?;
    back(cluster, node)?;
    ended?;
    let text = cluster.file("job.out");
    ensure!(text.contains("a host is gone") && text.contains("1 answered, 1 lost"), "{text}");
    cluster.await_nodes()
}

/// Kills all processes of a node, those of Slurm and those of the machine.
fn kill_all(node: &Host) -> Result<()> {
    // A shell whose command has been killed may start the next one before it is killed itself.
    let are_dead = wait_until(Duration::from_secs(10), || {
        node.processes().into_iter().for_each(|pid| signal(pid, Signal::KILL));
        node.processes().is_empty()
    });
    ensure!(are_dead, "processes of {} do not end", node.name);
    Ok(())
}

/// Starts a node again whose processes were killed.
fn back(cluster: &Cluster<'_>, node: &Host) -> Result<()> {
    node.sh("rm -rf /tmp/* /dev/shm/*")?;
    cluster.restart_node(node)
}

/// Kills all processes of the first node. Its system goes on, so it is certain for the other daemons that its daemon has ended.
/// Runs `check`, and starts the node again.
fn lose_first_node(cluster: &Cluster<'_>, check: impl FnOnce() -> Result<()>) -> Result<()> {
    let node = &cluster.nodes()[0];
    kill_all(node)?;
    let checked = check();
    back(cluster, node)?;
    checked?;
    cluster.await_nodes()
}

/// Lines of shell that wait until Slurm has taken the first node out of the job.
const UNTIL_WITHOUT_FIRST: &str =
    "until scontrol show job $SLURM_JOB_ID | grep -q '^ *NodeList=charlie,delta$'; do sleep 0.5; done";
/// What `onward` prints at its end.
const WENT_ON: &str = "goes on: 2 hosts, 1 tasks were spawned, the entry says 3";

fn first_node_fails(cluster: &Cluster<'_>) -> Result<()> {
    let script = cluster.script(
        "first.sh",
        &format!(
            "on='srun --overlap -N1 -n1 -w'; $on bravo sh -c 'pvm up && touch up && sleep 300' &\n\
             until [ -e up ]; do sleep 0.1; done; $on charlie onward bravo; {UNTIL_WITHOUT_FIRST}\n\
             $on charlie pvm conf; $on charlie pvm down; wait; echo end of $SLURM_JOB_ID."
        ),
    )?;
    let options = "--no-kill -N3 --ntasks-per-node=1";
    let mut running = cluster.begin(&format!("rm -f up; salloc -Q {options} sh {script}"))?;
    running.says("waits for the loss")?;
    lose_first_node(cluster, || {
        let said = running.end()?;
        for wanted in [WENT_ON, "\n2 hosts", "end of "] {
            says(&said, wanted)?;
        }
        let job = said.text.rsplit("end of ").next().and_then(|rest| rest.split('.').next()).unwrap_or_default();
        await_end(cluster, job, "COMPLETED")
    })
}

fn first_node_of_batch_fails(cluster: &Cluster<'_>) -> Result<()> {
    let lines = format!("onward bravo > onward.out; {UNTIL_WITHOUT_FIRST}; pvm conf > conf.out; scancel $SLURM_JOB_ID");
    let script = cluster.script("onward.sh", &lines)?;
    cluster.sh("rm -f onward.out conf.out")?;
    let lines = format!("pvm up; echo 'spawn -charlie /bin/sh {script}' | pvm; sleep 300");
    let job = submit(cluster, "--no-kill -N3 --ntasks-per-node=1", &lines)?;
    let waits = || cluster.file("onward.out").contains("waits for the loss");
    ensure!(wait_until(Duration::from_secs(30), waits), "no task waits: {}", cluster.file("job.out"));
    lose_first_node(cluster, || {
        // The batch script has ended with its node, so the job ends when a task says so.
        await_end(cluster, &job, "CANCELLED")?;
        let (text, hosts) = (cluster.file("onward.out"), cluster.file("conf.out"));
        ensure!(text.contains(WENT_ON) && hosts.contains("2 hosts"), "{text}{hosts}");
        Ok(())
    })
}

fn first_node_ends_job(cluster: &Cluster<'_>) -> Result<()> {
    let job = submit(cluster, "--no-requeue -N3 --ntasks-per-node=1", "pvm up; sleep 300")?;
    await_output(cluster, "3 hosts")?;
    lose_first_node(cluster, || {
        await_end(cluster, &job, "NODE_FAIL")?;
        let are_gone = || cluster.nodes().iter().all(|node| Cluster::processes(node).is_empty());
        ensure!(wait_until(Duration::from_secs(20), are_gone), "processes are left on the nodes");
        Ok(())
    })
}
