//! Name of an event stream in the files of a capture and in its archive.

use std::fmt;
use std::str::FromStr;

use crate::trace::Pid;

/// Suffix of a stream with garbage collections.
const COLLECTIONS: &str = "gc";

/// What a stream contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StreamContent {
    /// All events of its process, or all that no other stream has.
    #[default]
    Main,
    /// Garbage collections. Only processes of .NET 8 and 9 have such a stream.
    Collections,
}

/// `PID`, `PID-2` for the second process with this id; with `-gc`, its garbage collections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamName {
    /// Process id in perfcollect's pid namespace.
    pub process: Pid,
    /// Number of the process among those with this id, from 1 on.
    pub instance: u32,
    /// Content of the stream.
    pub content: StreamContent,
}

impl StreamName {
    /// Creates the name of the main stream of the first process with an id.
    #[must_use]
    pub fn first(process: Pid) -> Self {
        Self {
            process,
            instance: 1,
            content: StreamContent::Main,
        }
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.process)?;
        if self.instance > 1 {
            write!(f, "-{}", self.instance)?;
        }
        match self.content {
            StreamContent::Main => Ok(()),
            StreamContent::Collections => write!(f, "-{COLLECTIONS}"),
        }
    }
}

/// The string is not the name of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the name of an event stream")]
pub struct ParseStreamNameError;

impl FromStr for StreamName {
    type Err = ParseStreamNameError;

    fn from_str(name: &str) -> Result<Self, ParseStreamNameError> {
        let number = |digits: &str| digits.parse().ok().filter(|number| *number > 0);
        let mut parts = name.split('-').peekable();
        let pid = parts.next().and_then(number);
        let instance = parts.peek().copied().and_then(number);
        if instance.is_some() {
            parts.next();
        }
        let content = match (parts.next(), parts.next()) {
            (None, None) => StreamContent::Main,
            (Some(COLLECTIONS), None) => StreamContent::Collections,
            _ => return Err(ParseStreamNameError),
        };
        let parsed = Self {
            process: Pid(pid.ok_or(ParseStreamNameError)?),
            instance: instance.unwrap_or(1).cast_unsigned(),
            content,
        };
        // Numbers may be written in several ways.
        match parsed.to_string() == name {
            true => Ok(parsed),
            false => Err(ParseStreamNameError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_as_they_are_printed() {
        for (text, process, instance, content) in [
            ("7", 7, 1, StreamContent::Main),
            ("7-2", 7, 2, StreamContent::Main),
            ("7-gc", 7, 1, StreamContent::Collections),
            ("7-2-gc", 7, 2, StreamContent::Collections),
        ] {
            let name = StreamName {
                process: Pid(process),
                instance,
                content,
            };
            assert_eq!(name.to_string(), text);
            assert_eq!(text.parse(), Ok(name));
        }
        for invalid in [
            "", "-", "x", "-7", "0", "7-", "7-0", "7-x", "7-gc-gc", "7-gc-2", "07", "+7", "7-1",
            "7-2-gc-", "7-2-3",
        ] {
            assert_eq!(
                invalid.parse::<StreamName>(),
                Err(ParseStreamNameError),
                "{invalid}"
            );
        }
    }
}
