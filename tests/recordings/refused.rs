//! Corrupt and foreign files: the exit status and message of each, in a table that the test prints.

use std::fs;
use std::path::Path;

use crate::LIMIT;
use crate::support::recording::{can_record, record};
use crate::support::zip::zip_of;
use crate::support::{run_perfcollect, skip};

/// Size of a perf.data header, in bytes.
const HEADER_BYTES: usize = 104;

/// A file, the exit status of `convert`, and a part of its message.
struct Case {
    name: &'static str,
    bytes: Vec<u8>,
    status: i32,
    message: &'static str,
}

fn case(name: &'static str, bytes: impl Into<Vec<u8>>, status: i32, message: &'static str) -> Case {
    Case {
        name,
        bytes: bytes.into(),
        status,
        message,
    }
}

/// Returns a piped recording with one event, a hardware trace and no samples.
fn hardware_trace(kind: u32) -> Vec<u8> {
    let record = |kind: u32, body: &[u8]| {
        let size = (8 + body.len()) as u16;
        [&kind.to_le_bytes()[..], &[0; 2], &size.to_le_bytes(), body].concat()
    };
    let mut attribute = vec![0_u8; 64];
    attribute[0] = 8;
    attribute[4] = 64;
    // TID and TIME.
    attribute[24] = 6;
    let mut info = kind.to_le_bytes().to_vec();
    info.resize(16, 0);
    // Size of the data that follows, offset, reference, and more.
    let mut trace = vec![0_u8; 40];
    trace[0] = 32;
    [
        b"PERFILE2\x10\0\0\0\0\0\0\0".to_vec(),
        record(64, &attribute),
        record(70, &info),
        record(71, &trace),
        vec![0xaa; 32],
    ]
    .concat()
}

fn foreign() -> Vec<Case> {
    let text = b"noploop 21796 [001] 1410597.984841: instructions: \n\t993 main (/noploop)\n";
    let utf16: Vec<u8> = text.iter().flat_map(|&byte| [byte, 0]).collect();
    vec![
        case("empty", "", 1, "is empty"),
        case("header cut", "PERFILE2", 1, "ends within its header"),
        case(
            "gzip",
            [&[0x1f, 0x8b, 8, 0][..], &[1; 40]].concat(),
            1,
            "unpack it with gunzip",
        ),
        case(
            "xz",
            [&b"\xfd7zXZ\0"[..], &[1; 40]].concat(),
            1,
            "unpack it with unxz",
        ),
        case(
            "nettrace",
            [&b"Nettrace"[..], &[1; 40]].concat(),
            1,
            "PerfView open",
        ),
        case(
            "program",
            [&b"\x7fELF"[..], &[1; 40]].concat(),
            1,
            "a program or a library",
        ),
        case("JSON", "{\"traceEvents\": []}", 1, "it is JSON"),
        case("UTF-16", [&b"\xff\xfe"[..], &utf16].concat(), 1, "UTF-16"),
        case(
            "simpleperf's report",
            "SIMPLEPERF\x01\0 and more bytes",
            1,
            "report of simpleperf",
        ),
        case(
            "folded stacks",
            "main;spin 12\nmain;work 3\n",
            1,
            "line 1 begins no sample",
        ),
        case(
            "log",
            "2026-01-01 error: it broke\n",
            1,
            "line 1 begins no sample",
        ),
        case(
            "broken zip",
            "PK\x03\x04 and no more than that",
            1,
            "Missing end of central directory",
        ),
        case(
            "events only",
            zip_of([("x.trace/lttngTrace/auto/channel0_0", "x")]),
            1,
            "babeltrace open",
        ),
        case(
            "damaged trace of perfcollect",
            zip_of([("x.trace/summary.json", "x")]),
            1,
            "summary.json in the trace is corrupt",
        ),
        case(
            "other archive",
            zip_of([("photo.jpg", "x")]),
            1,
            "neither perf.data nor perf.data.txt",
        ),
        case(
            "no event",
            b"PERFILE2\x10\0\0\0\0\0\0\0",
            1,
            "before it names an event",
        ),
        case("ETM", hardware_trace(3), 1, "AUX data: ARM CoreSight ETM"),
        case("Intel PT", hardware_trace(1), 1, "AUX data: Intel PT"),
        case("text", *text, 0, ""),
        case(
            "idle text",
            "swapper 0 [000] 1.5: cycles: \n\t1 idle (vmlinux)\n",
            1,
            "idle CPUs",
        ),
        case(
            "text that is cut",
            [&text[..], b"noploop 21"].concat(),
            0,
            "the first is line 3: noploop 21",
        ),
        case(
            "text with a strange line",
            [&text[..], b"\n\nhello\n"].concat(),
            1,
            "line 5 begins no sample as `perf script` prints them: hello",
        ),
        case(
            "text with a strange frame",
            [&text[..], b"\thello\n"].concat(),
            0,
            "the first is line 3: hello",
        ),
    ]
}

/// Returns a current recording as perf before 2010 wrote it: another magic, no byte order in it.
fn of_before_2010(recording: &[u8]) -> Vec<u8> {
    [b"PERFFILE", &recording[8..]].concat()
}

fn damaged(directory: &Path) -> Vec<Case> {
    let file = directory.join("whole");
    let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    record(&file, &["-F", "999", "-g"], ["sh", "-c", script]);
    let whole = fs::read(&file).unwrap();
    let with = |at: usize, bytes: &[u8]| {
        let mut damaged = whole.clone();
        damaged[at..at + bytes.len()].copy_from_slice(bytes);
        damaged
    };
    vec![
        case("whole", &*whole, 0, ""),
        case("before 2010", of_before_2010(&whole), 0, ""),
        case(
            "cut in the middle",
            &whole[..whole.len() / 2],
            0,
            "the recording is corrupt",
        ),
        case(
            "cut in the header",
            &whole[..HEADER_BYTES / 2],
            1,
            "ends within its header",
        ),
        case("not ended", with(48, &[0; 8]), 0, "perf was killed before"),
        case(
            "attributes of no size",
            with(16, &[0; 8]),
            1,
            "invalid size of the attributes",
        ),
        case(
            "attributes nowhere",
            with(24, &[0xff; 8]),
            1,
            "declares no event",
        ),
        case(
            "records beyond the end",
            with(47, &[0x7f]),
            1,
            "invalid offset of the records",
        ),
    ]
}

#[test]
fn damaged_and_foreign_files_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let mut cases = foreign();
    match can_record() {
        Err(missing) => skip(missing),
        Ok(()) => cases.extend(damaged(directory.path())),
    }
    let mut failed = Vec::new();
    println!("{:<28} {:>6}  message", "file", "status");
    for Case {
        name,
        bytes,
        status,
        message,
    } in cases
    {
        fs::write(directory.path().join("file"), bytes).unwrap();
        let words = ["convert", "file", "-o", "trace", "-force"];
        let done = run_perfcollect(words, directory.path(), LIMIT);
        let said = done.stdout.clone() + &done.stderr;
        let shown = match message {
            "" => said.lines().next(),
            message => said.lines().find(|line| line.contains(message)),
        };
        let shown = shown.unwrap_or("").trim();
        println!(
            "{name:<28} {:>6}  {shown}",
            done.status.code().unwrap_or(-1)
        );
        if done.status.code() != Some(status) || shown.is_empty() {
            failed.push(format!("{name}: {:?}: {said}", done.status));
        }
        // Nothing is left of a failed conversion.
        let traces = fs::read_dir(directory.path()).unwrap();
        let traces = traces.filter(|entry| {
            entry
                .as_ref()
                .unwrap()
                .file_name()
                .to_string_lossy()
                .starts_with("trace.")
        });
        assert_eq!(traces.count() > 0, done.status.success(), "{name}");
        for entry in fs::read_dir(directory.path()).unwrap() {
            let path = entry.unwrap().path();
            if path
                .file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("trace.")
            {
                fs::remove_file(path).unwrap();
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
