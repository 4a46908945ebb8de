//! A thread that analyzes code, beside the one that reads the ring buffers.
//!
//! There are two: other users' files do not delay those that are trusted. The thread drops its
//! capabilities: it reads files that are open already, and debug files of root or of their owner.

use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use perfcollect_symbols::elf::ElfFile;
use perfcollect_symbols::symbolizer::Symbolizer;
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::time::{ClockId, clock_gettime};

use super::call_frames::CallFrameRules;
use super::{Analysis, Finding, Row};
use crate::machine::{CodeFile, Content, drop_capabilities, reset_thread_priority};
use crate::trace::ModuleId;

/// Maximum memory of all analyses. The current one is kept even if it exceeds that.
const MAX_BYTES: usize = 64 << 20;
/// Maximum number of times that the code of a file is read, as others need the memory meanwhile.
const MAX_READS: u32 = 3;
/// Maximum number of instructions that wait for their analysis. The others are tried again.
const MAX_PENDING: usize = 1024;
/// Largest file that is analyzed with a high priority, and CPU time of that.
const MAX_URGENT_BYTES: u64 = 8 << 20;
const MAX_URGENT_TIME: Duration = Duration::from_millis(200);
/// Stack of the thread.
const STACK_BYTES: usize = 512 << 10;
/// An instruction of a file.
type Place = (ModuleId, u64);

struct Query {
    place: Place,
    file: Arc<CodeFile>,
}

/// What an analysis shows about an instruction, and the checked findings of code near it.
#[derive(Default)]
pub(in crate::unwind) struct Answer {
    pub(in crate::unwind) finding: Option<Finding>,
    pub(in crate::unwind) near: Vec<Row>,
}

/// How long queries wait for their answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::unwind) enum Waiting {
    /// As long as it takes.
    #[default]
    Unlimited,
    /// Shortly: ring buffers are read meanwhile.
    Capturing,
    /// Half a second together: the last records are read.
    Last,
    /// Five seconds together: nothing else waits.
    Snapshot,
}

/// Maximum time that one query waits while capturing.
const WAIT: Duration = Duration::from_millis(2);
/// The same for the first ones together.
const FIRST_WAITS: Duration = Duration::from_millis(50);
/// Part of the time that they may wait.
const WAITING_SHARE: u32 = 50;
/// The same for all at the end.
const LAST_WAITS: Duration = Duration::from_millis(500);
/// The same for a snapshot.
const SNAPSHOT_WAITS: Duration = Duration::from_secs(5);

/// Channels to and from the thread.
struct Thread {
    queries: Sender<Query>,
    answers: Receiver<(Place, Answer)>,
}

/// Queries the thread, which starts with the first query.
#[derive(Default)]
pub(in crate::unwind) struct Analyst {
    thread: Option<Thread>,
    /// Queries without an answer.
    pending: FxHashSet<Place>,
    /// Answers that came too late for their sample.
    answers: FxHashMap<Place, Answer>,
    waiting: Waiting,
    /// Searches debug files.
    symbolizer: Arc<Symbolizer>,
    #[cfg(test)]
    hides: bool,
    /// Start of the first wait, and the time of all.
    waited: Option<(Instant, Duration)>,
}

impl Analyst {
    /// Does not look for functions in the unwind information.
    #[cfg(test)]
    pub(in crate::unwind) fn hide_unwind_information(&mut self) {
        self.hides = true;
    }

    /// Changes where debug files are searched. Call before the first query.
    pub(in crate::unwind) fn set_symbolizer(&mut self, symbolizer: Arc<Symbolizer>) {
        self.symbolizer = symbolizer;
    }

    /// Changes how long queries wait.
    pub(in crate::unwind) fn set_waiting(&mut self, waiting: Waiting) {
        self.waiting = waiting;
        self.waited = None;
    }

    /// Returns what an analysis shows about an instruction, or `None` if there is no answer yet.
    pub(in crate::unwind) fn query(
        &mut self,
        place: Place,
        file: impl FnOnce() -> Arc<CodeFile>,
    ) -> Option<Answer> {
        if let Some(answer) = self.answers.remove(&place) {
            return Some(answer);
        }
        if self.thread.is_none() {
            #[cfg(not(test))]
            let uses_ranges = true;
            #[cfg(test)]
            let uses_ranges = !self.hides;
            self.thread = start(uses_ranges, self.symbolizer.clone());
        }
        let thread = self.thread.as_ref()?;
        if !self.pending.contains(&place) {
            if self.pending.len() >= MAX_PENDING {
                return None;
            }
            let file = file();
            thread.queries.send(Query { place, file }).ok()?;
            self.pending.insert(place);
        }
        self.wait_for(place)
    }

    fn wait_for(&mut self, place: Place) -> Option<Answer> {
        let start = Instant::now();
        let deadline = self.patience(start).map(|patience| start + patience);
        let mut found = None;
        loop {
            let answers = &self.thread.as_ref()?.answers;
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let answer = match left {
                Some(left) => answers.recv_timeout(left),
                None => answers.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let Ok((answered, answer)) = answer else {
                break;
            };
            self.pending.remove(&answered);
            if answered == place {
                found = Some(answer);
                break;
            }
            // Most belong to code that is not sampled again.
            if self.answers.len() >= MAX_PENDING {
                self.answers.clear();
            }
            self.answers.insert(answered, answer);
        }
        if let Some((_, waited)) = &mut self.waited {
            *waited += start.elapsed();
        }
        found
    }

    /// Returns how long a query may wait now. `None` has no limit.
    fn patience(&mut self, now: Instant) -> Option<Duration> {
        let (first, waited) = *self.waited.get_or_insert((now, Duration::ZERO));
        let (at_most, allowed) = match self.waiting {
            Waiting::Unlimited => return None,
            Waiting::Capturing => {
                let share = now.duration_since(first) / WAITING_SHARE;
                (WAIT, FIRST_WAITS + share)
            }
            Waiting::Last => (LAST_WAITS, LAST_WAITS),
            Waiting::Snapshot => (SNAPSHOT_WAITS, SNAPSHOT_WAITS),
        };
        Some(allowed.saturating_sub(waited).min(at_most))
    }
}

/// Returns whether an analysis may take long, or those before have.
///
/// Samples wait for the first answers, also on a busy machine: so the thread has at first the high
/// priority of the capture.
fn takes_long(file: &File) -> bool {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    let used = Duration::try_from(used).unwrap_or(Duration::MAX);
    let is_large = file
        .metadata()
        .is_ok_and(|file| file.len() > MAX_URGENT_BYTES);
    is_large || used > MAX_URGENT_TIME
}

fn start(uses_ranges: bool, symbolizer: Arc<Symbolizer>) -> Option<Thread> {
    let (queries, received) = channel::<Query>();
    let (sender, answers) = channel();
    thread::Builder::new()
        .name("code analysis".into())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            drop_capabilities();
            let mut analyses = Analyses {
                uses_ranges,
                symbolizer,
                ..Analyses::default()
            };
            let mut is_urgent = true;
            while let Ok(Query { place, file }) = received.recv() {
                if let Content::File(content) = &file.content
                    && is_urgent
                    && takes_long(content)
                {
                    reset_thread_priority();
                    is_urgent = false;
                }
                let answer = analyses.at(place, &file).unwrap_or_default();
                if sender.send((place, answer)).is_err() {
                    return;
                }
            }
        })
        .ok()?;
    Some(Thread { queries, answers })
}

/// The analyses of all files, within a memory budget.
#[derive(Default)]
struct Analyses {
    files: FxHashMap<ModuleId, Analyzed>,
    clock: u64,
    /// Whether unwind information is used.
    uses_ranges: bool,
    symbolizer: Arc<Symbolizer>,
}

/// What was read of a file. It is dropped when others need the memory, and read again.
struct Part<T> {
    content: Option<Box<T>>,
    reads: u32,
}

impl<T> Default for Part<T> {
    fn default() -> Self {
        Self {
            content: None,
            reads: 0,
        }
    }
}

impl<T> Part<T> {
    fn get(&mut self, read: impl FnOnce() -> Option<T>) -> Option<&mut T> {
        if self.content.is_none() && self.reads < MAX_READS {
            self.reads += 1;
            self.content = read().map(Box::new);
            if self.content.is_none() {
                self.reads = MAX_READS;
            }
        }
        self.content.as_deref_mut()
    }

    fn bytes(&self, bytes: impl FnOnce(&T) -> usize) -> usize {
        self.content.as_deref().map_or(0, bytes)
    }
}

#[derive(Default)]
struct Analyzed {
    call_frames: Part<CallFrameRules>,
    analysis: Part<Analysis>,
    /// Number of its last use.
    used: u64,
}

impl Analyzed {
    fn bytes(&self) -> usize {
        self.call_frames.bytes(CallFrameRules::bytes) + self.analysis.bytes(Analysis::bytes)
    }
}

fn analysis(file: &CodeFile, uses_ranges: bool) -> Option<Analysis> {
    let Content::File(content) = &file.content else {
        return None;
    };
    let elf = ElfFile::open_mapped(content.clone()).ok()?;
    let ranges = uses_ranges.then(|| elf.function_ranges().ok()).flatten();
    Analysis::new(&elf, ranges.as_ref())
}

impl Analyses {
    fn at(&mut self, (id, address): Place, file: &CodeFile) -> Option<Answer> {
        self.clock += 1;
        let analyzed = self.files.entry(id).or_default();
        analyzed.used = self.clock;
        let call_frames = match self.uses_ranges {
            true => analyzed
                .call_frames
                .get(|| CallFrameRules::read(file, &self.symbolizer)),
            false => None,
        };
        let near = call_frames.map_or_else(Vec::new, |rules| rules.near(address));
        let row = near
            .iter()
            .find(|row| (row.start..row.end).contains(&address));
        let answer = match row.map(|row| row.finding) {
            Some(finding) => Answer {
                finding: Some(finding),
                near,
            },
            None => {
                let read = || analysis(file, self.uses_ranges);
                let analysis = analyzed.analysis.get(read)?;
                Answer {
                    finding: analysis.at(address),
                    near: analysis.checked_near(address),
                }
            }
        };
        self.evict_except(id);
        Some(answer)
    }

    /// Drops the least recently used analyses, but never that of `current`.
    fn evict_except(&mut self, current: ModuleId) {
        let mut total: usize = self.files.values().map(Analyzed::bytes).sum();
        while total > MAX_BYTES {
            let others = self.files.iter_mut();
            let others = others.filter(|(id, file)| **id != current && file.bytes() > 0);
            let Some((_, oldest)) = others.min_by_key(|(_, file)| file.used) else {
                return;
            };
            total -= oldest.bytes();
            oldest.call_frames.content = None;
            oldest.analysis.content = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::trace::Pid;
    use crate::unwind::analysis::Certainty;
    use crate::unwind::rule::{Base, UnwindRule};
    use crate::unwind::test_elf::elf;

    const ID: ModuleId = ModuleId(0);
    /// An instruction after a `push` in the file of [`small_file`].
    const AFTER_PUSH: u64 = 0x141;

    fn file_of(bytes: &[u8]) -> Arc<CodeFile> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Arc::new(CodeFile {
            path: (*b"/program").into(),
            content: Content::File(file.into()),
            root: None,
            pid: Pid(0),
            container: None,
        })
    }

    /// Returns a file with a function that calls another one.
    fn small_file() -> Arc<CodeFile> {
        let mut bytes = elf(0);
        // Instructions start at their first byte only after code.
        bytes[0x80..0x140].fill(0x90);
        // call 0x140; ret
        bytes[0x100..0x106].copy_from_slice(&[0xe8, 0x3b, 0, 0, 0, 0xc3]);
        // push rbp; pop rbp; ret
        bytes[0x140..0x143].copy_from_slice(&[0x55, 0x5d, 0xc3]);
        file_of(&bytes)
    }

    fn checked_frame() -> Option<Finding> {
        let rule = UnwindRule::new(Base::Rsp, 16, Some(-16));
        rule.map(|rule| Finding::Caller(rule, Certainty::Checked))
    }

    #[test]
    fn answers_for_an_instruction_and_those_near() {
        let mut analyst = Analyst::default();
        let answer = analyst.query((ID, AFTER_PUSH), small_file).unwrap();
        assert_eq!(answer.finding, checked_frame());
        let starts: Vec<_> = answer.near.iter().map(|row| row.start).collect();
        assert_eq!(starts, [0x141, 0x140, 0x142]);
        assert!(analyst.pending.is_empty());
    }

    #[test]
    fn a_file_without_code_has_no_finding() {
        let mut analyst = Analyst::default();
        let answer = analyst.query((ID, 0x100), || file_of(b"no ELF file"));
        let answer = answer.unwrap();
        assert!(answer.finding.is_none() && answer.near.is_empty());
    }

    #[test]
    fn late_answers_are_kept_for_the_next_query() {
        let file = small_file();
        let start = Instant::now();
        let is_time_left = || start.elapsed() < Duration::from_secs(60);
        // On a busy machine, an analysis may end before the thread that asked for it goes on.
        let mut analyst = loop {
            let mut analyst = Analyst::default();
            analyst.set_waiting(Waiting::Capturing);
            // All of the time was used.
            analyst.waited = Some((Instant::now(), Duration::from_secs(3600)));
            let answer = analyst.query((ID, AFTER_PUSH), || file.clone());
            if answer.is_none() {
                break analyst;
            }
            assert!(is_time_left());
        };
        let mut answer = None;
        while answer.is_none() && is_time_left() {
            assert!(analyst.pending.contains(&(ID, AFTER_PUSH)));
            thread::sleep(Duration::from_millis(1));
            // Another query takes the answers that have come.
            let _ = analyst.query((ID, 0x100), || file.clone());
            answer = analyst.query((ID, AFTER_PUSH), || file.clone());
        }
        assert_eq!(answer.unwrap().finding, checked_frame());
    }

    #[test]
    fn pending_queries_are_limited() {
        let mut analyst = Analyst::default();
        analyst.set_waiting(Waiting::Capturing);
        analyst.waited = Some((Instant::now(), Duration::from_secs(3600)));
        analyst.pending = (0..MAX_PENDING as u64)
            .map(|at| (ModuleId(1), at))
            .collect();
        assert!(analyst.query((ID, AFTER_PUSH), small_file).is_none());
        assert!(!analyst.pending.contains(&(ID, AFTER_PUSH)));
    }

    #[test]
    fn waits_are_short_while_capturing() {
        let now = Instant::now();
        let mut analyst = Analyst::default();
        assert_eq!(analyst.patience(now), None);
        analyst.set_waiting(Waiting::Capturing);
        assert_eq!(analyst.patience(now), Some(WAIT));
        analyst.waited = Some((now, FIRST_WAITS));
        assert_eq!(analyst.patience(now), Some(Duration::ZERO));
        let later = now + WAIT * WAITING_SHARE / 2;
        assert_eq!(analyst.patience(later), Some(WAIT / 2));
        analyst.set_waiting(Waiting::Last);
        assert_eq!(analyst.patience(now), Some(LAST_WAITS));
        analyst.waited = Some((now, LAST_WAITS));
        assert_eq!(analyst.patience(later), Some(Duration::ZERO));
    }

    #[test]
    fn analyses_are_dropped_but_not_for_ever() {
        let mut analyses = Analyses::default();
        let file = small_file();
        for read in 1..=MAX_READS {
            let answer = analyses.at((ID, AFTER_PUSH), &file).unwrap();
            assert_eq!(answer.finding, checked_frame());
            assert_eq!(analyses.files[&ID].analysis.reads, read);
            analyses.files.get_mut(&ID).unwrap().analysis.content = None;
        }
        // It was read often enough.
        assert!(analyses.at((ID, AFTER_PUSH), &file).is_none());
    }
}
