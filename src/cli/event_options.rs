//! Which events of .NET runtimes are wanted, as the original perfcollect and dotnet-trace spell it.

use clap::Args;

use crate::dotnet::{EventProfile, ProfileError};
use crate::trace::{EventStreams, Notice};

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Events of .NET runtimes")]
pub(super) struct EventOptions {
    /// Garbage collections and exceptions, nothing else; no samples
    #[arg(long, conflicts_with_all = ["gconly", "gcwithheap", "events", "freq", "callgraph", "perfdata"])]
    pub(super) gccollectonly: bool,
    /// Garbage collections with allocations, methods, modules and exceptions; no samples
    #[arg(long, conflicts_with_all = ["gcwithheap", "events", "freq", "callgraph", "perfdata"])]
    pub(super) gconly: bool,
    /// Garbage collections with what survives and where it moves; no samples
    #[arg(long, conflicts_with_all = ["events", "freq", "callgraph", "perfdata"])]
    pub(super) gcwithheap: bool,
    /// These groups instead of those by default, such as threading or DotNETRuntime_GCKeyword
    #[arg(long, value_name = "GROUP[,GROUP...]", value_delimiter = ',')]
    pub(super) events: Vec<String>,
    /// These providers instead: NAME[:KEYWORDS[:LEVEL[:KEY=VALUE;...]]], KEYWORDS in hexadecimal
    #[arg(long, value_name = "PROVIDER[,PROVIDER...]", value_delimiter = ',')]
    pub(super) providers: Vec<String>,
    /// These keywords of the runtime instead, such as gc+jit+exception
    #[arg(long, value_name = "KEYWORD[+KEYWORD...]")]
    pub(super) clrevents: Option<String>,
    /// Level of -clrevents: 0 to 5, or critical, error, warning, informational, verbose
    #[arg(long, value_name = "LEVEL", requires = "clrevents")]
    pub(super) clreventlevel: Option<String>,
    /// These profiles of dotnet-trace instead: dotnet-common, dotnet-sampled-thread-time, gc-verbose, gc-collect, database,
    /// cpu-sampling
    #[arg(long, value_name = "PROFILE[,PROFILE...]", value_delimiter = ',')]
    pub(super) profile: Vec<String>,
    /// MiB of events that a runtime may hold back in its memory, which it takes as it needs them; by default 256, but no more
    /// than an eighth of what is free
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(super) eventbuffer: Option<u32>,
    /// No events
    #[arg(
        long,
        conflicts_with_all = [
            "gccollectonly", "gconly", "gcwithheap", "events", "providers", "clrevents", "profile", "eventbuffer",
            "noperf",
        ]
    )]
    pub(super) nolttng: bool,
    /// No samples, events only
    #[arg(long, conflicts_with_all = ["freq", "callgraph", "perfdata"])]
    pub(super) noperf: bool,
    /// Do not keep the streams of events as they came (eventpipe/PID.nettrace) in the trace
    #[arg(long)]
    pub(super) noraw: bool,
}

/// What is to be captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Events of runtimes, if any are wanted.
    pub(super) events: Option<EventProfile>,
    /// Samples of the CPUs.
    pub(super) samples: bool,
}

impl EventOptions {
    /// Providers that were asked for by name and have sent nothing: the name may be misspelled.
    pub(super) fn silent_providers(&self, events: &EventStreams) -> Option<Notice> {
        let names = self.providers.iter();
        let names = names.filter_map(|provider| provider.split(':').next());
        let silent: Vec<&str> = names.filter(|name| !events.has_any_of(name)).collect();
        (!events.is_empty() && !silent.is_empty()).then(|| {
            Notice::new(
                format!("no event came of {}", silent.join(", ")),
                "see whether name, keywords and level are right, and whether the program did what is told of",
            )
        })
    }

    pub(super) fn plan(&self) -> Result<Plan, ProfileError> {
        let preset = match (self.gccollectonly, self.gconly, self.gcwithheap) {
            (true, ..) => Some(EventProfile::gc_collect_only()),
            (_, true, _) => Some(EventProfile::gc_only()),
            (.., true) => Some(EventProfile::gc_with_heap()),
            _ => None,
        };
        let samples = !self.noperf && preset.is_none();
        let chosen =
            !(self.events.is_empty() && self.providers.is_empty() && self.profile.is_empty())
                || self.clrevents.is_some();
        let mut profile = match preset {
            Some(preset) => preset,
            None if chosen => EventProfile::empty(),
            None => EventProfile::standard(),
        };
        for group in &self.events {
            profile.add_group(group)?;
        }
        for name in &self.profile {
            profile.add_profile(name)?;
        }
        for provider in &self.providers {
            profile.add_provider(provider)?;
        }
        if let Some(names) = &self.clrevents {
            profile.add_clr_events(names, self.clreventlevel.as_deref())?;
        }
        let is_wanted = !self.nolttng && !profile.is_empty();
        Ok(Plan {
            events: is_wanted.then_some(profile),
            samples,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_take_no_samples() {
        let plan = |options: EventOptions| options.plan().unwrap();
        let standard = plan(EventOptions::default());
        assert_eq!(standard.events, Some(EventProfile::standard()));
        assert!(standard.samples);
        let gc = plan(EventOptions {
            gconly: true,
            ..EventOptions::default()
        });
        assert_eq!(
            (gc.events, gc.samples),
            (Some(EventProfile::gc_only()), false)
        );
        let off = plan(EventOptions {
            nolttng: true,
            ..EventOptions::default()
        });
        assert_eq!((off.events, off.samples), (None, true));
        // What dotnet-trace calls sampling needs no event.
        let sampling = plan(EventOptions {
            profile: vec!["cpu-sampling".into()],
            ..EventOptions::default()
        });
        assert_eq!((sampling.events, sampling.samples), (None, true));
    }
}
