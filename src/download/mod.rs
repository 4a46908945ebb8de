//! Downloads debug files from servers, for `perfcollect symbols` and `-symbols download`.
//!
//! perfcollect supports two server layouts: symbol servers (Microsoft's has .NET's native
//! libraries) and debuginfod (distributions). It requests a file by build id. It keeps the file
//! only if it is an ELF file with this build id and with symbols. The search for debug files
//! includes the cache (`Sources::cache_paths`).
//!
//! A separate process without privileges reads the network and the files (`worker`). The parent
//! process opens and renames files, but reads none of them.

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
pub use fetch::{DownloadError, Downloader, Failure, Outcome, is_matching_debug_file};
pub use inspect::MissingDebugFiles;
pub use module::Module;
pub use server::Server;
pub use sources::Sources;
pub use worker::{WorkerError, identify, serve};
