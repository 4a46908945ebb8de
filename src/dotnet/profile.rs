//! Which events of .NET runtimes are wanted: providers with their keywords, levels and arguments.

use super::code_event::RUNTIME;
use super::diagnostics::{GC_SETTINGS, Provider, SessionRequest};
use super::profile_error::ProfileError;
use super::profile_names::{
    self, COMPILATION, CONTENTION, EXCEPTION, GC, GC_HANDLE, IL_MAP, JIT, LOADER, NGEN, SURVIVAL,
    THREAD_TRANSFER, THREADING, VERBOSE, group, groups, keyword, keywords_known,
};

/// What the runtime tells for its own makers.
pub(super) const PRIVATE: &str = "Microsoft-Windows-DotNETRuntimePrivate";
const SAMPLER: &str = "Microsoft-DotNETCore-SampleProfiler";
const TASKS: &str = "System.Threading.Tasks.TplEventSource";
const DIAGNOSTIC_SOURCE: &str = "Microsoft-Diagnostics-DiagnosticSource";
/// Of the private provider: the JIT compiler on several cores.
const MULTICORE_JIT: u64 = 0x2_0000;
/// A level.
const INFORMATIONAL: u32 = 4;
/// Of the rundown: modules, methods, compilation settings, its end. Without it the stacks of events have no names.
const RUNDOWN: u64 = LOADER | JIT | COMPILATION | 0x100;
/// MiB that a runtime may hold back, which it takes from its memory as it needs them. Each thread has 100 KB at least, so that
/// this is for some 2500 threads.
const BUFFER_MIB: u32 = 256;

/// The events that are wanted of each runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventProfile {
    providers: Vec<Provider>,
    /// Groups of the rundown.
    rundown: u64,
}

impl EventProfile {
    /// What the original has by default: GC, JIT, loader, exceptions, contention, thread pool, compilation.
    #[must_use]
    pub fn standard() -> Self {
        let keywords = GC | LOADER | JIT | NGEN | CONTENTION | EXCEPTION;
        let keywords = keywords | THREADING | THREAD_TRANSFER | COMPILATION;
        Self::of(RUNDOWN).with(RUNTIME, keywords, VERBOSE).with(
            PRIVATE,
            GC | MULTICORE_JIT | 0x2,
            INFORMATIONAL,
        )
    }

    /// `-gccollectonly`: garbage collections and exceptions, nothing else.
    #[must_use]
    pub fn gc_collect_only() -> Self {
        Self::of(GC_SETTINGS)
            .with(RUNTIME, GC | EXCEPTION, INFORMATIONAL)
            .with(PRIVATE, GC, INFORMATIONAL)
    }

    /// `-gconly`: garbage collections with allocations, methods, modules and exceptions.
    #[must_use]
    pub fn gc_only() -> Self {
        Self::of(RUNDOWN)
            .with(RUNTIME, GC | JIT | LOADER | EXCEPTION, VERBOSE)
            .with(PRIVATE, GC, VERBOSE)
    }

    /// `-gcwithheap`: garbage collections with what survives and where it moves.
    #[must_use]
    pub fn gc_with_heap() -> Self {
        Self::of(GC_SETTINGS).with(RUNTIME, GC | SURVIVAL, VERBOSE)
    }

    /// No event yet.
    #[must_use]
    pub fn empty() -> Self {
        Self::of(GC_SETTINGS)
    }

    fn of(rundown: u64) -> Self {
        Self {
            providers: Vec::new(),
            rundown,
        }
    }

    /// Whether no event is wanted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.providers.is_empty()
    }

    /// What a runtime is asked for.
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

    /// The stacks of these events have names by the rundown.
    fn add_with_stacks(&mut self, name: &str, keywords: u64, level: u32, arguments: &str) {
        self.add(name, keywords, level, arguments);
        self.rundown |= RUNDOWN;
    }

    /// Whoever is asked for twice is asked for both; the arguments are those of the last.
    fn add(&mut self, name: &str, keywords: u64, level: u32, arguments: &str) {
        let known = self
            .providers
            .iter_mut()
            .find(|provider| provider.name.eq_ignore_ascii_case(name));
        let Some(known) = known else {
            self.providers.push(Provider {
                name: name.to_owned(),
                keywords,
                level,
                arguments: arguments.to_owned(),
            });
            return;
        };
        known.keywords |= keywords;
        known.level = known.level.max(level);
        if !arguments.is_empty() {
            known.arguments = arguments.to_owned();
        }
    }

    /// A group by the name that the original has for it (`-events`).
    ///
    /// # Errors
    /// There is none of this name.
    pub fn add_group(&mut self, name: &str) -> Result<(), ProfileError> {
        let (is_private, keywords, level) = group(name).ok_or_else(|| ProfileError::Group {
            name: name.to_owned(),
            known: groups().collect::<Vec<_>>().join(", "),
        })?;
        let provider = if is_private { PRIVATE } else { RUNTIME };
        self.add_with_stacks(provider, keywords, level, "");
        Ok(())
    }

    /// Keywords of the runtime by dotnet-trace's names, joined by `+` (`-clrevents`); level 4 if none is given.
    ///
    /// # Errors
    /// There is no such name or level.
    pub fn add_clr_events(
        &mut self,
        names: &str,
        of_level: Option<&str>,
    ) -> Result<(), ProfileError> {
        let mut keywords = 0;
        for name in names.split('+') {
            keywords |= keyword(name).ok_or_else(|| ProfileError::Keyword {
                name: name.to_owned(),
                known: keywords_known(),
            })?;
        }
        let level = of_level.map_or(Ok(INFORMATIONAL), level)?;
        self.add_with_stacks(RUNTIME, keywords, level, "");
        Ok(())
    }

    /// A provider as `NAME[:KEYWORDS[:LEVEL[:ARGUMENTS]]]`, keywords in hexadecimal, level 4 if none is given.
    ///
    /// # Errors
    /// It is none.
    pub fn add_provider(&mut self, text: &str) -> Result<(), ProfileError> {
        let wrong = || ProfileError::Provider(text.to_owned());
        let mut parts = text.splitn(4, ':');
        let name = parts.next().filter(|name| !name.is_empty());
        let mut part = || parts.next().filter(|part| !part.is_empty());
        let keywords = part().map_or(Ok(0), |digits| {
            let digits = digits.trim_start_matches("0x").trim_start_matches("0X");
            u64::from_str_radix(digits, 16).map_err(|_| wrong())
        })?;
        let level = part().map_or(Ok(INFORMATIONAL), level)?;
        let arguments = part().unwrap_or_default();
        self.add_with_stacks(name.ok_or_else(wrong)?, keywords, level, arguments);
        Ok(())
    }

    /// A profile of dotnet-trace (`-profile`).
    ///
    /// # Errors
    /// There is none of this name.
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
            // Of garbage collections nobody asks for the stack.
            "gc-collect" => {
                self.add(RUNTIME, GC, INFORMATIONAL, "");
                self.add(PRIVATE, GC, INFORMATIONAL, "");
            }
            "database" => {
                self.add_with_stacks(TASKS, 0x80, INFORMATIONAL, "");
                self.add_with_stacks(DIAGNOSTIC_SOURCE, 0x3, VERBOSE, &database_arguments());
            }
            // The samples that are taken anyhow.
            "cpu-sampling" => {}
            _ => return Err(ProfileError::Profile(name.to_owned())),
        }
        Ok(())
    }
}

/// A level by its number or name.
fn level(text: &str) -> Result<u32, ProfileError> {
    profile_names::level(text).ok_or_else(|| ProfileError::Level(text.to_owned()))
}

/// When commands begin and end, for the two listeners that know of any, and what of a command is told.
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
    let told: Vec<String> = connection
        .iter()
        .map(|what| match *what {
            "ServerVersion" => "Command.Connection.ServerVersion".to_owned(),
            what => format!("Command.{what}"),
        })
        .collect();
    let told = told.join(";");
    let sql = "SqlClientDiagnosticListener/System.Data.SqlClient.WriteCommand";
    let entity = "Microsoft.EntityFrameworkCore/Microsoft.EntityFrameworkCore.Database.Command.CommandExecut";
    let specs = [
        format!(
            "{sql}Before@Activity1Start:-Command;Command.CommandText;ConnectionId;Operation;{told}"
        ),
        format!("{sql}After@Activity1Stop:"),
        format!(
            "{entity}ing@Activity2Start:-Command.CommandText;Command;ConnectionId;IsAsync;\
             Command.Connection.ClientConnectionId;{told}"
        ),
        format!("{entity}ed@Activity2Stop:"),
    ];
    format!("FilterAndPayloadSpecs=\"{}\"", specs.join("\r\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(
        add: impl FnOnce(&mut EventProfile) -> Result<(), ProfileError>,
    ) -> Vec<(String, u64, u32)> {
        let mut profile = EventProfile::empty();
        add(&mut profile).unwrap();
        let providers = profile.providers.into_iter();
        providers.map(|p| (p.name, p.keywords, p.level)).collect()
    }

    #[test]
    fn presets_have_the_masks_of_the_original() {
        let keywords = |profile: EventProfile| -> Vec<(u64, u32)> {
            let providers = profile.providers.iter();
            providers.map(|p| (p.keywords, p.level)).collect()
        };
        let standard = keywords(EventProfile::standard());
        assert_eq!(standard, [(0x10_8001_c039, 5), (0x2_0003, 4)]);
        let collect_only = keywords(EventProfile::gc_collect_only());
        assert_eq!(collect_only, [(0x8001, 4), (1, 4)]);
        assert_eq!(keywords(EventProfile::gc_only()), [(0x8019, 5), (1, 5)]);
        assert_eq!(keywords(EventProfile::gc_with_heap()), [(0x40_0001, 5)]);
    }

    #[test]
    fn names_of_the_original_and_of_dotnet_trace() {
        assert_eq!(
            of(|profile| profile.add_group("threading")),
            [(RUNTIME.to_owned(), 0x1_0000, 5)]
        );
        let both = of(|profile| {
            profile.add_group("DotNETRuntime_ExceptionKeyword")?;
            profile.add_group("dotnetruntime_jitkeyword")
        });
        assert_eq!(both, [(RUNTIME.to_owned(), 0x8010, 5)]);
        let clr = of(|profile| profile.add_clr_events("GC+jit+WaitHandle", Some("verbose")));
        assert_eq!(clr, [(RUNTIME.to_owned(), 0x400_0000_0011, 5)]);
        let common = of(|profile| profile.add_profile("dotnet-common"));
        assert_eq!(common, [(RUNTIME.to_owned(), 0x10_0003_801d, 4)]);
        let rundown = |profiles: &[&str]| {
            let mut profile = EventProfile::empty();
            let added = profiles
                .iter()
                .try_for_each(|name| profile.add_profile(name));
            added.unwrap();
            profile.rundown
        };
        assert_eq!(rundown(&["gc-collect"]), GC_SETTINGS);
        assert_eq!(rundown(&["gc-collect", "database"]) & RUNDOWN, RUNDOWN);
        let wrong = EventProfile::empty().add_clr_events("gcc+jit", None);
        let said = wrong.unwrap_err().to_string();
        assert!(
            said.contains("\"gcc\"") && said.contains(" gc, gchandle,"),
            "{said}"
        );
        for wrong in ["threading,x", "DotNETRuntime_gc", ""] {
            assert!(EventProfile::empty().add_group(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn providers_are_as_dotnet_trace_spells_them() {
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
        for wrong in ["", ":1", "A:xyz", "A:1:6", "A:1:loud"] {
            assert!(profile.add_provider(wrong).is_err(), "{wrong}");
        }
    }
}
