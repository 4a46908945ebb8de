//! Why code has no names, told once for all it concerns: a machine may have hundreds of processes with one fault.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::trace::Notice;

/// Most files or processes listed for one reason.
const MAX_LISTED: usize = 8;

/// Something whose code has no names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Gap {
    /// What such things are, in the plural: `code made at run time by processes`.
    pub(super) kind: &'static str,
    /// Which one.
    pub(super) who: String,
    /// Why.
    pub(super) why: String,
    /// What to do about it; may be empty.
    pub(super) remedy: &'static str,
}

/// One notice for each reason.
pub(crate) fn notices(gaps: impl IntoIterator<Item = Gap>) -> Vec<Notice> {
    let mut reasons: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for Gap {
        kind,
        who,
        why,
        remedy,
    } in gaps
    {
        reasons.entry((kind, why, remedy)).or_default().push(who);
    }
    let notice = |((kind, why, remedy), who): ((&str, String, &str), Vec<String>)| {
        let mut what = format!("{kind} {}", who[..who.len().min(MAX_LISTED)].join(", "));
        if who.len() > MAX_LISTED {
            // Writing to a string cannot fail.
            let _ = write!(what, " and {} more", who.len() - MAX_LISTED);
        }
        Notice::new(format!("{what} has no names: {why}"), remedy)
    };
    reasons.into_iter().map(notice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_reason_is_told_once() {
        let gap = |who: u32, why: &str| Gap {
            kind: "code of",
            who: who.to_string(),
            why: why.into(),
            remedy: "do",
        };
        let gaps = (1..=10).map(|who| gap(who, "a")).chain([gap(11, "b")]);
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
