//! Garbage collections, with the figures of PerfView's GCStats.

mod cpu;
mod generations;
mod heap;
mod rollup;
mod row;
mod sizes;

pub(crate) use cpu::CpuTime;
pub(crate) use generations::{HeapStats, MAX_GENERATIONS};
pub(crate) use heap::{GarbageCollection, GcHistory};
pub(crate) use rollup::{INDUCED, INDUCED_NOT_FORCED, Rollup};
pub(crate) use row::{GcRow, rows};
