//! `perfcollect symbols FILE...`

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::downloads::{self, DownloadReport};
use super::progress::Reporter;
use super::sandbox;
use super::symbols_options::SymbolsOptions;
use super::symbols_traces;
use super::{OneLine, say};
use crate::capture::Signals;
use crate::download::{
    self, DownloadError, Downloader, MissingDebugFiles, Module, Sources, WorkerError,
};
use crate::output::file::OutputError;
use crate::output::output_file::OutputFile;
use crate::regular_file;
use crate::resymbolize::find_symbols;

#[derive(Debug, Error)]
pub(super) enum SymbolsError {
    #[error("cannot open {}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("cannot create the directory {}: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: WorkerError },
    #[error(transparent)]
    Download(#[from] DownloadError),
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error("{} is not a directory: give one with -output", path.display())]
    NoDirectory { path: PathBuf },
    #[error("{} is neither a file nor a build id of 4 to 64 bytes in hexadecimal", path.display())]
    BadBuildId { path: PathBuf },
    #[error("cannot handle signals: {0}")]
    Signals(io::Error),
    #[error("{0}")]
    Incomplete(String),
}

/// Microsoft's server has no files of distributions, and sudo removes the variable from the environment.
const DEBUGINFOD: &str = "The debug files of distributions' packages are on debuginfod servers, and none was queried: set DEBUGINFOD_URLS to \
                          that of yours, such as https://debuginfod.debian.net (with sudo: sudo DEBUGINFOD_URLS=URL perfcollect symbols ...)";

pub(super) fn run(options: &SymbolsOptions) -> Result<(), SymbolsError> {
    if let Some(path) = options.output.as_ref().filter(|path| path.is_file()) {
        return Err(SymbolsError::NoDirectory { path: path.clone() });
    }
    let reporter = Reporter::new(options.quiet);
    let request = Request::read(options, &reporter)?;
    let without_id = request.without_build_id.len();
    if without_id > 0 {
        let files = downloads::listed(request.without_build_id.iter());
        reporter.say(&format!(
            "skipped files without a build id, which servers need: {files}"
        ));
    }
    let downloaded = get(&request.modules, options, &reporter);
    // Also after a failed download: other debug files may be here.
    let not_symbolized = match &request.traces[..] {
        [] => 0,
        traces => {
            let signals = Signals::install().map_err(SymbolsError::Signals)?;
            sandbox::enter(traces, &[]);
            symbols_traces::symbolize(traces, &options.naming(), &reporter, &signals)
        }
    };
    let missing = without_id + downloaded?;
    let modules = without_id + request.found + request.modules.len();
    let missing =
        (missing > 0).then(|| format!("no debug file for {missing} of {modules} modules"));
    let unreadable = request.unreadable;
    let unreadable = (unreadable > 0).then(|| format!("{unreadable} of the files cannot be read"));
    let traces = request.traces.len();
    let not_symbolized = (not_symbolized > 0).then(|| {
        format!("{not_symbolized} of {traces} traces, or the files beside them, are incomplete")
    });
    let shortfalls: Vec<_> = [missing, unreadable, not_symbolized]
        .into_iter()
        .flatten()
        .collect();
    match shortfalls.is_empty() {
        true => Ok(()),
        false => Err(SymbolsError::Incomplete(shortfalls.join(", and "))),
    }
}

/// The arguments, read.
#[derive(Default)]
struct Request<'a> {
    /// Modules whose debug files are not here.
    modules: Vec<Module>,
    /// Number of modules of traces whose debug files are here.
    found: usize,
    without_build_id: Vec<String>,
    traces: Vec<&'a Path>,
    /// Number of arguments that cannot be read.
    unreadable: usize,
}

impl<'a> Request<'a> {
    fn read(options: &'a SymbolsOptions, reporter: &Reporter) -> Result<Self, SymbolsError> {
        let mut request = Self::default();
        let naming = options.naming();
        let mut read: Vec<&Path> = Vec::new();
        for path in &options.files {
            let shown = path.display();
            if read.contains(&path.as_path()) {
                reporter.say(&format!("{shown}: given twice"));
                continue;
            }
            read.push(path);
            let wanted = match wanted(path) {
                Err(error) if options.files.len() > 1 => {
                    say(OneLine(&error.to_string()));
                    request.unreadable += 1;
                    continue;
                }
                wanted => wanted?,
            };
            // A file beside a symbolized trace may not have its symbols yet.
            if wanted.is_trace {
                request.traces.push(path);
            }
            if wanted.modules.is_empty() && wanted.without_build_id.is_empty() {
                reporter.say(&format!("{shown}: has all symbols, nothing to download"));
                continue;
            }
            request.without_build_id.extend(wanted.without_build_id);
            for module in wanted.modules {
                let is_copied = options.output.is_some();
                match wanted
                    .is_trace
                    .then(|| find_symbols(&module, &naming))
                    .flatten()
                {
                    Some(found) if !is_copied || options.is_in_directory(&found) => {
                        reporter.say(&format!("{module}: already in {}", found.display()));
                        request.found += 1;
                    }
                    _ => request.add(module, is_copied, reporter),
                }
            }
        }
        Ok(request)
    }

    fn add(&mut self, module: Module, is_copied: bool, reporter: &Reporter) {
        // In -output each file has a separate name.
        let is_known = |known: &&Module| {
            known.build_id == module.build_id
                && (!is_copied || known.debug_name() == module.debug_name())
        };
        match self.modules.iter().find(is_known) {
            Some(known) if *known == module => {}
            Some(known) => reporter.say(&format!("{module}: same build as {known}")),
            None => self.modules.push(module),
        }
    }
}

/// Downloads the debug files of modules. Returns how many are missing.
fn get(
    modules: &[Module],
    options: &SymbolsOptions,
    reporter: &Reporter,
) -> Result<usize, SymbolsError> {
    if modules.is_empty() {
        return Ok(0);
    }
    let mut downloader = Downloader::new(Sources::new(&options.server), options.limits());
    let DownloadReport { files, failed } =
        downloads::get(&mut downloader, modules, reporter, || false)?;
    if !failed.is_empty() && options.server.is_empty() && !downloader.sources().has_debuginfod() {
        reporter.say(DEBUGINFOD);
    }
    if let Some(directory) = &options.output {
        std::fs::create_dir_all(directory).map_err(|source| SymbolsError::Directory {
            path: directory.clone(),
            source,
        })?;
        for (module, cached) in &files {
            let path = directory.join(module.debug_name());
            place(module, cached, &path, options.force)?;
            reporter.say(&format!("{module}: {}", path.display()));
        }
    }
    Ok(failed.len())
}

/// Returns the missing debug files of an argument: an ELF file, a trace or a build id.
fn wanted(path: &Path) -> Result<MissingDebugFiles, SymbolsError> {
    let file = match (
        regular_file::open(path),
        path.to_str().and_then(|text| text.parse().ok()),
    ) {
        (Err(error), Some(id)) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(MissingDebugFiles {
                modules: vec![Module::from_build_id(id)],
                ..MissingDebugFiles::default()
            });
        }
        (Err(error), None) if error.kind() == io::ErrorKind::NotFound && is_hex(path) => {
            return Err(SymbolsError::BadBuildId {
                path: path.to_owned(),
            });
        }
        (file, _) => file,
    };
    let error = |source| SymbolsError::Open {
        path: path.to_owned(),
        source,
    };
    download::identify(path, &file.map_err(error)?).map_err(|source| SymbolsError::File {
        path: path.to_owned(),
        source,
    })
}

fn is_hex(path: &Path) -> bool {
    let digits = path.as_os_str().as_encoded_bytes();
    digits.iter().all(u8::is_ascii_hexdigit)
}

/// Copies a debug file to the name that is searched beside its module, unless it exists.
fn place(module: &Module, cached: &Path, path: &Path, force: bool) -> Result<(), SymbolsError> {
    if download::is_matching_debug_file(path, module) {
        return Ok(());
    }
    let mut output = OutputFile::create(path, force)?;
    let copied = regular_file::open(cached).and_then(|mut file| io::copy(&mut file, &mut output));
    copied.map_err(|error| output.explain(error))?;
    output.make_world_readable()?;
    Ok(output.commit()?)
}
