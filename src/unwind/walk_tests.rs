use std::io::Write;

use super::*;
use crate::machine::{CodeFile, Content, FileTable, Maps};
use crate::perf::{Layout, Record};
use crate::trace::{Nanos, Pid, ProcessId};

const TEXT: u64 = 0x7000_0000;
const STACK: u64 = 0x7fff_0000;
/// IP, TID, TIME, CALLCHAIN, CPU, PERIOD, REGS_USER, STACK_USER.
const SAMPLE_TYPE: u64 = 0x31a7;
const USER_REGS: u64 = 0x1c0;

/// An ELF file with one executable segment of a page, which it says is at `address`.
fn elf(address: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, b"\x7fELF\x02\x01\x01");
    put(16, &[3, 0, 62, 0, 1, 0, 0, 0]); // ET_DYN, x86-64, version 1
    put(32, &64_u64.to_le_bytes()); // program headers
    put(52, &[64, 0, 56, 0, 1, 0]); // header sizes, one program header
    put(64, &[1, 0, 0, 0, 5, 0, 0, 0]); // PT_LOAD, r-x
    put(80, &address.to_le_bytes());
    put(96, &4096_u64.to_le_bytes());
    put(104, &4096_u64.to_le_bytes());
    bytes
}

fn walk(elf: &[u8], ip: u64, bp: u64, stack: &[u64]) -> (Walked, usize) {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(elf).unwrap();
    let files: FileTable = [CodeFile {
        path: b"/hostile".as_slice().into(),
        content: Content::File(file),
        pid: Pid(1),
    }]
    .into_iter()
    .collect();
    let mut maps = Maps::default();
    maps.insert(Mapping {
        start: TEXT,
        end: TEXT + 4096,
        file_offset: 0,
        backing: Backing::File(ModuleId(0)),
    });
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
    let host = SampledProcess {
        process: ProcessId(0),
        pid: Pid(1),
        time: Nanos(1),
        maps: &maps,
        files: &files,
    };
    let mut leaf_first = Vec::new();
    let walked = Unwinder::default().walk(&sample, host, &mut leaf_first);
    (walked, leaf_first.len())
}

#[test]
fn a_segment_at_the_end_of_the_address_space_is_no_harm() {
    let at_the_end = elf(u64::MAX - 0x802);
    for caller in 0x7f0..0x810 {
        let stack = [STACK + 16, TEXT + caller, 0, TEXT + caller, 0, 0];
        let (walked, frames) = walk(&at_the_end, TEXT + 0x100, STACK, &stack);
        assert!(frames > 1, "{walked:?}");
    }
}

proptest::proptest! {
    #[test]
    fn no_segment_and_no_stack_makes_the_walk_panic_or_endless(
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
