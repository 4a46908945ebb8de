//! Garbage collection takes much CPU time or pauses the program: what allocates.

use super::scene::{Scene, cpus, named, percent, shown};
use crate::output::summary::{Finding, GcSummary, RuntimeSummary, TRACE};
use crate::trace::Symptom;

/// Share of the capture (5 %) in pauses, and of the CPU time (10 %), below which it is not
/// remarkable.
const MIN_PAUSED_PERCENT: f64 = 5.0;
const MIN_CPU_PERCENT: f64 = 10.0;
/// Length of a pause that is remarkable alone.
const LONG_PAUSE_MS: f64 = 200.0;
/// Share of the collections (30 %) that are remarkable if the program requests them.
const MIN_INDUCED: f64 = 0.3;
const MB: f64 = 1e6;

/// CPUs that collections take, of a process without events, below which it is not remarkable.
const MIN_CPUS: f64 = 0.05;

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let mut findings = with_events(scene);
    findings.extend(without_events(scene));
    findings
}

/// Finds processes whose samples are in collections, if these sent no events.
fn without_events(scene: &Scene<'_>) -> impl Iterator<Item = Finding> {
    let has_events = |pid: i32| {
        let mut runtimes = scene.summary.runtimes.iter();
        runtimes.any(|runtime| runtime.pid == pid && runtime.gc.is_some())
    };
    let programs = scene.notable_programs();
    let programs = programs.filter(move |program| !has_events(program.process.pid));
    programs.filter_map(|program| {
        let samples = program.process.work.gc;
        let (part, used) = (program.part(samples), program.cpus_of(samples));
        let is_remarkable = part * 100.0 >= MIN_CPU_PERCENT && used >= MIN_CPUS;
        is_remarkable.then(|| {
            let more = match !scene.summary.quality.events.is_empty() {
                true => "",
                false => "; a capture with events shows its pauses and what allocates",
            };
            let text = format!(
                "garbage collection takes {} of the CPU time of {} ({}){more}",
                percent(part),
                program.name(),
                cpus(used)
            );
            let finding = program.finding("gc", text);
            finding
                .from("processes.work.gc")
                .figure("cpu_percent", part * 100.0)
                .figure("used_cpus", used)
                .costing(used)
        })
    })
}

fn with_events(scene: &Scene<'_>) -> Vec<Finding> {
    let programs = scene.runtimes().filter_map(|runtime| {
        let gc = runtime.summary.gc.as_ref()?;
        let name = runtime.name();
        let cpu_percent = gc.cpu_percent.unwrap_or_default();
        let is_remarkable = gc.paused_percent >= MIN_PAUSED_PERCENT
            || cpu_percent >= MIN_CPU_PERCENT
            || gc.max_pause_ms >= LONG_PAUSE_MS;
        is_remarkable.then(|| {
            let mut text = format!(
                "garbage collection pauses {name} for {} of the time ({}, at most {:.0} ms)",
                percent(gc.paused_percent / 100.0),
                collections(gc),
                gc.max_pause_ms
            );
            if gc.cpu_percent.is_some() {
                text += &format!(
                    " and takes {} of its CPU time",
                    percent(cpu_percent / 100.0)
                );
            }
            text += &format!("; it allocates {:.0} MB/s", gc.allocated_mb_per_second);
            if gc.large_bytes > gc.allocated_bytes / 2 {
                text += ", mostly large objects";
            }
            text += &allocating(scene, runtime.summary);
            if gc.induced as f64 >= gc.count as f64 * MIN_INDUCED && gc.induced > 0 {
                text += &format!("; the program requested {} collections", gc.induced);
            }
            let cost = gc.cpu_ms.unwrap_or_default() / 1e3 / scene.seconds;
            runtime
                .finding("gc", text)
                .from("runtimes.gc")
                .figure("paused_percent", gc.paused_percent)
                .figure("max_pause_ms", gc.max_pause_ms)
                .figure("cpu_percent", cpu_percent)
                .figure("allocated_mb_per_s", gc.allocated_mb_per_second)
                .figure("collections", gc.count as f64)
                .costing(cost.max(gc.paused_percent / 100.0))
                .more(&[
                    "report",
                    TRACE,
                    "-kind",
                    "gc",
                    "-process",
                    &runtime.summary.pid.to_string(),
                ])
        })
    });
    programs.collect()
}

fn collections(gc: &GcSummary) -> String {
    let [gen0, gen1, gen2] = gc.generations;
    format!(
        "{} collections, gen0 {gen0}, gen1 {gen1}, gen2 {gen2}",
        gc.count
    )
}

/// Returns the type and method that allocate most, or how to record them.
fn allocating(scene: &Scene<'_>, runtime: &RuntimeSummary) -> String {
    let is_for_memory = [Symptom::Gc, Symptom::MemoryLeak];
    let is_for_memory = is_for_memory.iter().any(|symptom| scene.is_for(*symptom));
    match runtime.allocations {
        Some(_) => {
            most_allocated(runtime).map_or_else(String::new, |most| format!(", most of it {most}"))
        }
        None if is_for_memory => "; no types and methods were recorded".to_owned(),
        None => "; a capture with -for gc shows which types and methods".to_owned(),
    }
}

/// Says what is allocated most, if a capture recorded that. It need not be what is left.
pub(super) fn allocates(runtime: &RuntimeSummary) -> String {
    most_allocated(runtime).map_or_else(String::new, |most| format!("; it allocates most: {most}"))
}

/// Returns the type and method that allocate most, with the size, if a capture recorded that.
fn most_allocated(runtime: &RuntimeSummary) -> Option<String> {
    let row = runtime.allocations.as_ref()?.rows.first()?;
    let method = named(&row.methods);
    let by = method.map_or_else(String::new, |method| format!(" in {method}"));
    let (name, mb) = (shown(&row.type_name), row.bytes as f64 / MB);
    Some(format!("{name}{by} ({mb:.0} MB)"))
}
