//! Parts of a process: its samples by thread, by method of the user's code, by module, by system
//! call.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::methods::Methods;
use super::syscalls::Syscalls;
use super::work::{self, StackWork, Work};
use super::work_methods::{WorkMethod, WorkMethods};
use super::{TOP, kept};
use crate::output::label;
use crate::output::own_code::OwnCode;
use crate::trace::{ProcessId, Sample, Trace};

/// Maximum number of rows of one process.
pub(crate) const TOP_OF_PROCESS: usize = 10;

/// A part of the samples of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Process id.
    pub pid: i32,
    /// Name of the part: a thread, method, module or system call.
    pub name: String,
    /// Module of a method; empty for others.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub module: String,
    /// Number of samples.
    pub samples: u64,
    /// Number of threads with this name; 0 for others.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub threads: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The samples of all processes, divided in several ways.
///
/// Each list has at most 10 rows of a process, and 50 in all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shares {
    /// By name of the thread. Threads that differ in a number at the end share a row.
    pub threads: Vec<Share>,
    /// By method of the user's code. The innermost one that has a name stands for all that it
    /// calls: libraries, the runtime and the kernel.
    pub own_methods: Vec<Share>,
    /// By module of the innermost function.
    pub modules: Vec<Share>,
    /// By system call.
    pub syscalls: Vec<Share>,
    /// The method of the user's code behind each kind of work.
    #[serde(default)]
    pub work_methods: Vec<WorkMethod>,
}

/// Counters of parts, by process and key.
struct Parts<K>(FxHashMap<(u32, K), u64>);

impl<K: Copy + Eq + Hash + Ord> Parts<K> {
    fn new() -> Self {
        Self(FxHashMap::default())
    }

    fn add(&mut self, process: u32, key: K) {
        *self.0.entry((process, key)).or_default() += 1;
    }

    /// Returns the rows with most samples: process, key and samples.
    fn top(self) -> Vec<(u32, K, u64)> {
        let rows = self.0.into_iter();
        let mut rows: Vec<_> = rows
            .map(|((process, key), samples)| (process, key, samples))
            .collect();
        rows.sort_unstable_by_key(|&(process, key, samples)| (Reverse(samples), process, key));
        let mut shown: FxHashMap<u32, usize> = FxHashMap::default();
        rows.retain(|(process, ..)| {
            let shown = shown.entry(*process).or_default();
            *shown += 1;
            *shown <= TOP_OF_PROCESS
        });
        rows.truncate(TOP);
        rows
    }
}

/// Counts the samples of all processes by part, and by kind of work.
pub(super) struct ShareCounts<'a> {
    trace: &'a Trace,
    last_programs: &'a [ProcessId],
    methods: &'a Methods<'a>,
    work: StackWork,
    syscalls: Syscalls<'a>,
    /// The module of the innermost function of each stack, as a row of `module_names`.
    leaf_modules: Vec<u32>,
    module_names: Vec<&'a str>,
    is_gc_thread: Vec<bool>,
    by_thread: Vec<u64>,
    by_method: Parts<u32>,
    by_module: Parts<u32>,
    by_syscall: Parts<u32>,
    by_process: Vec<Work>,
    work_methods: WorkMethods,
}

impl<'a> ShareCounts<'a> {
    /// `last_programs`: as [`Trace::last_programs`].
    pub(super) fn new(
        trace: &'a Trace,
        methods: &'a Methods<'a>,
        own_code: &OwnCode,
        last_programs: &'a [ProcessId],
    ) -> Self {
        let (module_names, leaf_modules) = leaf_modules(trace);
        let threads = trace.threads.iter();
        Self {
            trace,
            last_programs,
            methods,
            work: StackWork::new(trace, own_code),
            syscalls: Syscalls::new(trace),
            leaf_modules,
            module_names,
            is_gc_thread: threads
                .map(|thread| work::is_gc_thread(&thread.name))
                .collect(),
            by_thread: vec![0; trace.threads.len()],
            by_method: Parts::new(),
            by_module: Parts::new(),
            by_syscall: Parts::new(),
            by_process: vec![Work::default(); trace.processes.len()],
            work_methods: WorkMethods::default(),
        }
    }

    pub(super) fn add(&mut self, sample: &Sample) {
        let thread = sample.thread.index();
        let process = self.trace.threads[thread].process;
        let process = self.last_programs[process.index()];
        self.by_thread[thread] += 1;
        let work = &mut self.by_process[process.index()];
        self.work
            .count(sample.stack, self.is_gc_thread[thread], work);
        let process = process.0;
        if let Some(row) = self.methods.own_row(sample.stack) {
            work.own += 1;
            self.by_method.add(process, row);
            let kinds = self.work.kinds(sample.stack);
            self.work_methods.add(process, kinds, row);
        }
        if let Some(&module) = self.leaf_modules.get(sample.stack.index()) {
            self.by_module.add(process, module);
        }
        if let Some(row) = self.syscalls.row(sample.stack) {
            self.by_syscall.add(process, row);
        }
    }

    /// Returns the samples of each thread.
    pub(super) fn by_thread(&self) -> &[u64] {
        &self.by_thread
    }

    /// Returns the work of each process, and the parts.
    pub(super) fn finish(self) -> (Vec<Work>, Shares) {
        let threads = self.thread_rows();
        let trace = self.trace;
        let named = |parts: Parts<u32>, name: &dyn Fn(u32) -> (String, String)| {
            let row = |(process, key, samples): (u32, u32, u64)| {
                let (name, module) = name(key);
                Share {
                    pid: trace.processes[process as usize].pid.0,
                    name,
                    module,
                    samples,
                    threads: 0,
                }
            };
            parts.top().into_iter().map(row).collect()
        };
        let method = |row| {
            let method = self.methods.summary(row);
            method.map_or_else(Default::default, |method| (method.name, method.module))
        };
        let module = |row: u32| (kept(self.module_names[row as usize]), String::new());
        let syscall = |row| (kept(self.syscalls.name(row)), String::new());
        let shares = Shares {
            threads,
            own_methods: named(self.by_method, &method),
            modules: named(self.by_module, &module),
            syscalls: named(self.by_syscall, &syscall),
            work_methods: self.work_methods.rows(trace, self.methods),
        };
        (self.by_process, shares)
    }

    fn thread_rows(&self) -> Vec<Share> {
        let mut groups: HashMap<(u32, &str), (u64, u64, &str)> = HashMap::new();
        let sampled = self.trace.threads.iter().zip(&self.by_thread);
        for (thread, &samples) in sampled.filter(|(_, samples)| **samples > 0) {
            let process = self.last_programs[thread.process.index()];
            let group = groups.entry((process.0, stem(&thread.name)));
            let (all, threads, _) = group.or_insert((0, 0, &thread.name));
            *all += samples;
            *threads += 1;
        }
        let parts = groups.iter().map(|(key, (samples, ..))| (*key, *samples));
        let top = Parts(parts.collect()).top();
        let row = |(process, stem, samples): (u32, &str, u64)| {
            let (_, threads, first) = groups[&(process, stem)];
            Share {
                pid: self.trace.processes[process as usize].pid.0,
                name: match threads {
                    1 => kept(first),
                    _ if first == stem => kept(stem),
                    _ => kept(&format!("{stem}*")),
                },
                module: String::new(),
                samples,
                threads,
            }
        };
        top.into_iter().map(row).collect()
    }
}

/// Returns the name of a thread without the number at its end.
fn stem(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit())
}

/// Returns the distinct modules of innermost functions, and the row of each stack.
fn leaf_modules(trace: &Trace) -> (Vec<&str>, Vec<u32>) {
    let mut rows: HashMap<&str, u32> = HashMap::new();
    let mut names = Vec::new();
    let functions = trace.functions.iter().map(|function| {
        let name = label::module(function);
        *rows.entry(name).or_insert_with(|| {
            names.push(name);
            names.len() as u32 - 1
        })
    });
    let functions: Vec<u32> = functions.collect();
    let nodes = trace.stacks.nodes().map(|(.., frame)| {
        let leaf = trace.functions_leaf_first(frame).next();
        leaf.map_or(0, |function| functions[function.index()])
    });
    let by_stack = nodes.collect();
    (names, by_stack)
}
