//! Patterns for names of frames, with the meaning that they have in PerfView.
//!
//! ```text
//! *    any characters                      |   one or the other
//! %    any letters, digits, `.`, `_`, `?`  {}  a part that `$1`, `$2` ... of a group name stand for
//! ^    the start of the name               @   at the start of the pattern: the rest is a regular expression
//! ```
//! A pattern matches anywhere in a name, in any case.

use regex::{Captures, Regex, RegexBuilder};

use crate::output::sanitize::truncate_with_ellipsis;

/// Maximum number of patterns of one list.
const MAX_PATTERNS: usize = 64;
/// Memory of the patterns of one list, in bytes. `%` takes some 50 KB, a letter some bytes.
const MAX_LIST_BYTES: usize = 32 << 20;
/// Memory of one pattern and of its cache, in bytes.
const MAX_BYTES: usize = 8 << 20;
const MAX_CACHE_BYTES: usize = 512 << 10;
/// Maximum length of a pattern in a message, in bytes.
const MAX_SHOWN_BYTES: usize = 200;

/// A pattern is malformed.
#[derive(Debug, thiserror::Error)]
pub enum PatternError {
    /// The pattern is no regular expression, after its translation to one.
    #[error("'{pattern}' is not a pattern: {cause}")]
    Malformed {
        /// The pattern.
        pattern: String,
        /// Cause, in a line.
        cause: String,
    },
    /// The regular expression takes too much memory.
    #[error(
        "the pattern '{pattern}' takes too much memory: shorten it, or use fewer patterns or fewer `%`"
    )]
    TooLarge {
        /// The pattern.
        pattern: String,
    },
    /// The list has too many patterns.
    #[error("more than {MAX_PATTERNS} patterns; `|` within a pattern means or")]
    TooMany,
}

/// A pattern for names of frames.
#[derive(Clone, Debug)]
pub(super) struct Pattern(Regex);

impl Pattern {
    /// Parses a pattern, which may take `max_bytes` of memory.
    fn parse(text: &str, max_bytes: usize) -> Result<Self, PatternError> {
        let built = RegexBuilder::new(&regex_of(text))
            .case_insensitive(true)
            .size_limit(max_bytes)
            .dfa_size_limit(MAX_CACHE_BYTES)
            .build();
        let pattern = || truncate_with_ellipsis(text, MAX_SHOWN_BYTES).into_owned();
        built.map(Self).map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => PatternError::TooLarge { pattern: pattern() },
            error => {
                // The lines before the last one show the regular expression.
                let error = error.to_string();
                let cause = error.lines().last().unwrap_or_default();
                PatternError::Malformed {
                    pattern: pattern(),
                    cause: cause.trim_start_matches("error: ").to_owned(),
                }
            }
        })
    }

    pub(super) fn is_match(&self, name: &str) -> bool {
        self.0.is_match(name)
    }

    pub(super) fn captures<'n>(&self, name: &'n str) -> Option<Captures<'n>> {
        self.0.captures(name)
    }
}

/// Translates a pattern to a regular expression.
fn regex_of(pattern: &str) -> String {
    if let Some(regex) = pattern.strip_prefix('@') {
        return regex.to_owned();
    }
    let mut regex = String::new();
    for letter in pattern.chars() {
        match letter {
            '%' => regex.push_str(r"[.\w?]*"),
            '*' => regex.push_str(".*"),
            '^' | '|' => regex.push(letter),
            '{' => regex.push('('),
            '}' => regex.push(')'),
            letter => regex.push_str(&regex::escape(letter.encode_utf8(&mut [0; 4]))),
        }
    }
    regex
}

/// Patterns separated by `;`.
#[derive(Clone, Debug, Default)]
pub struct Patterns {
    list: Vec<Pattern>,
    /// The list as it was written.
    text: String,
}

impl Patterns {
    /// Parses a list of patterns. Empty ones are left out.
    ///
    /// # Errors
    /// A pattern is malformed, or there are more than 64.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let list = List::of(text)?;
        let patterns = list.parts.iter().map(|part| list.pattern(part));
        Ok(Self {
            list: patterns.collect::<Result<_, _>>()?,
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

    pub(super) fn any(&self, name: &str) -> bool {
        self.list.iter().any(|pattern| pattern.is_match(name))
    }

    /// Returns which patterns match, as bits.
    pub(super) fn matches(&self, name: &str) -> u64 {
        let patterns = self.list.iter().enumerate();
        let matched = patterns.filter(|(_, pattern)| pattern.is_match(name));
        matched.fold(0, |bits, (at, _)| bits | 1 << at)
    }

    /// Returns the bits of all patterns.
    pub(super) fn all(&self) -> u64 {
        (0..self.list.len()).fold(0, |bits, at| bits | 1 << at)
    }
}

/// The parts of a list, without the empty ones.
pub(super) struct List<'t> {
    pub(super) parts: Vec<&'t str>,
}

impl<'t> List<'t> {
    pub(super) fn of(text: &'t str) -> Result<Self, PatternError> {
        let parts = text.split(';').map(str::trim);
        let parts = parts.filter(|part| !part.is_empty());
        let parts: Vec<&str> = parts.take(MAX_PATTERNS + 1).collect();
        match parts.len() > MAX_PATTERNS {
            true => Err(PatternError::TooMany),
            false => Ok(Self { parts }),
        }
    }

    /// Parses the pattern of one part, which may take its share of the memory.
    pub(super) fn pattern(&self, text: &str) -> Result<Pattern, PatternError> {
        let share = MAX_LIST_BYTES / self.parts.len().max(1);
        Pattern::parse(text, share.min(MAX_BYTES))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_in_perfview() {
        for (pattern, name, expected) in [
            ("sort", "CoreLib!System.Array.Sort(int[])", true),
            ("^sort", "CoreLib!System.Array.Sort(int[])", false),
            ("^corelib!", "CoreLib!System.Array.Sort(int[])", true),
            ("array%(", "CoreLib!System.Array.Sort(int[])", true),
            ("core%(", "CoreLib!System.Array.Sort(int[])", false),
            ("core*(", "CoreLib!System.Array.Sort(int[])", true),
            ("none|sort", "CoreLib!System.Array.Sort(int[])", true),
            ("int[]", "CoreLib!System.Array.Sort(int[])", true),
            ("a.b", "axb", false),
            ("@a.b", "axb", true),
            ("Process64 dotnet (12)", "Process64 dotnet (12)", true),
        ] {
            let pattern_of = Pattern::parse(pattern, MAX_BYTES).unwrap();
            assert_eq!(pattern_of.is_match(name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn lists_are_bounded_and_checked() {
        assert!(Patterns::parse("a; ;b").is_ok_and(|list| list.all() == 3));
        assert!(
            Patterns::parse("{a")
                .unwrap_err()
                .to_string()
                .contains("'{a'")
        );
        let long = format!("%{};", "x%".repeat(200)).repeat(MAX_PATTERNS);
        let error = Patterns::parse(&long).unwrap_err();
        assert!(matches!(error, PatternError::TooLarge { .. }), "{error}");
        assert!(error.to_string().len() < 2 * MAX_SHOWN_BYTES, "{error}");
        assert!(Patterns::parse(&"%!%.%(%)=%;".repeat(MAX_PATTERNS)).is_ok());
        let many = "a;".repeat(MAX_PATTERNS + 1);
        assert!(matches!(Patterns::parse(&many), Err(PatternError::TooMany)));
        let most = Patterns::parse(&"a;".repeat(MAX_PATTERNS)).unwrap();
        assert_eq!((most.all(), most.matches("xax")), (u64::MAX, u64::MAX));
    }
}
