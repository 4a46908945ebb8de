//! The main loop of a live capture.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use perfcollect_symbols::symbolizer::Symbolizer;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::block_io::BlockIoCapture;
use super::command::Command;
use super::connections::ConnectionCapture;
use super::counting::Counting;
use super::cpu_waits::CpuWaits;
use super::disk_budget::{DiskBudget, DiskWatch, Stored};
use super::engine::Engine;
use super::error::CaptureError;
use super::event_sessions::{EventRequest, EventSessions};
use super::finished::{End, StoppedCapture};
use super::limit_groups::LimitGroups;
use super::memory_use::MemoryUse;
use super::off_cpu::OffCpu;
use super::priority::Priority;
use super::sample_rate::SampleRate;
use super::session_starts::SessionChoice;
use super::signals::Signals;
use super::snapshot;
use super::target::Target;
use super::wakeups::Wakeups;
use super::weight::Weight;
use super::woken_threads::WokenThreads;
use super::{MAX_TARGET_CHARS, process_limits, usage};
use crate::machine;
use crate::perf::{self, PerfSession, SamplingRequest};
use crate::trace::{
    Callers, CaptureInfo, CounterEvent, Header, Nanos, Notice, NoticeKind, Pid, Symptom,
};

/// Maximum time that a command may take to end after a signal.
const GRACE: Duration = Duration::from_secs(1);
/// Maximum time between two reads of the ring buffers.
///
/// A process must still exist when perfcollect reads what its samples need.
const TICK: Duration = Duration::from_millis(25);
/// The same while a .NET process starts or frees code.
const SHORT_TICK: Duration = Duration::from_millis(3);
/// Options of a live capture.
pub struct CaptureRequest {
    /// Processes to capture.
    pub target: Target,
    /// Sampling options.
    pub sampling: SamplingRequest,
    /// Symptom for which it is, if one was named.
    pub symptom: Option<Symptom>,
    /// Whether to sample CPUs. Without samples, the capture only follows processes.
    pub samples: bool,
    /// Whether to read what the threads of named processes do when the capture ends.
    pub threads: bool,
    /// Part of a CPU that following the waits of threads may take, from 0 to 1. `None` if they are not followed.
    pub off_cpu: Option<f64>,
    /// Events of the CPU and the kernel to count.
    pub counters: Vec<CounterEvent>,
    /// Whether to follow the requests to block devices.
    pub block_io: bool,
    /// Whether to follow the TCP connections.
    pub connections: bool,
    /// Whether to sample who wakes the threads.
    pub wakeups: bool,
    /// Limit on the size of its files and of the trace.
    pub disk: DiskBudget,
    /// Searches debug files for unwind information.
    pub symbolizer: Arc<Symbolizer>,
    /// Time limit; without one, a signal or the end of the target ends the capture.
    pub limit: Option<Duration>,
}

/// Progress of a running capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Time since the start of sampling.
    pub elapsed: Duration,
    /// Samples of the target.
    pub samples: u64,
    /// Records and samples that the kernel dropped.
    pub lost: u64,
    /// Length of the spool.
    pub bytes: u64,
    /// Size of the files of the event streams, which are compressed.
    pub event_bytes: u64,
    /// Number of .NET processes that wait for their event sessions.
    pub waiting_processes: usize,
    /// First process whose runtime lists its methods (a rundown), because the permission to read
    /// its memory is missing. This may crash processes of .NET 9 and 10.
    pub rundown_of: Option<Pid>,
}

/// Runs a capture to its end. [`StoppedCapture::read`] reads it back.
///
/// The spool must be an empty file. `events` requests events of .NET runtimes. The capture calls
/// `report` at each read of the ring buffers, at least every 25 ms.
///
/// # Errors
/// Returns an error if the target does not exist, sampling cannot start, or the spool cannot be
/// written.
pub fn run(
    request: &CaptureRequest,
    events: Option<EventRequest>,
    spool: &File,
    signals: &Signals,
    mut report: impl FnMut(Progress),
) -> Result<StoppedCapture, CaptureError> {
    request.target.check()?;
    let mut notices = Vec::new();
    // Nobody would read the ring buffers meanwhile.
    let (limit_groups, limits_unread) = LimitGroups::find(&request.target, signals).into_parts();
    notices.extend(limits_unread);
    let wakeups = request.wakeups.then(Wakeups::find);
    let wakeups = wakeups.and_then(|found| found.map_err(|why| notices.push(why)).ok());
    let mut sampling = request.sampling;
    sampling.wakeups = wakeups.as_ref().map(Wakeups::tracepoint);
    if !matches!(request.target, Target::Command(_)) {
        process_limits::raise_limits();
    }
    let mut session = PerfSession::open(&sampling, request.target.scope())?;
    let header = header(request, &session);
    let weight = Weight::new(&session, &header.info);
    let choice = match (&request.target, &events) {
        (Target::SystemWide, Some(events)) if events.is_chosen || !request.samples => {
            SessionChoice::All
        }
        (Target::SystemWide, _) => SessionChoice::Running,
        _ => SessionChoice::Named,
    };
    // Processes that the user named may take all of it.
    let user_limit = match &request.target {
        Target::SystemWide => request.disk.events_of_user(),
        _ => None,
    };
    let events = EventSessions::new(events, choice, session.cpus() as u64, user_limit);
    let mut engine = Engine::new(&request.target, weight, spool, &header)
        .with_symbolizer(&request.symbolizer)
        .with_events(events)
        .with_wakeups(wakeups);
    if let Some(error) = engine.spool_error() {
        return Err(CaptureError::SpoolStart(error));
    }
    let mut woken_threads = sampling
        .wakeups
        .and_then(|_| WokenThreads::before_start(&request.target));
    session.start_tracking()?;
    if !matches!(request.target, Target::Command(_)) {
        session.attach(&header.info.target, || request.target.threads())?;
        engine.start(None)?;
    }
    if let Some(woken) = &woken_threads
        && let Ok(filter) = CString::new(woken.filter(&engine.threads()))
    {
        session.filter_wakeups(filter);
    }
    let cpus = session.cpu_ids();
    let mut counting = Counting::start(&request.target, &request.counters, &cpus);
    let block_io = request.block_io.then(|| BlockIoCapture::start(&cpus));
    let mut block_io = block_io.and_then(|started| started.map_err(|why| notices.push(why)).ok());
    let connections = request.connections.then(|| {
        let is_whole = request.target == Target::SystemWide;
        ConnectionCapture::start(engine.processes(), is_whole, &cpus)
    });
    let mut connections =
        connections.and_then(|started| started.map_err(|why| notices.push(why)).ok());
    let off_cpu = request.off_cpu.map(|share| {
        let named = !matches!(request.target, Target::SystemWide);
        OffCpu::prepare(named.then(|| engine.processes()), share)
    });
    let mut off_cpu = off_cpu.and_then(|listed| listed.map_err(|why| notices.push(why)).ok());
    if request.samples {
        session.start_sampling()?;
    }
    engine.start_events();
    let mut sample_rate = SampleRate::new(request.sampling.frequency_hz);
    let (started, start_unix_ns) = (perf::now(), unix_ns());
    if let Some(off_cpu) = &mut off_cpu {
        off_cpu.start(started);
        let granted = session.granted();
        // Where samples are missing, CPU time would count as waiting.
        if request.samples && granted.system_wide && granted.kernel {
            engine.follow_lives(started);
        }
    }
    let mut waits = CpuWaits::start(limit_groups, &engine.processes());
    let mut memory = MemoryUse::start(&engine.processes());
    let clock = Instant::now();
    let mut disk = DiskWatch::new(request.disk, spool);
    let mut command = match &request.target {
        Target::Command(words) => {
            let command = Command::spawn(words, signals)?;
            process_limits::raise_limits();
            engine.start(Some(command.pid()))?;
            counting.set_command(command.pid());
            Some(command)
        }
        _ => None,
    };
    // This follows the start of the command, which must not inherit it.
    let mut priority = Priority::raise();

    let end = loop {
        let left = request
            .limit
            .map(|limit| limit.saturating_sub(clock.elapsed()));
        let previews = engine.needs_previews(perf::now());
        let tick = match previews || engine.is_waiting() {
            true => SHORT_TICK,
            false => TICK,
        };
        let at_most = left.map_or(tick, |left| left.min(tick));
        if let Err(error) = wait(
            &session,
            block_io
                .iter()
                .flat_map(BlockIoCapture::wake_fds)
                .chain(connections.iter().flat_map(ConnectionCapture::wake_fds)),
            signals,
            command.as_ref(),
            at_most,
        ) {
            break End::Wait(error.to_string());
        }
        priority.follow();
        session.follow_cpus(|| engine.threads());
        if woken_threads
            .as_mut()
            .is_some_and(WokenThreads::is_outdated)
        {
            woken_threads = None;
            let opened = session.unfilter_wakeups();
            notices.extend(opened.err().map(|error| WokenThreads::notice(&error)));
        }
        sample_rate.follow(perf::now());
        engine.set_may_wait(session.has_room());
        let flush_limit = session.drain(|time, record| {
            priority.follow();
            engine.record_or_wait(time, &record)
        });
        if previews {
            session.preview(|record| engine.preview(record));
        }
        engine.tick(flush_limit, session.malformed(), session.late());
        session.adapt_copies(engine.take_deepest());
        waits.follow(|| engine.processes());
        memory.follow(|| engine.processes());
        if let Some(block_io) = &mut block_io {
            block_io.follow(flush_limit, |pid| engine.includes(pid));
        }
        if let Some(connections) = &mut connections {
            connections.follow(
                flush_limit,
                |pid| engine.includes(pid),
                || engine.processes(),
            );
        }
        if let Some(off_cpu) = &mut off_cpu {
            off_cpu.follow(engine.processes());
            off_cpu.watch(engine.take_new_threads());
            off_cpu.ticks(flush_limit, |tick| engine.look(tick));
            off_cpu.paying(|| engine.add_unseen_threads(flush_limit));
        }
        let (samples, bytes, events) = (engine.samples(), engine.bytes(), engine.event_size());
        report(Progress {
            elapsed: clock.elapsed(),
            samples,
            lost: engine.lost(),
            bytes,
            event_bytes: events.stored,
            waiting_processes: engine.waiting_processes(),
            rundown_of: engine.first_denied(),
        });
        if signals.ends_capture() {
            break End::Signal;
        }
        if let Some(status) = command.as_mut().and_then(Command::ended) {
            break End::Command(status);
        }
        if left.is_some_and(|left| left.is_zero()) {
            break End::Limit;
        }
        if command.is_none() && engine.target_gone() {
            break End::TargetGone;
        }
        if engine.is_exhausted() {
            // If a full disk is the cause, `read_back` reports it: the error may occur with the
            // last block.
            break End::Spool("it holds the maximum number of stacks".into());
        }
        if let Some(why) = engine.stream_error() {
            break End::Events(why);
        }
        let stored = Stored {
            samples: samples + engine.other_samples(),
            waits: engine.waits(),
            received: events.received,
            files: bytes + events.stored,
        };
        if let Some(no_space) = disk.check(&stored) {
            notices.push(no_space.notice());
            break End::DiskSpace(no_space.why);
        }
    };
    if end == End::Signal && signals.pending() {
        signals.take();
    }
    // The recorded data is worth more than a clean stop. Closing the events below ends sampling
    // too.
    let _ = session.stop();
    let lacks_hardware = counting.lacks_hardware();
    let (counters, counting) = counting.end();
    block_io.iter().for_each(BlockIoCapture::stop);
    connections.iter().for_each(ConnectionCapture::stop);
    engine.end_recording();
    let ended = perf::now();
    let pressure = waits.end(&engine.processes());
    let memory = memory.end(&engine.processes());
    drop(priority);
    if let Some(off_cpu) = &mut off_cpu {
        off_cpu.end();
    }
    // All processes of the machine have too many.
    let named = match request.target {
        Target::Pids(_) | Target::Command(_) if request.threads => engine.processes(),
        _ => Vec::new(),
    };
    let (snapshot, lacks_threads) = match named.is_empty() {
        true => (None, None),
        false => snapshot::at_end(named, &request.symbolizer, signals),
    };
    notices.extend(lacks_threads);
    session.drain_all(|time, record| engine.record(time, &record));
    let block_io = block_io.map(|block_io| block_io.finish(|pid| engine.includes(pid)));
    let connections = connections.map(|connections| {
        let (connections, lacks) = connections.finish(ended, |pid| engine.includes(pid));
        notices.extend(lacks);
        connections
    });
    if let Some(off_cpu) = off_cpu {
        notices.extend(off_cpu.finish(ended, |tick| engine.look(tick)));
        engine.add_unseen_threads(Nanos(u64::MAX));
    }
    engine.finish_sessions(|| signals.pending());
    if end != End::Signal && signals.pending() {
        // It asked for an end that had just come, not for an end of the work that follows.
        signals.take();
    }
    engine.tick(ended, session.malformed(), session.late());
    engine.reconcile(&session.lost());
    // One notice is enough about counters that the machine lacks.
    let is_known = |notice: &Notice| lacks_hardware && notice.kind == NoticeKind::NoHardwareCycles;
    notices.extend(
        session
            .notices()
            .into_iter()
            .filter(|notice| !is_known(notice)),
    );
    notices.extend(counting);
    notices.extend(sample_rate.notice(started));
    notices.extend(engine.notices());
    let granted = session.granted();
    drop(session);
    let info = CaptureInfo {
        start_ns: started.0,
        start_unix_ns,
        end_ns: ended.0,
        collector_cpu_ms: usage::cpu_time().as_secs_f64() * 1e3,
        collector_peak_kib: usage::peak_memory_kib(),
        cpu_pressure: Some(pressure),
        memory,
        counters,
        block_io,
        connections,
        end: end.to_string(),
        ..header.info
    };
    let results = Header {
        info,
        notices: notices.clone(),
        ..header
    };
    engine.put_results(&results);
    let (spooled, machine) = engine.finish(ended);
    let status = command.as_mut().and_then(|command| match &end {
        // Ctrl-C in a terminal goes to the command too, which may take a moment to end.
        End::Signal => command.ended_within(GRACE),
        _ => command.ended(),
    });
    let end = match (end, status) {
        (End::Signal | End::Limit, Some(command)) => End::Command(command.after_capture()),
        (end, _) => end,
    };
    let still_runs = !matches!(end, End::Command(_));
    let command = command.filter(|_| still_runs);
    notices.extend(command.map(|command| {
        let pid = command.pid();
        let what = format!("the command still runs as process {pid}");
        Notice::new(NoticeKind::CommandStillRuns, what, "").about(pid)
    }));
    Ok(StoppedCapture {
        spooled,
        machine,
        info: results.info,
        granted,
        end,
        notices,
        snapshot,
    })
}

fn unix_ns() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    since_1970.map_or(0, |since| since.as_nanos() as u64)
}

/// Creates the header of the spool.
fn header(request: &CaptureRequest, session: &PerfSession) -> Header {
    let host = rustix::system::uname();
    Header {
        info: CaptureInfo {
            version: env!("CARGO_PKG_VERSION").into(),
            host: host.nodename().to_string_lossy().into(),
            kernel: host.release().to_string_lossy().into(),
            arch: host.machine().to_string_lossy().into(),
            cpus: session.cpus() as u32,
            event: session.clock().name().into(),
            period_ns: request.sampling.period_ns(),
            start_ns: perf::now().0,
            end_ns: 0,
            start_unix_ns: unix_ns(),
            target: request
                .target
                .to_string()
                .chars()
                .take(MAX_TARGET_CHARS)
                .collect(),
            system_wide: request.target == Target::SystemWide,
            symptom: request.symptom,
            end: String::new(),
            collector_cpu_ms: 0.0,
            collector_peak_kib: 0,
            callers: Callers::All,
            counts_time: None,
            cpu_pressure: None,
            memory: Vec::new(),
            counters: None,
            block_io: None,
            connections: None,
        },
        collector: std::process::id() as i32,
        boot_id: machine::boot_id(),
        notices: session.notices(),
    }
}

/// Sleeps until a ring buffer fills up, a signal arrives, the command ends or the time is over.
fn wait<'a>(
    session: &'a PerfSession,
    tracepoints: impl Iterator<Item = BorrowedFd<'a>>,
    signals: &'a Signals,
    command: Option<&'a Command>,
    at_most: Duration,
) -> io::Result<()> {
    let others = [Some(signals.as_fd()), command.and_then(Command::end_fd)];
    let fds: Vec<BorrowedFd<'_>> = session
        .wake_fds()
        .chain(tracepoints)
        .chain(others.into_iter().flatten())
        .collect();
    let mut polls: Vec<_> = fds
        .iter()
        .map(|fd| PollFd::new(fd, PollFlags::IN))
        .collect();
    let timeout = Timespec {
        tv_sec: at_most.as_secs() as i64,
        tv_nsec: i64::from(at_most.subsec_nanos()),
    };
    match rustix::event::poll(&mut polls, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
