//! Names read from the memory of real .NET processes, against the perf maps that the same processes write.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use perfcollect::dotnet::{
    Assemblies, Code, MethodName, MethodNames, ProcessMemory, Runtime as DotnetRuntime,
    RuntimeFile, candidates,
};
use perfcollect::machine::{Backing, Machine, MappedFiles};
use perfcollect::trace::{Pid, ProcessId};
use perfcollect_symbols::dotnet_name::ManagedName;
use rustix::process::Signal;
use support::{Missing, Runtime, Workload, perf_map, runtimes, skip, workloads};

const LIMIT: Duration = Duration::from_secs(60);

/// What is in the memory of a process.
struct Process {
    runtime: DotnetRuntime,
    names: MethodNames,
    assemblies: Assemblies,
}

impl Process {
    fn open(pid: Pid) -> Self {
        let mut machine = Machine::default();
        machine.read_running([pid]);
        let (maps, files) = (machine.maps(pid).unwrap(), machine.files());
        let (holder, file) = candidates(maps, files)
            .find_map(|id| Some((id, RuntimeFile::of(files.file(id))?)))
            .unwrap();
        let bias = maps
            .iter()
            .filter(|mapping| mapping.backing == Backing::File(holder))
            .find_map(|mapping| file.bias(mapping.start, mapping.file_offset))
            .unwrap();
        let memory = ProcessMemory::open(pid).unwrap();
        let runtime = DotnetRuntime::attach(memory, &file, bias).unwrap();
        let names = MethodNames::of(ProcessId(0), MappedFiles::of(pid), &runtime);
        Self {
            runtime,
            names,
            assemblies: Assemblies::default(),
        }
    }

    /// The name of the method that starts at an address; `None`: no method does.
    fn name(&mut self, start: u64) -> Option<Option<MethodName>> {
        let key = match self.runtime.code_at(start)?.code {
            Code::Method(method) if method.key.start == start => method.key,
            _ => return None,
        };
        let memory = self.runtime.memory();
        Some(self.names.name(memory, &mut self.assemblies, key))
    }
}

/// Whether a name is the one of the perf map, which does not tell the arguments of generic methods.
fn is_same(name: &str, of_map: &str) -> bool {
    if name == of_map {
        return true;
    }
    let (plain, parameters) = of_map.split_at(of_map.find('(').unwrap_or(of_map.len()));
    let Some(arguments) = name
        .strip_prefix(plain)
        .and_then(|rest| rest.strip_prefix('<'))
    else {
        return false;
    };
    let mut list = vec![String::new()];
    let mut open = 0;
    for (at, letter) in arguments.char_indices() {
        match letter {
            '<' | '[' => open += 1,
            '>' if open == 0 => {
                let mut parameters = parameters.to_owned();
                for (index, argument) in list.iter().enumerate().rev() {
                    parameters = parameters.replace(&format!("!!{index}"), argument);
                }
                return arguments[at + 1..] == parameters;
            }
            '>' | ']' => open -= 1,
            ',' if open == 0 => {
                list.push(String::new());
                continue;
            }
            _ => {}
        }
        list.last_mut().unwrap().push(letter);
    }
    false
}

/// Methods of DynamicMethod are freed; stubs, which the runtime makes itself, are not.
fn is_freeable(method: &str) -> bool {
    method.starts_with("dynamicClass.") && !method.starts_with("dynamicClass.IL_STUB")
}

/// Methods that a map lists and the runtime keeps.
fn methods_in(map: &BTreeMap<u64, String>) -> usize {
    let names = map
        .values()
        .filter_map(|line| ManagedName::parse(line.as_bytes()));
    names.filter(|name| !is_freeable(&name.method)).count()
}

/// Compares all methods of a process that has made them.
fn compare(what: &str, command: &mut Command, settle: Duration, at_least: usize) {
    command
        .env("DOTNET_PerfMapEnabled", "1")
        .env_remove("DOTNET_EnableWriteXorExecute");
    let workload = Workload::start(command);
    std::thread::sleep(settle);
    // On a busy machine it takes longer.
    let begin = Instant::now();
    while methods_in(&perf_map(workload.pid())) < at_least {
        assert!(
            begin.elapsed() < LIMIT,
            "{what} makes no {at_least} methods"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
    // What is read is what was true at one moment; and a stopped process can be read.
    workload.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(100));
    let map = perf_map(workload.pid());
    let mut process = Process::open(Pid(workload.pid() as i32));
    let begun = Instant::now();
    let (mut equal, mut tiers, mut dead) = (0, 0, 0);
    let mut wrong = Vec::new();
    for (start, line) in &map {
        let Some(expected) = ManagedName::parse(line.as_bytes()) else {
            continue;
        };
        match process.name(*start) {
            Some(Some(name))
                if is_same(&name.method, &expected.method) && name.module == expected.assembly =>
            {
                equal += 1;
                tiers += usize::from(name.tier == expected.tier);
            }
            // The map keeps what was freed.
            None | Some(None) if is_freeable(&expected.method) => dead += 1,
            other => wrong.push(format!("{expected:?}\n{other:?}")),
        }
    }
    let took = begun.elapsed();
    println!(
        "{what}: {equal} names equal, {} not, {dead} of freed methods; {tiers} tiers equal; {took:?}",
        wrong.len()
    );
    assert!(
        wrong.is_empty(),
        "{what}: {}",
        wrong[..wrong.len().min(5)].join("\n")
    );
    assert!(equal >= at_least, "{what}: {equal}");
    assert!(tiers * 1000 >= equal * 995, "{what}: {tiers} of {equal}");
    assert_eq!(process.names.off(), None);
    workload.signal(Signal::CONT);
    workload.signal(Signal::KILL);
}

fn on(majors: &[u32], check: impl Fn(&Runtime)) {
    for major in majors {
        let mut there = runtimes();
        there.retain(|runtime| runtime.major() == *major);
        match there.iter().max_by_key(|runtime| runtime.aspnet) {
            Some(runtime) => check(runtime),
            None => skip(Missing::Dotnet(*major)),
        }
    }
}

#[test]
fn every_method_of_a_small_program() {
    need_capture!();
    let program = need!(workloads::shared("split/split.dll"));
    on(&[8, 9, 10], |runtime| {
        let mut command = runtime.command(&program);
        command.args(["--mode", "all", "--seconds", "6"]);
        let settle = Duration::from_millis(5200);
        compare(
            &format!("split on {}", runtime.version),
            &mut command,
            settle,
            150,
        );
    });
}

#[test]
#[ignore = "slow"]
fn every_method_of_our_own_programs() {
    need_capture!();
    let cpu = need!(workloads::cpu());
    let mixed = need!(workloads::mixed());
    on(&[8, 9, 10], |runtime| {
        for program in [&cpu, &mixed] {
            let mut command = runtime.command(program);
            command.args(["--seconds", "8"]);
            let what = format!("{} on {}", program.display(), runtime.version);
            compare(&what, &mut command, Duration::from_secs(3), 40);
        }
    });
}

#[test]
fn every_method_of_a_web_server() {
    need_capture!();
    let program = need!(workloads::shared("webapi/webapi.dll"));
    on(&[8, 9, 10], |runtime| {
        if !runtime.aspnet {
            skip!(Missing::AspNet(runtime.major()));
        }
        let mut command = runtime.command(&program);
        command.args(["--load", "60"]);
        let settle = Duration::from_secs(5);
        compare(
            &format!("webapi on {}", runtime.version),
            &mut command,
            settle,
            2000,
        );
    });
}

#[test]
#[ignore = "slow"]
fn every_method_of_other_deployments() {
    need_capture!();
    for name in workloads::DEPLOYMENTS {
        let program = need!(workloads::shared(&format!("{name}/{name}")));
        let mut command = Command::new(Path::new(&program));
        command.args(["--mode", "all", "--seconds", "6"]);
        compare(name, &mut command, Duration::from_millis(5200), 100);
    }
}
