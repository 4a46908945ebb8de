//! The metadata of an assembly, and all signatures in it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfcollect_symbols::dotnet::metadata::Metadata;
use perfcollect_symbols::dotnet::signature::{InModule, parameters, type_name};

fuzz_target!(|data: &[u8]| {
    let Ok(metadata) = Metadata::open(data.to_vec()) else {
        return;
    };
    let (of_type, of_method) = (["int".to_owned()], ["string".to_owned()]);
    let in_module = InModule {
        metadata: &metadata,
        of_type: &of_type,
        of_method: &of_method,
    };
    let _ = (
        metadata.assembly(),
        metadata.mvid(),
        metadata.assembly_ref(1),
    );
    for row in 1..=metadata.methods().min(64) {
        if let Ok(owner) = metadata.owner_of(row) {
            let _ = metadata.type_def_name(owner);
        }
        if let Ok(method) = metadata.method(row) {
            let _ = parameters(method.signature, &in_module);
        }
    }
    let _ = (parameters(data, &in_module), type_name(data, &in_module));
});
