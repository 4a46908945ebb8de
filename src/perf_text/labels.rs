//! The labels of a trace's `stacks.folded`: names and kinds that its `perf.data.txt` does not show.
//!
//! `perf.data.txt` escapes names for PerfView, and shows neither the kind of code nor which functions
//! are inlined. The same trace's folded stacks have the names and, as suffix, the kind.

use std::io::{BufRead, Read};

use rustc_hash::FxHashMap;

use super::error::TextError;
use crate::output::label::INLINED;
use crate::output::sanitize::{perf_symbol, perf_text_comm};
use crate::trace::{Function, FunctionKind, Pid};

/// Limit of a line, in bytes.
const MAX_LINE_BYTES: u64 = 16 << 20;
/// Limit of labels.
const MAX_LABELS: usize = 1 << 20;

/// Labels by their text in `perf.data.txt`.
#[derive(Debug, Default)]
pub struct Labels {
    names: FxHashMap<String, Label>,
    processes: FxHashMap<(Pid, String), String>,
}

#[derive(Debug)]
struct Label {
    name: Box<str>,
    /// `None`: functions of several kinds have this name.
    kind: Option<Suffix>,
}

/// The kind of code, as far as a label shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suffix {
    Kernel,
    Jit,
    Other,
}

impl Labels {
    /// Reads folded stacks.
    ///
    /// # Errors
    /// Reading fails.
    pub fn read(mut folded: impl BufRead) -> Result<Self, TextError> {
        let mut labels = Self::default();
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut limited = folded.by_ref().take(MAX_LINE_BYTES);
            if limited.read_until(b'\n', &mut line)? == 0 {
                return Ok(labels);
            }
            let text = String::from_utf8_lossy(&line);
            let stack = text.rsplit_once(' ').map_or("", |(stack, _)| stack);
            let mut frames = stack.split(';');
            labels.add_process(frames.next().unwrap_or_default());
            for frame in frames {
                labels.add(frame);
            }
        }
    }

    /// Adds `name (pid)`.
    fn add_process(&mut self, label: &str) {
        let parts = label
            .strip_suffix(')')
            .and_then(|label| label.rsplit_once(" ("));
        let parts = parts.and_then(|(name, pid)| Some((name, Pid(pid.parse().ok()?))));
        if let Some((name, pid)) = parts
            && self.processes.len() < MAX_LABELS
        {
            let text = perf_text_comm(name).trim_end().to_owned();
            self.processes.insert((pid, text), name.to_owned());
        }
    }

    fn add(&mut self, label: &str) {
        let suffixes = [
            (INLINED, Suffix::Other),
            ("_[k]", Suffix::Kernel),
            ("_[j]", Suffix::Jit),
        ];
        let found = suffixes.iter().find_map(|(suffix, kind)| {
            let name = label.strip_suffix(suffix)?;
            Some((name, *kind))
        });
        let (name, kind) = found.unwrap_or((label, Suffix::Other));
        let text = perf_symbol(name);
        if self.names.len() >= MAX_LABELS && !self.names.contains_key(&text) {
            return;
        }
        let known = self.names.entry(text).or_insert_with(|| Label {
            name: name.into(),
            kind: Some(kind),
        });
        known.kind = known.kind.filter(|known| *known == kind);
    }

    /// Restores the name and kind of a function that was read from `perf.data.txt`.
    pub(super) fn restore(&self, function: &mut Function) {
        let Some(label) = function
            .name
            .as_deref()
            .and_then(|name| self.names.get(name))
        else {
            return;
        };
        function.name = Some(label.name.clone());
        function.kind = match (label.kind, function.kind) {
            (Some(Suffix::Kernel), _) => FunctionKind::Kernel,
            (Some(Suffix::Jit), _) => FunctionKind::Jit,
            (_, kind) => kind,
        };
    }

    /// Returns the name of a process whose name was read from `perf.data.txt`.
    pub(super) fn process(&self, pid: Pid, text: &str) -> Option<&str> {
        let key = (pid, text.to_owned());
        self.processes.get(&key).map(String::as_str)
    }
}
