//! A trace from anybody: as it is, and as an archive of its summary and its stacks.
#![no_main]

#[path = "support/parts.rs"]
mod parts;

use std::io::{Write, sink};

use libfuzzer_sys::fuzz_target;
use perfcollect::view::view;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use parts::counted;

fuzz_target!(|data: &[u8]| {
    print(data);
    let (summary, folded) = counted(data);
    let mut zip = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (entry, text) in [("summary.json", summary), ("stacks.folded", folded)] {
        let name = format!("x.trace/{entry}");
        zip.start_file(
            name,
            SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored),
        )
        .expect("a name");
        zip.write_all(text).expect("there is room");
    }
    print(zip.finish().expect("an archive").get_ref());
});

fn print(archive: &[u8]) {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(archive).expect("there is room");
    let _ = view(file.path(), 20, &mut sink());
}
