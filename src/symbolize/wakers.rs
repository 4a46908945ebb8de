//! Wake-ups by interrupts: the code that an interrupt met on its CPU has nothing to do with them.

use rustc_hash::FxHashMap;

use super::unsymbolized;
use crate::trace::{
    CodeAddress, Frame, FrameId, Function, FunctionId, FunctionKind, InterruptSource, Sample,
    StackId, Trace, Waker,
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

/// Removes from the stacks of wake-ups the code that an interrupt has met, and names what interrupted.
pub(super) fn name_interrupts(trace: &mut Trace) {
    let mut cut: FxHashMap<StackId, StackId> = FxHashMap::default();
    let mut roots = Roots::default();
    let before = std::mem::take(&mut trace.wakeups);
    let after = before.iter().map(|sample| {
        let stack = cut.entry(sample.stack);
        let stack = *stack.or_insert_with(|| without_interrupted(trace, sample.stack, &mut roots));
        Sample { stack, ..sample }
    });
    trace.wakeups = after.collect();
}

/// The frames of the roots that stand for interrupts.
#[derive(Default)]
struct Roots(Vec<(InterruptSource, FrameId)>);

impl Roots {
    fn frame(&mut self, trace: &mut Trace, source: InterruptSource) -> FrameId {
        if let Some((_, frame)) = self.0.iter().find(|(known, _)| *known == source) {
            return *frame;
        }
        let function = FunctionId(trace.functions.len() as u32);
        trace.functions.push(Function {
            name: Some(source.label().into()),
            ..unsymbolized(CodeAddress::Waker(Waker::Interrupt))
        });
        let start = trace.frame_functions.len() as u32;
        trace.frame_functions.push(function);
        let frame = FrameId(trace.frames.len() as u32);
        trace.frames.push(Frame {
            offset: 0,
            functions: start..start + 1,
        });
        self.0.push((source, frame));
        frame
    }
}

/// Returns the stack of a wake-up by an interrupt from where that begins, and other stacks as they are.
fn without_interrupted(trace: &mut Trace, stack: StackId, roots: &mut Roots) -> StackId {
    let leaf_first: Vec<FrameId> = trace.stacks.leaf_first(stack).collect();
    let name = |frame: &FrameId| {
        let function = trace.functions_leaf_first(*frame).next()?;
        let function = &trace.functions[function.index()];
        let is_kernel = function.kind == FunctionKind::Kernel;
        function.name.as_deref().filter(|_| is_kernel)
    };
    let starts = |frame: &FrameId, starts: &[&str]| {
        name(frame).is_some_and(|name| starts.iter().any(|start| name.starts_with(start)))
    };
    let entry = leaf_first.iter().rposition(|frame| starts(frame, &ENTRIES));
    let interrupt = InterruptSource::Other.label();
    let is_interrupt = |root: &FrameId| {
        let function = trace.functions_leaf_first(*root).next();
        let name = function.and_then(|id| trace.functions[id.index()].name.as_deref());
        name == Some(&*interrupt)
    };
    let kept = match (entry, leaf_first.split_last()) {
        (Some(entry), _) => &leaf_first[..=entry],
        // The names of the kernel are not known, or it interrupted the idle thread.
        (None, Some((root, inner))) if is_interrupt(root) => inner,
        _ => return stack,
    };
    let source = kept.iter().find_map(|frame| {
        let mut sources = SOURCES.iter();
        sources.find_map(|(source, names)| starts(frame, names).then_some(*source))
    });
    let root = roots.frame(trace, source.unwrap_or(InterruptSource::Other));
    let kept = kept.iter().rev().copied();
    trace.stacks.intern([root].into_iter().chain(kept))
}
