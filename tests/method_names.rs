//! Compares method names from the memory of real .NET processes with their perf maps.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use perfcollect::dotnet::{
    Code, MetadataCache, MethodName, MethodNamer, ProcessMemory, Runtime as DotnetRuntime,
    RuntimeFile, candidates,
};
use perfcollect::machine::{Backing, Machine, MappedFiles};
use perfcollect::trace::{Pid, ProcessId};
use perfcollect_symbols::dotnet_name::ManagedName;
use rustix::process::Signal;
use support::{Missing, Runtime, Workload, perf_map, runtimes, skip, workloads};

const LIMIT: Duration = Duration::from_secs(60);

/// A process whose methods are named.
struct Process {
    runtime: DotnetRuntime,
    names: MethodNamer,
    assemblies: MetadataCache,
}

impl Process {
    fn open(pid: Pid) -> Self {
        let mut machine = Machine::default();
        machine.read_running([pid]);
        let (maps, files) = (machine.maps(pid).unwrap(), machine.files());
        let (runtime_file, file) = candidates(maps, files)
            .find_map(|id| Some((id, RuntimeFile::of(files.file(id)).ok()??)))
            .unwrap();
        let bias = maps
            .iter()
            .filter(|mapping| mapping.backing == Backing::File(runtime_file))
            .find_map(|mapping| file.bias(mapping.start, mapping.file_offset))
            .unwrap();
        let memory = ProcessMemory::open(pid).unwrap();
        let runtime = DotnetRuntime::attach(memory, &file, bias).unwrap();
        let names = MethodNamer::of(ProcessId(0), MappedFiles::of(pid), &runtime);
        Self {
            runtime,
            names,
            assemblies: MetadataCache::default(),
        }
    }

    /// Returns the name of the method that starts at an address, or `None` if no method does.
    fn name(&mut self, start: u64) -> Option<Option<MethodName>> {
        let found = self.runtime.code_at(start).ok()?;
        let key = match found.code {
            Code::Method(method) if method.key.start == start => method.key,
            _ => return None,
        };
        let is_collectible = found.collectible;
        let memory = self.runtime.memory();
        let name = self
            .names
            .name(memory, &mut self.assemblies, key, is_collectible);
        Some(name.ok())
    }
}

/// Returns whether a name is that of the perf map, which omits the arguments of generic methods.
fn is_same(name: &str, map_name: &str) -> bool {
    if name == map_name {
        return true;
    }
    let (plain, parameters) = map_name.split_at(map_name.find('(').unwrap_or(map_name.len()));
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

/// Returns whether the runtime may free a method. It frees dynamic methods, but not its IL stubs.
fn is_freeable(method: &str) -> bool {
    method.starts_with("dynamicClass.") && !method.starts_with("dynamicClass.IL_STUB")
}

/// Returns the number of methods in a map that the runtime keeps.
fn methods_in(map: &BTreeMap<u64, String>) -> usize {
    let names = map
        .values()
        .filter_map(|line| ManagedName::parse(line.as_bytes()));
    names.filter(|name| !is_freeable(&name.method)).count()
}

/// Compares all methods that a process has compiled after `warm_up`. Expects `min_equal` of them.
fn compare(title: &str, command: &mut Command, warm_up: Duration, min_equal: usize) {
    command
        .env("DOTNET_PerfMapEnabled", "1")
        .env_remove("DOTNET_EnableWriteXorExecute");
    let workload = Workload::start(command);
    std::thread::sleep(warm_up);
    // On a busy system it takes longer.
    let start = Instant::now();
    while methods_in(&perf_map(workload.pid())) < min_equal {
        assert!(
            start.elapsed() < LIMIT,
            "{title} does not compile {min_equal} methods"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
    // A stopped process gives a consistent snapshot of memory and map.
    workload.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(100));
    let map = perf_map(workload.pid());
    let mut process = Process::open(Pid(workload.pid() as i32));
    let started = Instant::now();
    let (mut equal, mut tiers, mut freed) = (0, 0, 0);
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
            // The map also has the methods that were freed.
            None | Some(None) if is_freeable(&expected.method) => freed += 1,
            other => wrong.push(format!("{expected:?}\n{other:?}")),
        }
    }
    let duration = started.elapsed();
    println!(
        "{title}: {equal} names equal, {} different, {freed} of freed methods; {tiers} tiers equal; {duration:?}",
        wrong.len()
    );
    assert!(
        wrong.is_empty(),
        "{title}: {}",
        wrong[..wrong.len().min(5)].join("\n")
    );
    assert!(equal >= min_equal, "{title}: {equal}");
    assert!(tiers * 1000 >= equal * 995, "{title}: {tiers} of {equal}");
    assert_eq!(process.names.off(), None);
    workload.signal(Signal::CONT);
    workload.signal(Signal::KILL);
}

fn for_each_version(majors: &[u32], check: impl Fn(&Runtime)) {
    for major in majors {
        let mut candidates = runtimes();
        candidates.retain(|runtime| runtime.major() == *major);
        match candidates.iter().max_by_key(|runtime| runtime.aspnet) {
            Some(runtime) => check(runtime),
            None => skip(Missing::Dotnet(*major)),
        }
    }
}

#[test]
fn names_every_method_of_a_small_program() {
    need_capture!();
    let program = need!(workloads::shared("split/split.dll"));
    for_each_version(&[8, 9, 10], |runtime| {
        let mut command = runtime.command(&program);
        command.args(["--mode", "all", "--seconds", "6"]);
        let warm_up = Duration::from_millis(5200);
        compare(
            &format!("split on {}", runtime.version),
            &mut command,
            warm_up,
            150,
        );
    });
}

#[test]
#[ignore = "slow"]
fn names_every_method_of_the_test_workloads() {
    need_capture!();
    let cpu = need!(workloads::cpu());
    let mixed = need!(workloads::mixed());
    for_each_version(&[8, 9, 10], |runtime| {
        for program in [&cpu, &mixed] {
            let mut command = runtime.command(program);
            command.args(["--seconds", "8"]);
            let title = format!("{} on {}", program.display(), runtime.version);
            compare(&title, &mut command, Duration::from_secs(3), 40);
        }
    });
}

#[test]
fn names_every_method_of_a_web_server() {
    need_capture!();
    let program = need!(workloads::shared("webapi/webapi.dll"));
    for_each_version(&[8, 9, 10], |runtime| {
        if !runtime.aspnet {
            skip!(Missing::AspNet(runtime.major()));
        }
        let mut command = runtime.command(&program);
        command.args(["--load", "60"]);
        let warm_up = Duration::from_secs(5);
        compare(
            &format!("webapi on {}", runtime.version),
            &mut command,
            warm_up,
            2000,
        );
    });
}

#[test]
#[ignore = "slow"]
fn names_every_method_of_other_deployments() {
    need_capture!();
    for name in workloads::DEPLOYMENTS {
        let program = need!(workloads::shared(&format!("{name}/{name}")));
        let mut command = Command::new(Path::new(&program));
        command.args(["--mode", "all", "--seconds", "6"]);
        compare(name, &mut command, Duration::from_millis(5200), 100);
    }
}
