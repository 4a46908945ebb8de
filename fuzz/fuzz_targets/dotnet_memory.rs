//! The runtime's tables in a process's memory: contract, range sections, nibble map, method header.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfcollect::dotnet::{Contract, Image, Runtime};

fuzz_target!(|data: &[u8]| {
    let _ = Contract::parse(data);
    let Some((top, bytes)) = data.split_first_chunk() else {
        return;
    };
    let memory = Image { start: 0, bytes };
    let Some(contract) = Contract::of(&memory, None) else {
        return;
    };
    let top = u64::from(u16::from_le_bytes(*top));
    let Some(mut runtime) = Runtime::new(memory, contract, top) else {
        return;
    };
    for address in (0..bytes.len() as u64).step_by(61) {
        let _ = runtime.code_at(address);
    }
});
