//! The roots of the stacks of wake-ups: who woke whom.
//!
//! The code that an interrupt met on its CPU has nothing to do with a wake-up.

use hashbrown::HashMap;
use rustc_hash::FxHashMap;

use super::unsymbolized;
use crate::trace::{
    CodeAddress, Frame, FrameId, Function, FunctionId, FunctionKind, InterruptSource, Outsider,
    ProcessCounts, Sample, StackId, Trace, Waker, wakeup_label,
};

/// Starts of the names of kernel functions in which the handling of an interrupt begins.
const ENTRIES: [&str; 8] = [
    "asm_sysvec_",
    "sysvec_",
    "asm_common_interrupt",
    "common_interrupt",
    "irq_exit",
    "__irq_exit",
    "apic_timer_interrupt",
    "ret_from_intr",
];
/// Starts of the names of kernel functions, by what interrupts for.
const SOURCES: [(InterruptSource, &[&str]); 3] = [
    (
        InterruptSource::Timer,
        &[
            "hrtimer_",
            "__hrtimer_",
            "run_timer_",
            "__run_timer",
            "tick_",
        ],
    ),
    (
        InterruptSource::Network,
        &[
            "net_rx_action",
            "napi_",
            "__napi_",
            "netif_",
            "net_tx_action",
        ],
    ),
    (
        InterruptSource::Disk,
        &["blk_", "__blk_", "bio_endio", "nvme_", "virtblk_", "scsi_"],
    ),
];

/// Names the roots of the stacks of wake-ups after who woke whom, and removes from the stacks the code that an
/// interrupt has met.
/// `codes` are the addresses of the frames.
pub(super) fn name_roots(trace: &mut Trace, codes: &[CodeAddress], outsiders: &[Outsider]) {
    let mut named: FxHashMap<(StackId, FrameId), StackId> = FxHashMap::default();
    let mut roots = Roots::default();
    let mut wakers: FxHashMap<StackId, (String, Vec<FrameId>)> = FxHashMap::default();
    let counts = ProcessCounts::new(&trace.processes);
    let before = std::mem::take(&mut trace.wakeups);
    let after = before.iter().map(|sample| {
        let stack = wakers.entry(sample.stack);
        let (waker, inner) = stack
            .or_insert_with(|| without_interrupted(trace, codes, &counts, outsiders, sample.stack));
        let woken = trace.threads[sample.thread.index()].name.clone();
        let root = roots.frame(trace, &woken, waker);
        let stack = named.entry((sample.stack, root));
        let stack = *stack.or_insert_with(|| {
            let inner = inner.iter().rev().copied();
            trace.stacks.intern([root].into_iter().chain(inner))
        });
        Sample { stack, ..sample }
    });
    trace.wakeups = after.collect();
}

/// Maximum number of roots with names. A target may have a name for each thread.
const MAX_ROOTS: usize = 4096;
/// Name of the threads beyond it.
const OTHERS: &str = "others";

/// The frames of the roots, by name. Targets choose the keys, so their hashes have a random seed.
#[derive(Default)]
struct Roots(HashMap<String, FrameId>);

impl Roots {
    fn frame(&mut self, trace: &mut Trace, woken: &str, waker: &str) -> FrameId {
        let mut name = wakeup_label(woken, waker);
        if self.0.len() >= MAX_ROOTS && !self.0.contains_key(&name) {
            name = wakeup_label(OTHERS, OTHERS);
        }
        *self.0.entry(name).or_insert_with_key(|name| {
            let function = FunctionId(trace.functions.len() as u32);
            trace.functions.push(Function {
                name: Some(name.as_str().into()),
                ..unsymbolized(CodeAddress::Waker(Waker::Interrupt))
            });
            let start = trace.frame_functions.len() as u32;
            trace.frame_functions.push(function);
            let frame = FrameId(trace.frames.len() as u32);
            trace.frames.push(Frame {
                offset: 0,
                functions: start..start + 1,
            });
            frame
        })
    }
}

/// Returns who woke, and the other frames of the stack, leaf first: those of an interrupt from where that begins.
fn without_interrupted(
    trace: &Trace,
    codes: &[CodeAddress],
    counts: &ProcessCounts,
    outsiders: &[Outsider],
    stack: StackId,
) -> (String, Vec<FrameId>) {
    let mut leaf_first: Vec<FrameId> = trace.stacks.leaf_first(stack).collect();
    let function = |frame: &FrameId| {
        let function = trace.functions_leaf_first(*frame).next()?;
        trace.functions.get(function.index())
    };
    let starts = |frame: &FrameId, starts: &[&str]| {
        let kernel = function(frame).filter(|row| row.kind == FunctionKind::Kernel);
        let name = kernel.and_then(|row| row.name.as_deref());
        name.is_some_and(|name| starts.iter().any(|start| name.starts_with(start)))
    };
    let root = leaf_first.pop();
    let waker = match root.and_then(|root| codes.get(root.index())) {
        Some(CodeAddress::Waker(waker)) => *waker,
        // A spool that was not written like this.
        _ => Waker::Interrupt,
    };
    let is_entry = |frame: &FrameId| starts(frame, &ENTRIES);
    // An interrupt may have met another one.
    match leaf_first.iter().position(is_entry) {
        Some(entry) => {
            let entries = leaf_first.iter().skip(entry).take_while(|it| is_entry(it));
            leaf_first.truncate(entry + entries.count());
        }
        // The names of the kernel are not known, or it interrupted the idle thread.
        None if waker == Waker::Interrupt => {}
        None => {
            let name = waker.name(&trace.processes, counts, &trace.threads, outsiders);
            return (name, leaf_first);
        }
    }
    let source = leaf_first.iter().find_map(|frame| {
        let mut sources = SOURCES.iter();
        sources.find_map(|(source, names)| starts(frame, names).then_some(*source))
    });
    let source = source.unwrap_or(InterruptSource::Other);
    (source.name().to_owned(), leaf_first)
}
