//! What takes another share of the CPU time than before, and how sure that is.
//!
//! Samples of a program come in phases, so that a share varies more than its number of samples says. Its
//! variance is that between slices of the capture (batch means, ratio estimator). Code that takes longer
//! leaves less of the CPU time to the rest, which has not changed. So changes are relative to the rest: to
//! all code whose share is near the median of the changes, weighted by CPU time up to a limit.

use rustc_hash::FxHashMap;

use super::profile::{Code, SLICES, Slices, sum};

/// Factor below which a change is not remarkable: programs differ by as much from run to run.
const MIN_TIMES: f64 = 1.1;
/// Part of the CPU time below which a change is not remarkable.
const MIN_PART: f64 = 0.01;
/// Standard errors of a change that is likely, and of one that is sure. Some hundred functions are
/// compared.
const LIKELY: f64 = 4.0;
const SURE: f64 = 6.0;
/// Sum of a function's parts before and after that counts for the median, at most.
const MAX_WEIGHT: f64 = 0.1;
/// Samples that code must have for its share to count for the rest.
const MIN_SAMPLES: f64 = 20.0;

/// Code with another share of the CPU time than before.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    pub(super) code: Code,
    /// Parts of the CPU time before and after, from 0 to 1.
    pub(super) parts: [f64; 2],
    /// CPU time relative to before, beside the rest: 2 takes twice as long. Infinite for new code.
    pub(super) times: f64,
    /// Whether chance is out of the question.
    pub(super) is_sure: bool,
}

/// The CPU time of one of two captures.
pub(super) struct Side<'a> {
    pub(super) samples: u64,
    pub(super) all: &'a Slices,
    pub(super) by_code: &'a FxHashMap<Code, Slices>,
}

/// A share of the CPU time.
#[derive(Clone, Copy, Debug)]
struct Part {
    part: f64,
    variance: f64,
}

impl Side<'_> {
    fn part(&self, code: &Code) -> Part {
        let none = [0.0; SLICES];
        let slices = self.by_code.get(code).unwrap_or(&none);
        let all = sum(self.all).max(f64::MIN_POSITIVE);
        let samples = (self.samples as f64).max(1.0);
        let part = sum(slices) / all;
        let pairs = slices.iter().zip(self.all);
        let squares = pairs.map(|(own, all)| (own - part * all).powi(2));
        let between = squares.sum::<f64>() / all.powi(2) * SLICES as f64 / (SLICES as f64 - 1.0);
        // What was never sampled may have been missed.
        let least = part.max(0.5 / samples);
        Part {
            part,
            variance: between.max(least * (1.0 - least).max(0.0) / samples),
        }
    }

    fn has_many(&self, part: Part) -> bool {
        part.part * self.samples as f64 >= MIN_SAMPLES
    }
}

/// The code that has not changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rest {
    /// Its parts of the CPU time before and after, from 0 to 1. Zero if no code is in both.
    pub(super) parts: [f64; 2],
    /// Its share of the CPU time, relative to before.
    pub(super) times: f64,
}

/// Finds the code that has not changed.
///
/// The median of the changes tells what that is. No function counts for much of it, so that one which
/// takes most of the time is not the median because of that. All of the rest together is more certain than
/// one function.
pub(super) fn rest(before: &Side<'_>, after: &Side<'_>) -> Rest {
    let parts = before
        .by_code
        .keys()
        .map(|code| [before.part(code), after.part(code)]);
    let known = parts.filter(|[a, b]| before.has_many(*a) && after.has_many(*b));
    let mut known: Vec<[Part; 2]> = known.collect();
    let ratio = |[a, b]: &[Part; 2]| b.part / a.part;
    known.sort_by(|one, other| ratio(one).total_cmp(&ratio(other)));
    let weight = |[a, b]: &[Part; 2]| (a.part + b.part).min(MAX_WEIGHT);
    let half = known.iter().map(weight).sum::<f64>() / 2.0;
    let mut below = 0.0;
    let middle = known.iter().find(|pair| {
        below += weight(pair);
        below >= half
    });
    let median = middle.map_or(1.0, ratio);
    known.retain(|pair| Difference::of(*pair, median).is_none());
    let together = |side: usize| known.iter().map(|pair| pair[side].part).sum::<f64>();
    let parts = [together(0), together(1)];
    let times = match known.is_empty() {
        true => median,
        false => parts[1] / parts[0],
    };
    Rest { parts, times }
}

/// A remarkable difference between two shares of the CPU time.
struct Difference {
    part: f64,
    times: f64,
    sigmas: f64,
}

impl Difference {
    /// Compares a share with that of before. Returns `None` if the change of the rest, or chance, may be
    /// the reason.
    fn of([a, b]: [Part; 2], rest: f64) -> Option<Self> {
        let times = b.part / a.part / rest;
        let is_other = times >= MIN_TIMES || times <= 1.0 / MIN_TIMES;
        let part = (b.part - a.part * rest).abs();
        let error = (b.variance + a.variance * rest.powi(2)).sqrt();
        let sigmas = part / error;
        let is_remarkable = is_other && part >= MIN_PART && sigmas >= LIKELY;
        is_remarkable.then_some(Self {
            part,
            times,
            sigmas,
        })
    }
}

/// Returns the code whose share is another than `rest` explains, the largest difference first.
pub(super) fn changes(before: &Side<'_>, after: &Side<'_>, rest: f64) -> Vec<Change> {
    let codes = before.by_code.keys();
    let new = after.by_code.keys();
    let new = new.filter(|code| !before.by_code.contains_key(*code));
    let changed = codes.chain(new).filter_map(|code| {
        let [a, b] = [before.part(code), after.part(code)];
        let difference = Difference::of([a, b], rest)?;
        let change = Change {
            code: code.clone(),
            parts: [a.part, b.part],
            times: difference.times,
            is_sure: difference.sigmas >= SURE,
        };
        Some((difference.part, change))
    });
    let mut changes: Vec<(f64, Change)> = changed.collect();
    changes.sort_by(|(difference, a), (other, b)| {
        let largest_first = other.total_cmp(difference);
        largest_first.then_with(|| a.code.cmp(&b.code))
    });
    changes.into_iter().map(|(_, change)| change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The CPU time of functions `a`, `b`, ..., in milliseconds of samples. In phases, it is in the first
    /// quarter of the capture only.
    fn side(times: &[f64], in_phases: bool) -> (u64, Slices, FxHashMap<Code, Slices>) {
        let mut all = [0.0; SLICES];
        let mut by_code = FxHashMap::default();
        for (at, ms) in times.iter().enumerate().filter(|(_, ms)| **ms > 0.0) {
            let mut slices = [ms / SLICES as f64; SLICES];
            if in_phases && at == 0 {
                slices = [0.0; SLICES];
                slices[..SLICES / 4].fill(ms * 4.0 / SLICES as f64);
            }
            all.iter_mut()
                .zip(slices)
                .for_each(|(all, own)| *all += own);
            let name = char::from(b'a' + at as u8).to_string();
            by_code.insert(("shop".to_owned(), name), slices);
        }
        (sum(&all) as u64, all, by_code)
    }

    fn found(before: &[f64], after: &[f64], in_phases: bool) -> Vec<(String, f64, bool)> {
        let [a, b] = [before, after].map(|times| side(times, in_phases));
        let [a, b] = [&a, &b].map(|(samples, all, by_code)| Side {
            samples: *samples,
            all,
            by_code,
        });
        let changes = changes(&a, &b, rest(&a, &b).times).into_iter();
        let rounded = |times: f64| (times * 100.0).round() / 100.0;
        changes
            .map(|change| (change.code.1, rounded(change.times), change.is_sure))
            .collect()
    }

    #[test]
    fn a_slower_function_is_found_beside_the_rest() {
        // Twice as long for the same work: the rest gets less of the time.
        let before = [2000.0, 5000.0, 3000.0];
        let scaled = |times: [f64; 3]| times.map(|ms| ms / 1.2);
        let after = scaled([4000.0, 5000.0, 3000.0]);
        assert_eq!(found(&before, &after, false), [("a".to_owned(), 2.0, true)]);
        // Twice the load: all of it takes twice the time.
        let loaded = before.map(|ms| ms * 2.0);
        assert_eq!(found(&before, &loaded, false), []);
        assert_eq!(found(&before, &before, false), []);
    }

    #[test]
    fn new_and_gone_code_is_found() {
        let (some, none) = ([500.0, 9000.0], [0.0, 9000.0]);
        let new = found(&none, &some, false);
        assert_eq!(new, [("a".to_owned(), f64::INFINITY, true)]);
        assert_eq!(found(&some, &none, false), [("a".to_owned(), 0.0, true)]);
    }

    /// The rest is all that has not changed, not the function in the middle.
    #[test]
    fn the_rest_is_pooled() {
        let before = [2000.0, 2000.0, 2000.0, 2000.0, 2000.0];
        let after = [1940.0, 2060.0, 1940.0, 2060.0, 4000.0];
        assert_eq!(found(&before, &after, false), [("e".to_owned(), 2.0, true)]);
    }

    /// What takes most of the time now is not what all else is compared with.
    #[test]
    fn a_function_that_takes_most_of_the_time_is_found() {
        let before = [2000.0, 2500.0, 2500.0, 2000.0, 1000.0];
        for times in [3.0, 10.0, 20.0] {
            let mut after = before;
            after[0] *= times;
            let slower = found(&before, &after, false);
            assert_eq!(slower, [("a".to_owned(), times, true)]);
            let faster = found(&after, &before, false);
            let part = (100.0 / times).round() / 100.0;
            assert_eq!(faster, [("a".to_owned(), part, true)]);
        }
    }

    /// The same numbers of samples say less if they are in a part of the time.
    #[test]
    fn what_runs_in_phases_is_less_sure() {
        let (before, after) = ([1000.0, 9000.0], [1400.0, 9000.0]);
        assert_eq!(found(&before, &after, false).len(), 1);
        assert_eq!(found(&before, &after, true), []);
    }

    #[test]
    fn any_numbers_are_accepted() {
        for times in [&[][..], &[0.0], &[f64::MAX, f64::MAX], &[1e-300, 1.0]] {
            found(times, &[1.0, 2.0], false);
            found(&[1.0, 2.0], times, false);
        }
    }
}
