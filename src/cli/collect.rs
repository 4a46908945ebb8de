//! `perfcollect collect NAME`.

use std::fmt::{self, Write as _};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::OneLine;
use super::arguments::CollectOptions;
use super::progress::Reporter;
use crate::capture::{self, Capture, CaptureError, CaptureRequest, End, Signals, Target};
use crate::naming;
use crate::output::archive::{self, ArchiveError};
use crate::output::file::{self, OutputError, OutputFile};
use crate::output::flame_graph;
use crate::output::summary::Summary;
use crate::perf::SamplingRequest;
use crate::trace::Trace;
use crate::view::report;

/// Most bytes of stack copied with a sample; a record ends at 64 KiB. The kernel copies what there is: measured on .NET
/// 4.7 KB in the median, 26 KB where exceptions are thrown; compilers reach the limit.
const STACK_BYTES: u32 = 60 * 1024;
/// Rows of the table at the end.
const TOP_METHODS: usize = 10;

#[derive(Debug, Error)]
pub(super) enum CollectError {
    #[error("cannot take over Ctrl-C: {0}")]
    Signals(io::Error),
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error("no samples: {0}")]
    NoSamples(String),
    #[error("stopped by a second signal; what is complete was kept")]
    Stopped,
    #[error("cannot print the summary: {0}")]
    Print(io::Error),
}

pub(super) fn run(options: &CollectOptions) -> Result<(), CollectError> {
    let signals = Signals::install().map_err(CollectError::Signals)?;
    let request = request(options);
    let outputs = Outputs::create(&options.name, options.force)?;
    let mut reporter = Reporter::new(options.quiet || options.json);
    let mut started = false;
    let capture = capture::run(&request, &signals, |progress| {
        if !std::mem::replace(&mut started, true) {
            reporter.say(&greeting(&request));
        }
        reporter.progress(&progress);
    })?;
    reporter.end();
    let end = describe(&capture.end);
    reporter.say(&format!("...STOPPED ({end})."));
    if capture.recording.samples.is_empty() {
        return Err(CollectError::NoSamples(why_no_samples(&capture, &request)));
    }
    let log = |trace: &Trace| log(options, &request, &end, trace);
    let trace = naming::name(capture);
    let summary = Summary::new(&trace);
    let saved = outputs.to_string();
    outputs.write(&trace, &summary, log(&trace).as_bytes(), &signals)?;
    print(options, &summary, &saved)
}

fn request(options: &CollectOptions) -> CaptureRequest {
    let target = if !options.command.is_empty() {
        Target::Command(options.command.clone())
    } else if !options.pid.is_empty() {
        Target::Pids(options.pid.clone())
    } else {
        Target::Machine
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let sampling = SamplingRequest::new(options.freq, STACK_BYTES, cpus);
    CaptureRequest {
        target,
        sampling: match options.buffersize {
            Some(bytes) => sampling.with_ring_bytes(bytes),
            None => sampling,
        },
        limit: options.collectsec,
    }
}

/// The two files of a capture, created before it begins: what cannot be written is known at once.
struct Outputs {
    name: String,
    archive: OutputFile,
    archive_path: PathBuf,
    flame_graph: OutputFile,
    flame_graph_path: PathBuf,
}

impl Outputs {
    fn create(name: &Path, force: bool) -> Result<Self, OutputError> {
        let archive_path = file::trace_path(name);
        let name = file::capture_name(&archive_path);
        let flame_graph_path = archive_path.with_file_name(format!("{name}.flamegraph.svg"));
        Ok(Self {
            archive: OutputFile::create(&archive_path, force)?,
            flame_graph: OutputFile::create(&flame_graph_path, force)?,
            name,
            archive_path,
            flame_graph_path,
        })
    }

    fn write(
        mut self,
        trace: &Trace,
        summary: &Summary,
        log: &[u8],
        signals: &Signals,
    ) -> Result<(), CollectError> {
        let mut out = BufWriter::new(Stoppable::new(&mut self.flame_graph, signals));
        let written = flame_graph::write(trace, &self.name, &mut out).and_then(|()| out.flush());
        drop(out);
        check(
            &self.flame_graph,
            written.map_err(ArchiveError::Io),
            signals,
        )?;
        let out = BufWriter::new(Stoppable::new(&mut self.archive, signals));
        let written = archive::write(trace, summary, &self.name, log, out);
        // A picture without its trace is kept only by who is in a hurry.
        let written = check(&self.archive, written, signals);
        if let Ok(()) | Err(CollectError::Stopped) = written {
            self.flame_graph.commit()?;
        }
        written?;
        Ok(self.archive.commit()?)
    }
}

impl fmt::Display for Outputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Trace saved to {} (PerfView), flame graph to {} (any browser)",
            self.archive_path.display(),
            self.flame_graph_path.display()
        )
    }
}

fn check(
    file: &OutputFile,
    written: Result<(), ArchiveError>,
    signals: &Signals,
) -> Result<(), CollectError> {
    match written {
        Ok(()) => Ok(()),
        Err(_) if stopped(signals) => Err(CollectError::Stopped),
        Err(ArchiveError::Io(error)) => Err(file.explain(error).into()),
        Err(error) => Err(error.into()),
    }
}

fn stopped(signals: &Signals) -> bool {
    signals.count() > 1
}

/// Fails all writing once a second signal has come.
struct Stoppable<'a> {
    file: &'a mut OutputFile,
    signals: &'a Signals,
}

impl<'a> Stoppable<'a> {
    fn new(file: &'a mut OutputFile, signals: &'a Signals) -> Self {
        Self { file, signals }
    }
}

impl Write for Stoppable<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if stopped(self.signals) {
            return Err(io::Error::other("stopped"));
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for Stoppable<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

fn greeting(request: &CaptureRequest) -> String {
    let until = match (request.limit, &request.target) {
        (Some(limit), _) => format!(
            "Collection will automatically stop in {} second(s). Press CTRL+C to stop early.",
            limit.as_secs_f64()
        ),
        (None, Target::Command(_)) => "It ends with the command, or with CTRL+C.".into(),
        (None, _) => "Press CTRL+C to stop.".into(),
    };
    format!("Collection started ({}). {until}", request.target)
}

fn describe(end: &End) -> String {
    match end {
        End::Signal => "signal".into(),
        End::Limit => "time limit".into(),
        End::Command(status) => format!("command ended: {status}"),
        End::TargetGone => "all wanted processes are gone".into(),
    }
}

fn why_no_samples(capture: &Capture, request: &CaptureRequest) -> String {
    let info = &capture.info;
    let seconds = (info.end_ns.saturating_sub(info.start_ns)) as f64 / 1e9;
    let lost = capture.losses.lost();
    let cause = if lost > 0 {
        format!("the kernel dropped {lost} records; use a lower -freq")
    } else {
        match request.target {
            Target::Machine => "no CPU was busy".into(),
            Target::Pids(_) if capture.end == End::TargetGone => "the target ended".into(),
            Target::Pids(_) => "the target did not run on a CPU; it was waiting, or stopped".into(),
            Target::Command(_) => format!(
                "the command ended before the first tick of the clock ({:.1} ms); use a higher -freq",
                info.period_ns as f64 / 1e6
            ),
        }
    };
    format!(
        "in {seconds:.1} s of {} {cause}; nothing was written",
        info.target
    )
}

/// For maintainers: what was asked, granted, refused and seen.
fn log(options: &CollectOptions, request: &CaptureRequest, end: &str, trace: &Trace) -> String {
    let mut log = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        log,
        "perfcollect {}\nasked: {options:?}\nsampling: {:?}\nended: {end}\n{:#?}\n{:#?}\n",
        trace.info.version, request.sampling, trace.info, trace.quality
    );
    log
}

/// To standard output, unless that belongs to the command.
fn print(options: &CollectOptions, summary: &Summary, saved: &str) -> Result<(), CollectError> {
    if options.quiet && !options.json {
        return Ok(());
    }
    let mut text = Vec::new();
    if options.json {
        serde_json::to_writer_pretty(&mut text, summary)
            .map_err(io::Error::from)
            .and_then(|()| writeln!(text))
    } else {
        report::summary(summary, &mut text)
            .and_then(|()| report::methods(summary, TOP_METHODS, &mut text))
            .and_then(|()| writeln!(text, "\n{}", OneLine(saved)))
    }
    .and_then(|()| {
        if options.command.is_empty() {
            super::print(&text)
        } else {
            io::stderr().write_all(&text)
        }
    })
    .map_err(CollectError::Print)
}
