//! What the fields of an event hold, as text.

use crate::dotnet::runtime_value;
use crate::nettrace::Value;
use crate::output::event_json::json;

/// Values of a list that are shown.
const MAX_LISTED: usize = 8;

/// The value of a field, not yet safe for a terminal. `event` is the runtime's own that it is of.
pub(super) fn text(event: Option<&str>, field: &str, value: Value<'_>) -> String {
    match (value, event) {
        (Value::Unsigned(number), Some(event)) => runtime_value(event, field, number),
        (Value::Text(text), _) => format!("{text:?}"),
        (Value::List(values), _) => {
            let more = if values.len() > MAX_LISTED {
                ", …"
            } else {
                ""
            };
            let values = values.into_iter().take(MAX_LISTED);
            let values: Vec<_> = values.map(|value| text(event, field, value)).collect();
            format!("[{}{more}]", values.join(", "))
        }
        (Value::Record(values), _) => {
            let values = values.into_iter();
            let values = values.map(|(name, value)| {
                let label = label(name, &value);
                format!("{label}={}", text(event, name, value))
            });
            format!("{{{}}}", values.collect::<Vec<_>>().join(" "))
        }
        (value, _) => json(value).to_string(),
    }
}

/// The name of a field, for a list with how many it has.
pub(super) fn label(field: &str, value: &Value<'_>) -> String {
    match value {
        Value::List(values) => format!("{field}[{}]", values.len()),
        _ => field.to_owned(),
    }
}
