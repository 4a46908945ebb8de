//! What the end-to-end tests share: the binary under test, real runtimes and workloads (prepared by `scripts/test`),
//! children, captures and what can be read from them.

// Every test binary includes this module and uses its own part of it. A failed helper is a failed test.
#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    unreachable_pub,
    clippy::expect_used,
    clippy::unwrap_used
)]

/// Reports what this machine lacks, and returns from the test or a part of it.
macro_rules! skip {
    ($missing:expr) => {{
        test_skip::skip($missing);
        return Default::default();
    }};
}

/// The value of a `Result`, or skips the test for what is missing.
macro_rules! need {
    ($what:expr) => {
        match $what {
            Ok(value) => value,
            Err(missing) => skip!(missing),
        }
    };
}

/// Skips the test if a command is not installed.
macro_rules! need_command {
    ($name:expr) => {
        if !$crate::support::is_installed($name) {
            skip!($crate::support::Missing::Command($name));
        }
    };
}

/// Returns from a live test where nobody may sample the CPUs.
macro_rules! need_capture {
    () => {
        need!($crate::support::can_capture());
    };
}

mod c_program;
mod capture;
mod child;
pub mod events;
mod firefox_profiler;
pub mod grammar;
mod limited_group;
mod perf_map;
pub mod perf_script;
mod perfview;
mod public_directory;
pub mod random;
mod readers;
pub mod recording;
mod runtime;
mod saved;
mod service_client;
pub mod sources;
mod wait;
mod workload;
pub mod zip;

pub use c_program::compiled;
pub use capture::{
    can_capture, captured, captured_during, captured_for, end_capture, expect_shares,
    interrupt_capture, perfcollect, run_perfcollect, start_capture,
};
pub use child::{
    AS_NOBODY, Finished, POORER, Running, finish, is_installed, on_terminal, run, start,
};
pub use firefox_profiler::{FirefoxProfiler, FirefoxStacks};
pub use limited_group::LimitedGroup;
pub use perf_map::perf_map;
pub use perfview::{
    NO_STACK, as_folded, expect_same_in_perfview, expect_totals, perfview_json, perfview_text,
};
pub use public_directory::PublicDirectory;
pub use readers::reader;
pub use runtime::{Runtime, runtimes};
pub use saved::{Saved, Stacks, file_names, notices_of, stacks_of, unnamed_files};
pub use service_client::ServiceClient;
pub use test_skip::{Missing, skip};
pub use wait::{children, cpu_time, wait_for_cpu_time, wait_until};
pub use workload::{Workload, workloads};

use std::path::PathBuf;

/// Where `scripts/runtimes` and `scripts/workloads` put things; the same rule as in `scripts/lib.sh`.
pub fn cache() -> PathBuf {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    set("PERFCOLLECT_CACHE").unwrap_or_else(|| {
        set("XDG_CACHE_HOME")
            .or_else(|| set("HOME").map(|home| home.join(".cache")))
            .expect("PERFCOLLECT_CACHE or HOME is set")
            .join("perfcollect")
    })
}

fn existing(path: PathBuf) -> Option<PathBuf> {
    path.exists().then_some(path)
}
