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

mod capture;
mod child;
pub mod events;
pub mod grammar;
mod perf_map;
pub mod perf_script;
mod perfview;
pub mod recording;
mod runtime;
mod saved;
mod workload;
pub mod zip;

pub use capture::{cannot_capture, captured, expect_shares, perfcollect, run_perfcollect};
pub use child::{Finished, Running, finish, run, start};
pub use perf_map::perf_map;
pub use perfview::{
    as_folded, expect_same_in_perfview, expect_totals, perfview_json, perfview_text,
};
pub use runtime::{Runtime, runtimes};
pub use saved::{Saved, stacks_of};
pub use workload::{Workload, workloads};

use std::path::PathBuf;

/// Says why a test, or the rest of it, does not run here, and returns from it. Not captured, so that it is always seen.
macro_rules! skip {
    ($($why:tt)*) => {{
        $crate::support::say_skipped(&format!($($why)*));
        return Default::default();
    }};
}

/// The value of a `Result`, or skips the test for the reason that it gives.
macro_rules! need {
    ($what:expr) => {
        match $what {
            Ok(value) => value,
            Err(why) => skip!("{why}"),
        }
    };
}

/// Returns from a live test where nobody may sample the CPUs.
macro_rules! need_capture {
    () => {
        if let Some(why) = $crate::support::cannot_capture() {
            skip!("{why}");
        }
    };
}

/// Says on standard error, past libtest's capture, what is skipped.
pub fn say_skipped(why: &str) {
    use std::io::Write;
    let test = std::thread::current().name().unwrap_or("?").to_owned();
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}

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
