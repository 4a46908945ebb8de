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

#[derive(Default)]
pub(super) struct EventCode {
    /// Known addresses. A target chooses them, so their hashes have a random seed.
    known: HashMap<(ProcessId, u64), Known>,
    /// Time of the last lookup of all addresses that are not known any more.
    dropped: Nanos,
    waiting: VecDeque<Waiting>,
    /// Paths of modules, by process and id.
    modules: FxHashMap<Pid, BTreeMap<u64, String>>,
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
    /// Takes what the stream of a process refers to. Lists the modules at its end.
    pub(super) fn take(
        &mut self,
        pid: Pid,
        item: StreamItem,
        now: Nanos,
        walker: &mut StackWalker,
    ) -> io::Result<()> {
        let process = (walker.machine.ensure_process_row(pid), pid);
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
                let paths = self.modules.entry(pid).or_default();
                for id in ids {
                    let path = walker.module_path(process, id, now);
                    paths.extend(path.map(|path| (id, path)));
                }
                Ok(())
            }
            StreamItem::End(end) => {
                let paths = self.modules.remove(&pid).unwrap_or_default();
                end.add_modules(now, paths.iter().map(|(id, path)| (*id, &**path)))
            }
        }
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
            let is_found = self.look_up(process, address, now, walker, recorder);
            if !is_found && now.0.saturating_sub(since.0) < MAX_WAIT_NS {
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
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
            self.dropped = now;
        }
        let known = self.known.get(&(process, address));
        let row = EventCodeRow {
            process,
            address,
            since: known.map_or(self.dropped, |known| known.looked_up),
            frame: known.map_or(FrameId(u32::MAX), |known| known.frame),
        };
        let frame = recorder.sample_writer(walker).event_code(row, code);
        let looked_up = now;
        let known = Known { frame, looked_up };
        self.known.insert((process, address), known);
        true
    }
}
