//! `perfcollect.log`: details of a capture for maintainers.

use std::fmt::Write as _;

use crate::output::ctf;
use crate::trace::Trace;

/// Formats the request, what the kernel granted, and all counters.
pub(super) fn text(request: &str, end: &str, spool_bytes: u64, trace: &Trace) -> String {
    let info = &trace.info;
    let seconds = info.end_ns.saturating_sub(info.start_ns) as f64 / 1e9;
    let mut log = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        log,
        "perfcollect {}\n{request}\nended: {end}\nspool: {spool_bytes} bytes, {:.0} per second, {:.1} per sample\n{info:#?}\n{:#?}\n",
        info.version,
        spool_bytes as f64 / seconds.max(1e-9),
        spool_bytes as f64 / trace.samples.len().max(1) as f64,
        trace.quality
    );
    for stream in trace.events.streams() {
        let _ = writeln!(
            log,
            "events of {}: {} bytes on the disk",
            stream.name, stream.counts.bytes
        );
        for (kind, count) in &stream.counts.by_kind {
            let known = match ctf::is_written(kind) {
                true => "",
                false => ", not in the CTF part",
            };
            let (provider, id, version) = (&kind.provider, kind.id, kind.version);
            let _ = writeln!(
                log,
                "  {count} {provider}/{id} v{version} {}{known}",
                kind.name
            );
        }
    }
    log
}
