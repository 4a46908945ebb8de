//! Options of `perfcollect symbols`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};

use super::arguments::EXAMPLES_FIRST;
use super::values::{scaled, seconds};
use crate::download::{Limits, Server};
use crate::symbolize;

/// Download missing debug files, and add their symbols to traces that are already written.
///
/// Updates NAME.trace.zip, and NAME.nettrace and the flame graphs (NAME.flamegraph.svg, NAME.blocked.svg,
/// NAME.faults.svg) if they are beside it. Debug files go to a cache, where later captures find them. The servers are those of -server, else those of _NT_SYMBOL_PATH (if not set:
/// Microsoft's) and DEBUGINFOD_URLS.
///
/// The exit status is 1 if a debug file was not found, if a trace or a library in it was skipped, or if a file beside it
/// was not updated; else it is 0.
#[derive(Args, Debug)]
#[command(help_template = EXAMPLES_FIRST, after_help = "EXAMPLES\n  \
    perfcollect symbols incident.trace.zip\n  \
    perfcollect symbols incident.trace.zip -symbols /tmp/symbols\n  \
    perfcollect symbols /usr/share/dotnet/shared/Microsoft.NETCore.App/8.0.33/libcoreclr.so -output /tmp/symbols\n  \
    perfcollect symbols 79945f51fb2612f13b7667a10a8fd29122664791 -server https://symbols.example.com")]
pub(super) struct SymbolsOptions {
    /// Traces, ELF files or hexadecimal build ids whose debug files to download
    #[arg(value_name = "FILE|NAME.trace.zip|BUILD_ID", required = true)]
    pub(super) files: Vec<PathBuf>,
    /// Also copy the debug files to DIR, for example as DIR/libcoreclr.so.dbg
    #[arg(short, long, value_name = "DIR")]
    pub(super) output: Option<PathBuf>,
    /// Search DIR first for debug files; repeatable
    #[arg(long, value_name = "DIR", value_parser = PathBufValueParser::new().try_map(directory))]
    pub(super) symbols: Vec<PathBuf>,
    /// Download from this symbol server, and not from the others; repeatable
    #[arg(long, value_name = "URL", value_parser = server)]
    pub(super) server: Vec<Server>,
    /// Do not download larger files: bytes, or with K, M or G [default: 2G]
    #[arg(long, value_name = "SIZE", value_parser = file_bytes)]
    pub(super) maxsize: Option<u64>,
    /// Give up on a server that sends nothing, or less than 64 KiB, in this time [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) timeout: Option<Duration>,
    /// Count inlined functions as part of the functions that contain them
    #[arg(long)]
    pub(super) noinline: bool,
    /// Replace existing files in the directory of -output
    #[arg(long)]
    pub(super) force: bool,
    /// Print errors only
    #[arg(long)]
    pub(super) quiet: bool,
}

impl SymbolsOptions {
    /// Returns how traces are symbolized.
    pub(super) fn naming(&self) -> symbolize::Options {
        symbolize::Options {
            inlined: !self.noinline,
            symbol_directories: self.directories().collect(),
            ..symbolize::Options::default()
        }
    }

    /// Returns whether a file is in one of the user's directories.
    pub(super) fn is_in_directory(&self, file: &Path) -> bool {
        self.directories()
            .any(|directory| file.starts_with(directory))
    }

    /// Returns the directories with debug files, absolute.
    fn directories(&self) -> impl Iterator<Item = PathBuf> {
        let output = self.output.as_ref();
        let output = output.and_then(|path| std::path::absolute(path).ok());
        self.symbols.iter().cloned().chain(output)
    }

    pub(super) fn limits(&self) -> Limits {
        let default = Limits::default();
        Limits {
            max_bytes: self.maxsize.unwrap_or(default.max_bytes),
            timeout: self.timeout.unwrap_or(default.timeout),
        }
    }
}

/// An additional source of debug files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SymbolsFrom {
    /// A directory, as an absolute path.
    Directory(PathBuf),
    /// The servers of `perfcollect symbols`.
    Download,
}

impl SymbolsFrom {
    /// Parses a directory, or `download`. A directory of that name is `./download`.
    pub(super) fn parse(word: PathBuf) -> Result<Self, String> {
        if word.as_os_str() == "download" {
            return Ok(Self::Download);
        }
        directory(word).map(Self::Directory)
    }

    pub(super) fn directory(&self) -> Option<&PathBuf> {
        match self {
            Self::Directory(path) => Some(path),
            Self::Download => None,
        }
    }
}

fn directory(word: PathBuf) -> Result<PathBuf, String> {
    match std::path::absolute(&word) {
        Ok(path) if path.is_dir() => Ok(path),
        Ok(_) => Err("not a directory".into()),
        Err(error) => Err(error.to_string()),
    }
}

fn server(text: &str) -> Result<Server, String> {
    Server::symbol_server(text).ok_or_else(|| "not a server: expected an http or https URL".into())
}

fn file_bytes(text: &str) -> Result<u64, String> {
    scaled(text, 1).ok_or_else(|| {
        "not a size: expected bytes, or a number with K, M or G, such as 512M".into()
    })
}
