//! `-for SYMPTOM`: the options of a capture that a symptom stands for.

use clap::ValueEnum;
use clap::builder::PossibleValue;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use thiserror::Error;

use super::arguments::CollectOptions;
use super::event_options::{EventOptions, Plan};
use crate::dotnet::ProfileError;
use crate::output::variant_name;
use crate::trace::Symptom;

/// An option, as errors of the parser name it.
const OPTION: &str = "--for ";

/// What has an option instead of a symptom.
const DISKS: [&str; 4] = ["io", "disk", "disks", "block-io"];

/// What a capture must record to answer a symptom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Samples,
    Events,
    /// Either of the two.
    One,
}

/// The options that a symptom stands for.
struct Row {
    symptom: Symptom,
    /// Words of a command line.
    options: &'static [Choice],
    /// What the capture records with them.
    records: &'static [(Part, &'static str)],
    needs: Needs,
}

/// What a capture may record, besides the options of a symptom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Always,
    Samples,
    /// Events of .NET, whichever are chosen.
    Events,
    /// The events of the default.
    DefaultEvents,
    WithoutEvents,
}

/// An option that a symptom chooses, and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    ThreadTime,
    Net,
    Awaits,
    Requests,
    /// Allocations are reported by events that the default leaves out.
    Profile(&'static str),
    Clr(&'static str),
    Providers(&'static str),
    NoEvents,
}

use Choice::{Awaits, Clr, Net, NoEvents, Profile, Providers, Requests, ThreadTime};
use Part::{Always, DefaultEvents, Events, Samples, WithoutEvents};

/// The providers of the network, from name to request.
const NETWORK: &str = "System.Net.NameResolution,System.Net.Sockets,System.Net.Security,System.Net.Http,\
                       Microsoft-AspNetCore-Server-Kestrel";

/// Defaults are chosen where they are enough: they answer other symptoms, too.
const ROWS: [Row; 8] = [
    Row {
        symptom: Symptom::HighCpu,
        options: &[],
        records: &[
            (Samples, "CPU samples with stacks"),
            (DefaultEvents, "the default .NET events"),
        ],
        needs: Needs::Samples,
    },
    Row {
        symptom: Symptom::SlowRequests,
        options: &[ThreadTime, Requests, Awaits],
        records: &[
            (Events, "requests"),
            (Events, "where asynchronous methods wait"),
            (Always, "where threads wait"),
            (Samples, "CPU samples"),
            (DefaultEvents, "events of locks, GC and the thread pool"),
        ],
        needs: Needs::Events,
    },
    Row {
        symptom: Symptom::Hang,
        // A runtime that hangs may not answer.
        options: &[ThreadTime, NoEvents],
        records: &[
            (Always, "where threads wait"),
            (Samples, "CPU samples"),
            (Always, "all stacks at the end"),
            (WithoutEvents, "no .NET events"),
        ],
        needs: Needs::Samples,
    },
    Row {
        symptom: Symptom::MemoryLeak,
        options: &[Profile("gc-verbose")],
        records: &[
            (Events, "heap sizes after collections"),
            (Events, "what allocates"),
            (Samples, "CPU samples"),
        ],
        needs: Needs::Events,
    },
    Row {
        symptom: Symptom::Gc,
        options: &[Profile("gc-verbose")],
        records: &[
            (Events, "collections and their pauses"),
            (Events, "what allocates"),
            (Samples, "CPU samples"),
        ],
        needs: Needs::Events,
    },
    Row {
        symptom: Symptom::Networking,
        options: &[
            ThreadTime,
            Net,
            Requests,
            Clr("contention+exception+threading"),
            Providers(NETWORK),
        ],
        records: &[
            (Always, "TCP connections"),
            (Events, "requests"),
            (Events, "names"),
            (Events, "TLS"),
            (Events, "exceptions"),
            (Always, "where threads wait"),
            (Samples, "CPU samples"),
        ],
        needs: Needs::Events,
    },
    Row {
        symptom: Symptom::Startup,
        options: &[ThreadTime],
        records: &[
            (Samples, "CPU samples"),
            (
                DefaultEvents,
                "compilation and loading from the first instruction",
            ),
            (Always, "where threads wait"),
        ],
        needs: Needs::Samples,
    },
    Row {
        symptom: Symptom::LockContention,
        options: &[ThreadTime],
        records: &[
            (Always, "where threads wait"),
            (Samples, "CPU samples"),
            (DefaultEvents, "events of contended locks"),
        ],
        needs: Needs::One,
    },
];

impl Part {
    /// Returns whether a capture with these options records it.
    fn is_recorded(self, events: &EventOptions) -> bool {
        match self {
            Always => true,
            Samples => events.without_samples().is_none(),
            Events => !events.nolttng,
            DefaultEvents => !events.nolttng && !events.is_preset() && !events.are_chosen(),
            WithoutEvents => events.nolttng,
        }
    }
}

impl Choice {
    /// Returns its words.
    fn words(self) -> Vec<&'static str> {
        match self {
            ThreadTime => vec!["-threadtime"],
            Net => vec!["-net"],
            Awaits => vec!["-awaits"],
            Requests => vec!["-requests"],
            Profile(name) => vec!["-profile", name],
            Clr(names) => vec!["-clrevents", names],
            Providers(names) => vec!["-providers", names],
            NoEvents => vec!["-nolttng"],
        }
    }

    /// Returns whether a choice of the user replaces it.
    fn is_replaced_by(self, user: &EventOptions) -> bool {
        let chooses = user.nolttng || user.is_preset() || user.are_chosen();
        match self {
            ThreadTime | Net | Requests | Awaits => false,
            Profile(_) | Clr(_) | Providers(_) => chooses,
            NoEvents => {
                chooses
                    || user.requests
                    || user.awaits
                    || user.rundown
                    || user.eventbuffer.is_some()
            }
        }
    }
}

/// The user's options contradict the symptom.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("-for {symptom} needs {lacks}, and {option} excludes them: leave one of the two out")]
pub(super) struct SymptomError {
    symptom: String,
    lacks: &'static str,
    option: &'static str,
}

/// What a capture records by the user's options, and by those of the symptom.
#[derive(Clone, Debug)]
pub(super) struct ChosenOptions {
    pub(super) threadtime: bool,
    pub(super) net: bool,
    pub(super) events: EventOptions,
    /// What the symptom stands for, in words; `None` without one.
    pub(super) meaning: Option<String>,
}

impl ChosenOptions {
    /// Adds to the user's options those of the symptom, which yield to the user's.
    ///
    /// # Errors
    /// An option of the user excludes what the symptom needs.
    pub(super) fn new(user: &CollectOptions) -> Result<Self, SymptomError> {
        let row = user.symptom.and_then(row_of);
        let Some(row) = row else {
            return Ok(Self {
                threadtime: user.threadtime,
                net: user.net,
                events: user.events.clone(),
                meaning: None,
            });
        };
        row.check(&user.events)?;
        let (replaced, kept): (Vec<Choice>, Vec<Choice>) = row
            .options
            .iter()
            .partition(|choice| choice.is_replaced_by(&user.events));
        let mut events = user.events.clone();
        let (mut threadtime, mut net) = (user.threadtime, user.net);
        for choice in &kept {
            match *choice {
                ThreadTime => threadtime = true,
                Net => net = true,
                Requests => events.requests = true,
                Awaits => events.awaits = true,
                Profile(name) => events.profile.push(name.to_owned()),
                Clr(names) => events.clrevents = Some(names.to_owned()),
                Providers(names) => events.providers.extend(names.split(',').map(str::to_owned)),
                NoEvents => events.nolttng = true,
            }
        }
        let meaning = row.meaning(&kept, &replaced, &events);
        Ok(Self {
            threadtime,
            net,
            events,
            meaning: Some(meaning),
        })
    }

    /// Returns what the capture records.
    ///
    /// # Errors
    /// A name is unknown.
    pub(super) fn plan(&self) -> Result<Plan, ProfileError> {
        self.events.plan()
    }
}

impl Row {
    /// Fails if the user's options exclude what the symptom needs.
    fn check(&self, user: &EventOptions) -> Result<(), SymptomError> {
        let (lacks, option) = match self.needs {
            Needs::Samples => ("CPU samples", user.without_samples()),
            Needs::Events => (".NET events", user.nolttng.then_some("-nolttng")),
            Needs::One => return Ok(()),
        };
        match option {
            None => Ok(()),
            Some(option) => Err(SymptomError {
                symptom: variant_name(self.symptom),
                lacks,
                option,
            }),
        }
    }

    fn meaning(&self, kept: &[Choice], replaced: &[Choice], events: &EventOptions) -> String {
        let words = |choices: &[Choice]| {
            let words: Vec<&str> = choices.iter().flat_map(|choice| choice.words()).collect();
            words.join(" ")
        };
        let recorded = self.records.iter();
        let recorded = recorded.filter(|(part, _)| part.is_recorded(events));
        let recorded: Vec<&str> = recorded.map(|(_, words)| *words).collect();
        let (symptom, records) = (variant_name(self.symptom), recorded.join(", "));
        match (kept, replaced) {
            ([], []) => format!("-for {symptom} stands for the default: {records}"),
            (some, []) => format!("-for {symptom} stands for {}: {records}", words(some)),
            ([], some) => format!("-for {symptom}: your options replace {}", words(some)),
            (kept, some) => format!(
                "-for {symptom} stands for {}; your options replace {}",
                words(kept),
                words(some)
            ),
        }
    }
}

fn row_of(symptom: Symptom) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.symptom == symptom)
}

/// Returns the message about a symptom that does not exist, a missing one, or several: the nearest, and all. `None`
/// for other errors.
pub(super) fn about_unknown(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    text(ContextKind::InvalidArg).filter(|option| option.starts_with(OPTION))?;
    let typed = text(ContextKind::InvalidValue).unwrap_or_default();
    if error.kind() == ErrorKind::ArgumentConflict {
        return Some("-for: a capture is for one symptom: name one only".to_owned());
    }
    if typed.is_empty() {
        return Some(format!("-for: name a symptom{}", all()));
    }
    let is_disks = DISKS.contains(&typed.to_ascii_lowercase().as_str());
    let nearest = match error.get(ContextKind::SuggestedValue) {
        _ if is_disks => ": -io follows the requests to disks".to_owned(),
        Some(ContextValue::String(nearest)) => format!(": did you mean {nearest}?"),
        _ => String::new(),
    };
    Some(format!("-for: unknown symptom {typed:?}{nearest}{}", all()))
}

/// Returns the help of the option.
pub(super) fn long_help() -> String {
    let all = all();
    format!(
        "Choose what to record by a symptom\n\n\
         The options that it stands for are printed; those that are given besides win. The findings that answer it come \
         first.\n{all}"
    )
}

/// Lists the symptoms, each on a line.
fn all() -> String {
    let values = Symptom::value_variants().iter();
    let values = values.filter_map(ValueEnum::to_possible_value);
    values.map(|value| described(&value)).collect()
}

fn described(value: &PossibleValue) -> String {
    let help = value.get_help().map(ToString::to_string);
    format!("\n  {:<16} {}", value.get_name(), help.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::super::arguments::{Action, Arguments};
    use super::super::spelling;
    use super::*;

    /// Parses the options of a capture.
    fn parsed(line: &str) -> CollectOptions {
        let words = ["perfcollect", "collect", "x"].into_iter();
        let words = words.chain(line.split(' ').filter(|word| !word.is_empty()));
        let words = spelling::normalize(words.map(Into::into));
        match Arguments::try_parse_from(words).unwrap().action {
            Action::Collect(options) => options,
            other => panic!("{other:?}"),
        }
    }

    fn chosen(line: &str) -> Result<ChosenOptions, SymptomError> {
        ChosenOptions::new(&parsed(line))
    }

    #[test]
    fn each_symptom_is_the_options_that_it_names() {
        for symptom in Symptom::value_variants() {
            let row = row_of(*symptom).unwrap();
            let name = variant_name(symptom);
            let of_symptom = chosen(&format!("-for {name}")).unwrap();
            let words: Vec<&str> = row.options.iter().flat_map(|it| it.words()).collect();
            let typed = parsed(&words.join(" "));
            assert_eq!(of_symptom.threadtime, typed.threadtime, "{name}");
            assert_eq!(of_symptom.plan(), typed.events.plan(), "{name}");
            let meaning = of_symptom.meaning.unwrap();
            let shown = match &words[..] {
                [] => "the default".to_owned(),
                words => words.join(" "),
            };
            assert!(
                meaning.starts_with(&format!("-for {name} stands for {shown}: ")),
                "{meaning}"
            );
        }
    }

    #[test]
    fn options_of_the_user_replace_those_of_the_symptom() {
        let same = |line: &str, typed: &str| {
            let chosen = chosen(line).unwrap();
            let typed = parsed(typed);
            assert_eq!(chosen.threadtime, typed.threadtime, "{line}");
            assert_eq!(chosen.net, typed.net, "{line}");
            assert_eq!(chosen.plan(), typed.events.plan(), "{line}");
            chosen.meaning.unwrap()
        };
        let meaning = same("-for gc -gccollectonly", "-gccollectonly");
        assert_eq!(meaning, "-for gc: your options replace -profile gc-verbose");
        same(
            "-for slow-requests -events threading",
            "-threadtime -requests -awaits -events threading",
        );
        let meaning = same("-for hang -requests", "-threadtime -requests");
        let expected = "-for hang stands for -threadtime; your options replace -nolttng";
        assert_eq!(meaning, expected);
        same(
            "-for networking -gconly",
            "-threadtime -net -requests -gconly",
        );
        same(
            "-for slow-requests -noperf",
            "-threadtime -requests -awaits -noperf",
        );
        same("-for lock-contention -nolttng", "-threadtime -nolttng");
        same("-for LEAK", "-profile gc-verbose");
        for (line, records) in [
            (
                "-for lock-contention -nolttng",
                "where threads wait, CPU samples",
            ),
            (
                "-for slow-requests -noperf",
                "requests, where asynchronous methods wait, where threads wait, events of locks, GC and the thread pool",
            ),
            (
                "-for slow-requests -events threading",
                "requests, where asynchronous methods wait, where threads wait, CPU samples",
            ),
            ("-for high-cpu -nolttng", "CPU samples with stacks"),
        ] {
            let meaning = chosen(line).unwrap().meaning.unwrap();
            let (_, recorded) = meaning.split_once(": ").unwrap();
            assert_eq!(recorded, records, "{line}");
        }
        let budget = parsed("-for hang -threadtime -budget 5").budget;
        assert_eq!(budget, parsed("-threadtime -budget 5").budget);
    }

    #[test]
    fn what_a_symptom_needs_is_not_excluded() {
        for (line, lacks) in [
            ("-for slow-requests -nolttng", ".NET events, and -nolttng"),
            ("-for gc -nolttng", ".NET events, and -nolttng"),
            ("-for high-cpu -noperf", "CPU samples, and -noperf"),
            ("-for startup -gconly", "CPU samples, and -gconly"),
            (
                "-for hang -gccollectonly",
                "CPU samples, and -gccollectonly",
            ),
        ] {
            let error = chosen(line).unwrap_err().to_string();
            assert!(error.contains(lacks), "{line}: {error}");
        }
    }

    #[test]
    fn an_unknown_symptom_lists_all_with_the_nearest() {
        let typed = ["perfcollect", "collect", "--for", "slow-reqests"];
        let error = Arguments::command()
            .try_get_matches_from(typed)
            .unwrap_err();
        let message = about_unknown(&error).unwrap();
        assert!(message.contains("did you mean slow-requests?"), "{message}");
        for symptom in Symptom::value_variants() {
            let line = format!("\n  {:<16} ", variant_name(symptom));
            assert!(message.contains(&line), "{message}");
        }
        for (typed, expected) in [
            (&["--for", "gc", "--for", "hang"][..], "name one only"),
            (&["--for"], "name a symptom\n  high-cpu "),
            (&["--for", ""], "name a symptom\n  high-cpu "),
        ] {
            let typed = ["perfcollect", "collect", "x"].iter().chain(typed);
            let error = Arguments::command()
                .try_get_matches_from(typed)
                .unwrap_err();
            let message = about_unknown(&error).unwrap();
            assert!(message.contains(expected), "{message}");
        }
        let other = ["perfcollect", "collect", "--freq", "x"];
        let error = Arguments::command()
            .try_get_matches_from(other)
            .unwrap_err();
        assert_eq!(about_unknown(&error), None);
    }
}
