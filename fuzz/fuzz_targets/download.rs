//! The identity that an untrusted file or trace declares.
//!
//! All paths of its debug file must stay inside their directories.
#![no_main]

use std::path::{Component, Path};

use libfuzzer_sys::fuzz_target;
use perfcollect::download::{Module, Sources};
use perfcollect_symbols::elf::ElfFile;

fuzz_target!(|data: &[u8]| {
    let of_elf = ElfFile::parse(data).ok().and_then(|elf| {
        let path = String::from_utf8_lossy(data);
        Module::from_elf(Path::new(&*path), &elf)
    });
    let of_trace = serde_json::from_slice::<Module>(data).ok();
    for module in of_elf.into_iter().chain(of_trace) {
        let id = module.build_id.to_string();
        assert!(id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let name = module.debug_name();
        assert!(matches!(
            Path::new(&name).components().collect::<Vec<_>>()[..],
            [Component::Normal(_)]
        ));
        let paths = module.debug_file_paths();
        assert!(paths.iter().all(|path| path.is_absolute()));
        for path in Sources::new(&[]).cache_paths(&module) {
            assert!(path.components().all(|part| part != Component::ParentDir));
            assert!(path.to_string_lossy().contains(&id));
        }
    }
});
