//! System calls, and what a thread in one waits for.

use syscalls::Sysno;

/// Number of a clock call's argument that sleeps until an absolute time (`TIMER_ABSTIME`).
const TIMER_ABSTIME: u64 = 1;
/// Command of a futex call, without its flags (`<linux/futex.h>`).
const FUTEX_COMMAND: u64 = 0x7f;
const FUTEX_LOCK_PI: u64 = 6;
const FUTEX_LOCK_PI2: u64 = 13;

/// A system call and its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemCall {
    /// Number of the call on this architecture.
    pub number: u64,
    /// Arguments in the order of the registers.
    pub arguments: [u64; 6],
}

/// What a thread in a system call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// A word of memory that another thread changes.
    Futex {
        /// Address of the word.
        address: u64,
        /// Whether the word has the id of the owner.
        has_owner: bool,
        /// Whether the wait ends at a time.
        has_timeout: bool,
    },
    /// A file, by its descriptor.
    File(i32),
    /// One of several files: an array of `struct pollfd`.
    Files {
        /// Address of the array.
        array: u64,
        /// Number of its elements.
        count: u64,
    },
    /// A time: the address of a `struct timespec`, which is relative.
    Time(u64),
    /// A time that is not known.
    Until,
    /// The end of a child process.
    Child,
    /// A signal.
    Signal,
    /// Something else.
    Other,
}

impl SystemCall {
    /// One whose number is not known.
    pub const UNKNOWN: Self = Self {
        number: u64::MAX,
        arguments: [0; 6],
    };

    /// Returns the name of the call.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        let number = usize::try_from(self.number).ok()?;
        Some(Sysno::new(number)?.name())
    }

    /// Returns what a thread in this call waits for.
    #[must_use]
    pub fn resource(&self) -> Resource {
        let [first, second, third, fourth, fifth, _] = self.arguments;
        match self.name().unwrap_or_default() {
            "futex" => Resource::Futex {
                address: first,
                has_owner: matches!(second & FUTEX_COMMAND, FUTEX_LOCK_PI | FUTEX_LOCK_PI2),
                has_timeout: fourth != 0,
            },
            // Its timeout follows the flags.
            "futex_wait" => Resource::Futex {
                address: first,
                has_owner: false,
                has_timeout: fifth != 0,
            },
            "poll" | "ppoll" if second > 0 => Resource::Files {
                array: first,
                count: second,
            },
            "read" | "readv" | "pread64" | "preadv" | "preadv2" | "write" | "writev"
            | "pwrite64" | "pwritev" | "pwritev2" | "recvfrom" | "recvmsg" | "recvmmsg"
            | "sendto" | "sendmsg" | "sendmmsg" | "accept" | "accept4" | "connect"
            | "epoll_wait" | "epoll_pwait" | "epoll_pwait2" | "fsync" | "fdatasync"
            | "sync_file_range" | "syncfs" | "ftruncate" | "fallocate" | "flock" | "fcntl"
            | "ioctl" | "getdents64" | "sendfile" | "splice" | "copy_file_range"
            | "mq_timedreceive" | "mq_timedsend" | "io_uring_enter" | "fstat" | "close" => {
                // Descriptors are 32-bit values in 64-bit registers.
                Resource::File(first as i32)
            }
            "nanosleep" => Resource::Time(first),
            "clock_nanosleep" if second & TIMER_ABSTIME == 0 => Resource::Time(third),
            "clock_nanosleep" | "poll" | "ppoll" => Resource::Until,
            "wait4" | "waitid" | "vfork" | "clone" | "clone3" => Resource::Child,
            "pause" | "rt_sigsuspend" | "rt_sigtimedwait" => Resource::Signal,
            _ => Resource::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(name: Sysno, arguments: [u64; 3]) -> Resource {
        let [first, second, third] = arguments;
        let call = SystemCall {
            number: name.id() as u64,
            arguments: [first, second, third, 0, 0, 0],
        };
        assert_eq!(call.name(), Some(name.name()));
        call.resource()
    }

    #[test]
    fn finds_what_a_call_waits_for() {
        let futex = |has_owner| Resource::Futex {
            address: 16,
            has_owner,
            has_timeout: false,
        };
        for (call, arguments, expected) in [
            (Sysno::futex, [16, 0x189, 0], futex(false)),
            (Sysno::futex, [16, 0x86, 0], futex(true)),
            (
                Sysno::read,
                [0xffff_ffff_0000_0007, 0, 0],
                Resource::File(7),
            ),
            (Sysno::epoll_pwait, [5, 0, 0], Resource::File(5)),
            (
                Sysno::ppoll,
                [16, 2, 0],
                Resource::Files {
                    array: 16,
                    count: 2,
                },
            ),
            (Sysno::ppoll, [0, 0, 16], Resource::Until),
            (Sysno::clock_nanosleep, [1, 0, 16], Resource::Time(16)),
            (Sysno::clock_nanosleep, [1, 1, 16], Resource::Until),
            (Sysno::wait4, [1, 0, 0], Resource::Child),
            (Sysno::rt_sigtimedwait, [1, 0, 0], Resource::Signal),
            (Sysno::restart_syscall, [1, 0, 0], Resource::Other),
        ] {
            assert_eq!(resource(call, arguments), expected, "{call}");
        }
        let unknown = SystemCall::UNKNOWN;
        assert_eq!(
            (unknown.name(), unknown.resource()),
            (None, Resource::Other)
        );
    }
}
