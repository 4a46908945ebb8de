//! Occurrences while nobody reads: the kernel takes a few samples and counts the rest.

use std::time::Duration;

use memmap2::{Advice, MmapMut};
use test_skip::Missing;

use super::{Occurrence, OccurrenceCount, PerfSession, SamplingRequest, Scope};
use crate::perf::CallGraph;

const FREQUENCY_HZ: u32 = 999;
const PAGES: usize = 4096;
const ROUNDS: usize = 20;

/// Causes a page fault for each page of new memory.
fn touch_new_memory() {
    let page_bytes = rustix::param::page_size();
    for _ in 0..ROUNDS {
        let mut memory = MmapMut::map_anon(PAGES * page_bytes).unwrap();
        memory.advise(Advice::NoHugePage).unwrap();
        memory
            .iter_mut()
            .step_by(page_bytes)
            .for_each(|byte| *byte = 1);
    }
}

/// Returns the counts of all CPUs, and how many samples a choice of the period allows these.
fn counts(session: &PerfSession) -> (OccurrenceCount, u64) {
    let mut sum = OccurrenceCount::default();
    for count in session.cpus.iter().flat_map(|cpu| &cpu.occurrences) {
        let count = count.count().unwrap();
        sum.all += count.all;
        sum.not_sampled += count.not_sampled;
        sum.sampled += count.sampled;
    }
    let request = &session.effective.request;
    let budget = u64::from(request.occurrence_budget(Occurrence::Fault));
    (sum, budget * session.cpus.len() as u64)
}

#[test]
fn the_kernel_takes_few_samples_for_a_reader_that_is_stopped() {
    let cpus = std::thread::available_parallelism().unwrap().get();
    let request = SamplingRequest::new(FREQUENCY_HZ, CallGraph::Auto, cpus).with_faults(cpus);
    let opened = PerfSession::open(&request, Scope::SystemWide).ok();
    let Some(mut session) = opened.filter(|session| session.effective.system_wide) else {
        return test_skip::skip(Missing::PerfEvents);
    };
    session.start_tracking().unwrap();
    session.start_sampling().unwrap();
    touch_new_memory();
    let (first, budget) = counts(&session);
    assert!(first.all >= (PAGES * ROUNDS) as u64, "{first:?}");
    // The shortest period is the first.
    let period = 31;
    assert!(
        first.sampled <= budget * period,
        "{first:?}, {budget} samples"
    );
    assert!(first.not_sampled * 2 > first.all, "{first:?}");

    // A choice of the period allows some more, and a longer period.
    std::thread::sleep(Duration::from_millis(50));
    session.drain(|_, _| std::ops::ControlFlow::Continue(()));
    touch_new_memory();
    let (second, _) = counts(&session);
    assert!(second.sampled > first.sampled, "{second:?}");
    session.stop().unwrap();
    session.drain_all(|_, _| {});
    let notices = session.notices();
    let notice = notices
        .iter()
        .find(|notice| notice.subject == "page-faults");
    assert!(notice.unwrap().what.contains("are missing"), "{notices:?}");
}
