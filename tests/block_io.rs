//! Requests to disks: as many as the kernel counts itself, and those of a program are its own.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::process::Command;
use std::time::Duration;

use perfcollect::trace::{BlockIoRow, Notice, NoticeKind};
use support::{AS_NOBODY, Missing, PublicDirectory, Saved, perfcollect, run, run_perfcollect};

const LIMIT: Duration = Duration::from_secs(120);
/// Writes and reads 200 blocks of 64 KiB, without the page cache. Then it needs some CPU time, to have samples.
const SCRIPT: &str = "dd if=/dev/zero of=file bs=65536 count=200 oflag=direct 2>&1 && \
    dd if=file of=/dev/null bs=65536 iflag=direct 2>&1; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
const BYTES: u64 = 200 * 65536;

/// The requests and the bytes that the disks of the machine have read and written.
fn disk_counts() -> [u64; 4] {
    let text = std::fs::read_to_string("/proc/diskstats").unwrap();
    let mut counts = [0; 4];
    for line in text.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // Those of a partition are those of its disk.
        if std::path::Path::new(&format!("/sys/block/{}", fields[2])).exists() {
            let field = |at: usize| fields[at].parse::<u64>().unwrap();
            for (count, value) in
                counts
                    .iter_mut()
                    .zip([field(3), field(5) * 512, field(7), field(9) * 512])
            {
                *count += value;
            }
        }
    }
    counts
}

#[test]
fn requests_of_a_program_are_those_that_the_disk_counts() {
    need_capture!();
    need_command!("dd");
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(perfcollect());
    command.args(["collect", "x", "-io", "-nolttng", "--", "sh", "-c", SCRIPT]);
    let before = disk_counts();
    let finished = run(command.current_dir(&directory), LIMIT).expect_success();
    let after = disk_counts();
    let saved = Saved::open(directory, "x");
    let mut notices = saved.summary.quality.notices.iter();
    if let Some(notice) = notices.find(|notice| notice.kind == NoticeKind::CountersMissing) {
        assert!(
            notice.what.contains("block I/O was not followed"),
            "{notice:?}"
        );
        skip!(Missing::Tracepoints);
    }
    let block_io = saved.summary.info.block_io.clone().unwrap();
    assert_eq!(block_io.omitted, 0);
    let rows = |pid: fn(&BlockIoRow) -> bool, operation: &'static str| {
        let rows = block_io.rows.iter();
        rows.filter(move |row| pid(row) && row.operation == operation)
    };
    let [reads, read, writes, written] = std::array::from_fn(|at| after[at] - before[at]);
    for (operation, requests, bytes) in [("read", reads, read), ("write", writes, written)] {
        let all = rows(|row| row.pid.is_none(), operation);
        let (count, sum) = all.fold((0, 0), |(count, sum), row| {
            (count + row.requests, sum + row.bytes)
        });
        // A disk above others, such as one of device mapper, counts the same request again.
        assert!(
            count <= requests && sum <= bytes,
            "{operation}: {block_io:#?}"
        );
        let own = rows(|row| row.process == "dd", operation);
        let own: Vec<&BlockIoRow> = own.collect();
        // A temporary directory may be in memory.
        if bytes >= BYTES && !own.is_empty() {
            // It also reads its own code. Some requests may be incomplete.
            let sum: u64 = own.iter().map(|row| row.bytes).sum();
            assert!(sum > BYTES / 2 && sum <= bytes, "{operation}: {own:#?}");
            for row in own {
                assert!(row.p50_ms > 0.0 && row.p50_ms <= row.p99_ms && row.p99_ms <= row.max_ms);
                assert!(
                    row.total_ms <= row.max_ms * row.requests as f64 + 1e-6,
                    "{row:?}"
                );
                assert_eq!(row.errors, 0);
            }
            assert!(finished.stderr.contains("disks: "), "{}", finished.stderr);
            expect_tables(&saved);
        }
    }
}

#[track_caller]
fn expect_tables(saved: &Saved) {
    let path = saved.path.to_str().unwrap();
    let words = ["report", path, "-kind", "io", "-format", "csv"];
    let table = run_perfcollect(words, saved.directory(), LIMIT).expect_success();
    assert!(table.stdout.contains(",dd,write,"), "{}", table.stdout);
    // They have no times.
    let words = ["report", path, "-kind", "io", "-to", "100"];
    let part = run_perfcollect(words, saved.directory(), LIMIT);
    assert!(!part.status.success());
    assert!(
        part.stderr.contains("select it by process only"),
        "{}",
        part.stderr
    );
}

/// Runs a command where tracefs is not mounted, as in a container. Prints the mounts then; their status is 77 if
/// it cannot be unmounted.
const WITHOUT_TRACEFS: &str = "for mount in /sys/kernel/tracing /sys/kernel/debug; do \
    while umount -l $mount 2>/dev/null; do :; done; \
    done; \
    test -e /sys/kernel/tracing/events -o -e /sys/kernel/debug/tracing/events && exit 77; \
    \"$@\" || exit 1; grep -c -w tracefs /proc/self/mountinfo; true";

/// Captures a program with `-io` where tracefs is not mounted, with the capabilities that a command leaves it.
fn collect_without_tracefs(prefix: &[&str]) -> Result<(Saved, String), Missing> {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", WITHOUT_TRACEFS, "sh"]);
    command.args(prefix).arg(perfcollect());
    command.args(["collect", "x", "-io", "-nolttng", "--", "sh", "-c", SCRIPT]);
    let finished = run(command.current_dir(&directory), LIMIT);
    if finished.status.code() == Some(77) || finished.stderr.starts_with("unshare: ") {
        return Err(Missing::Unshare("-m"));
    }
    let finished = finished.expect_success();
    Ok((Saved::open(directory, "x"), finished.stdout))
}

fn notices_of(saved: &Saved) -> Vec<Notice> {
    let notices = saved.summary.quality.notices.iter();
    notices
        .filter(|notice| notice.subject == "block-io")
        .cloned()
        .collect()
}

#[test]
fn tracefs_is_mounted_for_the_capture_alone() {
    need_capture!();
    need_command!("dd");
    let (saved, printed) = need!(collect_without_tracefs(&[]));
    let notices = notices_of(&saved);
    if notices.iter().any(|notice| notice.what.contains("block/")) {
        skip!(Missing::Tracepoints);
    }
    assert_eq!(notices, []);
    let block_io = saved.summary.info.block_io.clone().unwrap();
    assert_eq!(block_io.omitted, 0);
    assert_eq!(printed.lines().last(), Some("0"), "{printed}");
}

#[test]
fn a_refused_mount_of_tracefs_is_reported() {
    need_capture!();
    need_command!("setpriv");
    let (saved, _) = need!(collect_without_tracefs(&[
        "setpriv",
        "--bounding-set=-sys_admin"
    ]));
    let [notice] = &notices_of(&saved)[..] else {
        panic!("{:?}", saved.summary.quality.notices);
    };
    assert!(notice.what.contains("tracefs is not mounted"), "{notice:?}");
    assert!(notice.remedy.contains("CAP_SYS_ADMIN"), "{notice:?}");
    assert!(saved.summary.info.block_io.is_none());
}

#[test]
fn a_user_without_rights_reads_what_is_missing() {
    need_capture!();
    need_command!("setpriv");
    let public = PublicDirectory::new();
    let burn = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    let finished = public.collect(&AS_NOBODY, &["-io", "--", "sh", "-c", burn]);
    if finished.is_not_permitted() {
        return;
    }
    let saved = Saved::open(public.into_inner(), "x");
    let missing = notices_of(&saved);
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert!(saved.summary.info.block_io.is_none());
    let path = saved.path.to_str().unwrap();
    let words = ["report", path, "-kind", "io"];
    let table = run_perfcollect(words, saved.directory(), LIMIT).expect_success();
    assert!(table.stdout.contains(&missing[0].what), "{}", table.stdout);
}
