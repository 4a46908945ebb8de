//! Keeps the bytes of the rings while a command runs.

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

/// Not divided by the rates of others, so that its samples fall in step with none.
const FREQUENCY_HZ: u32 = 3989;
const STACK_BYTES: u32 = 1024;
/// A few dozen samples: what is not drained for a while is lost.
const RING_BYTES: usize = 64 << 10;
const ROUND: Duration = Duration::from_millis(2);
/// Nobody drains from here to there, counted from the start of the command.
const PAUSE: std::ops::Range<Duration> = Duration::from_millis(20)..Duration::from_millis(80);

/// Runs a program to its end and gives the records that tell of it, by CPU: everything that was lost, but nothing of
/// other processes, pids counted from [`corpus::FIRST_PID`], and no path of the program.
pub(crate) fn record(program: &Path) -> Vec<Vec<u8>> {
    let request = SamplingRequest {
        frequency_hz: FREQUENCY_HZ,
        call_graph: CallGraph::StackCopy { bytes: STACK_BYTES },
        stack_limit: STACK_BYTES,
        ring_bytes: RING_BYTES,
        clock: Clock::CpuClock,
    };
    let mut session = PerfSession::open(&request, Scope::SystemWide).unwrap();
    session.start_tracking().unwrap();
    session.start_sampling().unwrap();
    let mut rings = vec![Vec::new(); session.cpus()];
    let begin = Instant::now();
    let mut child = Command::new(program).env_clear().spawn().unwrap();
    let pid = child.id() as i32;
    while child.try_wait().unwrap().is_none() {
        std::thread::sleep(ROUND);
        if !PAUSE.contains(&begin.elapsed()) {
            take(&mut session, &mut rings);
        }
    }
    session.stop().unwrap();
    take(&mut session, &mut rings);
    let layout = *session.rings.layout();
    let all = rings.iter().flat_map(|ring| corpus::records(ring));
    let ids = ids_of(pid, all.map(|record| layout.parse(record).unwrap()));
    let keep = |ring: &Vec<u8>| {
        let ours = corpus::records(ring).filter(|record| {
            let process = match layout.parse(record).unwrap() {
                Record::Sample(sample) => Some(sample.pid),
                record => record.process(),
            };
            process.is_none_or(|pid| ids.contains_key(&pid.0))
        });
        let mut kept = Vec::new();
        for record in ours {
            let mut record = corpus::kept(record, program.as_os_str().as_bytes());
            corpus::map_ids(&mut record, |id| ids.get(&id).copied().unwrap_or(0));
            kept.extend(record);
        }
        kept
    };
    rings.iter().map(keep).collect()
}

fn take(session: &mut PerfSession, rings: &mut [Vec<u8>]) {
    for (ring, bytes) in session.rings.each_mut().zip(rings) {
        ring.refresh();
        while let Some(record) = ring.peek() {
            bytes.extend_from_slice(record);
            ring.advance();
        }
    }
}

/// The processes and threads that descend from one, and their new ids. Forks may come in any order.
fn ids_of<'a>(first: i32, records: impl Iterator<Item = Record<'a>>) -> BTreeMap<i32, i32> {
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
