//! The settings of a capture, as requested and as granted.

use super::lines::LogLines;
use crate::capture::{CaptureRequest, Target};
use crate::dotnet::diagnostics::SessionRequest;
use crate::machine;
use crate::output::variant_name;
use crate::perf::{CallGraph, Granted};
use crate::trace::Pid;

/// Maximum number of processes whose control groups are listed.
const MAX_PROCESSES: usize = 32;

/// The lines about a request. `events`: the requested events of .NET runtimes.
pub(in crate::cli) fn requested(
    request: &CaptureRequest,
    events: Option<&SessionRequest>,
) -> LogLines {
    let sampling = &request.sampling;
    let mut lines = LogLines::default();
    if let Some(symptom) = request.symptom {
        lines.put("requested symptom", variant_name(symptom));
    }
    lines.put(
        "requested samples",
        if request.samples { "yes" } else { "no" },
    );
    lines.put(
        "requested frequency",
        format_args!("{} Hz", sampling.frequency_hz),
    );
    lines.put("requested event", sampling.clock.name());
    lines.put("requested call graph", call_graph(sampling.call_graph));
    lines.put(
        "requested ring buffer",
        format_args!("{} KiB per CPU", sampling.ring_bytes / 1024),
    );
    let limit = request
        .limit
        .map(|limit| format!("{} s", limit.as_secs_f64()));
    lines.put("time limit", limit.as_deref().unwrap_or("none"));
    match request.disk.has_limit() {
        true => lines.put("size limit", request.disk),
        false => lines.put("size limit", "none"),
    }
    match events {
        Some(events) => put_events(events, &mut lines),
        None => lines.put("event providers", "none"),
    }
    put_containers(&request.target, &mut lines);
    lines
}

/// Adds what the kernel granted.
pub(in crate::cli) fn put_granted(granted: &Granted, lines: &mut LogLines) {
    let scope = match granted.system_wide {
        true => "the whole system",
        false => "the threads of the target",
    };
    let code = match granted.kernel {
        true => "user and kernel code",
        false => "user code only",
    };
    lines.put("granted event", granted.clock.name());
    lines.put("granted scope", format_args!("{scope}, {code}"));
    lines.put(
        "granted ring buffer",
        format_args!("{} KiB per CPU", granted.ring_bytes / 1024),
    );
    lines.put(
        "granted stack copy",
        format_args!("{} bytes", granted.stack_bytes),
    );
}

fn call_graph(call_graph: CallGraph) -> String {
    match call_graph {
        CallGraph::Auto => "auto".into(),
        CallGraph::FramePointers => "fp".into(),
        CallGraph::StackCopy { bytes } => format!("dwarf,{bytes}"),
    }
}

fn put_events(events: &SessionRequest, lines: &mut LogLines) {
    lines.put(
        "event buffer",
        format_args!("{} MiB per runtime", events.buffer_mib),
    );
    lines.put(
        "rundown keywords",
        format_args!("{:#x}", events.rundown_keywords),
    );
    for provider in &events.providers {
        let (name, keywords, level) = (&provider.name, provider.keywords, provider.level);
        let arguments = match &*provider.arguments {
            "" => String::new(),
            arguments => format!(":{arguments}"),
        };
        lines.put(
            "event provider",
            format_args!("{name}:{keywords:#x}:{level}{arguments}"),
        );
    }
}

/// Adds the containers of the target; of a command and the whole system that of perfcollect.
fn put_containers(target: &Target, lines: &mut LogLines) {
    let mut put = |whose: &str, pid: Pid| {
        if let Some(container) = machine::container(pid) {
            lines.put(&format!("container of {whose}"), container);
        }
        if let Some(group) = machine::control_group(pid) {
            lines.put(&format!("control group of {whose}"), group);
        }
    };
    put("perfcollect", Pid(std::process::id() as i32));
    if let Target::Pids(pids) = target {
        for &pid in pids.iter().take(MAX_PROCESSES) {
            put(&format!("process {pid}"), pid);
        }
    }
}
