//! A mapping that appears.

use perfcollect_symbols::process::MapsLine;

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
