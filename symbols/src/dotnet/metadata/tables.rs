//! Tables of rows, as wide as what they refer to asks for.

use std::ops::Range;

use crate::dotnet::element::Cursor;
use crate::dotnet::schema::{self, Column, MAX_TABLES, TABLES};

/// All tables.
#[derive(Debug)]
pub(super) struct Tables {
    places: Vec<Table>,
    rows: [u32; MAX_TABLES],
    /// Which places are four bytes wide: in the heap of strings, GUIDs, blobs.
    wide_heaps: u8,
    pub(super) nested_is_sorted: bool,
}

/// Where the rows of a table are.
#[derive(Clone, Copy, Debug, Default)]
struct Table {
    at: usize,
    row_bytes: usize,
}

/// A row of one of several tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The table.
    pub(in crate::dotnet) table: u8,
    /// The row, from 1 on.
    pub(in crate::dotnet) row: u32,
}

impl Tables {
    /// Those in a range of the metadata. `None`: they are not all in it.
    pub(super) fn open(bytes: &[u8], range: Range<usize>) -> Option<Self> {
        let mut header = Cursor(bytes.get(range.clone())?);
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
        // Edited metadata counts methods through one more table; only debuggers make such.
        if *rows.get(usize::from(schema::METHOD_PTR))? != 0 {
            return None;
        }
        let mut at = range.end - header.0.len();
        let mut places = Vec::with_capacity(TABLES.len());
        for (columns, &count) in TABLES.iter().zip(&rows) {
            let row_bytes = columns
                .iter()
                .map(|column| width(*column, wide_heaps, &rows))
                .sum();
            places.push(Table { at, row_bytes });
            at = at.checked_add(row_bytes.checked_mul(count as usize)?)?;
        }
        if at > range.end {
            return None;
        }
        Some(Self {
            places,
            rows,
            wide_heaps,
            nested_is_sorted: sorted >> schema::NESTED_CLASS & 1 != 0,
        })
    }

    /// How many rows a table has.
    pub(super) fn rows(&self, table: u8) -> u32 {
        self.rows.get(usize::from(table)).copied().unwrap_or(0)
    }

    /// What is in a column of a row; rows count from 1.
    pub(super) fn cell(&self, bytes: &[u8], table: u8, row: u32, column: usize) -> Option<u32> {
        let columns = TABLES.get(usize::from(table))?;
        let place = self.places.get(usize::from(table))?;
        let index = row
            .checked_sub(1)
            .filter(|index| *index < self.rows(table))?;
        let width = |column: &Column| width(*column, self.wide_heaps, &self.rows);
        let within: usize = columns.get(..column)?.iter().map(width).sum();
        let at = place.at + index as usize * place.row_bytes + within;
        let bytes = bytes.get(at..)?;
        Some(match width(columns.get(column)?) {
            2 => u16::from_le_bytes(*bytes.first_chunk()?).into(),
            _ => u32::from_le_bytes(*bytes.first_chunk()?),
        })
    }
}

fn width(column: Column, wide_heaps: u8, rows: &[u32; MAX_TABLES]) -> usize {
    let count = |table: u8| rows.get(usize::from(table)).copied().unwrap_or(0);
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

/// The row that a coded number stands for; 0 is none.
pub(super) fn decode(column: Column, value: u32) -> Option<Token> {
    let Column::Coded(bits, tables) = column else {
        return None;
    };
    let table = tables.get((value & ((1 << bits) - 1)) as usize)?;
    let row = value >> bits;
    (row > 0).then_some(Token { table: *table, row })
}
