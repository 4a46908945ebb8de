//! What the system lets this process have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets this process open as many files as it may: each file with code is held open until the end. A command that was
/// started before keeps the usual limit, which programs that use `select` rely on.
pub(super) fn raise_open_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        let raised = Rlimit {
            current: maximum,
            maximum,
        };
        // Refused: then files that cannot be opened are told of.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}
