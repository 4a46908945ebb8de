//! What can be asked of servers of debug files.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::values::{scaled, seconds};
use crate::download::{Limits, Server};

/// Get debug files of ELF files, of all modules of a trace, or by build id, from symbol servers and debuginfod.
///
/// They go to a cache, where captures find them, and with -output to a directory too. Servers: -server, else those of
/// _NT_SYMBOL_PATH (or Microsoft's) and DEBUGINFOD_URLS. Status 0: all are there; 1: some are not.
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  \
    perfcollect symbols incident.trace.zip\n  \
    perfcollect symbols /usr/share/dotnet/shared/Microsoft.NETCore.App/8.0.33/libcoreclr.so -output /tmp/symbols\n  \
    perfcollect symbols 79945f51fb2612f13b7667a10a8fd29122664791 -server https://symbols.example.com")]
pub(super) struct SymbolsOptions {
    /// ELF files, traces, or build ids in hexadecimal
    #[arg(value_name = "FILE|NAME.trace.zip|BUILD_ID", required = true)]
    pub(super) files: Vec<PathBuf>,
    /// Put the debug files into this directory too, under the names they have beside their files (libcoreclr.so.dbg)
    #[arg(short, long, value_name = "DIR")]
    pub(super) output: Option<PathBuf>,
    /// Ask this symbol server only; may be given several times
    #[arg(long, value_name = "URL", value_parser = server)]
    pub(super) server: Vec<Server>,
    /// Largest file to get: bytes, or with K, M or G [default: 2G]
    #[arg(long, value_name = "SIZE", value_parser = file_bytes)]
    pub(super) maxsize: Option<u64>,
    /// Longest wait for an answer, and for the next 64 KiB [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) timeout: Option<Duration>,
    /// Replace other files in the directory
    #[arg(long)]
    pub(super) force: bool,
    /// Print nothing but errors
    #[arg(long)]
    pub(super) quiet: bool,
}

impl SymbolsOptions {
    pub(super) fn limits(&self) -> Limits {
        let default = Limits::default();
        Limits {
            max_bytes: self.maxsize.unwrap_or(default.max_bytes),
            timeout: self.timeout.unwrap_or(default.timeout),
        }
    }
}

/// Where debug files come from that are not in the usual places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SymbolsFrom {
    /// A directory, absolute.
    Directory(PathBuf),
    /// Servers, as `perfcollect symbols` asks them.
    Download,
}

impl SymbolsFrom {
    /// A directory of this name is `./download`.
    pub(super) fn parse(word: PathBuf) -> Result<Self, String> {
        if word.as_os_str() == "download" {
            return Ok(Self::Download);
        }
        match std::path::absolute(&word) {
            Ok(path) if path.is_dir() => Ok(Self::Directory(path)),
            Ok(_) => Err("not a directory".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    pub(super) fn directory(&self) -> Option<&PathBuf> {
        match self {
            Self::Directory(path) => Some(path),
            Self::Download => None,
        }
    }
}

fn server(text: &str) -> Result<Server, String> {
    Server::symbol_server(text)
        .ok_or_else(|| "not a server: a URL of http or https is needed".into())
}

fn file_bytes(text: &str) -> Result<u64, String> {
    scaled(text, 1)
        .ok_or_else(|| "not a size: a number of bytes, or such as 512M or 2G is needed".into())
}
