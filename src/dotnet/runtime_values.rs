//! What the numbers in the runtime's own events mean, in the words of its manifest and of PerfView.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::code_event::{TIER_MASK, tier_of};

/// A line a field: event (`*`: any), field, and `=` with what it is from 0 on, `|` with what each bit is, `-` for none, or `x` for an
/// address, a number that the runtime makes of one, a token of metadata, a code of an error.
const VALUES: &str = include_str!("runtime_values.txt");
/// The field that has the tier, too.
const METHOD_FLAGS: &str = "MethodFlags";

type Meanings = FxHashMap<(&'static str, &'static str), Meaning>;

static MEANINGS: LazyLock<Meanings> = LazyLock::new(|| VALUES.lines().filter_map(parse).collect());

/// What a number is.
#[derive(Debug)]
enum Meaning {
    OneOf(Vec<&'static str>),
    Bits(Vec<&'static str>),
    Hex,
}

/// A number of a field of an event of the runtime, as PerfView shows it: in words, in hex, or as it is.
#[must_use]
pub fn runtime_value(event: &str, field: &str, number: u64) -> String {
    let meaning = [event, "*"]
        .into_iter()
        .find_map(|event| MEANINGS.get(&(event, field)));
    match meaning {
        Some(Meaning::OneOf(names)) => {
            let name = usize::try_from(number).ok().and_then(|at| names.get(at));
            name.map_or_else(|| number.to_string(), |name| (*name).to_owned())
        }
        Some(Meaning::Bits(names)) => bits(names, field, number),
        Some(Meaning::Hex) => format!("{number:#x}"),
        None => number.to_string(),
    }
}

/// The words for all bits; those without a word are one number.
fn bits(names: &[&str], field: &str, number: u64) -> String {
    let mut left = number;
    let mut words = Vec::new();
    for (bit, name) in (0..u64::BITS).zip(names) {
        if *name != "-" && left >> bit & 1 != 0 {
            words.push((*name).to_owned());
            left &= !(1 << bit);
        }
    }
    let tier = u32::try_from(number).ok().and_then(tier_of);
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

fn parse(line: &'static str) -> Option<((&'static str, &'static str), Meaning)> {
    let mut words = line.split(' ');
    let key = (words.next()?, words.next()?);
    let meaning = match words.next()? {
        "=" => Meaning::OneOf(words.collect()),
        "|" => Meaning::Bits(words.collect()),
        "x" => Meaning::Hex,
        _ => return None,
    };
    Some((key, meaning))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dotnet::runtime_events::tests::has_field;

    #[test]
    fn every_line_is_of_a_field() {
        assert_eq!(MEANINGS.len(), VALUES.lines().count());
        for (event, field) in MEANINGS.keys() {
            assert!(has_field(event, field), "{event} {field}");
        }
    }

    #[test]
    fn numbers_have_words() {
        for (event, field, number, text) in [
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
            assert_eq!(runtime_value(event, field, number), text);
        }
    }
}
