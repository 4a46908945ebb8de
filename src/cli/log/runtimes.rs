//! The .NET runtimes of the sampled processes, for the log.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::lines::LogLines;
use crate::capture::Capture;
use crate::dotnet::version_in_path;
use crate::machine::Backing;

/// File name of the runtime.
const LIBRARY: &str = "libcoreclr.so";
/// Maximum number of runtimes, and of processes listed for one.
const MAX_LISTED: usize = 16;

/// Runtimes by their path, with the processes that map them.
#[derive(Debug, Default)]
pub(in crate::cli) struct Runtimes(BTreeMap<PathBuf, Vec<i32>>);

impl Runtimes {
    /// Finds the runtimes of the sampled processes that ran at the end.
    pub(in crate::cli) fn of(capture: &Capture) -> Self {
        let machine = &capture.machine;
        let mut runtimes: BTreeMap<PathBuf, Vec<i32>> = BTreeMap::new();
        for process in &capture.raw_trace.processes {
            let maps = machine.maps(process.pid).into_iter();
            let library = maps.flat_map(|maps| maps.iter()).find_map(|mapping| {
                let Backing::File(id) = mapping.backing else {
                    return None;
                };
                let path = machine.files().file(id).clean_path();
                path.ends_with(LIBRARY).then(|| path.to_owned())
            });
            if let Some(path) = library {
                runtimes.entry(path).or_default().push(process.pid.0);
            }
        }
        Self(runtimes)
    }

    /// Adds the runtimes with sampled code.
    pub(super) fn add_modules<'a>(&mut self, paths: impl Iterator<Item = &'a str>) {
        for path in paths.map(Path::new).filter(|path| path.ends_with(LIBRARY)) {
            self.0.entry(path.to_owned()).or_default();
        }
    }

    pub(super) fn put(&self, lines: &mut LogLines) {
        for (path, pids) in self.0.iter().take(MAX_LISTED) {
            let version = version_in_path(path).unwrap_or("of unknown version");
            let pids: Vec<String> = pids.iter().take(MAX_LISTED).map(i32::to_string).collect();
            let processes = match pids.is_empty() {
                true => String::new(),
                false => format!(", process {}", pids.join(", ")),
            };
            lines.put(
                ".NET runtime",
                format_args!("{version}, {}{processes}", path.display()),
            );
        }
    }
}
