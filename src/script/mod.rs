//! Prints a recording as `perf script` does.
//!
//! ```text
//! native-fp 31337/31338 [001] 12702.459459:    1001001 cpu-clock:ppp:
//!             1139 spin (/usr/bin/native-fp)
//! ```
//! The addresses of a callchain are offsets in the file. Where perfcollect resolves functions or
//! stacks that perf does not, the text is better; `docs/importing-perf-data.md` lists the
//! differences.

mod address;
mod address_resolver;
mod batch;
mod counters;
mod fields;
mod functions;
mod jit_symbols;
mod kernel;
mod printer;
mod samples;
mod stacks;
mod symbols;
mod tracepoint;

pub use fields::{Fields, FieldsError};

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, ScopedJoinHandle};

use crate::machine::{Machine, RecordingFiles};
use crate::perf_data::Reader;
use crate::perf_data::kernel_mismatch;
use crate::symbolize::elf;
use crate::unwind::Unwinder;
use address_resolver::AddressResolver;
use batch::Batch;
use counters::Counters;
use functions::Functions;
use printer::{KnownStacks, Printer};
use samples::Samples;
use stacks::Stacks;
use symbols::KernelList;

/// Maximum width of event names.
const MAX_EVENT_WIDTH: usize = 256;
const KALLSYMS: &str = "/proc/kallsyms";
/// Maximum number of chunks that wait to be written.
const CHUNKS_AHEAD: usize = 4;
/// Maximum number of batches that wait to be printed. The symbols of their files are read
/// meanwhile.
const BATCHES_AHEAD: usize = 16;

/// Totals and problems of a printed recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Printed {
    /// Number of samples.
    pub samples: u64,
    /// Number of records and samples that the kernel dropped.
    pub lost: u64,
    /// Messages about missing parts.
    pub faults: Vec<String>,
}

/// Prints a recording. `kallsyms`: the symbol list of its kernel, if not the running one's.
/// `shows_inlined`: whether to show inlined functions in user stack copies, as perf does. `tell`
/// receives the reason for kernel frames without symbols, before the first of them if it is known
/// then. One thread reads the recording and tracks processes, one formats the text, one writes it;
/// two more read symbols.
///
/// # Errors
/// Returns errors of `out`.
pub fn print<R: io::Read>(
    reader: &mut Reader<R>,
    mut recorded: RecordingFiles,
    kallsyms: Option<&Path>,
    fields: Fields,
    shows_inlined: bool,
    out: impl Write + Send,
    tell: &mut dyn FnMut(&str),
) -> io::Result<Printed> {
    let info = &reader.info;
    recorded.set_origin(&info.host, &info.release, &info.build_ids);
    let event_width = info.events.iter().map(|event| event.name.len()).max();
    let nameless_kernel = kernel_mismatch(info, None, kallsyms);
    let is_ours = nameless_kernel.is_none();
    let list = kallsyms.unwrap_or(Path::new(KALLSYMS));
    let kernel = Arc::new(KernelList::new(is_ours.then(|| list.into())));
    let is_full = AtomicBool::new(false);
    let (chunks, to_write) = mpsc::sync_channel(CHUNKS_AHEAD);
    let (written, spare_chunks) = mpsc::channel();
    let (batches, to_print) = mpsc::sync_channel(BATCHES_AHEAD);
    let (printed, spare_batches) = mpsc::channel();
    let (ahead, to_read) = mpsc::channel();
    let mut unwinder = Unwinder::default();
    unwinder.set_symbolizer(&Arc::new(elf::unwind_symbolizer(
        &address_resolver::OPTIONS,
    )));
    let mut samples = Samples {
        fields,
        shows_inlined,
        event_width: event_width.unwrap_or(0).min(MAX_EVENT_WIDTH),
        machine: Machine::recorded(recorded),
        unwinder,
        places: AddressResolver::new(ahead),
        kernel: Arc::clone(&kernel),
        stacks: Stacks::default(),
        formats: Default::default(),
        counters: Counters::default(),
        printed: Printed::default(),
        nameless_kernel,
        tell,
        kallsyms,
        batch: Batch::default(),
        batches,
        spare: spare_batches,
        is_full: &is_full,
    };
    let printer = Printer {
        fields,
        functions: Functions::new(fields, Arc::clone(&kernel)),
        stacks: KnownStacks::default(),
        text: Vec::new(),
        chunks,
        spare: spare_chunks,
        is_full: &is_full,
    };
    thread::scope(|scope| {
        let kernel = scope.spawn(|| kernel.read());
        let files = scope.spawn(|| symbols::read_ahead(to_read));
        let printing = scope.spawn(|| printer.run(to_print, printed));
        let writing = scope.spawn(|| write_chunks(to_write, written, out));
        reader.each(|info, entry| samples.take(info, &entry));
        let mut printed = samples.finish();
        printed.faults.extend(join(printing));
        // Unlike the end of the scope, joining waits for the destructors of thread-local values.
        join(kernel);
        join(files);
        join(writing).map(|()| printed)
    })
}

fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Writes chunks until there are no more, and returns them to be reused. Ends with the first error.
fn write_chunks(
    chunks: Receiver<Vec<u8>>,
    spare: Sender<Vec<u8>>,
    mut out: impl Write,
) -> io::Result<()> {
    for mut chunk in chunks {
        out.write_all(&chunk)?;
        chunk.clear();
        // The thread that fills them may have ended.
        let _ = spare.send(chunk);
    }
    out.flush()
}
