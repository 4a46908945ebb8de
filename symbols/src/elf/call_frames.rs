//! Rows of `.debug_frame`, or of `.eh_frame` in a debug file: how to find the caller of an
//! instruction (DWARF 5, section 6.4).

use std::collections::HashMap;
use std::ops::Range;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, DebugFrame, EhFrame, EndianSlice, LittleEndian, Register,
    RegisterRule, RunTimeEndian, UnwindContext, UnwindOffset, UnwindSection, X86_64,
};

use super::cie::{has_small_cies, is_small_cie};
use super::headers::Headers;
use super::source::Source;
use super::unwind::{self, Section};
use super::{ElfError, code};

/// Limit of functions. Those of 16 MiB have 32 bytes each.
const MAX_FUNCTIONS: usize = 1 << 19;
/// Limit of the description of a function, in bytes. The longest one of rustc has 34 KB.
const MAX_ENTRY_BYTES: usize = 64 << 10;
/// Size of addresses on x86-64.
const ADDRESS_BYTES: u8 = 8;
const LITTLE: RunTimeEndian = RunTimeEndian::Little;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// A section with rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameSection {
    /// `.debug_frame`, which the loader does not map.
    Debug,
    /// `.eh_frame`.
    Eh,
}

/// Where the caller's value of a register is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saved {
    /// In the register.
    Same,
    /// In memory, at an offset from the CFA.
    AtCfa(i64),
    /// Nowhere. The outermost frame has no return address.
    Lost,
    /// An expression or another register has it.
    Complex,
}

/// What a section has for some instructions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallFrameRow {
    /// Addresses (SVMAs) of the instructions.
    pub range: Range<u64>,
    /// DWARF number of a register, and the offset of the CFA from it. `None` for an expression.
    pub cfa: Option<(u16, i64)>,
    /// Where the return address is.
    pub return_address: Saved,
    /// Where the caller's rbp is.
    pub frame_pointer: Saved,
}

#[derive(Debug)]
struct Function {
    range: Range<u64>,
    /// Offset of its description in the section.
    offset: u32,
}

/// The rows of an x86-64 file, which are decoded on demand.
#[derive(Debug)]
pub struct CallFrames {
    section: Section,
    kind: FrameSection,
    bases: BaseAddresses,
    /// Sorted by start.
    functions: Vec<Function>,
}

impl CallFrames {
    pub(super) fn read(
        source: &Source,
        headers: &Headers,
        kind: FrameSection,
    ) -> Result<Option<Self>, ElfError> {
        if !code::is_x86_64(headers) {
            return Ok(None);
        }
        let section = match kind {
            FrameSection::Debug => unwind::debug_frame(source, headers)?,
            FrameSection::Eh => {
                unwind::mapped(source, headers, ".eh_frame", unwind::MAX_MAPPED_BYTES)?
            }
        };
        let Some(section) = section else {
            return Ok(None);
        };
        let start = |name| unwind::range(headers, name).map_or(0, |range| range.start);
        let bases = BaseAddresses::default()
            .set_eh_frame(section.address)
            .set_text(start(b".text"))
            .set_got(start(b".got"));
        Ok(Self::new(section, kind, bases))
    }

    /// Uses an `.eh_frame` at an address that belongs to no file.
    pub(crate) fn of_eh_frame(address: u64, data: Vec<u8>) -> Option<Self> {
        let bases = BaseAddresses::default().set_eh_frame(address);
        let data = data.into();
        Self::new(Section { address, data }, FrameSection::Eh, bases)
    }

    /// Returns `None` if no function can be read.
    fn new(section: Section, kind: FrameSection, bases: BaseAddresses) -> Option<Self> {
        if !has_small_cies(&section.data, LITTLE, kind == FrameSection::Debug) {
            return None;
        }
        let functions = match kind {
            FrameSection::Debug => functions(&debug_frame(&section), &section.data, &bases),
            FrameSection::Eh => functions(&eh_frame(&section), &section.data, &bases),
        };
        (!functions.is_empty()).then_some(Self {
            section,
            kind,
            bases,
            functions,
        })
    }

    /// Returns all rows of the function that contains an address, in order of address, up to the
    /// first corrupt one, and the size of what was decoded for them.
    #[must_use]
    pub fn rows(&self, address: u64) -> (Vec<CallFrameRow>, usize) {
        let after = self
            .functions
            .partition_point(|function| function.range.start <= address);
        let function = after.checked_sub(1).and_then(|at| self.functions.get(at));
        let Some(function) = function.filter(|function| function.range.contains(&address)) else {
            return (Vec::new(), 0);
        };
        let (data, offset) = (&self.section.data, function.offset as usize);
        match self.kind {
            FrameSection::Debug => rows(&debug_frame(&self.section), data, &self.bases, offset),
            FrameSection::Eh => rows(&eh_frame(&self.section), data, &self.bases, offset),
        }
    }

    /// Returns the memory that it occupies, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.section.data.len() + self.functions.len() * size_of::<Function>()
    }
}

fn debug_frame(section: &Section) -> DebugFrame<Slice<'_>> {
    let mut frames = DebugFrame::new(&section.data, LittleEndian);
    frames.set_address_size(ADDRESS_BYTES);
    frames
}

fn eh_frame(section: &Section) -> EhFrame<Slice<'_>> {
    let mut frames = EhFrame::new(&section.data, LittleEndian);
    frames.set_address_size(ADDRESS_BYTES);
    frames
}

/// Parses what functions share, if it is small.
fn cie<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    data: &[u8],
    bases: &BaseAddresses,
    offset: S::Offset,
) -> gimli::Result<gimli::CommonInformationEntry<Slice<'a>>> {
    let start = UnwindOffset::into(offset);
    match is_small_cie(data, LITTLE, start) {
        true => section.cie_from_offset(bases, offset),
        false => Err(gimli::Error::NotCieId(start as u64)),
    }
}

/// Returns the functions of a section up to the first corrupt entry, sorted by start.
fn functions<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    data: &[u8],
    bases: &BaseAddresses,
) -> Vec<Function> {
    let mut entries = section.entries(bases);
    let mut cies = HashMap::new();
    let mut functions = Vec::new();
    while let Ok(Some(entry)) = entries.next()
        && functions.len() < MAX_FUNCTIONS
    {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        // Nearly all functions share one.
        let parsed = partial.parse(|section, bases, offset| {
            let known = cies.entry(UnwindOffset::<usize>::into(offset));
            known
                .or_insert_with(|| cie(section, data, bases, offset))
                .clone()
        });
        let Ok(fde) = parsed else { continue };
        let range = fde.initial_address()..fde.end_address();
        if let Ok(offset) = u32::try_from(fde.offset())
            && !range.is_empty()
        {
            functions.push(Function { range, offset });
        }
    }
    functions.sort_by_key(|function| function.range.start);
    functions
}

fn rows<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    data: &[u8],
    bases: &BaseAddresses,
    offset: usize,
) -> (Vec<CallFrameRow>, usize) {
    let cie_at = |section: &S, bases: &BaseAddresses, offset| cie(section, data, bases, offset);
    let mut rows = Vec::new();
    let fde = section.fde_from_offset(bases, offset.into(), cie_at);
    let Ok(fde) = fde else { return (rows, 0) };
    let bytes = fde.entry_len().saturating_add(fde.cie().entry_len());
    if bytes > MAX_ENTRY_BYTES {
        return (rows, 0);
    }
    let mut context = UnwindContext::new();
    let Ok(mut table) = fde.rows(section, bases, &mut context) else {
        return (rows, bytes);
    };
    let return_address = fde.cie().return_address_register();
    while let Ok(Some(row)) = table.next_row() {
        let saved = |register| match row.register(register) {
            None | Some(RegisterRule::SameValue) => Saved::Same,
            Some(RegisterRule::Offset(offset)) => Saved::AtCfa(offset),
            Some(RegisterRule::Undefined) => Saved::Lost,
            Some(_) => Saved::Complex,
        };
        rows.push(CallFrameRow {
            range: row.start_address()..row.end_address(),
            cfa: match row.cfa() {
                CfaRule::RegisterAndOffset {
                    register: Register(register),
                    offset,
                } => Some((*register, *offset)),
                CfaRule::Expression(_) => None,
            },
            return_address: saved(return_address),
            frame_pointer: saved(X86_64::RBP),
        });
    }
    (rows, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function at 0x1000 of 16 bytes: `push rbp` (1 byte), `mov rbp, rsp` (3), ..., `leave`, `ret`.
    fn section() -> Vec<u8> {
        let cie = b"\x14\0\0\0\xff\xff\xff\xff\x04\0\x08\0\x01\x78\x10\x0c\x07\x08\x90\x01\0\0\0\0";
        let mut data = cie.to_vec();
        data.extend(36_u32.to_le_bytes());
        data.extend(0_u32.to_le_bytes());
        data.extend(0x1000_u64.to_le_bytes());
        data.extend(16_u64.to_le_bytes());
        data.extend([0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x4b, 0x0c, 7, 8]);
        data.extend([0; 4]);
        data
    }

    fn read(data: Vec<u8>) -> Option<CallFrames> {
        let section = Section {
            address: 0,
            data: data.into(),
        };
        CallFrames::new(section, FrameSection::Debug, BaseAddresses::default())
    }

    #[test]
    fn decodes_the_rows_of_a_function() {
        let frames = read(section()).unwrap();
        let (rows, bytes) = frames.rows(0x100f);
        let row = |range, cfa, frame_pointer| CallFrameRow {
            range,
            cfa: Some(cfa),
            return_address: Saved::AtCfa(-8),
            frame_pointer,
        };
        let saved = Saved::AtCfa(-16);
        assert_eq!(
            rows,
            [
                row(0x1000..0x1001, (7, 8), Saved::Same),
                row(0x1001..0x1004, (7, 16), saved),
                row(0x1004..0x100f, (6, 16), saved),
                row(0x100f..0x1010, (7, 8), saved),
            ]
        );
        assert_eq!(bytes, 36 + 20);
        for outside in [0xfff, 0x1010] {
            assert_eq!(frames.rows(outside), (Vec::new(), 0));
        }
    }

    /// A function may refer to any bytes as what it shares with others.
    #[test]
    fn parses_no_large_cie() {
        let mut data = section();
        data[28] = 8; // where the CIE starts
        data[8..12].copy_from_slice(&1000_u32.to_le_bytes());
        assert!(read(data).is_none());
        assert!(read(Vec::new()).is_none());
    }
}
