//! The real reader of PerfView, if it is there.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn reader() -> Option<PathBuf> {
    let beside =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/tools/perfview-check/perfview-check");
    let path = std::env::var_os("PERFVIEW_CHECK").map_or(beside, PathBuf::from);
    path.exists().then_some(path)
}

fn dotnet() -> Option<PathBuf> {
    let named = std::env::var_os("DOTNET").map(PathBuf::from);
    let in_path = std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|dir| dir.join("dotnet"))
        .collect::<Vec<_>>();
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let cached = cache.map(|cache| cache.join("perfcollect/dotnet/dotnet"));
    named
        .into_iter()
        .chain(in_path)
        .chain(cached)
        .find(|path| path.is_file())
}

/// What the reader prints for `trace`, or `None` if there is no reader here.
pub(crate) fn run(mode: &str, trace: &Path, options: &[&str]) -> Option<String> {
    let (Some(reader), Some(dotnet)) = (reader(), dotnet()) else {
        eprintln!("skipped: needs perfview-check ($PERFVIEW_CHECK) and dotnet ($DOTNET)");
        return None;
    };
    let output = Command::new(reader)
        .env("DOTNET", dotnet)
        .arg(mode)
        .arg(trace)
        .args(options)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(String::from_utf8(output.stdout).unwrap())
}

pub(crate) fn json(mode: &str, trace: &Path, options: &[&str]) -> Option<Value> {
    run(mode, trace, options).map(|text| serde_json::from_str(&text).unwrap())
}
