//! The environment with which a process started, and the settings of its runtime in it.

use crate::machine::{self, ProcError};
use crate::trace::Pid;

/// Prefixes of the names of settings: the current one, and that before .NET 6.
const PREFIXES: [&str; 2] = ["DOTNET_", "COMPlus_"];

/// The initial environment of a process: `NAME=value` strings, each with a trailing NUL.
#[derive(Debug, Default)]
pub(super) struct Environment(Vec<u8>);

impl Environment {
    /// Reads the environment of a process.
    ///
    /// # Errors
    /// The environment cannot be read.
    pub(super) fn of(pid: Pid) -> Result<Self, ProcError> {
        machine::environment(pid).map(Self)
    }

    /// Returns the value of a variable.
    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        self.0
            .split(|&byte| byte == 0)
            .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    }

    /// Returns the variables that set a setting of the runtime, with their values.
    pub(super) fn settings(&self, setting: &str) -> impl Iterator<Item = (String, &[u8])> {
        PREFIXES.into_iter().filter_map(move |prefix| {
            let name = format!("{prefix}{setting}");
            let value = self.get(&name)?;
            Some((name, value))
        })
    }

    /// Returns the first of these settings that is 0, with its value.
    pub(super) fn zero_setting(&self, settings: &[&str]) -> Option<String> {
        let mut variables = settings.iter().flat_map(|setting| self.settings(setting));
        let (name, _) = variables.find(|(_, value)| is_zero(value))?;
        Some(format!("{name}=0"))
    }

    /// Returns whether a setting is on, or `None` if it is not set.
    pub(super) fn switch(&self, setting: &str) -> Option<bool> {
        let mut variables = self.settings(setting);
        let (_, value) = variables.find(|(_, value)| !value.is_empty())?;
        Some(!is_zero(value))
    }
}

/// Returns whether the value of a setting, a hexadecimal integer, is zero.
fn is_zero(value: &[u8]) -> bool {
    let digits = value.strip_prefix(b"0x").unwrap_or(value);
    !digits.is_empty() && digits.iter().all(|&digit| digit == b'0')
}

#[cfg(test)]
impl Environment {
    /// Creates an environment of `NAME=value` strings.
    pub(super) fn from_entries(entries: &[&str]) -> Self {
        Self(entries.join("\0").into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn current_name_of_a_setting_takes_precedence() {
        let environment = Environment::from_entries(&[
            "COMPlus_gcServer=1",
            "DOTNET_gcServer=0x0",
            "DOTNET_Empty=",
            "COMPlus_TieredPGO=a0",
        ]);
        assert_eq!(environment.switch("gcServer"), Some(false));
        assert_eq!(environment.switch("TieredPGO"), Some(true));
        assert_eq!(environment.switch("Empty"), None);
        assert_eq!(environment.switch("gcConcurrent"), None);
        let zero = environment.zero_setting(&["TieredPGO", "gcServer"]);
        assert_eq!(zero.as_deref(), Some("DOTNET_gcServer=0"));
    }
}
