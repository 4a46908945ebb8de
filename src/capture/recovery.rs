//! Recovery of a capture from the spool of a killed perfcollect.

use std::io::Read;

use super::notable::notable_losses;
use super::{Capture, End};
use crate::machine::{self, Content, Machine};
use crate::trace::spool::{Ending, SpoolError};
use crate::trace::{CaptureInfo, EventStreams, ModuleId, Notice, NoticeKind, RawTrace, Samples};

/// Maximum number of files listed in a notice.
const MAX_LISTED: usize = 5;

/// Reads a spool up to its last whole block, and finds the sources of symbols that still exist.
/// `samples` is an empty list to fill.
///
/// # Errors
/// Returns an error if the header of the spool cannot be read.
pub fn recover(spool: impl Read, samples: Samples) -> Result<Capture, SpoolError> {
    let raw_trace = RawTrace::read_into(samples, spool)?;
    let header = &raw_trace.header;
    let same_boot = header.boot_id == machine::boot_id();
    let machine = Machine::recover(&raw_trace, same_boot);
    let mut notices = vec![ending(&raw_trace)];
    notices.extend(header.notices.iter().cloned());
    notices.extend(notable_losses(&raw_trace.losses, &header.info, false));
    notices.extend(missing_files(&raw_trace, &machine));
    Ok(Capture {
        info: CaptureInfo {
            end_ns: raw_trace.end.0,
            end: match &*header.info.end {
                "" => End::Died.to_string(),
                end => end.to_owned(),
            },
            ..header.info.clone()
        },
        kernel_mismatch: (!same_boot).then(|| "the system was rebooted since".into()),
        kallsyms: None,
        machine,
        notices,
        end: End::Died,
        unwritten: Vec::new(),
        events: EventStreams::default(),
        raw_trace,
    })
}

fn ending(raw_trace: &RawTrace) -> Notice {
    let seconds = raw_trace
        .end
        .0
        .saturating_sub(raw_trace.header.info.start_ns) as f64
        / 1e9;
    let what = match &raw_trace.ending {
        Ending::Complete => "recovered from the spool of a capture that had ended".into(),
        Ending::Open => format!(
            "recovered from the spool of a capture that was killed: it contains the first {seconds:.1} s"
        ),
        Ending::Damaged { at, why } => format!(
            "recovered from the spool of a capture that was killed: it contains the first {seconds:.1} s, up to byte {at} \
             ({why})"
        ),
    };
    Notice::new(NoticeKind::Recovered, what, "")
}

/// Returns the notice about files that were not found again.
fn missing_files(raw_trace: &RawTrace, machine: &Machine) -> Option<Notice> {
    let missing: Vec<String> = (0..raw_trace.files.len())
        .filter_map(|row| {
            let file = machine.files().file(ModuleId(row as u32));
            match &file.content {
                Content::Unavailable(why) => {
                    Some(format!("{} ({why})", file.clean_path().display()))
                }
                _ => None,
            }
        })
        .collect();
    let (count, listed) = (missing.len(), missing.len().min(MAX_LISTED));
    let more = match count - listed {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (count > 0).then(|| {
        Notice::new(
            NoticeKind::FilesMissing,
            format!(
                "cannot symbolize functions of {count} files: {}{more}",
                missing[..listed].join(", ")
            ),
            "",
        )
        .counting(count)
    })
}
