//! The metadata tables. Column widths depend on the sizes of the heaps and tables they refer to.

use std::ops::Range;

use super::MetadataError;
use crate::dotnet::element::Cursor;
use crate::dotnet::schema::{self, Column, MAX_TABLES, TABLES};

/// All tables of a module.
#[derive(Debug)]
pub(super) struct Tables {
    layouts: Vec<TableLayout>,
    rows: [u32; MAX_TABLES],
    /// The heaps with four-byte offsets, one bit each: strings, GUIDs, blobs.
    wide_heaps: u8,
    pub(super) nested_is_sorted: bool,
}

/// Position of a table's rows.
#[derive(Clone, Copy, Debug, Default)]
struct TableLayout {
    offset: usize,
    row_bytes: usize,
}

/// A metadata token: a row of one of several tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The table.
    pub(in crate::dotnet) table: u8,
    /// The row id (RID), which counts from 1.
    pub(in crate::dotnet) row: u32,
}

impl Tables {
    /// Opens the table stream.
    ///
    /// # Errors
    /// The tables exceed the range or are unoptimized.
    pub(super) fn open(bytes: &[u8], range: Range<usize>) -> Result<Self, MetadataError> {
        let Header {
            wide_heaps,
            sorted,
            rows,
            bytes: header_bytes,
        } = bytes
            .get(range.clone())
            .and_then(Header::read)
            .ok_or(MetadataError::Truncated("table header"))?;
        // Metadata that a debugger edited (edit and continue) maps methods through another table.
        let mapped = row_count(&rows, schema::METHOD_PTR);
        if mapped != 0 {
            return Err(MetadataError::Edited(mapped));
        }
        let mut offset = range.start + header_bytes;
        let mut layouts = Vec::with_capacity(TABLES.len());
        for ((columns, &count), table) in TABLES.iter().zip(&rows).zip(0..) {
            let row_bytes = columns
                .iter()
                .map(|column| width(*column, wide_heaps, &rows))
                .sum();
            layouts.push(TableLayout { offset, row_bytes });
            offset = row_bytes
                .checked_mul(count as usize)
                .and_then(|bytes| offset.checked_add(bytes))
                .filter(|end| *end <= range.end)
                .ok_or(MetadataError::TableTooLarge { table, rows: count })?;
        }
        Ok(Self {
            layouts,
            rows,
            wide_heaps,
            nested_is_sorted: sorted >> schema::NESTED_CLASS & 1 != 0,
        })
    }

    /// Returns the number of rows of a table.
    pub(super) fn rows(&self, table: u8) -> u32 {
        row_count(&self.rows, table)
    }

    /// Returns the value in a column of a row, or `None` without such a row. Rows count from 1.
    pub(super) fn cell(&self, bytes: &[u8], table: u8, row: u32, column: usize) -> Option<u32> {
        let columns = TABLES.get(usize::from(table))?;
        let layout = self.layouts.get(usize::from(table))?;
        let index = row
            .checked_sub(1)
            .filter(|index| *index < self.rows(table))?;
        let width = |column: &Column| width(*column, self.wide_heaps, &self.rows);
        let column_offset: usize = columns.get(..column)?.iter().map(width).sum();
        let offset = layout.offset + index as usize * layout.row_bytes + column_offset;
        let bytes = bytes.get(offset..)?;
        Some(match width(columns.get(column)?) {
            2 => u16::from_le_bytes(*bytes.first_chunk()?).into(),
            _ => u32::from_le_bytes(*bytes.first_chunk()?),
        })
    }
}

/// The header of the table stream.
struct Header {
    wide_heaps: u8,
    sorted: u64,
    rows: [u32; MAX_TABLES],
    /// Size of the header.
    bytes: usize,
}

impl Header {
    fn read(stream: &[u8]) -> Option<Self> {
        let mut header = Cursor(stream);
        header.take(6)?;
        let wide_heaps = header.byte()?;
        header.byte()?;
        let present = u64::from_le_bytes(header.array()?);
        let sorted = u64::from_le_bytes(header.array()?);
        let mut rows = [0; MAX_TABLES];
        for (table, rows) in rows.iter_mut().enumerate() {
            if present >> table & 1 != 0 {
                *rows = u32::from_le_bytes(header.array()?);
            }
        }
        if wide_heaps & 0x40 != 0 {
            header.take(4)?;
        }
        Some(Self {
            wide_heaps,
            sorted,
            rows,
            bytes: stream.len() - header.0.len(),
        })
    }
}

fn row_count(rows: &[u32; MAX_TABLES], table: u8) -> u32 {
    rows.get(usize::from(table)).copied().unwrap_or(0)
}

fn width(column: Column, wide_heaps: u8, rows: &[u32; MAX_TABLES]) -> usize {
    let count = |table: u8| row_count(rows, table);
    let is_wide = match column {
        Column::U16 => false,
        Column::U32 => true,
        Column::String => wide_heaps & 1 != 0,
        Column::Guid => wide_heaps & 2 != 0,
        Column::Blob => wide_heaps & 4 != 0,
        Column::Row(table) => count(table) >= 1 << 16,
        Column::Coded(bits, tables) => tables.iter().any(|table| count(*table) >= 1 << (16 - bits)),
    };
    if is_wide { 4 } else { 2 }
}

/// Decodes a coded index. Row 0 is the null reference and gives `None`.
pub(super) fn decode(column: Column, value: u32) -> Option<Token> {
    let Column::Coded(bits, tables) = column else {
        return None;
    };
    let table = tables.get((value & ((1 << bits) - 1)) as usize)?;
    let row = value >> bits;
    (row > 0).then_some(Token { table: *table, row })
}
