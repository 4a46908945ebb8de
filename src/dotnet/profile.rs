//! The events requested from .NET runtimes: providers with keywords, levels and arguments.

use super::code_event::RUNTIME;
use super::diagnostics::{Excluded, GC_SETTINGS, Provider, SessionRequest};
use super::profile_error::ProfileError;
use super::profile_names::{
    self, COMPILATION, CONTENTION, EXCEPTION, GC, GC_HANDLE, IL_MAP, JIT, LOADER, NGEN, SURVIVAL,
    THREAD_TRANSFER, THREADING, VERBOSE, group, groups, keyword, keyword_names,
};

/// The runtime's provider of internal events.
pub(super) const PRIVATE: &str = "Microsoft-Windows-DotNETRuntimePrivate";
const SAMPLER: &str = "Microsoft-DotNETCore-SampleProfiler";
/// The provider of tasks, with the activities that threads work for.
pub(crate) const TASKS: &str = "System.Threading.Tasks.TplEventSource";
/// The providers of ASP.NET Core's requests and of HttpClient's.
pub(crate) const HOSTING: &str = "Microsoft.AspNetCore.Hosting";
pub(crate) const HTTP_CLIENT: &str = "System.Net.Http";
/// Keywords of tasks: activities flow to all that they start, and an event for each change of a thread's.
const FLOW_ACTIVITIES: u64 = 0x80;
const ACTIVITY_CHANGES: u64 = 0x4_0000;
/// Keyword of tasks: what waits for them.
const TASK_WAITS: u64 = 0x2;
const DIAGNOSTIC_SOURCE: &str = "Microsoft-Diagnostics-DiagnosticSource";
/// Keyword of the private provider for multicore JIT.
const MULTICORE_JIT: u64 = 0x2_0000;
const INFORMATIONAL: u32 = 4;
/// Rundown keywords for modules, methods, compilation settings, and a rundown at the session's end.
///
/// It symbolizes the stacks of events if the memory of the process does not.
const RUNDOWN: u64 = LOADER | JIT | COMPILATION | 0x100;
/// Frequent events of level 5 that the default profile excludes: GCAllocationTick, FinalizeObject,
/// PinObjectAtGCTime, GCJoin, GCFitBucketInfo.
///
/// Level 5 is for MethodJittingStarted and some events of the thread pool. Of these five, the
/// perfcollect script records FinalizeObject alone.
const FREQUENT: [u32; 5] = [10, 29, 33, 203, 209];
/// Events of HttpClient about connections, and about headers and content of each request. Only .NET 10
/// can exclude them.
const PARTS_OF_REQUESTS: [u32; 11] = [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];
/// Events of tasks other than awaits. Only .NET 10 can exclude them.
const PARTS_OF_TASKS: [u32; 6] = [7, 8, 9, 12, 13, 19];
/// Limit of a runtime's event buffer in MiB. The runtime allocates the memory on demand.
///
/// Each thread needs at least 100 KB, so the limit is enough for some 2500 threads.
const BUFFER_MIB: u32 = 256;

/// The events requested from each runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventProfile {
    providers: Vec<Provider>,
    /// Keywords of the rundown, for sessions that need one.
    rundown: u64,
}

impl EventProfile {
    /// Creates the default profile: the events of the perfcollect script (GC, JIT, loader,
    /// exceptions, contention, thread pool, compilation) without frequent ones.
    #[must_use]
    pub fn standard() -> Self {
        let keywords = GC | LOADER | JIT | NGEN | CONTENTION | EXCEPTION;
        let keywords = keywords | THREADING | THREAD_TRANSFER | COMPILATION;
        Self::with_rundown(RUNDOWN)
            .with(RUNTIME, keywords, VERBOSE)
            .without(RUNTIME, &FREQUENT, GC)
            .with(PRIVATE, GC | MULTICORE_JIT | 0x2, INFORMATIONAL)
    }

    /// Creates the profile of `-gccollectonly`: only garbage collections and exceptions.
    #[must_use]
    pub fn gc_collect_only() -> Self {
        Self::with_rundown(GC_SETTINGS)
            .with(RUNTIME, GC | EXCEPTION, INFORMATIONAL)
            .with(PRIVATE, GC, INFORMATIONAL)
    }

    /// Creates the profile of `-gconly`: garbage collections with allocations, methods, modules and
    /// exceptions.
    #[must_use]
    pub fn gc_only() -> Self {
        Self::with_rundown(RUNDOWN)
            .with(RUNTIME, GC | JIT | LOADER | EXCEPTION, VERBOSE)
            .with(PRIVATE, GC, VERBOSE)
    }

    /// Creates the profile of `-gcwithheap`: garbage collections with surviving and moved objects.
    #[must_use]
    pub fn gc_with_heap() -> Self {
        Self::with_rundown(GC_SETTINGS).with(RUNTIME, GC | SURVIVAL, VERBOSE)
    }

    /// Creates a profile without events.
    #[must_use]
    pub fn empty() -> Self {
        Self::with_rundown(GC_SETTINGS)
    }

    fn with_rundown(rundown: u64) -> Self {
        Self {
            providers: Vec::new(),
            rundown,
        }
    }

    /// Returns whether the profile has no events.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.providers.is_empty()
    }

    /// Returns the session request for a runtime.
    #[must_use]
    pub fn session_request(&self) -> SessionRequest {
        SessionRequest {
            buffer_mib: BUFFER_MIB,
            rundown_keywords: self.rundown,
            stacks: true,
            providers: self.providers.clone(),
        }
    }

    fn with(mut self, name: &str, keywords: u64, level: u32) -> Self {
        self.add(name, keywords, level, "");
        self
    }

    /// Excludes verbose events of a provider that the profile already has. `keywords` are those of
    /// the second session of .NET 8 and 9.
    fn without(mut self, name: &str, ids: &[u32], keywords: u64) -> Self {
        self.exclude(name, ids, keywords);
        self
    }

    fn exclude(&mut self, name: &str, ids: &[u32], keywords: u64) {
        let provider = self.providers.iter_mut().find(|it| it.name == name);
        if let Some(provider) = provider {
            provider.excluded = Excluded {
                ids: ids.to_vec(),
                keywords,
                level: INFORMATIONAL,
            };
        }
    }

    /// Adds a provider and the rundown, which symbolizes the stacks of its events.
    fn add_with_stacks(&mut self, name: &str, keywords: u64, level: u32, arguments: &str) {
        self.add(name, keywords, level, arguments);
        self.add_rundown();
    }

    /// Adds the rundown of modules and methods.
    pub fn add_rundown(&mut self) {
        self.rundown |= RUNDOWN;
    }

    /// Adds requests of ASP.NET Core and HttpClient, and garbage collections. With samples, it adds the
    /// activities of threads, too: they are frequent, and for the CPU time of requests only.
    pub fn add_requests(&mut self, samples: bool) {
        match samples {
            true => self.add(TASKS, FLOW_ACTIVITIES | ACTIVITY_CHANGES, VERBOSE, ""),
            false => self.add(TASKS, FLOW_ACTIVITIES, INFORMATIONAL, ""),
        }
        self.add(HOSTING, 0, INFORMATIONAL, "");
        let mut names = self.providers.iter().map(|it| &it.name);
        if !names.any(|name| name.eq_ignore_ascii_case(HTTP_CLIENT)) {
            self.add(HTTP_CLIENT, 0, INFORMATIONAL, "");
            self.exclude(HTTP_CLIENT, &PARTS_OF_REQUESTS, 0);
        }
        self.add(RUNTIME, GC, INFORMATIONAL, "");
    }

    /// Adds the waits of asynchronous methods for tasks.
    pub fn add_awaits(&mut self) {
        let is_new = self.providers.iter().all(|it| it.name != TASKS);
        self.add_with_stacks(TASKS, TASK_WAITS, VERBOSE, "");
        if is_new {
            self.exclude(TASKS, &PARTS_OF_TASKS, 0);
        }
    }

    /// Adds a provider. A repeated provider gets the keywords of both requests, the higher level,
    /// and the last arguments.
    fn add(&mut self, name: &str, keywords: u64, level: u32, arguments: &str) {
        let existing = self
            .providers
            .iter_mut()
            .find(|provider| provider.name.eq_ignore_ascii_case(name));
        let Some(existing) = existing else {
            self.providers.push(Provider {
                name: name.to_owned(),
                keywords,
                level,
                arguments: arguments.to_owned(),
                excluded: Excluded::default(),
            });
            return;
        };
        existing.keywords |= keywords;
        existing.level = existing.level.max(level);
        if !arguments.is_empty() {
            existing.arguments = arguments.to_owned();
        }
    }

    /// Adds an event group of the perfcollect script (`-events`).
    ///
    /// # Errors
    /// The name is unknown.
    pub fn add_group(&mut self, name: &str) -> Result<(), ProfileError> {
        let (is_private, keywords, level) = group(name).ok_or_else(|| ProfileError::Group {
            name: name.to_owned(),
            valid: groups().collect::<Vec<_>>().join(", "),
        })?;
        let provider = if is_private { PRIVATE } else { RUNTIME };
        self.add_with_stacks(provider, keywords, level, "");
        Ok(())
    }

    /// Adds keywords of the runtime by dotnet-trace's names, joined by `+` (`-clrevents`).
    ///
    /// The default level is 4.
    ///
    /// # Errors
    /// A name or the level is unknown.
    pub fn add_clr_events(&mut self, names: &str, level: Option<&str>) -> Result<(), ProfileError> {
        let mut keywords = 0;
        for name in names.split('+') {
            keywords |= keyword(name).ok_or_else(|| ProfileError::Keyword {
                name: name.to_owned(),
                valid: keyword_names(),
            })?;
        }
        let level = level.map_or(Ok(INFORMATIONAL), parse_level)?;
        self.add_with_stacks(RUNTIME, keywords, level, "");
        Ok(())
    }

    /// Adds a provider: `NAME[:KEYWORDS[:LEVEL[:ARGUMENTS]]]`, keywords in hexadecimal.
    ///
    /// The default level is 4.
    ///
    /// # Errors
    /// The syntax is invalid.
    pub fn add_provider(&mut self, provider: &str) -> Result<(), ProfileError> {
        let invalid = || ProfileError::Provider(provider.to_owned());
        let mut parts = provider.splitn(4, ':');
        let name = parts.next().filter(|name| !name.is_empty());
        let mut part = || parts.next().filter(|part| !part.is_empty());
        let keywords = part().map_or(Ok(0), |digits| {
            let digits = digits.trim_start_matches("0x").trim_start_matches("0X");
            u64::from_str_radix(digits, 16).map_err(|_| invalid())
        })?;
        let level = part().map_or(Ok(INFORMATIONAL), parse_level)?;
        let arguments = part().unwrap_or_default();
        self.add_with_stacks(name.ok_or_else(invalid)?, keywords, level, arguments);
        Ok(())
    }

    /// Adds a profile of dotnet-trace (`-profile`).
    ///
    /// # Errors
    /// The name is unknown.
    pub fn add_profile(&mut self, name: &str) -> Result<(), ProfileError> {
        match name.to_ascii_lowercase().as_str() {
            "dotnet-common" => {
                let keywords = GC | 0x4 | LOADER | JIT | EXCEPTION | THREADING;
                self.add_with_stacks(RUNTIME, keywords | IL_MAP | COMPILATION, INFORMATIONAL, "");
            }
            "dotnet-sampled-thread-time" => {
                self.add_with_stacks(SAMPLER, 0xf000_0000_0000, INFORMATIONAL, "")
            }
            "gc-verbose" => self.add_with_stacks(RUNTIME, GC | GC_HANDLE | EXCEPTION, VERBOSE, ""),
            // The stacks of garbage collections are of no interest.
            "gc-collect" => {
                self.add(RUNTIME, GC, INFORMATIONAL, "");
                self.add(PRIVATE, GC, INFORMATIONAL, "");
            }
            "database" => {
                self.add_with_stacks(TASKS, FLOW_ACTIVITIES, INFORMATIONAL, "");
                self.add_with_stacks(DIAGNOSTIC_SOURCE, 0x3, VERBOSE, &database_arguments());
            }
            // perfcollect records CPU samples anyway.
            "cpu-sampling" => {}
            _ => return Err(ProfileError::Profile(name.to_owned())),
        }
        Ok(())
    }
}

/// Parses a level by its value or name.
fn parse_level(level: &str) -> Result<u32, ProfileError> {
    profile_names::level(level).ok_or_else(|| ProfileError::Level(level.to_owned()))
}

/// Returns filters for the start and stop of database commands, with the properties to report.
///
/// They cover the two listeners that publish database commands.
fn database_arguments() -> String {
    let connection = [
        "ServerVersion",
        "CommandTimeout",
        "CommandType",
        "Connection.ConnectionString",
        "Connection.Database",
        "Connection.DataSource",
        "Connection.PacketSize",
    ];
    let properties: Vec<String> = connection
        .iter()
        .map(|property| match *property {
            "ServerVersion" => "Command.Connection.ServerVersion".to_owned(),
            property => format!("Command.{property}"),
        })
        .collect();
    let properties = properties.join(";");
    let sql = "SqlClientDiagnosticListener/System.Data.SqlClient.WriteCommand";
    let entity = "Microsoft.EntityFrameworkCore/Microsoft.EntityFrameworkCore.Database.Command.CommandExecut";
    let specs = [
        format!(
            "{sql}Before@Activity1Start:-Command;Command.CommandText;ConnectionId;Operation;{properties}"
        ),
        format!("{sql}After@Activity1Stop:"),
        format!(
            "{entity}ing@Activity2Start:-Command.CommandText;Command;ConnectionId;IsAsync;\
             Command.Connection.ClientConnectionId;{properties}"
        ),
        format!("{entity}ed@Activity2Stop:"),
    ];
    format!("FilterAndPayloadSpecs=\"{}\"", specs.join("\r\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn providers(
        add: impl FnOnce(&mut EventProfile) -> Result<(), ProfileError>,
    ) -> Vec<(String, u64, u32)> {
        let mut profile = EventProfile::empty();
        add(&mut profile).unwrap();
        let providers = profile.providers.into_iter();
        providers.map(|p| (p.name, p.keywords, p.level)).collect()
    }

    #[test]
    fn presets_have_the_keywords_of_the_perfcollect_script() {
        let keywords = |profile: EventProfile| -> Vec<(u64, u32)> {
            let providers = profile.providers.iter();
            providers.map(|p| (p.keywords, p.level)).collect()
        };
        let standard = keywords(EventProfile::standard());
        assert_eq!(standard, [(0x10_8001_c039, 5), (0x2_0003, 4)]);
        let excluded = |profile: EventProfile| profile.providers[0].excluded.ids.clone();
        assert_eq!(excluded(EventProfile::standard()), [10, 29, 33, 203, 209]);
        assert!(excluded(EventProfile::gc_only()).is_empty());
        let collect_only = keywords(EventProfile::gc_collect_only());
        assert_eq!(collect_only, [(0x8001, 4), (1, 4)]);
        assert_eq!(keywords(EventProfile::gc_only()), [(0x8019, 5), (1, 5)]);
        assert_eq!(keywords(EventProfile::gc_with_heap()), [(0x40_0001, 5)]);
    }

    #[test]
    fn accepts_names_of_the_perfcollect_script_and_of_dotnet_trace() {
        assert_eq!(
            providers(|profile| profile.add_group("threading")),
            [(RUNTIME.to_owned(), 0x1_0000, 5)]
        );
        let both = providers(|profile| {
            profile.add_group("DotNETRuntime_ExceptionKeyword")?;
            profile.add_group("dotnetruntime_jitkeyword")
        });
        assert_eq!(both, [(RUNTIME.to_owned(), 0x8010, 5)]);
        let clr = providers(|profile| profile.add_clr_events("GC+jit+WaitHandle", Some("verbose")));
        assert_eq!(clr, [(RUNTIME.to_owned(), 0x400_0000_0011, 5)]);
        let common = providers(|profile| profile.add_profile("dotnet-common"));
        assert_eq!(common, [(RUNTIME.to_owned(), 0x10_0003_801d, 4)]);
        let rundown = |profiles: &[&str]| {
            let mut profile = EventProfile::empty();
            for name in profiles {
                profile.add_profile(name).unwrap();
            }
            profile.rundown
        };
        assert_eq!(rundown(&["gc-collect"]), GC_SETTINGS);
        assert_eq!(rundown(&["gc-collect", "database"]) & RUNDOWN, RUNDOWN);
        let result = EventProfile::empty().add_clr_events("gcc+jit", None);
        let message = result.unwrap_err().to_string();
        assert!(
            message.contains("\"gcc\"") && message.contains(" gc, gchandle,"),
            "{message}"
        );
        for unknown in ["threading,x", "DotNETRuntime_gc", ""] {
            let result = EventProfile::empty().add_group(unknown);
            assert!(result.is_err(), "{unknown}");
        }
    }

    #[test]
    fn requests_are_added_to_other_events() {
        let mut profile = EventProfile::standard();
        let standard = profile.providers.clone();
        profile.add_requests(true);
        assert_eq!(profile.providers[..2], standard);
        for (samples, tasks) in [(true, (TASKS, 0x4_0080, 5)), (false, (TASKS, 0x80, 4))] {
            let requests = providers(|profile| {
                profile.add_requests(samples);
                Ok(())
            });
            let requests = requests.iter();
            let requests = requests.map(|(name, keywords, level)| (&**name, *keywords, *level));
            let others = [(HOSTING, 0, 4), (HTTP_CLIENT, 0, 4), (RUNTIME, 1, 4)];
            assert!(requests.eq([tasks].into_iter().chain(others)));
        }
        // Who asks for all events of a provider gets them.
        let mut chosen = EventProfile::empty();
        chosen.add_provider("system.net.http").unwrap();
        chosen.add_requests(true);
        let excluded = chosen.providers.iter().map(|it| it.excluded.ids.len());
        assert_eq!(excluded.sum::<usize>(), 0);
    }

    #[test]
    fn accepts_provider_syntax_of_dotnet_trace() {
        let mut profile = EventProfile::empty();
        profile.add_provider("A").unwrap();
        profile.add_provider("a:0x10:5:k=v;w=http://x").unwrap();
        profile.add_provider("B::verbose").unwrap();
        let [a, b] = &profile.providers[..] else {
            panic!("{profile:?}");
        };
        assert_eq!((a.keywords, a.level), (0x10, 5));
        assert_eq!(a.arguments, "k=v;w=http://x");
        assert_eq!((b.keywords, b.level), (0, 5));
        for invalid in ["", ":1", "A:xyz", "A:1:6", "A:1:loud"] {
            assert!(profile.add_provider(invalid).is_err(), "{invalid}");
        }
    }
}
