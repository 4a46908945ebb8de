use std::io::Write;

use super::*;
use crate::machine::{Backing, CodeFile, Content, FileTable, Maps};
use crate::perf::{Layout, Record};
use crate::trace::{ModuleId, Nanos, Pid, ProcessId};
use crate::unwind::test_elf::elf;

const TEXT: u64 = 0x7000_0000;
const STACK: u64 = 0x7fff_0000;
/// IP, TID, TIME, CALLCHAIN, CPU, PERIOD, REGS_USER, STACK_USER.
const SAMPLE_TYPE: u64 = 0x31a7;
const USER_REGS: u64 = 0x1c0;

/// Builds the same file with an `.eh_frame` at 2048, which covers only the function at 16..32.
fn elf_with_unwind_information() -> Vec<u8> {
    const CIE: &[u8] = b"\x14\0\0\0\0\0\0\0\x01zR\0\x01\x78\x10\x01\x1b\x0c\x07\x08\x90\x01\0\0";
    // The start address is relative to its own position, 2080.
    const FDE: &[u8] = b"\x10\0\0\0\x1c\0\0\0\xf0\xf7\xff\xff\x10\0\0\0\0\0\0\0";
    const NAMES: &[u8] = b"\0.eh_frame\0.names\0";
    let mut bytes = elf(0);
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(40, &1024_u64.to_le_bytes()); // section headers
    put(58, &[64, 0, 3, 0, 2, 0]); // their size and count, index of the section names
    let mut section = |index: usize, [name, kind]: [u8; 2], offset: u64, size: u64| {
        let at = 1024 + index * 64;
        put(at, &[name, 0, 0, 0, kind, 0, 0, 0, 2]);
        put(at + 16, &offset.to_le_bytes()); // address
        put(at + 24, &offset.to_le_bytes());
        put(at + 32, &size.to_le_bytes());
    };
    section(1, [1, 1], 2048, 48); // with the terminator
    section(2, [11, 3], 2100, NAMES.len() as u64);
    // The instructions before return addresses: call rax.
    put(0x1fe, &[0xff, 0xd0]);
    put(0x3fe, &[0xff, 0xd0]);
    put(2048, CIE);
    put(2072, FDE);
    put(2100, NAMES);
    bytes
}

fn walk(elf: &[u8], ip: u64, bp: u64, stack: &[u64]) -> (WalkOutcome, usize) {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(elf).unwrap();
    let files: FileTable = [CodeFile {
        path: b"/untrusted".as_slice().into(),
        content: Content::File(file.into()),
        root: None,
        container: None,
        pid: Pid(1),
    }]
    .into_iter()
    .collect();
    let maps = Maps::of_pages(&[(TEXT, Backing::File(ModuleId(0)))]);
    let stack_bytes = stack.len() as u64 * 8;
    let mut body = vec![ip, 1 | 1 << 32, 1, 0, 1, 0, 2, bp, STACK, ip, stack_bytes];
    body.extend(stack);
    body.push(stack_bytes);
    let mut bytes = vec![9, 0, 0, 0, 2, 0];
    bytes.extend((body.len() as u16 * 8 + 8).to_le_bytes());
    bytes.extend(body.iter().flat_map(|word| word.to_le_bytes()));
    let layout = Layout::new(SAMPLE_TYPE, USER_REGS).unwrap();
    let Ok(Record::Sample(sample)) = layout.parse(&bytes) else {
        panic!("not a sample");
    };
    let process = SampledProcess {
        process: ProcessId(0),
        pid: Pid(1),
        time: Nanos(1),
        epoch: super::super::managed::Epoch::of(Nanos(1)),
        maps: &maps,
        files: &files,
        is_preview: false,
    };
    let mut leaf_first = Vec::new();
    let walked = Unwinder::default().walk(&sample, process, &mut leaf_first);
    (walked, leaf_first.len())
}

#[test]
fn unwinds_in_segment_at_end_of_address_space() {
    let mut at_the_end = elf(u64::MAX - 0x802);
    // A call precedes each address.
    at_the_end[0x200..].fill(0xe8);
    for caller in 0x7f0..0x810 {
        let stack = [STACK + 16, TEXT + caller, 0, TEXT + caller, 0, 0];
        let (walked, frames) = walk(&at_the_end, TEXT + 0x100, STACK, &stack);
        assert!(frames > 1, "{walked:?}");
    }
}

#[test]
fn does_not_stop_at_null_in_code_without_unwind_information() {
    let assembly = elf_with_unwind_information();
    let leaf = |bp, stack: &[u64]| walk(&assembly, TEXT + 0x100, bp, stack);
    assert_eq!(leaf(0, &[TEXT + 0x200]).1, 2);
    // A local variable is null, and rbp holds a variable.
    let (walked, frames) = leaf(0x1234, &[0, 0, 0, TEXT + 0x200, 0]);
    assert_eq!((walked.cut, frames), (Some(Truncation::UnwindFailed), 1));
    assert!(matches!(
        walked.doubt,
        Some((Doubt::Guessed, CodeAddress::Elf(..)))
    ));
    // rbp is a frame pointer. The return address of the caller is null.
    let (walked, frames) = leaf(STACK + 16, &[0, 0, STACK + 32, TEXT + 0x200, 0, 0]);
    assert_eq!((walked.cut, frames), (None, 2));
    assert!(matches!(
        walked.doubt,
        Some((Doubt::Guessed, CodeAddress::Elf(..)))
    ));
}

#[test]
fn continues_with_code_interrupted_by_signal() {
    let mut library = elf_with_unwind_information();
    library[0x300..0x309].copy_from_slice(b"\x48\xc7\xc0\x0f\0\0\0\x0f\x05");
    let save = |offset: usize, value: u64, stack: &mut [u64]| stack[1 + offset / 8] = value;
    let mut stack = [0; 64];
    stack[0] = TEXT + 0x300;
    save(0xa0, STACK + 50 * 8, &mut stack);
    save(0xa8, TEXT + 0x200, &mut stack);
    save(0xb8, 0x002b_0000_0000_0033, &mut stack);
    stack[50] = TEXT + 0x400;
    // The handler, the trampoline, the interrupted code, its caller.
    let (walked, frames) = walk(&library, TEXT + 0x100, 0x1234, &stack);
    assert_eq!((walked.cut, frames), (None, 4));
    // A handler on an alternate signal stack: the stack of the interrupted code is not copied.
    save(0xa0, STACK - 800, &mut stack);
    let (walked, frames) = walk(&library, TEXT + 0x100, 0x1234, &stack);
    assert_eq!((walked.cut, frames), (Some(Truncation::UnwindFailed), 2));
}

proptest::proptest! {
    #[test]
    fn terminates_for_any_segment_and_stack(
        address in proptest::num::u64::ANY,
        ip in 0_u64..4200,
        bp in proptest::prop_oneof![0_u64..200, proptest::num::u64::ANY],
        stack in proptest::collection::vec(
            proptest::prop_oneof![0_u64..4200, proptest::num::u64::ANY], 0..40),
    ) {
        let stack: Vec<_> = stack
            .iter()
            .map(|word| if *word < 4200 { TEXT + word } else { *word })
            .collect();
        let (_, frames) = walk(&elf(address), TEXT + ip, STACK.wrapping_add(bp), &stack);
        proptest::prop_assert!(frames <= MAX_FRAMES);
    }
}
