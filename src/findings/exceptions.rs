//! Many exceptions, or much CPU time for throwing and catching them: which type, thrown where.

use super::scene::{Scene, named, percent, shown};
use crate::output::summary::{Finding, RuntimeSummary, TRACE};

/// Exceptions per second below which they are not remarkable.
const MIN_PER_SECOND: f64 = 10.0;
/// Share of the CPU time below which throwing is not remarkable, for a process with so many CPUs.
const MIN_PART: f64 = 0.05;
const MIN_CPUS: f64 = 0.02;

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = scene.runtimes().filter_map(thrown(scene)).collect();
    for program in scene.programs() {
        let samples = program.process.work.exceptions;
        let (part, used) = (program.part(samples), program.cpus_of(samples));
        if part < MIN_PART || used < MIN_CPUS {
            continue;
        }
        let cost = format!(
            "throwing and catching exceptions takes {} of the CPU time of {}",
            percent(part),
            program.name()
        );
        let pid = Some(program.process.pid);
        let reported = findings.iter().position(|finding| finding.pid == pid);
        let finding = match reported.map(|at| findings.remove(at)) {
            Some(mut finding) => {
                finding.text += &format!(
                    "; throwing and catching takes {} of its CPU time",
                    percent(part)
                );
                finding
            }
            None => program.finding("exceptions", cost),
        };
        findings.push(
            finding
                .from("processes.work.exceptions")
                .figure("cpu_percent", part * 100.0)
                .costing(used),
        );
    }
    findings
}

/// Returns the finding about the exceptions that a runtime reported.
fn thrown<'a>(scene: &'a Scene<'_>) -> impl Fn((String, &'a RuntimeSummary)) -> Option<Finding> {
    |(name, runtime)| {
        let exceptions = runtime.exceptions.as_ref()?;
        if exceptions.per_second < MIN_PER_SECOND || scene.seconds == 0.0 {
            return None;
        }
        let mut text = format!(
            "{name} throws {:.0} exceptions per second, {} in all",
            exceptions.per_second, exceptions.count
        );
        if let Some(row) = exceptions.rows.first() {
            let method = named(&row.methods);
            let by = method.map_or_else(String::new, |method| format!(" in {method}"));
            let part = match row.count {
                count if count == exceptions.count => "all".to_owned(),
                count => count.to_string(),
            };
            text += &format!(", {part} of them {}{by}", shown(&row.type_name));
        }
        let finding = Finding::new("exceptions", text).about(runtime.pid, &name);
        Some(
            finding
                .from("runtimes.exceptions")
                .more(&["report", TRACE, "-kind", "exceptions"])
                .figure("exceptions_per_s", exceptions.per_second)
                .figure("exceptions", exceptions.count as f64),
        )
    }
}
