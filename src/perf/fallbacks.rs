//! Fallbacks from the requested sampling to the sampling that the kernel permits.
//!
//! ```text
//! hardware cycles       -> cpu-clock
//! system-wide, all code -> system-wide, user code -> threads, all code -> threads, user code
//! user stack copies     -> the kernel's callchain, unwound by frame pointer
//! ```
//! perfcollect cannot query in advance what the kernel refuses: the levels of perf_event_paranoid
//! differ by distribution, and security modules and sandboxes have additional rules. It therefore
//! tries each request on one CPU. The module `session` has the other fallbacks, smaller ring
//! buffers and shorter stack copies.

use rustix::io::Errno;

use super::call_graph::CallGraph;
use super::event::{Event, Role};
use super::occurrence_events::{Occurrence, OccurrenceEvents};
use super::open_error::{OpenEventError, paranoid};
use super::request::{Clock, EffectiveRequest, SamplingRequest};
use crate::trace::{MORE_DESCRIPTORS, Notice, NoticeKind};

/// Processes that must be sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All processes.
    SystemWide,
    /// Some running processes and their children. Falls back to per-thread events.
    Processes,
    /// A command that the current thread will start. Falls back to events that it inherits.
    Command,
}

const WITH_PRIVILEGE: &str = "run as root (sudo), or with the capability CAP_PERFMON";

impl EffectiveRequest {
    fn all(request: &SamplingRequest) -> Self {
        Self {
            request: *request,
            system_wide: true,
            kernel: true,
        }
    }

    /// Applies fallbacks until the kernel accepts the request. Returns a notice for each.
    pub(super) fn negotiate(
        request: &SamplingRequest,
        scope: Scope,
        cpus: &[u32],
    ) -> Result<(Self, Vec<Notice>), OpenEventError> {
        let mut effective = Self::all(request);
        let mut notices = Vec::new();
        let mut cpus = cpus.iter().copied();
        let mut cpu = cpus.next().unwrap_or(0);
        loop {
            let role = match effective.system_wide {
                true => Role::Sampler,
                false => Role::Children,
            };
            let Err(errno) = Event::open(&effective, role, cpu) else {
                notices.extend(effective.privilege_notices());
                let lacking = Occurrence::ALL.into_iter();
                notices.extend(lacking.filter_map(|kind| effective.without(kind, cpu)));
                return Ok((effective, notices));
            };
            if let (Errno::NODEV, Some(next)) = (errno, cpus.next()) {
                // The CPU has just gone offline.
                cpu = next;
                continue;
            }
            let error =
                OpenEventError::from_errno(&effective.request, errno, "the whole system", cpu);
            if matches!(error, OpenEventError::TooFast { .. }) {
                return Err(error);
            }
            let Some((fallback, notice)) = effective.next_fallback(errno, scope) else {
                return Err(error);
            };
            notices.extend(notice);
            effective = fallback;
        }
    }

    /// Returns the next fallback that may avoid this error of the kernel.
    ///
    /// The fallback has a notice, except for missing privileges: [`Self::privilege_notices`]
    /// reports these once, after the last fallback.
    fn next_fallback(self, errno: Errno, scope: Scope) -> Option<(Self, Option<Notice>)> {
        let mut fallback = self;
        match errno {
            Errno::ACCESS | Errno::PERM => {
                match (self.system_wide, self.kernel) {
                    (_, true) => fallback.kernel = false,
                    (true, false) if scope != Scope::SystemWide => {
                        (fallback.system_wide, fallback.kernel) = (false, true);
                    }
                    _ => return None,
                }
                Some((fallback, None))
            }
            Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP | Errno::INVAL
                if self.request.clock == Clock::Cycles =>
            {
                fallback.request.clock = Clock::CpuClock;
                let what = format!(
                    "sampled cpu-clock: hardware cycles are not available (perf_event_open: {errno})"
                );
                let remedy =
                    "virtual machines often have no performance counters: enable a virtual PMU";
                Some((
                    fallback,
                    Some(Notice::new(NoticeKind::NoHardwareCycles, what, remedy)),
                ))
            }
            Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS
                if self.request.call_graph.stack_bytes() > 0 =>
            {
                fallback.request.call_graph = CallGraph::FramePointers;
                let what = format!(
                    "unwound user stacks by frame pointer: the kernel does not copy stacks (perf_event_open: {errno}); \
                     callers of code without frame pointers are missing"
                );
                let remedy = "build with -fno-omit-frame-pointer, or sample outside the sandbox";
                Some((
                    fallback,
                    Some(Notice::new(NoticeKind::NoStackCopies, what, remedy)),
                ))
            }
            _ => None,
        }
    }

    /// Does not sample occurrences that the kernel refuses to sample. Returns a notice about it.
    fn without(&mut self, kind: Occurrence, cpu: u32) -> Option<Notice> {
        if !self.request.samples(kind) {
            return None;
        }
        let why = match OccurrenceEvents::roles(self, kind).first() {
            // The event of another user's thread, or in the kernel, may be the one that wakes.
            _ if kind == Occurrence::Wakeup && !(self.system_wide && self.kernel) => {
                "only with the kernel's code of the whole system".to_owned()
            }
            Some((role, _)) => {
                let errno = Event::open(self, *role, cpu).err()?;
                format!("perf_event_open: {errno}")
            }
            None => return None,
        };
        Some(self.omit(kind, &why, WITH_PRIVILEGE))
    }

    /// Samples no occurrences, as no more files can be opened. Returns notices about that.
    pub(super) fn without_occurrences(&mut self, errno: Errno) -> Vec<Notice> {
        let kinds = self.request.kinds();
        let why = format!("perf_event_open: {errno}");
        let notices = kinds
            .into_iter()
            .map(|kind| self.omit(kind, &why, MORE_DESCRIPTORS));
        notices.collect()
    }

    fn omit(&mut self, kind: Occurrence, why: &str, remedy: &str) -> Notice {
        self.request.omit(kind);
        let what = match kind {
            Occurrence::Fault => format!("page faults were not sampled ({why})"),
            Occurrence::Wakeup => format!("wake-ups were not sampled: {why}"),
        };
        Notice::new(NoticeKind::CountersMissing, what, remedy).about(kind.name())
    }

    /// Returns a notice for each limitation that missing privileges cause.
    fn privilege_notices(&self) -> Vec<Notice> {
        let paranoid = paranoid();
        let mut notices = Vec::new();
        if !self.system_wide {
            notices.push(Notice::new(
NoticeKind::NotSystemWide,
                format!(
                    "sampled the target's threads instead of the whole system (not permitted; \
                     kernel.perf_event_paranoid is {paranoid}): children with more privileges than the target, such \
                     as sudo, are missing, and so is much of the CPU time of threads that live for milliseconds"
                ),
                format!("{WITH_PRIVILEGE}, or set kernel.perf_event_paranoid to 0"),
            ));
        }
        if !self.kernel {
            notices.push(Notice::new(
NoticeKind::UserCodeOnly,
                format!(
                    "sampled user code only (not permitted to sample the kernel; kernel.perf_event_paranoid is \
                     {paranoid}): CPU time in the kernel is missing"
                ),
                format!("{WITH_PRIVILEGE}, or set kernel.perf_event_paranoid to 1"),
            ));
        }
        notices
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fallbacks(clock: Clock, scope: Scope, errno: Errno) -> Vec<EffectiveRequest> {
        let mut request = SamplingRequest::new(999, CallGraph::Auto, 1);
        request.clock = clock;
        let first = EffectiveRequest::all(&request);
        std::iter::successors(Some(first), |effective| {
            let next = effective.next_fallback(errno, scope);
            next.map(|(fallback, _)| fallback)
        })
        .collect()
    }

    #[test]
    fn missing_privileges_fall_back_to_user_code_of_threads() {
        let after_denial = |scope| {
            fallbacks(Clock::CpuClock, scope, Errno::ACCESS)
                .iter()
                .map(|effective| (effective.system_wide, effective.kernel))
                .collect::<Vec<_>>()
        };
        let system_wide = [(true, true), (true, false)];
        assert_eq!(after_denial(Scope::SystemWide), system_wide);
        let all = [(true, true), (true, false), (false, true), (false, false)];
        assert_eq!(after_denial(Scope::Processes), all);
        assert_eq!(after_denial(Scope::Command), all);
    }

    #[test]
    fn falls_back_from_each_unsupported_feature() {
        let requests: Vec<_> = fallbacks(Clock::Cycles, Scope::SystemWide, Errno::OPNOTSUPP)
            .iter()
            .map(|effective| (effective.request.clock, effective.request.call_graph))
            .collect();
        let expected = [
            (Clock::Cycles, CallGraph::Auto),
            (Clock::CpuClock, CallGraph::Auto),
            (Clock::CpuClock, CallGraph::FramePointers),
        ];
        assert_eq!(requests, expected);
        assert_eq!(
            fallbacks(Clock::CpuClock, Scope::SystemWide, Errno::MFILE).len(),
            1
        );
    }
}
