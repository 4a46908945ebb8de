//! Patterns for names of frames, with the meaning that they have in PerfView.
//!
//! ```text
//! *    any characters                      |   one or the other
//! %    any letters, digits, `.`, `_`, `?`  {}  a part that `$1`, `$2` ... of a group name stand for
//! ^    the start of the name               @   at the start of the pattern: the rest is a regular expression
//! ```
//! A pattern matches anywhere in a name, in any case.

use regex::{Captures, Regex, RegexBuilder};

/// Maximum number of patterns of one list.
const MAX_PATTERNS: usize = 64;

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
    /// The list has too many patterns.
    #[error("more than {MAX_PATTERNS} patterns; `|` within a pattern means or")]
    TooMany,
}

/// A pattern for names of frames.
#[derive(Clone, Debug)]
pub(super) struct Pattern(Regex);

impl Pattern {
    pub(super) fn parse(text: &str) -> Result<Self, PatternError> {
        let built = RegexBuilder::new(&regex_of(text))
            .case_insensitive(true)
            .build();
        built.map(Self).map_err(|error| {
            // The lines before the last one show the regular expression.
            let error = error.to_string();
            let cause = error.lines().last().unwrap_or_default();
            PatternError::Malformed {
                pattern: text.to_owned(),
                cause: cause.trim_start_matches("error: ").to_owned(),
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
pub struct Patterns(Vec<Pattern>);

impl Patterns {
    /// Parses a list of patterns. Empty ones are left out.
    ///
    /// # Errors
    /// A pattern is malformed, or there are more than 64.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let patterns = parts(text)?.map(Pattern::parse);
        patterns.collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn any(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| pattern.is_match(name))
    }

    /// Returns which patterns match, as bits.
    pub(super) fn matches(&self, name: &str) -> u64 {
        let patterns = self.0.iter().enumerate();
        let matched = patterns.filter(|(_, pattern)| pattern.is_match(name));
        matched.fold(0, |bits, (at, _)| bits | 1 << at)
    }

    /// Returns the bits of all patterns.
    pub(super) fn all(&self) -> u64 {
        (0..self.0.len()).fold(0, |bits, at| bits | 1 << at)
    }
}

/// Returns the parts of a list, without the empty ones.
pub(super) fn parts(text: &str) -> Result<impl Iterator<Item = &str>, PatternError> {
    let parts = || {
        text.split(';')
            .map(str::trim)
            .filter(|part| !part.is_empty())
    };
    match parts().count() > MAX_PATTERNS {
        true => Err(PatternError::TooMany),
        false => Ok(parts()),
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
            let pattern_of = Pattern::parse(pattern).unwrap();
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
        let many = "a;".repeat(MAX_PATTERNS + 1);
        assert!(matches!(Patterns::parse(&many), Err(PatternError::TooMany)));
        let most = Patterns::parse(&"a;".repeat(MAX_PATTERNS)).unwrap();
        assert_eq!((most.all(), most.matches("xax")), (u64::MAX, u64::MAX));
    }
}
