//! Event metadata as rows of a metadata block.
//!
//! ```text
//! row     length u16 | id | provider | event id | name | fields | length of options u16 | options
//! fields  count u16, then for each: length u16 | name | type
//! ```
//! An option is a tag followed by its value. Integers without a size here are variable-length, in
//! groups of seven bits.

use super::encode::{row, text};
use crate::bytes::put_varuint;
use crate::nettrace::{EventMetadata, Field, FieldType};

/// Tags of options.
const KEYWORDS: u8 = 3;
const LEVEL: u8 = 8;
const VERSION: u8 = 9;

/// Appends the row of an event kind.
pub(super) fn put(out: &mut Vec<u8>, id: u32, kind: &EventMetadata) {
    let fields = kind.fields.as_deref().unwrap_or_default();
    let complete = content(id, kind, fields).and_then(|content| row(out, &content));
    if complete.is_none() {
        // Declare the kind without fields: the payloads of its events remain in the file.
        let _ = content(id, kind, &[]).and_then(|content| row(out, &content));
    }
}

fn content(id: u32, kind: &EventMetadata, declared: &[Field]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    put_varuint(&mut out, id.into());
    text(&mut out, &kind.provider);
    put_varuint(&mut out, kind.id.into());
    text(&mut out, &kind.name);
    fields(&mut out, declared)?;
    let mut options = vec![KEYWORDS];
    options.extend(kind.keywords.to_le_bytes());
    options.extend([LEVEL, kind.level.min(u8::MAX.into()) as u8]);
    options.extend([VERSION, kind.version.min(u8::MAX.into()) as u8]);
    row(&mut out, &options)?;
    Some(out)
}

fn fields(out: &mut Vec<u8>, declared: &[Field]) -> Option<()> {
    out.extend(u16::try_from(declared.len()).ok()?.to_le_bytes());
    for field in declared {
        let mut content = Vec::new();
        text(&mut content, &field.name);
        field_type(&mut content, &field.kind)?;
        row(out, &content)?;
    }
    Some(())
}

/// Appends a type. The recursion is safe, because the parser of metadata limits the nesting.
fn field_type(out: &mut Vec<u8>, kind: &FieldType) -> Option<()> {
    let code = match kind {
        FieldType::Record(declared) => {
            out.push(1);
            return fields(out, declared);
        }
        // No stream declares these types: only perfcollect's own event definitions use them.
        FieldType::LongArray(_) | FieldType::Rest(_) => return None,
        FieldType::Array(element) => {
            out.push(19);
            return field_type(out, element);
        }
        FieldType::FixedArray(element, count) => {
            out.push(22);
            field_type(out, element)?;
            out.extend(count.to_le_bytes());
            return Some(());
        }
        FieldType::Located { element, relative } => {
            out.push(if *relative { 24 } else { 25 });
            return field_type(out, element);
        }
        FieldType::Bool { bytes: 1 } => 26,
        FieldType::Bool { .. } => 3,
        FieldType::Utf16Unit => 4,
        FieldType::Utf8Unit => 23,
        FieldType::Signed { bytes } => integer(5, *bytes)?,
        FieldType::Unsigned { bytes } => integer(6, *bytes)?,
        FieldType::VarSigned => 20,
        FieldType::VarUnsigned => 21,
        FieldType::Float => 13,
        FieldType::Double => 14,
        // In version 6, the type with this name is a different one.
        FieldType::FileTime => 11,
        FieldType::SystemTime => 16,
        FieldType::Guid => 17,
        FieldType::Utf16Text => 18,
    };
    out.push(code);
    Some(())
}

/// Returns the code of an integer type. Signed and unsigned codes alternate, with doubling sizes.
fn integer(one_byte_code: u8, bytes: u8) -> Option<u8> {
    match bytes {
        1 | 2 | 4 | 8 => Some(one_byte_code + 2 * bytes.ilog2() as u8),
        _ => None,
    }
}
