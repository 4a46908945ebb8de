//! Rules of analyses against the unwind information of the same code, which they do not see.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, LittleEndian, RegisterRule, UnwindContext,
    UnwindSection, UnwindTableRow, X86_64,
};
use iced_x86::{Decoder, DecoderOptions};
use perfcollect_symbols::elf::ElfFile;

use super::sweep::is_padding;
use super::*;
use crate::unwind::rule::{Base, UnwindRule};

/// Instructions by how their rules compare.
#[derive(Debug, Default)]
struct Counts {
    all: usize,
    equal: usize,
    /// The rules use different registers.
    incomparable: usize,
    wrong: usize,
    checked: usize,
    wrong_but_checked: usize,
    /// The CFA is equal, but not where rbp was saved.
    wrong_rbp: usize,
}

impl Counts {
    fn add(&mut self, analysis: &mut Analysis, address: u64, expected: Option<UnwindRule>) {
        self.all += 1;
        let finding = analysis.at(address);
        let (Some(Finding::Caller(rule, certainty)), Some(expected)) = (finding, expected) else {
            return;
        };
        let is_checked = certainty == Certainty::Checked;
        self.checked += usize::from(is_checked);
        let frame_pointer = analysis.frame_pointers.get(&address).copied();
        let is_equal = match (rule.base, expected.base) {
            (own, other) if own == other => rule.cfa == expected.cfa,
            (Base::Rsp, Base::Rbp) => match frame_pointer {
                Some(offset) => -offset == i64::from(expected.cfa),
                None => return self.incomparable += 1,
            },
            _ => return self.incomparable += 1,
        };
        if is_equal {
            self.equal += 1;
            // After a `pop`, unwind information still refers to the word.
            let above = expected
                .rbp_words
                .checked_mul(8)
                .map(|at| i32::from(at) + expected.cfa);
            let is_live = above.is_some_and(|above| expected.base == Base::Rbp || above >= 0);
            let is_wrong = is_live && rule.rbp_words != expected.rbp_words;
            self.wrong_rbp += usize::from(is_wrong);
        } else {
            self.wrong += 1;
            self.wrong_but_checked += usize::from(is_checked);
            if is_checked {
                let function = analysis.rows.at(address).map(|found| found.function);
                println!("{address:x} of {function:x?}: {rule:?}, not {expected:?}");
            }
        }
    }
}

/// Returns the rule of a row of the unwind information, if it has the form of rules here.
fn expected(row: &UnwindTableRow<usize>) -> Option<UnwindRule> {
    let saved = match row.register(X86_64::RBP) {
        Some(RegisterRule::Offset(at)) => Some(at),
        _ => None,
    };
    match *row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => match register {
            X86_64::RSP => UnwindRule::new(Base::Rsp, offset, saved),
            X86_64::RBP => UnwindRule::new(Base::Rbp, offset, saved),
            _ => None,
        },
        CfaRule::Expression(_) => None,
    }
}

/// Returns the unwind information of a file: start, end and rule of consecutive instructions.
fn unwind_information(elf: &ElfFile) -> Vec<(u64, u64, Option<UnwindRule>)> {
    let sections = elf.unwind_sections().unwrap();
    let section = sections.eh_frame.unwrap();
    let mut bases = BaseAddresses::default().set_eh_frame(section.address);
    if let Some(text) = &sections.text_range {
        bases = bases.set_text(text.start);
    }
    let frames = EhFrame::new(&section.data, LittleEndian);
    let mut entries = frames.entries(&bases);
    let mut context = UnwindContext::new();
    let mut rules = Vec::new();
    while let Some(entry) = entries.next().unwrap() {
        let CieOrFde::Fde(fde) = entry else { continue };
        let fde = fde.parse(EhFrame::cie_from_offset).unwrap();
        let mut table = fde.rows(&frames, &bases, &mut context).unwrap();
        while let Some(row) = table.next_row().unwrap() {
            rules.push((row.start_address(), row.end_address(), expected(row)));
        }
    }
    rules
}

/// Compares the rules of all instructions that the unwind information of a file covers.
fn compare(path: &Path) -> Counts {
    let elf = ElfFile::open(File::open(path).unwrap()).unwrap();
    let mut analysis = Analysis::new(&elf, None).unwrap();
    let mut counts = Counts::default();
    for (start, end, expected) in unwind_information(&elf) {
        let Some(code) = analysis.module.image.code_at(start) else {
            continue;
        };
        let code = &code[..((end - start) as usize).min(code.len())];
        let decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
        let instructions = decoder.into_iter();
        let instructions = instructions.filter(|it| !it.is_invalid() && !is_padding(it));
        let addresses: Vec<u64> = instructions.map(|instruction| instruction.ip()).collect();
        for address in addresses {
            counts.add(&mut analysis, address, expected);
        }
    }
    println!("{}: {counts:?}", path.display());
    counts
}

fn library(name: &str) -> Result<std::path::PathBuf, test_skip::Missing> {
    let path = Path::new("/lib/x86_64-linux-gnu").join(name);
    match path.exists() {
        true => Ok(path),
        false => Err(test_skip::Missing::File(path.display().to_string())),
    }
}

/// Requires shares of all instructions, in thousandths, and limits of wrong rules.
///
/// At most one in `rbp` may have a wrong rbp of the caller.
#[track_caller]
fn require(counts: &Counts, [equal, checked]: [usize; 2], wrong_but_checked: usize, rbp: usize) {
    assert!(counts.all > 50_000, "{counts:?}");
    assert!(counts.equal * 1000 >= counts.all * equal, "{counts:?}");
    assert!(counts.checked * 1000 >= counts.all * checked, "{counts:?}");
    assert!(counts.wrong_but_checked <= wrong_but_checked, "{counts:?}");
    assert!(counts.wrong_rbp * rbp <= counts.all, "{counts:?}");
}

/// glibc declares wrong rules for two functions in assembly (134 instructions), and others for
/// stubs (20).
#[test]
fn rules_equal_those_of_unwind_information() {
    let path = match library("libc.so.6") {
        Ok(path) => path,
        Err(missing) => return test_skip::skip(missing),
    };
    // Assembly pushes registers that the unwind information lacks.
    require(&compare(&path), [990, 990], 150, 10_000);
}

#[test]
#[ignore = "slow"]
fn checked_rules_of_programs_are_right() {
    for program in ["python3", "perl", "bash", "perf"] {
        match std::fs::canonicalize(Path::new("/usr/bin").join(program)) {
            Ok(path) => require(&compare(&path), [960, 890], 0, 1000),
            Err(_) => test_skip::skip(test_skip::Missing::Command(program)),
        }
    }
}

/// An analysis starts with the code that a sample met first. No part of a function is taken for a
/// function then, except in assembly whose unwind information says that it is one.
#[test]
fn checked_rules_are_right_whatever_is_asked_first() {
    let path = match library("ld-linux-x86-64.so.2") {
        Ok(path) => path,
        Err(missing) => return test_skip::skip(missing),
    };
    let elf = ElfFile::open(File::open(path).unwrap()).unwrap();
    let rules = unwind_information(&elf);
    let (mut checked, mut wrong) = (0, BTreeSet::new());
    for first in rules.iter().step_by(3) {
        let mut analysis = Analysis::new(&elf, None).unwrap();
        analysis.at(first.0);
        for &(start, _, expected) in &rules {
            let found = analysis.rows.checked_at(start);
            if let (Some(found), Some(expected)) = (found, expected)
                && let Finding::Caller(rule, _) = found.finding
                && rule.base == expected.base
            {
                checked += 1;
                if rule.cfa != expected.cfa {
                    wrong.insert(found.function);
                }
            }
        }
    }
    println!("{checked} rules, wrong in {wrong:x?}");
    assert!(checked > 5_000 && wrong.len() <= 4, "{checked} {wrong:x?}");
}
