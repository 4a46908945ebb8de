//! A perf.data file: container, compressed records, either byte order, and the text of its samples.
#![no_main]

use std::io::sink;
use std::ops::ControlFlow;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use perfcollect::machine::RecordingFiles;
use perfcollect::perf_data::Reader;
use perfcollect::script::{Fields, print};

/// Maximum number of records to read. A few bytes may decompress to any number of records.
const MAX_RECORDS: u32 = 100_000;

fuzz_target!(|bytes: &[u8]| {
    let mut records = 0;
    if let Ok(mut reader) = Reader::bytes(bytes) {
        reader.each(|_, entry| {
            let _ = entry.record.process();
            records += 1;
            match records < MAX_RECORDS {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
    }
    if let (Ok(mut reader), Ok(recorded)) = (Reader::bytes(bytes), RecordingFiles::new(None, None))
        && records < MAX_RECORDS
    {
        let _ = print(
            &mut reader,
            recorded,
            Some(Path::new("/dev/null")),
            Fields::all(),
            true,
            sink(),
            &mut |_| (),
        );
    }
});
