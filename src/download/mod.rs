//! Debug files from servers, for who asks for them: `perfcollect symbols`, `-symbols download`.
//!
//! Two layouts of servers are known: that of symbol servers (Microsoft's has .NET's native libraries) and debuginfod's
//! (distributions). A file is asked for by build id, and what comes is kept only if it is an ELF file that states this
//! build id and has symbols. It goes to a cache, which the search for debug files looks into (`Sources::cached`).
//!
//! The network and the files are read by a process of its own without any privilege (`worker`): this one opens and
//! names files, and reads none of them.

mod cache;
mod client;
mod fetch;
mod fetch_error;
mod inspect;
mod module;
mod privileges;
mod proxy;
mod redirect;
mod server;
mod sources;
mod worker;

pub use cache::CacheError;
pub use client::Limits;
pub use fetch::{DownloadError, Downloader, Failure, Outcome, is_matching_debug_file, open};
pub use inspect::MissingDebugFiles;
pub use module::Module;
pub use server::Server;
pub use sources::Sources;
pub use worker::{WorkerError, identify, serve};
