//! Unwind rules for JIT code of runtimes that describe none, from its instructions.
//!
//! A function ends with an epilogue: the code that follows an instruction shows how far the stack
//! pointer is from the return address. The code is read from the process when it is first sampled; in
//! a recording, from the jitdump, which may have unwind information, too.
//! Java is the main case: compiled methods use rbp as any other register.
//!
//! A lookup is done by the thread that reads the ring buffers, as the code is there only while the
//! process keeps it. It is bounded: up to 50 KiB of code are read, and 448 instructions decoded. Of
//! a Java program, on a machine with a load of 9, half of 600 lookups of new addresses took up to
//! 40 µs, one in a hundred more than 140 µs; later ones, which only compare the code, 2 µs. Together
//! they took less than 1 % of a CPU, and [`OwnerTime`] limits those of one user. Another thread
//! would not save that: to send it an address and to sleep until the answer takes 24 to 35 µs of
//! the sender's CPU time, and the sample and all that follow would wait in the ring buffers.

mod cache;
mod calls;
mod code;
mod exit;
mod processes;
mod prologue;
mod recorded;
mod scan;

use std::time::{Duration, Instant};

use cache::{Cache, Entry};
use code::Code;
use processes::{OpenProcess, Processes};
use recorded::RecordedCode;

use super::analysis::Certainty;
use super::managed::SampledProcess;
use super::owner_time::{Account, Bound, OwnerTime};
use super::rule::UnwindRule;
use crate::dotnet::Memory;
use crate::trace::ProcessId;

/// Bound of the time for the code of users who have no other bound.
const OF_TRUSTED: Bound = Bound {
    at_once: Duration::from_millis(100),
    one_in: 10,
};

/// What is known about an address in JIT code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct JitFrame {
    /// Rule of a frame at the address.
    pub(super) rule: Option<(UnwindRule, Certainty)>,
    /// Whether a function may return to the address.
    pub(super) is_return: bool,
}

/// Reads JIT code and caches what it shows.
#[derive(Default)]
pub(super) struct JitCode {
    cache: Cache,
    processes: Processes,
    recorded: RecordedCode,
    /// Time that the code of users without another bound took.
    taken: Account,
}

impl JitCode {
    /// Returns what is known about an address. Returns `None` if its code cannot be read.
    pub(super) fn at(
        &mut self,
        process: &SampledProcess<'_>,
        address: u64,
        time: &mut OwnerTime,
    ) -> Option<JitFrame> {
        let key = (process.process, address);
        let cached = self.cache.get(key);
        // The processes of a recording have ended, and their pids may be reused.
        if process.files.recorded().is_some() {
            let known = |signature| {
                let same = cached.filter(|entry| entry.signature == signature);
                same.map(|entry| entry.frame)
            };
            let (frame, signature) = self.recorded.at(process, address, known)?;
            let entry = Entry {
                frame,
                signature,
                epoch: process.epoch,
            };
            self.cache.insert(key, entry);
            return Some(frame);
        }
        if let Some(entry) = cached.filter(|entry| entry.epoch.holds(process.epoch)) {
            return Some(entry.frame);
        }
        let known = cached.map(|entry| entry.frame);
        let start = Instant::now();
        let Some(OpenProcess { memory, owner, .. }) = self.processes.memory(process) else {
            return known;
        };
        let is_over = match owner {
            Some(_) => time.is_over(*owner),
            None => self.taken.is_over(OF_TRUSTED, start),
        };
        if is_over {
            return known;
        }
        let signature = code::signature(memory, process.maps, address);
        let frame = signature.map(|signature| {
            let same = cached.filter(|entry| entry.signature == signature);
            let frame = match same {
                Some(entry) => entry.frame,
                None => frame(&mut Code::new(memory, process.maps), address),
            };
            let entry = Entry {
                frame,
                signature,
                epoch: process.epoch,
            };
            self.cache.insert(key, entry);
            frame
        });
        match owner {
            Some(owner) => time.add(*owner, start.elapsed()),
            None => self.taken.add(start.elapsed()),
        }
        if frame.is_none() {
            // The process may have ended, or run another program now.
            self.processes.reopen(process);
        }
        frame.or(known)
    }

    /// Forgets a process that has ended.
    pub(super) fn forget(&mut self, process: ProcessId) {
        self.processes.forget(process);
        self.recorded.forget(process);
    }
}

/// Returns what the code at an address shows.
fn frame<M: Memory>(code: &mut Code<'_, M>, address: u64) -> JitFrame {
    let scanned = scan::rule(code, address);
    let rule = match scanned {
        Some(rule) if !prologue::is_possible(rule) => Some((rule, Certainty::Likely)),
        _ => {
            let mut lengths = prologue::LENGTHS.iter();
            let stored = lengths.find_map(|bytes| prologue::rule(&code.before(address, *bytes)));
            let is_same = scanned.is_some() && scanned == stored;
            let certainty = match is_same {
                true => Certainty::Checked,
                false => Certainty::Likely,
            };
            scanned.or(stored).map(|rule| (rule, certainty))
        }
    };
    JitFrame {
        rule,
        is_return: calls::is_return(code, address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Backing, FileTable, Maps};
    use crate::trace::{Nanos, Pid};
    use crate::unwind::Epoch;
    use crate::unwind::rule::Base;

    /// The memory of this process serves as JIT code.
    #[test]
    fn notices_replaced_code_in_the_next_epoch() {
        let mut bytes = vec![0x90_u8; 8192];
        let page = (bytes.as_ptr() as u64).next_multiple_of(4096);
        let at = (page - bytes.as_ptr() as u64) as usize + 8;
        let maps = Maps::of_pages(&[(page, Backing::Jit)]);
        let files: FileTable = [].into_iter().collect();
        let mut jit = JitCode::default();
        let mut time = OwnerTime::bounded();
        let mut rule_in = |epoch: u64| {
            let time_ns = Nanos(epoch * 1_000_000_000);
            let process = SampledProcess {
                process: ProcessId(0),
                pid: Pid(std::process::id() as i32),
                time: time_ns,
                epoch: Epoch::of(time_ns),
                maps: &maps,
                files: &files,
                is_preview: false,
            };
            let frame = jit.at(&process, page + 8, &mut time).unwrap();
            frame.rule.map(|(rule, _)| rule)
        };
        // pop rbp; ret
        bytes[at..at + 2].copy_from_slice(&[0x5d, 0xc3]);
        let framed = UnwindRule::new(Base::Rsp, 16, Some(-16));
        assert_eq!(rule_in(1), framed);
        bytes[at] = 0x90;
        assert_eq!(rule_in(1), framed);
        assert_eq!(rule_in(2), Some(UnwindRule::RETURN));
        assert_eq!(rule_in(2), Some(UnwindRule::RETURN));
    }
}
