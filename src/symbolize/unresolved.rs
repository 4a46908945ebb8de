//! Code that could not be symbolized, grouped so that each reason is reported once.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

use crate::trace::{Notice, NoticeKind};

/// Maximum number of files or processes listed for one reason.
const MAX_LISTED: usize = 8;

/// Code without symbols, or with symbols that were not searched for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Unresolved {
    pub(super) kind: UnresolvedKind,
    /// The file, process or directory.
    pub(super) who: String,
    /// The reason.
    pub(super) why: String,
    /// The remedy; may be empty.
    pub(super) remedy: &'static str,
}

/// Kind of unresolved code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum UnresolvedKind {
    /// Code of a file.
    File,
    /// JIT code of a process.
    Jit,
    /// A directory with debug files.
    Directory,
}

impl UnresolvedKind {
    /// Returns the words before and after the list, and the kind of the notice.
    fn words(self) -> (&'static str, &'static str, NoticeKind) {
        match self {
            Self::File => ("code of", "has no names", NoticeKind::CodeUnsymbolized),
            Self::Jit => ("JIT code of", "has no names", NoticeKind::JitUnsymbolized),
            Self::Directory => (
                "debug files in",
                "were not searched",
                NoticeKind::DebugFilesNotSearched,
            ),
        }
    }
}

/// Returns one notice for each reason.
pub(crate) fn notices(gaps: impl IntoIterator<Item = Unresolved>) -> Vec<Notice> {
    let mut reasons: BTreeMap<_, Vec<String>> = BTreeMap::new();
    let mut seen = HashSet::new();
    for gap in gaps.into_iter().filter(|gap| seen.insert(gap.clone())) {
        let reason = (gap.kind, gap.why, gap.remedy);
        reasons.entry(reason).or_default().push(gap.who);
    }
    type Reason = (UnresolvedKind, String, &'static str);
    let notice = |((kind, why, remedy), who): (Reason, Vec<String>)| {
        let (before, after, kind) = kind.words();
        let listed = who[..who.len().min(MAX_LISTED)].join(", ");
        let mut what = format!("{before} {listed}");
        if who.len() > MAX_LISTED {
            // Writing to a string cannot fail.
            let _ = write!(what, " and {} more", who.len() - MAX_LISTED);
        }
        Notice::new(kind, format!("{what} {after}: {why}"), remedy)
            .about(listed)
            .counting(who.len())
    };
    reasons.into_iter().map(notice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_each_reason_once() {
        let gap = |who: u32, why: &str| Unresolved {
            kind: UnresolvedKind::File,
            who: who.to_string(),
            why: why.into(),
            remedy: "do",
        };
        let gaps = (1..=10).map(|who| gap(who, "a"));
        let gaps = gaps.chain([gap(1, "a"), gap(11, "b")]);
        let found = notices(gaps);
        assert_eq!(
            found.iter().map(|n| n.what.as_str()).collect::<Vec<_>>(),
            [
                "code of 1, 2, 3, 4, 5, 6, 7, 8 and 2 more has no names: a",
                "code of 11 has no names: b"
            ]
        );
        assert!(notices([]).is_empty());
    }
}
