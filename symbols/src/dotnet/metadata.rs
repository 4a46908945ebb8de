//! The metadata of an assembly (ECMA-335 II.24): names of types and methods, method signatures.
//!
//! ```text
//! root     "BSJB" u16 u16 u32, u32 n, version[n], u16, u16 streams, (u32 offset, u32 size, name)*
//! #~       u32, u8 u8, u8 heap sizes, u8, u64 present tables, u64 sorted tables, u32 row counts, rows
//! ```
//! Rows are read in place, so opening takes no time. The input is untrusted: every offset is
//! checked when it is read.

use std::borrow::Cow;
use std::ops::Range;

use super::element::Cursor;
use super::schema;
use streams::Streams;
use tables::{Tables, decode};

pub use tables::Token;

mod streams;
mod tables;

/// Size limit of a type or method name. The runtime accepts 1 023 bytes.
const MAX_NAME_BYTES: usize = 1024;
/// Nesting limit of types. Compilers nest only a few.
const MAX_NESTING: usize = 16;

/// The metadata of a module.
#[derive(Debug)]
pub struct Metadata {
    bytes: Box<[u8]>,
    strings: Range<usize>,
    blobs: Range<usize>,
    guids: Range<usize>,
    tables: Tables,
}

/// A row of the MethodDef table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodDef<'a> {
    /// The method's name.
    pub name: Cow<'a, str>,
    /// The method's signature blob.
    pub signature: &'a [u8],
    /// The `MethodImplAttributes` of the method.
    pub impl_flags: u16,
}

/// A row of the MemberRef table: a method or field of another type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRef<'a> {
    /// The type that the member belongs to.
    pub parent: Token,
    /// The member's name.
    pub name: Cow<'a, str>,
    /// The member's signature blob.
    pub signature: &'a [u8],
}

impl Metadata {
    /// Returns the size of the metadata in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Opens metadata. Returns `None` if the bytes are not metadata or are corrupt.
    #[must_use]
    pub fn open(bytes: Vec<u8>) -> Option<Self> {
        let streams = Streams::read(&bytes)?;
        let tables = Tables::open(&bytes, streams.tables)?;
        Some(Self {
            strings: streams.strings,
            blobs: streams.blobs,
            guids: streams.guids,
            tables,
            bytes: bytes.into(),
        })
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the module version id (MVID), which is unique to each build of a module.
    #[must_use]
    pub fn mvid(&self) -> Option<[u8; 16]> {
        let index = self.cell(schema::MODULE, 1, 2)?.checked_sub(1)? as usize;
        let guids = self.bytes.get(self.guids.clone())?;
        let (guids, _) = guids.as_chunks();
        guids.get(index).copied()
    }

    /// Returns the assembly's name, or `None` if the module has no assembly manifest.
    #[must_use]
    pub fn assembly(&self) -> Option<Cow<'_, str>> {
        self.string(self.cell(schema::ASSEMBLY, 1, 7)?)
    }

    /// Returns the name of a referenced assembly.
    #[must_use]
    pub fn assembly_ref(&self, row: u32) -> Option<Cow<'_, str>> {
        self.string(self.cell(schema::ASSEMBLY_REF, row, 6)?)
    }

    /// Returns the number of referenced assemblies.
    #[must_use]
    pub fn assembly_refs(&self) -> u32 {
        self.tables.rows(schema::ASSEMBLY_REF)
    }

    /// Returns the number of methods.
    #[must_use]
    pub fn methods(&self) -> u32 {
        self.tables.rows(schema::METHOD_DEF)
    }

    /// Returns the method at a row of the MethodDef table.
    #[must_use]
    pub fn method(&self, row: u32) -> Option<MethodDef<'_>> {
        let cell = |column| self.cell(schema::METHOD_DEF, row, column);
        Some(MethodDef {
            name: self.string(cell(3)?)?,
            signature: self.blob(cell(4)?)?,
            impl_flags: cell(1)? as u16,
        })
    }

    /// Returns the TypeDef row of the type that declares a method.
    #[must_use]
    pub fn owner_of(&self, method: u32) -> Option<u32> {
        let first = |row| self.cell(schema::TYPE_DEF, row, 5);
        let (mut low, mut high) = (0, self.tables.rows(schema::TYPE_DEF));
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

    /// Returns the member reference at a row of the MemberRef table.
    #[must_use]
    pub fn member_ref(&self, row: u32) -> Option<MemberRef<'_>> {
        let cell = |column| self.cell(schema::MEMBER_REF, row, column);
        Some(MemberRef {
            parent: decode(schema::MEMBER_REF_PARENT, cell(0)?)?,
            name: self.string(cell(1)?)?,
            signature: self.blob(cell(2)?)?,
        })
    }

    /// Returns the signature of a constructed type.
    #[must_use]
    pub fn type_spec(&self, token: Token) -> Option<&[u8]> {
        if token.table != schema::TYPE_SPEC {
            return None;
        }
        self.blob(self.cell(schema::TYPE_SPEC, token.row, 0)?)
    }

    /// Decodes the type token of a signature (TypeDefOrRefOrSpecEncoded).
    #[must_use]
    pub fn type_token(encoded: u32) -> Option<Token> {
        decode(schema::TYPE_DEF_OR_REF, encoded)
    }

    /// Returns the name of the type at a row of the TypeDef table.
    #[must_use]
    pub fn type_def_name(&self, row: u32) -> Option<String> {
        self.type_name(Token {
            table: schema::TYPE_DEF,
            row,
        })
    }

    /// Returns namespace and name of a TypeDef or TypeRef, outer types first: `` N.Map`2+Keys ``.
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
                schema::TYPE_DEF => self.enclosing_type(row).map(|row| Token { table, row }),
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

    /// Returns the TypeDef row of the type that encloses a nested type.
    fn enclosing_type(&self, nested: u32) -> Option<u32> {
        let table = schema::NESTED_CLASS;
        let rows = self.tables.rows(table);
        let nested_at = |row| self.cell(table, row, 0);
        let row = if self.tables.nested_is_sorted {
            let (mut low, mut high) = (0, rows);
            while low < high {
                let middle = low + (high - low) / 2;
                if nested_at(middle + 1)? < nested {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            Some(low + 1).filter(|row| nested_at(*row) == Some(nested))
        } else {
            (1..=rows).find(|row| nested_at(*row) == Some(nested))
        };
        self.cell(table, row?, 1)
    }

    fn cell(&self, table: u8, row: u32, column: usize) -> Option<u32> {
        self.tables.cell(&self.bytes, table, row, column)
    }

    fn string(&self, offset: u32) -> Option<Cow<'_, str>> {
        let heap = self.bytes.get(self.strings.clone())?;
        let bytes = heap.get(offset as usize..)?;
        let bytes = bytes.get(..MAX_NAME_BYTES).unwrap_or(bytes);
        let end = memchr::memchr(0, bytes)?;
        Some(String::from_utf8_lossy(bytes.get(..end)?))
    }

    fn blob(&self, offset: u32) -> Option<&[u8]> {
        let heap = self.bytes.get(self.blobs.clone())?;
        let mut cursor = Cursor(heap.get(offset as usize..)?);
        let len = cursor.compressed_u32()?;
        cursor.take(len as usize)
    }
}
