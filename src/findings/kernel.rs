//! Kernel code takes much of a process's CPU time: which system calls.

use super::scene::{Scene, cpus, percent, shown};
use crate::output::summary::{ENTRY_AND_EXIT, Finding, TRACE, WorkKind};

/// Share of the process's CPU time, and CPUs, below which kernel code is not remarkable.
const MIN_PART: f64 = 0.3;
const MIN_CPUS: f64 = 0.2;

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let programs = scene.notable_programs().filter_map(|program| {
        let work = program.process.work;
        // Page faults have a rule of their own.
        let kernel = work.samples(WorkKind::Kernel);
        let (part, used) = (program.part(kernel), program.cpus_of(kernel));
        // A kernel thread does nothing else, and calls nothing.
        let mut calls = program.rows(&scene.summary.shares.syscalls);
        let call = calls.find(|call| call.name != ENTRY_AND_EXIT)?;
        if part < MIN_PART || used < MIN_CPUS {
            return None;
        }
        let call_part = program.part(call.samples);
        let mostly = match call_part * 2.0 >= part {
            true => format!(", mostly in the system call {}", shown(&call.name)),
            false => String::new(),
        };
        let below = program.behind(WorkKind::Kernel);
        let text = format!(
            "{} spends {} of its CPU time in the kernel ({}){mostly}{below}",
            program.name(),
            percent(part),
            cpus(used)
        );
        let pid = program.process.pid.to_string();
        let finding = program.finding("kernel-time", text);
        Some(
            finding
                .from("processes.work.kernel")
                .from("shares.syscalls")
                .from("shares.work_methods")
                .more(&["report", TRACE, "-kind", "syscalls", "-process", &pid])
                .figure("kernel_percent", part * 100.0)
                .figure("kernel_cpus", used)
                .figure("syscall_percent", call_part * 100.0)
                .costing(used),
        )
    });
    programs.collect()
}
