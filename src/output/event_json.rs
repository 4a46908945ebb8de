//! Converts event payloads to JSON.

use serde_json::{Map, Number, Value as Json};
use uuid::Uuid;

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
        Value::Guid(bytes) => Uuid::from_bytes_le(bytes).to_string().into(),
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
