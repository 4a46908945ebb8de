//! A block of the text, put together from what stands in it already: a stack that was there a moment ago, else the callers it shares
//! with one that was, else lines, else names.
//!
//! # Where stacks are found
//!
//! A text that is found is not noted again at its new place before the old one is [`AGE`] bytes away; then it is, with all its
//! callers. So a stack's callers are never noted further away than it is, and are in reach when any of their callees is.

use super::super::deflate::Draft;
use super::Block;
use super::escaped_names::{EscapedNames, MAX_FRAMES};
use super::markers;
use crate::bytes::put_digits;
use crate::trace::{FrameId, FunctionId, Nanos, Sample, StackId};

const SECOND_NS: u64 = 1_000_000_000;

/// How far back a stack is taken from before its new place is noted.
const AGE: usize = 2 << 10;

/// Stands for the callers of a stack that has more than [`MAX_FRAMES`].
const CUT_FRAME: &[u8] = b"\t0 {truncated} (perfcollect)\n";

/// A block on the way, kept for the next one.
pub(super) struct TextBlock {
    pub(super) draft: Draft,
    stacks: Occurrences,
    frames: Occurrences,
    functions: Occurrences,
    threads: Occurrences,
    /// Where the last sample tells its time, and the last line that ends one.
    last_moment: usize,
    last_end: usize,
    line: Vec<u8>,
}

impl TextBlock {
    pub(super) fn new(names: &EscapedNames<'_>) -> Self {
        let trace = names.trace;
        Self {
            draft: Draft::default(),
            stacks: Occurrences::new(trace.stacks.len()),
            frames: Occurrences::new(trace.frames.len()),
            functions: Occurrences::new(trace.functions.len()),
            threads: Occurrences::new(trace.threads.len()),
            last_moment: usize::MAX,
            last_end: usize::MAX,
            line: Vec::new(),
        }
    }

    /// Puts together an empty block.
    pub(super) fn fill(&mut self, names: &EscapedNames<'_>, block: &Block) {
        for (cpu, sample) in (block.first_cpu..).zip(&block.samples) {
            self.sample(names, sample, cpu);
            let end = sample.time.0.saturating_add(sample.weight.0);
            self.end(Nanos(end), cpu);
        }
        let len = self.draft.len();
        let Self {
            stacks,
            frames,
            functions,
            threads,
            ..
        } = self;
        for places in [stacks, frames, functions, threads] {
            places.turn(len);
        }
        (self.last_moment, self.last_end) = (usize::MAX, usize::MAX);
    }

    /// Ends the sample on a CPU.
    fn end(&mut self, time: Nanos, cpu: usize) {
        let Self { draft, line, .. } = self;
        line.clear();
        line.extend_from_slice(markers::END.as_bytes());
        put_moment(cpu, time, line);
        line.extend_from_slice(markers::END_EVENT.as_bytes());
        line.push(b'\n');
        let place = draft.len();
        put_like(draft, line, self.last_end);
        self.last_end = place;
    }

    fn sample(&mut self, names: &EscapedNames<'_>, sample: &Sample, cpu: usize) {
        let Self { draft, line, .. } = self;
        let thread = names.thread(sample.thread);
        let known = self.threads.replace(sample.thread.index(), draft.len());
        let known = known.filter(|&place| draft.reaches(place));
        match known {
            Some(place) => draft.repeat(place, thread.len()),
            None => draft.put(thread),
        }
        line.clear();
        put_moment(cpu, sample.time, line);
        put_digits::<10>(line, sample.weight.0, 1, b'0');
        line.push(b' ');
        line.extend_from_slice(names.event.as_bytes());
        let place = draft.len();
        let like = known.map_or(self.last_moment, |known| known + thread.len());
        put_like(draft, line, like);
        self.last_moment = place;
        match names.stack(sample.stack).lines {
            0 => self.no_stack(),
            1..MAX_FRAMES => self.stack(names, sample.stack),
            _ => self.cut_stack(names, sample.stack),
        }
    }

    fn stack(&mut self, names: &EscapedNames<'_>, stack: StackId) {
        let mut next = stack;
        while let Some((caller, frame)) = names.trace.stacks.node(next) {
            let here = self.draft.len();
            if let Some(place) = self.stacks.get(next.index())
                && self.draft.reaches(place)
            {
                // The empty line is behind it, as a stack goes to its root.
                let len = names.stack(next).bytes as usize;
                self.draft.repeat(place, len + 1);
                if here - place > AGE {
                    self.note(names, next, here);
                }
                return;
            }
            self.stacks.replace(next.index(), here);
            self.frame(names, frame);
            next = caller;
        }
        self.draft.put(b"\n");
    }

    /// Notes that a stack stands at this place.
    fn note(&mut self, names: &EscapedNames<'_>, stack: StackId, mut place: usize) {
        let begin = place;
        let mut next = stack;
        while let Some((caller, frame)) = names.trace.stacks.node(next) {
            let last = self.stacks.replace(next.index(), place);
            if last.is_some_and(|last| last + AGE > begin) {
                return;
            }
            self.frames.replace(frame.index(), place);
            place += names.frame(frame).bytes as usize;
            next = caller;
        }
    }

    /// Some readers drop a sample that has no frame.
    fn no_stack(&mut self) {
        self.draft.put(b"\t");
        self.draft.put(markers::NO_STACK.as_bytes());
        self.draft.put(b"\n\n");
    }

    /// A stack that has too many lines.
    fn cut_stack(&mut self, names: &EscapedNames<'_>, stack: StackId) {
        let mut lines = 0;
        for frame in names.trace.stacks.leaf_first(stack) {
            let more = names.frame(frame).lines;
            if lines + more < MAX_FRAMES {
                lines += more;
                self.frame(names, frame);
                continue;
            }
            let functions = names.trace.functions_leaf_first(frame);
            for function in functions.take((MAX_FRAMES - 1 - lines) as usize) {
                self.function(names, frame, function);
            }
            break;
        }
        self.draft.put(CUT_FRAME);
        self.draft.put(b"\n");
    }

    fn frame(&mut self, names: &EscapedNames<'_>, frame: FrameId) {
        let here = self.draft.len();
        let known = self.frames.replace(frame.index(), here);
        if let Some(place) = known
            && self.draft.reaches(place)
        {
            self.draft.repeat(place, names.frame(frame).bytes as usize);
            return;
        }
        for function in names.trace.functions_leaf_first(frame) {
            self.function(names, frame, function);
        }
    }

    fn function(&mut self, names: &EscapedNames<'_>, frame: FrameId, function: FunctionId) {
        let Self { draft, line, .. } = self;
        line.clear();
        let name = names.line(frame, function, line);
        let here = draft.len() + line.len();
        let known = self.functions.replace(function.index(), here);
        // Where its line begins, if the address there is as long.
        let known = known.and_then(|place| Some((place, place.checked_sub(line.len())?)));
        match known {
            Some((place, begin)) if draft.reaches(begin) => {
                draft.put_like(line, begin);
                draft.repeat(place, name.len());
            }
            _ => {
                line.extend_from_slice(name);
                draft.put_text(line);
            }
        }
    }
}

fn put_like(draft: &mut Draft, line: &[u8], place: usize) {
    match draft.reaches(place) {
        true => draft.put_like(line, place),
        false => draft.put(line),
    }
}

/// `[001] 4321.987654321: `: a time as perf prints it, to the nanosecond.
pub(super) fn put_moment(cpu: usize, time: Nanos, out: &mut Vec<u8>) {
    out.push(b'[');
    put_digits::<10>(out, cpu as u64, 3, b'0');
    out.extend_from_slice(b"] ");
    put_digits::<10>(out, time.0 / SECOND_NS, 1, b'0');
    out.push(b'.');
    put_digits::<10>(out, time.0 % SECOND_NS, 9, b'0');
    out.extend_from_slice(b": ");
}

/// Where things stood last in this block.
struct Occurrences {
    /// Counted through all blocks; below `begin`: not in this one.
    places: Vec<u32>,
    begin: u32,
}

impl Occurrences {
    fn new(len: usize) -> Self {
        Self {
            places: vec![0; len],
            begin: 1,
        }
    }

    fn get(&self, thing: usize) -> Option<usize> {
        let place = self.places[thing].checked_sub(self.begin)?;
        Some(place as usize)
    }

    /// Notes that something stands at a place, and tells where it stood before.
    fn replace(&mut self, thing: usize, place: usize) -> Option<usize> {
        let last = self.get(thing);
        self.places[thing] = self.begin + place as u32;
        last
    }

    /// Begins a new block behind one of so many bytes.
    fn turn(&mut self, len: usize) {
        self.begin += len as u32;
        if self.begin > u32::MAX / 2 {
            self.places.fill(0);
            self.begin = 1;
        }
    }
}
