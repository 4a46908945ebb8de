//! Tables as `perfcollect view` prints them, and as PerfView's reader has them.

use std::path::Path;

use serde_json::Value;

use crate::captured::view;
use crate::support::perfview_json;

/// Both print three decimals.
pub(crate) const ROUNDING: f64 = 0.0015;

/// What `perfcollect view` prints of a trace with one process: numbers with words behind them, and tables.
pub(crate) struct Tables {
    pub(crate) text: String,
}

impl Tables {
    #[track_caller]
    pub(crate) fn read(trace: &Path, viewer: &str) -> Self {
        let text = view(trace, viewer);
        Self { text }
    }

    /// A number that stands before some words; 0 if they do not stand there.
    pub(crate) fn stated(&self, before: &str) -> f64 {
        let number = self.text.split_once(before);
        let number = number.and_then(|(text, _)| text.rsplit([' ', '\n']).next());
        number.map_or(0.0, number_of)
    }

    /// The rows of the table with this title, in words: they stand below two lines of headings.
    #[track_caller]
    pub(crate) fn rows(&self, title: &str) -> Vec<Vec<String>> {
        let mut lines = self.text.lines().skip_while(|line| *line != title);
        assert_eq!(lines.next(), Some(title), "{}", self.text);
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        let rows = lines.take_while(|line| !line.is_empty());
        rows.skip(2).map(words).collect()
    }
}

#[track_caller]
pub(crate) fn number_of(text: &str) -> f64 {
    text.parse()
        .unwrap_or_else(|_| panic!("{text:?} is no number"))
}

#[track_caller]
pub(crate) fn expect_near(ours: f64, theirs: f64, rounding: f64, what: &str) {
    assert!((ours - theirs).abs() <= rounding, "{ours} {theirs} {what}");
}

/// The process of a table of PerfView's.
pub(crate) fn in_perfview(nettrace: &Path, viewer: &str) -> Option<Value> {
    let all = perfview_json(viewer, nettrace, &["--all"])?;
    Some(all["processes"][0].clone())
}
