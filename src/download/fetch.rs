//! Downloads a module's debug file: queries the servers one after the other.

use std::path::{Path, PathBuf};

use super::cache::{CacheError, Partial};
use super::client::Limits;
use super::module::Module;
use super::server::{Layout, RemoteFile};
use super::sources::Sources;
use super::worker::{self, Reply, Task, WorkerError};
use crate::regular_file;

/// Downloads debug files into the cache.
#[derive(Debug)]
pub struct Downloader {
    sources: Sources,
    limits: Limits,
    /// Indexes of servers to skip. Each module would otherwise wait for them.
    unreachable: Vec<usize>,
}

/// Result for one module.
#[derive(Debug)]
pub enum Outcome {
    /// The debug file already existed.
    Cached(PathBuf),
    /// The debug file was downloaded.
    Downloaded {
        /// Path in the cache.
        path: PathBuf,
        /// Size in bytes.
        bytes: u64,
        /// URL of the file, without a password.
        url: String,
    },
    /// No server returned the debug file.
    Failed(Vec<Failure>),
}

/// Failed download from one URL.
#[derive(Debug)]
pub struct Failure {
    /// The URL, without a password.
    pub url: String,
    /// The reason. `None`: skipped, because the server could not be reached or was too slow before.
    pub why: Option<String>,
}

impl Downloader {
    /// Creates a downloader that queries the servers of `sources`. `limits` apply to each file.
    #[must_use]
    pub fn new(sources: Sources, limits: Limits) -> Self {
        Self {
            sources,
            limits,
            unreachable: Vec::new(),
        }
    }

    /// Returns the servers and caches.
    #[must_use]
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Downloads a module's debug file, unless it exists on this host or in a cache.
    ///
    /// Calls `progress` with the received bytes and the total size if it is known. Returns
    /// [`Outcome::Failed`] once `cancel` returns true, and keeps the received bytes to resume
    /// later.
    ///
    /// # Errors
    /// Returns an error if the worker process cannot be started or the cache cannot be written.
    /// Other modules would then fail as well.
    pub fn get(
        &mut self,
        module: &Module,
        mut progress: impl FnMut(u64, Option<u64>),
        cancel: &dyn Fn() -> bool,
    ) -> Result<Outcome, DownloadError> {
        for path in self
            .sources
            .cache_paths(module)
            .into_iter()
            .chain(module.debug_file_paths())
        {
            if is_matching_debug_file(&path, module) {
                return Ok(Outcome::Cached(path));
            }
        }
        let mut failures = Vec::new();
        for (row, server) in self.sources.servers.iter().enumerate() {
            for entry in server.entries(module) {
                if cancel() {
                    return Ok(Outcome::Failed(failures));
                }
                let url = shown(&entry.url);
                if self.unreachable.contains(&row) {
                    failures.push(Failure { url, why: None });
                    continue;
                }
                match self.try_entry(server.layout, &entry, module, &mut progress, cancel)? {
                    Attempt::Done(path, bytes) => {
                        return Ok(Outcome::Downloaded { path, bytes, url });
                    }
                    Attempt::Failed { why, unreachable } => {
                        let why = Some(why);
                        failures.push(Failure { url, why });
                        self.unreachable.extend(unreachable.then_some(row));
                    }
                }
            }
        }
        Ok(Outcome::Failed(failures))
    }

    fn try_entry(
        &self,
        layout: Layout,
        entry: &RemoteFile,
        module: &Module,
        progress: &mut dyn FnMut(u64, Option<u64>),
        cancel: &dyn Fn() -> bool,
    ) -> Result<Attempt, DownloadError> {
        let cache = self.sources.cache(layout).ok_or(CacheError::Nowhere)?;
        let partial = match Partial::open(cache, &entry.path, &entry.url) {
            Err(error @ (CacheError::Busy | CacheError::Entry { .. })) => {
                return Ok(Attempt::failed(error.to_string()));
            }
            other => other?,
        };
        let task = Task::Fetch {
            url: entry.url.clone(),
            module: module.clone(),
            limits: self.limits,
        };
        let (attempt, keep) = match worker::run(&task, &partial.file, progress, cancel) {
            Ok(Reply::Good) => {
                partial.commit()?;
                let bytes = partial.file.metadata().map_or(0, |metadata| metadata.len());
                return Ok(Attempt::Done(partial.path, bytes));
            }
            Ok(Reply::Missing) => (Attempt::failed("not found".to_owned()), false),
            Ok(Reply::Bad {
                why,
                keep,
                unreachable,
            }) => (Attempt::Failed { why, unreachable }, keep),
            Ok(other) => (
                Attempt::failed(worker::unexpected(&other).to_string()),
                false,
            ),
            Err(error @ WorkerError::Start(_)) => {
                partial.discard();
                return Err(error.into());
            }
            Err(error) => (Attempt::failed(error.to_string()), true),
        };
        if !keep || partial.file.metadata().is_ok_and(|m| m.len() == 0) {
            partial.discard();
        }
        Ok(attempt)
    }
}

/// Result of a download from one URL.
enum Attempt {
    /// Path and size of the file.
    Done(PathBuf, u64),
    Failed {
        why: String,
        unreachable: bool,
    },
}

impl Attempt {
    fn failed(why: String) -> Self {
        Self::Failed {
            why,
            unreachable: false,
        }
    }
}

/// No file can be downloaded.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// The cache cannot be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The worker process failed.
    #[error(transparent)]
    Worker(#[from] WorkerError),
}

/// Returns whether a file exists and is a module's debug file.
pub fn is_matching_debug_file(path: &Path, module: &Module) -> bool {
    let Ok(file) = regular_file::open(path) else {
        return false;
    };
    let task = Task::Check {
        module: module.clone(),
    };
    matches!(
        worker::run(&task, &file, |_, _| {}, &|| false),
        Ok(Reply::Good)
    )
}

/// Returns a URL without user name and password.
fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{scheme}://{host}/{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hides_passwords_in_urls() {
        assert_eq!(shown("https://me:p@ss@host:1/a@b"), "https://host:1/a@b");
        assert_eq!(shown("http://host/a"), "http://host/a");
    }
}
