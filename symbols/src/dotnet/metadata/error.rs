//! Errors of metadata.

use thiserror::Error;

/// Why metadata or a row of it cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MetadataError {
    /// The metadata does not start with its magic.
    #[error("no metadata: the magic is missing")]
    Magic,
    /// The metadata ends within this part.
    #[error("the metadata ends within its {0}")]
    Truncated(&'static str),
    /// A stream is not inside the metadata.
    #[error("metadata stream of {size} bytes at {offset:#x} exceeds the {limit} bytes of metadata")]
    OutsideMetadata {
        /// The offset of the stream.
        offset: u32,
        /// The size of the stream in bytes.
        size: u32,
        /// The size of the metadata in bytes.
        limit: usize,
    },
    /// The metadata has no stream of tables.
    #[error("the metadata has no table stream")]
    NoTables,
    /// A debugger edited the metadata, so that a table maps its methods.
    #[error("edited metadata is not supported: it has {0} rows in table MethodPtr")]
    Edited(u32),
    /// A table ends after the stream of tables.
    #[error("metadata table {table:#04x} of {rows} rows exceeds its stream")]
    TableTooLarge {
        /// The id of the table.
        table: u8,
        /// The number of rows.
        rows: u32,
    },
    /// A table has no such row.
    #[error("metadata table {table:#04x} has no row {row}")]
    NoRow {
        /// The id of the table.
        table: u8,
        /// The row id (RID).
        row: u32,
    },
    /// No type declares the method.
    #[error("no type declares method {0} of the metadata")]
    NoOwner(u32),
    /// The offset is not that of a name.
    #[error("the metadata has no name at offset {0:#x} of its strings")]
    Name(u32),
    /// The offset is not that of a blob.
    #[error("the metadata has no blob at offset {0:#x} of its blobs")]
    Blob(u32),
    /// A coded index is null, or selects no table.
    #[error("the coded index {0:#x} refers to no row")]
    NullReference(u32),
    /// The row is not that of a type with a name.
    #[error("row {row} of metadata table {table:#04x} is no named type")]
    NotNamed {
        /// The id of the table.
        table: u8,
        /// The row id (RID).
        row: u32,
    },
    /// Types are nested too deeply.
    #[error("types of the metadata are nested too deeply")]
    TooDeep,
}
