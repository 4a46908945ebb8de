use super::*;
use proptest::prelude::*;

#[test]
fn decodes_instructions_of_prologues_and_epilogues() {
    for (code, effect) in [
        (&[0x55][..], Effect::Push(Some(RBP))),
        (&[0x41, 0x57], Effect::Push(Some(15))),
        (&[0x6a, 0x10], Effect::Push(None)),
        (&[0xff, 0x35, 0, 0, 0, 0], Effect::Push(None)),
        (&[0x5d], Effect::Pop(RBP)),
        (&[0x41, 0x5e], Effect::Pop(14)),
        (&[0x48, 0x83, 0xec, 0x28], Effect::MoveStack(-0x28)),
        (&[0x48, 0x83, 0xc4, 0x28], Effect::MoveStack(0x28)),
        (&[0x48, 0x81, 0xec, 0, 1, 0, 0], Effect::MoveStack(-0x100)),
        (&[0x48, 0x8b, 0xec], Effect::FrameFromStack(0)),
        (&[0x48, 0x89, 0xe5], Effect::FrameFromStack(0)),
        (
            &[0x48, 0x8d, 0x6c, 0x24, 0x30],
            Effect::FrameFromStack(0x30),
        ),
        (
            &[0x48, 0x8d, 0xac, 0x24, 0, 1, 0, 0],
            Effect::FrameFromStack(0x100),
        ),
        (&[0x48, 0x8d, 0x65, 0xf0], Effect::StackFromFrame(-0x10)),
        (
            &[0x48, 0x8d, 0xa5, 0, 0xff, 0xff, 0xff],
            Effect::StackFromFrame(-0x100),
        ),
        (
            &[0x4c, 0x8d, 0x9c, 0x24, 0, 0xf0, 0xff, 0xff],
            Effect::ProbeFromStack(-0x1000),
        ),
        (&[0x49, 0x8b, 0xe3], Effect::StackFromProbe),
        (&[0xff, 0x25, 0, 0, 0, 0], Effect::TailJump),
        (&[0x48, 0xff, 0xe0], Effect::TailJump),
        (&[0x48, 0xff, 0x60, 0x18], Effect::TailJump),
        (&[0xff, 0xe0], Effect::SwitchJump),
        (&[0x41, 0xff, 0xe2], Effect::SwitchJump),
        (&[0xeb, 0xfe], Effect::Jump(-2)),
        (&[0xe9, 1, 0, 0, 0], Effect::Jump(1)),
        (&[0x74, 6], Effect::Branch),
        (&[0xf3, 0xc3], Effect::Return),
        (&[0xc9], Effect::Clobber),
        (&[0x8b, 0xec], Effect::Clobber),
        (&[0x48, 0x83, 0xe4, 0xf0], Effect::Clobber),
    ] {
        let bytes = code.len();
        let padded = [code, &[0x90; 4]].concat();
        assert_eq!(
            Instruction::decode(&padded),
            Some(Instruction { bytes, effect }),
            "{code:x?}"
        );
    }
}

#[test]
fn decodes_length_of_other_instructions() {
    for code in [
        &[0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8][..], // mov rax, imm64
        &[0xb8, 1, 2, 3, 4],                       // mov eax, imm32
        &[0x48, 0x39, 0x07],                       // cmp [rdi], rax
        &[0x66, 0xff, 0x08],                       // dec word [rax]
        &[0xc5, 0xf8, 0x77],                       // vzeroupper
        &[0xc5, 0xf8, 0x57, 0xc0],                 // vxorps xmm0
        &[0xc5, 0xfa, 0x7f, 0x44, 0x24, 0x20],     // vmovdqu [rsp+20], xmm0
        &[0xc4, 0xe3, 0x7d, 0x39, 0xc1, 1],        // vextracti128
        &[0x62, 0xf1, 0x7c, 0x48, 0x11, 0x44, 0x24, 1], // vmovups [rsp+40], zmm0
        &[0x48, 0xc7, 0x45, 0xf8, 1, 2, 3, 4],     // mov qword [rbp-8], imm
        &[0x66, 0xc7, 0x45, 0xf8, 1, 2],           // mov word [rbp-8], imm
        &[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],        // nop
        &[0x4c, 0x8b, 0x15, 1, 2, 3, 4],           // mov r10, [rip+..]
        &[0xf7, 0x05, 1, 2, 3, 4, 5, 6, 7, 8],     // test dword [rip+..], imm
        &[0x48, 0xf7, 0xd8],                       // neg rax
        &[0x48, 0x0f, 0xaf, 0xc7],                 // imul rax, rdi
        &[0x0f, 0x3a, 0x0f, 0xc1, 8],              // palignr
        &[0x48, 0x8d, 0x04, 0x85, 1, 2, 3, 4],     // lea rax, [rax*4+..]
    ] {
        let bytes = code.len();
        let padded = [code, &[0x90; 4]].concat();
        let effect = Effect::None;
        assert_eq!(
            Instruction::decode(&padded),
            Some(Instruction { bytes, effect }),
            "{code:x?}"
        );
        assert_eq!(
            Instruction::decode(&code[..bytes - 1]),
            None,
            "{code:x?} truncated"
        );
    }
}

proptest! {
    #[test]
    fn decodes_arbitrary_bytes_within_bounds(code in proptest::collection::vec(any::<u8>(), 0..64)) {
        let decoded: usize = decode(&code).map(|instruction| instruction.bytes).sum();
        prop_assert!(decoded <= code.len());
        if let Some(instruction) = Instruction::decode(&code) {
            prop_assert!((1..=MAX_BYTES).contains(&instruction.bytes));
        }
    }
}
