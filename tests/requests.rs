//! Requests of a real service of ASP.NET Core, against what its client counts and measures.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::time::Duration;

use perfcollect::output::summary::{RequestDirection, RequestRoute, RequestSummary};
use support::{
    Missing, Runtime, Saved, ServiceClient, Workload, captured_during, run_perfcollect, runtimes,
    workloads,
};

const LIMIT: Duration = Duration::from_secs(300);
/// Times that the service takes for a request, in milliseconds.
const WAIT: f64 = 60.0;
const CALL: f64 = 80.0;
const SLEEP: f64 = 100.0;

/// The runtimes with ASP.NET Core, one of each version.
fn web_runtimes() -> Result<Vec<Runtime>, Missing> {
    let mut runtimes = runtimes();
    runtimes.retain(|runtime| runtime.aspnet && runtime.major() >= 8);
    runtimes.dedup_by_key(|runtime| runtime.major());
    match runtimes.is_empty() {
        true => Err(Missing::AspNet(8)),
        false => Ok(runtimes),
    }
}

fn requests(saved: &Saved) -> &RequestSummary {
    saved.summary.runtimes[0].requests.as_ref().unwrap()
}

/// The requests with a name.
#[track_caller]
fn route<'a>(requests: &'a RequestSummary, name: &str) -> &'a RequestRoute {
    let mut routes = requests.routes.iter();
    let route = routes.find(|route| route.name == name);
    route.unwrap_or_else(|| panic!("{name}: {requests:#?}"))
}

fn total_ms(route: &RequestRoute) -> f64 {
    route.mean_ms * (route.counts.count - route.counts.unended) as f64
}

/// The times of a service are within those of its client, and no shorter than it waits.
#[track_caller]
fn expect_times(route: &RequestRoute, measured: &[f64], least: f64) {
    assert_eq!(route.counts.count, measured.len() as u64, "{route:#?}");
    let all: f64 = measured.iter().sum();
    // A timer may be a tick too early.
    let least = (least - 1.0).max(0.0);
    assert!(total_ms(route) <= all, "{all} {route:#?}");
    assert!(route.p50_ms >= least, "{route:#?}");
    let max = measured.iter().copied().fold(0.0, f64::max);
    let order = [route.p50_ms, route.p95_ms, route.p99_ms, route.max_ms, max];
    assert!(order.is_sorted(), "{order:?}");
}

#[test]
fn requests_are_what_their_client_measures() {
    need_capture!();
    let program = need!(workloads::service());
    for runtime in need!(web_runtimes()) {
        println!("on .NET {}", runtime.version);
        let service = Workload::start(&mut runtime.command(&program));
        let client = ServiceClient::new(&service);
        let pid = service.pid().to_string();
        let (mut wait, mut call, mut burn) = (vec![], vec![], vec![]);
        // It has started, and has not ended, when the capture ends.
        let mut hanging = None;
        let saved = captured_during(
            &["-pid", &pid, "-requests", "-awaits", "-threadtime"],
            || {
                // The session has started when an event of a request arrives, at the latest.
                wait = client.get((0..40).map(|id| format!("/wait/{WAIT}?token=secret{id}")));
                call = client.get((0..5).map(|_| format!("/call/{CALL}")));
                burn = client.get((0..10).map(|_| "/burn/100".to_owned()));
                client.get((0..10).map(|_| format!("/sleep/{SLEEP}")));
                client.get((0..3).map(|id| format!("/fail/{id}")));
                hanging = Some(client.send("/hang"));
                client.get(["/last".to_owned()].into_iter());
            },
        );
        drop(hanging);
        drop(service);
        let requests = requests(&saved);
        if !saved.summary.quality.losses.is_notable() {
            assert_eq!(requests.lacks_cpu, "");
        }
        // Those before the session are not there.
        let by_wait = route(requests, "GET /wait/{id}");
        let late = by_wait.counts.count as usize - call.len();
        assert!(late > 0 && late <= wait.len(), "{by_wait:#?}");
        let measured = [&wait[wait.len() - late..], &call[..]].concat();
        expect_times(by_wait, &measured, WAIT);
        expect_times(route(requests, "GET /call/{id}"), &call, CALL);
        expect_times(route(requests, "GET /burn/{id}"), &burn, 0.0);
        let failed = route(requests, "GET /fail/{id}").counts;
        assert_eq!((failed.count, failed.failed), (3, 3));
        let hang = route(requests, "GET /hang");
        assert_eq!((hang.counts.count, hang.counts.unended), (1, 1));
        assert!(hang.unended_ms.is_some());
        expect_calls(requests, call.len());
        expect_cpu_time(&saved);
        expect_waits(requests);
        let waited = wait[wait.len() - late..].iter().sum();
        expect_awaits(&saved, [waited, call.iter().sum()]);
        expect_reports(&saved);
    }
}

/// The service's only asynchronous method waits as long as its requests do, and one of its awaits has not ended.
#[track_caller]
fn expect_awaits(saved: &Saved, [wait, call]: [f64; 2]) {
    let awaits = saved.summary.runtimes[0].awaits.as_ref().unwrap();
    let own: Vec<_> = awaits.rows.iter().filter(|row| row.is_own).collect();
    let row = |request: &str| {
        let mut rows = own.iter().filter(|row| row.request == request);
        let row = rows
            .next()
            .unwrap_or_else(|| panic!("{request}: {awaits:#?}"));
        assert!(row.method.name.contains("<Handle>"), "{row:#?}");
        assert!(rows.next().is_none(), "{awaits:#?}");
        row
    };
    // It waits for the timer, or for the request that it sends to itself, and for a thread of the pool.
    for (request, measured) in [("GET /wait/{id}", wait + call), ("GET /call/{id}", call)] {
        let row = row(request);
        assert!(
            row.ms > measured * 0.7 && row.ms <= measured,
            "{measured} {row:#?}"
        );
    }
    if !awaits.is_lossy {
        assert_eq!(row("GET /hang").unended, 1);
    }
    // A thread waits.
    assert!(
        own.iter().all(|row| row.request != "GET /sleep/{id}"),
        "{own:#?}"
    );
    let words = [
        "report",
        saved.path.to_str().unwrap(),
        "-kind",
        "awaits",
        "-format",
        "csv",
    ];
    let table = run_perfcollect(words, saved.directory(), LIMIT).expect_success();
    assert!(
        table.stdout.contains(",own,Program.Handle,GET /hang"),
        "{}",
        table.stdout
    );
}

/// Outgoing requests are within the incoming ones that send them.
#[track_caller]
fn expect_calls(requests: &RequestSummary, count: usize) {
    let caller = route(requests, "GET /call/{id}");
    let outgoing = requests.routes.iter();
    let outgoing: Vec<_> = outgoing
        .filter(|route| route.direction == RequestDirection::Out)
        .collect();
    let [call] = outgoing[..] else {
        panic!("{outgoing:#?}");
    };
    assert_eq!(call.caller.as_deref(), Some("GET /call/{id}"));
    assert_eq!(call.counts.count, count as u64);
    assert!(call.name.starts_with("http://127.0.0.1:"), "{call:#?}");
    assert!(call.name.ends_with("/wait/{id}"), "{call:#?}");
    let waited = total_ms(caller) * caller.calls_percent / 100.0;
    assert!(
        (waited - total_ms(call)).abs() < 0.1,
        "{caller:#?} {call:#?}"
    );
}

/// All that burns does so for a request, on whatever thread.
#[track_caller]
fn expect_cpu_time(saved: &Saved) {
    let burn = route(requests(saved), "GET /burn/{id}");
    let cpu_ms = total_ms(burn) * burn.cpu_percent.unwrap() / 100.0;
    let per_sample = saved.summary.cpu_ms / saved.summary.samples as f64;
    let burned_ms = saved.samples_under(&["Program.Burn"]) as f64 * per_sample;
    // The rest of a request needs little: the compilation of methods, and the answer.
    assert!(burned_ms > 50.0, "{burned_ms}");
    let expected = 0.95 * burned_ms..1.3 * burned_ms;
    assert!(expected.contains(&cpu_ms), "{burned_ms} {burn:#?}");
    let wait = route(requests(saved), "GET /wait/{id}");
    assert!(wait.cpu_percent.unwrap() < burn.cpu_percent.unwrap());
}

/// A thread waits for the request that blocks it, and for none while a request awaits.
#[track_caller]
fn expect_waits(requests: &RequestSummary) {
    let sleep = route(requests, "GET /sleep/{id}");
    let waited = total_ms(sleep) * sleep.waiting_percent.unwrap() / 100.0;
    let expected = SLEEP * sleep.counts.count as f64;
    assert!((waited - expected).abs() < 0.35 * expected, "{sleep:#?}");
    let wait = route(requests, "GET /wait/{id}");
    // What is left is for a CPU.
    assert!(wait.waiting_percent.unwrap() < 30.0, "{wait:#?}");
}

#[track_caller]
fn expect_reports(saved: &Saved) {
    let report = |options: &[&str]| {
        let path = saved.path.to_str().unwrap();
        let words = ["report", path, "-kind", "requests"];
        let words = words.iter().chain(options);
        let report = run_perfcollect(words, saved.directory(), LIMIT)
            .expect_success()
            .stdout;
        assert!(!report.contains("secret"), "{report}");
        report
    };
    let text = report(&[]);
    assert!(text.contains("3 failed, 1 not ended, 5 sent"), "{text}");
    let call = text.find("  GET /call/{id}\n").unwrap();
    let next = text[call..].lines().nth(1).unwrap();
    assert!(next.contains("  -> 127.0.0.1:"), "{text}");
    let csv = report(&["-format", "csv"]);
    assert!(csv.contains(",GET /call/{id},http://127.0.0.1:"), "{csv}");
    let single = report(&["-format", "json", "-full"]);
    let single: serde_json::Value = serde_json::from_str(&single).unwrap();
    let hang = &single["rows"].as_array().unwrap().iter();
    let mut hang = hang.clone().filter(|row| row["request"] == "GET /hang");
    assert_eq!(hang.next().unwrap()["state"], "unended");
}

#[test]
fn a_capture_without_requests_says_so() {
    need_capture!();
    let runtime = need!(Runtime::newest());
    let program = need!(workloads::idle());
    let service = Workload::start(&mut runtime.command(&program));
    let pid = service.pid().to_string();
    let saved = captured_during(&["-pid", &pid], || service.say("go"));
    let report = ["report", saved.path.to_str().unwrap(), "-kind", "requests"];
    let text = run_perfcollect(report, saved.directory(), LIMIT)
        .expect_success()
        .stdout;
    assert!(
        text.contains("a capture with -requests records those that start while it runs"),
        "{text}"
    );
    assert!(
        saved
            .summary
            .runtimes
            .iter()
            .all(|row| row.requests.is_none())
    );
}
