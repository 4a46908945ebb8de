//! Parser for field declarations in the encodings of versions 4 to 6.

use super::field::{Field, FieldType};
use super::trace_info::string;
use crate::bytes::Bytes;

/// Nesting limit of records and arrays.
const MAX_DEPTH: u32 = 8;
/// Limit on the fields of one kind of events, including fields of nested records.
const MAX_FIELDS: u32 = 1024;

/// Parser with a budget that bounds the cost of one kind of events.
pub(super) struct FieldParser {
    fields_left: u32,
    depth_left: u32,
}

impl Default for FieldParser {
    fn default() -> Self {
        Self {
            fields_left: MAX_FIELDS,
            depth_left: MAX_DEPTH,
        }
    }
}

/// Parses the V2 fields of version 5.
pub(super) fn tagged_fields(part: &[u8]) -> Option<Vec<Field>> {
    FieldParser::default().sized_fields(&mut Bytes(part))
}

impl FieldParser {
    /// Parses fields of version 4 and 5: a count, then type and name of each.
    pub(super) fn fields(&mut self, bytes: &mut Bytes<'_>) -> Option<Vec<Field>> {
        let count = bytes.u32()?;
        self.each(count, |parser| {
            let code = bytes.u32()?;
            let kind = parser.object_type(code, bytes, Self::fields)?;
            let name = bytes.utf16z()?;
            Some(Field { name, kind })
        })
    }

    /// Parses V2 fields of version 5: a count, then size, name and type of each.
    fn sized_fields(&mut self, bytes: &mut Bytes<'_>) -> Option<Vec<Field>> {
        let count = bytes.u32()?;
        self.each(count, |parser| {
            let length = bytes.u32()?.checked_sub(4)?;
            let mut field = Bytes(bytes.take(length as usize)?);
            let name = field.utf16z()?;
            let code = field.u32()?;
            let kind = parser.object_type(code, &mut field, Self::sized_fields)?;
            Some(Field { name, kind })
        })
    }

    /// Parses fields of version 6: a count, then size, name and type of each, in shorter encodings.
    pub(super) fn rows(&mut self, bytes: &mut Bytes<'_>) -> Option<Vec<Field>> {
        let count = bytes.u16()?;
        self.each(count.into(), |parser| {
            let length = bytes.u16()?;
            let mut row = Bytes(bytes.take(length.into())?);
            let name = String::from_utf8_lossy(string(&mut row)?).into_owned();
            let kind = parser.row_type(&mut row)?;
            Some(Field { name, kind })
        })
    }

    fn each(
        &mut self,
        count: u32,
        mut parse: impl FnMut(&mut Self) -> Option<Field>,
    ) -> Option<Vec<Field>> {
        self.fields_left = self.fields_left.checked_sub(count)?;
        self.deeper(|parser| (0..count).map(|_| parse(parser)).collect())
    }

    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.depth_left = self.depth_left.checked_sub(1)?;
        let parsed = parse(self);
        self.depth_left += 1;
        parsed
    }

    fn object_type(
        &mut self,
        code: u32,
        bytes: &mut Bytes<'_>,
        fields: impl Fn(&mut Self, &mut Bytes<'_>) -> Option<Vec<Field>>,
    ) -> Option<FieldType> {
        let mut arrays = 0;
        let mut code = code;
        while code == ARRAY && arrays < MAX_DEPTH {
            code = bytes.u32()?;
            arrays += 1;
        }
        let element = match code {
            OBJECT => FieldType::Record(fields(self, bytes)?),
            DATE_TIME => FieldType::FileTime,
            _ => simple(code)?,
        };
        Some((0..arrays).fold(element, |element, _| FieldType::Array(element.into())))
    }

    fn row_type(&mut self, bytes: &mut Bytes<'_>) -> Option<FieldType> {
        let code = u32::from(bytes.u8()?);
        let mut element =
            |bytes: &mut _| self.deeper(|parser| parser.row_type(bytes)).map(Box::new);
        Some(match code {
            OBJECT => FieldType::Record(self.rows(bytes)?),
            ARRAY => FieldType::Array(element(bytes)?),
            FIXED_ARRAY => {
                let element = element(bytes)?;
                FieldType::FixedArray(element, bytes.u16()?)
            }
            RELATIVE | ABSOLUTE => FieldType::Located {
                element: element(bytes)?,
                relative: code == RELATIVE,
            },
            DATE_TIME => FieldType::SystemTime,
            20 => FieldType::VarSigned,
            21 => FieldType::VarUnsigned,
            23 => FieldType::Utf8Unit,
            26 => FieldType::Bool { bytes: 1 },
            _ => simple(code)?,
        })
    }
}

const OBJECT: u32 = 1;
const DATE_TIME: u32 = 16;
const ARRAY: u32 = 19;
const FIXED_ARRAY: u32 = 22;
const RELATIVE: u32 = 24;
const ABSOLUTE: u32 = 25;

/// Returns the type for a .NET `TypeCode` that is the same in all versions.
fn simple(code: u32) -> Option<FieldType> {
    Some(match code {
        3 => FieldType::Bool { bytes: 4 },
        4 => FieldType::Utf16Unit,
        5 => FieldType::Signed { bytes: 1 },
        6 => FieldType::Unsigned { bytes: 1 },
        7 => FieldType::Signed { bytes: 2 },
        8 => FieldType::Unsigned { bytes: 2 },
        9 => FieldType::Signed { bytes: 4 },
        10 => FieldType::Unsigned { bytes: 4 },
        11 => FieldType::Signed { bytes: 8 },
        12 => FieldType::Unsigned { bytes: 8 },
        13 => FieldType::Float,
        14 => FieldType::Double,
        17 => FieldType::Guid,
        18 => FieldType::Utf16Text,
        _ => return None,
    })
}
