//! Groups of frames: PerfView's group patterns.
//!
//! ```text
//! PATTERN->NAME   the frames are one: NAME
//! PATTERN=>NAME   calls within the group are its entry: NAME <<the frame that was called from outside>>
//! PATTERN->       the frames stay as they are, whatever follows
//! ```
//! The first pattern that matches counts. `->` goes on with the name of the group.

use regex::Captures;

use super::pattern::{List, Pattern, PatternError};
use crate::output::sanitize::truncate_with_ellipsis;

/// Maximum length of a name, in bytes: `$1$1` of several patterns doubles it each time.
const MAX_NAME_BYTES: usize = 4096;

/// Patterns with the names of their groups.
#[derive(Clone, Debug, Default)]
pub struct GroupPatterns {
    list: Vec<GroupPattern>,
    /// The list as it was written.
    text: String,
}

#[derive(Clone, Debug)]
struct GroupPattern {
    pattern: Pattern,
    /// Name, with `$1` ... for parts of the frame's name and `$&` for all that matched.
    name: String,
    is_entry: bool,
}

/// The group of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) name: String,
    /// Whether the frame that is called from outside of the group is a part of the name.
    pub(super) is_entry: bool,
}

impl GroupPatterns {
    /// Parses a list of `PATTERN->NAME` and `PATTERN=>NAME`, separated by `;`. A comment in brackets may
    /// precede it.
    ///
    /// # Errors
    /// A pattern is malformed, or there are more than 64.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let trimmed = text.trim();
        let comment = trimmed.strip_prefix('[');
        let list = match comment.and_then(|text| text.split_once(']')) {
            Some((_, list)) => list,
            None => trimmed,
        };
        let list = List::of(list)?;
        let groups = list.parts.iter();
        let groups = groups.map(|part| GroupPattern::parse(part, &list));
        Ok(Self {
            list: groups.collect::<Result<_, _>>()?,
            text: text.to_owned(),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the list as it was written.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the group of a frame.
    pub(super) fn group_of(&self, frame: &str) -> Option<Group> {
        let mut group: Option<Group> = None;
        for GroupPattern {
            pattern,
            name,
            is_entry,
        } in &self.list
        {
            let frame = group.as_ref().map_or(frame, |group| &*group.name);
            let Some(captures) = pattern.captures(frame) else {
                continue;
            };
            let name = expanded(name, &captures);
            if name.is_empty() {
                return None;
            }
            let is_entry = *is_entry;
            group = Some(Group { name, is_entry });
            if is_entry {
                break;
            }
        }
        group
    }
}

impl GroupPattern {
    fn parse(text: &str, list: &List<'_>) -> Result<Self, PatternError> {
        let arrow = text
            .split_once("=>")
            .map(|(pattern, name)| (pattern, name, true));
        let arrow = arrow.or_else(|| {
            let (pattern, name) = text.split_once("->")?;
            Some((pattern, name, false))
        });
        let (pattern, name, is_entry) = arrow.unwrap_or((text, "$&", false));
        Ok(Self {
            pattern: list.pattern(pattern)?,
            name: name.trim().to_owned(),
            is_entry,
        })
    }
}

/// Replaces `$1` ... and `$&` in the name of a group. A long name ends with an ellipsis.
fn expanded(name: &str, captures: &Captures<'_>) -> String {
    let mut out = String::new();
    let mut letters = name.chars().peekable();
    while out.len() <= MAX_NAME_BYTES
        && let Some(letter) = letters.next()
    {
        let part = match (letter, letters.peek()) {
            ('$', Some('&')) => Some(0),
            ('$', Some(digit)) => digit.to_digit(10),
            _ => None,
        };
        match part {
            Some(part) => {
                letters.next();
                out.push_str(captures.get(part as usize).map_or("", |part| part.as_str()));
            }
            None => out.push(letter),
        }
    }
    truncate_with_ellipsis(&out, MAX_NAME_BYTES).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn group_of(patterns: &str, frame: &str) -> Option<(String, bool)> {
        let group = GroupPatterns::parse(patterns).unwrap().group_of(frame)?;
        Some((group.name, group.is_entry))
    }

    #[test]
    fn groups_mean_what_they_mean_in_perfview() {
        let frame = "libcoreclr!IL_Throw";
        let group = |name: &str, is_entry| Some((name.to_owned(), is_entry));
        assert_eq!(
            group_of("[modules] {%}!=>module $1", frame),
            group("module libcoreclr", true)
        );
        assert_eq!(
            group_of("{%}!->module $1", frame),
            group("module libcoreclr", false)
        );
        assert_eq!(group_of("^libcore%!->;!=>OTHER", frame), None);
        assert_eq!(
            group_of("^libcore%!->;!=>OTHER", "a!b"),
            group("OTHER", true)
        );
        // The name of a group is matched again.
        let twice = group_of("libclr|libcoreclr->CLR;CLR->runtime", frame);
        assert_eq!(twice, group("runtime", false));
        assert_eq!(group_of("il_throw", frame), group("IL_Throw", false));
        assert_eq!(group_of("{x}|core->$1$&$9$", frame), group("core$", false));
        assert_eq!(group_of("", frame), None);
    }

    #[test]
    fn the_length_of_a_name_is_bounded() {
        let (name, _) = group_of(&"{*}->$1$1;".repeat(64), "a!b").unwrap();
        assert_eq!(name.len(), MAX_NAME_BYTES + '…'.len_utf8());
        assert!(name.starts_with("a!ba!b") && name.ends_with('…'), "{name}");
        let (name, _) =
            group_of(&format!("{{*}}->{}", "$1".repeat(5000)), &"é".repeat(999)).unwrap();
        assert!(
            name.len() < MAX_NAME_BYTES + 4 && name.ends_with('…'),
            "{name}"
        );
    }
}
