//! Readers of other tools' formats, which `scripts/readers` prepares.

use std::path::PathBuf;
use std::process::Command;

use super::{Missing, cache};

/// Where `scripts/readers` puts a reader, if the program that runs it is installed.
pub fn reader(program: &'static str, path: &str) -> Result<PathBuf, Missing> {
    if Command::new(program).arg("--version").output().is_err() {
        return Err(Missing::Command(program));
    }
    let path = format!("readers/{path}");
    let file = cache().join(&path);
    file.exists().then_some(file).ok_or(Missing::Cached(path))
}
