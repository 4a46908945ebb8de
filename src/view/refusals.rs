//! Why a table is empty or lacks something although the capture was asked for it: the notice that reports that.

use super::ReportKind;
use crate::output::sanitize::terminal;
use crate::output::summary::Summary;
use crate::trace::NoticeKind;

/// Returns the notice of a trace about what a table would show, with its remedy.
pub(super) fn of(summary: &Summary, kind: ReportKind) -> Option<String> {
    let (notice_kind, subject) = match kind {
        ReportKind::Blocked | ReportKind::ThreadTime => (NoticeKind::NoThreadTime, None),
        ReportKind::Requests | ReportKind::Network => (NoticeKind::EventsMissing, None),
        ReportKind::Io => (NoticeKind::CountersMissing, Some("block-io")),
        ReportKind::Faults => (NoticeKind::CountersMissing, Some("page-faults")),
        ReportKind::Wakeups => (NoticeKind::CountersMissing, Some("wake-ups")),
        _ => return None,
    };
    let mut notices = summary.quality.notices.iter();
    let notice = notices.find(|notice| {
        notice.kind == notice_kind && subject.is_none_or(|subject| notice.subject == subject)
    })?;
    let parts = [&*notice.what, &*notice.remedy];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    Some(terminal(&parts.join("; ")).into_owned())
}
