//! What tracepoints say, in the words of the kernel's formats, against the installed perf.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use support::recording::{can_record, run_with_tracefs};
use support::{Missing, perfcollect, run};

const LIMIT: Duration = Duration::from_secs(300);
const UNREAD: &str = "[FAILED TO PARSE]";
const PRINT: &[u8] = b"print fmt: ";
const ODD: &str = "\"%d\", __print_odd(1)";

/// Tracepoints that a program sets off on any machine.
const TRACEPOINTS: &str = "sched:* irq:* timer:* signal:* task:* workqueue:* kmem:* vmscan:* pagemap:* filemap:* mmap:* writeback:* \
                           block:* ext4:* jbd2:* filelock:* raw_syscalls:* syscalls:*_m* syscalls:*_open* net:* sock:* tcp:* skb:* \
                           napi:* rcu:* cgroup:* power:*";

/// Files, pipes, memory, sockets, threads, timers and signals.
const WORKLOAD: &str = r#"
ls -l /etc | sort >/dev/null 2>&1
dd if=/dev/zero of="$0.out" bs=64k count=16 conv=fsync 2>/dev/null; rm "$0.out"
(sleep 1 & kill $!; wait) 2>/dev/null
python3 - <<'END'
import mmap, os, signal, socket, threading, time
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
client.send(b"x" * 5000)
server.recv(9000)
memory = mmap.mmap(-1, 1 << 20)
memory[:] = b"z" * (1 << 20)
threading.Thread(target=lambda: time.sleep(0.01)).start()
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.01)
time.sleep(0.03)
END
true
"#;

/// perf prints wrong numbers of these: flags that the format masks, and the choice in a comparison.
const WRONG_IN_PERF: [&str; 2] = ["timer:timer_start", "kmem:mm_page_alloc_extfrag"];
/// perf prints it where no flag is set: its value is not in the recording.
const UNKNOWN_FLAG: &str = "I_DIRTY_SYNC";

/// Records tracepoints; false: that is not possible here.
fn record(file: &Path, tracepoints: &str, workload: &Path) -> bool {
    let script = format!(
        "set -f; for event in {tracepoints}; do \
             if [ -d /sys/kernel/tracing/events/${{event%%:*}} ]; then set -- \"$@\" -e \"$event\"; fi; \
         done; \
         perf record -q --no-buildid-cache --sample-cpu -m 256 \"$@\" -o {} -- sh {}",
        file.display(),
        workload.display()
    );
    run_with_tracefs(&script)
}

/// Lines of both, without names of threads.
fn scripts(file: &Path) -> [Vec<String>; 2] {
    ["perf".as_ref(), perfcollect()].map(|program: &Path| {
        let mut script = Command::new(program);
        script.args(["script", "-F", "tid,time,event,trace", "-i"]);
        let finished = run(script.arg(file), LIMIT);
        finished.stdout.lines().map(str::to_owned).collect()
    })
}

macro_rules! need_tracepoints {
    ($file:expr, $tracepoints:expr, $workload:expr) => {
        need!(can_record());
        if !record($file, $tracepoints, $workload) {
            skip!(Missing::Tracepoints);
        }
    };
}

#[test]
fn tracepoints_print_as_in_perf() {
    let directory = tempfile::tempdir().unwrap();
    let (file, workload) = (
        directory.path().join("perf.data"),
        directory.path().join("work"),
    );
    std::fs::write(&workload, WORKLOAD).unwrap();
    need_tracepoints!(&file, TRACEPOINTS, &workload);
    let [theirs, ours] = scripts(&file);
    assert_eq!(theirs.len(), ours.len());
    let mut tracepoints: BTreeMap<String, (usize, Option<[String; 2]>)> = BTreeMap::new();
    for (theirs, ours) in theirs.into_iter().zip(ours) {
        let mut words = theirs.split_whitespace();
        let name = words.nth(2).unwrap().trim_end_matches(':').to_owned();
        let (count, different) = tracepoints.entry(name).or_default();
        *count += 1;
        if theirs != ours && theirs.replace(UNKNOWN_FLAG, "") != ours {
            different.get_or_insert([theirs, ours]);
        }
    }
    let mut unread = 0;
    for (name, (count, different)) in &tracepoints {
        println!(
            "{name}: {count}{}",
            if different.is_some() {
                ", different"
            } else {
                ""
            }
        );
        let Some([theirs, ours]) = different else {
            continue;
        };
        unread += usize::from(ours.contains(UNREAD));
        let is_known = WRONG_IN_PERF.contains(&name.as_str());
        assert!(is_known || ours.contains(UNREAD), "{theirs}\n{ours}");
    }
    assert!(
        tracepoints.len() > 100 && unread * 10 < tracepoints.len(),
        "{unread}"
    );
}

/// Conversions and what each of them converts. `$P` is a positive number, `$S` the state of a thread, `$C` a text.
const EXPRESSIONS: &[(&str, &[&str])] = &[
    ("%d %i %u %x %X %o", &["$P", "-$P", "$S - 5"]),
    ("%#x %#X %#o", &["$P", "0"]),
    ("%5d|%-5d|%05d|%6x|%-8x|%06x|%#06x|%3u", &["$P", "-$P"]),
    ("%hd %hu %hx %hhx %hhu", &["$P * 0x10003", "-$P"]),
    (
        "%ld %lu %lx %lld %llu %llx %016llx",
        &["$P", "-$P", "$S - 5"],
    ),
    ("%zu %zx %zd %Lx", &["$P"]),
    ("%s|%8s|%-18s|%20s|%.3s|%-6.2s", &["$C"]),
    ("%.*s", &["3, $C"]),
    ("%*d", &["5, $P"]),
    ("%p", &["$P", "0", "(void *)$S"]),
    ("%ps %pS", &["$P"]),
    (
        "%lld",
        &[
            // Operators, and which of two binds closer.
            "$P + 120",
            "$P - 200",
            "$P * 3",
            "$P / 7",
            "-$P / 7",
            "$P % 7",
            "$P & 0x18",
            "$S | 0x100",
            "~$P",
            "!$P",
            "!!$P",
            "-$P",
            "$P << 3",
            "$P >> 3",
            "-$P >> 60",
            "$P == 120",
            "$P != 120",
            "$S == 2",
            "$P < 120",
            "$P <= 120",
            "$P > 119",
            "$P >= 121",
            "-$P < 3",
            "$P && 0",
            "$P && $S",
            "$P || 0",
            "$S || 0",
            "1 + 2 * 3",
            "2 * 3 + 1",
            "1 << 2 + 1",
            "1 | 2 & 6",
            "1 == 1 & 2",
            "$P & 0xf0 >> 4",
            "($P >> 4) & 3",
            "(($P))",
            "0x10",
            "010",
            "1UL",
            "0xffUL",
            "10u",
            // The first choice, the second, and one in the other.
            "$P ? 1 : 2",
            "$S > 1000 ? 1 : 2",
            "$P > 1000 ? 1 : $P > 100 ? 2 : 3",
            // A variable of the kernel's is 0.
            "jiffies",
            "jiffies - $P",
            "$C[0]",
            "$C[1]",
        ],
    ),
    (
        "%llx",
        &[
            "(u8)($P - 500)",
            "(s8)($P - 500)",
            "(char)($P - 500)",
            "(unsigned char)($P - 500)",
            "(u16)($P - 500)",
            "(short)($P - 500)",
            "(unsigned short)($P - 500)",
            "(u32)($P - 500)",
            "(int)($P - 500)",
            "(unsigned int)($P - 500)",
            "(unsigned)($P - 500)",
            "(long)($P - 500)",
            "(unsigned long)($P - 500)",
            "(unsigned long long)($P - 500)",
            "(u64)($P - 500)",
            "(gfp_t)($P - 500)",
            "(loff_t)($P - 500)",
            "(char *)($P - 500)",
            "(struct page *)($P - 500)",
            "(u32)$P << 32",
            "(u8)0x1ff",
            "($P)",
        ],
    ),
    (
        "%s",
        &[
            r#"__print_flags($P, "|", { 1, "A" }, { 0x40, "B" }, { 1 << 4, "C" })"#,
            r#"__print_flags($P, "", { 8 | 0x40, "A" }, { 0x10, "B" }, { 0x20, "C" }, { 0, ((void *)0) })"#,
            r#"__print_flags(0, "|", { 0, "Z" }, { 1, "A" })"#,
            r#"__print_symbolic($P, { 0, "zero" }, { 120, "std" })"#,
            r#"__print_symbolic(0, { 0, "zero" }, { 120, "std" })"#,
            r#"__print_symbolic(~0, { 0, "zero" }, { -1, "all" })"#,
            r#"__print_symbolic(5, { 0, "zero" }, { 120, "std" })"#,
            r#"$P ? "yes" : "no""#,
            r#"$P ? __print_flags($P, "|", { 0x40, "B" }) : "no""#,
            r#""a" "b""#,
        ],
    ),
    ("%-6s|%6s|", &[r#"$P ? "yes" : "no""#]),
];

/// Of fields of each kind: numbers with and without sign, `long`, pointers, texts, arrays.
const KINDS: &str = "raw_syscalls:sys_enter kmem:kmalloc kmem:mm_page_alloc sched:sched_process_exit \
                     sched:sched_process_exec sched:sched_stat_runtime timer:timer_start timer:hrtimer_start";

/// A print format, as long as it fits into that of a recording.
#[derive(Clone, Default)]
struct Format {
    text: String,
    arguments: String,
}

impl Format {
    fn add(&mut self, conversions: &str, argument: &str) {
        self.text += &format!("{conversions}; ");
        let times = conversions.replace("%.*s", "%").matches('%').count();
        self.arguments += &format!(", {argument}").repeat(times);
    }

    fn written(&self) -> String {
        let fields = [("$P", "prio"), ("$S", "state"), ("$C", "comm")];
        let arguments = fields
            .iter()
            .fold(self.arguments.clone(), |text, (name, field)| {
                text.replace(name, &format!("REC->prev_{field}"))
            });
        format!("\"{}\"{arguments}", self.text)
    }
}

/// Where the print formats of a recording are: it holds those that were in tracefs.
fn print_formats(recording: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let rest = &recording[from..];
        let start = rest.windows(PRINT.len()).position(|bytes| bytes == PRINT)?;
        let start = from + start + PRINT.len();
        let len = recording[start..].iter().position(|&byte| byte == b'\n')?;
        from = start + len;
        Some(start..from)
    })
}

/// Puts another print format in the place of one.
fn replace(recording: &mut [u8], place: Range<usize>, format: &str) {
    recording[place.clone()].fill(b' ');
    recording[place.start..][..format.len()].copy_from_slice(format.as_bytes());
}

#[test]
fn fields_of_formats_that_are_not_understood_print_as_in_perf() {
    let directory = tempfile::tempdir().unwrap();
    let (file, workload) = (
        directory.path().join("perf.data"),
        directory.path().join("work"),
    );
    std::fs::write(&workload, "ls / | sort; sleep 0.01").unwrap();
    need_tracepoints!(&file, KINDS, &workload);
    let mut recording = std::fs::read(&file).unwrap();
    let places: Vec<_> = print_formats(&recording).collect();
    for place in places.into_iter().filter(|place| place.len() > ODD.len()) {
        replace(&mut recording, place, ODD);
    }
    std::fs::write(&file, &recording).unwrap();
    let [theirs, ours] = scripts(&file);
    let unread = ours.iter().filter(|line| line.contains(UNREAD));
    assert!(unread.count() * 2 > ours.len());
    assert_eq!(theirs, ours);
}

/// Both read the formats that the recording holds, so any can be put there.
#[test]
fn expressions_are_computed_as_in_perf() {
    let directory = tempfile::tempdir().unwrap();
    let (file, workload) = (
        directory.path().join("perf.data"),
        directory.path().join("work"),
    );
    std::fs::write(&workload, "ls / | sort; sleep 0.01").unwrap();
    need_tracepoints!(&file, "sched:sched_switch", &workload);
    let mut recording = std::fs::read(&file).unwrap();
    let place = print_formats(&recording).next().unwrap();
    let mut formats = vec![Format::default()];
    for (conversions, arguments) in EXPRESSIONS {
        for argument in *arguments {
            let last = formats.last_mut().unwrap();
            let mut longer = last.clone();
            longer.add(conversions, argument);
            match longer.written().len() <= place.len() {
                true => *last = longer,
                false => {
                    formats.push(Format::default());
                    formats.last_mut().unwrap().add(conversions, argument);
                }
            }
        }
    }
    for format in formats {
        let written = format.written();
        replace(&mut recording, place.clone(), &written);
        std::fs::write(&file, &recording).unwrap();
        let [theirs, ours] = scripts(&file);
        assert!(theirs.len() > 2);
        assert_eq!(theirs, ours, "{written}");
    }
}
