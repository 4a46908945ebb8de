//! Capabilities of single threads.

use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

/// Drops all capabilities of this thread, for good, if it may.
///
/// It keeps what is open. Files of root stay accessible to user 0 by their modes.
pub fn drop_capabilities() {
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    // Less privileges are a precaution. The thread works with more, too.
    let _ = set_capabilities(None, none);
}
