//! Records of the kernel: of perf_event in the layout of a live capture (24 bytes of registers and a stack copy), and
//! messages about sockets.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfcollect::machine::for_each_tcp_socket;
use perfcollect::perf::{Layout, Record};

/// IP, TID, TIME, CALLCHAIN, CPU, PERIOD, REGS_USER, STACK_USER.
const SAMPLE_TYPE: u64 = 0x31a7;
/// bp, sp, ip.
const USER_REGS: u64 = 0x1c0;

fuzz_target!(|data: &[u8]| {
    let _ = for_each_tcp_socket(data, |_| {});
    let Ok(layout) = Layout::new(SAMPLE_TYPE, USER_REGS) else {
        return;
    };
    let _ = layout.time_of(data);
    if let Ok(Record::Sample(sample)) = layout.parse(data) {
        assert!(sample.stack.len() <= data.len());
        assert!(sample.kernel_chain().count() * 8 <= data.len());
    }
});
