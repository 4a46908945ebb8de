//! Formats integer fields of runtime events with the names of the manifest and of PerfView.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::code_event::{TIER_MASK, tier_of};

/// Formats of fields, one per line: event (`*` for any), field, format.
///
/// - `=` precedes the names of the values from 0 on.
/// - `|` precedes the names of the bits, `-` for a bit without a name.
/// - `x` is hexadecimal: addresses, ids derived from addresses, metadata tokens, error codes.
const VALUES: &str = include_str!("runtime_values.txt");
/// The field that contains the tier besides its bits.
const METHOD_FLAGS: &str = "MethodFlags";

type Formats = FxHashMap<(&'static str, &'static str), ValueFormat>;

static FORMATS: LazyLock<Formats> = LazyLock::new(|| VALUES.lines().filter_map(parse).collect());

/// Format of an integer.
#[derive(Debug)]
enum ValueFormat {
    OneOf(Vec<&'static str>),
    Bits(Vec<&'static str>),
    Hex,
}

/// Formats an integer field of a runtime event as PerfView does: by name, hexadecimal or decimal.
#[must_use]
pub fn runtime_value(event: &str, field: &str, value: u64) -> String {
    let format = [event, "*"]
        .into_iter()
        .find_map(|event| FORMATS.get(&(event, field)));
    match format {
        Some(ValueFormat::OneOf(names)) => {
            let name = usize::try_from(value).ok().and_then(|at| names.get(at));
            name.map_or_else(|| value.to_string(), |name| (*name).to_owned())
        }
        Some(ValueFormat::Bits(names)) => format_bits(names, field, value),
        Some(ValueFormat::Hex) => format!("{value:#x}"),
        None => value.to_string(),
    }
}

/// Formats a bit field by the names of its bits. Bits without a name appear as one integer.
fn format_bits(names: &[&str], field: &str, value: u64) -> String {
    let mut left = value;
    let mut words = Vec::new();
    for (bit, name) in (0..u64::BITS).zip(names) {
        if *name != "-" && left >> bit & 1 != 0 {
            words.push((*name).to_owned());
            left &= !(1 << bit);
        }
    }
    let tier = u32::try_from(value).ok().and_then(tier_of);
    if let Some(tier) = tier.filter(|_| field == METHOD_FLAGS) {
        words.push(tier.to_owned());
        left &= !u64::from(TIER_MASK);
    }
    if left != 0 {
        words.push(format!("{left:#x}"));
    }
    match words.is_empty() {
        true => "None".to_owned(),
        false => words.join("|"),
    }
}

fn parse(line: &'static str) -> Option<((&'static str, &'static str), ValueFormat)> {
    let mut words = line.split(' ');
    let key = (words.next()?, words.next()?);
    let format = match words.next()? {
        "=" => ValueFormat::OneOf(words.collect()),
        "|" => ValueFormat::Bits(words.collect()),
        "x" => ValueFormat::Hex,
        _ => return None,
    };
    Some((key, format))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dotnet::runtime_events::tests::has_field;

    #[test]
    fn every_line_has_a_known_field() {
        assert_eq!(FORMATS.len(), VALUES.lines().count());
        for (event, field) in FORMATS.keys() {
            assert!(has_field(event, field), "{event} {field}");
        }
    }

    #[test]
    fn formats_values_by_field() {
        for (event, field, value, expected) in [
            ("GCStart", "Reason", 4, "AllocLarge"),
            ("GCStart", "Reason", 99, "99"),
            ("GCSuspendEEBegin", "Reason", 1, "SuspendForGC"),
            ("GCStart", "Depth", 1, "1"),
            (
                "ExceptionThrown",
                "ExceptionFlags",
                0x11,
                "HasInnerException|CLSCompliant",
            ),
            (
                "ExceptionThrown",
                "ExceptionHRESULT",
                0x8013_1509,
                "0x80131509",
            ),
            (
                "MethodLoadVerbose",
                "MethodFlags",
                0x18a,
                "Generic|Jitted|QuickJitted",
            ),
            ("MethodLoadVerbose", "MethodFlags", 0, "None"),
            ("AppDomainLoad", "AppDomainFlags", 0x101, "Default|0x100"),
            (
                "RuntimeInformationStart",
                "StartupFlags",
                9,
                "CONCURRENT_GC|0x8",
            ),
            ("MethodLoadVerbose", "ClrInstanceID", 10, "10"),
        ] {
            assert_eq!(runtime_value(event, field, value), expected);
        }
    }
}
