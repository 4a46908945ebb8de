//! Integers in the fields of events.

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
