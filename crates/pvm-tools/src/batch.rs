//! The hosts of a job: Slurm, PBS (Torque), LSF, Grid Engine and Flux tell a job its hosts by variables or files.
use crate::wanted::{self, Wanted};
use pvm_core::hostfile;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

/// The hosts of a Slurm job (`n[1-3]`), and how many tasks each is to have (`4(x2),3`).
pub const SLURM_HOSTS: &str = "SLURM_JOB_NODELIST";
const SLURM_TASKS: &str = "SLURM_TASKS_PER_NODE";
/// The file of a PBS job: a line for each slot, with the host's name.
const PBS_FILE: &str = "PBS_NODEFILE";
/// The file of an LSF job, of the same form, and the variable with names and numbers (`h1 4 h2 4`).
const LSF_FILE: &str = "LSB_DJOB_HOSTFILE";
const LSF_HOSTS: &str = "LSB_MCPU_HOSTS";
/// The file of a Grid Engine job: lines with the host's name, the number of slots, the queue and the processors.
const GRID_ENGINE_FILE: &str = "PE_HOSTFILE";
/// The variable of a program within a Flux instance, and the one that is set if the instance is a job.
const FLUX_URI: &str = "FLUX_URI";
const FLUX_JOB: &str = "FLUX_ENCLOSING_ID";
/// The most slots of a host.
const SLOTS_MAX: usize = 65_535;

/// Hosts of a job: name and slots. Without slots, each host counts once.
type Slots = Vec<(String, Option<usize>)>;

/// Returns the hosts of the job in which this program runs; `None` if it runs in none.
pub fn hosts() -> Result<Option<Vec<Wanted>>, String> {
    hosts_by(|name| std::env::var(name).ok())
}

/// Returns the number of slots of the job in which this program runs; `None` if it runs in none.
pub fn slots() -> Result<Option<i32>, String> {
    Ok(hosts()?.map(|hosts| slots_of(&hosts)))
}

fn slots_of(hosts: &[Wanted]) -> i32 {
    hosts.iter().fold(0, |sum, host| sum.saturating_add(host.slots.map_or(1, |slots| slots as i32)))
}

/// Returns a remark if Slurm has started this program several times (`srun -n 3 pvm run ...`), and this process is not
/// the first: the others need not do the same in the machine of the job. All but one of the remarks are empty.
pub fn superfluous() -> Option<&'static str> {
    superfluous_by(|name| std::env::var(name).ok())
}

fn superfluous_by(variable: impl Fn(&str) -> Option<String>) -> Option<&'static str> {
    let number = |name: &str| variable(name).and_then(|text| text.parse::<u32>().ok());
    let is_own_machine = variable("PVM_VMID").is_some_and(|name| !name.is_empty());
    match (number("SLURM_STEP_NUM_TASKS")?, number("SLURM_PROCID")?) {
        (..2, _) | (_, 0) => None,
        _ if is_own_machine => None,
        (_, 1) => Some("srun has started this command more than once; it runs once, in the first process (srun -n 1)"),
        _ => Some(""),
    }
}

/// Returns the variable that tells the hosts of the job in which this program runs; `None` if it runs in none.
pub fn source() -> Option<&'static str> {
    let names = [SLURM_HOSTS, PBS_FILE, LSF_FILE, LSF_HOSTS, GRID_ENGINE_FILE, FLUX_JOB];
    names.into_iter().find(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

fn hosts_by(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Vec<Wanted>>, String> {
    let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    let (name, slots) = if let Some(list) = set(SLURM_HOSTS) {
        (SLURM_HOSTS, slurm(&list, set(SLURM_TASKS).as_deref()))
    } else if let Some(file) = set(PBS_FILE) {
        (PBS_FILE, read(&file).and_then(|text| line_for_each_slot(&text)))
    } else if let Some(file) = set(LSF_FILE) {
        (LSF_FILE, read(&file).and_then(|text| line_for_each_slot(&text)))
    } else if let Some(text) = set(LSF_HOSTS) {
        (LSF_HOSTS, names_and_numbers(&text))
    } else if let Some(file) = set(GRID_ENGINE_FILE) {
        (GRID_ENGINE_FILE, read(&file).and_then(|text| grid_engine(&text)))
    } else if set(FLUX_URI).and(set(FLUX_JOB)).is_some() {
        ("flux getattr hostlist", flux())
    } else {
        return Ok(None);
    };
    let explain = |error: String| format!("{name}: {error}");
    let slots = slots.map_err(explain)?;
    let words: Vec<String> = slots.into_iter().map(|(host, slots)| line(&host, slots)).collect();
    if words.is_empty() {
        return Err(explain("it names no host".into()));
    }
    wanted::of_words(&words).map(Some).map_err(explain)
}

/// Returns the word for a host that `pvm up` would accept.
fn line(host: &str, slots: Option<usize>) -> String {
    slots.map_or_else(|| host.to_owned(), |slots| format!("{host}:{slots}"))
}

fn read(file: &str) -> Result<String, String> {
    let text = pvm_link::read_bounded(Path::new(file), hostfile::FILE_BYTES_MAX);
    text.map(|text| String::from_utf8_lossy(&text).into_owned()).map_err(|error| format!("{file}: {error}"))
}

/// Reads Slurm's list of hosts, and its numbers of tasks if they are given and as many as the hosts.
fn slurm(list: &str, tasks: Option<&str>) -> Result<Slots, String> {
    let names: Vec<String> = wanted::of_words(&[list.to_owned()])?.into_iter().map(|host| host.line).collect();
    let tasks = tasks.and_then(repeated_numbers).filter(|tasks| tasks.len() == names.len());
    let slots = |index: usize| tasks.as_ref().map(|tasks| tasks[index]);
    Ok(names.into_iter().enumerate().map(|(index, name)| (name, slots(index))).collect())
}

/// Reads numbers such as `4(x2),3`.
fn repeated_numbers(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for word in text.trim().split(',') {
        let (number, times) = match word.split_once("(x") {
            Some((number, times)) => (number, times.strip_suffix(')')?.parse().ok()?),
            None => (word, 1),
        };
        let number = number.parse().ok().filter(|number| (1..=SLOTS_MAX).contains(number))?;
        if times > SLOTS_MAX {
            return None;
        }
        numbers.extend(std::iter::repeat_n(number, times));
    }
    Some(numbers)
}

/// Adds slots to a host, which may be there already.
fn add(slots: &mut Slots, host: &str, more: usize) -> Result<(), String> {
    let slot = match slots.iter_mut().find(|(known, _)| known == host) {
        Some((_, slot)) => slot,
        None => {
            slots.push((host.to_owned(), Some(0)));
            &mut slots.last_mut().expect("pushed above").1
        }
    };
    let sum = slot.unwrap_or(0).saturating_add(more);
    *slot = Some(sum).filter(|sum| (1..=SLOTS_MAX).contains(sum));
    slot.map(|_| ()).ok_or_else(|| format!("{host} has {sum} slots; a host has 1 to {SLOTS_MAX}"))
}

/// Reads a file with a line for each slot.
fn line_for_each_slot(text: &str) -> Result<Slots, String> {
    let mut slots = Slots::new();
    for host in text.lines().filter_map(|line| line.split_whitespace().next()) {
        add(&mut slots, host, 1)?;
    }
    Ok(slots)
}

/// Reads `h1 4 h2 4`.
fn names_and_numbers(text: &str) -> Result<Slots, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut slots = Slots::new();
    for pair in words.chunks(2) {
        let count = pair.get(1).and_then(|count| count.parse().ok());
        let count = count.ok_or_else(|| format!("after {} a number of slots is expected", pair[0]))?;
        add(&mut slots, pair[0], count)?;
    }
    Ok(slots)
}

/// Reads the file of a Grid Engine job.
fn grid_engine(text: &str) -> Result<Slots, String> {
    let mut slots = Slots::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let mut words = line.split_whitespace();
        let host = words.next().unwrap_or_default();
        let count = words.next().and_then(|count| count.parse().ok());
        let count = count.ok_or_else(|| format!("after {host} a number of slots is expected"))?;
        add(&mut slots, host, count)?;
    }
    Ok(slots)
}

/// Asks Flux for the hosts of its instance. A host with several brokers is named several times.
fn flux() -> Result<Slots, String> {
    let mut command = Command::new(OsStr::new("flux"));
    let output = command.args(["getattr", "hostlist"]).stdin(Stdio::null()).output();
    let output = output.map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    let list = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let mut slots = Slots::new();
    for host in wanted::of_words(&[list])? {
        add(&mut slots, &host.line, 1)?;
    }
    Ok(slots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_that_srun_has_started_the_first_runs_and_the_second_tells() {
        let said = |tasks: &str, process: &str, machine: &str| {
            superfluous_by(|name| {
                let value = match name {
                    "SLURM_STEP_NUM_TASKS" => tasks,
                    "SLURM_PROCID" => process,
                    _ => machine,
                };
                Some(value.to_owned()).filter(|value| !value.is_empty())
            })
        };
        assert_eq!([said("3", "0", ""), said("1", "0", ""), said("", "0", ""), said("3", "1", "own")], [None; 4]);
        assert!(said("3", "1", "").is_some_and(|text| text.contains("srun")));
        assert_eq!(said("3", "2", ""), Some(""));
    }

    fn of(variables: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let find =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let hosts = hosts_by(find)?.unwrap_or_default();
        let text = |host: &Wanted| format!("{} {}", host.name, host.slots.unwrap_or(0));
        Ok(hosts.iter().map(text).collect())
    }

    #[test]
    fn a_job_of_slurm_names_its_hosts_and_perhaps_numbers_of_tasks() {
        let hosts = (SLURM_HOSTS, "n[1-2],x");
        assert_eq!(of(&[hosts]).unwrap(), ["n1 0", "n2 0", "x 0"]);
        assert_eq!(of(&[hosts, (SLURM_TASKS, "4(x2),3")]).unwrap(), ["n1 4", "n2 4", "x 3"]);
        for strange in ["4", "4(x2)", "a,b,c", "0(x3)", "4(x999999999999),1", "1(x3"] {
            assert_eq!(of(&[hosts, (SLURM_TASKS, strange)]).unwrap(), ["n1 0", "n2 0", "x 0"], "{strange}");
        }
        assert!(of(&[(SLURM_HOSTS, "n[1-")]).unwrap_err().starts_with(SLURM_HOSTS));
        assert!(of(&[]).unwrap().is_empty() && of(&[(SLURM_HOSTS, "")]).unwrap().is_empty());
    }

    #[test]
    fn the_slots_of_all_hosts_are_counted() {
        let count = |list: &str, tasks: &str| {
            let job = [(SLURM_HOSTS, list), (SLURM_TASKS, tasks)];
            let value = |name: &str| job.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
            slots_of(&hosts_by(value).unwrap().unwrap())
        };
        assert_eq!((count("n[1-2],x", "4(x2),3"), count("n[1-3]", "strange")), (11, 3));
    }

    #[test]
    fn files_of_jobs_name_hosts_and_slots() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hosts");
        let path = file.to_str().unwrap();
        let with = |name: &str, text: &str| {
            std::fs::write(&file, text).unwrap();
            of(&[(name, path)])
        };
        assert_eq!(with(PBS_FILE, "a\nb\na\n\na\n").unwrap(), ["a 3", "b 1"]);
        assert_eq!(with(LSF_FILE, "a\na\nb\n").unwrap(), ["a 2", "b 1"]);
        assert_eq!(with(GRID_ENGINE_FILE, "a 4 all.q@a UNDEFINED\nb 2 all.q@b <NULL>\n").unwrap(), ["a 4", "b 2"]);
        assert!(with(GRID_ENGINE_FILE, "a\n").unwrap_err().contains("after a a number"));
        assert!(with(PBS_FILE, "\n").unwrap_err().contains("names no host"));
        assert!(of(&[(PBS_FILE, "/no/such/file")]).unwrap_err().contains("/no/such/file"));
    }

    #[test]
    fn lsf_names_hosts_and_slots_in_a_variable() {
        assert_eq!(of(&[(LSF_HOSTS, "a 4 b 2 a 1")]).unwrap(), ["a 5", "b 2"]);
        for strange in ["a", "a 4 b", "a b", "a 0", "a 65536"] {
            assert!(of(&[(LSF_HOSTS, strange)]).is_err(), "{strange}");
        }
    }
}
