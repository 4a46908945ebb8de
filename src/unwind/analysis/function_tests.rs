//! Analyses of short functions, which an assembler made.

use super::super::module::module_of;
use super::*;
use crate::unwind::rule::{Base, UnwindRule};

const START: u64 = 0x1000;

/// Analyzes a function that starts at the first byte. No other is known.
fn analyze(code: &[u8]) -> Analyzed {
    Function::analyze(&module_of(START, code), START)
}

fn at(analyzed: &Analyzed, offset: u64) -> Option<Finding> {
    let address = START + offset;
    let mut rows = analyzed.rows.iter();
    let row = rows.find(|row| (row.start..row.end).contains(&address));
    row.map(|row| row.finding)
}

/// Returns the distances from the stack pointer to the CFA by offset in the code.
fn heights<const COUNT: usize>(analyzed: &Analyzed, offsets: [u64; COUNT]) -> [i32; COUNT] {
    offsets.map(|offset| match at(analyzed, offset) {
        Some(Finding::Caller(rule, _)) if rule.base == Base::Rsp => rule.cfa,
        _ => 0,
    })
}

#[test]
fn all_paths_have_the_same_height() {
    // push rbx; test edi, edi; je 10; call far; 10: pop rbx; ret
    let code = [0x53, 0x85, 0xff, 0x74, 5, 0xe8, 0xfb, 0, 0, 0, 0x5b, 0xc3];
    let analyzed = analyze(&code);
    assert!(analyzed.checked);
    assert_eq!(analyzed.exits, 1);
    assert_eq!(
        heights(&analyzed, [0, 1, 5, 9, 10, 11]),
        [8, 16, 16, 16, 16, 8]
    );
}

#[test]
fn a_return_without_the_return_address_makes_all_doubtful() {
    // push rbx; test edi, edi; je 6; ret; 6: pop rbx; ret
    let analyzed = analyze(&[0x53, 0x85, 0xff, 0x74, 1, 0xc3, 0x5b, 0xc3]);
    assert!(!analyzed.checked);
    let expected = Finding::Caller(UnwindRule::RETURN, Certainty::Likely);
    assert_eq!(at(&analyzed, 0), Some(expected));
}

#[test]
fn a_call_does_not_return_if_other_paths_contradict_it() {
    // test edi, edi; je 10; push rbx; call far; 10: ret
    let code = [0x85, 0xff, 0x74, 6, 0x53, 0xe8, 0xfb, 0, 0, 0, 0xc3];
    let analyzed = analyze(&code);
    assert!(analyzed.checked);
    assert_eq!(heights(&analyzed, [4, 5, 10]), [8, 16, 8]);
    // test edi, edi; je 16; js 14; push rbx; call far; 14: inc eax; 16: ret
    let code = [
        0x85, 0xff, 0x74, 0x0c, 0x78, 8, 0x90, 0x90, 0x53, 0xe8, 0xfb, 0, 0, 0, 0xff, 0xc0, 0xc3,
    ];
    let analyzed = analyze(&code);
    assert!(analyzed.checked);
    assert_eq!(heights(&analyzed, [9, 14, 16]), [16, 8, 8]);
    // No other path leads to what follows the call:
    // test edi, edi; je 12; push rbx; call far; inc eax; 12: ret
    let code = [
        0x85, 0xff, 0x74, 8, 0x53, 0xe8, 0xfb, 0, 0, 0, 0xff, 0xc0, 0xc3,
    ];
    assert!(!analyze(&code).checked);
    // The same without a call: test edi, edi; je 7; push rbx; inc eax; 7: ret
    let analyzed = analyze(&[0x85, 0xff, 0x74, 3, 0x53, 0xff, 0xc0, 0xc3]);
    assert!(!analyzed.checked);
}

#[test]
fn padding_after_a_call_ends_the_function_unless_it_aligns_a_loop() {
    // push rbx; test edi, edi; je 32; call far; (padding)
    let before = [0x53, 0x85, 0xff, 0x74, 0x1b, 0xe8, 0xfb, 0, 0, 0];
    let padding = [0x66, 0x0f, 0x1f, 0x44, 0, 0];
    // 16: ret; (padding) 32: pop rbx; ret
    let after = [&[0xc3][..], &[0x90; 15], &[0x5b, 0xc3]].concat();
    let code = [&before[..], &padding, &after].concat();
    let analyzed = analyze(&code);
    assert!(analyzed.checked);
    assert_eq!(heights(&analyzed, [5, 16, 32, 33]), [16, 0, 16, 8]);
    // 16: dec eax; jne 16; pop rbx; ret
    let after = [0xff, 0xc8, 0x75, 0xfc, 0x5b, 0xc3];
    let before = [0x53, 0x85, 0xff, 0x90, 0x90, 0xe8, 0xfb, 0, 0, 0];
    let analyzed = analyze(&[&before[..], &padding, &after].concat());
    assert!(analyzed.checked);
    assert_eq!(heights(&analyzed, [16, 20, 21]), [16, 16, 8]);
}

#[test]
fn jump_tables_are_followed() {
    // push rbx; cmp edi, 2; ja 28; lea rdx, [30]; movsxd rax, [rdx+rdi*4]; add rax, rdx; jmp rax;
    // 22: inc eax; jmp 28; 26: push rbp; pop rbp; 28: pop rbx; ret; 30: offsets of 22, 26, 28
    let mut code = [
        0x53, 0x83, 0xff, 2, 0x77, 0x16, 0x48, 0x8d, 0x15, 0x11, 0, 0, 0, 0x48, 0x63, 4, 0xba,
        0x48, 1, 0xd0, 0xff, 0xe0, 0xff, 0xc0, 0xeb, 2, 0x55, 0x5d, 0x5b, 0xc3, 0xf8, 0xff, 0xff,
        0xff, 0xfc, 0xff, 0xff, 0xff, 0xfe, 0xff, 0xff, 0xff,
    ];
    let analyzed = analyze(&code);
    assert!(analyzed.checked);
    assert_eq!(
        heights(&analyzed, [20, 22, 26, 27, 28]),
        [16, 16, 16, 24, 16]
    );
    let saved = UnwindRule::new(Base::Rsp, 24, Some(-24)).unwrap();
    assert_eq!(
        at(&analyzed, 27),
        Some(Finding::Caller(saved, Certainty::Checked))
    );
    // An entry that leads into an instruction, and all that follow, are no entries.
    code[34] = 0xf9;
    assert_eq!(heights(&analyze(&code), [22, 26, 28]), [16, 0, 16]);
}

#[test]
fn jumps_to_unknown_targets_may_lead_to_all_code_that_follows() {
    // push rbx; jmp [rsi]; push rbp; pop rbp; pop rbx; ret
    let analyzed = analyze(&[0x53, 0xff, 0x26, 0x55, 0x5d, 0x5b, 0xc3]);
    assert_eq!(
        heights(&analyzed, [0, 1, 3, 4, 5, 6]),
        [8, 16, 16, 24, 16, 8]
    );
    let certainties = [1, 3].map(|offset| match at(&analyzed, offset) {
        Some(Finding::Caller(_, certainty)) => certainty,
        finding => panic!("{finding:?}"),
    });
    assert_eq!(certainties, [Certainty::Checked, Certainty::Likely]);
}

#[test]
fn frames_of_variable_size_are_found_by_the_frame_pointer() {
    let frame = UnwindRule::new(Base::Rbp, 16, Some(-16)).unwrap();
    let frame = Some(Finding::Caller(frame, Certainty::Checked));
    // push rbp; mov rbp, rsp; push rbx; sub rsp, rax; call far; lea rsp, [rbp-8]; pop rbx; pop rbp;
    // ret
    let alloca = analyze(&[
        0x55, 0x48, 0x89, 0xe5, 0x53, 0x48, 0x29, 0xc4, 0xe8, 0xfb, 0, 0, 0, 0x48, 0x8d, 0x65,
        0xf8, 0x5b, 0x5d, 0xc3,
    ]);
    assert_eq!([8, 13].map(|offset| at(&alloca, offset)), [frame; 2]);
    assert_eq!(heights(&alloca, [4, 5, 17, 18, 19]), [16, 24, 24, 16, 8]);
    // push rbp; mov rbp, rsp; push rbx; and rsp, -32; sub rsp, 64; call far; mov rbx, [rbp-8];
    // leave; ret
    let aligned = analyze(&[
        0x55, 0x48, 0x89, 0xe5, 0x53, 0x48, 0x83, 0xe4, 0xe0, 0x48, 0x83, 0xec, 0x40, 0xe8, 0xfb,
        0, 0, 0, 0x48, 0x8b, 0x5d, 0xf8, 0xc9, 0xc3,
    ]);
    assert_eq!([9, 13, 22].map(|offset| at(&aligned, offset)), [frame; 3]);
    assert_eq!(heights(&aligned, [5, 23]), [24, 8]);
}

#[test]
fn a_function_that_clears_rbp_is_a_root() {
    // xor ebp, ebp; call far; hlt
    let analyzed = analyze(&[0x31, 0xed, 0xe8, 0xfb, 0, 0, 0, 0xf4]);
    assert_eq!(at(&analyzed, 2), Some(Finding::Root));
    assert!(matches!(at(&analyzed, 0), Some(Finding::Caller(..))));
    // push rbp; xor ebp, ebp; call far; pop rbp; ret
    let analyzed = analyze(&[0x55, 0x31, 0xed, 0xe8, 0xfb, 0, 0, 0, 0x5d, 0xc3]);
    assert_eq!(heights(&analyzed, [3]), [16]);
}

#[test]
fn work_is_limited() {
    let many = vec![0x50; MAX_WORK + 1];
    let analyzed = analyze(&many);
    assert!(!analyzed.checked);
    assert!(analyzed.work <= MAX_WORK + 1);
}
