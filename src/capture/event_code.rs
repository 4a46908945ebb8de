//! The code that runtime events refer to, looked up when the events arrive: addresses in stacks, and
//! modules.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, Write};
use std::time::Instant;

use rustc_hash::FxHashMap;

use super::stack_walker::StackWalker;
use crate::dotnet::StreamItem;
use crate::trace::spool::EventCodeRow;
use crate::trace::{FrameId, Nanos, Pid, ProcessId, Recorder};

/// Maximum time until the record of a new mapping arrives.
const MAX_WAIT_NS: u64 = 1_000_000_000;
/// Maximum number of addresses that wait to be looked up.
const MAX_WAITING: usize = 1 << 18;
/// Maximum number of known addresses. At the limit, all are dropped and looked up again.
const MAX_KNOWN: usize = 1 << 18;

/// Known addresses of a process. It chooses them, so their hashes have a random seed.
type KnownAddresses = HashMap<u64, Known>;

#[derive(Default)]
pub(super) struct EventCode {
    known: FxHashMap<ProcessId, KnownAddresses>,
    /// Number of addresses in `known`.
    known_count: usize,
    /// Time of the last lookup of all addresses that are not known any more.
    dropped: Nanos,
    waiting: VecDeque<Waiting>,
    /// Streams that have not ended.
    streams: FxHashMap<Pid, Stream>,
}

struct Stream {
    /// Row of its process.
    process: ProcessId,
    /// Paths of modules by id.
    modules: BTreeMap<u64, String>,
}

/// An address to look up: it is new, or its mapping was not known.
struct Waiting {
    process: (ProcessId, Pid),
    address: u64,
    since: Nanos,
}

struct Known {
    frame: FrameId,
    /// Time of the last lookup.
    looked_up: Nanos,
}

impl EventCode {
    /// Takes what the stream of a process refers to, `None` when it has ended. Lists the modules
    /// at its end.
    pub(super) fn take(
        &mut self,
        pid: Pid,
        item: Option<StreamItem>,
        now: Nanos,
        walker: &mut StackWalker,
    ) -> io::Result<()> {
        let Some(item) = item else {
            self.streams.remove(&pid);
            return Ok(());
        };
        let stream = self.streams.entry(pid).or_insert_with(|| Stream {
            process: walker.machine.ensure_process_row(pid),
            modules: BTreeMap::new(),
        });
        // The first item may precede the record of the program, and the last one follow its end.
        stream.process = walker.machine.row_of(pid).unwrap_or(stream.process);
        let process = (stream.process, pid);
        match item {
            StreamItem::Addresses(addresses) => {
                let room = MAX_WAITING - self.waiting.len();
                let addresses = addresses.into_iter().take(room);
                self.waiting.extend(addresses.map(|address| Waiting {
                    process,
                    address,
                    since: now,
                }));
                Ok(())
            }
            StreamItem::Modules(ids) => {
                for id in ids {
                    let path = walker.module_path(process, id, now);
                    stream.modules.extend(path.map(|path| (id, path)));
                }
                Ok(())
            }
            StreamItem::End(end) => {
                let modules = stream.modules.iter();
                end.add_modules(now, modules.map(|(id, path)| (*id, &**path)))
            }
        }
    }

    /// Forgets a process that has ended.
    pub(super) fn forget(&mut self, process: ProcessId) {
        let known = self.known.remove(&process);
        self.known_count -= known.map_or(0, |known| known.len());
    }

    /// Looks up the waiting addresses, at most until `deadline`: a target may send any number.
    pub(super) fn look_up_waiting<W: Write>(
        &mut self,
        now: Nanos,
        deadline: Instant,
        walker: &mut StackWalker,
        recorder: &mut Recorder<W>,
    ) {
        for _ in 0..self.waiting.len() {
            if Instant::now() >= deadline {
                break;
            }
            let Some(waiting) = self.waiting.pop_front() else {
                break;
            };
            let Waiting {
                process,
                address,
                since,
            } = waiting;
            let (row, pid) = process;
            // Another program has another row, and its own code at the address.
            let is_over = walker.machine.row_of(pid) != Some(row);
            let is_done = is_over || self.look_up(process, address, now, walker, recorder);
            if !is_done && now.0.saturating_sub(since.0) < MAX_WAIT_NS {
                self.waiting.push_back(waiting);
            }
        }
    }

    /// Looks up an address, and writes its row if the code is not the same as before. Returns
    /// whether code is mapped there.
    fn look_up<W: Write>(
        &mut self,
        (process, pid): (ProcessId, Pid),
        address: u64,
        now: Nanos,
        walker: &mut StackWalker,
        recorder: &mut Recorder<W>,
    ) -> bool {
        let Some(code) = walker.event_code((process, pid), address, now) else {
            return false;
        };
        if self.known_count >= MAX_KNOWN {
            self.known.clear();
            self.known_count = 0;
            self.dropped = now;
        }
        let addresses = self.known.entry(process).or_default();
        let known = addresses.get(&address);
        let row = EventCodeRow {
            process,
            address,
            since: known.map_or(self.dropped, |known| known.looked_up),
            frame: known.map_or(FrameId(u32::MAX), |known| known.frame),
        };
        let frame = recorder.sample_writer(walker).event_code(row, code);
        let looked_up = now;
        let known = addresses.insert(address, Known { frame, looked_up });
        self.known_count += usize::from(known.is_none());
        true
    }
}
