//! Reads `NAME.perf.data` with perf and with perfcollect's reader.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::Command;

use perfcollect::machine::RecordingFiles;
use perfcollect::output::{perf_data, perf_text};
use perfcollect::perf::{CpuMode, Record};
use perfcollect::perf_data::Reader;
use perfcollect::script::{Fields, print};
use perfcollect::trace::{FunctionKind, Trace};
use tempfile::TempDir;

use crate::build::{self, Builder, MS, START};
use crate::support::Missing;
use crate::support::perf_script::{can_run_perf, expect_samples_of, perf, script_samples};

const FIELDS: &str = "pid,tid,period,ip,sym,dso";

fn written(trace: &Trace) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let symbols = directory.path().join("test.perf.symbols");
    std::fs::create_dir(&symbols).unwrap();
    let path = directory.path().join("test.perf.data");
    let mut out = BufWriter::new(File::create(&path).unwrap());
    let keep = |name: &str, content: &[u8]| {
        File::create_new(symbols.join(name)).and_then(|mut file| file.write_all(content))
    };
    perf_data::write(trace, &symbols, keep, &mut out).unwrap();
    (directory, path)
}

fn text_of(trace: &Trace) -> Vec<u8> {
    let mut text = Vec::new();
    perf_text::write(trace, &mut text).unwrap();
    text
}

fn traces() -> [Trace; 2] {
    [build::realistic(), build::hostile()]
}

#[test]
fn perf_symbolizes_each_function_without_warnings() {
    need!(can_run_perf());
    for trace in traces() {
        let (_directory, path) = written(&trace);
        let text = perf(&["script", "-F", FIELDS], &path);
        expect_samples_of(&script_samples(&text), &text_of(&trace));
        perf(&["report", "--stdio"], &path);
    }
}

/// perfcollect symbolizes all functions except those of the kernel, for which it uses kallsyms.
#[test]
fn perfcollect_symbolizes_each_function() {
    for trace in traces() {
        let (_directory, path) = written(&trace);
        let mut reader = Reader::file(File::open(&path).unwrap()).unwrap();
        assert_eq!(reader.info.events.len(), 1);
        let recorded = RecordingFiles::new(None, None).unwrap();
        let mut text = Vec::new();
        print(
            &mut reader,
            recorded,
            None,
            FIELDS.parse::<Fields>().unwrap(),
            true,
            &mut text,
            &mut |_| (),
        )
        .unwrap();
        assert!(reader.corruption.is_none() && reader.malformed == 0 && reader.late() == 0);
        let text = String::from_utf8(text).unwrap();
        let samples = script_samples(&text.replace("[unknown] (/", "{unknown} (/"));
        let expected = String::from_utf8(text_of(&trace)).unwrap();
        let unresolved = expected.lines().map(|line| {
            let is_kernel = line.ends_with(" (vmlinux)") && !line.contains(" idle (");
            let line = if is_kernel {
                "\t0 {unknown} (vmlinux)"
            } else {
                line
            };
            format!("{line}\n")
        });
        let unresolved: String = unresolved.collect();
        expect_samples_of(&samples, unresolved.as_bytes());
    }
}

#[test]
fn writes_start_and_end_of_process_instances() {
    let mut b = Builder::new();
    let main = b.named(FunctionKind::Native, "a", "main");
    let read = b.named(FunctionKind::Kernel, "vmlinux", "ksys_read");
    let instances = [b.thread(7, "first", 7), b.thread(7, "second", 7)];
    let worker = b.thread(7, "second", 9);
    let [first, second] = instances;
    for (at, thread) in [first, first, second, worker, worker]
        .into_iter()
        .enumerate()
    {
        b.sample(START + at as u64 * MS, MS, thread, &[main, read]);
    }
    let (_directory, path) = written(&b.trace);
    let mut reader = Reader::file(File::open(&path).unwrap()).unwrap();
    let mut seen = Vec::new();
    reader.each(|_, entry| {
        seen.push(match entry.record {
            Record::Comm {
                tid, name, exec, ..
            } => {
                format!("{tid} {} {exec}", String::from_utf8_lossy(name))
            }
            Record::Fork {
                tid, parent_tid, ..
            } => format!("{tid} by {parent_tid}"),
            Record::Exit { pid, .. } => format!("{pid} ends"),
            Record::Mapping(mapping) => format!("maps of {}", mapping.pid),
            Record::Sample(sample) => {
                assert_eq!(sample.mode, CpuMode::Kernel);
                assert_eq!(sample.kernel_chain().next(), Some(sample.ip));
                assert_eq!(sample.user_chain().count(), 1);
                format!("sample of {}", sample.tid)
            }
            other => format!("{other:?}"),
        });
        ControlFlow::Continue(())
    });
    let expected = [
        "maps of -1", // The kernel proper, which is empty.
        "7 first true",
        "maps of -1",
        "maps of 7",
        "sample of 7",
        "sample of 7",
        "7 ends",
        "7 second true",
        "maps of 7",
        "sample of 7",
        "9 by 7",
        "9 .NET TP Worker false",
        "sample of 9",
        "sample of 9",
    ];
    assert_eq!(seen, expected);
}

/// Caches of readers identify files by build id, so files with other symbols need another one.
#[test]
fn build_id_depends_on_content() {
    let id = |function: &str| {
        let mut b = Builder::new();
        let main = b.named(FunctionKind::Native, "a", function);
        let thread = b.thread(7, "first", 7);
        b.sample(START, MS, thread, &[main]);
        let (directory, path) = written(&b.trace);
        let reader = Reader::file(File::open(&path).unwrap()).unwrap();
        let image = directory.path().join("test.perf.symbols/a");
        reader.info.build_ids[image.as_os_str().as_bytes()].clone()
    };
    assert_eq!(id("main"), id("main"));
    assert_ne!(id("main"), id("other"));
}

#[test]
fn truncates_deep_stacks() {
    const SAMPLES: u64 = 100;
    let mut b = Builder::new();
    let main = b.named(FunctionKind::Native, "a", "main");
    let deep = vec![main; 1500];
    let thread = b.thread(7, "first", 7);
    for at in 0..SAMPLES {
        b.sample(START + at * MS, MS, thread, &deep);
    }
    let (_directory, path) = written(&b.trace);
    let bytes = std::fs::metadata(&path).unwrap().len();
    assert!((SAMPLES * 8000..SAMPLES * 8200).contains(&bytes), "{bytes}");
    let mut samples = 0;
    let mut reader = Reader::file(File::open(&path).unwrap()).unwrap();
    reader.each(|_, entry| {
        if let Record::Sample(sample) = entry.record {
            assert_eq!(sample.user_chain().count(), 1000);
            samples += 1;
        }
        ControlFlow::Continue(())
    });
    assert_eq!((samples, reader.malformed), (SAMPLES, 0));
}

#[test]
fn readelf_accepts_symbol_files() {
    let (_directory, path) = written(&build::hostile());
    let files = std::fs::read_dir(path.with_file_name("test.perf.symbols")).unwrap();
    let files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    assert!(files.len() > 5);
    let readelf = Command::new("readelf").arg("-aW").args(&files).output();
    let Ok(output) = readelf else {
        skip!(Missing::Command("readelf"))
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{stderr}");
}
