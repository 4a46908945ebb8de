use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::bytes::put_utf16z;
use crate::dotnet::{HOSTING, HTTP_CLIENT, TASKS};
use crate::history::test_events;
use crate::nettrace::{EventMetadata, Field, FieldType};
use crate::trace::Pid;

/// Activities: a request, one that it sends, and another request.
const A: ActivityId = [
    0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xb8, 0x99, 0x9d, 0x59,
];
const A_CALL: ActivityId = [
    0x11, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xb8, 0xa9, 0x9d, 0x59,
];
const B: ActivityId = [
    0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xb9, 0x99, 0x9d, 0x59,
];
const NONE: ActivityId = [0; 16];

fn kind(provider: &str, name: &str) -> EventMetadata {
    let field = |name: &str, kind| Field {
        name: name.to_owned(),
        kind,
    };
    let text = |name| field(name, FieldType::Utf16Text);
    let number = |name| field(name, FieldType::Signed { bytes: 4 });
    let fields = match (provider, name) {
        (HOSTING, "RequestStart") => vec![text("method"), text("path")],
        (HTTP_CLIENT, "RequestStart") => {
            vec![
                text("scheme"),
                text("host"),
                number("port"),
                text("pathAndQuery"),
            ]
        }
        (HTTP_CLIENT, "RequestStop") => vec![number("statusCode")],
        _ => Vec::new(),
    };
    EventMetadata {
        provider: provider.to_owned(),
        name: name.to_owned(),
        fields: Some(fields),
        ..EventMetadata::default()
    }
}

fn sample(thread: i32, time: u64, ns: u64) -> CpuSample {
    CpuSample {
        process: Pid(1),
        thread: Tid(thread),
        time: Nanos(time),
        ns,
    }
}

fn texts(texts: &[&str]) -> Vec<u8> {
    let mut payload = Vec::new();
    texts.iter().for_each(|text| put_utf16z(&mut payload, text));
    payload
}

fn call(path: &str) -> Vec<u8> {
    let mut payload = texts(&["http", "db"]);
    payload.extend(80_i32.to_le_bytes());
    put_utf16z(&mut payload, path);
    payload
}

type Step<'a> = (u64, i32, &'a str, &'a str, ActivityId, Vec<u8>);

/// Takes events: time in microseconds, thread, provider, name, activity, payload.
fn take(requests: &mut Requests, (time, thread, provider, name, id, payload): Step<'_>) {
    let mut event = test_events::event(0, time, thread, payload);
    event.metadata = Arc::new(kind(provider, name));
    event.activity.id = id;
    assert!(is_about_requests(&event.metadata), "{provider}/{name}");
    requests.take(&event);
}

fn requests(steps: Vec<Step<'_>>) -> Requests {
    let mut requests = Requests::default();
    steps.into_iter().for_each(|step| take(&mut requests, step));
    requests.finish(Nanos(100_000));
    requests
}

fn times(requests: &Requests) -> Vec<(&str, u64, bool, bool)> {
    let rows = requests.rows.iter();
    rows.map(|row| {
        let us = (row.end.0 - row.start.0) / 1000;
        (&*requests.route(row).name, us, row.has_ended, row.failed)
    })
    .collect()
}

#[test]
fn starts_and_stops_are_joined_by_activity() {
    let get = |path| texts(&["GET", path]);
    let requests = requests(vec![
        (1, 1, HOSTING, "RequestStop", NONE, vec![]),
        (2, 1, HOSTING, "RequestStart", A, get("/a/1?x=secret")),
        (3, 2, HOSTING, "RequestStart", B, get("/b")),
        (4, 1, HOSTING, "UnhandledException", A, vec![]),
        // Another thread ends it.
        (9, 2, HOSTING, "RequestStop", A, vec![]),
        // It is not the outgoing request of this id.
        (10, 2, HTTP_CLIENT, "RequestStop", B, vec![]),
        (11, 2, HOSTING, "RequestStart", NONE, get("/c")),
    ]);
    let expected = [("GET /a/{id}", 7, true, true), ("GET /b", 97, false, false)];
    assert_eq!(times(&requests), expected);
    assert_eq!((requests.unstarted, requests.without_activity), (2, 1));
    assert_eq!(requests.cpu_ns(&requests.rows[0]), None);
}

#[test]
fn outgoing_requests_have_their_incoming_one() {
    let status = |status: i32| status.to_le_bytes().to_vec();
    let requests = requests(vec![
        (10, 1, HOSTING, "RequestStart", A, texts(&["GET", "/a"])),
        (20, 1, HTTP_CLIENT, "RequestStart", A_CALL, call("/x/7?y=8")),
        (25, 3, HTTP_CLIENT, "RequestFailed", A_CALL, vec![]),
        (50, 3, HTTP_CLIENT, "RequestStop", A_CALL, status(-1)),
        (60, 1, HTTP_CLIENT, "RequestStart", A_CALL, call("/x/8")),
        (70, 1, HTTP_CLIENT, "RequestStop", A_CALL, status(404)),
        (75, 1, HTTP_CLIENT, "RequestStart", A_CALL, call("/x/8")),
        (80, 1, HOSTING, "RequestStop", A, vec![]),
        (85, 1, HTTP_CLIENT, "RequestStop", A_CALL, status(200)),
        // Nobody waits for it.
        (90, 1, HTTP_CLIENT, "RequestStart", B, call("/x/8")),
    ]);
    assert_eq!(
        times(&requests),
        [
            ("GET /a", 70, true, false),
            ("http://db/x/{id}", 30, true, true),
            ("http://db/x/{id}", 10, true, true),
            ("http://db/x/{id}", 10, true, false),
            ("http://db/x/{id}", 10, false, false),
        ]
    );
    assert_eq!(requests.rows[0].calls_ns, 45_000);
    let callers = requests.rows.iter().map(|row| requests.route(row).caller);
    assert!(callers.eq([None, Some(0), Some(0), Some(0), None]));
}

#[test]
fn cpu_time_is_that_of_threads_while_they_run_for_the_request() {
    let mut requests = requests(vec![
        (10, 1, HOSTING, "RequestStart", A, texts(&["GET", "/a"])),
        (20, 1, TASKS, "SetActivityId", A, NONE.to_vec()),
        (30, 2, TASKS, "SetActivityId", NONE, A_CALL.to_vec()),
        (40, 2, HOSTING, "RequestStop", A, vec![]),
    ]);
    for (thread, time) in [
        (1, 5),
        (1, 11),
        (1, 20),
        (1, 21),
        (2, 29),
        (2, 31),
        (2, 41),
        (3, 15),
    ] {
        requests.add_cpu_time(&sample(thread, time * 1000, 10));
    }
    assert_eq!(requests.cpu_ns(&requests.rows[0]), Some(30));
    assert_eq!(requests.waits_ns(&requests.rows[0]), None);
    for (thread, start, end) in [(1, 5, 12), (1, 18, 25), (2, 35, 50), (3, 10, 40)] {
        let [start, end] = [start, end].map(|us| Nanos(us * 1000));
        requests.add_wait(Tid(thread), start, end);
    }
    assert_eq!(
        requests.waits_ns(&requests.rows[0]),
        Some(2000 + 2000 + 5000)
    );
}

#[test]
fn memory_is_bounded() {
    let mut requests = Requests::default();
    for number in 0..2 * MAX_OPEN {
        let mut id = B;
        id[4..8].copy_from_slice(&(number as u32).to_le_bytes());
        let path = format!("/{number}x");
        take(
            &mut requests,
            (1, 1, HOSTING, "RequestStart", id, texts(&["GET", &path])),
        );
    }
    assert_eq!(requests.rows.len(), MAX_OPEN);
    assert_eq!(requests.omitted, MAX_OPEN as u64);
    assert_eq!(requests.routes.len(), MAX_ROUTES + 1);
    // Those without a row end, too.
    for number in 0..2 * MAX_OPEN + 1 {
        let mut id = B;
        id[4..8].copy_from_slice(&(number as u32).to_le_bytes());
        take(&mut requests, (2, 1, HOSTING, "RequestStop", id, vec![]));
    }
    let totals = requests.totals(Direction::Incoming);
    let all = 2 * MAX_OPEN as u64;
    assert_eq!((totals.started, totals.ended), (all, all));
    assert_eq!(requests.unstarted, 1);
}

#[test]
fn totals_go_on_when_there_are_too_many_rows() {
    let mut requests = Requests {
        rows: vec![Request::new(0, Nanos(0)); MAX_REQUESTS],
        ..Requests::default()
    };
    let status = |status: i32| status.to_le_bytes().to_vec();
    for step in [
        (1, 1, HOSTING, "RequestStart", A, texts(&["GET", "/a"])),
        (2, 1, HTTP_CLIENT, "RequestStart", A_CALL, call("/x")),
        (3, 1, HTTP_CLIENT, "RequestFailed", A_CALL, vec![]),
        (4, 1, HTTP_CLIENT, "RequestStop", A_CALL, status(-1)),
        (5, 1, HOSTING, "RequestStop", A, vec![]),
        (6, 1, HOSTING, "RequestStart", B, texts(&["GET", "/b"])),
    ] {
        take(&mut requests, step);
    }
    requests.finish(Nanos(7000));
    let totals = [Direction::Incoming, Direction::Outgoing].map(|direction| {
        let totals = requests.totals(direction);
        (totals.started, totals.ended, totals.failed)
    });
    assert_eq!(totals, [(2, 1, 0), (1, 1, 1)]);
    assert_eq!((requests.omitted, requests.unstarted), (3, 0));
    assert_eq!(requests.rows.len(), MAX_REQUESTS);
}

#[test]
fn cpu_time_is_unknown_after_the_last_sample() {
    let mut requests = requests(vec![
        (100, 1, HOSTING, "RequestStart", A, texts(&["GET", "/a"])),
        (120, 1, TASKS, "SetActivityId", A, NONE.to_vec()),
        (200, 1, HOSTING, "RequestStop", A, vec![]),
    ]);
    assert_eq!(requests.cpu_ns(&requests.rows[0]), Some(0));
    for (samples_end, cpu_ns) in [(189, None), (190, Some(0)), (300, Some(0))] {
        requests.set_samples_end(Nanos(samples_end * 1000));
        assert_eq!(requests.cpu_ns(&requests.rows[0]), cpu_ns);
    }
}

proptest! {
    #[test]
    fn any_payload_in_any_order_is_accepted(
        steps in proptest::collection::vec(
            (0..8_usize, 0..3_i32, 0..4_usize, any::<u64>(), proptest::collection::vec(any::<u8>(), 0..40)),
            0..60,
        ),
    ) {
        let mut requests = Requests::default();
        let kinds = [
            (HOSTING, "RequestStart"), (HOSTING, "RequestStop"), (HOSTING, "UnhandledException"),
            (HTTP_CLIENT, "RequestStart"), (HTTP_CLIENT, "RequestStop"), (HTTP_CLIENT, "RequestFailed"),
            (TASKS, "SetActivityId"), (TASKS, "SetActivityId"),
        ];
        for (at, thread, id, time, payload) in steps {
            let id = [A, A_CALL, B, NONE][id];
            let payload = match kinds[at] {
                (HOSTING, "RequestStart") if payload.len() > 20 => texts(&["GET", "/"]),
                (HTTP_CLIENT, "RequestStart") if payload.len() > 20 => call("/"),
                (TASKS, _) if payload.len() > 20 => id.to_vec(),
                _ => payload,
            };
            let (provider, name) = kinds[at];
            take(&mut requests, (time / 1000, thread, provider, name, id, payload));
            requests.add_cpu_time(&sample(thread, time, 1));
            requests.add_wait(Tid(thread), Nanos(time / 2), Nanos(time));
        }
        requests.finish(Nanos(0));
        for row in &requests.rows {
            prop_assert!(row.start <= row.end);
            requests.cpu_ns(row);
            prop_assert!(requests.waits_ns(row).is_none_or(|_| row.start <= row.end));
            requests.pauses.within(row.start, row.end);
        }
    }
}
