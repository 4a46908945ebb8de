//! A recording of perf's as a capture: its records take the road of those of a live one.

use std::collections::BTreeMap;
use std::io::{self, PipeWriter, Read};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::thread;

use perf_event_open_sys::bindings as sys;
use rustc_hash::FxHashSet;

use super::engine::{Engine, Weight};
use super::{Capture, CaptureError, End, MAX_TARGET_CHARS, Progress, Target, usage};
use crate::machine::{Machine, Recorded};
use crate::output::sanitize::shell_word;
use crate::perf::{Record, SampleRecord};
use crate::perf_data::{
    About, Attribute, EventGroup, EventSource, KernelMapping, Reader, kernel_gone,
};
use crate::trace::{Callers, CaptureInfo, Cpu, Header, Nanos, Notice, Pid, Recording, Tid};

/// Records between two looks at what there is to tell.
const PACE: u64 = 4096;
/// What a sample of an event counts that says nothing of time.
const NOMINAL_NS: u64 = 1_000_000;
/// Events that are named as left out.
const MAX_OTHERS: usize = 16;
/// `PERF_COUNT_SW_DUMMY`: an event that never samples.
const DUMMY: (u32, u64) = (1, 9);

/// What a conversion takes besides the recording.
pub struct Conversion {
    /// Finds the files that the recording names.
    pub recorded: Recorded,
    /// The kernel's functions, if not this kernel's own.
    pub kallsyms: Option<PathBuf>,
    /// The event whose samples are wanted, see [`EventGroup::find`]; `None`: the one that tells best where time went.
    pub event: Option<String>,
}

/// Takes in a whole recording. What a capture has in a file goes through a pipe here, to be read while it is written.
///
/// # Errors
/// There is no such event, or no pipe.
pub fn convert<R: Read>(
    reader: Reader<R>,
    conversion: Conversion,
    report: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<Capture, CaptureError> {
    let (spooled, spool) =
        io::pipe().map_err(|error| CaptureError::SpoolBegin(error.to_string()))?;
    thread::scope(|scope| {
        let reading = scope.spawn(|| Recording::read(spooled));
        let converted = spool_out(reader, conversion, spool, report)?;
        let recording = match reading.join() {
            Ok(recording) => recording?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Ok(converted.capture(recording))
    })
}

/// What a recording has besides what goes to the spool.
struct Converted {
    machine: Machine,
    info: CaptureInfo,
    notices: Vec<Notice>,
    kernel_gone: Option<String>,
    kallsyms: Option<PathBuf>,
}

impl Converted {
    fn capture(self, recording: Recording) -> Capture {
        let end = End::Recorded;
        let mut capture = Capture::new(recording, self.machine, self.info, end);
        capture.info.end = capture.end.to_string();
        capture.notices.extend(self.notices);
        capture.kernel_gone = self.kernel_gone;
        capture.kallsyms = self.kallsyms;
        capture
    }
}

fn spool_out<R: Read>(
    mut reader: Reader<R>,
    mut conversion: Conversion,
    spool: PipeWriter,
    mut report: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<Converted, CaptureError> {
    let about = &reader.about;
    let wanted = wanted_events(about, conversion.event.as_deref())?;
    let event = first_event(about, &wanted)?;
    let (weight, period_ns) = weight(event);
    conversion
        .recorded
        .learn(&about.host, &about.release, &about.build_ids);
    let header = Header {
        info: info(about, &wanted, event, period_ns),
        collector: std::process::id() as i32,
        boot_id: String::new(),
        notices: Vec::new(),
    };
    let mut import = Import {
        engine: Engine::on(
            Machine::recorded(conversion.recorded),
            &Target::Machine,
            weight,
            spool,
            &header,
        ),
        wanted,
        nominal_period: event.period,
        callers: event.callers(),
        periods: None,
        has_times: event.has(sys::PERF_SAMPLE_TIME),
        begin: None,
        end: Nanos(0),
        idle: 0,
        of_others: BTreeMap::new(),
        counts_losses: event.counts_losses(),
        lost: 0,
        has_nobody: false,
        kernel: None,
    };
    if let Some(error) = import.engine.spool_error() {
        return Err(CaptureError::SpoolBegin(error));
    }
    let started = std::time::Instant::now();
    let mut records = 0_u64;
    reader.each(|_, entry| {
        import.take(entry.time, entry.event, &entry.record);
        records += 1;
        if !records.is_multiple_of(PACE) {
            return ControlFlow::Continue(());
        }
        import.engine.tick(import.end, 0, 0);
        if import.engine.is_stuck() {
            return ControlFlow::Break(());
        }
        report(Progress {
            elapsed: started.elapsed(),
            samples: import.engine.samples(),
            lost: import.engine.lost(),
            bytes: import.engine.bytes(),
            event_bytes: 0,
        })
    });
    import.finish(&reader, header.info, conversion.kallsyms)
}

/// The recording on its way.
struct Import<'a> {
    engine: Engine<'a, PipeWriter>,
    wanted: EventGroup,
    nominal_period: u64,
    callers: Callers,
    /// The least and the most that samples count.
    periods: Option<(u64, u64)>,
    has_times: bool,
    begin: Option<Nanos>,
    end: Nanos,
    /// Samples of CPUs that had nothing to do.
    idle: u64,
    /// Samples of running processes and other events, by event.
    of_others: BTreeMap<usize, u64>,
    /// Whether the kernel counted what it dropped (`PERF_FORMAT_LOST`), and how much that was.
    counts_losses: bool,
    lost: u64,
    /// Whether there are samples of threads that were gone.
    has_nobody: bool,
    /// The kernel's own mapping.
    kernel: Option<KernelMapping>,
}

impl Import<'_> {
    fn take(&mut self, time: Nanos, event: usize, record: &Record<'_>) {
        if time.0 > 0 {
            self.begin.get_or_insert(time);
            self.end = self.end.max(time);
        }
        match record {
            // perf's own count at the end, in which those are that the records of losses tell of.
            Record::LostSamples { samples, .. } if self.counts_losses => {
                self.lost = self.lost.saturating_add(*samples);
            }
            Record::Sample(sample) if sample.pid.0 == 0 && sample.tid.0 == 0 => {
                self.idle += u64::from(self.wanted.members.contains(&event));
            }
            Record::Sample(_) if !self.wanted.members.contains(&event) => {
                *self.of_others.entry(event).or_default() += 1;
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
                    self.name_nobody(time);
                    (sample.pid, sample.tid) = (Pid::NOBODY, Tid(Pid::NOBODY.0));
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

    /// Samples of threads that were gone already have a process of their own, with the name that perf prints.
    fn name_nobody(&mut self, time: Nanos) {
        if !std::mem::replace(&mut self.has_nobody, true) {
            let name = Record::Comm {
                pid: Pid::NOBODY,
                tid: Tid(Pid::NOBODY.0),
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
        let untold = self.lost.saturating_sub(self.engine.lost());
        if untold > 0 {
            let record = Record::LostSamples {
                samples: untold,
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
        let about = &reader.about;
        let begin = self.begin.unwrap_or_default();
        let start_unix_ns = about.clock.map_or(0, |clock| {
            let since = begin.0.wrapping_sub(clock.record_ns);
            clock.unix_ns.wrapping_add(since)
        });
        let info = CaptureInfo {
            start_ns: begin.0,
            start_unix_ns,
            end_ns: self.end.0,
            collector_cpu_ms: usage::cpu_time().as_secs_f64() * 1e3,
            collector_peak_kib: usage::peak_memory_kib(),
            ..info
        };
        let kernel_gone = kernel_gone(about, self.kernel.as_ref(), kallsyms.as_deref());
        // All of it is in the pipe, unless its reader has found damage, which it tells.
        let (_, machine) = self.engine.finish(self.end);
        Ok(Converted {
            machine,
            info,
            notices,
            kernel_gone,
            kallsyms,
        })
    }

    /// Samples of running processes that other events have, by the name of their group.
    fn others(&self, about: &About) -> Vec<(String, u64)> {
        let groups = EventGroup::all(about).into_iter();
        let counted = groups.map(|group| {
            let members = group.members.iter();
            let samples = members.filter_map(|event| self.of_others.get(event)).sum();
            (group.name, samples)
        });
        counted.filter(|(_, samples)| *samples > 0).collect()
    }

    fn no_samples<R: Read>(&self, reader: &Reader<R>) -> CaptureError {
        let damage = reader.damage.as_ref();
        CaptureError::NoSamples {
            event: self.wanted.name.clone(),
            others: self.others(&reader.about),
            idle: self.idle,
            hardware_trace: reader.hardware_trace(),
            lost: self.engine.lost(),
            damage: damage.map_or_else(String::new, |(at, why)| {
                format!(" (the recording is damaged: {why}; its records up to byte {at} were read)")
            }),
        }
    }

    /// That samples count alike which stand for different numbers of events.
    fn uneven_weights(&self, info: &CaptureInfo) -> Option<Notice> {
        let (least, most) = self.periods.filter(|_| !info.is_of_time())?;
        (least < most).then(|| {
            let name = &self.wanted.name;
            let what = format!(
                "each sample of {name} counts once, but stands for {least} to {most} events, by which `perf report` weighs it"
            );
            Notice::new(what, "record with `perf record -c COUNT`, so that all stand for as many")
        })
    }

    fn notices<R>(&self, reader: &Reader<R>, info: &CaptureInfo) -> Vec<Notice>
    where
        R: Read,
    {
        let mut notices = Vec::new();
        let mut say = |what: String| notices.push(Notice::new(what, ""));
        if let Some((at, why)) = &reader.damage {
            say(format!(
                "the recording is damaged: {why}; its records up to byte {at} are here"
            ));
        }
        if let Some(trace) = reader.hardware_trace() {
            say(format!("{trace} were left out"));
        }
        if reader.without_user_callers() > 0 {
            say(format!(
                "{} samples lack their callers in user space: their threads did not return there while perf recorded",
                reader.without_user_callers()
            ));
        }
        if self.idle > 0 {
            say(format!("{} samples of idle CPUs were left out", self.idle));
        }
        notices.extend(left_out(&self.others(&reader.about)));
        notices.extend(one_of_several(&reader.about, &self.wanted));
        notices.extend(missing_callers(
            self.callers,
            &self.wanted.name,
            &reader.about,
        ));
        notices.extend(self.uneven_weights(info));
        if !self.has_times {
            notices.push(Notice::new(
                "the recording has no times: all samples are at one moment",
                "record with `perf record -T`",
            ));
        }
        notices
    }
}

/// What is told of the samples that other events have.
pub(crate) fn left_out(others: &[(String, u64)]) -> Vec<Notice> {
    let (named, more) = others.split_at(others.len().min(MAX_OTHERS));
    let named = named.iter().map(|(name, samples)| {
        Notice::new(
            format!("{samples} samples of the event {name} were left out"),
            format!("choose it with -event {}", shell_word(name)),
        )
    });
    let more = (!more.is_empty()).then(|| {
        let samples: u64 = more.iter().map(|(_, samples)| samples).sum();
        let events = more.len();
        Notice::new(
            format!("{samples} samples of {events} more events were left out"),
            "",
        )
    });
    named.chain(more).collect()
}

/// Reports that events of several kinds of CPUs are converted as one.
pub(crate) fn one_of_several(about: &About, wanted: &EventGroup) -> Option<Notice> {
    let EventGroup { name, members } = wanted;
    let names: Vec<_> = members
        .iter()
        .map(|&event| about.events[event].name.as_str())
        .collect();
    (names.len() > 1).then(|| {
        let what = format!(
            "{} are converted as one event, {name}: they count the same on different CPUs",
            names.join(" and ")
        );
        Notice::new(what, "")
    })
}

/// What the user should know of stacks that lack callers everywhere.
fn missing_callers(callers: Callers, event: &str, about: &About) -> Option<Notice> {
    let has_callers = |group: &EventGroup| {
        let first = first_event(about, group);
        first.is_ok_and(|event| event.callers() == Callers::All)
    };
    let groups = EventGroup::all(about).into_iter();
    let other = groups.filter(has_callers).map(|group| group.name).next();
    match callers {
        Callers::None if let Some(other) = other => Some(Notice::new(
            format!(
                "samples of {event} have no callchains: each is one address, without its callers"
            ),
            format!(
                "those of {other} have them: choose it with -event {}",
                shell_word(&other)
            ),
        )),
        Callers::All | Callers::AsPrinted => None,
        Callers::Kernel => Some(Notice::new(
            "the recording has callers in the kernel only",
            "record without `--kernel-callchains` to see callers in user space too",
        )),
        Callers::None => Some(Notice::new(
            "the recording has no callchains: each sample is one address, without its callers",
            "record with `perf record -g`, or with `--call-graph dwarf` where code has no frame pointers",
        )),
    }
}

/// The events whose samples make the trace: those of a name, see [`EventGroup::find`], or those that measure CPU time best.
pub(crate) fn wanted_events(about: &About, name: Option<&str>) -> Result<EventGroup, CaptureError> {
    if let Some(name) = name {
        return EventGroup::find(about, name).ok_or_else(|| {
            let groups = EventGroup::all(about).into_iter().map(|group| group.name);
            let events = about.events.iter().map(|event| event.name.clone());
            let mut names: Vec<_> = groups.chain(events).collect();
            let mut known = FxHashSet::default();
            names.retain(|name| known.insert(name.clone()));
            CaptureError::NoEvent {
                wanted: name.into(),
                names: names.join(", "),
            }
        });
    }
    let rank = |group: &EventGroup| match first_event(about, group) {
        Ok(event) if (event.kind, event.config) == DUMMY => 3,
        Ok(event) => match event.source() {
            EventSource::Time => 0,
            EventSource::Other => 1,
            EventSource::Tracepoint(_) => 2,
        },
        Err(_) => 4,
    };
    let groups = EventGroup::all(about).into_iter();
    groups.min_by_key(rank).ok_or(CaptureError::NoEvents)
}

/// What all events of a group have in common is as in the first.
fn first_event<'a>(about: &'a About, group: &EventGroup) -> Result<&'a Attribute, CaptureError> {
    let first = group.members.first().and_then(|&at| about.events.get(at));
    first.ok_or(CaptureError::NoEvents)
}

/// What a sample stands for, and the nominal time between two.
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

fn info(about: &About, wanted: &EventGroup, event: &Attribute, period_ns: u64) -> CaptureInfo {
    let target: String = about.command_line.join(" ");
    CaptureInfo {
        version: env!("CARGO_PKG_VERSION").into(),
        host: about.host.clone(),
        kernel: about.release.clone(),
        machine: about.machine.clone(),
        cpus: about.cpus,
        event: wanted.name.clone(),
        callers: event.callers(),
        of_time: (event.source() == EventSource::Time).then_some(true),
        period_ns,
        target: target.chars().take(MAX_TARGET_CHARS).collect(),
        ..CaptureInfo::default()
    }
}
