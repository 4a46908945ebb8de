//! Values of event fields as strings.

use crate::dotnet::runtime_value;
use crate::nettrace::Value;
use crate::output::event_json::json;

/// Maximum number of shown values of a list.
const MAX_LISTED: usize = 8;

/// Formats the value of a field; the string is not escaped for a terminal.
///
/// `event` is the name of the event if the runtime defines it.
pub(super) fn format(event: Option<&str>, field: &str, value: Value<'_>) -> String {
    match (value, event) {
        (Value::Unsigned(number), Some(event)) => runtime_value(event, field, number),
        (Value::Text(string), _) => format!("{string:?}"),
        (Value::List(values), _) => {
            let more = if values.len() > MAX_LISTED {
                ", …"
            } else {
                ""
            };
            let values = values.into_iter().take(MAX_LISTED);
            let values: Vec<_> = values.map(|value| format(event, field, value)).collect();
            format!("[{}{more}]", values.join(", "))
        }
        (Value::Record(values), _) => {
            let values = values.into_iter();
            let values = values.map(|(name, value)| {
                let label = label(name, &value);
                format!("{label}={}", format(event, name, value))
            });
            format!("{{{}}}", values.collect::<Vec<_>>().join(" "))
        }
        (value, _) => json(value).to_string(),
    }
}

/// Returns the name of a field, with the number of its values if it is a list.
pub(super) fn label(field: &str, value: &Value<'_>) -> String {
    match value {
        Value::List(values) => format!("{field}[{}]", values.len()),
        _ => field.to_owned(),
    }
}
