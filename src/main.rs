//! argv in, exit status out.

use std::process::ExitCode;

fn main() -> ExitCode {
    perfcollect::cli::run(std::env::args_os())
}
