//! `perfcollect convert`.

use perfcollect::output::perf_text;
use perfcollect::perf_text::{events, import};

use crate::texts;

/// All but time zero, which is a whole second of UTC: the text has no such time.
fn without_time_zero(text: &[u8]) -> Vec<&str> {
    let lines = std::str::from_utf8(text).unwrap().lines();
    lines
        .filter(|line| !line.starts_with(" swapper (cpu_idle) "))
        .collect()
}

#[test]
fn convert_writes_the_text_that_it_reads() {
    for text in texts() {
        let samples = text.samples.len() as u64;
        let all = events(&*text.bytes).unwrap();
        assert_eq!(all, [("cpu-clock".to_owned(), samples)]);
        let trace = import(&*text.bytes, "cpu-clock").unwrap();
        assert_eq!(trace.quality.notices, []);
        assert_eq!(trace.samples.len() as u64, samples);
        let weights: u64 = text.samples.iter().map(|sample| sample.weight).sum();
        assert_eq!(
            trace
                .samples
                .iter()
                .map(|sample| sample.weight.0)
                .sum::<u64>(),
            weights
        );
        let mut again = Vec::new();
        perf_text::write(&trace, &mut again).unwrap();
        assert_eq!(without_time_zero(&again), without_time_zero(&text.bytes));
    }
}
