//! Captures of programs with DWARF: all outputs contain the inlined functions.
//!
//! `names_differential` verifies that they are the right ones.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::process::Command;
use std::time::Duration;

use support::{Workload, captured_for, expect_same_in_perfview, workloads};

#[test]
fn inline_chains_are_complete_and_omitted_with_noinline() {
    need_capture!();
    for name in ["native-fp", "native-nofp"] {
        let program = need!(workloads::native(name));
        let capture = |options: &[&str]| {
            let arguments = ["--mode", "inlined", "--seconds", "6000"];
            let workload = Workload::start(Command::new(&program).args(arguments));
            captured_for(Duration::from_secs(1), workload.pid(), options)
        };
        let plain = capture(&["-noinline"]);
        let saved = capture(&[]);
        expect_same_in_perfview(&saved);
        let chain = ["inline_caller", "inlined_outer_[i]", "inlined_inner_[i]"];
        let (found, called) = (
            saved.samples_under(&chain),
            saved.samples_under(&["inline_caller"]),
        );
        // Incomplete chains are at the first and last instruction.
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
    }
}
