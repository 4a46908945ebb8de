//! Unwind rules from `.debug_frame`, which compilers write instead of `.eh_frame` for code that
//! handles no exceptions. A stripped file has it in its debug file.

use perfcollect_symbols::elf::{CallFrameRow, CallFrames, Saved};
use perfcollect_symbols::symbolizer::{FileContent, FileSource, Symbolizer};

use super::{Certainty, Finding, MAX_NEAR, Row};
use crate::machine::{CodeFile, Content};
use crate::unwind::rule::{Base, UnwindRule};

/// DWARF numbers of registers (System V ABI for x86-64, "DWARF Register Number Mapping").
const RBP: u16 = 6;
const RSP: u16 = 7;
/// Limit of what is decoded for a file, in bytes: some seconds for the slowest instructions.
const MAX_DECODED_BYTES: usize = 8 << 20;

/// The rules of one file.
pub(super) struct CallFrameRules {
    frames: CallFrames,
    /// Bytes that may still be decoded.
    left: usize,
}

impl CallFrameRules {
    /// Reads those of a file or of its debug file.
    pub(super) fn read(file: &CodeFile, symbolizer: &Symbolizer) -> Option<Self> {
        let Content::File(content) = &file.content else {
            return None;
        };
        let file = symbolizer.file(FileSource {
            content: FileContent::File(content.clone()),
            path: file.clean_path().to_owned(),
            roots: file.debug_roots(),
        });
        Some(Self {
            frames: file.call_frames()?,
            left: MAX_DECODED_BYTES,
        })
    }

    /// Returns the findings of the function that contains an address, near it.
    pub(super) fn near(&mut self, address: u64) -> Vec<Row> {
        if self.left == 0 {
            return Vec::new();
        }
        let (rows, bytes) = self.frames.rows(address);
        self.left = self.left.saturating_sub(bytes);
        let before = rows.partition_point(|row| row.range.start <= address);
        let rows = rows.iter().skip(before.saturating_sub(MAX_NEAR));
        let known = rows.take(2 * MAX_NEAR).filter_map(|row| {
            Some(Row {
                start: row.range.start,
                end: row.range.end,
                finding: finding(row)?,
            })
        });
        known.collect()
    }

    /// Returns the memory that it occupies, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.frames.bytes()
    }
}

/// Returns what a row shows. Returns `None` for the frames of hand-written code that rsp and rbp do
/// not describe.
pub(in crate::unwind) fn finding(row: &CallFrameRow) -> Option<Finding> {
    match row.return_address {
        Saved::Lost => return Some(Finding::Root),
        Saved::AtCfa(-8) => {}
        Saved::AtCfa(_) | Saved::Same | Saved::Complex => return None,
    }
    let (base, offset) = match row.cfa? {
        (RSP, offset) => (Base::Rsp, offset),
        (RBP, offset) => (Base::Rbp, offset),
        _ => return None,
    };
    let saved = match row.frame_pointer {
        Saved::Same | Saved::Lost => None,
        // Compilers do not mention that an epilogue has restored rbp: nothing is below rsp.
        Saved::AtCfa(saved) if base == Base::Rsp && offset.saturating_add(saved) < 0 => None,
        Saved::AtCfa(saved) => Some(saved),
        Saved::Complex => return None,
    };
    let rule = UnwindRule::new(base, offset, saved)?;
    Some(Finding::Caller(rule, Certainty::Checked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_rsp_and_rbp_have_rules() {
        let finding = |cfa, return_address, frame_pointer| {
            finding(&CallFrameRow {
                range: 0..1,
                cfa: Some(cfa),
                return_address,
                frame_pointer,
            })
        };
        let checked = |base, cfa, saved| {
            let rule = UnwindRule::new(base, cfa, saved);
            rule.map(|rule| Finding::Caller(rule, Certainty::Checked))
        };
        let at = Saved::AtCfa;
        assert_eq!(
            finding((RSP, 24), at(-8), at(-16)),
            checked(Base::Rsp, 24, Some(-16))
        );
        assert_eq!(
            finding((RBP, 16), at(-8), Saved::Same),
            checked(Base::Rbp, 16, None)
        );
        assert_eq!(
            finding((RSP, 8), at(-8), at(-16)),
            checked(Base::Rsp, 8, None)
        );
        assert_eq!(
            finding((RSP, 8), Saved::Lost, Saved::Same),
            Some(Finding::Root)
        );
        assert_eq!(finding((3, 8), at(-8), Saved::Same), None);
        assert_eq!(finding((RSP, 8), at(-16), Saved::Same), None);
        assert_eq!(finding((RSP, 8), at(-8), Saved::Complex), None);
    }
}
