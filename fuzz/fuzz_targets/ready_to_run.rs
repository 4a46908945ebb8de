//! An untrusted PE image: headers, sections, exception directory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfcollect::dotnet::Image;
use perfcollect::unwind::ReadyToRunImage;

fuzz_target!(|data: &[u8]| {
    let file = Image {
        start: 0,
        bytes: data,
    };
    for mapped_from in [0, 4096, data.len() as u64 / 2] {
        let Ok(image) = ReadyToRunImage::find(&file, mapped_from) else {
            continue;
        };
        for offset in (0..data.len() as u64).step_by(64) {
            if let Some(address) = image.address_of(offset)
                && let Some(function) = image.function_at(address)
            {
                assert!(function.begin <= address && address < function.end);
            }
        }
    }
});
