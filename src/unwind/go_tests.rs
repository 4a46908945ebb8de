//! Rules, roots and stack switches of a real Go program.
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};
use perfcollect_symbols::elf::ElfFile;
use perfcollect_symbols::go::{GoFunction, GoTable};
use test_skip::Missing;

use super::analysis::{Certainty, Finding};
use super::go::GoProgram;
use super::rule::{Base, UnwindRule};

/// Returns a stripped program that comes with Go's compiler.
fn go_tool() -> Result<PathBuf, Missing> {
    let environment = Command::new("go").args(["env", "GOTOOLDIR"]).output();
    let directory = environment.map_err(|_| Missing::Command("go"))?.stdout;
    let path = Path::new(String::from_utf8(directory).unwrap().trim()).join("cover");
    match path.exists() {
        true => Ok(path),
        false => Err(Missing::File(path.display().to_string())),
    }
}

fn instructions(function: &GoFunction<'_>) -> Vec<Instruction> {
    let code = function.code(1 << 20);
    let decoder = Decoder::with_ip(64, &code, function.start, DecoderOptions::NONE);
    decoder.into_iter().collect()
}

#[test]
fn finds_rules_roots_and_stack_switches() {
    let path = match go_tool() {
        Ok(path) => path,
        Err(missing) => return test_skip::skip(missing),
    };
    let elf = ElfFile::open(File::open(path).unwrap()).unwrap();
    let program = GoProgram::read(&elf).unwrap();
    let (mut framed, mut saved) = (0, 0);
    let table = GoTable::read(&elf).unwrap().unwrap();
    for function in table.iter() {
        let instructions = instructions(&function);
        let findings = instructions.iter();
        let findings = findings.map(|instruction| program.at(instruction.ip()).unwrap());
        let findings: Vec<_> = findings.collect();
        let has_switch = findings
            .iter()
            .any(|it| matches!(it, Finding::OtherStack(_)));
        // Others of the same name adapt the calling convention.
        let is_assembly = function.flags.is_assembly();
        match function.name {
            b"runtime.goexit" | b"runtime.mstart" => {
                assert!(findings.iter().all(|finding| *finding == Finding::Root));
            }
            b"runtime.systemstack" | b"runtime.asmcgocall" if is_assembly => {
                let start = Finding::Caller(UnwindRule::RETURN, Certainty::Checked);
                assert_eq!(findings[0], start);
                assert!(has_switch);
            }
            b"runtime.mcall" if is_assembly => {
                let mut calls = instructions
                    .iter()
                    .filter(|it| it.mnemonic() == Mnemonic::Call);
                let last = calls.next_back().unwrap();
                assert_eq!(program.at(last.next_ip() - 1), Some(Finding::Root));
                assert!(has_switch);
            }
            _ if is_assembly => {}
            _ => assert!(!has_switch, "{function:?}"),
        }
        let mut start = function.start;
        let first_frame = function
            .stack_sizes(4096)
            .into_iter()
            .find_map(|(end, size)| {
                let start = std::mem::replace(&mut start, end);
                size.filter(|size| *size > 0).map(|size| (start, size))
            });
        let Some((first, size)) = first_frame else {
            continue;
        };
        let rule = |address| program.at(address).unwrap();
        let cfa = i64::try_from(size).unwrap() + 8;
        if !is_assembly {
            framed += 1;
            // The instruction that saves rbp, and one after it.
            let next = instructions
                .iter()
                .filter(|it| it.ip() >= first)
                .nth(1)
                .unwrap();
            let expected = UnwindRule::new(Base::Rsp, cfa, Some(-16)).unwrap();
            let expected = Finding::Caller(expected, Certainty::Checked);
            saved += usize::from(rule(next.ip()) == expected);
            assert_eq!(
                rule(function.start),
                Finding::Caller(UnwindRule::RETURN, Certainty::Checked)
            );
        }
    }
    assert!(
        framed > 1000 && saved * 1000 >= framed * 998,
        "{saved} of {framed}"
    );
    let no_go = ElfFile::open(File::open("/proc/self/exe").unwrap()).unwrap();
    assert!(GoProgram::read(&no_go).is_none());
}
