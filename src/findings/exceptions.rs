//! Many exceptions, or much CPU time for throwing and catching them: which type, thrown where.

use super::scene::{Runtime, Scene, named, shown};
use crate::output::summary::{Finding, TRACE, WorkKind};

/// Where the summary counts the samples.
const EVIDENCE: &str = "processes.work.exceptions";
/// Exceptions per second below which they are not remarkable.
const MIN_PER_SECOND: f64 = 10.0;
/// Share of the process's CPU time, and CPUs, below which throwing is not remarkable.
const MIN: [f64; 2] = [0.05, 0.02];

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = scene.runtimes().filter_map(|it| thrown(&it)).collect();
    for load in scene.with_work(WorkKind::Exceptions, MIN) {
        let pid = Some(load.program.process.pid);
        let reported = findings.iter_mut().find(|finding| finding.pid == pid);
        let Some(reported) = reported else {
            let text = format!(
                "throwing and catching exceptions takes {} of the CPU time of {}",
                load.percent(),
                load.program.name()
            );
            findings.push(load.finding("exceptions", EVIDENCE, text));
            continue;
        };
        reported.text += &format!(
            "; throwing and catching takes {} of its CPU time",
            load.percent()
        );
        let finding = reported.clone().from(EVIDENCE);
        *reported = finding
            .figure("cpu_percent", load.part * 100.0)
            .figure("used_cpus", load.used_cpus)
            .costing(load.used_cpus);
    }
    findings
}

/// Returns the finding about the exceptions that a runtime reported.
fn thrown(runtime: &Runtime<'_>) -> Option<Finding> {
    let exceptions = runtime.summary.exceptions.as_ref()?;
    if exceptions.per_second < MIN_PER_SECOND {
        return None;
    }
    let mut text = format!(
        "{} throws {:.0} exceptions per second, {} in all",
        runtime.name(),
        exceptions.per_second,
        exceptions.count
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
    let finding = runtime.finding("exceptions", text);
    Some(
        finding
            .from("runtimes.exceptions")
            .more(&["report", TRACE, "-kind", "exceptions"])
            .figure("exceptions_per_s", exceptions.per_second)
            .figure("exceptions", exceptions.count as f64),
    )
}
