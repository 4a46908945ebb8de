//! `docs/options.md` contains what `--help` prints.
#![allow(clippy::unwrap_used)]

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Longest line of `-h`, in columns.
const MAX_COLUMNS: usize = 132;

fn help(words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perfcollect"));
    let output = command.args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Names of the commands, in the order of the help.
fn commands() -> Vec<String> {
    let help = help(&["-h"]);
    let list = help.split("Commands:\n").nth(1).unwrap();
    let list = list.lines().take_while(|line| !line.is_empty());
    list.map(|line| line.split_whitespace().next().unwrap().to_owned())
        .collect()
}

/// The page as it should be.
fn page() -> String {
    let mut page = String::from(
        "# Options\n\nAll commands and options, as `perfcollect COMMAND --help` prints them. A test compares this page with \
         the program;\n`PERFCOLLECT_WRITE_OPTIONS=1 cargo test --test options_page` writes it.\n",
    );
    for command in commands() {
        let help = help(&[&command, "--help"]);
        let lines = help.lines().map(str::trim_end);
        let help = lines.collect::<Vec<_>>().join("\n");
        // Writing to a string cannot fail.
        write!(
            page,
            "\n## {command}\n\n```text\n{}\n```\n",
            help.trim_end()
        )
        .unwrap();
    }
    page
}

#[test]
fn the_options_page_is_what_help_prints() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/options.md");
    if std::env::var_os("PERFCOLLECT_WRITE_OPTIONS").is_some() {
        fs::write(&path, page()).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page(),
        "docs/options.md is stale: PERFCOLLECT_WRITE_OPTIONS=1 cargo test --test options_page"
    );
}

#[test]
fn each_option_is_described_in_one_line() {
    for command in commands() {
        for line in help(&[&command, "-h"]).lines() {
            assert!(line.chars().count() <= MAX_COLUMNS, "{command}: {line}");
        }
    }
}
