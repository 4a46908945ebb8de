//! Untrusted text of `perf script`, also as the text of a written trace.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfcollect::output::summary::Summary;
use perfcollect::perf_data::EventGroup;
use perfcollect::perf_text::{Labels, events, import, import_written};
use perfcollect::selection::{CodePatterns, GroupPatterns, Patterns, Selection, Times};
use perfcollect::trace::Trace;

fuzz_target!(|data: &[u8]| {
    let Ok((info, samples)) = events(data) else {
        return;
    };
    // The input is also the folded stacks, which contain the labels of a written trace.
    let mut labels = Labels::default();
    let count = samples.iter().sum();
    labels
        .read(data, u64::MAX)
        .expect("reading memory does not fail");
    if let Ok(written) = import_written(data, [(data, count)], labels, count) {
        assert_eq!(written.lines.len(), written.trace.frames.len());
        check(&written.trace);
    }
    let Some(first) = EventGroup::all(&info).into_iter().next() else {
        return;
    };
    if let Ok(mut trace) = import(data, &info, &first) {
        check(&trace);
        let samples = trace.samples.len();
        let part = selection();
        part.apply(&mut trace, std::iter::empty());
        check(&trace);
        assert!(trace.samples.len() <= samples);
        let _ = Summary::new(&trace);
    }
});

fn selection() -> Selection {
    let pattern = |text: &str| Patterns::parse(text).expect("the pattern is valid");
    Selection {
        times: Times {
            from: Some(0.0),
            ..Times::default()
        },
        patterns: CodePatterns {
            group: GroupPatterns::parse("{%}!=>module $1").expect("the pattern is valid"),
            fold: pattern("a"),
            exclude: pattern("^b"),
            just_my_code: true,
            ..CodePatterns::default()
        },
        ..Selection::default()
    }
}

fn check(trace: &Trace) {
    for sample in trace.samples.iter() {
        assert!(!trace.process_of(sample.thread).pid.0.is_negative());
        for frame in trace.stacks.leaf_first(sample.stack) {
            assert!(trace.functions_leaf_first(frame).count() > 0);
        }
    }
}
