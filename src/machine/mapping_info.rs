//! A mapping that appears, and its contents.

use std::io;
use std::sync::Arc;

use perfcollect_symbols::process::{MapsLine, VDSO, open_mapped_file, vdso_image};

use super::content::Content;
use crate::trace::Pid;

/// Mapping from a record or from /proc/PID/maps.
pub(super) struct MappingInfo<'a> {
    pub(super) pid: Pid,
    pub(super) line: MapsLine<'a>,
    /// Build id from the record; empty if it has none.
    pub(super) build_id: &'a [u8],
}

impl<'a> MappingInfo<'a> {
    pub(super) fn of(pid: Pid, line: MapsLine<'a>) -> Self {
        Self {
            pid,
            line,
            build_id: &[],
        }
    }
}

/// Opens the content of a mapping: its file or the vDSO.
pub(super) fn open(info: &MappingInfo<'_>) -> io::Result<Content> {
    match info.line.path {
        VDSO => vdso_image().map(Content::Vdso),
        _ => open_mapped_file(info.pid.0, &info.line).map(|file| Content::File(Arc::new(file))),
    }
}
