//! The flame graph of a real capture in a real browser: search and zoom do what they say.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use support::{Missing, Saved, captured, run};

/// Acts on the picture as a user does, through its own handlers, and writes what is to be seen then into the document.
const ACTIONS: &str = r#"
window.addEventListener('load', function () {
  var frames = function () {
    return Array.from(document.querySelectorAll('#frames > g, #frames > a'));
  };
  var name = function (frame) { return frame.querySelector('title').textContent.replace(/ \([0-9,]+ samples.*/, ''); };
  var shown = function () {
    return frames().filter(function (frame) {
      return getComputedStyle(frame).display !== 'none' && !frame.classList.contains('hide');
    }).map(name);
  };
  var report = {};
  var width = function (frame) { return parseFloat(frame.querySelector('rect').getBoundingClientRect().width); };
  report.all = shown();
  report.root = width(frames().find(function (frame) { return name(frame) === 'all'; }));
  search('work50');
  report.searched = document.getElementById('matched').getBoundingClientRect().bottom;
  report.matched = document.getElementById('matched').textContent;
  report.highlighted = frames().filter(function (frame) {
    return frame.querySelector('rect').getAttribute('fill') === 'rgb(230,0,230)';
  }).map(name);
  reset_search();
  var wanted = frames().find(function (frame) { return name(frame) === 'work30'; });
  report.before = width(wanted);
  wanted.dispatchEvent(new MouseEvent('click', { bubbles: true }));
  report.zoomed = shown();
  report.after = width(wanted);
  document.getElementById('unzoom').dispatchEvent(new MouseEvent('click', { bubbles: true }));
  report.back = shown();
  var press = function (key) { window.dispatchEvent(new KeyboardEvent('keydown', { key: key })); };
  press('ArrowDown');
  var place = function (element) { return element.getBoundingClientRect(); };
  var id = function (name) { return document.getElementById(name); };
  report.rows = ['subtitle', 'details', 'legend'].map(function (name) { return place(id(name)).bottom; });
  var rows = frames().map(function (frame) { return place(frame.querySelector('rect')); });
  report.rows.push(Math.min.apply(null, rows.map(function (row) { return row.top; })));
  report.lowest = Math.max.apply(null, rows.map(function (row) { return row.bottom; }));
  report.height = place(document.documentElement).height;
  var text = function () { return id('details').textContent; };
  report.selected = [text()];
  press('ArrowDown');
  press('ArrowUp');
  report.selected.push(text());
  for (var pressed = 0; pressed < 20 && !/work/.test(text()); pressed++) press('ArrowDown');
  report.selected.push(text());
  press('ArrowLeft');
  report.neighbour = text();
  press('ArrowRight');
  report.selected.push(text());
  press('Enter');
  report.pressed = shown();
  press('Escape');
  report.escaped = shown();
  document.documentElement.setAttribute('data-report', JSON.stringify(report));
});
"#;

/// What the browser makes of a file, or a picture of it.
fn chromium(action: &str, file: &Path, directory: &Path) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let browser = std::env::split_paths(&path)
        .flat_map(|directory| {
            [
                directory.join("chromium"),
                directory.join("chromium-browser"),
            ]
        })
        .find(|browser| browser.is_file())?;
    let mut command = Command::new(browser);
    command
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1400,900",
        ])
        .arg(format!(
            "--user-data-dir={}",
            directory.join("profile").display()
        ))
        .arg(action)
        .arg(format!("file://{}", file.display()));
    Some(
        run(&mut command, Duration::from_secs(120))
            .expect_success()
            .stdout,
    )
}

/// The picture of a capture of the C program: three functions of one caller.
fn picture() -> Option<Saved> {
    let program = need!(support::workloads::native("native-fp"));
    Some(captured([
        "--",
        program.to_str().unwrap(),
        "--seconds",
        "2",
    ]))
}

fn names(report: &Value, key: &str) -> Vec<String> {
    serde_json::from_value(report[key].clone()).unwrap()
}

#[test]
fn search_and_zoom() {
    need_capture!();
    let Some(saved) = picture() else { return };
    let directory = saved.directory();
    let svg = saved.svg();
    let end = svg.rfind("</svg>").unwrap();
    let page = directory.join("page.svg");
    fs::write(
        &page,
        format!(
            "{}<script><![CDATA[{ACTIONS}]]></script></svg>",
            &svg[..end]
        ),
    )
    .unwrap();
    let Some(dom) = chromium("--dump-dom", &page, directory) else {
        skip!(Missing::Command("chromium"))
    };
    let report = dom
        .split_once("data-report=\"")
        .and_then(|(_, rest)| rest.split_once('"'))
        .unwrap_or_else(|| panic!("the page's own script failed: {dom}"))
        .0
        .replace("&quot;", "\"")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&");
    let report: Value = serde_json::from_str(&report).unwrap();

    let all = names(&report, "all");
    for name in [
        "all",
        "_start",
        "main",
        "share_caller",
        "work50",
        "work30",
        "work20",
    ] {
        assert!(all.contains(&name.to_owned()), "no {name} in {all:?}");
    }
    // Found, and the share that the stacks have.
    let highlighted = names(&report, "highlighted");
    assert!(!highlighted.is_empty());
    assert!(highlighted.iter().all(|name| name == "work50"), "{report}");
    let share = saved.samples_under(&["work50"]) as f64 * 100.0 / saved.summary.samples as f64;
    let matched = report["matched"].as_str().unwrap();
    assert_eq!(matched, format!("Matched: {share:.1}%"));
    // Zoomed in, the frame fills the width and its siblings are gone; its callers stay.
    let zoomed = names(&report, "zoomed");
    assert!(zoomed.contains(&"work30".to_owned()) && zoomed.contains(&"main".to_owned()));
    assert!(!zoomed.contains(&"work50".to_owned()), "{zoomed:?}");
    let width = |key: &str| report[key].as_f64().unwrap();
    assert!(width("before") < width("root") * 0.5, "{report}");
    assert_eq!(width("after"), width("root"));
    assert_eq!(names(&report, "back"), all);

    // The first view has the text about a frame, the legend and the root, one below the other.
    let rows: Vec<f64> = serde_json::from_value(report["rows"].clone()).unwrap();
    assert!(rows.is_sorted() && rows[3] < 120.0, "{rows:?}");
    let searched = width("searched");
    assert!(0.0 < searched && searched < rows[3], "{report}");
    assert!(width("lowest") <= width("height"), "{report}");
    // The keys go from the root to the largest callees, and to the next one.
    let selected = names(&report, "selected");
    assert!(selected[0].contains("all ("), "{selected:?}");
    assert_eq!(selected[1], selected[0]);
    assert!(selected[2].contains("work50"), "{selected:?}");
    // Frames are sorted by name: nothing need be on the right of it.
    let neighbour = report["neighbour"].as_str().unwrap();
    assert!(neighbour.contains("work30"), "{report}");
    assert_eq!(selected[3], selected[2]);
    let pressed = names(&report, "pressed");
    assert!(pressed.contains(&"work50".to_owned()), "{pressed:?}");
    assert!(!pressed.contains(&"work30".to_owned()), "{pressed:?}");
    assert_eq!(names(&report, "escaped"), all);
}
