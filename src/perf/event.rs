//! Perf event on a CPU (`perf_event_open`).

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as sys;
use rustix::io::Errno;

use super::layout::{Layout, ParseError};
use super::occurrence_events::Occurrence;
use super::request::EffectiveRequest;
use crate::ids::Tid;

/// Purpose of an event on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Reports mappings, names, forks and exits of all processes.
    ///
    /// It starts before the sampler, so that perfcollect can read the running processes from /proc
    /// meanwhile: no change is missed, and no sample waits.
    Tracker,
    /// Samples all processes, into the tracker's ring buffer.
    Sampler,
    /// Takes the place of the sampler while short stack copies suffice.
    ShortSampler,
    /// Samples processes that the current thread starts, from their exec on. Excludes perfcollect.
    Children,
    /// Samples a thread and everything that it starts.
    Thread(Tid),
    /// Samples occurrences of all processes at a period.
    Occurrences(Occurrence, u64),
    /// Counts occurrences of all processes.
    OccurrenceCounter(Occurrence),
    /// Samples occurrences of the processes of [`Role::Children`].
    OccurrencesOfChildren(Occurrence),
    /// Samples occurrences of a thread and everything that it starts.
    OccurrencesOfThread(Occurrence, Tid),
}

impl Role {
    /// Returns the attributes and the `pid` argument of the system call.
    fn attributes(self, effective: &EffectiveRequest) -> (sys::perf_event_attr, i32) {
        const ANY_THREAD: i32 = -1;
        const CURRENT_THREAD: i32 = 0;
        let request = &effective.request;
        let (mut attr, thread) = match self {
            Self::Tracker => (request.tracker(), ANY_THREAD),
            Self::Sampler => (request.sampler(), ANY_THREAD),
            Self::ShortSampler => (request.short_sampler(), ANY_THREAD),
            Self::Children => (request.inherited(), CURRENT_THREAD),
            Self::Thread(tid) => (request.inherited(), tid.0),
            Self::Occurrences(kind, period) => {
                (request.occurrence_sampler(kind, period), ANY_THREAD)
            }
            Self::OccurrenceCounter(kind) => (request.occurrence_counter(kind), ANY_THREAD),
            Self::OccurrencesOfChildren(kind) => {
                (request.inherited_occurrences(kind), CURRENT_THREAD)
            }
            Self::OccurrencesOfThread(kind, tid) => (request.inherited_occurrences(kind), tid.0),
        };
        let starts_at_exec = matches!(self, Self::Children | Self::OccurrencesOfChildren(_));
        attr.set_enable_on_exec(u64::from(starts_at_exec));
        attr.set_exclude_kernel(u64::from(!effective.kernel));
        attr.set_exclude_hv(u64::from(!effective.kernel));
        (attr, thread)
    }

    /// Returns the record layout of all events of a session.
    pub(super) fn layout(self, effective: &EffectiveRequest) -> Result<Layout, ParseError> {
        let (attr, _) = self.attributes(effective);
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
    /// Opens an event, disabled.
    pub(super) fn open(effective: &EffectiveRequest, role: Role, cpu: u32) -> Result<Self, Errno> {
        let (base, thread) = role.attributes(effective);
        match Self::counting_lost(base, thread, cpu) {
            // PERF_RECORD_KSYMBOL needs Linux 5.1.
            Err(Errno::INVAL) => {
                let mut attr = base;
                attr.set_ksymbol(0);
                Self::counting_lost(attr, thread, cpu)
            }
            opened => opened,
        }
    }

    /// Takes the file of an event that only counts.
    pub(super) fn counting(file: File) -> Self {
        Self {
            file,
            counts_lost: false,
        }
    }

    /// Opens an event of a thread, or of all (-1), on a CPU. It counts its lost records if the kernel can (Linux 6.0).
    pub(super) fn counting_lost(
        base: sys::perf_event_attr,
        thread: i32,
        cpu: u32,
    ) -> Result<Self, Errno> {
        for counts_lost in [true, false] {
            let mut attr = base;
            if counts_lost {
                attr.read_format |= u64::from(sys::PERF_FORMAT_LOST);
            }
            match open(&mut attr, thread, cpu as i32, None) {
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

    /// Reads the first three words of the event's `read_format`.
    pub(super) fn read_words(&self) -> Option<[u64; 3]> {
        let mut bytes = [0; 24];
        let read = (&self.file).read(&mut bytes).ok()?;
        let (words, _) = bytes.as_chunks::<8>();
        (read == bytes.len()).then(|| std::array::from_fn(|i| u64::from_le_bytes(words[i])))
    }

    /// Reads the event's value, its enabled time and the number of its lost records.
    fn counters(&self) -> Option<[u64; 3]> {
        let mut bytes = [0; 24];
        let read = (&self.file).read(&mut bytes).ok()?;
        let (words, _) = bytes.as_chunks::<8>();
        let expected = if self.counts_lost { 24 } else { 16 };
        (read >= expected).then(|| std::array::from_fn(|i| u64::from_le_bytes(words[i])))
    }

    /// Returns what the event has counted.
    pub(super) fn count(&self) -> Option<u64> {
        self.count_and_lost().map(|(count, _)| count)
    }

    /// Returns what the event has counted, and how many of its records the kernel has dropped, if it counts these.
    pub(super) fn count_and_lost(&self) -> Option<(u64, Option<u64>)> {
        let [count, _, lost] = self.counters()?;
        Some((count, self.counts_lost.then_some(lost)))
    }

    /// Returns how many records of this event the kernel has dropped, if the kernel counts them.
    pub(super) fn lost(&self) -> Option<u64> {
        self.count_and_lost()?.1
    }

    /// Returns the enabled time in nanoseconds, which stops growing when the CPU goes offline.
    pub(super) fn time_enabled(&self) -> Option<u64> {
        let [_, enabled, _] = self.counters()?;
        Some(enabled)
    }

    /// Returns the id that [`super::SampleRecord::event`] has for this event and events inherited
    /// from it.
    pub(super) fn id(&self) -> io::Result<u64> {
        let mut id = 0;
        // SAFETY: the descriptor is an open perf event, and `id` is valid for a write of 8 bytes.
        done(unsafe { perf::ioctls::ID(self.file.as_raw_fd(), &raw mut id) })?;
        Ok(id)
    }

    /// Enables or disables this event and the events inherited from it.
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

    /// Samples only those occurrences of a tracepoint that a filter lets pass, from now on for good.
    pub(super) fn set_filter(&self, filter: &CStr) -> io::Result<()> {
        let filter = filter.as_ptr().cast_mut();
        // SAFETY: `self.file` is an open perf event; the kernel only reads the string, which ends with 0.
        done(unsafe { perf::ioctls::SET_FILTER(self.file.as_raw_fd(), filter) })
    }

    /// Enables this event for a number of samples more than before, after which the kernel disables it.
    pub(super) fn allow(&self, samples: u32) -> io::Result<()> {
        // SAFETY: the descriptor is an open perf event; this ioctl takes no pointer.
        done(unsafe { perf::ioctls::REFRESH(self.file.as_raw_fd(), samples as i32) })
    }

    /// Redirects output to the ring buffer of another event of the same CPU.
    pub(super) fn write_to(&self, other: &Self) -> io::Result<()> {
        // SAFETY: both are open perf events; the ioctl takes no pointer.
        done(unsafe { perf::ioctls::SET_OUTPUT(self.file.as_raw_fd(), other.file.as_raw_fd()) })
    }

    /// The descriptor that the ring buffer is mapped from.
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

/// Opens an event of a thread (-1: any) on a CPU (-1: any), in the group of another event.
pub(super) fn open(
    attr: &mut sys::perf_event_attr,
    thread: i32,
    cpu: i32,
    group: Option<&Event>,
) -> Result<File, Errno> {
    let group = group.map_or(-1, |leader| leader.file.as_raw_fd());
    let flags = u64::from(sys::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: `attr` is a valid perf_event_attr of the size in its `size` field; the event only
    // writes to its own ring buffer.
    let fd = unsafe { perf::perf_event_open(attr, thread, cpu, group, flags) };
    if fd < 0 {
        let error = io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    // SAFETY: the kernel has just returned this descriptor, which has no other owner.
    Ok(unsafe { File::from_raw_fd(fd) })
}
