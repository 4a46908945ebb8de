//! The event streams of an archive: as received, and with the names of the code in their stacks.
//!
//! Readers of such a stream know the names of code only from the list that a runtime sends last, its
//! rundown. Without a rundown the stream gets such a list: a method for each run of addresses
//! with the same function.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read, Write};
use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::dotnet::{CodeEvent, ListedCode, ListedMethod};
use crate::nettrace::AddedEvents;
use crate::trace::{
    EventStream, FrameId, FunctionId, FunctionKind, Nanos, ProcessId, RuntimeEvent, Trace,
};

/// Number of the set of events among those that are added to a stream.
const SET: u32 = 2;
/// Maximum number of stacks that are kept to be recognized.
const MAX_STACKS: usize = 1 << 14;
/// Id of the first module. Runtimes use addresses as ids.
const FIRST_MODULE: u64 = 1;

/// Returns whether an event of an archive was added to it, and was not in the trace.
pub(crate) fn is_added_event(event: &RuntimeEvent) -> bool {
    event.added_set == Some(SET)
}

/// Writes a stream with the names of its code.
///
/// # Errors
/// Returns errors of the file and of `out`.
pub(super) fn write(trace: &Trace, stream: &EventStream, out: &mut impl Write) -> io::Result<()> {
    let mut bytes = stream.bytes()?;
    if let Some((offset, names)) = names(trace, stream) {
        io::copy(&mut (&mut bytes).take(offset), out)?;
        out.write_all(&names)?;
    }
    io::copy(&mut bytes, out)?;
    Ok(())
}

/// Returns the names to insert in a stream, and where.
fn names(trace: &Trace, stream: &EventStream) -> Option<(u64, Vec<u8>)> {
    let mut reader = stream.reader()?;
    let mut kinds = stream.counts.by_kind.iter();
    let has_rundown = kinds.any(|(kind, _)| ListedCode::is_method(kind));
    if reader.info().version >= 6 || has_rundown {
        return None;
    }
    let processes = instances(trace, stream);
    let mut frames: BTreeMap<u64, FrameId> = BTreeMap::new();
    let mut seen: FxHashSet<usize> = FxHashSet::default();
    let mut kept: Vec<Arc<[u64]>> = Vec::new();
    // The runtime itself names methods that it compiles during the session.
    let mut compiled: BTreeMap<u64, u64> = BTreeMap::new();
    let mut last = Nanos(0);
    while let Ok(Some(event)) = reader.next_event() {
        last = last.max(event.time);
        if let Ok(Some(CodeEvent::Loaded(method))) = CodeEvent::parse(event.metadata, event.payload)
        {
            let end = method.start.saturating_add(method.size.into());
            compiled.insert(method.start, end);
        }
        let stack = event.stack.shared();
        if !seen.insert(Arc::as_ptr(&stack).addr()) {
            continue;
        }
        for &address in &*stack {
            let find = |process: &ProcessId| trace.event_code.frame(*process, address, event.time);
            if let Some(frame) = processes.iter().find_map(find) {
                frames.insert(address, frame);
            }
        }
        kept.push(stack);
        if kept.len() >= MAX_STACKS {
            seen.clear();
            kept.clear();
        }
    }
    frames.retain(|&address, _| {
        let method = compiled.range(..=address).next_back();
        method.is_none_or(|(_, end)| address >= *end)
    });
    let info = reader.info();
    let thread = info.process.unwrap_or(0).into();
    let events = AddedEvents::new(SET, thread, info.ticks(last));
    let offset = reader.complete_bytes();
    let names = list(trace, &frames, events).objects_at(offset);
    Some((offset, names))
}

/// Returns the instances of a stream's process, the likeliest first.
///
/// The names of the streams of one process id number its instances.
fn instances(trace: &Trace, stream: &EventStream) -> Vec<ProcessId> {
    let rows = trace.processes.iter().zip(0..);
    let rows = rows.filter(|(process, _)| process.pid == stream.name.process);
    let mut rows: Vec<ProcessId> = rows.map(|(_, row)| ProcessId(row)).collect();
    rows.retain(|process| trace.event_code.has(*process));
    let first = stream.name.instance.saturating_sub(1) as usize;
    let last = rows.len().saturating_sub(1);
    rows.rotate_left(first.min(last));
    rows
}

/// Lists the functions at addresses.
fn list(trace: &Trace, frames: &BTreeMap<u64, FrameId>, events: AddedEvents) -> ListedCode {
    let mut list = ListedCode::new(events);
    let mut modules: HashMap<&str, u64> = HashMap::new();
    let mut frames = frames
        .iter()
        .map(|(&address, &frame)| (address, outermost(trace, frame)))
        .peekable();
    while let Some((start, id)) = frames.next() {
        let mut end = start;
        while let Some((address, _)) = frames.next_if(|(_, other)| *other == id) {
            end = address;
        }
        let function = &trace.functions[id.index()];
        let Some(name) = &function.name else {
            continue;
        };
        let next_module = FIRST_MODULE + modules.len() as u64;
        let module = match &*function.module {
            "" => 0,
            module => *modules.entry(module).or_insert_with(|| {
                list.module(next_module, &path(trace, module));
                next_module
            }),
        };
        let (namespace, name, signature) = split(name);
        list.method(&ListedMethod {
            module,
            start,
            size: u32::try_from(end - start + 1).unwrap_or(u32::MAX),
            is_jitted: function.kind == FunctionKind::Jit,
            tier: function.tier.as_deref(),
            namespace,
            name,
            signature,
        });
    }
    list
}

/// Returns the function that contains an address, without those inlined into it.
fn outermost(trace: &Trace, frame: FrameId) -> FunctionId {
    let start = trace.frames[frame.index()].functions.start;
    trace.frame_functions[start as usize]
}

/// Returns the path of the file of a module: its name with `.dll`, if no file of it is known.
fn path(trace: &Trace, module: &str) -> String {
    let stem = module.strip_suffix(".dll").unwrap_or(module);
    let mut files = trace.modules.iter();
    let file = files.find(|file| {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        name == module || name.strip_suffix(".dll") == Some(stem)
    });
    match file {
        Some(file) => file.path.to_string(),
        None => format!("{stem}.dll"),
    }
}

/// Splits `Namespace.Type.Method<arguments>(parameters)` into the type, the method, and the
/// parameters in parentheses.
fn split(name: &str) -> (&str, &str, &str) {
    let (method, signature) = name.split_at(name.find('(').unwrap_or(name.len()));
    // A dot within type arguments separates nothing, and that of `.ctor` belongs to the name.
    let mut depth = 0_usize;
    let mut dot = None;
    for (at, character) in method.char_indices() {
        match character {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            '.' if depth == 0 && at > 0 && !method[..at].ends_with('.') => dot = Some(at),
            _ => {}
        }
    }
    match dot {
        Some(dot) => (&method[..dot], &method[dot + 1..], signature),
        None => ("", method, signature),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_names_into_type_method_and_parameters() {
        for (name, parts) in [
            (
                "N.Type.Method(int, N.B)",
                ("N.Type", "Method", "(int, N.B)"),
            ),
            ("N.Type..ctor()", ("N.Type", ".ctor", "()")),
            (
                "N.Box<A.B>.Add<C.D>(E.F)",
                ("N.Box<A.B>", "Add<C.D>", "(E.F)"),
            ),
            ("T.<Caller>b__0()", ("T", "<Caller>b__0", "()")),
            ("[stub] prestub", ("", "[stub] prestub", "")),
            (".", ("", ".", "")),
            ("", ("", "", "")),
        ] {
            assert_eq!(split(name), parts);
        }
    }
}
