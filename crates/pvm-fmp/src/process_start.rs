//! Starts processes, as `posix_spawn` does: the child shares the memory of this process until it executes its program,
//! so that nothing is copied, and only the thread that starts it waits for that.
//!
//! What `posix_spawn` cannot do: the child sets its own limit of descriptors, and it gets its streams though they have
//! numbers above that limit.
use pvm_descriptor::above_standard;
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use rustix::process::{Pid, Resource, Rlimit};
use rustix::thread::CpuSet;
use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicI32, Ordering};

/// The stack of a child until it executes its program, and the part of it at the low end that nobody may touch.
const STACK_BYTES: usize = 128 << 10;
const GUARD_BYTES: usize = 64 << 10;
/// The exit code of a child that could not execute its program. Nobody sees it.
const NOT_EXECUTED: c_int = 127;

/// A program and what it is given.
pub struct Program {
    /// The file, relative to `directory`.
    pub path: CString,
    /// The arguments; the first is the name of the program.
    pub arguments: Vec<CString>,
    /// The environment, `NAME=value` each.
    pub environment: Vec<CString>,
    /// The directory in which it runs.
    pub directory: CString,
    /// Standard input, output and errors.
    pub streams: [OwnedFd; 3],
    /// Whether the process leads a process group of its own.
    pub leads_group: bool,
    /// The limit of its descriptors.
    pub descriptors: Rlimit,
    /// The processors to which it is bound, if it is.
    pub processors: Option<CpuSet>,
}

/// A thread that starts processes. It handles no signals any more: a handler that ran in a child would change the memory of
/// this process.
pub struct StartingThread {
    stack: Stack,
    /// The signals that were blocked before. The processes inherit them.
    mask: libc::sigset_t,
}

impl StartingThread {
    /// Makes the calling thread one that starts processes.
    pub fn new() -> io::Result<StartingThread> {
        let stack = Stack::new()?;
        let (mut all, mut mask) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: the first set is filled before it is used, and there is room for the second one, which is filled, too.
        let mask = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), mask.as_mut_ptr());
            mask.assume_init()
        };
        Ok(StartingThread { stack, mask })
    }

    /// Starts a process. Returns when it executes its program, or fails. The streams of the program are closed here.
    pub fn start(&mut self, mut program: Program) -> io::Result<Pid> {
        let [input, output, errors] = program.streams;
        // A child that makes the copy 0 must not lose the original of 1.
        program.streams = [above_standard(input)?, above_standard(output)?, above_standard(errors)?];
        let arguments = pointers(&program.arguments);
        let environment = pointers(&program.environment);
        let mut child = Child {
            program: &program,
            arguments: arguments.as_ptr(),
            environment: environment.as_ptr(),
            mask: &raw const self.mask,
            errno: AtomicI32::new(0),
        };
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: the child has a stack of its own, which nobody uses meanwhile, since this thread waits until the child
        // has ended or has executed its program. What `child` points to lives until then.
        let number = unsafe { libc::clone(run_child, self.stack.top(), flags, (&raw mut child).cast()) };
        let process = Pid::from_raw(number).filter(|_| number > 0).ok_or_else(io::Error::last_os_error)?;
        match child.errno.load(Ordering::Relaxed) {
            0 => Ok(process),
            errno => {
                // It ends at once, so this does not wait for long.
                let _ = rustix::io::retry_on_intr(|| {
                    rustix::process::waitpid(Some(process), rustix::process::WaitOptions::empty())
                });
                Err(io::Error::from_raw_os_error(errno))
            }
        }
    }
}

/// Returns a list that ends with a null pointer, as the system wants it.
fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([null()]).collect()
}

/// What a child needs.
struct Child<'a> {
    program: &'a Program,
    arguments: *const *const c_char,
    environment: *const *const c_char,
    mask: *const libc::sigset_t,
    /// Why the child could not execute its program.
    errno: AtomicI32,
}

/// Runs in the child. Only calls of the system are made here, since other threads may hold any lock.
extern "C" fn run_child(argument: *mut c_void) -> c_int {
    // SAFETY: the value lives in the thread that waits for this child.
    let child = unsafe { &*argument.cast::<Child<'_>>() };
    let errno = execute(child);
    child.errno.store(errno.raw_os_error(), Ordering::Relaxed);
    // SAFETY: ends this process.
    unsafe { libc::_exit(NOT_EXECUTED) }
}

/// Executes the program of the child. Returns only if this fails.
fn execute(child: &Child<'_>) -> Errno {
    reset_handlers();
    if let Err(errno) = prepare(child.program) {
        return errno;
    }
    let path = child.program.path.as_ptr();
    // SAFETY: the set, the path and the two lists, which end with null, live in the thread that waits for this child.
    unsafe {
        libc::sigprocmask(libc::SIG_SETMASK, child.mask, null_mut());
        libc::execve(path, child.arguments, child.environment);
    }
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::NOEXEC)
}

/// Sets up the child: its streams, process group, processors, directory, and limit of descriptors.
fn prepare(program: &Program) -> rustix::io::Result<()> {
    let [input, output, errors] = &program.streams;
    rustix::stdio::dup2_stdin(input.as_fd())?;
    rustix::stdio::dup2_stdout(output.as_fd())?;
    rustix::stdio::dup2_stderr(errors.as_fd())?;
    if program.leads_group {
        rustix::process::setpgid(None, None)?;
    }
    if let Some(processors) = &program.processors {
        rustix::thread::sched_setaffinity(None, processors)?;
    }
    rustix::process::chdir(program.directory.as_c_str())?;
    rustix::process::setrlimit(Resource::Nofile, program.descriptors)
}

/// Takes back the handlers of this process, and that it ignores SIGPIPE, as every program in Rust does. The child has a
/// list of handlers of its own.
fn reset_handlers() {
    for signal in 1..=libc::SIGRTMAX() {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: asks for an action, for which there is room, and zeroes are one; then sets one that was read.
        unsafe {
            if libc::sigaction(signal, null(), action.as_mut_ptr()) != 0 {
                continue;
            }
            let mut action = action.assume_init();
            let stays_ignored = action.sa_sigaction == libc::SIG_IGN && signal != libc::SIGPIPE;
            if action.sa_sigaction != libc::SIG_DFL && !stays_ignored {
                action.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &raw const action, null_mut());
            }
        }
    }
}

/// A stack with a guard at its low end.
struct Stack(*mut c_void);

// SAFETY: it is memory that only its owner uses.
unsafe impl Send for Stack {}

impl Stack {
    fn new() -> rustix::io::Result<Stack> {
        // SAFETY: new memory at an address that the system chooses.
        let start =
            unsafe { mmap_anonymous(null_mut(), STACK_BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)? };
        let stack = Stack(start);
        // SAFETY: the low part of that memory, which nobody uses yet. No page is larger than the guard.
        unsafe { mprotect(start, GUARD_BYTES, MprotectFlags::empty())? };
        Ok(stack)
    }

    /// Returns its high end, where a stack begins.
    fn top(&self) -> *mut c_void {
        self.0.wrapping_byte_add(STACK_BYTES)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and no child uses it any more.
        let _ = unsafe { munmap(self.0, STACK_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags};
    use rustix::pipe::{PipeFlags, pipe_with};
    use std::fs::File;
    use std::io::Read;

    fn text(text: &str) -> CString {
        CString::new(text).unwrap()
    }

    /// A program in a shell whose output can be read.
    fn shell(script: &str) -> (Program, File) {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let errors = null.try_clone().unwrap();
        let program = Program {
            path: text("sh"),
            arguments: ["name", "-c", script].map(text).to_vec(),
            environment: vec![text("GREETING=hello")],
            directory: text("/bin"),
            streams: [null, writer, errors],
            leads_group: true,
            descriptors: rustix::process::getrlimit(Resource::Nofile),
            processors: None,
        };
        (program, reader.into())
    }

    fn output(program: Program, mut reader: File) -> String {
        let process = std::thread::spawn(|| StartingThread::new().unwrap().start(program)).join().unwrap().unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        rustix::process::waitpid(Some(process), rustix::process::WaitOptions::empty()).unwrap();
        text
    }

    #[test]
    fn a_program_gets_its_surroundings_and_no_signal_is_blocked_or_caught() {
        let script = "echo $0 $GREETING; readlink /proc/self/fd/0; ulimit -Sn; cat /proc/self/status";
        let (mut program, reader) = shell(script);
        let own = rustix::process::getrlimit(Resource::Nofile);
        program.descriptors = Rlimit { current: Some(77), maximum: own.maximum };
        let said = output(program, reader);
        assert!(said.starts_with("name hello\n/dev/null\n77\n"), "{said}");
        let set = |name: &str| {
            let line = said.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        assert_eq!((set("SigBlk:"), set("SigCgt:"), set("SigIgn:") & 1 << (libc::SIGPIPE - 1)), (0, 0, 0));
        assert_eq!(rustix::process::getrlimit(Resource::Nofile), own);
    }

    #[test]
    fn streams_may_have_numbers_above_the_limit() {
        let (mut program, reader) = shell("echo $(ulimit -n)");
        program.streams = program.streams.map(|stream| rustix::io::fcntl_dupfd_cloexec(stream, 200).unwrap());
        program.descriptors = Rlimit { current: Some(20), maximum: Some(20) };
        assert_eq!(output(program, reader), "20\n");
    }

    #[test]
    fn what_cannot_be_executed_is_an_error_and_leaves_no_process() {
        let mut thread = std::thread::spawn(StartingThread::new).join().unwrap().unwrap();
        let mut fails = |change: fn(&mut Program)| {
            let (mut program, mut reader) = shell("true");
            change(&mut program);
            let error = thread.start(program).unwrap_err();
            assert_eq!(reader.read(&mut [0]).unwrap(), 0, "somebody holds the pipe");
            error.raw_os_error()
        };
        assert_eq!(fails(|program| program.path = text("/nowhere/x")), Some(libc::ENOENT));
        assert_eq!(fails(|program| program.path = text("/etc/passwd")), Some(libc::EACCES));
        assert_eq!(fails(|program| program.directory = text("/nowhere")), Some(libc::ENOENT));
        assert_eq!(fails(|program| program.processors = Some(CpuSet::new())), Some(libc::EINVAL));
    }
}
