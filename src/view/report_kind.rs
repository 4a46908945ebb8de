//! Kinds of reports.

use clap::ValueEnum;

/// What a report is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ReportKind {
    /// What is remarkable, most costly first.
    #[default]
    Findings,
    /// Origin, quality and losses of the trace; as JSON all that the trace has a table of.
    Summary,
    /// The user's code, with the libraries it calls.
    Own,
    /// Methods and functions by their own CPU time.
    Cpu,
    /// The call tree, callers before callees.
    #[value(name = "calltree", alias = "tree")]
    CallTree,
    /// Processes.
    Processes,
    /// Threads, by name.
    Threads,
    /// What the threads of the target did when the capture ended.
    #[value(alias = "waits", alias = "stacks")]
    Blocked,
    /// Where threads spent the time without a CPU; a capture with -threadtime follows that.
    #[value(
        name = "threadtime",
        alias = "offcpu",
        alias = "off-cpu",
        alias = "thread-time"
    )]
    ThreadTime,
    /// Functions by their page faults; a capture with -faults samples them.
    #[value(alias = "page-faults", alias = "pagefaults")]
    Faults,
    /// Who wakes whom, and in which function; a capture with -wakeups samples that.
    #[value(alias = "wake-ups", alias = "wakers")]
    Wakeups,
    /// Requests to disks by device and process; a capture with -io follows them.
    #[value(alias = "blockio", alias = "block-io", alias = "disk", alias = "disks")]
    Io,
    /// TCP connections by process and address; a capture with -net follows them.
    #[value(alias = "connection", alias = "tcp", alias = "net")]
    Connections,
    /// Modules by the CPU time of their own code.
    Modules,
    /// System calls.
    Syscalls,
    /// Garbage collections of each .NET process.
    Gc,
    /// Methods that the JIT compiler compiled, by tier.
    Jit,
    /// Exceptions by type and method.
    Exceptions,
    /// Waits for locks by method.
    Contention,
    /// Where asynchronous methods wait for tasks; a capture with -awaits records that.
    #[value(alias = "async", alias = "await")]
    Awaits,
    /// Allocations by type and method; a capture with -gconly records them.
    Alloc,
    /// The thread pool of each .NET process.
    ThreadPool,
    /// Requests of ASP.NET Core and HttpClient; a capture with -requests records them.
    Requests,
    /// Steps of connections (names, connections, TLS); a capture with -for networking records them.
    #[value(alias = "networking")]
    Network,
    /// Events received from each .NET process, by kind.
    Events,
    /// Events received from each .NET process, and lost ones.
    EventLosses,
    /// Counted events of the CPU and the kernel (`-hwevents`, `-system`).
    Counters,
    /// Notices about the capture.
    Quality,
}

impl ReportKind {
    /// Returns whether it is what .NET processes reported.
    pub(super) fn is_of_runtimes(self) -> bool {
        use ReportKind::{
            Alloc, Awaits, Contention, Events, Exceptions, Gc, Jit, Network, Requests, ThreadPool,
        };
        matches!(
            self,
            Gc | Jit
                | Exceptions
                | Contention
                | Awaits
                | Alloc
                | ThreadPool
                | Requests
                | Network
                | Events
        )
    }
}
