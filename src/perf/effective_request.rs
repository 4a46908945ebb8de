//! The ladder from what was asked for down to what the kernel grants.
//!
//! ```text
//! hardware cycles            -> cpu-clock
//! the machine, all code      -> the machine, user code only -> threads, all code -> threads, user code only
//! copies of the user stacks  -> the kernel's walk along the frame pointers
//! ```
//! Nothing tells beforehand what is refused: levels of perf_event_paranoid differ by distribution, and security modules
//! and sandboxes have rules of their own. So it is tried, on one CPU. (Smaller rings and shorter copies, the other rungs, are in
//! `session`.)

use rustix::io::Errno;

use super::call_graph::CallGraph;
use super::event::{Event, Role};
use super::open_error::{OpenEventError, paranoid};
use super::request::{Clock, SamplingRequest};
use crate::trace::Notice;

/// What must be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every process.
    SystemWide,
    /// Some processes that run, and their children. Watched one by one where the machine may not be.
    Processes,
    /// A command that this thread is going to start, and its children. Watched alone where the machine may not be.
    Command,
}

/// What is left of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EffectiveRequest {
    pub(super) request: SamplingRequest,
    /// Whether the whole machine is watched, not the threads of the target alone.
    pub(super) machine: bool,
    /// Whether code of the kernel is sampled.
    pub(super) kernel: bool,
}

const WITH_PRIVILEGE: &str = "run as root (sudo), or with the capability CAP_PERFMON";

impl EffectiveRequest {
    fn all(request: &SamplingRequest) -> Self {
        Self {
            request: *request,
            machine: true,
            kernel: true,
        }
    }

    /// Climbs down until the kernel agrees, and tells what was given up.
    pub(super) fn negotiate(
        request: &SamplingRequest,
        scope: Scope,
        cpus: &[u32],
    ) -> Result<(Self, Vec<Notice>), OpenEventError> {
        let mut grant = Self::all(request);
        let mut notices = Vec::new();
        let mut cpus = cpus.iter().copied();
        let mut cpu = cpus.next().unwrap_or(0);
        loop {
            let role = match grant.machine {
                true => Role::Sampler,
                false => Role::Children,
            };
            let Err(errno) = Event::open(&grant, role, cpu) else {
                notices.extend(grant.privilege_notices());
                return Ok((grant, notices));
            };
            if let (Errno::NODEV, Some(next)) = (errno, cpus.next()) {
                // It went offline just now.
                cpu = next;
                continue;
            }
            let refused = OpenEventError::of(&grant.request, errno, "this machine", cpu);
            if matches!(refused, OpenEventError::TooFast { .. }) {
                return Err(refused);
            }
            let Some((less, notice)) = grant.next_fallback(errno, scope) else {
                return Err(refused);
            };
            notices.extend(notice);
            grant = less;
        }
    }

    /// The next rung, if there is one that this answer of the kernel can be an answer to, and what it means where that
    /// is known already.
    fn next_fallback(self, errno: Errno, scope: Scope) -> Option<(Self, Option<Notice>)> {
        let mut less = self;
        match errno {
            Errno::ACCESS | Errno::PERM => {
                match (self.machine, self.kernel) {
                    (_, true) => less.kernel = false,
                    (true, false) if scope != Scope::SystemWide => {
                        (less.machine, less.kernel) = (false, true);
                    }
                    _ => return None,
                }
                Some((less, None))
            }
            Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP | Errno::INVAL
                if self.request.clock == Clock::Cycles =>
            {
                less.request.clock = Clock::CpuClock;
                let what = format!(
                    "sampled cpu-clock: hardware cycles are not available (perf_event_open: {errno})"
                );
                let remedy =
                    "virtual machines often have no performance counters; ask for a virtual PMU";
                Some((less, Some(Notice::new(what, remedy))))
            }
            Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS
                if self.request.call_graph.stack_bytes() > 0 =>
            {
                less.request.call_graph = CallGraph::FramePointers;
                let what = format!(
                    "stacks are walked by the kernel along the frame pointers, as it copies none (perf_event_open: \
                     {errno}): callers of code without frame pointers are missing"
                );
                let remedy = "build with -fno-omit-frame-pointer, or sample outside the sandbox";
                Some((less, Some(Notice::new(what, remedy))))
            }
            _ => None,
        }
    }

    /// What is missing for want of privilege.
    fn privilege_notices(&self) -> Vec<Notice> {
        let paranoid = paranoid();
        let mut notices = Vec::new();
        if !self.machine {
            notices.push(Notice::new(
                format!(
                    "watched the threads of the target one by one, not the whole machine (not permitted; \
                     kernel.perf_event_paranoid is {paranoid}): programs with more rights than the target that it \
                     starts, such as sudo, are missing"
                ),
                format!("{WITH_PRIVILEGE}, or set kernel.perf_event_paranoid to 0"),
            ));
        }
        if !self.kernel {
            notices.push(Notice::new(
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
        std::iter::successors(Some(first), |grant| {
            grant.next_fallback(errno, scope).map(|(less, _)| less)
        })
        .collect()
    }

    #[test]
    fn want_of_privilege_leads_down_to_user_code_of_threads() {
        let reach = |scope| {
            let rungs = fallbacks(Clock::CpuClock, scope, Errno::ACCESS);
            rungs
                .iter()
                .map(|grant| (grant.machine, grant.kernel))
                .collect::<Vec<_>>()
        };
        assert_eq!(reach(Scope::SystemWide), [(true, true), (true, false)]);
        let all = [(true, true), (true, false), (false, true), (false, false)];
        assert_eq!(reach(Scope::Processes), all);
        assert_eq!(reach(Scope::Command), all);
    }

    #[test]
    fn what_is_not_supported_is_given_up_one_by_one() {
        let left: Vec<_> = fallbacks(Clock::Cycles, Scope::SystemWide, Errno::OPNOTSUPP)
            .iter()
            .map(|grant| (grant.request.clock, grant.request.call_graph))
            .collect();
        let expected = [
            (Clock::Cycles, CallGraph::Auto),
            (Clock::CpuClock, CallGraph::Auto),
            (Clock::CpuClock, CallGraph::FramePointers),
        ];
        assert_eq!(left, expected);
        assert_eq!(
            fallbacks(Clock::CpuClock, Scope::SystemWide, Errno::MFILE).len(),
            1
        );
    }
}
