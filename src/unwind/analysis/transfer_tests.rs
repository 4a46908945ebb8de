//! States after short instruction sequences, which an assembler made.

use iced_x86::{Decoder, DecoderOptions};

use super::super::finding::rule;
use super::super::state::{RAX, RBX, RDX};
use super::*;
use crate::unwind::rule::{Base, UnwindRule};

const START: u64 = 0x1000;

/// Returns the state after all instructions of some code, at whose start a function starts.
fn after(code: &[u8]) -> State {
    let mut transfer = Transfer::default();
    let mut state = State::entry();
    for instruction in &mut Decoder::with_ip(64, code, START, DecoderOptions::NONE) {
        assert!(!instruction.is_invalid(), "{code:x?}");
        transfer.apply(&instruction, &mut state);
    }
    state
}

fn sp(code: &[u8]) -> Value {
    after(code).get(RSP)
}

#[test]
fn pushes_and_pops_keep_values() {
    // push rbx; push rbp; sub rsp, 24
    let framed = after(&[0x53, 0x55, 0x48, 0x83, 0xec, 0x18]);
    assert_eq!(framed.get(RSP), Value::Cfa(-48));
    assert_eq!(framed.saved(RBX), Some(-16));
    assert_eq!(framed.saved(RBP), Some(-24));
    assert!(!framed.can_return());
    // add rsp, 24; pop rbp; pop rbx
    let epilogue = [0x48, 0x83, 0xc4, 0x18, 0x5d, 0x5b];
    let all = [&[0x53, 0x55, 0x48, 0x83, 0xec, 0x18][..], &epilogue].concat();
    assert!(after(&all).can_return());
    // push rbx; push rbp; pop rbx; pop rbp
    let swapped = after(&[0x53, 0x55, 0x5b, 0x5d]);
    assert_eq!(swapped.get(RBX), Value::Entry(RBP));
    assert!(!swapped.can_return());
    // push ax; push 7; pushfq; popfq
    assert_eq!(sp(&[0x66, 0x50]), Value::Cfa(-10));
    assert_eq!(sp(&[0x6a, 7]), Value::Cfa(-16));
    assert_eq!(sp(&[0x9c]), Value::Cfa(-16));
    assert_eq!(sp(&[0x9c, 0x9d]), Value::Cfa(-8));
}

#[test]
fn frame_pointers_restore_the_stack_pointer() {
    // push rbp; mov rbp, rsp; sub rsp, rax
    let variable = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x29, 0xc4];
    assert_eq!(sp(&variable), Value::Aligned(0));
    assert_eq!(
        rule(&after(&variable)),
        UnwindRule::new(Base::Rbp, 16, Some(-16))
    );
    // leave
    assert!(after(&[&variable[..], &[0xc9]].concat()).can_return());
    // push rbp; mov rbp, rsp; push rbx; sub rsp, rax; mov rdi, rsp
    let alloca = [
        0x55, 0x48, 0x89, 0xe5, 0x53, 0x48, 0x29, 0xc4, 0x48, 0x89, 0xe7,
    ];
    // lea rsp, [rbp-8]; pop rbx; pop rbp
    let end = [0x48, 0x8d, 0x65, 0xf8, 0x5b, 0x5d];
    assert!(after(&[&alloca[..], &end].concat()).can_return());
    // lea rsp, [rbp-16]; pop rbx; pop rbp
    let wrong = [0x48, 0x8d, 0x65, 0xf0, 0x5b, 0x5d];
    assert!(!after(&[&alloca[..], &wrong].concat()).can_return());
}

#[test]
fn enter_makes_a_frame() {
    // enter 32, 0
    let state = after(&[0xc8, 0x20, 0, 0]);
    assert_eq!(state.get(RSP), Value::Cfa(-48));
    assert_eq!(state.get(RBP), Value::Cfa(-16));
    assert!(after(&[0xc8, 0x20, 0, 0, 0xc9]).can_return());
    // enter 32, 1 copies frame pointers.
    let nested = after(&[0xc8, 0x20, 0, 1]);
    assert_eq!(nested.get(RBP), Value::Unknown);
    assert_eq!(nested.get(RSP), Value::Cfa(-56));
}

#[test]
fn aligned_frames_lead_to_the_caller() {
    // push rbp; mov rbp, rsp; and rsp, -64; push rbx
    let state = after(&[0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xe4, 0xc0, 0x53]);
    assert_eq!(state.get(RSP), Value::Aligned(-8));
    assert_eq!(rule(&state), UnwindRule::new(Base::Rbp, 16, Some(-16)));
    // lea r10, [rsp+8]; and rsp, -64; push [r10-8]; push rbp; mov rbp, rsp; push r10
    let linked = after(&[
        0x4c, 0x8d, 0x54, 0x24, 8, 0x48, 0x83, 0xe4, 0xc0, 0x41, 0xff, 0x72, 0xf8, 0x55, 0x48,
        0x89, 0xe5, 0x41, 0x52,
    ]);
    let expected = UnwindRule::linked(Base::Rbp, -8, 0, Some(0));
    assert!(expected.is_some());
    assert_eq!(rule(&linked), expected);
}

#[test]
fn exchanges_move_values() {
    // xchg rbx, r12
    let state = after(&[0x4c, 0x87, 0xe3]);
    assert_eq!(
        [state.get(RBX), state.get(12)],
        [Value::Entry(12), Value::Entry(RBX)]
    );
    // xchg rsp, rax
    assert_eq!(sp(&[0x48, 0x94]), Value::Aligned(0));
    // xadd rax, rsp
    assert_eq!(sp(&[0x48, 0x0f, 0xc1, 0xe0]), Value::Aligned(0));
    // push rbx; xchg [rsp], rax
    let state = after(&[0x53, 0x48, 0x87, 4, 0x24]);
    assert_eq!([state.saved(RBX), state.saved(RAX)], [None, None]);
}

#[test]
fn writes_kill_what_they_overlap() {
    for (code, is_saved) in [
        // push rbx; mov [rsp+4], eax
        (&[0x53, 0x89, 0x44, 0x24, 4][..], false),
        // push rbx; movups [rsp-8], xmm0
        (&[0x53, 0x0f, 0x11, 0x44, 0x24, 0xf8], false),
        // push rbx; push rax; pop [rsp]
        (&[0x53, 0x50, 0x8f, 4, 0x24], false),
        // push rbx; mov [rsp-8], rbp
        (&[0x53, 0x48, 0x89, 0x6c, 0x24, 0xf8], true),
        // Compilers do not overwrite saved registers: push rbx; mov [rsp+rax*8], rcx
        (&[0x53, 0x48, 0x89, 0x0c, 0xc4], true),
    ] {
        assert_eq!(after(code).saved(RBX).is_some(), is_saved, "{code:x?}");
    }
    for code in [
        &[0x0f, 0xa2][..],         // cpuid
        &[0x0f, 0xb6, 0xd8],       // movzx ebx, al
        &[0x48, 0x0f, 0x45, 0xd8], // cmovne rbx, rax
        &[0x48, 0x63, 0x1c, 0x24], // movsxd rbx, [rsp]
        &[0x89, 0xeb],             // mov ebx, ebp
        &[0xb3, 1],                // mov bl, 1
    ] {
        assert_eq!(after(code).get(RBX), Value::Unknown, "{code:x?}");
    }
    // xor ebp, ebp
    assert_eq!(after(&[0x31, 0xed]).get(RBP), Value::Constant(0));
}

#[test]
fn calls_clobber_registers_and_what_is_below_the_stack_pointer() {
    // push rbx; push r12; mov [rsp-8], rbp; xor eax, eax; call far
    let code = [
        0x53, 0x41, 0x54, 0x48, 0x89, 0x6c, 0x24, 0xf8, 0x31, 0xc0, 0xe8, 0, 1, 0, 0,
    ];
    let (before, state) = (after(&code[..10]), after(&code));
    assert!(before.load(Value::Cfa(-32)) == Value::Entry(RBP));
    assert_eq!(before.get(RAX), Value::Constant(0));
    assert_eq!(state.load(Value::Cfa(-32)), Value::Unknown);
    assert_eq!(state.get(RAX), Value::Unknown);
    assert_eq!(state.saved(RBX), Some(-16));
    assert_eq!(state.get(RSP), Value::Cfa(-24));
    // call of the next instruction
    assert_eq!(sp(&[0xe8, 0, 0, 0, 0]), Value::Cfa(-16));
    // syscall
    assert_eq!(sp(&[0x0f, 5]), Value::Cfa(-8));
    assert_eq!(after(&[0x0f, 5]).get(RBX), Value::Entry(RBX));
}

#[test]
fn tables_of_jumps_are_found() {
    // lea rdx, [rip+256]; movsxd rax, [rdx+rax*4]; add rax, rdx
    let code = [
        0x48, 0x8d, 0x15, 0, 1, 0, 0, 0x48, 0x63, 4, 0x82, 0x48, 1, 0xd0,
    ];
    let table = START + 7 + 256;
    let state = after(&code);
    assert_eq!(state.get(RDX), Value::Constant(table));
    assert_eq!(state.get(RAX), Value::Sum(table, table));
    // mov rax, [rax*8+0x2000]
    let state = after(&[0x48, 0x8b, 4, 0xc5, 0, 0x20, 0, 0]);
    assert_eq!(state.get(RAX), Value::Target(0x2000));
    // cmp eax, 6
    assert_eq!(after(&[0x83, 0xf8, 6]).compared, Some(6));
    // mov rax, fs:[8]
    let thread = after(&[0x64, 0x48, 0x8b, 4, 0x25, 8, 0, 0, 0]);
    assert_eq!(thread.get(RAX), Value::Unknown);
}
