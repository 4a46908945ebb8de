//! Records the bytes of the ring buffers while a command runs.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::{PerfSession, SamplingRequest};
use crate::perf::merge::RecordSource;
use crate::perf::record::Record;
use crate::perf::recorded::corpus;
use crate::perf::{CallGraph, Clock, Scope};

/// A prime, so that the samples do not fall in step with other periodic events.
const FREQUENCY_HZ: u32 = 3989;
const STACK_BYTES: u32 = 1024;
/// Room for a few dozen samples, so that samples are lost during the pause.
const RING_BYTES: usize = 64 << 10;
const ROUND: Duration = Duration::from_millis(2);
/// Time range without draining, relative to the start of the command.
const PAUSE: std::ops::Range<Duration> = Duration::from_millis(20)..Duration::from_millis(80);

/// Runs a program to its end and returns its records by CPU.
///
/// The records include all losses, but nothing of other processes. Pids count from
/// [`corpus::FIRST_PID`], and the program's path is replaced.
pub(crate) fn record(program: &Path) -> Vec<Vec<u8>> {
    let request = SamplingRequest {
        frequency_hz: FREQUENCY_HZ,
        call_graph: CallGraph::StackCopy { bytes: STACK_BYTES },
        stack_limit: STACK_BYTES,
        ring_bytes: RING_BYTES,
        clock: Clock::CpuClock,
        faults: false,
        wakeups: None,
    };
    let mut session = PerfSession::open(&request, Scope::SystemWide).unwrap();
    session.start_tracking().unwrap();
    session.start_sampling().unwrap();
    let mut rings = vec![Vec::new(); session.cpus()];
    let start = Instant::now();
    let mut child = Command::new(program).env_clear().spawn().unwrap();
    let pid = child.id() as i32;
    while child.try_wait().unwrap().is_none() {
        std::thread::sleep(ROUND);
        if !PAUSE.contains(&start.elapsed()) {
            drain_into(&mut session, &mut rings);
        }
    }
    session.stop().unwrap();
    drain_into(&mut session, &mut rings);
    let layout = *session.rings.layout();
    let all = rings.iter().flat_map(|ring| corpus::records(ring));
    let ids = portable_ids(pid, all.map(|record| layout.parse(record).unwrap()));
    let portable_ring = |ring: &Vec<u8>| {
        let of_program = corpus::records(ring).filter(|record| {
            let process = match layout.parse(record).unwrap() {
                Record::Sample(sample) => Some(sample.pid),
                record => record.process(),
            };
            process.is_none_or(|pid| ids.contains_key(&pid.0))
        });
        let mut portable = Vec::new();
        for record in of_program {
            let mut record = corpus::portable(record, program.as_os_str().as_bytes());
            corpus::map_ids(&mut record, |id| ids.get(&id).copied().unwrap_or(0));
            portable.extend(record);
        }
        portable
    };
    rings.iter().map(portable_ring).collect()
}

fn drain_into(session: &mut PerfSession, rings: &mut [Vec<u8>]) {
    for (ring, bytes) in session.rings.each_mut().zip(rings) {
        ring.refresh();
        while let Some(record) = ring.peek() {
            bytes.extend_from_slice(record);
            ring.advance();
        }
    }
}

/// Returns the ids of all descendants of a process, mapped to new ids.
///
/// Fork records may be in any order.
fn portable_ids<'a>(first: i32, records: impl Iterator<Item = Record<'a>>) -> BTreeMap<i32, i32> {
    let mut forks: Vec<_> = records
        .filter_map(|record| match record {
            Record::Fork {
                pid,
                tid,
                parent_pid,
                ..
            } => Some((parent_pid.0, pid.0, tid.0)),
            _ => None,
        })
        .collect();
    let mut ids = BTreeMap::from([(first, corpus::FIRST_PID)]);
    while let Some(at) = forks
        .iter()
        .position(|(parent, ..)| ids.contains_key(parent))
    {
        let (_, pid, tid) = forks.swap_remove(at);
        for id in [pid, tid] {
            let new = corpus::FIRST_PID + ids.len() as i32;
            ids.entry(id).or_insert(new);
        }
    }
    ids
}
