//! Tables of `perfcollect view` and of PerfView's reader.

use std::path::Path;

use serde_json::Value;

use crate::captured::view;
use crate::support::perfview_json;

/// Both print three decimals.
pub(crate) const ROUNDING: f64 = 0.0015;

/// The output of `perfcollect view` for a trace with one process: numbers followed by words, and
/// tables.
pub(crate) struct Tables {
    pub(crate) text: String,
}

impl Tables {
    #[track_caller]
    pub(crate) fn read(trace: &Path, viewer: &str) -> Self {
        let text = view(trace, viewer);
        Self { text }
    }

    /// Returns the number that precedes some words, or 0 if they are absent.
    pub(crate) fn stated(&self, before: &str) -> f64 {
        let number = self.text.split_once(before);
        let number = number.and_then(|(text, _)| text.rsplit([' ', '\n']).next());
        number.map_or(0.0, number_of)
    }

    /// Returns the rows of the table with this title, split into words, without the two heading
    /// lines.
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

/// Returns the process of a table of PerfView.
pub(crate) fn in_perfview(nettrace: &Path, viewer: &str) -> Option<Value> {
    let all = perfview_json(viewer, nettrace, &["--all"])?;
    Some(all["processes"][0].clone())
}
