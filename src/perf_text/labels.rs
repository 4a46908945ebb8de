//! The labels of a trace's `stacks.folded`: names and kinds that its `perf.data.txt` does not show.
//!
//! `perf.data.txt` escapes names for PerfView, and shows neither the kind of code nor which functions
//! are inlined. The same trace's folded stacks have the names and, as suffix, the kind.

use std::io::{BufRead, Read};

use hashbrown::{HashMap, HashSet};

use super::error::TextError;
use crate::output::label::INLINED;
use crate::output::sanitize::{folded, perf_symbol, perf_text_comm};
use crate::trace::{Function, FunctionKind, Pid};

/// Limit of a line, in bytes.
const MAX_LINE_BYTES: u64 = 16 << 20;
/// Limit of all labels, in bytes.
const MAX_BYTES: usize = 256 << 20;
/// Memory of a label beside its texts, in bytes.
const LABEL_BYTES: usize = 128;

/// Labels by their text in `perf.data.txt`. The file chooses the keys, so their hashes have a random seed.
#[derive(Debug, Default)]
pub struct Labels {
    names: HashMap<String, Label>,
    processes: HashMap<(Pid, String), String>,
    /// Functions that are inlined into one of the same name, by their text in `perf.data.txt`.
    in_themselves: HashSet<String>,
    bytes: usize,
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
    /// Adds the labels of the folded stacks of so many samples: each line is of one or more of them.
    ///
    /// # Errors
    /// Reading fails, or there are more lines: a small archive may contain any number.
    pub fn read(&mut self, mut stacks: impl BufRead, samples: u64) -> Result<(), TextError> {
        let mut line = Vec::new();
        let mut lines = 0;
        loop {
            line.clear();
            let mut limited = stacks.by_ref().take(MAX_LINE_BYTES);
            if limited.read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            lines += 1;
            if lines > samples {
                return Err(TextError::NotWritten);
            }
            let text = String::from_utf8_lossy(&line);
            let stack = text.rsplit_once(' ').map_or("", |(stack, _)| stack);
            let mut frames = stack.split(';');
            self.add_process(frames.next().unwrap_or_default());
            let mut outer = "";
            for frame in frames {
                let name = self.add(frame);
                if name == outer && frame.ends_with(INLINED) {
                    self.add_in_itself(name);
                }
                outer = name;
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
            && self.bytes < MAX_BYTES
        {
            let text = perf_text_comm(name).trim_end().to_owned();
            let bytes = LABEL_BYTES + text.len() + name.len();
            self.processes.entry((pid, text)).or_insert_with(|| {
                self.bytes += bytes;
                name.to_owned()
            });
        }
    }

    /// Returns the name in it.
    fn add<'a>(&mut self, label: &'a str) -> &'a str {
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
        if let Some(known) = self.names.get_mut(&text) {
            known.kind = known.kind.filter(|known| *known == kind);
        } else if self.bytes < MAX_BYTES {
            self.bytes += LABEL_BYTES + text.len() + name.len();
            let label = Label {
                name: name.into(),
                kind: Some(kind),
            };
            self.names.insert(text, label);
        }
        name
    }

    fn add_in_itself(&mut self, name: &str) {
        let text = perf_symbol(name);
        let bytes = LABEL_BYTES + text.len();
        if self.bytes < MAX_BYTES && self.in_themselves.insert(text) {
            self.bytes += bytes;
        }
    }

    /// Returns whether a function, as `perf.data.txt` shows it, is inlined into one of the same name.
    pub(super) fn is_in_itself(&self, symbol: &[u8]) -> bool {
        str::from_utf8(symbol).is_ok_and(|symbol| self.in_themselves.contains(symbol))
    }

    /// Restores the name and kind of a function that was read from `perf.data.txt`.
    pub(super) fn restore(&self, function: &mut Function, address: u64) {
        let text = match &function.name {
            Some(name) => folded(name),
            None => {
                let offset = function.start.unwrap_or(address);
                folded(&format!("{}+{offset:#x}", function.module))
            }
        };
        let Some(label) = self.names.get(&perf_symbol(&text)) else {
            return;
        };
        // A name with `;` is as it was in the text only.
        if function.name.is_some() && text != *label.name {
            function.name = Some(label.name.clone());
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_lines_than_samples() {
        let stacks = &b"p (1);f 2\np (1);g 1\n"[..];
        assert!(Labels::default().read(stacks, 2).is_ok());
        let error = Labels::default().read(stacks, 1);
        assert!(matches!(error, Err(TextError::NotWritten)), "{error:?}");
    }
}
