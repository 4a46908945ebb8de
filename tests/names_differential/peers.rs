//! The other tools, one process for all addresses of a file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Peer {
    Addr2line,
    LlvmSymbolizer,
}

/// Returns the first of the tools that is not installed.
pub(crate) fn missing() -> Option<&'static str> {
    let tools = ["addr2line", "llvm-symbolizer", "readelf", "c++filt"];
    tools
        .into_iter()
        .find(|tool| Command::new(tool).arg("--version").output().is_err())
}

impl Peer {
    /// Returns the functions at these addresses, innermost first, as linkage names; `??` for none.
    pub(crate) fn chains(
        self,
        file: &Path,
        addresses: impl Iterator<Item = u64>,
    ) -> BTreeMap<u64, Vec<String>> {
        let mut command = match self {
            Self::Addr2line => Command::new("addr2line"),
            Self::LlvmSymbolizer => Command::new("llvm-symbolizer"),
        };
        match self {
            Self::Addr2line => command.args(["-afi", "-e"]),
            Self::LlvmSymbolizer => command.args([
                "--functions=linkage",
                "--inlines",
                "--no-demangle",
                "--output-style=GNU",
                "--addresses",
                "-e",
            ]),
        };
        let input: String = addresses.map(|address| format!("{address:#x}\n")).collect();
        let output = filter(command.arg(file).env_remove("DEBUGINFOD_URLS"), &input);
        let mut chains: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        let mut lines = output.lines().filter(|line| !line.is_empty());
        let mut address = 0;
        while let Some(line) = lines.next() {
            match line
                .strip_prefix("0x")
                .and_then(|hex| u64::from_str_radix(hex, 16).ok())
            {
                Some(next) => address = next,
                None => {
                    chains.entry(address).or_default().push(line.to_owned());
                    // File and line follow each name.
                    lines.next();
                }
            }
        }
        chains
    }
}

/// Returns the output of a command for an input.
pub(crate) fn filter(command: &mut Command, input: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("input");
    File::create(&path)
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = command
        .stdin(File::open(path).unwrap())
        .stderr(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{command:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
