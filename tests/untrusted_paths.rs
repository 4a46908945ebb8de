//! Which files of the product open, stat or connect to paths, and whose paths those are.
//!
//! Paths of other users go through `symbols/src/process/root.rs`. Any other place must be in the
//! list, with the reason why its paths are trusted.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use support::sources::{is_of_tests, source_files};
use syn::visit::{self, Visit};

/// Paths of processes, which other users choose: the place that all of them go through.
const STRANGERS: &str = "paths of other users";
const KERNEL: &str = "files and links of /proc and /sys, which the kernel makes";
const SOCKET: &str = "a descriptor of the socket, whose listener is then checked";
const OUTPUT: &str = "files of a capture, without following links";
const ARGUMENT: &str = "files that the command line names, and those beside them";
const CACHE: &str = "the download cache, below directories of the user";

/// Files that use paths, and what paths these are.
const TRUSTED: [(&str, &str); 50] = [
    ("src/capture/block_io.rs", KERNEL),
    ("src/capture/cpu_waits.rs", KERNEL),
    ("src/capture/off_cpu/mod.rs", KERNEL),
    ("src/capture/off_cpu/watched_thread.rs", KERNEL),
    ("src/capture/priority.rs", KERNEL),
    ("src/capture/signals.rs", KERNEL),
    ("src/capture/usage.rs", KERNEL),
    ("src/cli/background.rs", OUTPUT),
    ("src/cli/habits/perf.rs", ARGUMENT),
    ("src/cli/opened.rs", ARGUMENT),
    ("src/cli/recording_options.rs", ARGUMENT),
    ("src/cli/sandbox/mod.rs", ARGUMENT),
    ("src/cli/symbols_options.rs", ARGUMENT),
    ("src/cli/symbols_traces.rs", ARGUMENT),
    ("src/cpu_list.rs", KERNEL),
    ("src/dotnet/diagnostics/connection.rs", SOCKET),
    ("src/dotnet/memory.rs", KERNEL),
    ("src/dotnet/runtime_settings.rs", KERNEL),
    ("src/download/cache.rs", CACHE),
    ("src/download/privileges.rs", KERNEL),
    ("src/dotnet/private_memory.rs", KERNEL),
    ("src/machine/descriptors.rs", KERNEL),
    ("src/machine/proc_fs.rs", KERNEL),
    ("src/machine/tcp_sockets.rs", KERNEL),
    ("src/machine/throttling.rs", KERNEL),
    ("src/machine/tracefs.rs", KERNEL),
    ("src/output/directory.rs", OUTPUT),
    ("src/output/event_directory.rs", OUTPUT),
    ("src/output/file.rs", OUTPUT),
    ("src/output/message_file.rs", OUTPUT),
    ("src/output/output_file.rs", OUTPUT),
    ("src/output/perf_data/symbol_directory.rs", OUTPUT),
    ("src/output/spool_file.rs", OUTPUT),
    ("src/perf/open_error.rs", KERNEL),
    ("src/perf_data/archive.rs", ARGUMENT),
    ("src/perf_data/kernel.rs", ARGUMENT),
    ("src/perf_data/open.rs", ARGUMENT),
    ("src/regular_file.rs", ARGUMENT),
    ("src/resymbolize/mod.rs", ARGUMENT),
    ("src/resymbolize/siblings.rs", ARGUMENT),
    ("src/script/symbols.rs", ARGUMENT),
    ("src/symbolize/kernel.rs", KERNEL),
    ("symbols/src/process/mapped_file.rs", KERNEL),
    ("symbols/src/process/maps.rs", KERNEL),
    ("symbols/src/process/memory.rs", KERNEL),
    ("symbols/src/process/root.rs", STRANGERS),
    ("symbols/src/process/status.rs", KERNEL),
    ("symbols/src/symbolizer.rs", KERNEL),
    ("symbols/src/symbolizer/debug_files.rs", KERNEL),
    ("symbols/src/symbolizer/file.rs", ARGUMENT),
];

/// Functions that take a path, by their last two words.
const FUNCTIONS: [&str; 33] = [
    "File::open",
    "File::create",
    "File::create_new",
    "File::options",
    "OpenOptions::new",
    "fs::open",
    "fs::openat",
    "fs::openat2",
    "fs::read",
    "fs::read_to_string",
    "fs::read_link",
    "fs::read_dir",
    "fs::write",
    "fs::exists",
    "fs::metadata",
    "fs::symlink_metadata",
    "fs::canonicalize",
    "fs::stat",
    "fs::lstat",
    "fs::statat",
    "fs::statx",
    "fs::statfs",
    "fs::statvfs",
    "fs::readlink",
    "fs::readlinkat",
    "fs::access",
    "fs::accessat",
    "fs::copy",
    "fs::rename",
    "fs::hard_link",
    "fs::remove_file",
    "UnixStream::connect",
    "net::connect",
];

/// Methods of a path that access it.
const METHODS: [&str; 8] = [
    "exists",
    "try_exists",
    "read_link",
    "read_dir",
    "symlink_metadata",
    "canonicalize",
    "is_dir",
    "is_symlink",
];

/// Collects the calls of a file that take a path.
#[derive(Default)]
struct Calls(BTreeSet<String>);

impl<'ast> Visit<'ast> for Calls {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_of_tests(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        let words = path.path.segments.iter().rev().take(2);
        let mut words: Vec<String> = words.map(|part| part.ident.to_string()).collect();
        words.reverse();
        let called = words.join("::");
        if FUNCTIONS.contains(&called.as_str()) {
            self.0.insert(called);
        }
        visit::visit_expr_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let method = call.method.to_string();
        if METHODS.contains(&method.as_str()) {
            self.0.insert(format!(".{method}()"));
        }
        visit::visit_expr_method_call(self, call);
    }
}

#[test]
fn paths_of_other_users_go_through_one_function() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut calls = BTreeMap::new();
    for directory in ["src", "symbols/src"] {
        for file in source_files(&root.join(directory)) {
            let parsed = syn::parse_file(&fs::read_to_string(&file).unwrap()).unwrap();
            let mut found = Calls::default();
            found.visit_file(&parsed);
            if !found.0.is_empty() {
                let path = file.strip_prefix(root).unwrap().to_str().unwrap();
                calls.insert(path.to_owned(), found.0);
            }
        }
    }
    assert_eq!(
        TRUSTED
            .iter()
            .filter(|(_, whose)| *whose == STRANGERS)
            .count(),
        1
    );
    let trusted: BTreeMap<&str, &str> = TRUSTED.into_iter().collect();
    assert_eq!(trusted.len(), TRUSTED.len(), "a file is twice in the list");
    let unlisted = calls
        .iter()
        .filter(|(path, _)| !trusted.contains_key(path.as_str()));
    let unlisted: Vec<_> = unlisted.collect();
    assert!(
        unlisted.is_empty(),
        "use perfcollect_symbols::process::Root for paths of others; else add the file to the list: {unlisted:#?}"
    );
    let stale: Vec<_> = trusted
        .keys()
        .filter(|path| !calls.contains_key(**path))
        .collect();
    assert!(stale.is_empty(), "no longer needed: {stale:?}");
}
