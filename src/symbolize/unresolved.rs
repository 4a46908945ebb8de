//! What is missing for want of something, told once for all it concerns: a machine may have hundreds of processes with one fault.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

use crate::trace::Notice;

/// Most files or processes listed for one reason.
const MAX_LISTED: usize = 8;
/// The fault of code.
pub(super) const NO_NAMES: &str = "has no names";

/// Something whose code has no names, or that was not searched for any.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Unresolved {
    /// What such things are, in the plural: `code made at run time by processes`.
    pub(super) kind: &'static str,
    /// Which one.
    pub(super) who: String,
    /// What is the matter: [`NO_NAMES`].
    pub(super) fault: &'static str,
    /// Why.
    pub(super) why: String,
    /// What to do about it; may be empty.
    pub(super) remedy: &'static str,
}

/// One notice for each reason.
pub(crate) fn notices(gaps: impl IntoIterator<Item = Unresolved>) -> Vec<Notice> {
    let mut reasons: BTreeMap<_, Vec<String>> = BTreeMap::new();
    let mut seen = HashSet::new();
    for gap in gaps.into_iter().filter(|gap| seen.insert(gap.clone())) {
        let reason = (gap.kind, gap.fault, gap.why, gap.remedy);
        reasons.entry(reason).or_default().push(gap.who);
    }
    let notice = |((kind, fault, why, remedy), who): ((&str, &str, String, &str), Vec<String>)| {
        let mut what = format!("{kind} {}", who[..who.len().min(MAX_LISTED)].join(", "));
        if who.len() > MAX_LISTED {
            // Writing to a string cannot fail.
            let _ = write!(what, " and {} more", who.len() - MAX_LISTED);
        }
        Notice::new(format!("{what} {fault}: {why}"), remedy)
    };
    reasons.into_iter().map(notice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_reason_is_told_once() {
        let gap = |who: u32, why: &str| Unresolved {
            kind: "code of",
            who: who.to_string(),
            fault: NO_NAMES,
            why: why.into(),
            remedy: "do",
        };
        let gaps = (1..=10).map(|who| gap(who, "a"));
        let gaps = gaps.chain([gap(1, "a"), gap(11, "b")]);
        let told = notices(gaps);
        assert_eq!(
            told.iter().map(|n| n.what.as_str()).collect::<Vec<_>>(),
            [
                "code of 1, 2, 3, 4, 5, 6, 7, 8 and 2 more has no names: a",
                "code of 11 has no names: b"
            ]
        );
        assert!(notices([]).is_empty());
    }
}
