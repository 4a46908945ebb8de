//! Downloads debug files and reports progress, for `perfcollect symbols` and for captures.

use std::fmt::Display;
use std::path::PathBuf;

use super::progress::Reporter;
use crate::download::{DownloadError, Downloader, Failure, Limits, Module, Outcome, Sources};
use crate::trace::{Notice, NoticeKind};

/// Maximum number of modules listed in one line.
const MAX_LISTED: usize = 8;
const SKIPPED: &str = "skipped: the server cannot be reached or is too slow";

/// Outcome for the requested modules.
#[derive(Debug, Default)]
pub(super) struct DownloadReport {
    /// Modules with a debug file, and its path.
    pub(super) files: Vec<(Module, PathBuf)>,
    /// Modules without a debug file, and the reasons.
    pub(super) failed: Vec<(Module, Vec<Failure>)>,
}

/// Downloads the debug files of modules, one after the other, until `cancel` returns true.
///
/// # Errors
/// Returns an error if the cache cannot be written or the worker process cannot be started.
pub(super) fn get(
    downloader: &mut Downloader,
    modules: &[Module],
    reporter: &Reporter,
    cancel: impl Fn() -> bool,
) -> Result<DownloadReport, DownloadError> {
    for ignored in &downloader.sources().ignored {
        reporter.say(&format!(
            "ignored symbol source, not a URL or cache: {ignored}"
        ));
    }
    let mut report = DownloadReport::default();
    for (number, module) in modules.iter().enumerate() {
        if cancel() {
            break;
        }
        let what = format!("{}/{} {module}", number + 1, modules.len());
        let progress = |bytes, total| reporter.transfer(&what, bytes, total);
        let outcome = downloader.get(module, progress, &cancel);
        reporter.clear();
        match outcome? {
            Outcome::Cached(path) => {
                reporter.say(&format!("{module}: already in {}", path.display()));
                report.files.push((module.clone(), path));
            }
            Outcome::Downloaded { path, bytes, url } => {
                let mib = bytes as f64 / f64::from(1 << 20);
                let path_shown = path.display();
                reporter.say(&format!("{module}: {path_shown} ({mib:.1} MiB from {url})"));
                report.files.push((module.clone(), path));
            }
            Outcome::Failed(_) if cancel() => break,
            Outcome::Failed(failures) => {
                for line in reasons(module, &failures) {
                    reporter.say(&line);
                }
                report.failed.push((module.clone(), failures));
            }
        }
    }
    Ok(report)
}

/// Downloads missing debug files of a capture from the servers that the environment names. The notice lists those that
/// no server has.
pub(super) fn get_for_capture(
    modules: &[Module],
    reporter: &Reporter,
    cancel: impl Fn() -> bool,
) -> Option<Notice> {
    let mut downloader = Downloader::new(Sources::new(&[]), Limits::default());
    match get(&mut downloader, modules, reporter, cancel) {
        Ok(DownloadReport { failed, .. }) if failed.is_empty() => None,
        Ok(DownloadReport { failed, .. }) => {
            let count = failed.len();
            let modules = listed(failed.iter().map(|(module, _)| module));
            let what = format!("no server has debug files of {modules}");
            let remedy = "`perfcollect symbols` with the trace prints why";
            let notice = Notice::new(NoticeKind::NoDebugFile, what, remedy);
            Some(notice.about(modules).counting(count))
        }
        Err(error) => Some(Notice::new(
            NoticeKind::NoDebugFile,
            format!("no debug file was downloaded: {error}"),
            "",
        )),
    }
}

/// Formats the first items in one line, with the number of others.
pub(super) fn listed<T: Display>(mut all: impl ExactSizeIterator<Item = T>) -> String {
    let first: Vec<_> = all
        .by_ref()
        .take(MAX_LISTED)
        .map(|one| one.to_string())
        .collect();
    match all.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// One line says that all servers are skipped: a module has several URLs, and a trace many modules.
fn reasons(module: &Module, failures: &[Failure]) -> Vec<String> {
    let head = format!("{module}: no debug file");
    if !failures.is_empty() && failures.iter().all(|failure| failure.why.is_none()) {
        return vec![format!("{head}: {SKIPPED}")];
    }
    let reason = |Failure { url, why }: &Failure| {
        let why = why.as_deref().unwrap_or(SKIPPED);
        format!("  {url}: {why}")
    };
    [head]
        .into_iter()
        .chain(failures.iter().map(reason))
        .collect()
}
