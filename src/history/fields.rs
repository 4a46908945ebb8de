//! Integers and strings in the fields of events.

use crate::nettrace::Value;

/// Returns the integer in a field of a runtime event.
pub(crate) fn number(fields: &[(&str, Value<'_>)], name: &str) -> Option<u64> {
    fields.iter().find_map(|(field, value)| match value {
        Value::Unsigned(number) if *field == name => Some(*number),
        _ => None,
    })
}

/// Adds numbers without overflow, as the sender of the events chose the numbers.
pub(crate) fn sum(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}

/// Returns the start of a string, of at most this many bytes.
pub(crate) fn prefix(text: &str, max_bytes: usize) -> &str {
    let mut ends = (0..=text.len().min(max_bytes)).rev();
    let end = ends.find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}
