//! Why a thread waits: by the functions at the top of its stack, else by its system call.

use serde::{Deserialize, Serialize};

use super::group::StackFrame;
use crate::capture::{Activity, Wait};
use crate::machine::{Resource, SystemCall};
use crate::trace::{BlockedOn, FunctionKind};

/// Number of functions from the top of a stack that may show why its thread waits.
pub(super) const MAX_DEPTH: usize = 24;

/// The same for functions of a C library that is linked into the program.
const LINKED_DEPTH: usize = 6;

/// Why a thread does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// It waits for a lock that another thread has.
    Lock,
    /// It runs, or is ready for a CPU.
    Runs,
    /// It waits, and no signal wakes it: for a disk, mostly.
    Uninterruptible,
    /// It is in a page fault.
    PageFault,
    /// It blocks on the result of a task.
    Task,
    /// It waits until another thread signals an event or a condition.
    Event,
    /// It waits for a network, a pipe, a terminal or a file.
    Io,
    /// It sleeps for a time.
    Sleep,
    /// It waits for another thread to end.
    Thread,
    /// It waits for a child process.
    Child,
    /// It waits for a signal.
    Signal,
    /// It waits for something else.
    Other,
    /// A signal, a debugger or its control group has stopped it.
    Stopped,
    /// It has ended; other threads of its process have not.
    Ended,
    /// It may not be read.
    Unreadable,
    /// It waits for work, and none of the user's functions are on its stack.
    Idle,
    /// A reason that only a newer perfcollect knows.
    #[serde(other)]
    Unknown,
}

/// Starts of the names of functions, and why threads in them wait. The first one that is found decides,
/// from the top of the stack.
const FUNCTIONS: [(&str, Reason); 48] = [
    // C libraries
    ("lll_lock_wait", Reason::Lock),
    ("pthread_mutex_cond_lock", Reason::Lock),
    ("pthread_mutex_lock", Reason::Lock),
    ("pthread_mutex_timedlock", Reason::Lock),
    ("pthread_mutex_clocklock", Reason::Lock),
    ("pthread_rwlock_", Reason::Lock),
    ("pthread_spin_lock", Reason::Lock),
    ("pthread_join", Reason::Thread),
    ("pthread_timedjoin", Reason::Thread),
    ("pthread_clockjoin", Reason::Thread),
    ("thrd_join", Reason::Thread),
    // Its system call may be `restart_syscall` after a signal.
    ("nanosleep", Reason::Sleep),
    ("clock_nanosleep", Reason::Sleep),
    // .NET
    ("System.Threading.Monitor.Enter", Reason::Lock),
    ("System.Threading.Monitor.TryEnter", Reason::Lock),
    ("System.Threading.Monitor.ReliableEnter", Reason::Lock),
    ("System.Threading.Lock.", Reason::Lock),
    (
        "System.Threading.ReaderWriterLockSlim.TryEnter",
        Reason::Lock,
    ),
    ("System.Threading.ReaderWriterLock.Acquire", Reason::Lock),
    ("System.Threading.SpinLock.", Reason::Lock),
    ("Monitor_Enter", Reason::Lock),
    ("JIT_MonEnter", Reason::Lock),
    ("System.Threading.Thread.Sleep", Reason::Sleep),
    ("System.Threading.Thread.Join", Reason::Thread),
    ("System.Threading.Tasks.Task.Wait", Reason::Task),
    ("System.Threading.Tasks.Task.InternalWait", Reason::Task),
    (
        "System.Threading.Tasks.Task.SpinThenBlockingWait",
        Reason::Task,
    ),
    ("System.Runtime.CompilerServices.TaskAwaiter", Reason::Task),
    ("System.Threading.Monitor.Wait", Reason::Event),
    ("System.Threading.ManualResetEventSlim.Wait", Reason::Event),
    ("System.Threading.SemaphoreSlim.Wait", Reason::Event),
    ("System.Threading.WaitHandle.Wait", Reason::Event),
    ("System.Threading.LowLevelLifoSemaphore.Wait", Reason::Event),
    ("System.Threading.Barrier.SignalAndWait", Reason::Event),
    ("System.Threading.CountdownEvent.Wait", Reason::Event),
    // C++ and Rust
    ("std::thread::join", Reason::Thread),
    ("std::thread::JoinHandle", Reason::Thread),
    ("std::sys::sync::mutex", Reason::Lock),
    ("std::sys::sync::rwlock", Reason::Lock),
    ("std::sync::mutex::Mutex", Reason::Lock),
    ("std::thread::sleep", Reason::Sleep),
    ("std::this_thread::sleep", Reason::Sleep),
    // JVM
    ("ObjectMonitor::enter", Reason::Lock),
    ("ObjectMonitor::wait", Reason::Event),
    ("ObjectSynchronizer::enter", Reason::Lock),
    ("JVM_Sleep", Reason::Sleep),
    ("Unsafe_Park", Reason::Event),
    // Python
    ("PyThread_acquire_lock", Reason::Event),
];

impl Reason {
    /// Finds why a thread does not run, by the functions on its stack that its own code has called.
    ///
    /// In .NET up to 9, functions of the runtime that enter a monitor may have no names: `has_monitor` is
    /// whether a monitor was found on its stack, which another thread has.
    pub(super) fn of(
        activity: &Activity,
        is_uninterruptible: bool,
        has_monitor: bool,
        frames: &[StackFrame],
    ) -> Self {
        let wait = match activity {
            Activity::Runs => return Self::Runs,
            Activity::Stopped => return Self::Stopped,
            Activity::Ended => return Self::Ended,
            Activity::Unreadable(_) => return Self::Unreadable,
            Activity::Waits(wait) => wait,
        };
        // One that holds a lock of the kernel may be in any system call.
        if is_uninterruptible {
            return match Self::of_call(wait) {
                // `vfork` waits so.
                Self::Child => Self::Child,
                _ => Self::Uninterruptible,
            };
        }
        Self::of_call(wait).with_names(has_monitor, frames)
    }

    /// Finds why a thread is in a system call, by the functions on its stack.
    pub(super) fn of_place(number: u16, on: BlockedOn, frames: &[StackFrame]) -> Self {
        let call = SystemCall {
            number: number.into(),
            ..SystemCall::UNKNOWN
        };
        let of_call = match (call.name().unwrap_or_default(), on) {
            (_, BlockedOn::Owner) => Self::Lock,
            (_, BlockedOn::Time) => Self::Sleep,
            ("poll" | "ppoll", _) => Self::Io,
            _ => Self::of_call(&Wait {
                call: Some(call),
                ..Wait::default()
            }),
        };
        of_call.with_names(on == BlockedOn::Monitor, frames)
    }

    /// Makes the reason of a system call more precise by the functions on the stack.
    fn with_names(self, has_monitor: bool, frames: &[StackFrame]) -> Self {
        // Calls with a reason need no names, those after a signal do.
        if !matches!(self, Self::Event | Self::Lock | Self::Other) {
            return self;
        }
        let called = frames.iter().position(|frame| frame.own);
        let called = called.unwrap_or(frames.len()).min(MAX_DEPTH);
        let is_native = |frame: &&StackFrame| frame.kind == FunctionKind::Native;
        let native = frames.iter().take_while(is_native).count();
        // The C library may be linked into the user's program.
        let native = frames
            .get(..native.min(called.max(LINKED_DEPTH)))
            .unwrap_or_default();
        let managed = frames.get(native.len()..called).unwrap_or_default();
        let first_managed = managed.get(..1).unwrap_or_default();
        let reason = by_name(native).or_else(|| by_name(first_managed));
        let reason = reason.or_else(|| has_monitor.then_some(Self::Lock));
        match reason.or_else(|| by_name(managed)) {
            // `Task.Wait` waits for an event.
            Some(Self::Event) => {
                let is_task =
                    |frame: &StackFrame| by_name(std::slice::from_ref(frame)) == Some(Self::Task);
                if managed.iter().any(is_task) {
                    Self::Task
                } else {
                    Self::Event
                }
            }
            Some(reason) => reason,
            None => self,
        }
    }

    fn of_call(wait: &Wait) -> Self {
        let Some(call) = wait.call else {
            return match wait.kernel_function {
                Some(_) => Self::PageFault,
                None => Self::Other,
            };
        };
        match (call.name().unwrap_or_default(), call.resource()) {
            ("flock" | "fcntl", _) => Self::Lock,
            ("select" | "pselect6" | "open" | "openat" | "msgrcv" | "msgsnd", _) => Self::Io,
            (_, resource) => Self::of_resource(resource),
        }
    }

    fn of_resource(resource: Resource) -> Self {
        match resource {
            Resource::Futex {
                has_owner: true, ..
            } => Self::Lock,
            Resource::Futex { .. } => Self::Event,
            Resource::File(_) | Resource::Files { .. } => Self::Io,
            Resource::Time(_) | Resource::Until => Self::Sleep,
            Resource::Child => Self::Child,
            Resource::Signal => Self::Signal,
            Resource::Other => Self::Other,
        }
    }

    /// Returns the reason in words that follow a number of threads.
    #[must_use]
    pub fn words(self, threads: usize) -> &'static str {
        let (one, many) = match self {
            Self::Lock => ("waits for a lock", "wait for a lock"),
            Self::Runs => ("runs", "run"),
            Self::Uninterruptible => ("waits uninterruptibly", "wait uninterruptibly"),
            Self::PageFault => (
                "waits for memory (page fault)",
                "wait for memory (page fault)",
            ),
            Self::Task => ("blocks on a task", "block on a task"),
            Self::Event => ("waits for another thread", "wait for another thread"),
            Self::Io => ("waits for input or output", "wait for input or output"),
            Self::Sleep => ("sleeps", "sleep"),
            Self::Thread => ("waits for a thread to end", "wait for a thread to end"),
            Self::Child => ("waits for a child process", "wait for a child process"),
            Self::Signal => ("waits for a signal", "wait for a signal"),
            Self::Other => ("waits in the kernel", "wait in the kernel"),
            Self::Stopped => ("is stopped", "are stopped"),
            Self::Ended => ("has ended", "have ended"),
            Self::Unreadable => ("may not be read", "may not be read"),
            Self::Idle => ("is idle", "are idle"),
            Self::Unknown => ("waits", "wait"),
        };
        if threads == 1 { one } else { many }
    }

    /// Returns the reason in a word.
    pub(super) fn noun(self, on: BlockedOn) -> &'static str {
        match (self, on) {
            (Self::Io, BlockedOn::Socket) => "socket",
            (Self::Io, BlockedOn::Pipe) => "pipe",
            (Self::Io, BlockedOn::File) => "file",
            (Self::Io, BlockedOn::Terminal) => "terminal",
            (Self::Io, BlockedOn::Device) => "device",
            (Self::Io, _) => "io",
            (Self::Lock, _) => "lock",
            (Self::Task, _) => "task",
            (Self::Event, _) => "event",
            (Self::Sleep, _) => "sleep",
            (Self::Thread, _) => "thread",
            (Self::Child, _) => "child",
            (Self::Signal, _) => "signal",
            (Self::Idle, _) => "idle",
            _ => "blocked",
        }
    }

    /// Returns whether a thread without a function of the user on its stack waits for work.
    pub(super) fn may_be_idle(self) -> bool {
        matches!(
            self,
            Self::Event | Self::Io | Self::Sleep | Self::Signal | Self::Other
        )
    }
}

/// Returns the reason that the first function with a known name gives.
fn by_name(frames: &[StackFrame]) -> Option<Reason> {
    frames.iter().find_map(|frame| {
        let name = public_name(&frame.name);
        let found = FUNCTIONS.iter().find(|(start, _)| name.starts_with(start));
        found.map(|(_, reason)| *reason)
    })
}

/// Returns the name under which a function is known: `read` for `__GI___read` of glibc, and
/// `std::sync::Mutex>::lock` for `<std::sync::Mutex>::lock` of Rust.
pub(super) fn public_name(name: &str) -> &str {
    let name = name.trim_start_matches(['_', '<']);
    name.strip_prefix("GI_")
        .unwrap_or(name)
        .trim_start_matches('_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::SystemCall;

    fn frame(kind: FunctionKind, own: bool, name: &str) -> StackFrame {
        StackFrame {
            module: String::new(),
            name: name.into(),
            is_offset: false,
            kind,
            own,
            inlined: false,
        }
    }

    fn native(name: &str) -> StackFrame {
        frame(FunctionKind::Native, false, name)
    }

    fn managed(name: &str) -> StackFrame {
        frame(FunctionKind::ReadyToRun, false, name)
    }

    fn own(name: &str) -> StackFrame {
        frame(FunctionKind::Jit, true, name)
    }

    fn waits(call: Option<&str>) -> Activity {
        let number = |name: &str| {
            let found = syscalls::Sysno::iter().find(|call| call.name() == name);
            found.unwrap().id() as u64
        };
        Activity::Waits(Wait {
            call: call.map(|name| SystemCall {
                number: number(name),
                arguments: [0; 6],
            }),
            kernel_function: call.is_none().then(|| "filemap_fault".into()),
            ..Wait::default()
        })
    }

    fn of_futex(has_monitor: bool, frames: &[StackFrame]) -> Reason {
        Reason::of(&waits(Some("futex")), false, has_monitor, frames)
    }

    #[test]
    fn functions_above_the_users_code_show_why_it_waits() {
        let futex = native("__futex_abstimed_wait_common");
        let monitor = managed("System.Threading.Monitor.Enter(object)");
        let wait = managed("System.Threading.Tasks.Task.Wait()");
        let event = managed("System.Threading.ManualResetEventSlim.Wait(int)");
        let work = own("Shop.Total()");
        let stack = [futex.clone(), monitor, work.clone(), wait.clone()];
        assert_eq!(of_futex(false, &stack), Reason::Lock);
        let stack = [futex.clone(), event.clone(), wait.clone(), work.clone()];
        assert_eq!(of_futex(false, &stack), Reason::Task);
        assert_eq!(of_futex(true, &stack), Reason::Task);
        assert_eq!(of_futex(false, &[event, work.clone()]), Reason::Event);
        // `Task.Wait` runs the user's task, which waits for something else.
        let stack = [futex.clone(), work.clone(), wait];
        assert_eq!(of_futex(false, &stack), Reason::Event);
        // The runtime has no names.
        let runtime = native("0x33c660");
        assert_eq!(of_futex(true, &[futex, runtime, work]), Reason::Lock);
    }

    #[test]
    fn a_linked_c_library_is_a_part_of_the_program() {
        let linked = |name| frame(FunctionKind::Native, true, name);
        let stack = ["__lll_lock_wait", "__pthread_mutex_lock", "total"].map(linked);
        assert_eq!(of_futex(false, &stack), Reason::Lock);
        let deep = ["a", "b", "c", "d", "e", "f", "pthread_mutex_lock"].map(linked);
        assert_eq!(of_futex(false, &deep), Reason::Event);
    }

    #[test]
    fn without_a_known_function_the_system_call_decides() {
        for (call, expected) in [
            (Some("futex"), Reason::Event),
            (Some("epoll_wait"), Reason::Io),
            (Some("wait4"), Reason::Child),
            (Some("pause"), Reason::Signal),
            (Some("flock"), Reason::Lock),
            (Some("pselect6"), Reason::Io),
            (Some("nanosleep"), Reason::Sleep),
            (Some("restart_syscall"), Reason::Other),
            (None, Reason::PageFault),
        ] {
            let of = |is_uninterruptible| Reason::of(&waits(call), is_uninterruptible, false, &[]);
            assert_eq!(of(false), expected, "{call:?}");
            let uninterruptible = match expected {
                Reason::Child => Reason::Child,
                _ => Reason::Uninterruptible,
            };
            assert_eq!(of(true), uninterruptible);
        }
        assert_eq!(Reason::of(&Activity::Runs, true, true, &[]), Reason::Runs);
    }
}
