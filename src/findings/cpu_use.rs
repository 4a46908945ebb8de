//! Which program used the CPUs, and which method of the user's code is behind it.

use super::scene::{Program, Scene, method, percent, shown};
use crate::output::summary::{Finding, ProgramSummary, Share, TRACE};
use crate::trace::Symptom;

/// CPUs that a program uses on average, below which it is not remarkable.
///
/// The second is for a capture of high CPU use.
const MIN_CPUS: [f64; 2] = [0.5, 0.1];
/// Share of the process's samples below which a method is not remarkable.
const MIN_METHOD: f64 = 0.1;

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let of = match scene.cpus {
        0.0 => String::new(),
        cpus => format!(" of {cpus}"),
    };
    let [min_cpus, min_of_symptom] = MIN_CPUS;
    let min_cpus = match scene.is_for(Symptom::HighCpu) {
        true => min_of_symptom,
        false => min_cpus,
    };
    let with_several = scene.with_several_processes();
    let is_one_of_several = |program: &Program<'_>| {
        let name = program.process.program();
        with_several.iter().any(|(several, _)| several.name == name)
    };
    let single = scene
        .programs()
        .filter(|program| program.cpus >= min_cpus && !is_one_of_several(program));
    let single = single.map(|program| of_process(scene, &program, &of));
    let several = with_several.iter().filter(|(_, cpus)| *cpus >= min_cpus);
    let several = several.map(|(program, cpus)| of_processes(scene, program, *cpus, &of));
    single.chain(several).collect()
}

fn of_process(scene: &Scene<'_>, program: &Program<'_>, of: &str) -> Finding {
    let mut text = format!("{} used {:.2}{of} CPUs", program.name(), program.cpus);
    let method_row = program.own_method();
    let method_row = method_row.filter(|row| program.part(row.samples) >= MIN_METHOD);
    let module_row = program.rows(&scene.summary.shares.modules).next();
    // That a program is in its own file says nothing.
    let says_nothing = |name: &str| name.is_empty() || name == program.process.name;
    let module_row = module_row.filter(|row| !says_nothing(&row.name));
    let finding = match (method_row, module_row) {
        (Some(row), _) => {
            let part = program.part(row.samples);
            text += &in_method(part, row);
            program
                .finding("cpu-use", text)
                .from("shares.own_methods")
                .figure("method_percent", part * 100.0)
                .more(&program.more(Some(&row.name)))
        }
        (None, Some(row)) => {
            let part = program.part(row.samples);
            text += &format!(", {} of it in {}", percent(part), shown(&row.name));
            program
                .finding("cpu-use", text)
                .from("shares.modules")
                .figure("module_percent", part * 100.0)
                .more(&program.more(None))
        }
        (None, None) => program.finding("cpu-use", text).more(&program.more(None)),
    };
    finding
        .from("processes")
        .figure("used_cpus", program.cpus)
        .figure("cpu_ms", program.process.cpu_ms)
        .costing(program.cpus)
}

fn of_processes(scene: &Scene<'_>, program: &ProgramSummary, cpus: f64, of: &str) -> Finding {
    let name = shown(&program.name);
    let mut text = format!(
        "{name} ({} processes) used {cpus:.2}{of} CPUs",
        program.processes
    );
    let method_row = scene.method_of(program).and_then(|(row, samples)| {
        let part = samples as f64 / program.samples as f64;
        (part >= MIN_METHOD).then_some((part, row))
    });
    if let Some((part, row)) = method_row {
        text += &in_method(part, row);
    }
    let most = program.pid.to_string();
    let process = match is_plain(&program.name) {
        true => &program.name,
        false => &most,
    };
    let mut finding = Finding::new("cpu-use", text).about_program(&program.name);
    if let Some((part, _)) = method_row {
        finding = finding
            .from("shares.own_methods")
            .figure("method_percent", part * 100.0);
    }
    finding
        .from("programs")
        .figure("used_cpus", cpus)
        .figure("cpu_ms", program.cpu_ms)
        .figure("processes", program.processes as f64)
        .more(&["report", TRACE, "-kind", "cpu", "-process", process])
        .costing(cpus)
}

/// Says that a part of the CPU time is in a method.
fn in_method(part: f64, row: &Share) -> String {
    let (part, method) = (percent(part), method(row));
    format!(", {part} of it in {method} and the libraries it calls")
}

/// Returns whether `-process` selects processes of this name only, also in a trace with escaped names.
fn is_plain(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-+".contains(c);
    !name.is_empty()
        && name.chars().all(is_plain)
        && !name.starts_with('-')
        && !name.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_selected_by_plain_names() {
        for name in ["dotnet", "python3.12", "Web.Api", "g++"] {
            assert!(is_plain(name), "{name}");
        }
        for name in ["", "-Bash", "21069", "a;b", " a", "a\u{202e}", "é"] {
            assert!(!is_plain(name), "{name}");
        }
    }
}
