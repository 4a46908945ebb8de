//! The limit of open files of perfcollect.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files to its maximum.
///
/// perfcollect keeps each file with code open until the end. A command that was started before
/// keeps the usual limit, which programs that use `select` rely on.
pub(crate) fn raise_open_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        let raised = Rlimit {
            current: maximum,
            maximum,
        };
        // If this fails, notices report the files that cannot be opened.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}
