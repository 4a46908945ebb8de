//! A trace from anybody: as it is, and as an archive of its summary and its stacks.
#![no_main]

#[path = "support/parts.rs"]
mod parts;

use std::io::{Write, sink};

use libfuzzer_sys::fuzz_target;
use perfcollect::view::view;
use rawzip::ZipArchiveWriter;

use parts::counted;

fuzz_target!(|data: &[u8]| {
    print(data);
    let (summary, folded) = counted(data);
    let mut zip = ZipArchiveWriter::new(Vec::new());
    for (entry, text) in [("summary.json", summary), ("stacks.folded", folded)] {
        let name = format!("x.trace/{entry}");
        let (entry, config) = zip.new_file(&name).start().expect("a name");
        let mut out = config.wrap(entry);
        out.write_all(text).expect("there is room");
        let (entry, descriptor) = out.finish().expect("there is room");
        entry.finish(descriptor).expect("there is room");
    }
    print(&zip.finish().expect("an archive"));
});

fn print(archive: &[u8]) {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(archive).expect("there is room");
    let _ = view(file.path(), 20, &mut sink());
}
