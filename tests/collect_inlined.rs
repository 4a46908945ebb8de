//! Captures of programs with DWARF: the functions that were inlined, as binutils' addr2line tells them.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use perfcollect_symbols::demangle::demangle;
use support::{Saved, Workload, captured, expect_same_in_perfview, perfcollect, workloads};

const LIMIT: Duration = Duration::from_secs(60);

/// Functions inlined at each sampled address of a module, innermost first, with the one they are in.
fn chains(saved: &Saved, module: &str) -> BTreeMap<u64, Vec<String>> {
    let text = String::from_utf8(saved.perf_text.clone()).unwrap();
    let mut chains = BTreeMap::new();
    for sample in text.split("\n\n") {
        let mut frames: Vec<(u64, Vec<String>)> = Vec::new();
        for line in sample.lines().filter_map(|line| line.strip_prefix('\t')) {
            let (address, rest) = line.split_once(' ').unwrap();
            let Some(name) = rest.strip_suffix(&format!(" ({module})")) else {
                continue;
            };
            let address = u64::from_str_radix(address, 16).unwrap();
            match frames.last_mut() {
                Some((last, names)) if *last == address => names.push(name.to_owned()),
                _ => frames.push((address, vec![name.to_owned()])),
            }
        }
        chains.extend(frames);
    }
    chains
}

/// The names that `addr2line -fi` gives addresses, demangled as ours are.
fn addr2line(file: &Path, addresses: impl Iterator<Item = u64>) -> Vec<Vec<String>> {
    let output = Command::new("addr2line")
        .args(["-f", "-i", "-a", "-e"])
        .arg(file)
        .args(addresses.map(|address| format!("{address:#x}")))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let chains = text.split("0x").skip(1).map(|chain| {
        let names = chain.lines().skip(1).step_by(2);
        names
            .map(|name| demangle(name.as_bytes()).into_owned())
            .collect()
    });
    chains.collect()
}

/// What `perf.data.txt` does not escape for PerfView.
fn letters(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect()
}

/// Compares the chains of all addresses; returns how many have inlined functions.
fn compare(saved: &Saved, file: &Path) -> usize {
    let module = file.file_name().unwrap().to_str().unwrap();
    let chains = chains(saved, module);
    let all_theirs = addr2line(file, chains.keys().copied());
    assert_eq!(all_theirs.len(), chains.len());
    let mut inlined = 0;
    for ((address, ours), theirs) in chains.iter().zip(&all_theirs) {
        // The outermost has its name from the symbol table, as have all in code without DWARF. addr2line gives the innermost
        // that name too, where DWARF has no linkage name for it.
        let (Some((outermost, ours)), Some((_, theirs))) = (ours.split_last(), theirs.split_last())
        else {
            panic!("nothing at {address:#x}");
        };
        assert_eq!(
            ours.len(),
            theirs.len(),
            "{address:#x}: {ours:?}, {theirs:?}"
        );
        for (depth, (our, their)) in ours.iter().zip(theirs).enumerate() {
            let is_same = |our: &str| letters(our) == letters(their);
            assert!(
                is_same(our) || (depth == 0 && is_same(outermost)),
                "{address:#x}: {our} instead of {their}"
            );
        }
        inlined += usize::from(!ours.is_empty());
    }
    println!(
        "{module}: {} addresses, {inlined} with inlined functions",
        chains.len()
    );
    inlined
}

#[test]
fn chains_are_whole_and_those_of_addr2line() {
    need_capture!();
    for name in ["native-fp", "native-nofp"] {
        let Some(program) = workloads::native(name) else {
            skip!("{name} is not built; scripts/workloads builds it")
        };
        let capture = |options: &[&str]| {
            let arguments = ["--mode", "inlined", "--seconds", "4"];
            let workload = Workload::start(Command::new(&program).args(arguments));
            let pid = workload.pid().to_string();
            let saved = captured([&["-pid", &pid, "-collectsec", "2"], options].concat());
            workload.done(LIMIT);
            saved
        };
        let plain = capture(&["-noinline"]);
        let saved = capture(&[]);
        expect_same_in_perfview(&saved);
        let chain = ["inline_caller", "inlined_outer_[i]", "inlined_inner_[i]"];
        let (found, called) = (
            saved.samples_under(&chain),
            saved.samples_under(&["inline_caller"]),
        );
        // What is not is at the first and last instruction.
        assert!(
            called > 0 && found * 100 >= called * 95,
            "{found} of {called}"
        );
        assert!(saved.svg().contains("inlined_inner"));
        assert!(plain.samples_under(&["inline_caller"]) > 0);
        assert!(
            !plain
                .stacks
                .keys()
                .flatten()
                .any(|frame| frame.ends_with("_[i]"))
        );
        assert!(compare(&saved, &program) > 0);
    }
}

/// This program, in which functions of Rust are inlined many deep.
#[test]
fn chains_of_rust_are_those_of_addr2line() {
    need_capture!();
    let program = perfcollect().to_str().unwrap();
    let script = format!("for i in 1 2 3 4 5 6 7 8; do {program} ps; done");
    let saved = captured(["-freq", "5000", "--", "sh", "-c", &script]);
    assert!(compare(&saved, perfcollect()) > 20);
}
