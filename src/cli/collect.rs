//! `perfcollect collect NAME`.

use std::ffi::CStr;
use std::io;
use std::sync::Arc;

use rustix::process::Signal;
use thiserror::Error;

use super::arguments::CollectOptions;
use super::background::{STARTED, STOPPED};
use super::capture_files::CaptureFiles;
use super::event_options::Plan;
use super::log;
use super::named::{self, NamedError};
use super::outputs::OutputRequest;
use super::progress::Reporter;
use super::sandbox;
use super::symptom_fit;
use super::symptom_options::{ChosenOptions, SymptomError};
use super::trace_files::Paths;
use super::warnings::Warnings;
use super::write_error::WriteError;
use crate::capture::{
    self, Capture, CaptureError, CaptureRequest, DiskBudget, End, EventRequest, NotRunning,
    Signals, Target,
};
use crate::dotnet::ProfileError;
use crate::output::file::OutputError;
use crate::output::spool_file::{SpoolFile, SpoolFileError};
use crate::perf::{Clock, SamplingRequest};
use crate::symbolize;
use crate::trace::{CounterEvent, Notice, NoticeKind, Pid};

/// Name of the process of a background capture.
const PROCESS_NAME: &CStr = c"perfcollect";
/// Address space that a capture and its end need on most systems, in bytes.
const ENOUGH_ADDRESS_SPACE: u64 = 1 << 30;

#[derive(Debug, Error)]
pub(super) enum CollectError {
    #[error("cannot install signal handlers: {0}")]
    Signals(io::Error),
    #[error(transparent)]
    Named(#[from] NamedError),
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error(transparent)]
    Spool(#[from] SpoolFileError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(
        "only {free} are free on the disk of the output: free some space, use a name on another disk, or give -maxsize 0 \
         to capture until the disk is full"
    )]
    NoRoom { free: String },
    #[error("no samples: {0}; nothing was written")]
    NoSamples(String),
    #[error("no events: {0}; nothing was written")]
    NoEvents(String),
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error(transparent)]
    Symptom(#[from] SymptomError),
}

/// Captures and writes a trace. Returns the exit status: that of the command, if it ended the capture.
pub(super) fn run(options: &CollectOptions) -> Result<u8, CollectError> {
    if options.background {
        // Closing the terminal, or Ctrl-C in it, must not stop the capture.
        let _ = rustix::process::setsid();
    }
    if options.summary_only {
        // Nobody would stop it.
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::TERM));
    }
    if options.background || options.summary_only {
        // It was executed as /proc/self/exe.
        let _ = rustix::thread::set_name(PROCESS_NAME);
    }
    let signals = Signals::install().map_err(CollectError::Signals)?;
    let chosen = ChosenOptions::new(options)?;
    let plan = chosen.plan()?;
    let name = &*named::capture(options);
    let pids = match &options.process_name {
        Some(process) => named::processes(process)?,
        None => options.pid.clone(),
    };
    Paths::checked(name, options.results)?;
    let spool = SpoolFile::create(name, options.results.force)?;
    let working = CaptureFiles::create(name, spool, plan.events.is_some(), &signals)?;
    let disk = DiskBudget::new(working.spool(), options.maxsize, options.results.perfdata);
    if let Some(free) = disk.lacks_room() {
        let _ = working.remove();
        return Err(CollectError::NoRoom { free });
    }
    let unfit = symptom_fit::unfit(options, &pids);
    let request = request(options, &chosen, pids, &plan, disk);
    let session = plan.events.map(|profile| profile.session_request());
    let providers = session.iter().flat_map(|session| &session.providers);
    let providers: Vec<String> = providers.map(|provider| provider.name.clone()).collect();
    let mut settings = log::requested(&request, session.as_ref());
    let events = session.zip(working.keep_stream());
    let events = events.map(|(session, keep)| EventRequest {
        session,
        buffer_mib: chosen.events.eventbuffer,
        rundown: chosen.events.rundown,
        is_chosen: chosen.events.are_chosen(),
        keep,
    });
    let mut reporter = match options.background {
        true => Reporter::Background,
        false => Reporter::new(options.results.quiet || options.results.json),
    };
    for line in chosen.meaning.iter() {
        reporter.say(line);
    }
    if let Some(notice) = &unfit {
        reporter.say(&format!("{}; {}", notice.what, notice.remedy));
    }
    let mut restricted = None;
    let mut warnings = Warnings::default();
    let stopped = capture::run(&request, events, working.spool(), &signals, |progress| {
        if restricted.is_none() {
            restricted = Some(match options.names.download() {
                true => "no restriction".into(),
                false => sandbox::while_capturing(),
            });
            reporter.say(&greeting(&request, options.background));
            if let Some(warning) = memory_warning(capture::address_space_limit()) {
                reporter.say(&warning);
            }
        }
        if let Some(warning) = warnings.next(&progress) {
            reporter.clear();
            reporter.say(&warning);
        }
        reporter.progress(&progress);
    });
    let mut stopped = stopped.inspect_err(|_| {
        // The capture has not started: its files are empty.
        let _ = working.remove();
    })?;
    reporter.end();
    reporter.say(&format!("{STOPPED} ({}).", stopped.end()));
    let snapshot = stopped.take_snapshot();
    let restricted_later = match options.names.download() {
        true => "after the downloads".into(),
        false => sandbox::enter(&[name], &[]),
    };
    log::put_granted(&stopped.granted(), &mut settings);
    let restricted = restricted.unwrap_or_default();
    let sandbox = format!("{restricted} while capturing; at the end {restricted_later}");
    settings.put("sandbox", sandbox);
    let mut capture = working.read(None, &reporter, |spool, samples| {
        stopped.read(spool, samples)
    })?;
    let silent = options.events.silent_providers(&capture.events);
    capture.notices.extend(silent.into_iter().chain(unfit));
    if capture.raw_trace.samples.is_empty() {
        let why = why_no_samples(&capture, &request);
        // The settings of the runtime are always there, so only requested providers count.
        let has_events = providers.iter().any(|name| capture.events.has_any_of(name));
        let raw_trace = &capture.raw_trace;
        let has_waits = snapshot.is_some() || !raw_trace.blocked.is_empty();
        let has_others = capture.has_others();
        if !has_events && !has_waits && !has_others {
            let _ = working.remove();
            return Err(match request.samples {
                true => CollectError::NoSamples(why),
                false => CollectError::NoEvents(why_no_events(&capture)),
            });
        }
        if request.samples {
            let what = match has_events {
                true => format!("there are no samples, only events: {why}"),
                false => {
                    let waits = "what the threads waited for";
                    let what = match (has_waits, has_others) {
                        (true, true) => format!("{waits}, and what else was asked for"),
                        (true, false) => waits.to_owned(),
                        (false, _) => "what else was asked for".to_owned(),
                    };
                    format!("there are no samples, only {what}")
                }
            };
            capture
                .notices
                .push(Notice::new(NoticeKind::NoSamples, what, ""));
        }
    }
    let wanted = OutputRequest {
        name,
        spooled: Some((name, &working)),
        reporter: &reporter,
        naming: options.names.naming(),
        download: options.names.download(),
        results: options.results,
        raw_events: !options.events.noraw,
        beside_command: !options.command.is_empty(),
        settings: &settings,
    };
    if options.summary_only {
        wanted.summarize(capture, &signals)?;
        return Ok(0);
    }
    let of_command = match &capture.end {
        End::Command(end) => Some(end.exit_status()),
        _ => None,
    };
    let status = wanted.make(capture, snapshot, &signals)?;
    Ok(of_command.unwrap_or(status))
}

fn request(
    options: &CollectOptions,
    chosen: &ChosenOptions,
    pids: Vec<Pid>,
    plan: &Plan,
    disk: DiskBudget,
) -> CaptureRequest {
    let target = if !options.command.is_empty() {
        Target::Command(options.command.clone())
    } else if !pids.is_empty() {
        Target::Pids(pids)
    } else {
        Target::SystemWide
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut sampling = SamplingRequest::new(options.freq, options.callgraph, cpus);
    if options.faults {
        sampling = sampling.with_faults(cpus);
    }
    if options.wakeups {
        sampling = sampling.with_more_room(cpus);
    }
    if options.hwevents {
        sampling.clock = Clock::Cycles;
    }
    let hardware = options.hwevents.then_some(CounterEvent::HARDWARE);
    let system = options.system.then_some(CounterEvent::SYSTEM);
    let hardware = hardware.into_iter().flatten();
    CaptureRequest {
        target,
        sampling: match options.buffersize {
            Some(bytes) => sampling.with_ring_bytes(bytes),
            None => sampling,
        },
        symptom: options.symptom,
        samples: plan.samples,
        // `top` shows only what runs.
        threads: plan.samples && !options.summary_only,
        off_cpu: chosen.threadtime.then_some(options.budget),
        counters: hardware.chain(system.into_iter().flatten()).collect(),
        block_io: options.io,
        connections: chosen.net,
        wakeups: options.wakeups,
        disk,
        symbolizer: Arc::new(symbolize::elf::unwind_symbolizer(&options.names.naming())),
        limit: options.collectsec,
    }
}

/// Returns the warning about a limit of the address space that a capture may reach.
fn memory_warning(limit: Option<u64>) -> Option<String> {
    let limit = limit.filter(|limit| *limit < ENOUGH_ADDRESS_SPACE)?;
    Some(format!(
        "warning: the address space is limited to {} MiB (ulimit -v), which may be too little to write the trace; if so, \
         what was captured is kept",
        limit >> 20
    ))
}

/// Returns the first message. A background capture is not stopped by a key.
///
/// It shows the limit on the size if the capture may reach it.
fn greeting(request: &CaptureRequest, background: bool) -> String {
    let limit = request.limit.map_or_else(String::new, |limit| {
        let seconds = limit.as_secs_f64();
        format!(" Collection will automatically stop in {seconds} second(s).")
    });
    let key = match (request.limit, &request.target) {
        _ if background => "",
        (Some(_), _) => " Press CTRL+C to stop early.",
        (None, Target::Command(_)) => " Collection stops when the command ends, or with CTRL+C.",
        (None, _) => " Press CTRL+C to stop.",
    };
    let size = match request.limit.is_none() || request.disk.is_notable() {
        true if request.disk.has_limit() => {
            let also = match limit.is_empty() && key.is_empty() {
                true => "It stops",
                false => "It also stops",
            };
            format!(" {also} before its files need {}.", request.disk)
        }
        _ => String::new(),
    };
    format!("{STARTED} ({}).{limit}{key}{size}", request.target)
}

fn why_no_samples(capture: &Capture, request: &CaptureRequest) -> String {
    let info = &capture.info;
    let seconds = info.seconds();
    let losses = &capture.raw_trace.losses;
    let lost = losses.lost();
    let cause = if let End::DiskSpace(why) = &capture.end {
        why.clone()
    } else if lost > 0 {
        format!("the kernel dropped {lost} records; use a lower -freq")
    } else {
        match &request.target {
            Target::SystemWide if losses.unattributed > 0 => format!(
                "all {} samples belong to processes outside this pid namespace; run on the host, or in a container with \
                 --pid=host",
                losses.unattributed
            ),
            Target::SystemWide => "no CPU was busy".into(),
            Target::Pids(_) if capture.end == End::TargetGone => "the target ended".into(),
            Target::Pids(pids) => match pids.iter().copied().find_map(NotRunning::of) {
                Some(still) => format!("{still}; {}", still.remedy()),
                None => format!(
                    "the target was not sampled: it was waiting or ran too briefly; `perfcollect stacks -p {}` shows what \
                     its threads wait for, a longer capture or a higher -freq what runs",
                    pids.first().copied().unwrap_or(Pid(0))
                ),
            },
            Target::Command(_) if !matches!(capture.end, End::Command(_)) => {
                "the command was waiting or ran too briefly; capture for longer, or use a higher -freq".into()
            }
            Target::Command(_) => format!(
                "the command ended before the first tick of the clock ({:.1} ms); use a higher -freq",
                info.period_ns as f64 / 1e6
            ),
        }
    };
    format!("in {seconds:.1} s ({}): {cause}", info.target)
}

fn why_no_events(capture: &Capture) -> String {
    let notices = capture.notices.iter();
    let words = notices.flat_map(|notice| [&*notice.what, &*notice.remedy]);
    let notices: Vec<&str> = words.filter(|words| !words.is_empty()).collect();
    let target = match &*capture.info.target {
        target if target == Target::SystemWide.to_string() => "on this machine".into(),
        target => format!("in {target}"),
    };
    match (notices.is_empty(), capture.events.is_empty()) {
        (false, _) => notices.join("; "),
        (true, true) => format!(
            "there was no .NET process {target} that sends events (NativeAOT programs do so only with \
             EventSourceSupport)"
        ),
        (true, false) => {
            format!("no requested event occurred in the .NET processes {target}")
        }
    }
}
