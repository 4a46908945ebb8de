//! FlameGraph's stackcollapse-perf.pl and its port inferno. Both cut names at the first parenthesis.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use inferno::collapse::Collapse;
use inferno::collapse::perf::{Folder, Options};

use crate::support::run;
use crate::{LIMIT, Sample, Text, expect_same, reader, texts};

type Folded = BTreeMap<String, u64>;

/// What differs between the two.
struct Dialect {
    /// What follows a name of one letter.
    after_letter: &'static str,
    /// What they leave out of names.
    dropped: &'static [char],
    count: fn(&Sample) -> u64,
}

const SCRIPT: Dialect = Dialect {
    after_letter: "_",
    dropped: &['"', '\''],
    count: |_| 1,
};

const PORT: Dialect = Dialect {
    after_letter: "",
    dropped: &[],
    count: |sample| sample.weight,
};

fn expected(text: &Text, dialect: &Dialect) -> Folded {
    let mut folded = Folded::new();
    for sample in &text.samples {
        let mut line = sample.process.replace(' ', "_");
        if line.len() == 1 {
            line += dialect.after_letter;
        }
        line += &format!("-{}/{}", sample.pid, sample.tid);
        for frame in &sample.stack {
            let name = frame.name.replace(';', ":").replace(dialect.dropped, "");
            line += ";";
            line += name.split('(').next().unwrap();
        }
        *folded.entry(line).or_default() += (dialect.count)(sample);
    }
    folded
}

fn parse(folded: &str) -> Folded {
    let lines = folded.lines().map(|line| line.rsplit_once(' ').unwrap());
    lines
        .map(|(stack, count)| (stack.to_owned(), count.parse().unwrap()))
        .collect()
}

#[test]
fn inferno_sums_the_weights() {
    for text in texts() {
        let mut options = Options::default();
        options.include_tid = true;
        let mut folded = Vec::new();
        let mut folder = Folder::from(options);
        folder.collapse(&*text.bytes, &mut folded).unwrap();
        let folded = parse(std::str::from_utf8(&folded).unwrap());
        expect_same(&folded, &expected(&text, &PORT));
    }
}

/// The script of 2019 counts records. A script of 2021 or later, at `$STACKCOLLAPSE_PERF`, sums their periods.
#[test]
fn flamegraph_finds_each_sample() {
    let script = match std::env::var_os("STACKCOLLAPSE_PERF") {
        Some(script) => script.into(),
        None => need!(reader("perl", "flamegraph/stackcollapse-perf.pl")),
    };
    let sums = std::fs::read_to_string(&script)
        .unwrap()
        .contains("$m_period");
    for text in texts() {
        let count = if sums { PORT.count } else { SCRIPT.count };
        let dialect = Dialect { count, ..SCRIPT };
        expect_same(&stackcollapse(&script, &text), &expected(&text, &dialect));
    }
}

fn stackcollapse(script: &Path, text: &Text) -> Folded {
    let file = text.file();
    let mut perl = Command::new("perl");
    perl.arg(script).arg("--tid").arg(file.path());
    let done = run(&mut perl, LIMIT).expect_success();
    // It complains of lines it does not know, and of other events.
    assert_eq!(done.stderr, "");
    parse(&done.stdout)
}
