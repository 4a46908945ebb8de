//! Fields of a line: perf's `-F`.

use std::str::FromStr;

use thiserror::Error;

/// Error of a field list.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum FieldsError {
    /// Unknown field.
    #[error("no field is called {0:?}; there are: {NAMES}")]
    Unknown(String),
    /// Mixture of fields and changes.
    #[error("fields cannot be named and added (+) or left out (-) in one list")]
    Mixed,
    /// No field remains.
    #[error("no field is left; there are: {NAMES}")]
    None,
}

const NAMES: &str = "comm,pid,tid,cpu,time,period,event,ip,sym,dso,trace";

/// The fields of a line. Their order is fixed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// Thread name.
    pub comm: bool,
    /// Process id.
    pub pid: bool,
    /// Thread id.
    pub tid: bool,
    /// CPU, if the recording has it.
    pub cpu: bool,
    /// Time in seconds, with microseconds.
    pub time: bool,
    /// Increase of the counter since the sample before.
    pub period: bool,
    /// Event name.
    pub event: bool,
    /// Addresses.
    pub ip: bool,
    /// Functions.
    pub sym: bool,
    /// Files.
    pub dso: bool,
    /// Text of a tracepoint.
    pub trace: bool,
}

impl Fields {
    /// All fields, which the perfcollect script requests from perf.
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
            // The option parser doubles the first dash.
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
