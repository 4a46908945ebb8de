//! The values in the payload of an event.

use super::field::{Field, FieldType};
use crate::bytes::{Bytes, utf16};

/// Limit on the values of one event. Otherwise an array of elements without size would cost more
/// than its payload.
const MAX_VALUES: u32 = 1 << 16;

/// The value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// A boolean.
    Bool(bool),
    /// A signed integer.
    Signed(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// A floating-point number.
    Float(f64),
    /// A string, or one code unit of a string. U+FFFD replaces invalid Unicode.
    Text(String),
    /// A GUID in its binary form.
    Guid([u8; 16]),
    /// Time in steps of 100 ns since 1601.
    FileTime(u64),
    /// Year, month, day of the week, day, hour, minute, second, millisecond.
    SystemTime([u16; 8]),
    /// Values of one type.
    List(Vec<Value<'a>>),
    /// Named values.
    Record(Vec<(&'a str, Value<'a>)>),
}

impl<'a> Value<'a> {
    /// Parses a payload as a record of its fields. Returns `None` if a field is incomplete.
    #[must_use]
    pub fn parse(fields: &'a [Field], payload: &[u8]) -> Option<Self> {
        let mut payload = Payload {
            all: payload,
            rest: Bytes(payload),
            values_left: MAX_VALUES,
        };
        payload.record(fields)
    }

    /// Parses the fields of a payload up to the first incomplete one.
    #[must_use]
    pub fn parse_partial(fields: &'a [Field], payload: &[u8]) -> Vec<(&'a str, Self)> {
        let mut payload = Payload {
            all: payload,
            rest: Bytes(payload),
            values_left: MAX_VALUES,
        };
        let values = fields
            .iter()
            .map_while(|field| Some((field.name.as_str(), payload.value(&field.kind)?)));
        values.collect()
    }

    /// Returns the value with a name in a record.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Record(values) => values
                .iter()
                .find_map(|(key, value)| (*key == name).then_some(value)),
            _ => None,
        }
    }
}

struct Payload<'a> {
    all: &'a [u8],
    rest: Bytes<'a>,
    values_left: u32,
}

impl Payload<'_> {
    fn record<'a>(&mut self, fields: &'a [Field]) -> Option<Value<'a>> {
        let values: Option<_> = fields
            .iter()
            .map(|field| Some((field.name.as_str(), self.value(&field.kind)?)))
            .collect();
        values.map(Value::Record)
    }

    fn value<'a>(&mut self, kind: &'a FieldType) -> Option<Value<'a>> {
        self.values_left = self.values_left.checked_sub(1)?;
        Some(match kind {
            FieldType::Bool { bytes } => Value::Bool(self.unsigned(*bytes)? != 0),
            FieldType::Utf16Unit => Value::Text(utf16(self.rest.take(2)?)),
            FieldType::Utf8Unit => Value::Text(utf8(self.rest.take(1)?)),
            FieldType::Signed { bytes } => {
                let unused = 64 - 8 * u32::from(*bytes);
                Value::Signed((self.unsigned(*bytes)? << unused).cast_signed() >> unused)
            }
            FieldType::Unsigned { bytes } => Value::Unsigned(self.unsigned(*bytes)?),
            FieldType::VarSigned => {
                let folded = self.rest.varuint()?;
                Value::Signed(((folded >> 1) ^ (folded & 1).wrapping_neg()).cast_signed())
            }
            FieldType::VarUnsigned => Value::Unsigned(self.rest.varuint()?),
            FieldType::Float => Value::Float(f32::from_le_bytes(self.rest.array()?).into()),
            FieldType::Double => Value::Float(f64::from_le_bytes(self.rest.array()?)),
            FieldType::FileTime => Value::FileTime(self.rest.u64()?),
            FieldType::SystemTime => {
                let mut parts = [0; 8];
                for part in &mut parts {
                    *part = self.rest.u16()?;
                }
                Value::SystemTime(parts)
            }
            FieldType::Guid => Value::Guid(self.rest.array()?),
            FieldType::Utf16Text => Value::Text(self.rest.utf16z()?),
            FieldType::Array(element) => {
                let count = self.rest.u16()?;
                self.list(element, count.into())?
            }
            FieldType::LongArray(element) => {
                let count = self.rest.u32()?;
                self.list(element, count)?
            }
            FieldType::Rest(element) => {
                let mut values = Vec::new();
                while !self.rest.0.is_empty()
                    && let Some(value) = self.value(element)
                {
                    values.push(value);
                }
                Value::List(values)
            }
            FieldType::FixedArray(element, count) => self.list(element, (*count).into())?,
            FieldType::Located { element, relative } => self.located(element, *relative)?,
            FieldType::Record(fields) => self.record(fields)?,
        })
    }

    fn unsigned(&mut self, bytes: u8) -> Option<u64> {
        let bytes = self.rest.take(bytes.into())?;
        Some(
            bytes
                .iter()
                .rev()
                .fold(0, |value, &byte| value << 8 | u64::from(byte)),
        )
    }

    fn list<'a>(&mut self, element: &'a FieldType, count: u32) -> Option<Value<'a>> {
        let count = usize::try_from(count).ok()?;
        Some(match element {
            FieldType::Utf16Unit => Value::Text(utf16(self.rest.take(count.checked_mul(2)?)?)),
            FieldType::Utf8Unit => Value::Text(utf8(self.rest.take(count)?)),
            _ => Value::List(
                (0..count)
                    .map(|_| self.value(element))
                    .collect::<Option<_>>()?,
            ),
        })
    }

    /// Reads an array at another position of the payload.
    ///
    /// The high half of the field is the array's size in bytes, the low half its offset.
    fn located<'a>(&mut self, element: &'a FieldType, relative: bool) -> Option<Value<'a>> {
        let field = self.rest.u32()?;
        let (length, offset) = ((field >> 16) as usize, (field & 0xffff) as usize);
        let base = if relative { self.rest.0 } else { self.all };
        let bytes = base.get(offset..)?.get(..length)?;
        Some(match element {
            FieldType::Utf16Unit => Value::Text(utf16(bytes)),
            FieldType::Utf8Unit => Value::Text(utf8(bytes)),
            _ => {
                let rest = std::mem::replace(&mut self.rest, Bytes(bytes));
                let mut values = Vec::new();
                while !self.rest.0.is_empty() {
                    values.push(self.value(element)?);
                }
                self.rest = rest;
                Value::List(values)
            }
        })
    }
}

fn utf8(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_one(kind: FieldType, payload: &[u8]) -> Option<Value<'static>> {
        let field = Field {
            name: "field".into(),
            kind,
        };
        let fields = Box::leak(Box::new([field]));
        Value::parse(fields, payload)?.get("field").cloned()
    }

    #[test]
    fn parses_integers_by_sign_and_size() {
        let signed = |bytes| FieldType::Signed { bytes };
        assert_eq!(parse_one(signed(1), &[0xff]), Some(Value::Signed(-1)));
        assert_eq!(
            parse_one(signed(2), &[0, 0x80]),
            Some(Value::Signed(-32768))
        );
        assert_eq!(parse_one(signed(8), &[0xff; 8]), Some(Value::Signed(-1)));
        assert_eq!(parse_one(signed(4), &[1, 2, 3]), None);
        let unsigned = FieldType::Unsigned { bytes: 2 };
        assert_eq!(parse_one(unsigned, &[1, 2]), Some(Value::Unsigned(0x201)));
        assert_eq!(
            parse_one(FieldType::VarSigned, &[3]),
            Some(Value::Signed(-2))
        );
    }

    #[test]
    fn parses_inline_and_located_arrays() {
        let string = FieldType::Array(FieldType::Utf16Unit.into());
        assert_eq!(
            parse_one(string, b"\x02\0h\0i\0"),
            Some(Value::Text("hi".to_owned()))
        );
        let located = |relative| FieldType::Located {
            element: FieldType::Unsigned { bytes: 1 }.into(),
            relative,
        };
        let list = |values: &[u64]| {
            Some(Value::List(
                values.iter().map(|&n| Value::Unsigned(n)).collect(),
            ))
        };
        let payload = [1, 0, 2, 0, 7, 8, 9];
        assert_eq!(parse_one(located(true), &payload), list(&[8, 9]));
        assert_eq!(parse_one(located(false), &payload), list(&[0, 2]));
        assert_eq!(parse_one(located(true), &[9, 0, 2, 0, 7]), None);
    }

    #[test]
    fn bounds_work_for_elements_without_size() {
        let mut kind = FieldType::Record(Vec::new());
        for _ in 0..5 {
            kind = FieldType::FixedArray(kind.into(), u16::MAX);
        }
        assert_eq!(parse_one(kind, &[]), None);
        // A located array of elements without size would never end.
        let endless = FieldType::Located {
            element: FieldType::Record(Vec::new()).into(),
            relative: true,
        };
        assert_eq!(parse_one(endless, &[0, 0, 1, 0, 0]), None);
    }
}
