//! Priority of threads.

use rustix::process::setpriority_process;

/// Niceness of threads that must run soon however busy the system is.
const HIGH: i32 = -19;

/// Gives the calling thread a high priority, if permitted.
pub fn raise_thread_priority() {
    set(HIGH);
}

/// Gives the calling thread the usual priority.
///
/// Threads that a capture starts may have its high priority at first. Those that process data of
/// others must not keep it.
pub fn reset_thread_priority() {
    set(0);
}

fn set(niceness: i32) {
    // To the kernel, the process 0 is the calling thread. Failure is harmless.
    let _ = setpriority_process(None, niceness);
}
