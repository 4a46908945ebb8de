//! Tables of compiled methods, row by row against PerfView's.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::tables::{ROUNDING, Tables, expect_near, in_perfview};

/// The table of all methods.
const METHODS: &str = "Individual JIT Events";

/// Number of compared characters of a name; longer names are truncated.
const NAME: usize = 150;

/// Fails unless the table of compiled methods equals PerfView's.
#[track_caller]
pub(crate) fn expect_same_table_of_methods(trace: &Path, nettrace: &Path) -> Option<Tables> {
    let jit = in_perfview(nettrace, "jit")?;
    let tables = Tables::read(trace, "jit");
    let methods = jit["methods"].as_u64().unwrap();
    assert_eq!(tables.stated(" methods compiled"), methods as f64);
    assert_eq!(
        tables.stated(" bytes of IL"),
        jit["ilBytes"].as_f64().unwrap()
    );
    assert_eq!(
        tables.stated(" of native code"),
        jit["nativeBytes"].as_f64().unwrap()
    );
    expect_near(
        tables.stated(" ms: "),
        jit["jitMs"].as_f64().unwrap(),
        ROUNDING,
        "compiling",
    );
    assert_eq!(jit["withoutModule"], 0, "{}", tables.text);
    // Rows with the same start have any order: each of perfcollect's adds one, each of PerfView's
    // subtracts one.
    let mut balance: BTreeMap<[String; 5], i64> = BTreeMap::new();
    let rows = tables.rows(METHODS);
    let starts = rows.iter().map(|row| row[0].parse::<f64>().unwrap());
    assert!(starts.is_sorted());
    for mut row in rows {
        // The memory of the code follows the sizes, if the runtime reported it.
        if row[4].parse::<u64>().is_ok() {
            row.drain(4..8);
        }
        let name: String = row[6..].join(" ").chars().take(NAME).collect();
        let key = [&row[2], &row[3], &row[4], &row[5], &name].map(String::to_owned);
        *balance.entry(key).or_default() += 1;
    }
    // An unfinished compilation has no figures.
    let ended = |row: &&Value| row["nativeBytes"] != 0;
    for row in jit["list"].as_array().unwrap().iter().filter(ended) {
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        let trigger = match row["trigger"].as_str().unwrap() {
            "Foreground" => "FG",
            "TieredCompilationBackground" => "TC",
            other => panic!("{other}"),
        };
        let file = text("module").rsplit('/').next().unwrap().to_owned();
        let name = format!("{file} {}", text("method"));
        let name: Vec<&str> = name.split_whitespace().collect();
        let key = [
            row["ilBytes"].to_string(),
            row["nativeBytes"].to_string(),
            text("tier"),
            trigger.to_owned(),
            name.join(" ").chars().take(NAME).collect(),
        ];
        *balance.entry(key).or_default() -= 1;
    }
    balance.retain(|_, count| *count != 0);
    assert_eq!(balance, BTreeMap::new());
    expect_summaries(&tables, &jit);
    Some(tables)
}

/// The totals of each trigger equal PerfView's, and those of triggers, tiers and modules add up.
#[track_caller]
fn expect_summaries(tables: &Tables, jit: &Value) {
    let count = |row: &[String]| -> u64 { row[row.len() - 4].parse().unwrap() };
    let triggers = tables.rows("Summary of jitting time by trigger");
    for (name, theirs) in [
        ("TOTAL", "methods"),
        ("Foreground", "foreground"),
        ("Tiered", "tieredBackground"),
    ] {
        let ours = triggers.iter().find(|row| row[0] == name);
        assert_eq!(
            ours.map_or(0, |row| count(row)),
            jit[theirs],
            "{triggers:?}"
        );
    }
    let all = count(&triggers[0]);
    // Triggers first, then tiers: each adds up to all.
    let rows = triggers.iter().skip(1).map(|row| count(row));
    assert_eq!(rows.sum::<u64>(), 2 * all, "{triggers:?}");
    let modules = tables.rows("Summary of jitting time by module");
    let column = |at: usize| {
        let mut rows = modules.iter().map(|row| row[at].parse::<u64>().unwrap());
        (rows.next(), rows.sum::<u64>())
    };
    let stated = ["methods", "ilBytes", "nativeBytes"].map(|name| jit[name].as_u64());
    for (at, stated) in [1, 2, 3].into_iter().zip(stated) {
        assert_eq!(column(at), (stated, stated.unwrap()), "{modules:?}");
    }
}
