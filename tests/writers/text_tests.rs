//! Checks the text formats: small traces in full, and the grammar with problematic names.

use perfcollect::output::summary::Summary;
use perfcollect::output::{NameStyle, flame_graph, folded, perf_text};
use perfcollect::selection::Selection;
use perfcollect::trace::{FunctionKind, Trace};
use perfcollect::view;
use proptest::prelude::*;

use crate::build::{self, BOOT_UNIX, Builder, MS, START};
use crate::measure::busy_server;
use crate::support::grammar;
use crate::support::zip::unzip;
use crate::{archive_bytes, write};

fn perf_text_of(trace: &Trace) -> String {
    let mut out = Vec::new();
    perf_text::write(trace, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn folded_of(trace: &Trace) -> String {
    let mut out = Vec::new();
    folded::write(trace, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Scripts of the flame graph: for the pointer and for the keys.
const SCRIPTS: usize = 2;

fn svg_of(trace: &Trace) -> String {
    let mut out = Vec::new();
    flame_graph::write(trace, NameStyle::Full, "</title><script>", &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Creates a trace of two overlapping samples with an inlined function in a tiered method.
fn small() -> Trace {
    let mut b = Builder::new();
    let app = b.thread(7, "my app", 8);
    let main = b.named(FunctionKind::Native, "/lib/libc.so.6", "main");
    let method = b.function(FunctionKind::Jit, "App", "A::B(int32)");
    let inlined = b.function(FunctionKind::Jit, "App", "A::C()");
    b.trace.functions[method.index()].tier = Some("OptimizedTier1".into());
    b.trace.functions[inlined.index()].inlined = true;
    let both = b.frame(&[method, inlined]);
    let read = b.named(FunctionKind::Kernel, "vmlinux", "ksys_read");
    b.sample(START, MS, app, &[main, both]);
    b.sample(START + MS / 2, MS, app, &[main, both, read]);
    b.trace
}

#[test]
fn writes_perf_text() {
    assert_eq!(
        perf_text_of(&small()),
        "\
# ========
# written by perfcollect; for PerfView a sample ends at \"# 0/0 [CPU] TIME: end:\"
# ========
#
 swapper (cpu_idle) 0/0 [000] 4321.000000000: 1 cpu-clock: 

my app 7/8 [001] 4321.987654321: 1000000 cpu-clock: 
\t1080 A::C() (App)
\t1080 A::B(int32)[OptimizedTier1] (App)
\t1040 main (libc.so.6)

# 0/0 [001] 4321.988654321: end:
my app 7/8 [002] 4321.988154321: 1000000 cpu-clock: 
\t10c0 ksys_read (vmlinux)
\t1080 A::C() (App)
\t1080 A::B(int32)[OptimizedTier1] (App)
\t1040 main (libc.so.6)

# 0/0 [002] 4321.989154321: end:
"
    );
}

#[test]
fn writes_folded_stacks() {
    assert_eq!(
        folded_of(&small()),
        "\
my app (7);main;A::B(int32)_[j];A::C()_[i] 1
my app (7);main;A::B(int32)_[j];A::C()_[i];ksys_read_[k] 1
"
    );
}

#[test]
fn folded_keeps_equal_callers_adjacent() {
    let mut b = Builder::new();
    let thread = b.thread(1, "p", 1);
    let names = ["main", "main(int)", "x", "y"];
    let [main, main_int, x, y] = names.map(|name| b.named(FunctionKind::Native, "m", name));
    let stacks: [&[_]; 6] = [
        &[main],
        &[main_int, x],
        &[main, y],
        &[main, x],
        &[main_int],
        &[main, y],
    ];
    for stack in stacks {
        b.sample(START, MS, thread, stack);
    }
    let expected =
        "p (1);main 1\np (1);main;x 1\np (1);main;y 2\np (1);main(int) 1\np (1);main(int);x 1\n";
    assert_eq!(folded_of(&b.trace), expected);
    // The flame graph has one rectangle per function.
    assert_eq!(svg_of(&b.trace).matches("<title>main (").count(), 1);
}

/// A recursion that goes different ways has as many frames as samples and depth.
#[test]
fn the_size_of_a_flame_graph_is_bounded() {
    let mut b = Builder::new();
    let thread = b.thread(1, "p", 1);
    let step = b.named(FunctionKind::Native, "/p", "step");
    for sample in 0..300 {
        let way = b.named(FunctionKind::Native, "/p", &format!("way{sample}"));
        let mut stack = vec![step; 1000];
        stack[0] = way;
        b.sample(START + sample * MS, MS, thread, &stack);
    }
    let svg = svg_of(&b.trace);
    let frames = svg.matches("<title>step").count();
    // Of 300 000.
    assert!((50_000..100_000).contains(&frames), "{frames}");
    assert!(svg.contains("beyond a depth of 256 are part of their callers"));
    assert!(!svg_of(&small()).contains("beyond a depth"));
    // The stacks are whole.
    assert_eq!(folded_of(&b.trace).matches(";step").count(), 300 * 999);
}

#[test]
fn folded_shows_truncated_and_unresolved_frames() {
    let folded = folded_of(&build::realistic());
    assert!(
        folded.contains("dotnet (100);[truncated];libhidden.so+0x1"),
        "{folded}"
    );
    assert!(
        folded.contains("postgres: a b (200);__libc_start_main;unmapped+0x"),
        "{folded}"
    );
    // A function without a name has one row for all its addresses.
    assert_eq!(
        folded
            .matches(";__libc_start_main;libhidden.so+0x1230 ")
            .count(),
        1
    );
}

#[test]
fn writes_empty_trace_and_sample_at_time_zero() {
    let empty = perf_text_of(&Trace::default());
    assert!(
        empty.ends_with(" swapper (cpu_idle) 0/0 [000] 1.000000000: 1 unnamed: \n\n"),
        "{empty}"
    );
    let mut b = Builder::new();
    let thread = b.thread(1, "p", 1);
    b.trace.info.start_ns = 0;
    b.trace.info.start_unix_ns = BOOT_UNIX;
    b.sample(0, MS, thread, &[]);
    let parsed = grammar::parse(perf_text_of(&b.trace).as_bytes());
    assert_eq!(
        (parsed.zero, parsed.events[0].time),
        (1_000_000_000, 1_000_000_000)
    );
    assert_eq!(parsed.events[0].weight, MS);
}

#[test]
fn late_samples_keep_their_weight() {
    let mut b = Builder::new();
    let thread = b.thread(1, "p", 1);
    b.sample(START + 5 * MS, MS, thread, &[]);
    b.sample(START, 2 * MS, thread, &[]);
    let parsed = grammar::parse(perf_text_of(&b.trace).as_bytes());
    let weights: Vec<u64> = parsed.events.iter().map(|event| event.weight).collect();
    assert_eq!(weights, [MS, 2 * MS]);
}

/// The tables use the names of the folded stacks and of the hot path.
#[test]
fn tables_show_inlined_and_unresolved_functions() {
    let table = |trace: &Trace| {
        let mut out = Vec::new();
        view::report::methods(&Summary::new(trace), 50, true, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let inlined = table(&small());
    assert_eq!(inlined.matches("App!A::C()_[i]\n").count(), 2, "{inlined}");
    assert_eq!(inlined.matches("_[i]").count(), 2, "{inlined}");
    let unnamed = table(&build::realistic());
    assert!(unnamed.contains(" libhidden.so+0x1230\n"), "{unnamed}");
    assert!(!unnamed.contains("!0x"), "{unnamed}");
    // The function also has code that is not inlined.
    let mut both = small();
    let mut own = both.functions[2].clone();
    own.inlined = false;
    both.functions[0] = own;
    assert!(!table(&both).contains("_[i]"));
}

#[test]
fn summary_counts_recursion_once_and_merges_tiers() {
    let summary = Summary::new(&build::realistic());
    let spin = "App.Work::Spin(int32)";
    let mut methods = summary.methods.iter();
    let spin = methods.find(|method| method.name == spin).unwrap();
    assert!(spin.total_samples <= summary.samples && spin.self_samples < spin.total_samples);
    assert_eq!(
        summary
            .methods
            .iter()
            .filter(|m| m.name == spin.name)
            .count(),
        1
    );
    assert_eq!(
        summary.methods.iter().map(|m| m.self_samples).max(),
        Some(summary.methods[0].self_samples)
    );
    let json = serde_json::to_string_pretty(&summary).unwrap();
    assert_eq!(serde_json::from_str::<Summary>(&json).unwrap(), summary);
}

#[test]
fn svg_contains_no_script_of_target() {
    let svg = svg_of(&build::hostile());
    assert_eq!(svg.matches("<script").count(), SCRIPTS);
    assert_eq!(svg.matches("</script>").count(), SCRIPTS);
    assert!(svg.contains("&lt;/script&gt;") && svg.ends_with("</g></svg>"));
    assert!(!svg.contains(|c: char| c.is_control() && c != '\n' && c != '\t' && c != '\r'));
    assert!(!svg.contains('\u{202e}'));
    assert_eq!(svg, svg_of(&build::hostile()));
    assert!(svg_of(&Trace::default()).contains("no samples"));
}

#[test]
fn archive_is_reproducible_and_starts_with_text() {
    let trace = build::realistic();
    let summary = Summary::new(&trace);
    let bytes = archive_bytes(&trace, &summary);
    assert_eq!(bytes, archive_bytes(&trace, &summary));
    let names: Vec<_> = unzip(&bytes).into_iter().map(|(name, _)| name).collect();
    let entries = [
        "perf.data.txt",
        "stacks.folded",
        "flamegraph.svg",
        "summary.json",
        "perfcollect.log",
    ];
    assert_eq!(names, entries.map(|entry| format!("test.trace/{entry}")));
}

/// The writer compresses stacks as references to earlier text: each sample must keep its stack.
#[test]
fn archive_keeps_stack_of_each_sample() {
    let mut deep = Builder::new();
    let thread = deep.thread(1, "deep", 1);
    let f = deep.named(FunctionKind::Native, "m", "f");
    let g = deep.named(FunctionKind::Native, "m", "g");
    for at in 0..200 {
        let mut stack = vec![f; 990 + at % 20];
        stack.extend(vec![g; at % 7]);
        deep.sample(START + at as u64 * MS, MS, thread, &stack);
    }
    for trace in [busy_server(6000), deep.trace] {
        let archive = archive_bytes(&trace, &Summary::new(&trace));
        let (_, text) = unzip(&archive).remove(0);
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text, perf_text_of(&trace));

        let mut samples = trace.samples.iter();
        let lines = text.split_inclusive('\n');
        let text: String = lines.filter(|line| !line.starts_with('#')).collect();
        let (_, text) = text.split_once("\n\n").unwrap();
        for lines in text.split_terminator("\n\n") {
            let (head, stack) = lines.split_once('\n').unwrap_or((lines, ""));
            let sample = samples.next().unwrap();
            let mut expected: Vec<String> = Vec::new();
            for frame in trace.stacks.leaf_first(sample.stack) {
                for function in trace.functions_leaf_first(frame) {
                    let offset = trace.frames[frame.index()].offset;
                    let function = &trace.functions[function.index()];
                    let name = function.name.as_deref().unwrap();
                    expected.push(format!("\t{offset:x} {name} ({})", function.module));
                }
            }
            if expected.len() >= 1000 {
                expected.truncate(999);
                expected.push("\t0 {truncated} (perfcollect)".into());
            }
            assert!(
                stack.lines().eq(&expected),
                "{head}: {stack}\n{expected:#?}"
            );
        }
        assert_eq!(samples.next(), None);
    }
}

#[test]
fn view_prints_written_archive() {
    for trace in [build::realistic(), build::hostile(), Trace::default()] {
        let written = write(&trace);
        let rows = view::Rows {
            top: 20,
            full: true,
            fits: false,
        };
        let mut out = Vec::new();
        let opened = view::OpenTrace::open(&written.path, &Selection::default()).unwrap();
        view::view(&opened, rows, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.starts_with(&format!("{} samples", written.summary.samples)),
            "{text}"
        );
        assert!(text.contains(" -o flamegraph.svg"), "{text}");
        assert!(
            !text.contains(|c: char| c.is_control() && c != '\n'),
            "{text}"
        );
    }
}

fn hostile_name() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[\\[\\]() /:;+0x3!|\n\t\u{85}é.map-]{0,20}",
        prop::sample::select(
            build::HOSTILE_FUNCTIONS
                .map(|(_, name, _)| name.to_owned())
                .to_vec()
        ),
        prop::sample::select(
            build::HOSTILE_COMMS
                .map(|(name, _)| name.to_owned())
                .to_vec()
        ),
    ]
}

proptest! {
    // proptest finds its files of failures for unit tests only.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn names_never_break_lines(
        names in prop::collection::vec((hostile_name(), hostile_name(), hostile_name()), 1..8),
        samples in prop::collection::vec((0u64..3_000_000, 0u64..5_000_000, 0usize..8, 0usize..8), 0..30),
        event in hostile_name(),
    ) {
        let mut b = Builder::new();
        b.trace.info.event = event;
        let mut frames = Vec::new();
        let mut threads = Vec::new();
        for (number, (comm, module, name)) in names.iter().enumerate() {
            threads.push(b.thread(number as i32, comm, number as i32));
            frames.push(b.named(FunctionKind::Jit, module, name));
            b.trace.functions[number].tier = Some(["OptimizedTier1", name][number % 2].into());
        }
        let mut time = START;
        for (gap, weight, thread, depth) in samples {
            time += gap;
            b.sample(time, weight, threads[thread % threads.len()], &frames[..depth.min(frames.len())]);
        }

        let parsed = grammar::parse(perf_text_of(&b.trace).as_bytes());
        prop_assert_eq!(parsed.events.len(), b.trace.samples.len());
        for (event, sample) in parsed.events.iter().zip(b.trace.samples.iter()) {
            prop_assert_eq!((event.time, event.weight), (sample.time.0, sample.weight.0));
            prop_assert_eq!(event.pid, b.trace.process_of(sample.thread).pid.0);
            prop_assert_eq!(event.frames.len(), b.trace.stacks.leaf_first(sample.stack).count());
        }

        let mut folded_samples = 0;
        for line in folded_of(&b.trace).lines() {
            let (stack, count) = line.rsplit_once(' ').unwrap();
            prop_assert!(!stack.split(';').any(str::is_empty) && !stack.contains(|c: char| c.is_control()));
            folded_samples += count.parse::<usize>().unwrap();
        }
        prop_assert_eq!(folded_samples, b.trace.samples.len());
        prop_assert_eq!(svg_of(&b.trace).matches("<script").count(), SCRIPTS);
    }
}
