//! The summary of a trace: the content of `summary.json` and the source of the reports.

mod blocked;
mod code_place;
mod entries;
mod faults;
mod finding;
mod methods;
mod modules;
mod processes;
mod programs;
mod runtimes;
mod shares;
mod syscalls;
mod thread_time;
mod threads;
mod unnamed;
mod wakeups;
mod work;
mod work_methods;

pub use blocked::{
    BlockedGroup, BlockedProcess, BlockedSummary, DeadlockRow, LockRow, MAX_DEADLOCKED,
    MAX_DEADLOCKS, MAX_GROUPS, MAX_LOCK_METHODS, MAX_LOCKS, MAX_PROCESSES as MAX_BLOCKED_PROCESSES,
    MAX_TIDS,
};
pub use faults::{FaultSummary, MethodFaults, ProcessFaults};
pub use finding::{Finding, REPORT, TRACE};
pub use methods::MethodSummary;
pub use modules::ModuleSummary;
pub use processes::ProcessSummary;
pub(crate) use processes::{is_program, program_of};
pub use programs::ProgramSummary;
pub use runtimes::{
    AllocationRow, AllocationSummary, AwaitRow, AwaitSummary, EventCount, ExceptionRow,
    ExceptionSummary, GcSummary, HeapGrowth, JitRow, JitSummary, JitTier, MethodName, MethodPair,
    NetworkStep, RequestCounts, RequestDirection, RequestRoute, RequestSummary, RuntimeSummary,
    SlowRequest, StepKind, ThreadPoolSummary, WaitRow, WaitSummary,
};
pub(crate) use shares::TOP_OF_PROCESS;
pub use shares::{Share, Shares};
pub use syscalls::ENTRY_AND_EXIT;
pub use thread_time::{PlaceTime, ReasonTime, ThreadTime, ThreadTimeRow};
pub use threads::ThreadSummary;
pub use unnamed::UnnamedSummary;
pub use wakeups::{WakeupRow, WakeupSummary};
pub use work::{Work, WorkKind};
pub use work_methods::WorkMethod;

use std::panic::resume_unwind;
use std::thread;

use serde::{Deserialize, Serialize};

use super::own_code::OwnCode;
use super::sanitize;
use super::time_zero::TimeZero;
use crate::history::MAX_PROCESSES;
use crate::trace::{CaptureInfo, ProcessId, Quality, Trace};
use methods::Methods;
use shares::ShareCounts;

/// Version of the format. Readers reject a higher one.
pub const FORMAT_VERSION: u32 = 1;

/// Maximum number of rows per sort order of a list.
pub(crate) const TOP: usize = 50;

/// Maximum number of processes that waited for CPUs, or whose memory is known.
pub(crate) const MAX_WAITING: usize = 64;

/// Limit of the text of a notice that is read, in bytes.
const MAX_NOTICE_BYTES: usize = 4096;

/// Maximum number of ELF files.
pub(crate) const MAX_MODULES: usize = 200;

/// Summary of a trace. Names of the target are not escaped: escape them for display.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// [`FORMAT_VERSION`] of the writer.
    pub format_version: u32,
    /// Description of the capture.
    pub info: CaptureInfo,
    /// PerfView's time zero, in nanoseconds on the clock of the trace; `None` in older traces.
    #[serde(default)]
    pub time_zero_ns: Option<i64>,
    /// Whether more than 10 % was lost. The trace may then misrepresent the target.
    #[serde(default)]
    pub incomplete: bool,
    /// What is remarkable, most costly first. Empty if nothing is.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// Number of samples in the trace.
    pub samples: u64,
    /// CPU time of the samples, in milliseconds.
    pub cpu_ms: f64,
    /// Counts of recorded and lost data.
    pub quality: Quality,
    /// ELF files with code in a stack: at most 200, those with most frames.
    #[serde(default)]
    pub modules: Vec<ModuleSummary>,
    /// Number of processes with samples. One that executed several programs counts once, as the last.
    pub process_count: u64,
    /// The processes with most CPU time.
    pub processes: Vec<ProcessSummary>,
    /// The programs with most CPU time, each with all its processes: at most 50.
    #[serde(default)]
    pub programs: Vec<ProgramSummary>,
    /// The threads with most samples: at most 500.
    #[serde(default)]
    pub threads: Vec<ThreadSummary>,
    /// Number of methods in stacks.
    pub method_count: u64,
    /// The 50 methods with most total samples, and 50 others with most self samples.
    ///
    /// Sorted by self samples.
    pub methods: Vec<MethodSummary>,
    /// The modules with functions without a name: at most 50, those with most self samples.
    #[serde(default)]
    pub unnamed: Vec<UnnamedSummary>,
    /// The samples of the processes by thread, method of the user's code, module and system call.
    #[serde(default)]
    pub shares: Shares,
    /// What the events of .NET processes report: at most 100 processes, those with most events.
    #[serde(default)]
    pub runtimes: Vec<RuntimeSummary>,
    /// What the threads of the target did when the capture ended. `None` if the target was the whole machine,
    /// or had ended.
    #[serde(default)]
    pub blocked: Option<BlockedSummary>,
    /// Where threads spent the time without a CPU. `None` if the capture did not follow that (`-threadtime`).
    #[serde(default)]
    pub thread_time: Option<ThreadTime>,
    /// Page faults by code. `None` if the capture did not sample them (`-faults`), or there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faults: Option<FaultSummary>,
    /// Who wakes whom. `None` if the capture did not sample that (`-wakeups`), or there were no wake-ups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wakeups: Option<WakeupSummary>,
}

impl Summary {
    /// Returns whether the trace has no samples, only events or waiting threads.
    #[must_use]
    pub fn lacks_samples(&self) -> bool {
        self.samples == 0
            && (!self.quality.events.is_empty()
                || self.blocked.is_some()
                || self.thread_time.is_some()
                || self.faults.is_some()
                || self.wakeups.is_some()
                || self.info.block_io.is_some()
                || self.info.connections.is_some())
    }

    /// Returns the name of the program of a process with a name. Its id may be that of another process, too.
    pub(crate) fn program_named<'a>(&'a self, pid: i32, name: &'a str) -> &'a str {
        let mut processes = self.processes.iter();
        let process = processes.find(|process| process.pid == pid && process.name == name);
        process.map_or(name, ProcessSummary::program)
    }

    /// Returns the CPUs that were used on average, if samples count time.
    #[must_use]
    pub fn cpus(&self) -> Option<f64> {
        let seconds = self.info.seconds();
        let counts_time = self.info.counts_time() && seconds > 0.0;
        counts_time.then(|| self.cpu_ms / 1e3 / seconds)
    }

    /// Drops the rows of lists beyond what perfcollect writes: a file may have any number.
    pub(crate) fn truncate(&mut self) {
        self.findings.truncate(TOP);
        self.findings.iter_mut().for_each(Finding::bound);
        for notice in &mut self.quality.notices {
            for text in [&mut notice.what, &mut notice.remedy] {
                *text = sanitize::truncate_with_ellipsis(text, MAX_NOTICE_BYTES).into_owned();
            }
        }
        self.unnamed.truncate(TOP);
        self.programs.truncate(TOP);
        self.threads.truncate(threads::MAX_THREADS);
        if let Some(pressure) = &mut self.info.cpu_pressure {
            pressure.processes.truncate(MAX_WAITING);
        }
        self.info.memory.truncate(MAX_WAITING);
        if let Some(counters) = &mut self.info.counters {
            counters.truncate();
            for process in &mut counters.processes {
                process.name = kept(&process.name);
            }
        }
        if let Some(block_io) = &mut self.info.block_io {
            block_io.truncate();
            for row in &mut block_io.rows {
                for text in [&mut row.device, &mut row.process, &mut row.operation] {
                    *text = kept(text);
                }
            }
        }
        if let Some(connections) = &mut self.info.connections {
            connections.truncate();
            for row in &mut connections.rows {
                for text in [&mut row.process, &mut row.address] {
                    *text = kept(text);
                }
            }
        }
        self.blocked.iter_mut().for_each(BlockedSummary::truncate);
        self.thread_time.iter_mut().for_each(ThreadTime::truncate);
        self.faults.iter_mut().for_each(FaultSummary::truncate);
        self.wakeups.iter_mut().for_each(WakeupSummary::truncate);
        self.runtimes.truncate(MAX_PROCESSES);
        self.runtimes.iter_mut().for_each(RuntimeSummary::truncate);
        let Shares {
            threads,
            own_methods,
            modules,
            syscalls,
            work_methods,
        } = &mut self.shares;
        work_methods.truncate(TOP);
        for rows in [threads, own_methods, modules, syscalls] {
            rows.truncate(TOP);
        }
    }

    /// Returns the summary of a trace with the same samples and fewer details, such as a converted one.
    pub(crate) fn of_same_samples(self, trace: &Trace) -> Self {
        Self {
            time_zero_ns: Some(TimeZero::new(trace).unshifted()),
            quality: trace.quality.clone(),
            ..self
        }
    }

    /// Creates the summary of a trace.
    #[must_use]
    pub fn new(trace: &Trace) -> Self {
        Self::with_modules(trace, modules::rows(trace))
    }

    /// Creates the summary of a trace whose ELF files are known from elsewhere.
    pub(crate) fn with_modules(trace: &Trace, modules: Vec<ModuleSummary>) -> Self {
        let own_code = OwnCode::new(trace, modules.iter().map(|module| &*module.path));
        thread::scope(|scope| {
            let runtimes = scope.spawn(|| runtimes::rows(trace, &own_code));
            let samples = Self::of_samples(trace, &own_code, modules);
            Self {
                runtimes: runtimes.join().unwrap_or_else(|panic| resume_unwind(panic)),
                ..samples
            }
        })
    }

    /// Creates the summary without what the events report.
    fn of_samples(trace: &Trace, own_code: &OwnCode, modules: Vec<ModuleSummary>) -> Self {
        let last_programs = trace.last_programs();
        let samples = SampleCounts::for_trace(trace, &last_programs);
        let methods = Methods::count(trace, &samples.by_stack, own_code);
        let mut shares = ShareCounts::new(trace, &methods, own_code, &last_programs);
        trace.samples.iter().for_each(|sample| shares.add(&sample));
        let threads = threads::rows(trace, shares.by_thread());
        let (work, shares) = shares.finish();
        Self {
            format_version: FORMAT_VERSION,
            info: trace.info.clone(),
            time_zero_ns: Some(TimeZero::new(trace).unshifted()),
            incomplete: trace.quality.losses.is_incomplete(),
            findings: Vec::new(),
            samples: trace.samples.len() as u64,
            cpu_ms: ms(samples.by_process.iter().flatten().map(|(_, ns)| ns).sum()),
            quality: trace.quality.clone(),
            modules,
            process_count: samples.by_process.iter().flatten().count() as u64,
            programs: programs::rows(trace, &samples.by_process),
            processes: processes::rows(trace, samples.by_process, &work),
            threads,
            method_count: methods.len(),
            methods: methods.top(),
            unnamed: methods.unnamed(),
            shares,
            runtimes: Vec::new(),
            blocked: None,
            thread_time: ThreadTime::of(trace, own_code),
            faults: FaultSummary::of(trace, own_code, &last_programs),
            wakeups: WakeupSummary::of(trace, own_code, &last_programs),
        }
    }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn kept(text: &str) -> String {
    sanitize::truncate_distinct(text).into_owned()
}

/// Sample counts per process and per stack, from one pass over the samples.
struct SampleCounts {
    /// Number of samples, and their nanoseconds of CPU time. `None` if the process executed another
    /// program after this row: that row has all.
    by_process: Vec<Option<(u64, u64)>>,
    by_stack: Vec<u64>,
}

impl SampleCounts {
    fn for_trace(trace: &Trace, last_programs: &[ProcessId]) -> Self {
        let mut by_process = vec![None; trace.processes.len()];
        for last in last_programs {
            by_process[last.index()] = Some((0, 0));
        }
        let mut by_stack = vec![0; trace.stacks.len()];
        for sample in trace.samples.iter() {
            let process = trace.threads[sample.thread.index()].process;
            let process = last_programs[process.index()];
            let (samples, ns) = by_process[process.index()].get_or_insert_default();
            *samples += 1;
            *ns = u64::saturating_add(*ns, sample.weight.0);
            if let Some(samples) = by_stack.get_mut(sample.stack.index()) {
                *samples += 1;
            }
        }
        Self {
            by_process,
            by_stack,
        }
    }
}
