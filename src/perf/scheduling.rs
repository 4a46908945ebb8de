//! Scheduling of the thread that reads the ring buffers.

use std::io;

/// Lets the calling thread run before all threads without real-time priority, similar to `perf record
/// --realtime` (`SCHED_RR`). Threads that it starts have the usual scheduling.
///
/// A niceness counts only among the threads of one control group or session: on a machine with
/// hundreds of busy ones, a thread would wait for seconds.
///
/// # Errors
/// The right is missing (`CAP_SYS_NICE`), the control group has no real-time share, or the user has
/// chosen another policy than the usual one.
pub fn run_first() -> io::Result<()> {
    // SAFETY: the call has no pointers.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    if policy & !i64::from(libc::SCHED_RESET_ON_FORK) != i64::from(libc::SCHED_OTHER) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    schedule(libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, 1)
}

/// Gives the calling thread the usual scheduling.
pub fn run_as_usual() {
    // This needs no right if the flag stays set, and so cannot fail.
    let _ = schedule(libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK, 0);
}

/// Calls the system call: in musl, the function always fails.
fn schedule(policy: i32, priority: i32) -> io::Result<()> {
    // SAFETY: `sched_param` of the kernel is this one integer, which the call only reads.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
