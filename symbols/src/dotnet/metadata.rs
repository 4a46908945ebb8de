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

pub use error::MetadataError;
pub use tables::Token;

mod error;
mod streams;
mod tables;

/// Size limit of a type or method name. The runtime accepts 1 023 bytes.
const MAX_NAME_BYTES: usize = 1024;
/// Nesting limit of types. Compilers nest only a few.
const MAX_NESTING: usize = 16;

/// Attribute of an assembly that asks for code without optimization.
const DEBUGGABLE: &str = "System.Diagnostics.DebuggableAttribute";
/// Parent of the attributes of the assembly: row 1 of its table, the 15th that has attributes.
const OF_ASSEMBLY: u32 = 1 << 5 | 14;
/// Limit on the attributes of an assembly.
const MAX_ATTRIBUTES: usize = 256;

/// The metadata of a module.
#[derive(Debug)]
pub struct Metadata {
    bytes: Box<[u8]>,
    strings: Range<usize>,
    blobs: Range<usize>,
    guids: Range<usize>,
    tables: Tables,
    disables_optimization: bool,
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

    /// Opens metadata.
    ///
    /// # Errors
    /// The bytes are not metadata, or are corrupt.
    pub fn open(bytes: Vec<u8>) -> Result<Self, MetadataError> {
        let streams = Streams::read(&bytes)?;
        let tables = Tables::open(&bytes, streams.tables)?;
        let mut metadata = Self {
            strings: streams.strings,
            blobs: streams.blobs,
            guids: streams.guids,
            tables,
            bytes: bytes.into(),
            disables_optimization: false,
        };
        metadata.disables_optimization = metadata.has_debuggable_attribute();
        Ok(metadata)
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the module version id (MVID), which is unique to each build of a module.
    #[must_use]
    pub fn mvid(&self) -> Option<[u8; 16]> {
        let index = self.cell(schema::MODULE, 1, 2).ok()?.checked_sub(1)? as usize;
        let guids = self.bytes.get(self.guids.clone())?;
        let (guids, _) = guids.as_chunks();
        guids.get(index).copied()
    }

    /// Returns the assembly's name.
    ///
    /// # Errors
    /// The module has no assembly manifest, or its name is corrupt.
    pub fn assembly(&self) -> Result<Cow<'_, str>, MetadataError> {
        self.string(self.cell(schema::ASSEMBLY, 1, 7)?)
    }

    /// Returns whether the assembly asks for code without optimization, as a debug build does.
    #[must_use]
    pub fn disables_optimization(&self) -> bool {
        self.disables_optimization
    }

    /// Searches the attributes of the assembly. The table is sorted by parent.
    fn has_debuggable_attribute(&self) -> bool {
        let parent = |row| self.cell(schema::CUSTOM_ATTRIBUTE, row, 0).unwrap_or(0);
        let rows = self.tables.rows(schema::CUSTOM_ATTRIBUTE);
        let (mut low, mut high) = (0, rows);
        while low < high {
            let middle = low + (high - low) / 2;
            if parent(middle + 1) < OF_ASSEMBLY {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let of_assembly = (low + 1..=rows).take_while(|row| parent(*row) == OF_ASSEMBLY);
        let mut of_assembly = of_assembly.take(MAX_ATTRIBUTES);
        of_assembly.any(|row| self.is_debuggable(row).unwrap_or(false))
    }

    /// Returns whether an attribute asks for code without optimization.
    fn is_debuggable(&self, row: u32) -> Option<bool> {
        let cell = |column| self.cell(schema::CUSTOM_ATTRIBUTE, row, column).ok();
        let constructor = decode(schema::CUSTOM_ATTRIBUTE_TYPE, cell(1)?)?;
        let owner = self.member_ref(constructor.row).ok()?.parent;
        let is_debuggable = constructor.table == schema::MEMBER_REF
            && self.type_name(owner).is_ok_and(|name| name == DEBUGGABLE);
        // The runtime reads this bit of both constructors: (DebuggingModes) and (bool, bool).
        let value = self.blob(cell(2)?).ok()?;
        Some(is_debuggable && value.get(3)? & 1 != 0)
    }

    /// Returns the name of a referenced assembly.
    ///
    /// # Errors
    /// There is no such row, or its name is corrupt.
    pub fn assembly_ref(&self, row: u32) -> Result<Cow<'_, str>, MetadataError> {
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
    ///
    /// # Errors
    /// There is no such row, or it is corrupt.
    pub fn method(&self, row: u32) -> Result<MethodDef<'_>, MetadataError> {
        let cell = |column| self.cell(schema::METHOD_DEF, row, column);
        Ok(MethodDef {
            name: self.string(cell(3)?)?,
            signature: self.blob(cell(4)?)?,
            impl_flags: cell(1)? as u16,
        })
    }

    /// Returns the TypeDef row of the type that declares a method.
    ///
    /// # Errors
    /// There is no such method, or no type declares it.
    pub fn owner_of(&self, method: u32) -> Result<u32, MetadataError> {
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
        match low > 0 && (1..=self.methods()).contains(&method) {
            true => Ok(low),
            false => Err(MetadataError::NoOwner(method)),
        }
    }

    /// Returns the member reference at a row of the MemberRef table.
    ///
    /// # Errors
    /// There is no such row, or it is corrupt.
    pub fn member_ref(&self, row: u32) -> Result<MemberRef<'_>, MetadataError> {
        let cell = |column| self.cell(schema::MEMBER_REF, row, column);
        Ok(MemberRef {
            parent: reference(schema::MEMBER_REF_PARENT, cell(0)?)?,
            name: self.string(cell(1)?)?,
            signature: self.blob(cell(2)?)?,
        })
    }

    /// Returns the signature of a constructed type, or `None` if the token is of another type.
    ///
    /// # Errors
    /// There is no such row, or its signature is corrupt.
    pub fn type_spec(&self, token: Token) -> Result<Option<&[u8]>, MetadataError> {
        if token.table != schema::TYPE_SPEC {
            return Ok(None);
        }
        let signature = self.cell(schema::TYPE_SPEC, token.row, 0)?;
        self.blob(signature).map(Some)
    }

    /// Decodes the type token of a signature (TypeDefOrRefOrSpecEncoded).
    ///
    /// # Errors
    /// The token is null, or selects no table.
    pub fn type_token(encoded: u32) -> Result<Token, MetadataError> {
        reference(schema::TYPE_DEF_OR_REF, encoded)
    }

    /// Returns the name of the type at a row of the TypeDef table.
    ///
    /// # Errors
    /// As [`Metadata::type_name`].
    pub fn type_def_name(&self, row: u32) -> Result<String, MetadataError> {
        self.type_name(Token {
            table: schema::TYPE_DEF,
            row,
        })
    }

    /// Returns namespace and name of a TypeDef or TypeRef, outer types first: `` N.Map`2+Keys ``.
    ///
    /// # Errors
    /// The row is of another table, does not exist or is corrupt, or its type is nested too deeply.
    pub fn type_name(&self, token: Token) -> Result<String, MetadataError> {
        let mut parts = Vec::new();
        let mut next = Some(token);
        while let Some(Token { table, row }) = next {
            if parts.len() > MAX_NESTING {
                return Err(MetadataError::TooDeep);
            }
            let (name, namespace) = match table {
                schema::TYPE_DEF => (1, 2),
                schema::TYPE_REF => (1, 2),
                _ => return Err(MetadataError::NotNamed { table, row }),
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
        Ok(parts.concat())
    }

    /// Returns the TypeDef row of the type that encloses a nested type, or `None` if none does.
    fn enclosing_type(&self, nested: u32) -> Option<u32> {
        let table = schema::NESTED_CLASS;
        let rows = self.tables.rows(table);
        let nested_at = |row| self.cell(table, row, 0).ok();
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
        self.cell(table, row?, 1).ok()
    }

    fn cell(&self, table: u8, row: u32, column: usize) -> Result<u32, MetadataError> {
        let cell = self.tables.cell(&self.bytes, table, row, column);
        cell.ok_or(MetadataError::NoRow { table, row })
    }

    fn string(&self, offset: u32) -> Result<Cow<'_, str>, MetadataError> {
        let name = || {
            let heap = self.bytes.get(self.strings.clone())?;
            let bytes = heap.get(offset as usize..)?;
            let bytes = bytes.get(..MAX_NAME_BYTES).unwrap_or(bytes);
            let end = memchr::memchr(0, bytes)?;
            bytes.get(..end)
        };
        let name = name().ok_or(MetadataError::Name(offset))?;
        Ok(String::from_utf8_lossy(name))
    }

    fn blob(&self, offset: u32) -> Result<&[u8], MetadataError> {
        let blob = || {
            let heap = self.bytes.get(self.blobs.clone())?;
            let mut cursor = Cursor(heap.get(offset as usize..)?);
            let len = cursor.compressed_u32()?;
            cursor.take(len as usize)
        };
        blob().ok_or(MetadataError::Blob(offset))
    }
}

/// Decodes a coded index that must refer to a row.
fn reference(column: schema::Column, value: u32) -> Result<Token, MetadataError> {
    decode(column, value).ok_or(MetadataError::NullReference(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Metadata with one stream of tables at an offset.
    fn with_stream(offset: u8, size: u8) -> Vec<u8> {
        let root = [&b"BSJB"[..], &[0; 8], &[4, 0, 0, 0], &[0; 4], &[0, 0, 1, 0]];
        let stream = [&[offset, 0, 0, 0][..], &[size, 0, 0, 0], b"#~\0\0"];
        [root.concat(), stream.concat()].concat()
    }

    #[test]
    fn reports_why_metadata_is_rejected() {
        let mut without_streams = with_stream(0, 0);
        without_streams[22] = 0;
        let outside = MetadataError::OutsideMetadata {
            offset: 8,
            size: 29,
            limit: 36,
        };
        for (bytes, expected) in [
            (Vec::new(), MetadataError::Magic),
            (b"BSJC".to_vec(), MetadataError::Magic),
            (b"BSJB".to_vec(), MetadataError::Truncated("root")),
            (without_streams, MetadataError::NoTables),
            (with_stream(8, 29), outside),
            (with_stream(8, 12), MetadataError::Truncated("table header")),
            (
                with_stream(0, 0)[..28].to_vec(),
                MetadataError::Truncated("stream headers"),
            ),
        ] {
            let error = Metadata::open(bytes).unwrap_err();
            assert_eq!(error, expected);
        }
    }
}
