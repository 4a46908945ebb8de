//! Notices about the losses of a capture.

use crate::trace::{CaptureInfo, Losses, Nanos, Notice, NoticeKind};

/// Returns the warnings about large losses.
///
/// `is_imported` means that perf recorded the samples: the remedies then name options of perf.
pub(super) fn notable_losses(
    losses: &Losses,
    info: &CaptureInfo,
    is_imported: bool,
) -> Vec<Notice> {
    let [full_rings, throttled] = match is_imported {
        true => [
            "record with a lower `perf record -F` or a larger `-m`",
            "record with a lower `perf record -F`, or raise kernel.perf_event_max_sample_rate",
        ],
        false => [
            "use a lower -freq or a larger -buffersize",
            "use a lower -freq, or raise kernel.perf_event_max_sample_rate",
        ],
    };
    let mut notices = Vec::new();
    let range = |range: Option<(Nanos, Nanos)>| {
        let seconds = |time: Nanos| time.0.saturating_sub(info.start_ns) as f64 / 1e9;
        range.map_or_else(String::new, |(first, last)| {
            format!(" from +{:.1} s to +{:.1} s", seconds(first), seconds(last))
        })
    };
    if losses.misses_processes() && info.system_wide {
        notices.push(Notice::new(
NoticeKind::OutsidePidNamespace,
            format!(
                "{} of {} samples belong to processes outside this pid namespace and were left out",
                losses.unattributed, losses.samples_seen
            ),
            "run on the host, or in a container with --pid=host",
        )
        .counting(losses.unattributed));
    }
    if losses.is_notable() {
        let incomplete = match losses.is_incomplete() {
            true => ": the trace is incomplete",
            false => "",
        };
        notices.push(
            Notice::new(
                NoticeKind::RecordsLost,
                format!(
                    "the kernel dropped {} of {} records{}{incomplete}",
                    losses.lost(),
                    losses.lost().saturating_add(losses.samples_seen),
                    range(losses.range())
                ),
                full_rings,
            )
            .counting(losses.lost()),
        );
    }
    if losses.pauses.times() > 0 {
        notices.push(Notice::new(
NoticeKind::Throttled,
            format!(
                "the kernel throttled sampling {} times{}: {:.2} s of CPU time over all CPUs are missing",
                losses.pauses.times(),
                range(losses.pauses.range()),
                losses.pauses.paused_ns() as f64 / 1e9
            ),
            throttled,
        )
        .counting(losses.pauses.times()));
    }
    notices
}
