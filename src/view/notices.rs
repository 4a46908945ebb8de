//! Notices in the terminal: many of one kind would hide everything else.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use crate::output::sanitize::terminal;
use crate::trace::{Notice, NoticeKind};

/// Maximum number of notices of a kind that are shown. The others are counted.
///
/// Those who list processes or files limit and count them, too.
const MAX_SHOWN: usize = 8;

/// Prints notices, each remedy once.
pub(super) fn print(notices: &[Notice], out: &mut impl Write) -> io::Result<()> {
    let mut left: HashMap<NoticeKind, usize> = HashMap::new();
    for notice in notices {
        *left.entry(notice.kind).or_default() += 1;
    }
    let mut shown: HashMap<NoticeKind, usize> = HashMap::new();
    let mut remedies = HashSet::new();
    for notice in notices {
        let shown = shown.entry(notice.kind).or_default();
        if *shown == MAX_SHOWN {
            continue;
        }
        *shown += 1;
        writeln!(out, "  notice   {}", terminal(&notice.what))?;
        if !notice.remedy.is_empty() && remedies.insert(&notice.remedy) {
            writeln!(out, "           {}", terminal(&notice.remedy))?;
        }
        let more = left[&notice.kind] - *shown;
        if *shown == MAX_SHOWN && more > 0 {
            writeln!(out, "           ... and {more} more like it")?;
        }
    }
    Ok(())
}

/// Returns the notice that changes most how the trace is read.
pub(super) fn most_useful(notices: &[Notice]) -> Option<&Notice> {
    notices.iter().min_by_key(|notice| rank(notice.kind))
}

/// What is missing in the trace comes first, then names that it lacks, and last what has no influence on
/// what it shows.
fn rank(kind: NoticeKind) -> u8 {
    use NoticeKind as Kind;
    match kind {
        Kind::NoSamples
        | Kind::RecordsLost
        | Kind::Throttled
        | Kind::DiskSpace
        | Kind::SpoolFull
        | Kind::SpoolCorrupt
        | Kind::Recovered
        | Kind::RecordingCorrupt
        | Kind::Selection
        | Kind::NotRunning
        | Kind::NoThreadTime
        | Kind::OutsidePidNamespace => 0,
        Kind::ScriptUnnamed
        | Kind::JitUnsymbolized
        | Kind::MemoryUnreadable
        | Kind::MethodNamesUnreadable
        | Kind::MethodNamesLost
        | Kind::EventsMissing
        | Kind::EventsLost
        | Kind::EventsTruncated
        | Kind::NoStackCopies
        | Kind::NoCallers => 1,
        Kind::CommandStillRuns
        | Kind::NoHardwareCycles
        | Kind::CountersMissing
        | Kind::RingBuffersReduced
        | Kind::SampleRateLowered
        | Kind::DebugFilesNotSearched
        | Kind::Imported => 3,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_useful_notice_is_first() {
        let kinds = [
            NoticeKind::CommandStillRuns,
            NoticeKind::SymbolsIncomplete,
            NoticeKind::ScriptUnnamed,
            NoticeKind::JitUnsymbolized,
        ];
        let notices = kinds.map(|kind| Notice::new(kind, "what", ""));
        let first = most_useful(&notices).map(|notice| notice.kind);
        assert_eq!(first, Some(NoticeKind::ScriptUnnamed));
        assert_eq!(most_useful(&[]), None);
    }

    #[test]
    fn counts_what_is_too_much_of_one_kind() {
        let rejected = |number: u32| {
            let what = format!("rejected {number}");
            Notice::new(NoticeKind::DebugFileRejected, what, "chmod")
        };
        let mut notices: Vec<Notice> = (1..=64).map(rejected).collect();
        notices.insert(1, Notice::new(NoticeKind::RecordsLost, "lost 9", ""));
        let mut text = Vec::new();
        print(&notices, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..4],
            [
                "  notice   rejected 1",
                "           chmod",
                "  notice   lost 9",
                "  notice   rejected 2"
            ]
        );
        assert_eq!(lines[10..], ["           ... and 56 more like it"]);
    }

    #[test]
    fn shows_all_of_a_few() {
        let notices = [1, 2, 3].map(|n| Notice::new(NoticeKind::EventsLost, format!("{n}"), ""));
        let mut text = Vec::new();
        print(&notices, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text, "  notice   1\n  notice   2\n  notice   3\n");
    }
}
