//! Converts event payloads to JSON.

use serde_json::{Map, Number, Value as Json};

use crate::nettrace::{EventMetadata, Value};

/// Converts the fields of an event, as its metadata declares them.
///
/// Returns `null` if the metadata declares no fields, or does not match the payload.
pub(crate) fn payload(kind: &EventMetadata, payload: &[u8]) -> Json {
    let fields = kind.fields.as_deref();
    let value = fields.and_then(|fields| Value::parse(fields, payload));
    value.map_or(Json::Null, json)
}

pub(crate) fn json(value: Value<'_>) -> Json {
    match value {
        Value::Bool(value) => value.into(),
        Value::Signed(value) => value.into(),
        Value::Unsigned(value) => value.into(),
        Value::Float(value) => {
            Number::from_f64(value).map_or_else(|| value.to_string().into(), Json::Number)
        }
        Value::Text(text) => text.into(),
        Value::Guid(bytes) => guid(bytes).into(),
        Value::FileTime(steps) => steps.into(),
        Value::SystemTime([year, month, _, day, hour, minute, second, ms]) => {
            format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
                .into()
        }
        Value::List(values) => values.into_iter().map(json).collect(),
        Value::Record(values) => {
            let values = values.into_iter();
            let map: Map<String, Json> = values
                .map(|(name, value)| (name.to_owned(), json(value)))
                .collect();
            map.into()
        }
    }
}

/// Formats a GUID in the usual notation. Its first three groups are little-endian integers.
pub(crate) fn guid(bytes: [u8; 16]) -> String {
    let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let mut text = String::new();
    for (at, index) in order.into_iter().enumerate() {
        if [4, 6, 8, 10].contains(&at) {
            text.push('-');
        }
        text.push_str(&format!("{:02x}", bytes[index]));
    }
    text
}
