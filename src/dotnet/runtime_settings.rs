//! The settings of a runtime that its rundown lists: version, garbage collector, tiered compilation.
//!
//! A setting is an environment variable, or else a property of `NAME.runtimeconfig.json`, or else
//! the default of the version.

use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use perfcollect_symbols::process::Root;
use serde_json::{Map, Value};

use super::code_event::RUNDOWN;
use super::environment::Environment;
use super::processes::{Deployment, RuntimeIdentity};
use super::runtime_file::FILE_NAME;
use crate::bytes::put_utf16z;
use crate::machine;
use crate::nettrace::{AddedEvents, EventMetadata};
use crate::trace::Pid;

/// Event ids of the rundown: `RuntimeInformationDCEnd`, `TieredCompilationSettingsDCEnd`.
const RUNTIME_INFORMATION: u32 = 187;
const TIERED_COMPILATION: u32 = 280;
/// The kind of runtime that is not .NET Framework.
const CORE_CLR: u16 = 2;
/// Startup flags of the garbage collector.
const CONCURRENT_GC: u32 = 1;
const SERVER_GC: u32 = 0x1000;
/// Flags of tiered compilation.
const QUICK_JIT: u32 = 1;
const QUICK_JIT_FOR_LOOPS: u32 = 2;
const TIERED_PGO: u32 = 4;
const READY_TO_RUN: u32 = 8;
/// Limit on a configuration file. SDKs write some hundred bytes.
const MAX_CONFIG_BYTES: u64 = 256 << 10;
/// Limit on the arguments before that of the program.
const MAX_ARGUMENTS: usize = 64;

/// Settings with which a runtime started.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RuntimeSettings {
    version: [u16; 4],
    startup_flags: u32,
    /// Flags of tiered compilation, if it is on.
    tiering_flags: Option<u32>,
    /// Path of the file that contains the runtime.
    path: PathBuf,
}

impl RuntimeSettings {
    /// Reads the settings of a process. Returns `None` for a NativeAOT program, which has none, and
    /// for a process that has ended.
    pub(super) fn read(pid: Pid, runtime: &RuntimeIdentity) -> Option<Self> {
        if runtime.flavour == Deployment::NativeAot {
            return None;
        }
        let environment = Environment::of(pid).ok()?;
        let executable = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let mut files = machine::mapped_code(pid).ok()?.into_iter();
        let library = files.find(|file| file.path.ends_with(FILE_NAME));
        let properties = configuration(pid, &executable).unwrap_or_default();
        let path = library.map_or(executable, |library| library.path);
        Some(Self::of(
            version(runtime.version.as_deref().unwrap_or_default()),
            path,
            &environment,
            &properties,
        ))
    }

    fn of(
        version: [u16; 4],
        path: PathBuf,
        environment: &Environment,
        properties: &Map<String, Value>,
    ) -> Self {
        let is_on = |setting: &str, property: &str, default: bool| {
            let property = || properties.get(property).and_then(switch);
            environment
                .switch(setting)
                .or_else(property)
                .unwrap_or(default)
        };
        let flags = |switches: &[(u32, &str, &str, bool)]| {
            let switches = switches.iter();
            let on = switches.filter(|(_, setting, property, default)| {
                is_on(setting, &format!("System.{property}"), *default)
            });
            on.fold(0, |flags, (flag, ..)| flags | flag)
        };
        let is_tiered = is_on(
            "TieredCompilation",
            "System.Runtime.TieredCompilation",
            true,
        );
        Self {
            version,
            startup_flags: flags(&[
                (CONCURRENT_GC, "gcConcurrent", "GC.Concurrent", true),
                (SERVER_GC, "gcServer", "GC.Server", false),
            ]),
            tiering_flags: is_tiered.then(|| {
                let tiering = "Runtime.TieredCompilation.QuickJit";
                flags(&[
                    (QUICK_JIT, "TC_QuickJit", tiering, true),
                    (
                        QUICK_JIT_FOR_LOOPS,
                        "TC_QuickJitForLoops",
                        &format!("{tiering}ForLoops"),
                        true,
                    ),
                    (TIERED_PGO, "TieredPGO", "Runtime.TieredPGO", true),
                    (READY_TO_RUN, "ReadyToRun", "Runtime.ReadyToRun", true),
                ])
            }),
            path,
        }
    }

    /// Adds the events with which a rundown lists the settings.
    pub(super) fn add_to(&self, events: &mut AddedEvents) {
        let kind = |id| EventMetadata {
            provider: RUNDOWN.to_owned(),
            id,
            level: 4,
            ..EventMetadata::default()
        };
        let [major, minor, build, revision] = self.version;
        let runtime_instance = 0;
        let mut payload = Vec::new();
        // The version of the class library, and that of the runtime.
        let versions = [major, minor, build, revision].repeat(2);
        for number in [runtime_instance, CORE_CLR].into_iter().chain(versions) {
            payload.extend(number.to_le_bytes());
        }
        payload.extend(self.startup_flags.to_le_bytes());
        let startup_mode = 0;
        payload.push(startup_mode);
        // As in a rundown, the command line and the id of a COM object are empty.
        payload.extend([0; 2 + 16]);
        put_utf16z(&mut payload, &self.path.to_string_lossy());
        let id = events.kind(&kind(RUNTIME_INFORMATION));
        events.event(id, &payload);
        if let Some(flags) = self.tiering_flags {
            let id = events.kind(&kind(TIERED_COMPILATION));
            let mut payload = runtime_instance.to_le_bytes().to_vec();
            payload.extend(flags.to_le_bytes());
            events.event(id, &payload);
        }
    }
}

/// Parses a version such as `10.0.12`.
fn version(text: &str) -> [u16; 4] {
    let mut components = text.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| components.next().unwrap_or(0))
}

/// Returns the value of a property: a boolean, or its text, or a number.
fn switch(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(on) => Some(*on),
        Value::String(text) => text.to_ascii_lowercase().parse().ok(),
        Value::Number(number) => Some(number.as_u64() != Some(0)),
        _ => None,
    }
}

/// Reads the properties in the configuration file of the program that a process runs.
fn configuration(pid: Pid, executable: &Path) -> Option<Map<String, Value>> {
    let arguments = machine::arguments(pid);
    let mut arguments = arguments.iter().take(MAX_ARGUMENTS).skip(1);
    let is_host = executable
        .file_name()
        .is_some_and(|name| name.as_bytes() == b"dotnet");
    let file = if is_host {
        let program = arguments.find(|argument| argument.ends_with(b".dll"))?;
        let program = Path::new(std::ffi::OsStr::from_bytes(program));
        let root = match program.is_absolute() {
            true => Root::of(pid.0),
            false => Root::at(Path::new(&format!("/proc/{pid}/cwd"))),
        };
        root.ok()?
            .open(&program.with_extension("runtimeconfig.json"))
    } else {
        let mut name = executable.file_name()?.to_owned();
        name.push(".runtimeconfig.json");
        Root::of(pid.0).ok()?.open(&executable.with_file_name(name))
    };
    let mut json = Vec::new();
    file.ok()?
        .take(MAX_CONFIG_BYTES)
        .read_to_end(&mut json)
        .ok()?;
    properties(&json)
}

fn properties(json: &[u8]) -> Option<Map<String, Value>> {
    let mut config: Value = serde_json::from_slice(json).ok()?;
    match config
        .pointer_mut("/runtimeOptions/configProperties")?
        .take()
    {
        Value::Object(properties) => Some(properties),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(environment: &[&str], json: &str) -> (u32, Option<u32>) {
        let environment = Environment::from_entries(environment);
        let properties = properties(json.as_bytes()).unwrap_or_default();
        let settings = RuntimeSettings::of([10, 0, 12, 0], "".into(), &environment, &properties);
        (settings.startup_flags, settings.tiering_flags)
    }

    #[test]
    fn environment_takes_precedence_over_configuration() {
        let json = r#"{"runtimeOptions": {"configProperties": {
            "System.GC.Server": true, "System.GC.Concurrent": "False", "System.Runtime.TieredPGO": 0
        }}}"#;
        assert_eq!(settings(&[], ""), (1, Some(0xf)));
        assert_eq!(settings(&[], json), (0x1000, Some(0xb)));
        let environment = ["DOTNET_gcServer=0", "DOTNET_TieredCompilation=0"];
        assert_eq!(settings(&environment, json), (0, None));
        assert_eq!(settings(&["DOTNET_TC_QuickJit=0"], "[]"), (1, Some(0xe)));
    }

    #[test]
    fn parses_versions() {
        assert_eq!(version("10.0.12"), [10, 0, 12, 0]);
        assert_eq!(version("11.0.0-preview.7"), [11, 0, 0, 0]);
        assert_eq!(version(""), [0; 4]);
    }
}
