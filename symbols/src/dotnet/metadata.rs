//! The metadata of an assembly (ECMA-335 II.24): the names of its types and methods, and the signatures of these.
//!
//! ```text
//! root     "BSJB" u16 u16 u32, u32 n, version[n], u16, u16 streams, (u32 offset, u32 size, name)*
//! #~       u32, u8 u8, u8 wide heaps, u8, u64 tables that are there, u64 sorted ones, u32 rows of each, rows
//! ```
//! Rows are read where they lie, so opening takes no time. Nothing is trusted: every place is checked when it is read.

use std::borrow::Cow;
use std::ops::Range;

use super::element::Cursor;
use super::schema::{self, Column, MAX_TABLES, TABLES};

const MAGIC: &[u8] = b"BSJB";
/// Longest name of a type or method; the runtime takes 1 023 bytes.
const MAX_NAME_BYTES: usize = 1024;
/// Types nested in each other; compilers nest a handful.
const MAX_NESTING: usize = 16;
/// Streams are a handful.
const MAX_STREAMS: u16 = 32;

/// The metadata of a module.
#[derive(Debug)]
pub struct Metadata {
    bytes: Box<[u8]>,
    strings: Range<usize>,
    blobs: Range<usize>,
    guids: Range<usize>,
    tables: Vec<Table>,
    rows: [u32; MAX_TABLES],
    /// Which places are four bytes wide: in the heap of strings, GUIDs, blobs.
    wide_heaps: u8,
    nested_is_sorted: bool,
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
    pub(super) table: u8,
    /// The row, from 1 on.
    pub(super) row: u32,
}

/// A method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodDef<'a> {
    /// Its name.
    pub name: Cow<'a, str>,
    /// Its signature.
    pub signature: &'a [u8],
    /// How the runtime is to treat it (MethodImplAttributes).
    pub impl_flags: u16,
}

/// A method or field of another type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRef<'a> {
    /// The type.
    pub parent: Token,
    /// Its name.
    pub name: Cow<'a, str>,
    /// Its signature.
    pub signature: &'a [u8],
}

impl Metadata {
    /// Opens metadata. `None`: it is none, or damaged.
    #[must_use]
    pub fn open(bytes: Vec<u8>) -> Option<Self> {
        let streams = Streams::read(&bytes)?;
        let mut header = Cursor(bytes.get(streams.tables.clone())?);
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
        let mut at = streams.tables.end - header.0.len();
        let mut tables = Vec::with_capacity(TABLES.len());
        for (columns, &count) in TABLES.iter().zip(&rows) {
            let row_bytes = columns
                .iter()
                .map(|column| width(*column, wide_heaps, &rows))
                .sum();
            tables.push(Table { at, row_bytes });
            at = at.checked_add(row_bytes.checked_mul(count as usize)?)?;
        }
        if at > streams.tables.end {
            return None;
        }
        Some(Self {
            strings: streams.strings,
            blobs: streams.blobs,
            guids: streams.guids,
            tables,
            rows,
            wide_heaps,
            nested_is_sorted: sorted >> schema::NESTED_CLASS & 1 != 0,
            bytes: bytes.into(),
        })
    }

    /// Bytes it takes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// What tells this module from every other, and from other builds of it.
    #[must_use]
    pub fn mvid(&self) -> Option<[u8; 16]> {
        let index = self.cell(schema::MODULE, 1, 2)?.checked_sub(1)? as usize;
        let guids = self.bytes.get(self.guids.clone())?;
        let (guids, _) = guids.as_chunks();
        guids.get(index).copied()
    }

    /// Name of the assembly. `None`: it is a module without.
    #[must_use]
    pub fn assembly(&self) -> Option<Cow<'_, str>> {
        self.string(self.cell(schema::ASSEMBLY, 1, 7)?)
    }

    /// Name of a referenced assembly.
    #[must_use]
    pub fn assembly_ref(&self, row: u32) -> Option<Cow<'_, str>> {
        self.string(self.cell(schema::ASSEMBLY_REF, row, 6)?)
    }

    /// Referenced assemblies.
    #[must_use]
    pub fn assembly_refs(&self) -> u32 {
        self.rows(schema::ASSEMBLY_REF)
    }

    /// Methods.
    #[must_use]
    pub fn methods(&self) -> u32 {
        self.rows(schema::METHOD_DEF)
    }

    /// A method.
    #[must_use]
    pub fn method(&self, row: u32) -> Option<MethodDef<'_>> {
        let cell = |column| self.cell(schema::METHOD_DEF, row, column);
        Some(MethodDef {
            name: self.string(cell(3)?)?,
            signature: self.blob(cell(4)?)?,
            impl_flags: cell(1)? as u16,
        })
    }

    /// The type that a method belongs to.
    #[must_use]
    pub fn owner_of(&self, method: u32) -> Option<u32> {
        let first = |row| self.cell(schema::TYPE_DEF, row, 5);
        let (mut low, mut high) = (0, self.rows(schema::TYPE_DEF));
        while low < high {
            let middle = low + (high - low) / 2;
            if first(middle + 1)? <= method {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low > 0 && (1..=self.methods()).contains(&method)).then_some(low)
    }

    /// A reference to a member.
    #[must_use]
    pub fn member_ref(&self, row: u32) -> Option<MemberRef<'_>> {
        let cell = |column| self.cell(schema::MEMBER_REF, row, column);
        Some(MemberRef {
            parent: decode(schema::MEMBER_REF_PARENT, cell(0)?)?,
            name: self.string(cell(1)?)?,
            signature: self.blob(cell(2)?)?,
        })
    }

    /// The signature of a constructed type.
    #[must_use]
    pub fn type_spec(&self, token: Token) -> Option<&[u8]> {
        if token.table != schema::TYPE_SPEC {
            return None;
        }
        self.blob(self.cell(schema::TYPE_SPEC, token.row, 0)?)
    }

    /// The type that a number in a signature stands for (TypeDefOrRefOrSpecEncoded).
    #[must_use]
    pub fn type_token(encoded: u32) -> Option<Token> {
        decode(schema::TYPE_DEF_OR_REF, encoded)
    }

    /// The name of a type of this module by its row.
    #[must_use]
    pub fn type_def_name(&self, row: u32) -> Option<String> {
        self.type_name(Token {
            table: schema::TYPE_DEF,
            row,
        })
    }

    /// Namespace and name of a defined or referenced type, those it is nested in before it: `` N.Map`2+Keys ``.
    #[must_use]
    pub fn type_name(&self, token: Token) -> Option<String> {
        let mut parts = Vec::new();
        let mut next = Some(token);
        while let Some(Token { table, row }) = next {
            if parts.len() > MAX_NESTING {
                return None;
            }
            let (name, namespace) = match table {
                schema::TYPE_DEF => (1, 2),
                schema::TYPE_REF => (1, 2),
                _ => return None,
            };
            next = match table {
                schema::TYPE_DEF => self.encloser(row).map(|row| Token { table, row }),
                _ => decode(schema::RESOLUTION_SCOPE, self.cell(table, row, 0)?)
                    .filter(|scope| scope.table == schema::TYPE_REF),
            };
            parts.push(self.string(self.cell(table, row, name)?)?);
            let namespace = self.string(self.cell(table, row, namespace)?)?;
            if next.is_none() && !namespace.is_empty() {
                parts.push(Cow::Borrowed("."));
                parts.push(namespace);
            } else if next.is_some() {
                parts.push(Cow::Borrowed("+"));
            }
        }
        parts.reverse();
        Some(parts.concat())
    }

    /// The type that another is nested in.
    fn encloser(&self, nested: u32) -> Option<u32> {
        let table = schema::NESTED_CLASS;
        let rows = self.rows(table);
        let at = |row| self.cell(table, row, 0);
        let found = if self.nested_is_sorted {
            let (mut low, mut high) = (0, rows);
            while low < high {
                let middle = low + (high - low) / 2;
                if at(middle + 1)? < nested {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            Some(low + 1).filter(|row| at(*row) == Some(nested))
        } else {
            (1..=rows).find(|row| at(*row) == Some(nested))
        };
        self.cell(table, found?, 1)
    }

    fn rows(&self, table: u8) -> u32 {
        self.rows.get(usize::from(table)).copied().unwrap_or(0)
    }

    /// What is in a column of a row; rows count from 1.
    fn cell(&self, table: u8, row: u32, column: usize) -> Option<u32> {
        let columns = TABLES.get(usize::from(table))?;
        let place = self.tables.get(usize::from(table))?;
        let index = row
            .checked_sub(1)
            .filter(|index| *index < self.rows(table))?;
        let width = |column: &Column| width(*column, self.wide_heaps, &self.rows);
        let within: usize = columns.get(..column)?.iter().map(width).sum();
        let at = place.at + index as usize * place.row_bytes + within;
        let bytes = self.bytes.get(at..)?;
        Some(match width(columns.get(column)?) {
            2 => u16::from_le_bytes(*bytes.first_chunk()?).into(),
            _ => u32::from_le_bytes(*bytes.first_chunk()?),
        })
    }

    fn string(&self, at: u32) -> Option<Cow<'_, str>> {
        let heap = self.bytes.get(self.strings.clone())?;
        let from = heap.get(at as usize..)?;
        let from = from.get(..MAX_NAME_BYTES).unwrap_or(from);
        let end = memchr::memchr(0, from)?;
        Some(String::from_utf8_lossy(from.get(..end)?))
    }

    fn blob(&self, at: u32) -> Option<&[u8]> {
        let heap = self.bytes.get(self.blobs.clone())?;
        let mut from = Cursor(heap.get(at as usize..)?);
        let len = from.number()?;
        from.take(len as usize)
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
fn decode(column: Column, value: u32) -> Option<Token> {
    let Column::Coded(bits, tables) = column else {
        return None;
    };
    let table = tables.get((value & ((1 << bits) - 1)) as usize)?;
    let row = value >> bits;
    (row > 0).then_some(Token { table: *table, row })
}

/// Where the streams are that are read.
struct Streams {
    tables: Range<usize>,
    strings: Range<usize>,
    blobs: Range<usize>,
    guids: Range<usize>,
}

impl Streams {
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut header = Cursor(bytes);
        if header.take(4)? != MAGIC {
            return None;
        }
        header.take(8)?;
        let version_bytes = u32::from_le_bytes(header.array()?);
        header.take(usize::try_from(version_bytes).ok()?)?;
        header.take(2)?;
        let count = u16::from_le_bytes(header.array()?);
        let (mut tables, mut strings, mut blobs, mut guids) = (None, 0..0, 0..0, 0..0);
        for _ in 0..count.min(MAX_STREAMS) {
            let [offset, size] = [header.array()?, header.array()?].map(u32::from_le_bytes);
            let (offset, size) = (offset as usize, size as usize);
            let range = offset..offset.checked_add(size)?;
            bytes.get(range.clone())?;
            let end = memchr::memchr(0, header.0)?;
            let name = header.take((end + 4) & !3)?;
            match name.get(..end)? {
                b"#~" | b"#-" => tables = Some(range),
                b"#Strings" => strings = range,
                b"#Blob" => blobs = range,
                b"#GUID" => guids = range,
                _ => {}
            }
        }
        Some(Self {
            tables: tables?,
            strings,
            blobs,
            guids,
        })
    }
}
