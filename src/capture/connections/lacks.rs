//! What the connections of a capture lack.

use std::io;

use super::looker::reason;

pub(super) const RIGHTS: &str = "run as root with CAP_SYS_ADMIN and CAP_SYS_PTRACE";

/// What could not be read.
#[derive(Clone, Debug, Default)]
pub(super) struct Lacks {
    /// Why a network namespace is not followed.
    pub(super) error: Option<String>,
    /// Processes may not be read, so that their network namespace is not known.
    pub(super) unreadable: bool,
    pub(super) has_more_namespaces: bool,
    /// A list was not read to its end.
    pub(super) has_partial: bool,
    /// Not all descriptors were searched for sockets.
    pub(super) has_many_descriptors: bool,
    /// The kernel has dropped messages about sockets that ended.
    pub(super) has_lost_ends: bool,
    /// The last look took too long.
    pub(super) is_unfinished: bool,
}

impl Lacks {
    pub(super) fn fail(&mut self, error: &io::Error) {
        self.error.get_or_insert_with(|| reason(error));
    }

    /// Describes it, each with what to do.
    pub(super) fn described(&self) -> Vec<(String, &'static str)> {
        let mut lacks = Vec::new();
        if let Some(error) = &self.error {
            let what =
                format!("the connections of some network namespaces were not followed: {error}");
            lacks.push((what, RIGHTS));
        } else if self.unreadable {
            let what = "the connections of some network namespaces were not followed: the processes may not be read";
            lacks.push((what.to_owned(), RIGHTS));
        }
        for (is_true, what, remedy) in [
            (
                self.has_more_namespaces,
                "the connections are incomplete: there are more than 64 network namespaces",
                "name processes (-pid)",
            ),
            (
                self.has_partial,
                "the connections are incomplete: there are more than 100 000 sockets in a network namespace",
                "",
            ),
            (
                self.has_many_descriptors,
                "the connections are incomplete: there are too many descriptors to search them for sockets in time",
                "name processes (-pid)",
            ),
            (
                self.has_lost_ends,
                "the connections are incomplete: the kernel dropped messages about some that ended, as too many ended at once",
                "",
            ),
            (
                self.is_unfinished,
                "the connections are incomplete: the last look took too long, so what followed the look before is missing",
                "",
            ),
        ] {
            if is_true {
                lacks.push((what.to_owned(), remedy));
            }
        }
        lacks
    }
}
