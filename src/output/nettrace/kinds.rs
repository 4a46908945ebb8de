//! Kinds of events as rows of a metadata block.
//!
//! ```text
//! row     length u16 | id | provider | event id | name | fields | length of options u16 | options
//! fields  number u16, then each: length u16 | name | type
//! ```
//! An option is its tag and what belongs to it. Numbers are of groups of seven bits where no size is stated.

use super::encode::{row, text};
use crate::bytes::put_varuint;
use crate::nettrace::{EventMetadata, Field, FieldType};

/// Tags of options.
const KEYWORDS: u8 = 3;
const LEVEL: u8 = 8;
const VERSION: u8 = 9;

/// Appends the row of a kind.
pub(super) fn put(out: &mut Vec<u8>, id: u32, kind: &EventMetadata) {
    let fields = kind.fields.as_deref().unwrap_or_default();
    let whole = content(id, kind, fields).and_then(|content| row(out, &content));
    if whole.is_none() {
        // What its events hold is there nevertheless.
        let _ = content(id, kind, &[]).and_then(|content| row(out, &content));
    }
}

fn content(id: u32, kind: &EventMetadata, of: &[Field]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    put_varuint(&mut out, id.into());
    text(&mut out, &kind.provider);
    put_varuint(&mut out, kind.id.into());
    text(&mut out, &kind.name);
    fields(&mut out, of)?;
    let mut options = vec![KEYWORDS];
    options.extend(kind.keywords.to_le_bytes());
    options.extend([LEVEL, kind.level.min(u8::MAX.into()) as u8]);
    options.extend([VERSION, kind.version.min(u8::MAX.into()) as u8]);
    row(&mut out, &options)?;
    Some(out)
}

fn fields(out: &mut Vec<u8>, of: &[Field]) -> Option<()> {
    out.extend(u16::try_from(of.len()).ok()?.to_le_bytes());
    for field in of {
        let mut content = Vec::new();
        text(&mut content, &field.name);
        field_type(&mut content, &field.kind)?;
        row(out, &content)?;
    }
    Some(())
}

/// Statements are at most a few records deep, as whoever read them has made sure.
fn field_type(out: &mut Vec<u8>, kind: &FieldType) -> Option<()> {
    let code = match kind {
        FieldType::Record(of) => {
            out.push(1);
            return fields(out, of);
        }
        // No stream states them: they are those of lists of ours.
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
        FieldType::Signed { bytes } => number(5, *bytes)?,
        FieldType::Unsigned { bytes } => number(6, *bytes)?,
        FieldType::VarSigned => 20,
        FieldType::VarUnsigned => 21,
        FieldType::Float => 13,
        FieldType::Double => 14,
        // The type of this name is another one in version 6.
        FieldType::FileTime => 11,
        FieldType::SystemTime => 16,
        FieldType::Guid => 17,
        FieldType::Utf16Text => 18,
    };
    out.push(code);
    Some(())
}

/// Signed and unsigned alternate, each twice as long as the one before.
fn number(of_one_byte: u8, bytes: u8) -> Option<u8> {
    match bytes {
        1 | 2 | 4 | 8 => Some(of_one_byte + 2 * bytes.ilog2() as u8),
        _ => None,
    }
}
