//! The resource limits of perfcollect.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::machine::ENOUGH_OPEN_FILES;

/// Raises the limits of open files and of the address space as far as possible.
///
/// With `CAP_SYS_RESOURCE`, the limit of open files is at least [`ENOUGH_OPEN_FILES`].
///
/// perfcollect keeps each file with code open until the end. A command that was started before
/// keeps the usual limits, which programs that use `select` rely on.
pub(crate) fn raise_limits() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let enough = maximum.map(|maximum| maximum.max(ENOUGH_OPEN_FILES));
    // If this fails, notices report the files that cannot be opened.
    if !set(Resource::Nofile, enough) {
        set(Resource::Nofile, maximum);
    }
    if !set(Resource::As, None) {
        set(Resource::As, getrlimit(Resource::As).maximum);
    }
}

/// Sets both limits of a resource; `None` is unlimited. Returns whether they are so now.
fn set(resource: Resource, limit: Option<u64>) -> bool {
    let wanted = Rlimit {
        current: limit,
        maximum: limit,
    };
    getrlimit(resource) == wanted || setrlimit(resource, wanted).is_ok()
}

/// Returns the limit of the address space in bytes (`ulimit -v`), if there is one.
#[must_use]
pub fn address_space_limit() -> Option<u64> {
    getrlimit(Resource::As).current
}
