//! The tables of a ReadyToRun image that name its methods.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfcollect_symbols::dotnet::metadata::Metadata;
use perfcollect_symbols::dotnet::pe::PeImage;
use perfcollect_symbols::dotnet::ready_to_run::ReadyToRun;
use perfcollect_symbols::memory::Image;

fuzz_target!(|data: &[u8]| {
    let file = Image {
        start: 0,
        bytes: data,
    };
    let Ok(image) =
        PeImage::around(&file, data.len() as u64 / 2).or_else(|_| PeImage::parse(&file, 0))
    else {
        return;
    };
    let open = |_: &_| Metadata::open(data.to_vec()).ok();
    let Ok(ready) = ReadyToRun::open(image, &file, open) else {
        return;
    };
    for offset in (0..data.len() as u64).step_by(64) {
        if let Some(address) = ready.address_of(offset) {
            let _ = (ready.name(address), ready.is_thunk(address));
        }
    }
});
