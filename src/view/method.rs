//! Callers and callees of a method, from folded stacks.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{self, Write};

use super::count;
use super::report::{percent, short};
use crate::output::sanitize::truncate;

/// Maximum number of distinct frames that are counted in a table. The others share a row.
const MAX_ROWS: usize = 100_000;
/// Maximum length of their names, in bytes.
const MAX_NAME_BYTES: usize = 1024;
/// Name of the row of the others.
const OTHERS: &str = "[others]";

/// Callers and callees of the frames whose name contains a pattern.
#[derive(Debug)]
pub(super) struct MethodView {
    /// As it was typed, for messages.
    pattern: String,
    /// What is between its `*`, in lower case.
    parts: Vec<String>,
    samples: u64,
    own: u64,
    total: u64,
    frames: HashMap<String, u64>,
    callers: HashMap<String, u64>,
    callees: HashMap<String, u64>,
}

impl MethodView {
    /// Creates an empty view. The pattern matches in any case; `*` stands for any characters.
    pub(super) fn new(pattern: &str) -> Self {
        Self {
            pattern: pattern.to_owned(),
            parts: pattern
                .to_lowercase()
                .split('*')
                .map(str::to_owned)
                .collect(),
            samples: 0,
            own: 0,
            total: 0,
            frames: HashMap::new(),
            callers: HashMap::new(),
            callees: HashMap::new(),
        }
    }

    /// Adds a line `process;root;...;leaf COUNT`. Returns the samples of all lines until now, or
    /// `None` if the line is malformed.
    pub(super) fn push_line(&mut self, line: &str) -> Option<u64> {
        let (stack, samples) = line.rsplit_once(' ')?;
        let samples: u64 = samples.parse().ok().filter(|samples| *samples > 0)?;
        self.samples = self.samples.checked_add(samples)?;
        // The first part is the process.
        let frames: Vec<&str> = stack.split(';').collect();
        let is_it = |frame: &str| {
            let frame = frame.to_lowercase();
            let mut rest = &*frame;
            self.parts.iter().all(|part| {
                let after = rest
                    .find(&**part)
                    .and_then(|at| rest.get(at + part.len()..));
                rest = after.unwrap_or_default();
                after.is_some()
            })
        };
        let frames = frames.get(1..).unwrap_or_default();
        let mut found = frames.iter().enumerate().filter(|(_, frame)| is_it(frame));
        // In a recursion, the caller is that of the first call, the callee that of the last one.
        let Some((outermost, _)) = found.next() else {
            return Some(self.samples);
        };
        let innermost = found.next_back().map_or(outermost, |(at, _)| at);
        self.total += samples;
        add(&mut self.frames, frames[innermost], samples);
        match outermost.checked_sub(1) {
            Some(caller) => add(&mut self.callers, frames[caller], samples),
            None => add(&mut self.callers, "[root]", samples),
        }
        match frames.get(innermost + 1) {
            Some(callee) => add(&mut self.callees, callee, samples),
            None => self.own += samples,
        }
        Some(self.samples)
    }

    /// Prints the samples of the method, its callers and its callees.
    pub(super) fn print(&self, top: usize, out: &mut impl Write) -> io::Result<()> {
        if self.frames.is_empty() {
            return writeln!(out, "no function contains '{}'", short(&self.pattern));
        }
        writeln!(
            out,
            "{} of {} in or below it ({}), {} in itself",
            percent(self.total, self.samples),
            count(self.samples, "sample", "samples"),
            self.total,
            percent(self.own, self.samples)
        )?;
        for (title, rows) in [
            ("method", &self.frames),
            ("callers", &self.callers),
            ("callees", &self.callees),
        ] {
            writeln!(out, "\n        %  samples  {title}")?;
            let mut rows: Vec<(&String, &u64)> = rows.iter().collect();
            rows.sort_by_key(|&(name, samples)| (Reverse(*samples), name));
            for (name, samples) in rows.iter().take(top) {
                writeln!(
                    out,
                    "{:>9} {samples:>8}  {}",
                    percent(**samples, self.samples),
                    short(name)
                )?;
            }
            if rows.len() > top {
                writeln!(out, "           ... and {} more", rows.len() - top)?;
            }
        }
        Ok(())
    }
}

fn add(rows: &mut HashMap<String, u64>, name: &str, samples: u64) {
    if let Some(row) = rows.get_mut(name) {
        *row += samples;
        return;
    }
    let name = if rows.len() < MAX_ROWS {
        truncate(name, MAX_NAME_BYTES)
    } else {
        OTHERS
    };
    *rows.entry(name.to_owned()).or_default() += samples;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_callers_and_callees_of_recursive_methods_once() {
        let mut view = MethodView::new("Sort");
        for line in [
            "p (1);main;sort;compare 3",
            "p (1);main;sort;split;sort 4",
            "p (1);sort;copy 2",
            "sort (2);main 5",
        ] {
            assert!(view.push_line(line).is_some());
        }
        let mut text = Vec::new();
        view.print(10, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(
            text,
            "64.3 % of 14 samples in or below it (9), 28.6 % in itself\n\
             \n        %  samples  method\n   64.3 %        9  sort\n\
             \n        %  samples  callers\n   50.0 %        7  main\n   14.3 %        2  [root]\n\
             \n        %  samples  callees\n   21.4 %        3  compare\n   14.3 %        2  copy\n"
        );
        assert_eq!(view.push_line("no count"), None);
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, expected) in [
            ("*eval*", 3),
            ("py*eval", 3),
            ("eval*py", 0),
            ("*", 5),
            ("_EvalFrame", 3),
        ] {
            let mut view = MethodView::new(pattern);
            view.push_line("p (1);main;_PyEval_EvalFrame;work 3")
                .unwrap();
            view.push_line("p (1);other 2").unwrap();
            assert_eq!(view.total, expected, "{pattern}");
        }
    }
}
