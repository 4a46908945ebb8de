//! Options for the events of .NET runtimes, as in the perfcollect script and dotnet-trace.

use clap::Args;

use crate::dotnet::{EventProfile, ProfileError};
use crate::trace::{EventStreams, Notice, NoticeKind};

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = ".NET events")]
pub(super) struct EventOptions {
    /// Garbage collections and exceptions only; no samples
    #[arg(hide_short_help = true, long, conflicts_with_all = ["gconly", "gcwithheap", "events", "freq", "callgraph", "perfdata"])]
    pub(super) gccollectonly: bool,
    /// Garbage collections with allocations, methods, modules and exceptions; no samples
    #[arg(long, conflicts_with_all = ["gcwithheap", "events", "freq", "callgraph", "perfdata"])]
    pub(super) gconly: bool,
    /// Garbage collections with object survival and movement; no samples
    #[arg(hide_short_help = true, long, conflicts_with_all = ["events", "freq", "callgraph", "perfdata"])]
    pub(super) gcwithheap: bool,
    /// Capture these groups of events instead of the default events; repeatable
    ///
    /// The names are those of Microsoft's perfcollect script, such as threading. A wrong name lists them.
    #[arg(long, value_name = "GROUP[,GROUP...]", value_delimiter = ',')]
    pub(super) events: Vec<String>,
    /// Capture these providers, as in dotnet-trace, instead of the default events; repeatable
    ///
    /// PROVIDER is NAME[:HEX_KEYWORDS[:LEVEL[:KEY=VALUE;...]]], such as System.Net.Http or Microsoft-Windows-DotNETRuntime:1:4.
    #[arg(
        hide_short_help = true,
        long,
        value_name = "PROVIDER[,PROVIDER...]",
        value_delimiter = ','
    )]
    pub(super) providers: Vec<String>,
    /// Capture these keywords of the runtime, as in dotnet-trace, instead of the default events
    ///
    /// For example gc+jit+exception. A wrong keyword lists all.
    #[arg(hide_short_help = true, long, value_name = "KEYWORD[+KEYWORD...]")]
    pub(super) clrevents: Option<String>,
    /// Level of -clrevents: 0 to 5, or logalways to verbose [default: 4]
    #[arg(
        hide_short_help = true,
        long,
        value_name = "LEVEL",
        requires = "clrevents"
    )]
    pub(super) clreventlevel: Option<String>,
    /// Capture these profiles of dotnet-trace instead of the default events; repeatable
    ///
    /// Profiles: dotnet-common, dotnet-sampled-thread-time, gc-verbose, gc-collect, database, cpu-sampling.
    #[arg(long, value_name = "PROFILE[,PROFILE...]", value_delimiter = ',')]
    pub(super) profile: Vec<String>,
    /// Capture requests of ASP.NET Core and HttpClient too: report -kind requests
    ///
    /// They are added to the default or chosen events, with their CPU time, garbage collections and outgoing requests. Paths
    /// are recorded, queries too before .NET 9.
    #[arg(long)]
    pub(super) requests: bool,
    /// Capture where asynchronous methods wait, too: report -kind awaits
    ///
    /// Each await of a task that has not ended has two events, one with the stack of the method that awaits.
    #[arg(hide_short_help = true, long, aliases = ["async", "await"])]
    pub(super) awaits: bool,
    /// Limit of each runtime's event buffer, in MiB [default: 256, or less if memory is low]
    ///
    /// The default is at most 1/8 of the free memory. A runtime whose buffer is full drops events, which the summary counts.
    #[arg(hide_short_help = true, long, value_name = "MB", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(super) eventbuffer: Option<u32>,
    /// Request the list of all methods from each runtime at the end; may crash a process of .NET 9 or 10
    ///
    /// It is not needed: symbols are read from memory. The runtime itself crashes if it frees code, such as assemblies that a program unloads, while it lists its methods.
    #[arg(hide_short_help = true, long)]
    pub(super) rundown: bool,
    /// Capture samples only, no .NET events
    ///
    /// The name is from Microsoft's perfcollect script, which needs LTTng for events. This program does not.
    #[arg(
        hide_short_help = true,
        long,
        conflicts_with_all = [
            "gccollectonly", "gconly", "gcwithheap", "events", "providers", "clrevents", "profile", "requests", "awaits", "eventbuffer",
            "rundown", "noperf",
        ]
    )]
    pub(super) nolttng: bool,
    /// Capture .NET events only, no samples
    #[arg(long, conflicts_with_all = ["freq", "callgraph", "perfdata"])]
    pub(super) noperf: bool,
    /// Leave the raw event streams out of NAME.trace.zip: smaller, but `view` has no events
    ///
    /// They are the entries eventpipe/PID.nettrace, one or two per .NET process. NAME.nettrace still has the events.
    #[arg(hide_short_help = true, long)]
    pub(super) noraw: bool,
}

/// What a capture records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Requested events of .NET runtimes, if any.
    pub(super) events: Option<EventProfile>,
    /// Whether CPU samples are recorded.
    pub(super) samples: bool,
}

impl EventOptions {
    /// Returns a notice about requested providers that sent no event: a name may be misspelled.
    pub(super) fn silent_providers(&self, events: &EventStreams) -> Option<Notice> {
        let names = self.providers.iter();
        let names = names.filter_map(|provider| provider.split(':').next());
        let silent: Vec<&str> = names.filter(|name| !events.has_any_of(name)).collect();
        (!events.is_empty() && !silent.is_empty()).then(|| {
            Notice::new(
                NoticeKind::ProviderSilent,
                format!("no events from {}", silent.join(", ")),
                "check the provider's name, keywords and level",
            )
            .about(silent.join(", "))
            .counting(silent.len())
        })
    }

    /// Returns whether the user chose events; a preset also excludes samples.
    pub(super) fn are_chosen(&self) -> bool {
        let lists = [&self.events, &self.providers, &self.profile];
        lists.iter().any(|list| !list.is_empty()) || self.clrevents.is_some()
    }

    /// Returns whether a preset chooses the events.
    pub(super) fn is_preset(&self) -> bool {
        self.preset().is_some()
    }

    /// Returns the option by which the user excluded samples.
    pub(super) fn without_samples(&self) -> Option<&'static str> {
        let preset = self.preset().map(|(option, _)| option);
        preset.or(self.noperf.then_some("-noperf"))
    }

    /// Returns the preset that the user chose, with its option.
    fn preset(&self) -> Option<(&'static str, EventProfile)> {
        match (self.gccollectonly, self.gconly, self.gcwithheap) {
            (true, ..) => Some(("-gccollectonly", EventProfile::gc_collect_only())),
            (_, true, _) => Some(("-gconly", EventProfile::gc_only())),
            (.., true) => Some(("-gcwithheap", EventProfile::gc_with_heap())),
            _ => None,
        }
    }

    pub(super) fn plan(&self) -> Result<Plan, ProfileError> {
        let samples = self.without_samples().is_none();
        let mut profile = match self.preset() {
            Some((_, preset)) => preset,
            None if self.are_chosen() => EventProfile::empty(),
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
        if self.awaits {
            profile.add_awaits();
        }
        if self.requests {
            profile.add_requests(samples);
        }
        if self.rundown {
            profile.add_rundown();
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
    fn gc_presets_disable_samples() {
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
        // dotnet-trace's sampling profile needs no event.
        let sampling = plan(EventOptions {
            profile: vec!["cpu-sampling".into()],
            ..EventOptions::default()
        });
        assert_eq!((sampling.events, sampling.samples), (None, true));
    }
}
