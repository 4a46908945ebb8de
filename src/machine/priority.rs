//! Priority of threads.

use rustix::process::setpriority_process;

/// Gives the calling thread the usual priority.
///
/// Threads that a capture starts have its high priority at first. Those that process data of others
/// must not keep it.
pub fn reset_thread_priority() {
    // To the kernel, the process 0 is the calling thread. Failure is harmless.
    let _ = setpriority_process(None, 0);
}
