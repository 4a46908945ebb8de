//! Import of a perf.data recording: its records take the same path as those of a live capture.

use std::collections::BTreeMap;
use std::io::{self, PipeWriter, Read};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use perf_event_open_sys::bindings as sys;
use perfcollect_symbols::symbolizer::Symbolizer;
use rustc_hash::FxHashSet;

use super::engine::Engine;
use super::weight::Weight;
use super::{Capture, CaptureError, End, MAX_TARGET_CHARS, Progress, Target, usage};
use crate::machine::{Machine, RecordingFiles};
use crate::output::sanitize::shell_word;
use crate::perf::{Record, SampleRecord};
use crate::perf_data::{
    Attribute, EventGroup, EventSource, KernelMapping, Reader, RecordingInfo, kernel_mismatch,
};
use crate::trace::{
    Callers, CaptureInfo, Cpu, Header, Nanos, Notice, NoticeKind, Pid, RawTrace, Samples, Tid,
};

/// Number of records between two reports of the progress.
const REPORT_RECORDS: u64 = 4096;
/// Nominal weight of a sample whose event does not count time.
const NOMINAL_NS: u64 = 1_000_000;
/// Maximum number of other events listed in notices.
const MAX_LISTED: usize = 16;
/// `PERF_COUNT_SW_DUMMY`: an event that never samples.
const DUMMY: (u32, u64) = (1, 9);

/// Options of an import.
pub struct ConvertRequest {
    /// Files that the recording refers to.
    pub recorded: RecordingFiles,
    /// Symbols of the recorded kernel, if it is not the running one.
    pub kallsyms: Option<PathBuf>,
    /// Event whose samples to import, see [`EventGroup::find`].
    ///
    /// If this is `None`, the import chooses the event that best measures CPU time.
    pub event: Option<String>,
    /// Searches debug files for unwind information.
    pub symbolizer: Arc<Symbolizer>,
    /// Empty list to fill.
    pub samples: Samples,
}

/// Imports a whole recording.
///
/// A pipe replaces the spool file of a live capture, so the spool is read while it is written.
///
/// # Errors
/// Returns an error if the recording has no such event or no samples, or if the pipe fails.
pub fn convert<R: Read>(
    reader: Reader<R>,
    mut request: ConvertRequest,
    report: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<Capture, CaptureError> {
    let samples = std::mem::take(&mut request.samples);
    let (spooled, spool) =
        io::pipe().map_err(|error| CaptureError::SpoolStart(error.to_string()))?;
    thread::scope(|scope| {
        let reading = scope.spawn(|| RawTrace::read_into(samples, spooled));
        let converted = spool_out(reader, request, spool, report)?;
        let recording = match reading.join() {
            Ok(recording) => recording?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Ok(converted.capture(recording))
    })
}

/// Data of an import that does not pass through the spool.
struct Converted {
    machine: Machine,
    info: CaptureInfo,
    notices: Vec<Notice>,
    kernel_mismatch: Option<String>,
    kallsyms: Option<PathBuf>,
}

impl Converted {
    fn capture(self, recording: RawTrace) -> Capture {
        let end = End::Recorded;
        let mut capture = Capture::new(recording, self.machine, self.info, end);
        capture.info.end = capture.end.to_string();
        capture.notices.extend(self.notices);
        capture.kernel_mismatch = self.kernel_mismatch;
        capture.kallsyms = self.kallsyms;
        capture
    }
}

fn spool_out<R: Read>(
    mut reader: Reader<R>,
    mut request: ConvertRequest,
    spool: PipeWriter,
    mut report: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<Converted, CaptureError> {
    let recording = &reader.info;
    let group = choose_events(recording, request.event.as_deref())?;
    let event = first_event(recording, &group)?;
    let (weight, period_ns) = weight(event);
    request
        .recorded
        .set_origin(&recording.host, &recording.release, &recording.build_ids);
    let header = Header {
        info: info(recording, &group, event, period_ns),
        collector: std::process::id() as i32,
        boot_id: String::new(),
        notices: Vec::new(),
    };
    let mut import = Import {
        engine: Engine::for_machine(
            Machine::recorded(request.recorded),
            &Target::SystemWide,
            weight,
            spool,
            &header,
        )
        .with_symbolizer(&request.symbolizer),
        group,
        nominal_period: event.period,
        callers: event.callers(),
        periods: None,
        has_times: event.has(sys::PERF_SAMPLE_TIME),
        start: None,
        end: Nanos(0),
        idle: 0,
        other_samples: BTreeMap::new(),
        counts_losses: event.counts_losses(),
        lost: 0,
        has_exited_threads: false,
        kernel: None,
    };
    if let Some(error) = import.engine.spool_error() {
        return Err(CaptureError::SpoolStart(error));
    }
    let started = std::time::Instant::now();
    let mut records = 0_u64;
    reader.each(|_, entry| {
        import.take(entry.time, entry.event, &entry.record);
        records += 1;
        if !records.is_multiple_of(REPORT_RECORDS) {
            return ControlFlow::Continue(());
        }
        import.engine.tick(import.end, 0, 0);
        if import.engine.is_exhausted() {
            return ControlFlow::Break(());
        }
        report(Progress {
            elapsed: started.elapsed(),
            samples: import.engine.samples(),
            lost: import.engine.lost(),
            bytes: import.engine.bytes(),
            event_bytes: 0,
            waiting_processes: 0,
            rundown_of: None,
        })
    });
    import.finish(&reader, header.info, request.kallsyms)
}

/// A running import.
struct Import<'a> {
    engine: Engine<'a, PipeWriter>,
    group: EventGroup,
    nominal_period: u64,
    callers: Callers,
    /// Minimum and maximum period of the samples.
    periods: Option<(u64, u64)>,
    has_times: bool,
    start: Option<Nanos>,
    end: Nanos,
    /// Number of samples of idle CPUs.
    idle: u64,
    /// Number of samples of running processes, by other event.
    other_samples: BTreeMap<usize, u64>,
    /// Whether perf recorded the kernel's count of losses (`PERF_FORMAT_LOST`), and that count.
    counts_losses: bool,
    lost: u64,
    /// Whether there are samples of threads that had already exited.
    has_exited_threads: bool,
    /// The kernel's own mapping.
    kernel: Option<KernelMapping>,
}

impl Import<'_> {
    fn take(&mut self, time: Nanos, event: usize, record: &Record<'_>) {
        if time.0 > 0 {
            self.start.get_or_insert(time);
            self.end = self.end.max(time);
        }
        match record {
            // perf's own count at the end, which includes the losses that records report.
            Record::LostSamples { samples, .. } if self.counts_losses => {
                self.lost = self.lost.saturating_add(*samples);
            }
            Record::Sample(sample) if sample.pid.0 == 0 && sample.tid.0 == 0 => {
                self.idle += u64::from(self.group.members.contains(&event));
            }
            Record::Sample(_) if !self.group.members.contains(&event) => {
                *self.other_samples.entry(event).or_default() += 1;
            }
            Record::Sample(sample) => {
                let period = match sample.period {
                    0 => self.nominal_period,
                    period => period,
                };
                let (least, most) = self.periods.unwrap_or((period, period));
                self.periods = Some((least.min(period), most.max(period)));
                let mut sample = SampleRecord { period, ..*sample };
                if sample.pid.0 < 0 {
                    self.name_exited_threads(time);
                    (sample.pid, sample.tid) = (Pid::UNKNOWN, Tid(Pid::UNKNOWN.0));
                }
                self.engine.record(time, &Record::Sample(sample));
            }
            Record::Mapping(mapping) if mapping.pid.0 < 0 => {
                if let Some(kernel) = KernelMapping::of(mapping) {
                    self.kernel = Some(kernel);
                }
            }
            record => self.engine.record(time, record),
        }
    }

    /// Creates a process for samples of threads that had already exited, with the name that perf
    /// prints.
    fn name_exited_threads(&mut self, time: Nanos) {
        if !std::mem::replace(&mut self.has_exited_threads, true) {
            let name = Record::Comm {
                pid: Pid::UNKNOWN,
                tid: Tid(Pid::UNKNOWN.0),
                exec: false,
                name: b":-1",
            };
            self.engine.record(time, &name);
        }
    }

    fn finish<R: Read>(
        mut self,
        reader: &Reader<R>,
        info: CaptureInfo,
        kallsyms: Option<PathBuf>,
    ) -> Result<Converted, CaptureError> {
        let unreported = self.lost.saturating_sub(self.engine.lost());
        if unreported > 0 {
            let record = Record::LostSamples {
                samples: unreported,
                cpu: Cpu(0),
            };
            self.engine.record(self.end, &record);
        }
        self.engine.tick(self.end, reader.malformed, reader.late());
        if self.engine.samples() == 0 {
            return Err(self.no_samples(reader));
        }
        let mut notices = self.notices(reader, &info);
        notices.extend(self.engine.notices());
        let recording = &reader.info;
        let start = self.start.unwrap_or_default();
        let start_unix_ns = recording.clock.map_or(0, |clock| {
            let since = start.0.wrapping_sub(clock.record_ns);
            clock.unix_ns.wrapping_add(since)
        });
        let info = CaptureInfo {
            start_ns: start.0,
            start_unix_ns,
            end_ns: self.end.0,
            collector_cpu_ms: usage::cpu_time().as_secs_f64() * 1e3,
            collector_peak_kib: usage::peak_memory_kib(),
            ..info
        };
        let kernel_mismatch = kernel_mismatch(recording, self.kernel.as_ref(), kallsyms.as_deref());
        // The pipe has all rows, unless its reader found corrupt data, which it reports.
        let (_, machine) = self.engine.finish(self.end);
        Ok(Converted {
            machine,
            info,
            notices,
            kernel_mismatch,
            kallsyms,
        })
    }

    /// Returns the number of samples of running processes of each other event, by its group.
    fn others(&self, recording: &RecordingInfo) -> Vec<(String, u64)> {
        let groups = EventGroup::all(recording).into_iter();
        let counted = groups.map(|group| {
            let members = group.members.iter();
            let samples = members
                .filter_map(|event| self.other_samples.get(event))
                .sum();
            (group.name, samples)
        });
        counted.filter(|(_, samples)| *samples > 0).collect()
    }

    fn no_samples<R: Read>(&self, reader: &Reader<R>) -> CaptureError {
        let corruption = reader.corruption.as_ref();
        CaptureError::NoSamples {
            event: self.group.name.clone(),
            others: self.others(&reader.info),
            idle: self.idle,
            hardware_trace: reader.hardware_trace(),
            lost: self.engine.lost(),
            corruption: corruption.map_or_else(String::new, |(at, why)| {
                format!(" (the recording is corrupt: {why}; its records up to byte {at} were read)")
            }),
        }
    }

    /// Notes that samples have equal weights although they represent different event counts.
    fn uneven_weights(&self, info: &CaptureInfo) -> Option<Notice> {
        let (least, most) = self.periods.filter(|_| !info.counts_time())?;
        (least < most).then(|| {
            let name = &self.group.name;
            let what = format!(
                "each sample of {name} counts once, although it represents {least} to {most} events; `perf report` weighs it by that number"
            );
            Notice::new(NoticeKind::UnevenWeights, what, "record with `perf record -c COUNT`, which gives all samples the same period")
                .about(name)
        })
    }

    fn notices<R>(&self, reader: &Reader<R>, info: &CaptureInfo) -> Vec<Notice>
    where
        R: Read,
    {
        let mut notices = Vec::new();
        let mut add = |kind, count: u64, what: String| {
            notices.push(Notice::new(kind, what, "").counting(count));
        };
        if let Some((at, why)) = &reader.corruption {
            add(
                NoticeKind::RecordingCorrupt,
                0,
                format!("the recording is corrupt: {why}; its records up to byte {at} were read"),
            );
        }
        if let Some(trace) = reader.hardware_trace() {
            add(
                NoticeKind::HardwareTraceOmitted,
                0,
                format!("{trace} were left out"),
            );
        }
        if reader.without_user_callers() > 0 {
            add(
                NoticeKind::NoCallers,
                reader.without_user_callers(),
                format!(
                    "{} samples lack their callers in user space: their threads did not return to user space while perf recorded",
                    reader.without_user_callers()
                ),
            );
        }
        if self.idle > 0 {
            add(
                NoticeKind::IdleOmitted,
                self.idle,
                format!("{} samples of idle CPUs were left out", self.idle),
            );
        }
        notices.extend(left_out(&self.others(&reader.info)));
        notices.extend(one_of_several(&reader.info, &self.group));
        notices.extend(missing_callers(
            self.callers,
            &self.group.name,
            &reader.info,
        ));
        notices.extend(self.uneven_weights(info));
        if !self.has_times {
            notices.push(Notice::new(
                NoticeKind::NoTimes,
                "the recording has no times: all samples have the same time",
                "record with `perf record -T`",
            ));
        }
        notices
    }
}

/// Returns the notices about samples of other events.
pub(crate) fn left_out(others: &[(String, u64)]) -> Vec<Notice> {
    let (named, more) = others.split_at(others.len().min(MAX_LISTED));
    let named = named.iter().map(|(name, samples)| {
        Notice::new(
            NoticeKind::EventOmitted,
            format!("{samples} samples of the event {name} were left out"),
            format!("choose it with -event {}", shell_word(name)),
        )
        .about(name)
        .counting(*samples)
    });
    let more = (!more.is_empty()).then(|| {
        let samples: u64 = more.iter().map(|(_, samples)| samples).sum();
        let events = more.len();
        Notice::new(
            NoticeKind::EventOmitted,
            format!("{samples} samples of {events} more events were left out"),
            "",
        )
        .counting(samples)
    });
    named.chain(more).collect()
}

/// Returns a notice that the events of several kinds of CPU are imported as one.
pub(crate) fn one_of_several(info: &RecordingInfo, group: &EventGroup) -> Option<Notice> {
    let EventGroup { name, members } = group;
    let names: Vec<_> = members
        .iter()
        .map(|&event| info.events[event].name.as_str())
        .collect();
    (names.len() > 1).then(|| {
        let what = format!(
            "{} are converted as one event, {name}: they count the same on different CPUs",
            names.join(" and ")
        );
        Notice::new(NoticeKind::EventsMerged, what, "")
            .about(name)
            .counting(names.len())
    })
}

/// Returns the notice about callers that no stack has.
fn missing_callers(callers: Callers, event: &str, recording: &RecordingInfo) -> Option<Notice> {
    let has_callers = |group: &EventGroup| {
        let first = first_event(recording, group);
        first.is_ok_and(|event| event.callers() == Callers::All)
    };
    let groups = EventGroup::all(recording).into_iter();
    let other = groups.filter(has_callers).map(|group| group.name).next();
    match callers {
        Callers::None if let Some(other) = other => Some(Notice::new(
            NoticeKind::NoCallers,
            format!(
                "samples of {event} have no callchains: each is one address, without its callers"
            ),
            format!(
                "samples of {other} have callchains: choose it with -event {}",
                shell_word(&other)
            ),
        )),
        Callers::All | Callers::AsPrinted => None,
        Callers::Kernel => Some(Notice::new(
            NoticeKind::NoCallers,
            "the recording has callers in the kernel only",
            "record without `--kernel-callchains` to see callers in user space too",
        )),
        Callers::None => Some(Notice::new(
            NoticeKind::NoCallers,
            "the recording has no callchains: each sample is one address, without its callers",
            "record with `perf record -g`, or with `--call-graph dwarf` where code has no frame pointers",
        )),
    }
}

/// Returns the events to import: those of a name (see [`EventGroup::find`]), or those that measure CPU time best.
pub(crate) fn choose_events(
    info: &RecordingInfo,
    name: Option<&str>,
) -> Result<EventGroup, CaptureError> {
    if let Some(name) = name {
        return EventGroup::find(info, name).ok_or_else(|| {
            let groups = EventGroup::all(info).into_iter().map(|group| group.name);
            let events = info.events.iter().map(|event| event.name.clone());
            let mut names: Vec<_> = groups.chain(events).collect();
            let mut seen = FxHashSet::default();
            names.retain(|name| seen.insert(name.clone()));
            CaptureError::NoEvent {
                wanted: name.into(),
                names: names.join(", "),
            }
        });
    }
    let rank = |group: &EventGroup| match first_event(info, group) {
        Ok(event) if (event.kind, event.config) == DUMMY => 3,
        Ok(event) => match event.source() {
            EventSource::Time => 0,
            EventSource::Other => 1,
            EventSource::Tracepoint(_) => 2,
        },
        Err(_) => 4,
    };
    let groups = EventGroup::all(info).into_iter();
    groups.min_by_key(rank).ok_or(CaptureError::NoEvents)
}

/// Returns the first event of a group, which represents the properties common to all its events.
fn first_event<'a>(
    recording: &'a RecordingInfo,
    group: &EventGroup,
) -> Result<&'a Attribute, CaptureError> {
    let first = group
        .members
        .first()
        .and_then(|&at| recording.events.get(at));
    first.ok_or(CaptureError::NoEvents)
}

/// Returns the weight of a sample, and the nominal time between two samples.
fn weight(event: &Attribute) -> (Weight, u64) {
    let nominal = match event.by_frequency {
        true => 1_000_000_000 / event.period.max(1),
        false => NOMINAL_NS,
    };
    match event.source() {
        EventSource::Time if event.by_frequency => (Weight::Period, nominal),
        EventSource::Time => (Weight::Period, event.period),
        _ => (Weight::Nominal(Nanos(nominal)), nominal),
    }
}

fn info(
    recording: &RecordingInfo,
    group: &EventGroup,
    event: &Attribute,
    period_ns: u64,
) -> CaptureInfo {
    let target: String = recording.command_line.join(" ");
    CaptureInfo {
        version: env!("CARGO_PKG_VERSION").into(),
        host: recording.host.clone(),
        kernel: recording.release.clone(),
        arch: recording.arch.clone(),
        cpus: recording.cpus,
        event: group.name.clone(),
        callers: event.callers(),
        counts_time: (event.source() == EventSource::Time).then_some(true),
        period_ns,
        target: target.chars().take(MAX_TARGET_CHARS).collect(),
        ..CaptureInfo::default()
    }
}
