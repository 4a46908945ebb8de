//! Cycles of threads that wait for each other's locks.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Threads of which each waits for a lock that the next one has, and the last one for one of the first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadlock {
    /// Process id.
    pub pid: i32,
    /// Thread ids, the lowest first.
    pub threads: Vec<i32>,
}

/// Finds all cycles in a map from threads to the threads that they wait for.
pub(super) fn cycles(waits_for: &BTreeMap<i32, i32>) -> Vec<Vec<i32>> {
    let mut found = Vec::new();
    let mut done: BTreeSet<i32> = BTreeSet::new();
    for &start in waits_for.keys() {
        let mut path: Vec<i32> = Vec::new();
        let mut on_path: BTreeSet<i32> = BTreeSet::new();
        let mut at = start;
        while !done.contains(&at) && on_path.insert(at) {
            path.push(at);
            match waits_for.get(&at) {
                Some(next) => at = *next,
                None => break,
            }
        }
        let is_cycle = !done.contains(&at) && waits_for.contains_key(&at);
        if is_cycle && let Some(first) = path.iter().position(|thread| *thread == at) {
            let mut cycle = path.split_off(first);
            done.extend(&cycle);
            let lowest = cycle.iter().enumerate().min_by_key(|(_, thread)| **thread);
            let lowest = lowest.map_or(0, |(index, _)| index);
            cycle.rotate_left(lowest);
            found.push(cycle);
        }
        done.extend(path);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_each_cycle_once() {
        let of = |edges: &[(i32, i32)]| cycles(&edges.iter().copied().collect());
        assert_eq!(of(&[(1, 2), (2, 1)]), [[1, 2]]);
        // Others wait for those in the cycle, and one for a thread that runs.
        let edges = [(1, 9), (2, 8), (8, 7), (7, 5), (5, 8), (9, 3), (10, 9)];
        assert_eq!(of(&edges), [[5, 8, 7]]);
        assert_eq!(of(&[(1, 2), (2, 3)]), [[0; 0]; 0]);
        assert_eq!(of(&[(4, 3), (3, 4), (2, 1), (1, 2)]), [[1, 2], [3, 4]]);
        assert_eq!(of(&[]), [[0; 0]; 0]);
    }

    #[test]
    fn a_long_chain_takes_one_pass() {
        let chain: BTreeMap<i32, i32> = (0..100_000).map(|thread| (thread, thread + 1)).collect();
        assert!(cycles(&chain).is_empty());
    }
}
