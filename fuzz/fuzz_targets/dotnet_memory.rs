//! The runtime's tables in the memory of a process: contract, range sections, nibble map, method
//! header, names.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfcollect::dotnet::{Contract, Image, MetadataCache, MethodKey, MethodNamer, Runtime};
use perfcollect::machine::MappedFiles;
use perfcollect::trace::{Pid, ProcessId};

fuzz_target!(|data: &[u8]| {
    let _ = Contract::parse(data, |index| Some(index.into()));
    let Some((top, bytes)) = data.split_first_chunk() else {
        return;
    };
    let memory = Image { start: 0, bytes };
    let Ok(contract) = Contract::of(&memory, None) else {
        return;
    };
    let dac_table = u64::from(u16::from_le_bytes(*top));
    let Ok(mut runtime) = Runtime::new(memory, contract, dac_table) else {
        return;
    };
    for address in (0..bytes.len() as u64).step_by(61) {
        let _ = runtime.code_at(address);
    }
    // This process does not exist, so that only the memory is read.
    let files = MappedFiles::of(Pid(-1));
    let mut names = MethodNamer::of(ProcessId(0), files, &runtime);
    let mut assemblies = MetadataCache::default();
    for method_desc in (0..bytes.len() as u64).step_by(8) {
        let key = MethodKey {
            start: method_desc,
            method_desc,
        };
        let _ = names.name(runtime.memory(), &mut assemblies, key, false);
    }
});
