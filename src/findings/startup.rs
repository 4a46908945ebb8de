//! What a program does when it starts, of a capture that is for that (`-for startup`).

use super::scene::{Program, Scene, percent, short_method, shown};
use crate::output::summary::{Finding, Work};
use crate::trace::{NoticeKind, Symptom};

/// CPU time of a process below which its start is not worth a finding, in milliseconds.
const MIN_CPU_MS: f64 = 20.0;
/// Part of the CPU time below which a kind of work, or a method, is not named.
const MIN_PART: f64 = 0.05;
/// Time of threads without a CPU below which it is not named, in milliseconds.
const MIN_WAITED_MS: f64 = 50.0;
/// Number of samples of a kind of work.
type Samples = fn(&Work) -> u64;

/// Kinds of work that starting programs do.
const KINDS: [(Samples, &str); 4] = [
    (|work| work.jit, "JIT compilation"),
    (|work| work.page_faults, "page faults"),
    (|work| work.gc, "garbage collection"),
    (|work| work.exceptions, "exceptions"),
];
/// Reasons that a thread without work has.
const WITHOUT_WORK: [&str; 2] = ["idle", "stopped"];

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    if !scene.is_for(Symptom::Startup) || has_started_before(scene) {
        return Vec::new();
    }
    let programs = scene.programs();
    let programs = programs.filter(|program| program.process.cpu_ms >= MIN_CPU_MS);
    programs.map(|program| of(scene, &program)).collect()
}

/// Returns whether the process had started long before the capture.
pub(super) fn has_started_before(scene: &Scene<'_>) -> bool {
    let mut notices = scene.summary.quality.notices.iter();
    notices.any(|notice| notice.kind == NoticeKind::SymptomUnfit)
}

fn of(scene: &Scene<'_>, program: &Program<'_>) -> Finding {
    let process = program.process;
    let mut text = format!(
        "{} used {:.2} s of CPU time in {:.1} s",
        program.name(),
        process.cpu_ms / 1e3,
        scene.seconds
    );
    let mut figures = vec![("jit_percent", program.part(process.work.jit) * 100.0)];
    let parts = KINDS.map(|(samples, name)| (program.part(samples(&process.work)), name));
    let mut parts: Vec<(f64, &str)> = parts.into_iter().collect();
    parts.retain(|(part, _)| *part >= MIN_PART);
    parts.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let parts: Vec<String> = parts
        .iter()
        .map(|(part, name)| format!("{} {name}", percent(*part)))
        .collect();
    if !parts.is_empty() {
        text += &format!(": {}", parts.join(", "));
    }
    let mut runtimes = scene.summary.runtimes.iter();
    let runtime = runtimes.find(|runtime| runtime.pid == process.pid);
    if let Some(jit) = runtime.and_then(|runtime| runtime.jit.as_ref()) {
        text += &format!(
            "; the program waited {:.0} ms for the compilation of {} methods",
            jit.foreground_ms, jit.foreground_count
        );
        figures.push(("jit_waited_ms", jit.foreground_ms));
        figures.push(("jit_methods", jit.foreground_count as f64));
    }
    if let Some(row) = program
        .own_method()
        .filter(|row| program.part(row.samples) >= MIN_PART)
    {
        let part = percent(program.part(row.samples));
        text += &format!("; {part} of the CPU time is in {}", short_method(&row.name));
    }
    text += &waited(scene, process.pid);
    let finding = program.finding("startup", text);
    let figures = figures.into_iter();
    figures
        .fold(finding, |finding, (name, number)| {
            finding.figure(name, number)
        })
        .from("processes.work")
        .from("runtimes.jit")
        .from("thread_time.places")
        .figure("cpu_ms", process.cpu_ms)
        .more(&program.more(None))
        .costing(program.cpus)
}

/// Names the place in which threads had no CPU for longest.
fn waited(scene: &Scene<'_>, pid: i32) -> String {
    let places = scene.summary.thread_time.iter();
    let places = places.flat_map(|times| &times.places);
    let places = places
        .filter(|place| place.pid == pid && place.own && !WITHOUT_WORK.contains(&&*place.reason));
    let longest = places.max_by(|a, b| a.ms.total_cmp(&b.ms));
    let longest = longest.filter(|place| place.ms >= MIN_WAITED_MS);
    longest.map_or_else(String::new, |place| {
        format!(
            "; longest wait: {:.2} s in {} ({})",
            place.ms / 1e3,
            short_method(&place.method),
            shown(&place.reason)
        )
    })
}
