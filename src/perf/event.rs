//! perf_event_open: an event on a CPU.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as sys;
use rustix::io::Errno;

use super::effective_request::EffectiveRequest;
use super::layout::{Layout, ParseError};
use crate::ids::Tid;

/// Which event of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Tells what happens to the processes of the machine. It runs first, so that those that are there already can be
    /// read while nothing is missed and no sample waits.
    Tracker,
    /// Takes samples of the machine, into the tracker's ring.
    Sampler,
    /// Follows what this thread of the collector starts, from its exec on, and not the collector itself.
    Children,
    /// Follows a thread and all it starts.
    Thread(Tid),
}

impl Role {
    /// The attributes, and the thread as the system call takes it.
    fn attributes(self, grant: &EffectiveRequest) -> (sys::perf_event_attr, i32) {
        const EVERYBODY: i32 = -1;
        const MYSELF: i32 = 0;
        let request = &grant.request;
        let (mut attr, thread) = match self {
            Self::Tracker => (request.tracker(), EVERYBODY),
            Self::Sampler => (request.sampler(), EVERYBODY),
            Self::Children => (request.inherited(), MYSELF),
            Self::Thread(tid) => (request.inherited(), tid.0),
        };
        attr.set_enable_on_exec(u64::from(self == Self::Children));
        attr.set_exclude_kernel(u64::from(!grant.kernel));
        attr.set_exclude_hv(u64::from(!grant.kernel));
        (attr, thread)
    }

    /// How to read the records of all events of a session.
    pub(super) fn layout(self, grant: &EffectiveRequest) -> Result<Layout, ParseError> {
        let (attr, _) = self.attributes(grant);
        Layout::new(attr.sample_type, attr.sample_regs_user)
    }
}

/// An event on one CPU.
pub(super) struct Event {
    file: File,
    /// Whether the kernel counts what it drops (Linux 6.0).
    counts_lost: bool,
}

impl Event {
    /// Opens an event, not yet counting.
    pub(super) fn open(grant: &EffectiveRequest, role: Role, cpu: u32) -> Result<Self, Errno> {
        let (wanted, thread) = role.attributes(grant);
        // Linux before 6.0 knows no count of what was lost, before 5.1 no records of the kernel's own code.
        for (counts_lost, tells_code) in [(true, true), (false, true), (false, false)] {
            let mut attr = wanted;
            if counts_lost {
                attr.read_format |= u64::from(sys::PERF_FORMAT_LOST);
            }
            if !tells_code {
                attr.set_ksymbol(0);
            }
            match open(&mut attr, thread, cpu) {
                Err(Errno::INVAL) => {}
                opened => {
                    return Ok(Self {
                        file: opened?,
                        counts_lost,
                    });
                }
            }
        }
        Err(Errno::INVAL)
    }

    /// The kernel's counters, as `read` gives them: the event's value, the time it was enabled, what was lost of it.
    fn counters(&self) -> Option<[u64; 3]> {
        let mut bytes = [0; 24];
        let read = (&self.file).read(&mut bytes).ok()?;
        let (words, _) = bytes.as_chunks::<8>();
        let wanted = if self.counts_lost { 24 } else { 16 };
        (read >= wanted).then(|| std::array::from_fn(|i| u64::from_le_bytes(words[i])))
    }

    /// Records of this event the kernel has dropped so far, if it counts them.
    pub(super) fn lost(&self) -> Option<u64> {
        let [.., lost] = self.counters()?;
        self.counts_lost.then_some(lost)
    }

    /// For how long it has been at work, in nanoseconds. Does not grow once its CPU was offline.
    pub(super) fn time_enabled(&self) -> Option<u64> {
        let [_, enabled, _] = self.counters()?;
        Some(enabled)
    }

    /// What samples of this event, and of those inherited from it, have as [`super::SampleRecord::event`].
    pub(super) fn id(&self) -> io::Result<u64> {
        let mut id = 0;
        // SAFETY: the descriptor is an open perf event, and `id` lives while the kernel writes its 8 bytes.
        done(unsafe { perf::ioctls::ID(self.file.as_raw_fd(), &raw mut id) })?;
        Ok(id)
    }

    /// Starts or stops counting, also in what was inherited from it.
    pub(super) fn set_enabled(&self, enabled: bool) -> io::Result<()> {
        let fd = self.file.as_raw_fd();
        // SAFETY: `fd` is an open perf event; these ioctls take no pointer.
        done(unsafe {
            if enabled {
                perf::ioctls::ENABLE(fd, 0)
            } else {
                perf::ioctls::DISABLE(fd, 0)
            }
        })
    }

    /// Writes to the ring of another event of the same CPU.
    pub(super) fn write_to(&self, other: &Self) -> io::Result<()> {
        // SAFETY: both are open perf events; the ioctl takes no pointer.
        done(unsafe { perf::ioctls::SET_OUTPUT(self.file.as_raw_fd(), other.file.as_raw_fd()) })
    }

    /// The descriptor, to map its ring.
    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

fn done(result: i32) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn open(attr: &mut sys::perf_event_attr, thread: i32, cpu: u32) -> Result<File, Errno> {
    let flags = u64::from(sys::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: `attr` is a valid perf_event_attr of the size it states; the event only writes to its own ring.
    let fd = unsafe { perf::perf_event_open(attr, thread, cpu as i32, -1, flags) };
    if fd < 0 {
        let error = io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    // SAFETY: the kernel has just handed out this descriptor, nobody else owns it.
    Ok(unsafe { File::from_raw_fd(fd) })
}
