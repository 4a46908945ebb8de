//! What a line shows: perf's `-F`.

use std::str::FromStr;

use thiserror::Error;

/// Why a list of fields cannot be shown.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum FieldsError {
    /// A name that is no field.
    #[error("no field is called {0:?}; there are: {NAMES}")]
    Unknown(String),
    /// A list of fields, and changes of it.
    #[error("fields cannot be named and added (+) or left out (-) in one list")]
    Mixed,
    /// Nothing would be shown.
    #[error("no field is left; there are: {NAMES}")]
    None,
}

const NAMES: &str = "comm,pid,tid,cpu,time,period,event,ip,sym,dso,trace";

/// The fields of a line. Their order is always the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// Name of the thread.
    pub comm: bool,
    /// Process id.
    pub pid: bool,
    /// Thread id.
    pub tid: bool,
    /// CPU number, where the recording has it.
    pub cpu: bool,
    /// Seconds, with microseconds.
    pub time: bool,
    /// What the event counted since the sample before.
    pub period: bool,
    /// Name of the event.
    pub event: bool,
    /// Addresses.
    pub ip: bool,
    /// Names of functions.
    pub sym: bool,
    /// Files.
    pub dso: bool,
    /// What a tracepoint says.
    pub trace: bool,
}

impl Fields {
    /// All of them, which is what the original perfcollect asks perf for.
    #[must_use]
    pub fn all() -> Self {
        let mut fields = Self::default();
        NAMES.split(',').for_each(|name| {
            fields.set(name, true);
        });
        fields
    }

    fn set(&mut self, name: &str, is_shown: bool) -> bool {
        *match name {
            "comm" => &mut self.comm,
            "pid" => &mut self.pid,
            "tid" => &mut self.tid,
            "cpu" => &mut self.cpu,
            "time" => &mut self.time,
            "period" => &mut self.period,
            "event" => &mut self.event,
            "ip" => &mut self.ip,
            "sym" => &mut self.sym,
            "dso" => &mut self.dso,
            "trace" => &mut self.trace,
            _ => return false,
        } = is_shown;
        true
    }
}

impl FromStr for Fields {
    type Err = FieldsError;

    fn from_str(text: &str) -> Result<Self, FieldsError> {
        let words = text.split(',').map(str::trim);
        let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
        let is_change = |word: &&str| word.starts_with(['+', '-']);
        let mut fields = match words.iter().filter(|word| is_change(word)).count() {
            0 => Self::default(),
            changes if changes == words.len() => Self::all(),
            _ => return Err(FieldsError::Mixed),
        };
        for word in words {
            // An option's spelling doubles the first dash.
            let name = word.trim_start_matches(['+', '-']);
            if !fields.set(name, !word.starts_with('-')) {
                return Err(FieldsError::Unknown(name.into()));
            }
        }
        match fields == Self::default() {
            true => Err(FieldsError::None),
            false => Ok(fields),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_perfs_names() {
        assert_eq!(NAMES.parse(), Ok(Fields::all()));
        let fields: Fields = "pid, ip,".parse().unwrap_or_default();
        assert!(fields.pid && fields.ip && !fields.tid);
        let fields: Fields = "--cpu,+pid,-time".parse().unwrap_or_default();
        let expected = Fields {
            cpu: false,
            time: false,
            ..Fields::all()
        };
        assert_eq!(fields, expected);
        for (text, error) in [
            ("pid,x", FieldsError::Unknown("x".into())),
            ("sw:comm", FieldsError::Unknown("sw:comm".into())),
            ("comm,+pid", FieldsError::Mixed),
            (",", FieldsError::None),
        ] {
            assert_eq!(text.parse::<Fields>(), Err(error));
        }
    }
}
