//! Kernel code takes much of a process's CPU time: which system calls.

use super::scene::{Scene, cpus, method, percent, shown};
use crate::output::summary::Finding;

/// Share of the process's CPU time, and CPUs, below which kernel code is not remarkable.
const MIN_PART: f64 = 0.3;
const MIN_CPUS: f64 = 0.2;

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let programs = scene.programs().filter_map(|program| {
        let kernel = program.process.work.kernel;
        let (part, used) = (program.part(kernel), program.cpus_of(kernel));
        // A kernel thread does nothing else, and calls nothing.
        let call = program.rows(&scene.summary.shares.syscalls).next()?;
        if part < MIN_PART || used < MIN_CPUS {
            return None;
        }
        let call_part = program.part(call.samples);
        let own = program.own_method();
        let below = own.map_or_else(String::new, |own| {
            format!("; most CPU time is in or below {}", method(own))
        });
        let text = format!(
            "{} spends {} of its CPU time in the kernel ({}), mostly in the system call {} ({}){below}",
            program.name(),
            percent(part),
            cpus(used),
            shown(&call.name),
            percent(call_part)
        );
        let finding = program.finding("kernel-time", text);
        Some(
            finding
                .from("processes.work.kernel")
                .from("shares.syscalls")
                .more("report TRACE -kind syscalls")
                .figure("kernel_percent", part * 100.0)
                .figure("kernel_cpus", used)
                .figure("syscall_percent", call_part * 100.0)
                .costing(used),
        )
    });
    programs.collect()
}
