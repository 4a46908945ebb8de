//! pprof: `profile.proto`, for `go tool pprof`, Pyroscope, Parca and others.
//!
//! Samples with equal stacks of threads with one name are one. Each function is a location with a name,
//! so that no reader searches for symbols.

use std::io::{self, Write};

use super::calls::{Calls, Code, Counts, count};
use super::modules::Modules;
use super::protobuf::Message;
use super::quality;
use super::tracks::Tracks;
use super::weights::Weights;
use crate::output::short_name::NameStyle;
use crate::trace::{Distinct, Trace};

/// Fields of the messages.
mod field {
    pub(super) const SAMPLE_TYPE: u64 = 1;
    pub(super) const SAMPLE: u64 = 2;
    pub(super) const MAPPING: u64 = 3;
    pub(super) const LOCATION: u64 = 4;
    pub(super) const FUNCTION: u64 = 5;
    pub(super) const STRING: u64 = 6;
    pub(super) const TIME: u64 = 9;
    pub(super) const DURATION: u64 = 10;
    pub(super) const PERIOD_TYPE: u64 = 11;
    pub(super) const PERIOD: u64 = 12;
    pub(super) const COMMENT: u64 = 13;
    pub(super) const DEFAULT_SAMPLE_TYPE: u64 = 14;
}

/// Says that a mapping has names, so that no reader searches for them.
const HAS_FUNCTIONS: u64 = 1;

/// Strings by their index. The first one is empty.
#[derive(Default)]
struct Strings(Distinct<String>);

impl Strings {
    fn index(&mut self, text: impl Into<String>) -> u64 {
        u64::from(self.0.intern(text.into()))
    }

    /// Returns the message of a type of values.
    fn value_type(&mut self, name: &str, unit: &str) -> Message {
        let mut message = Message::default();
        let (name, unit) = (self.index(name), self.index(unit));
        message.number(1, name).number(2, unit);
        message
    }
}

pub(super) fn write(trace: &Trace, names: NameStyle, out: &mut impl Write) -> io::Result<()> {
    let calls = Calls::new(trace, names);
    let mut strings = Strings::default();
    strings.index("");
    out.write_all(header(trace, &mut strings).as_bytes())?;
    write_samples(trace, &calls, &mut strings, out)?;
    write_functions(trace, &calls.codes, &mut strings, out)?;
    for text in strings.0.rows() {
        put(out, field::STRING, text.as_bytes())?;
    }
    Ok(())
}

fn put(out: &mut impl Write, field: u64, bytes: &[u8]) -> io::Result<()> {
    let mut message = Message::default();
    message.bytes(field, bytes);
    out.write_all(message.as_bytes())
}

fn header(trace: &Trace, strings: &mut Strings) -> Message {
    let info = &trace.info;
    let samples = strings.value_type("samples", "count");
    let (default, period_type) = match Weights::new(trace).is_time {
        true => ("cpu", strings.value_type("cpu", "nanoseconds")),
        false => ("samples", strings.value_type(&info.event, "count")),
    };
    let mut profile = Message::default();
    profile.message(field::SAMPLE_TYPE, &samples);
    if Weights::new(trace).is_time {
        profile
            .message(field::SAMPLE_TYPE, &period_type)
            .number(field::PERIOD, info.period_ns);
    }
    profile
        .message(field::PERIOD_TYPE, &period_type)
        .number(field::DEFAULT_SAMPLE_TYPE, strings.index(default))
        .number(field::TIME, info.start_unix_ns)
        .number(field::DURATION, info.duration_ns());
    for line in quality::lines(trace) {
        profile.number(field::COMMENT, strings.index(line));
    }
    profile
}

fn write_samples(
    trace: &Trace,
    calls: &Calls,
    strings: &mut Strings,
    out: &mut impl Write,
) -> io::Result<()> {
    let weights = Weights::new(trace);
    let order = calls.order();
    let keys = ["thread", "process", "pid"].map(|key| strings.index(key));
    let mut sample = Message::default();
    Tracks::thread_names(trace).for_each(|track, samples| {
        let mut labels = [(); 3].map(|()| Message::default());
        let (thread, process) = (strings.index(&*track.name), strings.index(&*track.process));
        labels[0].number(1, keys[0]).number(2, thread);
        labels[1].number(1, keys[1]).number(2, process);
        labels[2].number(1, keys[2]).signed(3, track.pid.into());
        for (node, Counts { samples, weight }) in count(calls, weights, samples.iter(), &order) {
            sample.clear();
            let codes = calls.codes_leaf_first(node);
            sample.numbers(1, codes.map(|code| u64::from(code) + 1));
            match weights.is_time {
                true => sample.numbers(2, [samples, weight]),
                false => sample.numbers(2, [samples]),
            };
            for label in &labels {
                sample.message(3, label);
            }
            put(out, field::SAMPLE, sample.as_bytes())?;
        }
        Ok(())
    })
}

fn write_functions(
    trace: &Trace,
    codes: &[Code],
    strings: &mut Strings,
    out: &mut impl Write,
) -> io::Result<()> {
    let modules = Modules::new(trace, codes);
    let mut message = Message::default();
    for (id, module) in (1..).zip(modules.rows()) {
        let (path, build_id) = (
            strings.index(&*module.path),
            strings.index(&*module.build_id),
        );
        message.clear();
        message
            .number(1, id)
            .number(5, path)
            .number(6, build_id)
            .number(7, HAS_FUNCTIONS);
        put(out, field::MAPPING, message.as_bytes())?;
    }
    for (id, code) in (1..).zip(codes) {
        let module = modules.row(&code.module);
        let mapping = module.map_or(0, |row| row as u64 + 1);
        let name = match code.is_offset {
            true => strings.index(format!("{}+{}", code.module, code.name)),
            false => strings.index(&*code.name),
        };
        // A reader shortens names that look like those of C++ if this is the same.
        let system_name = strings.index(code.full_name());
        message.clear();
        message.number(1, id).number(2, name).number(3, system_name);
        put(out, field::FUNCTION, message.as_bytes())?;
        let mut line = Message::default();
        line.number(1, id);
        message.clear();
        message.number(1, id).number(2, mapping).message(4, &line);
        put(out, field::LOCATION, message.as_bytes())?;
    }
    Ok(())
}
