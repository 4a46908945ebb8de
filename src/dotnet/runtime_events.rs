//! Names and fields of the runtime's own events, which its streams do not declare.
//!
//! They are from the runtime's manifest (`ClrEtwAll.man` in dotnet/runtime). A later version of an
//! event only appends fields, so one list applies to all versions.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::code_event::{RUNDOWN, RUNTIME};
use super::profile::PRIVATE;
use crate::nettrace::{EventMetadata, Field, FieldType, Value};

/// Events, one per line: provider, id, name, fields as `Name:type`.
///
/// - Providers: `r` runtime, `d` rundown, `p` private.
/// - Types: `u` and the number of bits, `f64`, `guid`, `z` for NUL-terminated UTF-16. The suffix
///   `[]` denotes a 32-bit count and the elements.
/// - `C` is the field `ClrInstanceID`.
/// - `Name[]` and comma-separated fields denote records up to the end of the payload.
const EVENTS: &str = include_str!("runtime_events.txt");

/// A kind of runtime events according to the manifest.
#[derive(Debug)]
pub struct RuntimeEventKind {
    /// The event's name.
    pub name: &'static str,
    /// The fields of the payload.
    pub fields: Vec<Field>,
}

static KINDS: LazyLock<FxHashMap<(&'static str, u32), RuntimeEventKind>> =
    LazyLock::new(|| EVENTS.lines().filter_map(parse).collect());

/// Returns the manifest entry of an event, or `None` for other providers and unknown events.
#[must_use]
pub fn runtime_event_kind(kind: &EventMetadata) -> Option<&'static RuntimeEventKind> {
    let provider = [RUNTIME, RUNDOWN, PRIVATE]
        .into_iter()
        .find(|provider| *provider == kind.provider)?;
    KINDS.get(&(provider, kind.id))
}

/// Returns name and fields of an event, from the manifest or from its stream.
///
/// The result omits fields that the payload does not have.
#[must_use]
pub fn decode<'a>(kind: &'a EventMetadata, payload: &[u8]) -> (String, Vec<(&'a str, Value<'a>)>) {
    let fields = match runtime_event_kind(kind) {
        Some(runtime_kind) => &runtime_kind.fields,
        None => kind.fields.as_deref().unwrap_or_default(),
    };
    (event_name(kind), Value::parse_partial(fields, payload))
}

/// Returns the name of an event, from the manifest or from its stream. An event without a name is
/// called `Event` and its id.
#[must_use]
pub fn event_name(kind: &EventMetadata) -> String {
    match (runtime_event_kind(kind), kind.name.as_str()) {
        (Some(runtime_kind), _) => runtime_kind.name.to_owned(),
        (None, "") => format!("Event{}", kind.id),
        (None, name) => name.to_owned(),
    }
}

fn parse(line: &'static str) -> Option<((&'static str, u32), RuntimeEventKind)> {
    let mut words = line.split(' ');
    let provider = match words.next()? {
        "r" => RUNTIME,
        "d" => RUNDOWN,
        "p" => PRIVATE,
        _ => return None,
    };
    let id = words.next()?.parse().ok()?;
    let name = words.next()?;
    let fields: Option<_> = words.map(field).collect();
    let kind = RuntimeEventKind {
        name,
        fields: fields?,
    };
    Some(((provider, id), kind))
}

fn field(word: &str) -> Option<Field> {
    let (name, kind) =
        if let Some((name, record)) = word.split_once("[]").filter(|list| !list.1.is_empty()) {
            let fields: Option<_> = record.split(',').map(field).collect();
            (name, FieldType::Rest(FieldType::Record(fields?).into()))
        } else if word == "C" {
            ("ClrInstanceID", field_type("u16")?)
        } else {
            let (name, kind) = word.split_once(':')?;
            (name, field_type(kind)?)
        };
    Some(Field {
        name: name.to_owned(),
        kind,
    })
}

fn field_type(word: &str) -> Option<FieldType> {
    if let Some(element) = word.strip_suffix("[]") {
        return Some(FieldType::LongArray(field_type(element)?.into()));
    }
    Some(match word {
        "u8" => FieldType::Unsigned { bytes: 1 },
        "u16" => FieldType::Unsigned { bytes: 2 },
        "u32" => FieldType::Unsigned { bytes: 4 },
        "u64" => FieldType::Unsigned { bytes: 8 },
        "f64" => FieldType::Double,
        "guid" => FieldType::Guid,
        "z" => FieldType::Utf16Text,
        _ => return None,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns whether an event (`*` for any) or its records have a field.
    pub(in super::super) fn has_field(event: &str, field: &str) -> bool {
        fn contains(fields: &[Field], name: &str) -> bool {
            fields.iter().any(|field| {
                field.name == name
                    || matches!(&field.kind, FieldType::Rest(element)
                        if matches!(&**element, FieldType::Record(fields) if contains(fields, name)))
            })
        }
        let mut kinds = KINDS
            .values()
            .filter(|kind| event == "*" || kind.name == event);
        kinds.any(|kind| contains(&kind.fields, field))
    }

    #[test]
    fn parses_every_line() {
        assert_eq!(KINDS.len(), EVENTS.lines().count());
    }

    #[test]
    fn omits_fields_that_an_older_version_lacks() {
        let kind = EventMetadata {
            provider: RUNTIME.into(),
            id: 1,
            ..EventMetadata::default()
        };
        let payload = [1_u32, 2, 0, 1].map(u32::to_le_bytes).concat();
        let (name, fields) = decode(&kind, &payload);
        assert_eq!(name, "GCStart");
        assert_eq!(fields.len(), 4);
        assert_eq!(fields[1], ("Depth", Value::Unsigned(2)));
    }

    #[test]
    fn parses_records_up_to_the_end() {
        let kind = EventMetadata {
            provider: RUNTIME.into(),
            id: 15,
            ..EventMetadata::default()
        };
        let mut payload = vec![2, 0, 0, 0, 9, 0];
        for name in [b'A', b'B'] {
            payload.extend([name; 8 + 8 + 4]);
            payload.extend([1, 0, 0, 0, 0x12, name, 0, 0, 0, 1, 0, 0, 0]);
            payload.extend([7, 0, 0, 0, 0, 0, 0, 0]);
        }
        let records = |payload: &[u8]| match decode(&kind, payload).1.last() {
            Some(("Values", Value::List(records))) => records.clone(),
            other => panic!("{other:?}"),
        };
        let both = records(&payload);
        assert_eq!(both.len(), 2);
        assert_eq!(both[1].get("Name"), Some(&Value::Text("B".to_owned())));
        let parameters = Value::List(vec![Value::Unsigned(7)]);
        assert_eq!(both[1].get("TypeParameters"), Some(&parameters));
        payload.pop();
        assert_eq!(records(&payload), both[..1]);
    }

    #[test]
    fn distinguishes_events_of_providers_with_equal_ids() {
        let name = |provider: &str| {
            let kind = EventMetadata {
                provider: provider.into(),
                id: 10,
                ..EventMetadata::default()
            };
            decode(&kind, &[]).0
        };
        let names = [RUNTIME, RUNDOWN, PRIVATE, "Other"].map(name);
        let expected = ["GCAllocationTick", "GCSettingsRundown", "PrvGCMarkCards"];
        assert_eq!(names[..3], expected);
        assert_eq!(names[3], "Event10");
    }
}
