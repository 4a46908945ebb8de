//! An untrusted trace: the input as an archive, and as the summary and stacks in an archive.
#![no_main]

#[path = "support/parts.rs"]
mod parts;

use std::io::{Write, sink};

use libfuzzer_sys::fuzz_target;
use perfcollect::selection::Selection;
use perfcollect::view::screen::{Screen, Size};
use perfcollect::view::{
    OpenTrace, ReportKind, Rows, TableFormat, print_table, view, view_method, view_screen,
    view_tree,
};
use rawzip::ZipArchiveWriter;

use parts::counted;

fuzz_target!(|data: &[u8]| {
    print(data);
    let (summary, folded) = counted(data);
    let mut zip = ZipArchiveWriter::new(Vec::new());
    for (entry, text) in [("summary.json", summary), ("stacks.folded", folded)] {
        let name = format!("x.trace/{entry}");
        let (entry, config) = zip.new_file(&name).start().expect("the name is valid");
        let mut out = config.wrap(entry);
        out.write_all(text).expect("the write succeeds");
        let (entry, descriptor) = out.finish().expect("the write succeeds");
        entry.finish(descriptor).expect("the write succeeds");
    }
    print(&zip.finish().expect("the archive is complete"));
});

fn print(archive: &[u8]) {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file can be created");
    file.write_all(archive).expect("the write succeeds");
    let path = file.path();
    let rows = Rows {
        top: 20,
        full: true,
        fits: false,
    };
    let size = Size {
        width: 80,
        height: 24,
    };
    let Ok(trace) = OpenTrace::open(path, &Selection::default()) else {
        return;
    };
    let _ = view(&trace, rows, &mut sink());
    let _ = view_method(&trace, "a", 20, &mut sink());
    let _ = view_tree(&trace, 0.01, rows, &mut sink());
    let screen = Screen { size, bold: true };
    let _ = view_screen(&trace, "", screen, &mut sink());
    let _ = print_table(
        &trace,
        ReportKind::Exceptions,
        TableFormat::Text,
        rows,
        Some(size.width),
        &mut sink(),
    );
}
