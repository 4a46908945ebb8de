//! `perfcollect symbols FILE...`

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::OneLine;
use super::downloads::{self, DownloadReport};
use super::progress::Reporter;
use super::symbols_options::SymbolsOptions;
use crate::download::{
    self, DownloadError, Downloader, MissingDebugFiles, Module, Sources, WorkerError,
};
use crate::output::file::{OutputError, OutputFile};

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
    #[error("{0}")]
    Incomplete(String),
}

/// Microsoft's server has no files of distributions, and sudo removes the variable from the environment.
const DEBUGINFOD: &str = "The debug files of distributions' packages are on debuginfod servers, and none was asked: set DEBUGINFOD_URLS to \
                          that of yours, such as https://debuginfod.debian.net (with sudo: sudo DEBUGINFOD_URLS=URL perfcollect symbols ...)";

pub(super) fn run(options: &SymbolsOptions) -> Result<(), SymbolsError> {
    if let Some(path) = options.output.as_ref().filter(|path| path.is_file()) {
        return Err(SymbolsError::NoDirectory { path: path.clone() });
    }
    let mut modules: Vec<Module> = Vec::new();
    let mut without_build_id = Vec::new();
    let mut unreadable = 0;
    let reporter = Reporter::new(options.quiet);
    let mut named: Vec<&Path> = Vec::new();
    for path in &options.files {
        let shown = path.display();
        if named.contains(&path.as_path()) {
            reporter.say(&format!("{shown}: given twice"));
            continue;
        }
        named.push(path);
        let wanted = match wanted(path) {
            Err(error) if options.files.len() > 1 => {
                eprintln!("{}", OneLine(&error.to_string()));
                unreadable += 1;
                continue;
            }
            wanted => wanted?,
        };
        if wanted.modules.is_empty() && wanted.without_build_id.is_empty() {
            reporter.say(&format!("{shown}: has all symbols, nothing to download"));
        }
        without_build_id.extend(wanted.without_build_id);
        for module in wanted.modules {
            // In -output each file has a separate name.
            let is_known = |known: &&Module| {
                known.build_id == module.build_id
                    && (options.output.is_none() || known.debug_name() == module.debug_name())
            };
            match modules.iter().find(is_known) {
                Some(known) if *known == module => {}
                Some(known) => reporter.say(&format!("{module}: same build as {known}")),
                None => modules.push(module),
            }
        }
    }
    let not_asked_for = without_build_id.len();
    if !without_build_id.is_empty() {
        let files = downloads::listed(without_build_id.iter());
        reporter.say(&format!(
            "skipped files without a build id, which servers need: {files}"
        ));
    }
    let missing = not_asked_for + get(&modules, options, &reporter)?;
    let modules = not_asked_for + modules.len();
    let missing =
        (missing > 0).then(|| format!("no debug file for {missing} of {modules} modules"));
    let unreadable = (unreadable > 0).then(|| format!("{unreadable} of the files cannot be read"));
    let shortfalls: Vec<_> = missing.into_iter().chain(unreadable).collect();
    match shortfalls.is_empty() {
        true => Ok(()),
        false => Err(SymbolsError::Incomplete(shortfalls.join(", and "))),
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
        download::open(path),
        path.to_str().and_then(|text| text.parse().ok()),
    ) {
        (Err(error), Some(id)) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(MissingDebugFiles {
                modules: vec![Module::unknown(id)],
                without_build_id: Vec::new(),
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
    let copied = download::open(cached).and_then(|mut file| io::copy(&mut file, &mut output));
    copied.map_err(|error| output.explain(error))?;
    output.make_world_readable()?;
    Ok(output.commit()?)
}
