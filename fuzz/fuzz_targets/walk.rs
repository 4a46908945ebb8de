//! An untrusted stack, in the code of an untrusted file.
#![no_main]

#[path = "support/parts.rs"]
mod parts;

use libfuzzer_sys::fuzz_target;
use perfcollect::machine::{Backing, CodeFile, Content, FileTable, Mapping, Maps};
use perfcollect::perf::{Layout, Record};
use perfcollect::trace::{ModuleId, Nanos, Pid, ProcessId};
use perfcollect::unwind::{Epoch, SampledProcess, Unwinder};

use parts::{counted, file};

/// IP, TID, TIME, CALLCHAIN, CPU, PERIOD, REGS_USER, STACK_USER.
const SAMPLE_TYPE: u64 = 0x31a7;
/// bp, sp, ip.
const USER_REGS: u64 = 0x1c0;
/// PERF_RECORD_SAMPLE in user mode.
const USER_SAMPLE: u64 = 2 << 32 | 9;
const FILE_AT: u64 = 0x1000;
const STACK_AT: u64 = 0x10_0000;
const MAX_FRAMES: usize = 1025;

/// Returns a sample of a thread that does not exist. The size of `stack` is a multiple of eight
/// bytes.
fn record(ip: u64, bp: u64, stack: &[u8]) -> Vec<u8> {
    let ids = [-1_i32; 2].map(i32::to_le_bytes).concat();
    let size = stack.len() as u64;
    let fields = |fields: &[u64]| -> Vec<u8> {
        let bytes = fields.iter().flat_map(|field| field.to_le_bytes());
        bytes.collect()
    };
    let body = [
        fields(&[ip]),
        ids,
        // Time, CPU, period, no callchain; 64-bit registers.
        fields(&[0, 0, 1, 0, 2, bp, STACK_AT, ip, size]),
        stack.to_vec(),
        fields(&[size]),
    ]
    .concat();
    let length = body.len() as u64 + 8;
    [fields(&[length << 48 | USER_SAMPLE]), body].concat()
}

fuzz_target!(|data: &[u8]| {
    let (elf, stack) = counted(data);
    let (stack, _) = stack.as_chunks::<8>();
    let stack = stack.as_flattened();
    let files = FileTable::from_iter([CodeFile {
        path: b"/opt/app/library.so".as_slice().into(),
        content: Content::File(file(elf).into()),
        root: None,
        pid: Pid(-1),
        container: None,
    }]);
    let mut maps = Maps::default();
    maps.insert(Mapping {
        start: FILE_AT,
        end: FILE_AT + elf.len() as u64,
        file_offset: 0,
        backing: Backing::File(ModuleId(0)),
        object: None,
    });
    let layout = Layout::new(SAMPLE_TYPE, USER_REGS).expect("a capture uses this layout");
    let mut unwinder = Unwinder::default();
    let mut leaf_first = Vec::new();
    for ip in (FILE_AT..FILE_AT + elf.len() as u64).step_by(61) {
        let record = record(ip, STACK_AT + ip % 256, stack);
        let Ok(Record::Sample(sample)) = layout.parse(&record) else {
            panic!("the record is not a sample");
        };
        let process = SampledProcess {
            process: ProcessId(0),
            pid: sample.pid,
            time: Nanos(0),
            epoch: Epoch::of(Nanos(0)),
            maps: &maps,
            files: &files,
            is_preview: false,
        };
        let walked = unwinder.walk(&sample, process, &mut leaf_first);
        assert!((1..=MAX_FRAMES).contains(&leaf_first.len()), "{walked:?}");
    }
});
