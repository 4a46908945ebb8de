//! Starts of the functions without a name, which a `.nettrace` has and `perf.data.txt` has not.

use std::io::Read;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::code::Code;
use super::old_stream::{OldFunction, OldStream, OldStreamError, process_id};
use super::records::Record;
use crate::nettrace::Reader;
use crate::output::synthetic_layout::FunctionRow;
use crate::trace::{FrameId, Function, FunctionId, StackId, Trace};

/// Maximum number of stacks that are known to be equal, to limit memory.
const MAX_COMPARED: usize = 1 << 15;

/// Starts of functions without a name, by frame.
#[derive(Debug, Default)]
pub struct FunctionStarts(Vec<(FrameId, u64)>);

/// Checks that a stream of [`super::write`] has the samples of a trace, and returns the starts of
/// functions that it shows by their start and the trace by the address of a frame.
///
/// # Errors
/// The stream cannot be read, or has other samples.
pub fn compare(trace: &Trace, source: impl Read) -> Result<FunctionStarts, OldStreamError> {
    let mut reader = Reader::open(source)?;
    let mut old = OldStream::default();
    let mut code = Code::new(trace);
    let mut starts = FxHashMap::default();
    let mut compared: FxHashMap<(*const u64, StackId), Arc<[u64]>> = FxHashMap::default();
    let mut samples = trace.samples.iter();
    while let Some(event) = reader.next_event()? {
        if old.read(&event)? != Some(Record::Cpu) {
            continue;
        }
        let pid = process_id(&event)?;
        let sample = samples.next().filter(|sample| {
            let process = trace.process_of(sample.thread);
            process.pid == pid
        });
        let sample = sample.ok_or(OldStreamError::Differs("samples"))?;
        let instance = old.instance(pid);
        let instance = instance.ok_or(OldStreamError::Differs("processes"))?;
        let addresses = event.stack.shared();
        // The `Arc` in the map keeps the address unique.
        let key = (addresses.as_ptr(), sample.stack);
        if compared.contains_key(&key) {
            continue;
        }
        let functions = code.functions(&instance.name, sample.stack);
        let is_equal = functions.len() == addresses.len()
            && functions.iter().zip(&*addresses).all(|(&row, &address)| {
                let function = old.function(address);
                function.is_some_and(|old| is_equal(&code, row, old, &mut starts))
            });
        if !is_equal {
            return Err(OldStreamError::Differs("functions"));
        }
        if compared.len() >= MAX_COMPARED {
            compared.clear();
        }
        compared.insert(key, addresses);
    }
    match samples.next() {
        Some(_) => Err(OldStreamError::Differs("samples")),
        None => Ok(FunctionStarts(code.frames_with(&starts))),
    }
}

/// Returns whether a function is the same. A start replaces the address of a frame.
fn is_equal(
    code: &Code<'_>,
    row: FunctionRow,
    old: &OldFunction,
    starts: &mut FxHashMap<FunctionRow, u64>,
) -> bool {
    let (module, name) = code.name(row);
    if module != &*old.module {
        return false;
    }
    if name == old.name {
        return true;
    }
    match (offset(name), offset(&old.name)) {
        (Some(address), Some(start)) if start <= address => {
            *starts.entry(row).or_insert(start) == start
        }
        _ => false,
    }
}

/// Parses the name of a function without a name.
fn offset(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_prefix("0x")?, 16).ok()
}

impl FunctionStarts {
    /// Adds the starts to the functions of the trace.
    pub fn apply(&self, trace: &mut Trace) {
        let mut rows: FxHashMap<Function, FunctionId> = FxHashMap::default();
        for &(frame, start) in &self.0 {
            let Some(function) = trace.functions_leaf_first(frame).next() else {
                continue;
            };
            let function = Function {
                start: Some(start),
                ..trace.functions[function.index()].clone()
            };
            let functions = &mut trace.functions;
            let row = *rows.entry(function).or_insert_with_key(|function| {
                functions.push(function.clone());
                FunctionId(functions.len() as u32 - 1)
            });
            let entry = trace.frame_functions.len() as u32;
            trace.frame_functions.push(row);
            trace.frames[frame.index()].functions = entry..entry + 1;
        }
    }
}
