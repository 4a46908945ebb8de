//! The CPU time of a trace by function, in slices of its time.

use rustc_hash::FxHashMap;

use crate::output::label::{self, Interner};
use crate::output::own_code::OwnCode;
use crate::trace::{StackId, Trace};

/// Number of slices. More of them have too few samples of a function.
pub(super) const SLICES: usize = 16;
/// No function.
const NONE: u32 = u32::MAX;

/// Nanoseconds of CPU time, or counts of another event, in each slice.
pub(super) type Slices = [f64; SLICES];

/// Module and name of a function; functions of a module without a name share an empty one.
pub(super) type Code = (String, String);

/// The CPU time of a trace.
#[derive(Debug, Default)]
pub(super) struct Profile {
    /// Number of samples.
    pub(super) samples: u64,
    /// All of it.
    pub(super) all: Slices,
    /// By innermost function.
    pub(super) by_function: FxHashMap<Code, Slices>,
    /// By innermost method of the user's code.
    pub(super) by_own: FxHashMap<Code, Slices>,
}

impl Profile {
    /// Reads the samples of a trace.
    pub(super) fn of(trace: &Trace, own_code: &OwnCode) -> Self {
        let stacks = Stacks::new(trace, own_code);
        let (start, end) = (trace.info.start_ns, trace.info.end_ns);
        let length = end.saturating_sub(start).max(1);
        let of_time = trace.info.counts_time();
        let mut by_function = vec![[0.0; SLICES]; stacks.codes.len()];
        let mut by_own = by_function.clone();
        let mut profile = Self::default();
        for sample in trace.samples.iter() {
            let at = u128::from(sample.time.0.saturating_sub(start)) * SLICES as u128;
            let slice = usize::try_from(at / u128::from(length)).unwrap_or(SLICES);
            let slice = slice.min(SLICES - 1);
            let weight = if of_time { sample.weight.0 as f64 } else { 1.0 };
            profile.samples += 1;
            profile.all[slice] += weight;
            let Some(&[function, own]) = stacks.of_stack.get(sample.stack.index()) else {
                continue;
            };
            for (row, slices) in [(function, &mut by_function), (own, &mut by_own)] {
                if let Some(slices) = slices.get_mut(row as usize) {
                    slices[slice] += weight;
                }
            }
        }
        let named = |slices: Vec<Slices>| {
            let rows = stacks.codes.iter().cloned().zip(slices);
            rows.filter(|(_, slices)| sum(slices) > 0.0).collect()
        };
        profile.by_function = named(by_function);
        profile.by_own = named(by_own);
        profile
    }

    /// Returns the part of the samples that are in or below the user's code.
    pub(super) fn own_part(&self) -> f64 {
        let own: f64 = self.by_own.values().map(sum).sum();
        own / sum(&self.all).max(f64::MIN_POSITIVE)
    }
}

/// Returns the total of the slices.
pub(super) fn sum(slices: &Slices) -> f64 {
    slices.iter().sum()
}

/// The functions of each stack.
struct Stacks {
    codes: Vec<Code>,
    /// The innermost function, and the innermost one of the user's code.
    of_stack: Vec<[u32; 2]>,
}

impl Stacks {
    fn new(trace: &Trace, own_code: &OwnCode) -> Self {
        let mut rows = Interner::new(trace);
        let mut of_stack: Vec<[u32; 2]> = Vec::with_capacity(trace.stacks.len());
        for (_, parent, frame) in trace.stacks.nodes() {
            let mut innermost = NONE;
            let mut own = NONE;
            for place in trace.frames[frame.index()].functions.clone().rev() {
                let function = trace.frame_functions[place as usize];
                let code = &trace.functions[function.index()];
                let row = rows.row(trace, place, |_| {
                    let name = label::known_name(code).unwrap_or_default();
                    (label::module(code).to_owned(), name.to_owned())
                });
                if innermost == NONE {
                    innermost = row;
                }
                if own == NONE && own_code.is_own(function) {
                    own = row;
                }
            }
            if own == NONE && parent != StackId::EMPTY {
                own = of_stack[parent.index()][1];
            }
            of_stack.push([innermost, own]);
        }
        Self {
            codes: rows.into_rows(),
            of_stack,
        }
    }
}
