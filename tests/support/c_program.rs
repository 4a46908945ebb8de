//! Small programs in C, which tests compile.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::run;

/// Much longer than the compiler takes on a busy system.
const LIMIT: Duration = Duration::from_secs(300);

/// Compiles a program into a directory, with these options of the compiler. Returns its path.
#[track_caller]
pub fn compiled(directory: &Path, name: &str, text: &str, options: &[&str]) -> PathBuf {
    let program = directory.join(name);
    let source = program.with_extension("c");
    std::fs::write(&source, text).unwrap();
    let mut compile = Command::new("cc");
    compile.args(options).arg("-o").arg(&program).arg(&source);
    run(&mut compile, LIMIT).expect_success();
    program
}
