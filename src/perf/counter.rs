//! Counting events: they have no ring buffer, and cost nothing but the counter.

use std::io;

use perf_event_open_sys::bindings as sys;
use rustix::io::Errno;

use super::event::{Event, open};
use crate::ids::Tid;
use crate::trace::CounterEvent;

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterScope {
    /// Everything that runs on a CPU.
    Cpu(u32),
    /// A thread, and everything that it starts.
    Thread(Tid),
    /// Everything that the current thread starts, from its exec on.
    Children,
}

/// An open counter, disabled at first.
pub struct Counter {
    event: Event,
    /// Whether kernel code is not counted.
    pub user_code_only: bool,
}

/// Content of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterValue {
    /// Number of events while the counter ran.
    pub count: u64,
    /// Time for which the event was enabled, in nanoseconds.
    pub enabled_ns: u64,
    /// Time for which a counter of the CPU counted it, in nanoseconds.
    pub running_ns: u64,
}

impl CounterValue {
    /// Adds the content of another counter of the same event.
    pub fn add(&mut self, other: Self) {
        let Self {
            count,
            enabled_ns,
            running_ns,
        } = other;
        self.count = self.count.saturating_add(count);
        self.enabled_ns = self.enabled_ns.saturating_add(enabled_ns);
        self.running_ns = self.running_ns.saturating_add(running_ns);
    }

    /// Returns the number of events in all of the enabled time, or `None` if nothing was counted in it.
    #[must_use]
    pub fn extrapolated(self) -> Option<u64> {
        match (self.enabled_ns, self.running_ns) {
            // A thread that has not run since.
            (0, _) => Some(self.count),
            (_, 0) => None,
            (enabled, running) if running >= enabled => Some(self.count),
            (enabled, running) => {
                let all = u128::from(self.count) * u128::from(enabled) / u128::from(running);
                Some(all.try_into().unwrap_or(u64::MAX))
            }
        }
    }

    /// Returns the counted part of the enabled time, in percent.
    #[must_use]
    pub fn counted_percent(self) -> f64 {
        match self.enabled_ns {
            0 => 100.0,
            enabled => (self.running_ns as f64 * 100.0 / enabled as f64).min(100.0),
        }
    }
}

impl Counter {
    /// Opens a counter. With `beside`, the CPU counts both at the same times, if it can.
    ///
    /// # Errors
    /// Returns the error of the kernel: ENOENT if the machine has no such counter.
    pub fn open(
        counted: CounterEvent,
        scope: CounterScope,
        beside: Option<&Self>,
    ) -> Result<Self, Errno> {
        let mut refused = Errno::INVAL;
        for user_code_only in [false, true] {
            let groups = [beside.map(|other| &other.event), None];
            for group in &groups[usize::from(beside.is_none())..] {
                let mut attr = attributes(counted, scope).ok_or(Errno::NOENT)?;
                attr.set_exclude_kernel(user_code_only.into());
                attr.set_exclude_hv(user_code_only.into());
                // A member of a group starts with the group.
                attr.set_disabled(group.is_none().into());
                attr.set_enable_on_exec(
                    (group.is_none() && scope == CounterScope::Children).into(),
                );
                let (thread, cpu) = match scope {
                    CounterScope::Cpu(cpu) => (-1, cpu as i32),
                    CounterScope::Thread(tid) => (tid.0, -1),
                    CounterScope::Children => (0, -1),
                };
                match open(&mut attr, thread, cpu, *group) {
                    Ok(file) => {
                        let event = Event::counting(file);
                        return Ok(Self {
                            event,
                            user_code_only,
                        });
                    }
                    Err(errno) => refused = errno,
                }
            }
            let may_be_permitted = matches!(refused, Errno::ACCESS | Errno::PERM);
            // Switches and moves are of the kernel.
            if !may_be_permitted || !has_user_part(counted) {
                break;
            }
        }
        Err(refused)
    }

    /// Starts counting. Counters that were opened beside this one start with it.
    ///
    /// # Errors
    /// Returns the error of the kernel.
    pub fn start(&self) -> io::Result<()> {
        self.event.set_enabled(true)
    }

    /// Reads the counter, with those of all threads that inherited it.
    #[must_use]
    pub fn read(&self) -> Option<CounterValue> {
        let [count, enabled_ns, running_ns] = self.event.read_words()?;
        Some(CounterValue {
            count,
            enabled_ns,
            running_ns,
        })
    }
}

fn has_user_part(counted: CounterEvent) -> bool {
    !matches!(
        counted,
        CounterEvent::ContextSwitches | CounterEvent::CpuMigrations
    )
}

fn attributes(counted: CounterEvent, scope: CounterScope) -> Option<sys::perf_event_attr> {
    use CounterEvent as E;
    let (type_, config) = match counted {
        E::Cycles => (sys::PERF_TYPE_HARDWARE, sys::PERF_COUNT_HW_CPU_CYCLES),
        E::Instructions => (sys::PERF_TYPE_HARDWARE, sys::PERF_COUNT_HW_INSTRUCTIONS),
        E::Branches => (
            sys::PERF_TYPE_HARDWARE,
            sys::PERF_COUNT_HW_BRANCH_INSTRUCTIONS,
        ),
        E::BranchMisses => (sys::PERF_TYPE_HARDWARE, sys::PERF_COUNT_HW_BRANCH_MISSES),
        E::CacheReferences => (sys::PERF_TYPE_HARDWARE, sys::PERF_COUNT_HW_CACHE_REFERENCES),
        E::CacheMisses => (sys::PERF_TYPE_HARDWARE, sys::PERF_COUNT_HW_CACHE_MISSES),
        E::MinorFaults => (sys::PERF_TYPE_SOFTWARE, sys::PERF_COUNT_SW_PAGE_FAULTS_MIN),
        E::MajorFaults => (sys::PERF_TYPE_SOFTWARE, sys::PERF_COUNT_SW_PAGE_FAULTS_MAJ),
        E::ContextSwitches => (sys::PERF_TYPE_SOFTWARE, sys::PERF_COUNT_SW_CONTEXT_SWITCHES),
        E::CpuMigrations => (sys::PERF_TYPE_SOFTWARE, sys::PERF_COUNT_SW_CPU_MIGRATIONS),
        E::Unknown => return None,
    };
    let mut attr = sys::perf_event_attr {
        type_,
        config: config.into(),
        size: size_of::<sys::perf_event_attr>() as u32,
        read_format: u64::from(
            sys::PERF_FORMAT_TOTAL_TIME_ENABLED | sys::PERF_FORMAT_TOTAL_TIME_RUNNING,
        ),
        ..Default::default()
    };
    attr.set_inherit((!matches!(scope, CounterScope::Cpu(_))).into());
    Some(attr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extrapolates_to_the_time_in_which_it_was_not_counted() {
        let value = |count, enabled_ns, running_ns| CounterValue {
            count,
            enabled_ns,
            running_ns,
        };
        assert_eq!(value(7, 0, 0).extrapolated(), Some(7));
        assert_eq!(value(7, 10, 10).extrapolated(), Some(7));
        assert_eq!(value(300, 100, 75).extrapolated(), Some(400));
        assert_eq!(value(0, 100, 0).extrapolated(), None);
        assert_eq!(value(u64::MAX, u64::MAX, 1).extrapolated(), Some(u64::MAX));
        assert_eq!(value(300, 100, 75).counted_percent(), 75.0);
        let mut sum = value(1, 50, 50);
        sum.add(value(1, 50, 0));
        assert_eq!(sum.extrapolated(), Some(4));
    }

    #[test]
    fn counts_the_page_faults_of_the_current_thread() {
        let thread = CounterScope::Thread(Tid(rustix::thread::gettid().as_raw_nonzero().get()));
        let Ok(counter) = Counter::open(CounterEvent::MinorFaults, thread, None) else {
            // Refused here; `tests/counters.rs` reports that as a skipped test.
            return;
        };
        counter.start().unwrap();
        const PAGES: usize = 500;
        let mut memory = memmap2::MmapMut::map_anon(PAGES * rustix::param::page_size()).unwrap();
        let pages = memory.chunks_mut(rustix::param::page_size());
        pages.for_each(|page| page[0] = 1);
        let value = counter.read().unwrap();
        // Huge pages need fewer faults.
        assert!((1..=PAGES as u64 + 100).contains(&value.count), "{value:?}");
        assert_eq!(value.enabled_ns, value.running_ns);
    }
}
