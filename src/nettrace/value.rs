//! The values in the payload of an event.

use super::field::{Field, FieldType};
use crate::bytes::{Bytes, utf16};

/// Limit on the values of one event.
const MAX_VALUES: u32 = 1 << 16;
/// Limit on the values of one event that take no bytes of the payload, such as records without fields.
/// Otherwise an array of them would cost far more than its payload.
const MAX_EMPTY_VALUES: u32 = 16;

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
        Payload::new(payload, MAX_VALUES).record(fields)
    }

    /// Parses the fields of a payload up to the first incomplete one.
    #[must_use]
    pub fn parse_partial(fields: &'a [Field], payload: &[u8]) -> Vec<(&'a str, Self)> {
        Self::parse_leading(fields, payload, MAX_VALUES)
    }

    /// Parses the fields of a payload up to the first incomplete one. All of them have up to `max_values`
    /// values, with those in lists and records.
    #[must_use]
    pub fn parse_leading(
        fields: &'a [Field],
        payload: &[u8],
        max_values: u32,
    ) -> Vec<(&'a str, Self)> {
        let mut payload = Payload::new(payload, max_values);
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

/// A payload with budgets, so that the cost of an event is proportional to its bytes.
struct Payload<'a> {
    all: &'a [u8],
    rest: Bytes<'a>,
    values_left: u32,
    empty_values_left: u32,
    /// Bytes of the arrays at another position: fields may refer to the same bytes again and again.
    located_bytes_left: usize,
}

impl<'p> Payload<'p> {
    fn new(all: &'p [u8], max_values: u32) -> Self {
        Self {
            all,
            rest: Bytes(all),
            values_left: max_values,
            empty_values_left: MAX_EMPTY_VALUES,
            located_bytes_left: all.len(),
        }
    }

    fn record<'a>(&mut self, fields: &'a [Field]) -> Option<Value<'a>> {
        let values: Option<_> = fields
            .iter()
            .map(|field| Some((field.name.as_str(), self.value(&field.kind)?)))
            .collect();
        values.map(Value::Record)
    }

    fn value<'a>(&mut self, kind: &'a FieldType) -> Option<Value<'a>> {
        self.values_left = self.values_left.checked_sub(1)?;
        let bytes_before = self.rest.0.len();
        let value = self.value_of(kind)?;
        if self.rest.0.len() == bytes_before {
            self.empty_values_left = self.empty_values_left.checked_sub(1)?;
        }
        Some(value)
    }

    fn value_of<'a>(&mut self, kind: &'a FieldType) -> Option<Value<'a>> {
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
        self.located_bytes_left = self.located_bytes_left.checked_sub(length)?;
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
        let fields = Box::leak(Box::new([field(kind)]));
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

    fn empty() -> Box<FieldType> {
        FieldType::Record(Vec::new()).into()
    }

    fn field(kind: FieldType) -> Field {
        Field {
            name: "field".into(),
            kind,
        }
    }

    #[test]
    fn bounds_work_for_elements_without_size() {
        let mut kind = *empty();
        for _ in 0..5 {
            kind = FieldType::FixedArray(kind.into(), u16::MAX);
        }
        assert_eq!(parse_one(kind, &[]), None);
        // A located array of elements without size would never end.
        let endless = FieldType::Located {
            element: empty(),
            relative: true,
        };
        assert_eq!(parse_one(endless, &[0, 0, 1, 0, 0]), None);
    }

    /// Returns the number of values that an attempt to parse a value made, successful or not.
    fn cost(kind: &FieldType, bytes: &[u8]) -> u32 {
        let mut payload = Payload::new(bytes, MAX_VALUES);
        let _ = payload.value(kind);
        MAX_VALUES - payload.values_left
    }

    #[test]
    fn values_without_bytes_are_few_however_many_the_event_declares() {
        let array = FieldType::Array(empty());
        assert!(cost(&array, &u16::MAX.to_le_bytes()) <= MAX_EMPTY_VALUES + 2);
        let fixed = FieldType::FixedArray(FieldType::FixedArray(empty(), 9).into(), u16::MAX);
        assert!(cost(&fixed, &[]) <= MAX_EMPTY_VALUES + 3);
        let record = FieldType::Record(vec![field(*empty()); 1020]);
        assert!(cost(&record, &[]) <= MAX_EMPTY_VALUES + 2);
        let rest = FieldType::Rest(empty());
        assert!(cost(&rest, &[1; 100]) <= MAX_EMPTY_VALUES + 2);
        // A few are in order, as are many with bytes.
        let few = vec![Value::Record(Vec::new()); 3];
        assert_eq!(parse_one(array, &[3, 0]), Some(Value::List(few)));
        let bytes = FieldType::Array(FieldType::Unsigned { bytes: 1 }.into());
        assert_eq!(cost(&bytes, &[&[0xe8, 3][..], &[7; 1000]].concat()), 1001);
    }

    #[test]
    fn fields_that_refer_to_the_same_bytes_cost_no_more_than_the_payload() {
        let text = FieldType::Located {
            element: FieldType::Utf8Unit.into(),
            relative: false,
        };
        let fields = vec![field(text); 100];
        let payload: Vec<u8> = [0, 0, 0x90, 1].repeat(100);
        assert_eq!(Value::parse_partial(&fields, &payload).len(), 1);
    }

    #[test]
    fn leading_fields_have_a_limit_on_their_values() {
        let bytes = FieldType::Array(FieldType::Unsigned { bytes: 1 }.into());
        let byte = FieldType::Unsigned { bytes: 1 };
        let fields = [field(byte.clone()), field(bytes), field(byte)];
        let payload = [7, 3, 0, 1, 2, 3, 8];
        let count = |max_values| Value::parse_leading(&fields, &payload, max_values).len();
        assert_eq!([1, 4, 5, 6].map(count), [1, 1, 2, 3]);
    }
}
