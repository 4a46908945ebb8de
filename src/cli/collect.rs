//! `perfcollect collect NAME`.

use std::io;

use thiserror::Error;

use super::arguments::CollectOptions;
use super::outputs::{Paths, Wanted, WriteError};
use super::progress::Reporter;
use crate::capture::{self, Capture, CaptureError, CaptureRequest, End, Signals, Target};
use crate::output::file::OutputError;
use crate::output::spool_file::{SpoolFile, SpoolFileError};
use crate::perf::{Clock, SamplingRequest};

#[derive(Debug, Error)]
pub(super) enum CollectError {
    #[error("cannot take over Ctrl-C: {0}")]
    Signals(io::Error),
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error(transparent)]
    Spool(#[from] SpoolFileError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("no samples: {0}")]
    NoSamples(String),
}

pub(super) fn run(options: &CollectOptions) -> Result<(), CollectError> {
    let signals = Signals::install().map_err(CollectError::Signals)?;
    let request = request(options);
    Paths::of(&options.name).check(options.results.force)?;
    let spool = SpoolFile::create(&options.name, options.results.force)?;
    let mut reporter = Reporter::new(options.results.quiet || options.results.json);
    let mut started = false;
    let capture = capture::run(&request, spool.file(), &signals, |progress| {
        if !std::mem::replace(&mut started, true) {
            reporter.say(&greeting(&request));
        }
        reporter.progress(&progress);
    });
    let capture = capture.inspect_err(|error| {
        if !matches!(error, CaptureError::Spool(_)) {
            // The capture has not begun, so nothing is in it.
            let _ = spool.remove();
        }
    })?;
    reporter.end();
    reporter.say(&format!("...STOPPED ({}).", capture.end));
    if capture.recording.samples.is_empty() {
        let _ = spool.remove();
        return Err(CollectError::NoSamples(why_no_samples(&capture, &request)));
    }
    let wanted = Wanted {
        name: &options.name,
        spooled: Some(&options.name),
        naming: options.names.naming(),
        download: options.names.download(),
        results: options.results,
        beside_command: !options.command.is_empty(),
        asked: &format!("asked: {options:?}\nsampling: {:?}", request.sampling),
    };
    Ok(wanted.make(capture, &spool, &signals)?)
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
    let mut sampling = SamplingRequest::new(options.freq, options.callgraph, cpus);
    if options.hwevents {
        sampling.clock = Clock::Cycles;
    }
    CaptureRequest {
        target,
        sampling: match options.buffersize {
            Some(bytes) => sampling.with_ring_bytes(bytes),
            None => sampling,
        },
        limit: options.collectsec,
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

fn why_no_samples(capture: &Capture, request: &CaptureRequest) -> String {
    let info = &capture.info;
    let seconds = (info.end_ns.saturating_sub(info.start_ns)) as f64 / 1e9;
    let losses = &capture.recording.losses;
    let lost = losses.lost();
    let cause = if lost > 0 {
        format!("the kernel dropped {lost} records; use a lower -freq")
    } else {
        match request.target {
            Target::Machine if losses.unattributed > 0 => format!(
                "all {} samples are of processes outside this pid namespace; run on the host, or in a container with \
                 --pid=host",
                losses.unattributed
            ),
            Target::Machine => "no CPU was busy".into(),
            Target::Pids(_) if capture.end == End::TargetGone => "the target ended".into(),
            Target::Pids(_) => "no sample fell on the target: it was waiting, stopped, or ran too briefly; capture for \
                                longer, or use a higher -freq"
                .into(),
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
