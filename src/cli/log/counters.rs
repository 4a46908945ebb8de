//! The counters of a trace, with the names that they have in `summary.json`.

use serde::Serialize;
use serde_json::Value;

use super::lines::LogLines;

/// Lists whose rows are not counters, or have lines in the log already.
const OTHER: [&str; 2] = ["notices", "threads"];

/// Adds a line for each number and text in a value.
pub(super) fn put(name: &str, counters: &impl Serialize, lines: &mut LogLines) {
    if let Ok(value) = serde_json::to_value(counters) {
        put_value(name, &value, lines);
    }
}

fn put_value(name: &str, value: &Value, lines: &mut LogLines) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields.iter().filter(|(key, _)| !OTHER.contains(&&***key)) {
                put_value(&format!("{name}.{key}"), value, lines);
            }
        }
        Value::Array(rows) => {
            for (row, value) in rows.iter().enumerate() {
                put_value(&format!("{name}.{row}"), value, lines);
            }
        }
        Value::String(text) => lines.put(name, text),
        value => lines.put(name, value),
    }
}
