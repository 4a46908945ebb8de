//! Tests of [`super::rule`] on short instruction sequences.

use proptest::prelude::*;

use super::*;
use crate::dotnet::Image;
use crate::machine::{Backing, Maps};
use crate::unwind::rule::Base;

const START: u64 = 0x1000;

/// Returns the rule at an offset in code, which is the only one of the process.
fn rule_at(bytes: &[u8], offset: u64) -> Option<UnwindRule> {
    let maps = Maps::of_pages(&[(START, Backing::Jit)]);
    let image = Image {
        start: START,
        bytes,
    };
    rule(&mut Code::new(&image, &maps), START + offset)
}

fn sp(cfa: i64, saved: Option<i64>) -> Option<UnwindRule> {
    UnwindRule::new(Base::Rsp, cfa, saved)
}

#[test]
fn follows_a_compiled_method() {
    // mov [rsp-81920], eax; push rbp; sub rsp, 0x20; test esi, esi; je slow; mov ebp, esi;
    // call;
    // epilogue: add rsp, 0x20; pop rbp; cmp rsp, [r15+0x340]; ja poll; ret
    // poll: jmp far; slow: call; (does not return) hlt
    let code = [
        &[0x89, 0x84, 0x24, 0, 0xc0, 0xfe, 0xff, 0x55][..],
        &[0x48, 0x83, 0xec, 0x20, 0x85, 0xf6, 0x74, 0x1d],
        &[0x8b, 0xee, 0xe8, 0, 1, 0, 0],
        &[0x48, 0x83, 0xc4, 0x20, 0x5d],
        &[0x49, 0x3b, 0xa7, 0x40, 3, 0, 0, 0x77, 1, 0xc3],
        &[0xe9, 0, 0, 0, 0x10],
        &[0xe8, 0, 1, 0, 0, 0xf4],
    ]
    .concat();
    for (offset, expected) in [
        (0, sp(8, None)),
        (7, sp(8, None)),
        (8, sp(16, Some(-16))),
        (12, sp(48, Some(-16))),
        // The return address of the call, after which rbp has another value.
        (23, sp(48, Some(-16))),
        (27, sp(16, Some(-16))),
        (28, sp(8, None)),
        (37, sp(8, None)),
        (38, sp(8, None)),
        (43, None),
    ] {
        assert_eq!(rule_at(&code, offset), expected, "{offset}");
    }
}

#[test]
fn follows_a_frame_pointer() {
    // push rbp; mov rbp, rsp; and rsp, -32; call; leave; ret
    let code = [
        0x55, 0x48, 0x8b, 0xec, 0x48, 0x83, 0xe4, 0xe0, 0xe8, 0, 1, 0, 0, 0xc9, 0xc3,
    ];
    let framed = UnwindRule::new(Base::Rbp, 16, Some(-16));
    assert_eq!(rule_at(&code, 0), sp(8, None));
    assert_eq!(rule_at(&code, 1), sp(16, Some(-16)));
    assert_eq!(rule_at(&code, 4), framed);
    assert_eq!(rule_at(&code, 13), framed);
    assert_eq!(rule_at(&code, 14), sp(8, None));
    // lea rsp, [rbp-8]; pop rbx; pop rbp; ret
    let code = [0x48, 0x8d, 0x65, 0xf8, 0x5b, 0x5d, 0xc3];
    assert_eq!(rule_at(&code, 0), framed);
}

#[test]
fn follows_an_epilogue_to_another_function() {
    // add rsp, 0x10; pop rbp; jmp far
    let code = [0x48, 0x83, 0xc4, 0x10, 0x5d, 0xe9, 0, 0, 0, 0x10];
    assert_eq!(rule_at(&code, 0), sp(32, Some(-16)));
    // jmp [rbx+64]
    assert_eq!(rule_at(&[0xff, 0x63, 0x40], 0), sp(8, None));
    // pop rax; and rsp, -16; push rax; jmp r11
    let adapter = [0x58, 0x48, 0x83, 0xe4, 0xf0, 0x50, 0x41, 0xff, 0xe3];
    assert_eq!(rule_at(&adapter, 0), sp(8, None));
    // push rax; jmp [rbx+64]
    assert_eq!(rule_at(&[0x50, 0xff, 0x63, 0x40], 0), None);
}

#[test]
fn follows_exceptions_to_the_caller() {
    // mov rbp, [rsp+0x10]; add rsp, 0x18; pop rdx; mov r8, rax; jmp r8
    let blob = [
        0x48, 0x8b, 0x6c, 0x24, 0x10, 0x48, 0x83, 0xc4, 0x18, 0x5a, 0x4c, 0x8b, 0xc0, 0x41, 0xff,
        0xe0,
    ];
    assert_eq!(rule_at(&blob, 0), sp(32, Some(-16)));
    // add rsp, 8; mov rbx, rax; pop rdx; jmp rbx
    let stub = [0x48, 0x83, 0xc4, 8, 0x48, 0x8b, 0xd8, 0x5a, 0xff, 0xe3];
    assert_eq!(rule_at(&stub, 0), sp(16, None));
    // The return address is not next to rbp: mov rbp, [rsp]; add rsp, 0x18; pop rdx; jmp rbx
    let other = [
        0x48, 0x8b, 0x2c, 0x24, 0x48, 0x83, 0xc4, 0x18, 0x5a, 0xff, 0xe3,
    ];
    assert_eq!(rule_at(&other, 0), None);
}

#[test]
fn recognizes_the_interpreter_of_hotspot() {
    let interpreted = Some(UnwindRule::framed(-8));
    // movzx ebx, byte [r13+1]; mov r10, table; jmp [r10+rbx*8]
    let dispatch = [
        &[0x41, 0x0f, 0xb6, 0x5d, 1][..],
        &[0x49, 0xba, 0, 0, 0, 0, 0, 0x7f, 0, 0],
        &[0x41, 0xff, 0x24, 0xda],
    ]
    .concat();
    assert_eq!(rule_at(&dispatch, 0), interpreted);
    assert_eq!(rule_at(&dispatch, 15), interpreted);
    // mov rbx, [rbp-8]; leave; pop rsi; mov rsp, rbx; jmp rsi
    let end = [
        0x48, 0x8b, 0x5d, 0xf8, 0xc9, 0x5e, 0x48, 0x8b, 0xe3, 0xff, 0xe6,
    ];
    assert_eq!(rule_at(&end, 0), interpreted);
    // pop rax; push 0; push 0; push rax; push rbp; mov rbp, rsp; push r13
    let entry = [
        0x58, 0x6a, 0, 0x6a, 0, 0x50, 0x55, 0x48, 0x8b, 0xec, 0x41, 0x55,
    ];
    let entry = [&entry[..], &dispatch].concat();
    let rules = [0, 6, 7, 10].map(|offset| rule_at(&entry, offset));
    assert_eq!(
        rules,
        [sp(8, None), sp(8, None), sp(16, Some(-16)), interpreted]
    );
    // A switch of a compiled method: lea r10, [rip+n]; jmp [r10+rbx*8]
    let switch = [0x4c, 0x8d, 0x15, 0, 0, 0, 0, 0x41, 0xff, 0x24, 0xda];
    assert_eq!(rule_at(&switch, 0), None);
}

#[test]
fn paths_must_agree() {
    // je +1; ret; pop rbp; ret
    assert_eq!(rule_at(&[0x74, 1, 0xc3, 0x5d, 0xc3], 0), None);
    // jmp itself
    assert_eq!(rule_at(&[0xeb, 0xfe], 0), None);
    assert_eq!(rule_at(&[0x90; 4096], 0), None);
    assert_eq!(rule_at(&[], 0), None);
}

proptest! {
    #[test]
    fn accepts_arbitrary_bytes_without_panic(
        code in proptest::collection::vec(any::<u8>(), 0..200), offset in 0..200_u64,
    ) {
        let _ = rule_at(&code, offset);
    }

    #[test]
    fn accepts_arbitrary_stack_instructions(
        choices in proptest::collection::vec((0..12_usize, any::<[u8; 4]>()), 0..60),
    ) {
        const STARTS: [&[u8]; 12] = [
            &[0x48, 0x81, 0xec], &[0x48, 0x81, 0xc4], &[0x55], &[0x5d], &[0xc9], &[0xc3],
            &[0x48, 0x8d, 0xa5], &[0x48, 0x8b, 0xac, 0x24], &[0x48, 0x89, 0xac, 0x24],
            &[0x0f, 0x84], &[0xe9], &[0x48, 0x8b, 0xe5],
        ];
        let code: Vec<u8> = choices
            .iter()
            .flat_map(|(start, rest)| [STARTS[*start], &rest[..]].concat())
            .collect();
        let _ = rule_at(&code, 0);
    }
}
