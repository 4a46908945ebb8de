//! Asking one server after the other for a module's debug file.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::cache::{CacheError, Partial};
use super::client::Limits;
use super::module::Module;
use super::server::{Layout, RemoteFile};
use super::sources::Sources;
use super::worker::{self, Reply, Task, WorkerError};

/// Gets debug files into the cache.
#[derive(Debug)]
pub struct Downloader {
    sources: Sources,
    limits: Limits,
    /// Servers that are not asked again, by their rows: each module would wait for them.
    unreachable: Vec<usize>,
}

/// How it went with one module.
#[derive(Debug)]
pub enum Outcome {
    /// It was there already.
    Cached(PathBuf),
    /// It came.
    Downloaded {
        /// Where it is.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// Where it came from.
        url: String,
    },
    /// No server has it, for these reasons.
    Failed(Vec<Failure>),
}

/// Why one URL did not help.
#[derive(Debug)]
pub struct Failure {
    /// The URL, without a password.
    pub url: String,
    /// Why.
    pub why: String,
}

impl Downloader {
    /// Asks the servers of `sources`; `limits` are for each file.
    #[must_use]
    pub fn new(sources: Sources, limits: Limits) -> Self {
        Self {
            sources,
            limits,
            unreachable: Vec::new(),
        }
    }

    /// Whom it asks, and where files are kept.
    #[must_use]
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Gets a module's debug file, unless it is there, or in a cache. `progress` is told of bytes there, and in all. Once `stop` says so it fails,
    /// and what has come of the file is kept to go on later.
    ///
    /// # Errors
    /// The process that does the work could not be started, or the cache not be written: no other module will do better.
    pub fn get(
        &mut self,
        module: &Module,
        mut progress: impl FnMut(u64, Option<u64>),
        stop: &dyn Fn() -> bool,
    ) -> Result<Outcome, DownloadError> {
        for path in self
            .sources
            .cached(module)
            .into_iter()
            .chain(module.places())
        {
            if is_matching_debug_file(&path, module) {
                return Ok(Outcome::Cached(path));
            }
        }
        let mut failures = Vec::new();
        for (row, server) in self.sources.servers.iter().enumerate() {
            for entry in server.entries(module) {
                if stop() {
                    return Ok(Outcome::Failed(failures));
                }
                let url = shown(&entry.url);
                if self.unreachable.contains(&row) {
                    let why = "not asked: the server cannot be reached, or is too slow".to_owned();
                    failures.push(Failure { url, why });
                    continue;
                }
                match self.try_entry(server.layout, &entry, module, &mut progress, stop)? {
                    Attempt::Done(path, bytes) => {
                        return Ok(Outcome::Downloaded { path, bytes, url });
                    }
                    Attempt::Failed { why, unreachable } => {
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
        stop: &dyn Fn() -> bool,
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
        let (attempt, keep) = match worker::run(&task, &partial.file, progress, stop) {
            Ok(Reply::Good) => {
                partial.commit()?;
                let bytes = partial.file.metadata().map_or(0, |metadata| metadata.len());
                return Ok(Attempt::Done(partial.path, bytes));
            }
            Ok(Reply::Missing) => (Attempt::failed("not there".to_owned()), false),
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

/// How it went with one URL.
enum Attempt {
    /// Where the file is, and its size.
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

/// Why nothing can be downloaded.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// The cache.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The process that does the work.
    #[error(transparent)]
    Worker(#[from] WorkerError),
}

/// Whether a file is there and is a module's debug file.
pub fn is_matching_debug_file(path: &Path, module: &Module) -> bool {
    let Ok(file) = open(path) else {
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

/// Opens a regular file; opening a FIFO or a device waits for nobody.
///
/// # Errors
/// What the kernel says, or that it is no regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file: File = rustix::fs::open(path, flags, Mode::empty())?.into();
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("not a regular file")),
    }
}

/// A URL without what stands before `@` in its host.
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
    fn passwords_are_not_shown() {
        assert_eq!(shown("https://me:p@ss@host:1/a@b"), "https://host:1/a@b");
        assert_eq!(shown("http://host/a"), "http://host/a");
    }
}
