//! Which process used the CPUs, and which method of the user's code is behind it.

use super::scene::{Scene, method, percent, shown};
use crate::output::NameStyle;
use crate::output::summary::{Finding, TRACE};

/// CPUs that a process uses on average, below which it is not remarkable.
const MIN_CPUS: f64 = 0.5;
/// Share of the process's samples below which a method is not remarkable.
const MIN_METHOD: f64 = 0.1;

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let busy = scene.programs().filter(|program| program.cpus >= MIN_CPUS);
    busy.map(|program| {
        let of = match scene.cpus {
            0.0 => String::new(),
            cpus => format!(" of {cpus}"),
        };
        let mut text = format!("{} used {:.2}{of} CPUs", program.name(), program.cpus);
        let summary = scene.summary;
        let method_row = program.own_method();
        let method_row = method_row.filter(|row| program.part(row.samples) >= MIN_METHOD);
        let module_row = program.rows(&summary.shares.modules).next();
        let finding = match (method_row, module_row) {
            (Some(row), _) => {
                let part = program.part(row.samples);
                text += &format!(", {} of it in or below {}", percent(part), method(row));
                program
                    .finding("cpu-use", text)
                    .from("shares.own_methods")
                    .figure("method_percent", part * 100.0)
                    .more(&["view", TRACE, "-method", &pattern(&row.name)])
            }
            (None, Some(row)) => {
                let part = program.part(row.samples);
                text += &format!(", {} of it in {}", percent(part), shown(&row.name));
                program
                    .finding("cpu-use", text)
                    .from("shares.modules")
                    .figure("module_percent", part * 100.0)
            }
            (None, None) => program.finding("cpu-use", text),
        };
        finding
            .from("processes")
            .figure("used_cpus", program.cpus)
            .figure("cpu_ms", program.process.cpu_ms)
            .costing(program.cpus)
    })
    .collect()
}

/// Returns the name of a method as a pattern: type and name, without parameters.
fn pattern(name: &str) -> String {
    let short = NameStyle::Short.of_method(name);
    let plain = short.split('(').next().unwrap_or(&short);
    // It must not look like an option.
    plain.trim_start_matches('-').to_owned()
}
