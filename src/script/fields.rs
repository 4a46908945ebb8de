//! What a line shows: perf's `-F`.

use std::str::FromStr;

use thiserror::Error;

/// A name that is no field.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("no field is called {0:?}; there are: {NAMES}")]
pub struct UnknownField(String);

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
            fields.set(name);
        });
        fields
    }

    fn set(&mut self, name: &str) -> bool {
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
        } = true;
        true
    }
}

impl FromStr for Fields {
    type Err = UnknownField;

    fn from_str(text: &str) -> Result<Self, UnknownField> {
        let mut fields = Self::default();
        for name in text.split(',').map(str::trim) {
            if !fields.set(name) {
                return Err(UnknownField(name.into()));
            }
        }
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_perfs_names() {
        assert_eq!(NAMES.parse(), Ok(Fields::all()));
        let fields: Fields = "pid, ip".parse().unwrap_or_default();
        assert!(fields.pid && fields.ip && !fields.tid);
        assert_eq!("pid,x".parse::<Fields>(), Err(UnknownField("x".into())));
    }
}
