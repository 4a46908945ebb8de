//! The names of a system-wide capture against those of addr2line (binutils), llvm-symbolizer and
//! /proc/kallsyms at each unique address. A [`rules::Rule`] explains each accepted difference; any
//! other fails.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

#[path = "names_differential/kernel.rs"]
mod kernel;
#[path = "names_differential/peers.rs"]
mod peers;
#[path = "names_differential/rules.rs"]
mod rules;
#[path = "names_differential/sampled.rs"]
mod sampled;
#[path = "names_differential/spelling.rs"]
mod spelling;
#[path = "names_differential/symbol_table.rs"]
mod symbol_table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use peers::Peer;
use rules::{Difference, Rule};
use sampled::{Sampled, build_id, shown};
use support::{Missing, Saved, perfcollect, run, start, workloads};
use symbol_table::SymbolTable;

/// Compilers that happen to run have half a million symbols.
const LIMIT: Duration = Duration::from_secs(400);
/// addr2line needs a minute for a compiler that happens to run.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Captures the whole system while programs in C, C++ and Rust run, with the debug files of this
/// host only.
fn capture(programs: &[(PathBuf, &[&str])]) -> Saved {
    let running = programs
        .iter()
        .map(|(program, arguments)| start(Command::new(program).args(*arguments)));
    let _running: Vec<_> = running.collect();
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(perfcollect());
    command
        .args([
            "collect",
            "trace",
            "-quiet",
            "-freq",
            "2000",
            "-collectsec",
            "3",
        ])
        .current_dir(&directory)
        .env("XDG_CACHE_HOME", directory.path())
        .env("HOME", directory.path());
    run(&mut command, LIMIT).expect_success();
    Saved::open(directory, "trace")
}

/// Returns the file that was sampled as this module, or why it is not compared.
fn file_of(module: &str, saved: &Saved) -> Result<PathBuf, &'static str> {
    if module == "vdso" {
        return Ok(sampled::vdso(saved.directory()));
    }
    if module == "libcoreclr.so" {
        return Err("functions that .NET calls have names in a table of the runtime only");
    }
    let modules = saved.summary.modules.iter();
    let mut rows = modules.filter(|row| row.path.rsplit('/').next() == Some(module));
    let row = rows.next().ok_or("it is no ELF file")?;
    let path = PathBuf::from(&row.path);
    match path.metadata() {
        _ if rows.next().is_some() => Err("there are several of this name"),
        Ok(metadata) if metadata.len() > MAX_FILE_BYTES => Err("it is too large for a short test"),
        Ok(_) if build_id(&path) == row.build_id => Ok(path),
        _ => Err("the file that was sampled is not there any more"),
    }
}

/// Totals of the comparison.
#[derive(Default)]
struct Tally {
    /// Addresses with inlined functions, by module.
    inlined: BTreeMap<String, usize>,
    /// How many differences each rule explains.
    rules: BTreeMap<(Peer, Rule), usize>,
    unexplained: Vec<String>,
}

impl Tally {
    fn compare(&mut self, module: &str, file: &Path, chains: &BTreeMap<u64, Vec<String>>) {
        let table = SymbolTable::new(file);
        let mut equal = BTreeSet::new();
        for peer in [Peer::LlvmSymbolizer, Peer::Addr2line] {
            let theirs = peer.chains(file, chains.keys().copied());
            for (&address, ours) in chains {
                let theirs = theirs.get(&address).map_or(&[][..], Vec::as_slice);
                let explained = match rules::explain(peer, address, ours, theirs, &table) {
                    Err(Difference::Outermost)
                        if peer == Peer::Addr2line && equal.contains(&address) =>
                    {
                        Ok(vec![Rule::NameInSource])
                    }
                    explained => explained,
                };
                match explained {
                    Ok(rules) if rules.is_empty() => _ = equal.insert(address),
                    Ok(rules) => rules.into_iter().for_each(|rule| *self.rules.entry((peer, rule)).or_default() += 1),
                    Err(why) => self.unexplained.push(format!("{peer:?} {module} {address:#x}, {why:?}:\n  ours {ours:?}\n  theirs {theirs:?}")),
                }
            }
        }
        let inlined = chains.values().filter(|chain| chain.len() > 1).count();
        println!(
            "{module}: {} addresses, {inlined} with inlined functions",
            chains.len()
        );
        self.inlined.insert(module.to_owned(), inlined);
    }

    #[track_caller]
    fn expect_explained(&self) {
        println!("{:#?}", self.rules);
        let some: Vec<_> = self
            .unexplained
            .iter()
            .take(20)
            .map(String::as_str)
            .collect();
        assert!(
            some.is_empty(),
            "{} differences:\n{}",
            self.unexplained.len(),
            some.join("\n")
        );
    }
}

#[test]
#[ignore = "slow"]
fn names_and_inlined_functions_are_those_of_other_tools() {
    need_capture!();
    let cpp = need!(workloads::chains("chains-cpp"));
    let rust = need!(workloads::chains("chains-rust"));
    let c = need!(workloads::native("native-nofp"));
    if let Some(missing) = peers::missing() {
        skip!(Missing::Command(missing))
    }
    let saved = capture(&[
        (cpp, &["100"]),
        (rust, &["100"]),
        (c, &["--mode", "inlined", "--seconds", "100"]),
    ]);
    let sampled = Sampled::of(&saved);
    let mut tally = Tally::default();
    for (module, chains) in &sampled.modules {
        match file_of(module, &saved) {
            Ok(file) => tally.compare(module, &file, chains),
            Err(why) => println!("{module}: not compared, {why}"),
        }
    }
    compare_kernel(&sampled.kernel, &mut tally);
    tally.expect_explained();
    for program in ["chains-cpp", "chains-rust", "native-nofp"] {
        assert!(tally.inlined[program] > 0, "{program}");
    }
    assert!(tally.inlined.contains_key("libc.so.6"));
}

/// Accepts any name that the kernel has for the function.
fn compare_kernel(frames: &BTreeMap<u64, (String, String)>, tally: &mut Tally) {
    let kernel = kernel::Kallsyms::read();
    let (mut aliases, mut gone, mut unlisted) = (0, 0, 0);
    for (&address, (ours, module)) in frames {
        let theirs = kernel.at(address, module);
        match theirs.iter().position(|name| shown(name) == *ours) {
            Some(place) => aliases += usize::from(place > 0),
            None if kernel.is_gone(ours, module) => gone += 1,
            None if kernel.is_unlisted(address, module) && *ours == format!("{address:#x}") => {
                unlisted += 1;
            }
            None => tally.unexplained.push(format!(
                "kallsyms {module} {address:#x}: ours {ours}, theirs {theirs:?}"
            )),
        }
    }
    println!(
        "{} addresses of the kernel, {aliases} with another name than the first of several, {gone} of BPF programs that are gone, \
         {unlisted} of code that is in no list",
        frames.len()
    );
    assert!(frames.len() > 50);
}
