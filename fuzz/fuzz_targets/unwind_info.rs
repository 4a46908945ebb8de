//! Untrusted unwind information and code of a .NET function.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfcollect::unwind::{FunctionBytes, function_rule};

fuzz_target!(|data: &[u8]| {
    let Some((&[info_bytes, offset, interrupted], rest)) = data.split_first_chunk() else {
        return;
    };
    let (unwind_info, code) = rest.split_at(rest.len().min(info_bytes.into()));
    let function = FunctionBytes { unwind_info, code };
    let _ = function_rule(function, offset.into(), interrupted & 1 == 0);
});
