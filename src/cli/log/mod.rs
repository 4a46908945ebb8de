//! `perfcollect.log`: how a trace came about, as lines of text to attach to a ticket.

mod command_line;
mod counters;
mod lines;
mod runtimes;
mod settings;

pub(super) use lines::LogLines;
pub(super) use runtimes::Runtimes;
pub(super) use settings::{put_granted, requested};

use crate::output::ctf;
use crate::output::utc::UtcTime;
use crate::output::variant_name;
use crate::trace::{CaptureInfo, Notice, Trace};

/// Maximum length of the command line, in bytes.
const MAX_COMMAND_LINE_BYTES: usize = 16 << 10;
/// Maximum number of ELF files.
const MAX_MODULES: usize = 100;

/// Formats the log of a trace. `settings`: lines about the request.
pub(super) fn text(
    settings: &LogLines,
    end: &str,
    spool_bytes: u64,
    mut runtimes: Runtimes,
    trace: &Trace,
) -> String {
    let mut log = LogLines::default();
    log.put("perfcollect", env!("CARGO_PKG_VERSION"));
    log.put_long("command line", command_line::own(), MAX_COMMAND_LINE_BYTES);
    put_machine(&trace.info, &mut log);
    runtimes.add_modules(trace.modules.iter().map(|module| &*module.path));
    runtimes.put(&mut log);
    log.append(settings);
    log.put("ended", end);
    if spool_bytes > 0 {
        put_spool(spool_bytes, trace, &mut log);
    }
    trace
        .quality
        .notices
        .iter()
        .for_each(|notice| put_notice(notice, &mut log));
    log.put("samples", trace.samples.len());
    counters::put("quality", &trace.quality, &mut log);
    put_modules(trace, &mut log);
    put_events(trace, &mut log);
    log.into_text()
}

fn put_machine(info: &CaptureInfo, log: &mut LogLines) {
    let ns = info.duration_ns();
    if info.start_unix_ns > 0 {
        let at = |ns| UtcTime::from_unix_ns(ns).rfc3339();
        log.put("start", at(info.start_unix_ns));
        log.put("end", at(info.start_unix_ns.saturating_add(ns)));
    }
    log.put("duration", format_args!("{:.3} s", ns as f64 / 1e9));
    log.put("host", &info.host);
    log.put("kernel", &info.kernel);
    log.put("machine", &info.arch);
    log.put("cpus", info.cpus);
    log.put("target", &info.target);
    log.put("event", &info.event);
    log.put("period", format_args!("{} ns", info.period_ns));
    log.put("start on the clock", format_args!("{} ns", info.start_ns));
    log.put(
        "cost",
        format_args!(
            "{:.0} ms of CPU time while capturing, {} KiB of memory",
            info.collector_cpu_ms, info.collector_peak_kib
        ),
    );
}

fn put_spool(bytes: u64, trace: &Trace, log: &mut LogLines) {
    let info = &trace.info;
    let seconds = info.seconds();
    log.put(
        "spool",
        format_args!(
            "{bytes} bytes, {:.0} per second, {:.1} per sample",
            bytes as f64 / seconds.max(1e-9),
            bytes as f64 / trace.samples.len().max(1) as f64,
        ),
    );
}

fn put_notice(notice: &Notice, log: &mut LogLines) {
    let kind = variant_name(notice.kind);
    let remedy = match &*notice.remedy {
        "" => String::new(),
        remedy => format!("; {remedy}"),
    };
    log.put("notice", format_args!("{kind}: {}{remedy}", notice.what));
}

fn put_modules(trace: &Trace, log: &mut LogLines) {
    for module in trace.modules.iter().take(MAX_MODULES) {
        let build_id = module.build_id.as_ref().map(ToString::to_string);
        log.put(
            "module",
            format_args!(
                "{}, build id {}, {}, {} of {} frames named",
                module.path,
                build_id.as_deref().unwrap_or("none"),
                match module.has_symbols {
                    true => "symbols",
                    false => "no symbols",
                },
                module.frames.named,
                module.frames.named.saturating_add(module.frames.unresolved)
            ),
        );
    }
}

fn put_events(trace: &Trace, log: &mut LogLines) {
    for stream in trace.events.streams() {
        let name = format!("events of {}", stream.name);
        log.put(
            &name,
            format_args!("{} bytes on the disk", stream.counts.bytes),
        );
        for (kind, count) in &stream.counts.by_kind {
            let known = match ctf::is_written(kind) {
                true => "",
                false => ", not in the CTF part",
            };
            let (provider, id, version) = (&kind.provider, kind.id, kind.version);
            log.put(
                &name,
                format_args!("{count} {provider}/{id} v{version} {}{known}", kind.name),
            );
        }
    }
}
