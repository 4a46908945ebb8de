//! The lines of a unit, from its line program.

use std::ops::Range;
use std::sync::OnceLock;

use gimli::{AttributeValue, DebugLine, DebugLineOffset, FileEntry, LineProgramHeader, Reader};

use super::DwarfError;
use super::step_budget::{BudgetedReader, KEEP_COST};
use super::unit::Unit;
use super::units::Units;

/// A sequence of the line program: rows with ascending addresses.
struct Sequence {
    start: u64,
    end: u64,
    rows: Range<usize>,
}

/// File and line from an address to the next row.
struct LineRow {
    address: u64,
    file: u32,
    /// Line, or 0 if the code has none.
    line: u32,
}

/// Files and lines by address.
pub(super) struct Lines<'a> {
    /// Sorted by start.
    sequences: Vec<Sequence>,
    rows: Vec<LineRow>,
    header: Option<LineProgramHeader<BudgetedReader<'a>>>,
    /// Paths by file index, built on demand.
    paths: Vec<OnceLock<Result<Option<Box<str>>, DwarfError>>>,
}

/// A file, as index in the line program, and a line.
pub(super) type Location = (Option<u64>, Option<u32>);

impl<'a> Lines<'a> {
    /// Returns the lines of a unit, which are read once.
    pub(super) fn for_unit<'u>(
        unit: &'u Unit<'a>,
        units: &Units<'a>,
    ) -> Result<&'u Self, DwarfError> {
        let lines = unit.lines.get_or_init(|| match unit.line_program {
            Some(offset) => Self::read(unit, units, offset),
            None => Ok(Self {
                sequences: Vec::new(),
                rows: Vec::new(),
                header: None,
                paths: Vec::new(),
            }),
        });
        lines.as_ref().map_err(Clone::clone)
    }

    fn read(
        unit: &Unit<'a>,
        units: &Units<'a>,
        offset: DebugLineOffset,
    ) -> Result<Self, DwarfError> {
        let sections = units.sections;
        let start_offset = offset.0 as u64;
        let (start, read) = sections.start::<12>(&sections.line, start_offset)?;
        let mut start = sections.reader(start.get(..read).unwrap_or_default());
        let (length, format) = start.read_initial_length()?;
        let size = (length as u64).saturating_add(u64::from(format.initial_length_size()));
        let bytes = sections.part(&sections.line, start_offset, size, &unit.slice.line)?;
        let address_bytes = unit.unit.header.address_size();
        let program =
            DebugLine::from(bytes).program(DebugLineOffset(0), address_bytes, None, None)?;
        let header = program.header().clone();

        let mut sequences = Vec::new();
        let mut rows: Vec<LineRow> = Vec::new();
        let mut first = 0;
        let mut program = program.rows();
        while let Some((_, row)) = program.next_row()? {
            if row.end_sequence() {
                let start = rows.get(first).map(|row| row.address);
                if let Some(start) = start.filter(|&start| start < row.address()) {
                    sections.budget.charge(KEEP_COST)?;
                    sequences.push(Sequence {
                        start,
                        end: row.address(),
                        rows: first..rows.len(),
                    });
                } else {
                    rows.truncate(first);
                }
                first = rows.len();
                continue;
            }
            let next = LineRow {
                address: row.address(),
                file: u32::try_from(row.file_index()).unwrap_or(u32::MAX),
                line: row.line().map_or(0, |line| line.get() as u32),
            };
            match rows.get_mut(first..).and_then(<[LineRow]>::last_mut) {
                Some(last) if last.address == next.address => *last = next,
                _ => {
                    sections.budget.charge(KEEP_COST)?;
                    rows.push(next);
                }
            }
        }
        rows.truncate(first);
        sequences.sort_unstable_by_key(|sequence| sequence.start);
        let files = header.file_names().len() + 1;
        Ok(Self {
            sequences,
            rows,
            header: Some(header),
            paths: (0..files).map(|_| OnceLock::new()).collect(),
        })
    }

    /// Returns the file and line of an address.
    pub(super) fn location(&self, address: u64) -> Option<Location> {
        let after = self
            .sequences
            .partition_point(|sequence| sequence.start <= address);
        let sequence = self.sequences.get(after.checked_sub(1)?)?;
        let rows = self.rows.get(sequence.rows.clone())?;
        let after = rows.partition_point(|row| row.address <= address);
        let row = rows.get(after.checked_sub(1)?)?;
        (address < sequence.end).then(|| {
            let line = Some(row.line).filter(|&line| line != 0);
            (Some(u64::from(row.file)), line)
        })
    }

    /// Returns the path of a file, joined to the compilation directory if it is relative.
    pub(super) fn path(
        &self,
        index: u64,
        unit: &Unit<'a>,
        units: &Units<'a>,
    ) -> Result<Option<&str>, DwarfError> {
        let header = self.header.as_ref();
        let file = header.and_then(|header| Some((header, header.file(index)?)));
        let cell = usize::try_from(index)
            .ok()
            .and_then(|index| self.paths.get(index));
        let (Some((header, file)), Some(cell)) = (file, cell) else {
            return Ok(None);
        };
        let path = cell.get_or_init(|| path(file, header, unit, units).map(Some));
        path.as_ref().map(Option::as_deref).map_err(Clone::clone)
    }
}

fn path<'a>(
    file: &FileEntry<BudgetedReader<'a>>,
    header: &LineProgramHeader<BudgetedReader<'a>>,
    unit: &Unit<'a>,
    units: &Units<'a>,
) -> Result<Box<str>, DwarfError> {
    let mut path = String::new();
    let mut join = |part: &AttributeValue<BudgetedReader<'a>>| {
        let part = units.string(unit, part)?.unwrap_or_default();
        join(&mut path, &String::from_utf8_lossy(&part));
        Ok::<_, DwarfError>(())
    };
    if let Some(directory) = &unit.directory {
        join(directory)?;
    }
    // Index 0 is the compilation directory.
    let directory = Some(file).filter(|file| file.directory_index() != 0);
    if let Some(directory) = directory.and_then(|file| file.directory(header)) {
        join(&directory)?;
    }
    join(&file.path_name())?;
    Ok(path.into())
}

/// Appends a component. An absolute path, also a Windows path, replaces the path.
fn join(path: &mut String, part: &str) {
    let is_windows_path = |path: &str| path.starts_with('\\') || path.get(1..3) == Some(":\\");
    if part.starts_with('/') || part.get(1..3) == Some(":/") || is_windows_path(part) {
        path.clear();
    }
    let separator = if is_windows_path(path) { '\\' } else { '/' };
    if !path.is_empty() && !path.ends_with(separator) {
        path.push(separator);
    }
    path.push_str(part);
}
