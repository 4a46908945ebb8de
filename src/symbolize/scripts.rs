//! Interpreters that do not report the functions of their scripts, and the option that makes them.

use super::unresolved::Unresolved;
use crate::trace::{
    Function, FunctionKind, Notice, NoticeKind, Pid, Process, StackId, Trace, process_notices,
};

/// Number of samples in an interpreter below which its scripts do not matter.
const MIN_SAMPLES: u32 = 10;
/// First minor version of Python 3 that reports its functions.
const FIRST_MINOR: u32 = 12;
/// Start of the names that Python reports.
const PYTHON_FUNCTION: &str = "py::";

const PYTHON: u8 = 1;
const OLD_PYTHON: u8 = 2;
const NODE: u8 = 4;
const NAMED_PYTHON: u8 = 8;
const NAMED_JIT: u8 = 16;

/// An interpreter whose scripts have no names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interpreter {
    Python,
    OldPython,
    Node,
}

impl Interpreter {
    fn name(self) -> &'static str {
        match self {
            Self::Python | Self::OldPython => "Python",
            Self::Node => "Node.js",
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::Python => {
                "start it with `python3 -X perf app.py`, or PYTHONPERFSUPPORT=1 in its environment (from Python 3.12 on)"
            }
            Self::OldPython => {
                "Python 3.12 and newer can report them: `python3 -X perf app.py`, or PYTHONPERFSUPPORT=1 in its environment"
            }
            Self::Node => {
                "start it with `node --perf-basic-prof app.js`, also with --interpreted-frames-native-stack for functions that are not compiled yet"
            }
        }
    }

    /// Returns the interpreter of a process, if its scripts have no names.
    ///
    /// `seen` are the flags of all its functions. What the process writes on request is in another
    /// notice if it cannot be used.
    fn without_names(process: &Process, seen: u8) -> Option<Self> {
        let has = |flag| seen & flag != 0;
        let requests = |option| process.command_line.contains(option);
        if has(PYTHON) && !has(NAMED_PYTHON) && !requests("-X perf") && !requests("-Xperf") {
            return Some(match has(OLD_PYTHON) {
                true => Self::OldPython,
                false => Self::Python,
            });
        }
        (has(NODE) && !has(NAMED_JIT) && !requests("--perf-")).then_some(Self::Node)
    }
}

/// Returns one notice for each kind of interpreter whose scripts have no names.
///
/// Removes the general reason for the same processes from `gaps`.
pub(super) fn notices(trace: &Trace, gaps: &mut Vec<Unresolved>) -> Vec<Notice> {
    let functions: Vec<u8> = trace.functions.iter().map(flags).collect();
    if functions.iter().all(|flags| flags & (PYTHON | NODE) == 0) {
        return Vec::new();
    }
    // A snapshot has no period, and one sample of each thread.
    let min_samples = match trace.info.period_ns {
        0 => 1,
        _ => MIN_SAMPLES,
    };
    let mut found: Vec<(Pid, Interpreter)> = Vec::new();
    for (process, (seen, samples)) in trace.processes.iter().zip(of_processes(trace, &functions)) {
        let interpreter = Interpreter::without_names(process, seen);
        let Some(interpreter) = interpreter.filter(|_| samples >= min_samples) else {
            continue;
        };
        let is_of_process = |gap: &Unresolved| gap.is_of_jit(process.pid);
        // The process wrote names that cannot be used.
        if gaps
            .iter()
            .any(|gap| is_of_process(gap) && !gap.lacks_files())
        {
            continue;
        }
        gaps.retain(|gap| !is_of_process(gap));
        found.push((process.pid, interpreter));
    }
    process_notices(
        NoticeKind::ScriptUnnamed,
        found.iter().map(|(pid, interpreter)| (*pid, interpreter)),
        |processes, interpreter| {
            let name = interpreter.name();
            format!("functions of scripts have no names in {name} process {processes}")
        },
        |interpreter| interpreter.remedy(),
    )
}

/// Returns the flags of all functions of each process, and the number of its samples in an
/// interpreter.
fn of_processes(trace: &Trace, functions: &[u8]) -> Vec<(u8, u32)> {
    let mut stacks = vec![0_u8; trace.stacks.len()];
    for (stack, caller, frame) in trace.stacks.nodes() {
        let inherited = match caller {
            StackId::EMPTY => 0,
            caller => stacks[caller.index()],
        };
        let inside = trace.functions_leaf_first(frame);
        let inside = inside.map(|function| functions[function.index()]);
        stacks[stack.index()] = inside.fold(inherited, |all, flags| all | flags);
    }
    let mut processes = vec![(0_u8, 0_u32); trace.processes.len()];
    for sample in trace.samples.iter() {
        let flags = stacks.get(sample.stack.index()).copied().unwrap_or(0);
        let process = trace.threads[sample.thread.index()].process;
        let (seen, samples) = &mut processes[process.index()];
        *seen |= flags;
        if flags & (PYTHON | NODE) != 0 {
            *samples = samples.saturating_add(1);
        }
    }
    processes
}

fn flags(function: &Function) -> u8 {
    if function.kind == FunctionKind::Jit {
        return match &function.name {
            Some(name) if name.starts_with(PYTHON_FUNCTION) => NAMED_JIT | NAMED_PYTHON,
            Some(_) => NAMED_JIT,
            None => 0,
        };
    }
    let module = &*function.module;
    if matches!(module, "node" | "nodejs") || module.starts_with("libnode.so") {
        return NODE;
    }
    match python_minor(module) {
        Some(Some(..FIRST_MINOR)) => PYTHON | OLD_PYTHON,
        Some(_) => PYTHON,
        None => 0,
    }
}

/// Returns the minor version of the Python 3 that a file belongs to, if it belongs to one, and if
/// its name has the version.
fn python_minor(module: &str) -> Option<Option<u32>> {
    let version = module.strip_prefix("lib").unwrap_or(module);
    let version = version.strip_prefix("python3")?;
    let minor = version.strip_prefix('.').unwrap_or_default();
    let digits = minor.len() - minor.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let is_known = version.is_empty() || version.starts_with('.');
    is_known.then(|| minor[..digits].parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_files_of_interpreters() {
        for (module, expected) in [
            ("python3", PYTHON),
            ("python3.12", PYTHON),
            ("python3.13t", PYTHON),
            ("libpython3.12.so.1.0", PYTHON),
            ("libpython3.so", PYTHON),
            ("python3.9", PYTHON | OLD_PYTHON),
            ("libpython3.11d.so.1.0", PYTHON | OLD_PYTHON),
            ("python3-config", 0),
            ("libpythonic.so", 0),
            ("node", NODE),
            ("libnode.so.109", NODE),
            ("nodes", 0),
        ] {
            let function = Function {
                name: None,
                start: None,
                module: module.into(),
                tier: None,
                kind: FunctionKind::Native,
                inlined: false,
            };
            assert_eq!(flags(&function), expected, "{module}");
        }
    }
}
