//! Stacks of runtime events: their names come from memory, and equal those of a rundown.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use perfcollect::dotnet::{CodeEvent, CompiledMethod, RundownTable};
use perfcollect::nettrace::{Event, Reader};
use support::events::{entries, for_each_event, for_each_raw_event};
use support::{Runtime, Workload, perfcollect, perfview_json, run, runtimes, workloads};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);
const RUNTIME: &str = "Microsoft-Windows-DotNETRuntime";
const RUNDOWN: &str = "Microsoft-Windows-DotNETRuntimeRundown";
/// The last event of a rundown.
const RUNDOWN_END: u32 = 146;
/// First version whose methods are read from memory.
const READABLE: u32 = 8;

/// A trace of a running program.
struct Traced {
    directory: TempDir,
}

impl Traced {
    fn of(command: &mut Command, options: &[&str]) -> Self {
        let workload = Workload::start(command);
        let directory = tempfile::tempdir().unwrap();
        let mut collector = Command::new(perfcollect());
        let pid = workload.pid().to_string();
        collector
            .args(["collect", "x", "-quiet", "-pid", &pid, "-collectsec", "2"])
            .args(options)
            .current_dir(directory.path());
        run(&mut collector, LIMIT).expect_success();
        Self { directory }
    }

    fn zip(&self) -> PathBuf {
        self.directory.path().join("x.trace.zip")
    }

    /// Returns the stacks of events with their numbers of occurrences, as named in `x.nettrace`,
    /// innermost first.
    fn named(&self) -> Stacks {
        let bytes = std::fs::read(self.directory.path().join("x.nettrace")).unwrap();
        let mut reader = Reader::open(&*bytes).unwrap();
        let mut symbols = BTreeMap::new();
        let mut stacks = Stacks::default();
        while let Some(event) = reader.next_event().unwrap() {
            if event.metadata.name == "ProcessSymbol" {
                let (start, end, name) = symbol(event.payload);
                symbols.insert(start, (end, name));
            } else if event.metadata.provider == RUNTIME {
                // The root follows the stack.
                stacks.add(&event, 1, |address| {
                    let (_, (end, name)) = symbols.range(..=address).next_back()?;
                    (address < *end).then(|| name.clone())
                });
            }
        }
        stacks
    }
}

#[derive(Debug, Default)]
struct Stacks {
    /// By event id and names.
    counts: BTreeMap<(u32, Vec<String>), u64>,
    frames: u64,
    unnamed: u64,
}

impl Stacks {
    /// Adds the stack of an event, without the outermost `omitted` addresses.
    fn add(&mut self, event: &Event<'_>, omitted: usize, name: impl Fn(u64) -> Option<String>) {
        let mut addresses: Vec<u64> = event.stack.addresses().collect();
        addresses.truncate(addresses.len().saturating_sub(omitted));
        let names: Vec<_> = addresses.into_iter().map(name).collect();
        self.frames += names.len() as u64;
        self.unnamed += names.iter().filter(|name| name.is_none()).count() as u64;
        let names = names.into_iter().map(Option::unwrap_or_default).collect();
        *self.counts.entry((event.metadata.id, names)).or_default() += 1;
    }
}

impl Stacks {
    /// Returns the numbers of frames by event id and name.
    fn frames_by_name(&self) -> BTreeMap<(u32, String), u64> {
        let mut frames = BTreeMap::new();
        for ((id, names), count) in &self.counts {
            for name in names {
                *frames.entry((*id, as_listed(name))).or_default() += count;
            }
        }
        frames
    }
}

/// Removes what the names of a rundown lack: the type arguments of a method, and the outer types of
/// nested types in its parameters.
fn as_listed(name: &str) -> String {
    let (method, parameters) = name.split_at(name.find('(').unwrap_or(name.len()));
    let mut depth = 0;
    let arguments = method.char_indices().rev().find(|(_, character)| {
        depth += match character {
            '>' => 1,
            '<' => -1,
            _ => 0,
        };
        depth == 0
    });
    let method = match arguments {
        Some((start, '<')) => method.split_at(start).0,
        _ => method,
    };
    let mut kept = method.to_owned();
    let is_part = |character: char| !"(),<>[]&*".contains(character);
    let mut rest = parameters;
    while !rest.is_empty() {
        let length = rest.find(|character| !is_part(character));
        let (part, after) = rest.split_at(length.unwrap_or(rest.len()));
        kept.push_str(part.rsplit('+').next().unwrap_or(part));
        let mut after = after.chars();
        kept.extend(after.next());
        rest = after.as_str();
    }
    kept
}

/// Parses a symbol: id, mapping, first and last address, name.
fn symbol(mut payload: &[u8]) -> (u64, u64, String) {
    let mut number = || {
        let mut value = 0;
        for place in 0.. {
            let (byte, rest) = payload.split_first().unwrap();
            payload = rest;
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    };
    let (_, _, start, end) = (number(), number(), number(), number());
    let name = String::from_utf8_lossy(&payload[2..]).into_owned();
    (start, end, name)
}

/// Returns the stacks of the first raw stream, with the names that it lists. .NET 8 and 9 have a
/// second stream, with garbage collections and without a rundown.
fn listed(trace: &Path) -> Stacks {
    let (_, stream) = &entries(trace, "/eventpipe/")[0];
    let mut table = RundownTable::default();
    for_each_event(stream, |event| {
        let code = CodeEvent::parse(event.metadata, event.payload).unwrap();
        table.take(match code {
            // The table omits ReadyToRun code.
            Some(CodeEvent::Listed(method)) => CodeEvent::Listed(CompiledMethod {
                is_jitted: true,
                ..method
            }),
            Some(code) => code,
            None => return,
        });
    });
    let methods = table.methods();
    let methods: BTreeMap<_, _> = methods.map(|method| (method.start, method)).collect();
    let mut stacks = Stacks::default();
    for_each_event(stream, |event| {
        if event.metadata.provider == RUNTIME {
            stacks.add(event, 0, |address| {
                // A return address may be that after the code.
                let (start, method) = methods.range(..=address).next_back()?;
                let is_in = address <= start + method.size;
                is_in.then(|| method.name.method.clone())
            });
        }
    });
    stacks
}

/// Runs the mixed workload on each installed runtime.
fn on_each_runtime(options: &[&str], check: impl Fn(&Runtime, &Traced)) {
    let program = need!(workloads::mixed());
    for runtime in runtimes().into_iter().chain(Runtime::musl()) {
        println!("on .NET {}", runtime.version);
        let mut command = runtime.command(&program);
        let traced = Traced::of(command.args(["--seconds", "60"]), options);
        check(&runtime, &traced);
    }
}

/// Returns whether the raw stream has the end of a rundown.
fn has_rundown(trace: &Path) -> bool {
    let mut has_rundown = false;
    let ends = for_each_raw_event(trace, |event| {
        has_rundown |= event.metadata.provider == RUNDOWN && event.metadata.id == RUNDOWN_END;
    });
    assert!(ends.iter().all(Option::is_none), "{ends:?}");
    has_rundown
}

#[test]
fn names_equal_those_of_a_rundown() {
    need_capture!();
    on_each_runtime(&["-rundown"], |runtime, traced| {
        assert!(has_rundown(&traced.zip()));
        let (named, listed) = (traced.named(), listed(&traced.zip()));
        assert!(listed.frames > 500);
        let frames = named.frames;
        let (named, listed) = (named.frames_by_name(), listed.frames_by_name());
        let ids: BTreeSet<u32> = listed.keys().map(|(id, _)| *id).collect();
        let has_two = (8..=9).contains(&runtime.major());
        let in_stream = named
            .iter()
            .filter(|((id, _), _)| !has_two || ids.contains(id));
        // A rundown omits stubs and freed code.
        let differences = in_stream.map(|(name, count)| {
            let listed = listed.get(name).copied().unwrap_or(0);
            (name, count.saturating_sub(listed))
        });
        let differences: Vec<_> = differences.filter(|(_, count)| *count > 0).collect();
        let count: u64 = differences.iter().map(|(_, count)| count).sum();
        let limit = 5 + frames / 1000;
        assert!(count <= limit, "{count} of {frames}: {differences:#?}");
    });
}

#[test]
fn stacks_are_named_without_a_rundown() {
    need_capture!();
    on_each_runtime(&[], |runtime, traced| {
        assert_eq!(has_rundown(&traced.zip()), runtime.major() < READABLE);
        for stacks in [traced.named(), listed(&traced.zip())] {
            assert!(stacks.frames > 500);
            let limit = 5 + stacks.frames / 1000;
            assert!(stacks.unnamed <= limit, "{stacks:?}");
        }
        let raw = traced.directory.path().join("raw.nettrace");
        std::fs::write(&raw, &entries(&traced.zip(), "/eventpipe/")[0].1).unwrap();
        for file in [raw, traced.directory.path().join("x.nettrace")] {
            if let Some(view) = perfview_json("nettrace", &file, &[]) {
                let addresses = &view["codeAddresses"];
                let number = |field: &str| addresses[field].as_u64().unwrap();
                let unnamed = number("total") - number("withMethod");
                // These are distinct addresses, not frames.
                assert!(unnamed <= 5 + number("total") / 100, "{addresses}");
            }
        }
    });
}
