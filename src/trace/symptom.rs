//! Symptoms of programs: a capture chooses what it records by the symptom that it is for.

use clap::ValueEnum;
use serde::{Deserialize, Deserializer, Serialize};

/// What is wrong with a program, as its user sees it. The name in JSON is stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Symptom {
    /// CPUs are busy: which code, in which program.
    #[value(alias = "cpu")]
    HighCpu,
    /// Requests take long or do not end: which ones, and where their time goes.
    #[value(aliases = ["slow", "latency"])]
    SlowRequests,
    /// A program does not continue: what its threads wait for, deadlocks.
    #[value(alias = "deadlock")]
    Hang,
    /// Memory grows: the heap after collections, and what allocates.
    #[value(aliases = ["memory", "leak"])]
    MemoryLeak,
    /// Garbage collections: pauses, CPU time, and what allocates.
    Gc,
    /// Connections and requests to others: which are slow or fail.
    #[value(alias = "network")]
    Networking,
    /// A program starts slowly: compilation, loading, waits; best with a command.
    Startup,
    /// Threads wait for each other: which locks, and in which methods.
    #[value(aliases = ["lock", "locks", "contention"])]
    LockContention,
}

/// Reads a symptom; `None` for that of a newer perfcollect, too.
pub(super) fn known<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Symptom>, D::Error> {
    let name = Option::<String>::deserialize(from)?;
    Ok(name.and_then(|name| Symptom::from_str(&name, false).ok()))
}

#[cfg(test)]
mod tests {
    use crate::trace::CaptureInfo;

    use super::*;

    #[test]
    fn a_symptom_of_a_newer_version_is_none() {
        for (name, expected) in [("hang", Some(Symptom::Hang)), ("itch", None)] {
            let mut json = serde_json::to_value(CaptureInfo::default()).unwrap();
            json["symptom"] = name.into();
            let info: CaptureInfo = serde_json::from_value(json).unwrap();
            assert_eq!(info.symptom, expected);
        }
        let json = serde_json::to_value(CaptureInfo::default()).unwrap();
        assert_eq!(json.get("symptom"), None);
    }

    #[test]
    fn names_are_the_same_in_json_and_on_the_command_line() {
        for symptom in Symptom::value_variants() {
            let typed = symptom.to_possible_value().unwrap();
            assert_eq!(serde_json::to_value(symptom).unwrap(), typed.get_name());
        }
    }
}
