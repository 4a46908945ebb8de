//! The columns of the metadata tables (ECMA-335 II.22), up to the last table that is read.

use Column::{Blob, Coded, Guid, Row, String, U16, U32};

/// The type of a column.
#[derive(Clone, Copy, Debug)]
pub(super) enum Column {
    U16,
    U32,
    /// Offset in the string heap.
    String,
    /// Index in the GUID heap.
    Guid,
    /// Offset in the blob heap.
    Blob,
    /// Row of a table.
    Row(u8),
    /// Coded index: the low bits, as many as the first field, select one of several tables.
    Coded(u32, &'static [u8]),
}

/// Table ids.
pub(super) const MODULE: u8 = 0x00;
pub(super) const TYPE_REF: u8 = 0x01;
pub(super) const TYPE_DEF: u8 = 0x02;
pub(super) const METHOD_PTR: u8 = 0x05;
pub(super) const METHOD_DEF: u8 = 0x06;
pub(super) const MEMBER_REF: u8 = 0x0a;
pub(super) const CUSTOM_ATTRIBUTE: u8 = 0x0c;
pub(super) const TYPE_SPEC: u8 = 0x1b;
pub(super) const ASSEMBLY: u8 = 0x20;
pub(super) const ASSEMBLY_REF: u8 = 0x23;
pub(super) const NESTED_CLASS: u8 = 0x29;

/// Limit on the tables. The header has one bit for each.
pub(super) const MAX_TABLES: usize = 64;

pub(super) const TYPE_DEF_OR_REF: Column = Coded(2, &[TYPE_DEF, TYPE_REF, TYPE_SPEC]);
pub(super) const MEMBER_REF_PARENT: Column =
    Coded(3, &[TYPE_DEF, TYPE_REF, 0x1a, METHOD_DEF, TYPE_SPEC]);
pub(super) const RESOLUTION_SCOPE: Column = Coded(2, &[0x00, 0x1a, ASSEMBLY_REF, TYPE_REF]);
const METHOD_DEF_OR_REF: Column = Coded(1, &[METHOD_DEF, MEMBER_REF]);
const HAS_CONSTANT: Column = Coded(2, &[0x04, 0x08, 0x17]);
const HAS_CUSTOM_ATTRIBUTE: Column = Coded(
    5,
    &[
        0x06, 0x04, 0x01, 0x02, 0x08, 0x09, 0x0a, 0x00, 0x0e, 0x17, 0x14, 0x11, 0x1a, 0x1b, 0x20,
        0x23, 0x26, 0x27, 0x28, 0x2a, 0x2c, 0x2b,
    ],
);
/// The first two values are not used.
pub(super) const CUSTOM_ATTRIBUTE_TYPE: Column =
    Coded(3, &[METHOD_DEF, METHOD_DEF, METHOD_DEF, MEMBER_REF]);
const HAS_FIELD_MARSHAL: Column = Coded(1, &[0x04, 0x08]);
const HAS_DECL_SECURITY: Column = Coded(2, &[TYPE_DEF, METHOD_DEF, ASSEMBLY]);
const HAS_SEMANTICS: Column = Coded(1, &[0x14, 0x17]);
const MEMBER_FORWARDED: Column = Coded(1, &[0x04, METHOD_DEF]);
const IMPLEMENTATION: Column = Coded(2, &[0x26, ASSEMBLY_REF, 0x27]);

/// Columns of each table, by table id.
pub(super) const TABLES: [&[Column]; NESTED_CLASS as usize + 1] = [
    &[U16, String, Guid, Guid, Guid],
    &[RESOLUTION_SCOPE, String, String],
    &[
        U32,
        String,
        String,
        TYPE_DEF_OR_REF,
        Row(0x04),
        Row(METHOD_DEF),
    ],
    &[Row(0x04)],
    &[U16, String, Blob],
    &[Row(METHOD_DEF)],
    &[U32, U16, U16, String, Blob, Row(0x08)],
    &[Row(0x08)],
    &[U16, U16, String],
    &[Row(TYPE_DEF), TYPE_DEF_OR_REF],
    &[MEMBER_REF_PARENT, String, Blob],
    &[U16, HAS_CONSTANT, Blob],
    &[HAS_CUSTOM_ATTRIBUTE, CUSTOM_ATTRIBUTE_TYPE, Blob],
    &[HAS_FIELD_MARSHAL, Blob],
    &[U16, HAS_DECL_SECURITY, Blob],
    &[U16, U32, Row(TYPE_DEF)],
    &[U32, Row(0x04)],
    &[Blob],
    &[Row(TYPE_DEF), Row(0x14)],
    &[Row(0x14)],
    &[U16, String, TYPE_DEF_OR_REF],
    &[Row(TYPE_DEF), Row(0x17)],
    &[Row(0x17)],
    &[U16, String, Blob],
    &[U16, Row(METHOD_DEF), HAS_SEMANTICS],
    &[Row(TYPE_DEF), METHOD_DEF_OR_REF, METHOD_DEF_OR_REF],
    &[String],
    &[Blob],
    &[U16, MEMBER_FORWARDED, String, Row(0x1a)],
    &[U32, Row(0x04)],
    &[U32, U32],
    &[U32],
    &[U32, U16, U16, U16, U16, U32, Blob, String, String],
    &[U32],
    &[U32, U32, U32],
    &[U16, U16, U16, U16, U32, Blob, String, String, Blob],
    &[U32, Row(ASSEMBLY_REF)],
    &[U32, U32, U32, Row(ASSEMBLY_REF)],
    &[U32, String, Blob],
    &[U32, U32, String, String, IMPLEMENTATION],
    &[U32, U32, String, IMPLEMENTATION],
    &[Row(TYPE_DEF), Row(TYPE_DEF)],
];
