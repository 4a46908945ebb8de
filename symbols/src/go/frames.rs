//! The inlined functions at an address.
//!
//! Each function has a list of the calls that were inlined into it, and a table of pc values with
//! the index in it of the innermost one.
//!
//! ```text
//! 1.16  i16 index of the caller, -1: the function itself; u8 function id, u8 0, u32 file and
//!       u32 line of the call, u32 offset of the name, u32 offset of an instruction of the caller
//! 1.20  u8 function id, u8[3] 0, u32 offset of the name, u32 offset of an instruction of the
//!       caller, whose line is that of the call, u32 line of the start
//! ```

use super::function::GoFunction;
use super::header::Version;
use super::pc_values::Steps;
use crate::memory::Memory;

/// Limit of frames at one address. Go's compiler inlines to a much smaller depth.
pub const MAX_FRAMES: usize = 256;

/// A function at an address, with the place in its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoFrame<'a> {
    /// The name, as in [`GoFunction::name`].
    pub name: &'a [u8],
    /// The file, as in [`GoFunction::line`].
    pub file: Option<&'a [u8]>,
    /// The line, from 1. In the caller of an inlined function, the line of the call.
    pub line: Option<u32>,
}

impl<'a> GoFrame<'a> {
    fn new(name: &'a [u8], line: Option<(&'a [u8], u32)>) -> Self {
        Self {
            name,
            file: line.map(|(file, _)| file),
            line: line.map(|(_, line)| line),
        }
    }
}

/// An inlined call.
struct Call<'a> {
    name: &'a [u8],
    caller: Caller<'a>,
}

/// Where an inlined call is.
enum Caller<'a> {
    /// In the function at an address.
    At(u64),
    /// In another inlined call, or in the function itself if the index is negative.
    Index(i32, Option<(&'a [u8], u32)>),
}

impl<'a> GoFunction<'a> {
    /// Returns the frames at an address: inlined functions, innermost first, then the function.
    ///
    /// Without inlined functions there is one frame. Returns only the function, with the line of
    /// the innermost one, if the records are corrupt, if there are more than [`MAX_FRAMES`], or if
    /// the file has no `moduledata`, which Go 1.18 and later need for them. Returns no frames if
    /// the address is not in the function.
    ///
    /// For return addresses, look up the address minus one.
    #[must_use]
    pub fn frames(&self, address: u64) -> Vec<GoFrame<'a>> {
        if !self.range().contains(&address) {
            return Vec::new();
        }
        let steps = Steps::default();
        let inlined = self.inlined(address, &steps);
        inlined.unwrap_or_else(|| vec![GoFrame::new(self.name, self.line(address))])
    }

    fn inlined(&self, address: u64, steps: &Steps) -> Option<Vec<GoFrame<'a>>> {
        let tree = self
            .record
            .inline_tree?
            .checked_add(self.table.data_start?)?;
        let mut frames = Vec::new();
        let mut index = self.value(self.record.inline_index, address, steps)?;
        let mut line = self.line_with(address, steps);
        while index >= 0 {
            let call = self.call(tree, index.cast_unsigned())?;
            frames.push(GoFrame::new(call.name, line));
            (index, line) = match call.caller {
                Caller::At(caller) => (
                    self.value(self.record.inline_index, caller, steps)?,
                    self.line_with(caller, steps),
                ),
                Caller::Index(index, line) => (index, line),
            };
            if frames.len() == MAX_FRAMES {
                return None;
            }
        }
        frames.push(GoFrame::new(self.name, line));
        Some(frames)
    }

    /// Reads the record of an inlined call.
    fn call(&self, tree: u64, index: u32) -> Option<Call<'a>> {
        let table = self.table;
        let words = table.header.words;
        let mut record = [0; 20];
        let size = match table.header.version {
            Version::Go1_16 | Version::Go1_18 => 20,
            Version::Go1_20 => 16,
        };
        let record = record.get_mut(..size)?;
        let address = tree.checked_add(u64::from(index) * size as u64)?;
        table.image.read_exact(address, record).ok()?;
        let field = |index: usize| words.u32(record, index * 4);
        Some(match table.header.version {
            Version::Go1_20 => Call {
                name: table.name(field(1)?),
                caller: Caller::At(self.start.checked_add(field(2)?.into())?),
            },
            Version::Go1_16 | Version::Go1_18 => {
                let parent = *record.first_chunk()?;
                let parent = match words.is_big_endian {
                    true => i16::from_be_bytes(parent),
                    false => i16::from_le_bytes(parent),
                };
                let file = table.file(&self.record, field(1)?.cast_signed());
                let line = file.zip(field(2));
                Call {
                    name: table.name(field(3)?),
                    caller: Caller::Index(parent.into(), line),
                }
            }
        })
    }
}
