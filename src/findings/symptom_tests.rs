//! Findings of captures that are for a symptom.

use clap::ValueEnum;

use super::find;
use super::tests::summary;
use crate::output::summary::{
    AllocationSummary, Finding, GcSummary, HeapGrowth, NetworkStep, PlaceTime, RequestCounts,
    RequestDirection, RequestRoute, RequestSummary, RuntimeSummary, StepKind, Summary,
    ThreadPoolSummary, ThreadTime, WaitSummary, Work,
};
use crate::output::variant_name;
use crate::trace::{Notice, NoticeKind, ProcessMemory, Symptom};

/// A process that used `cpu_ms` of ten seconds, in a capture for a symptom.
fn of(symptom: Symptom, cpu_ms: f64, runtime: RuntimeSummary) -> Summary {
    let mut summary = summary(cpu_ms, 1000, Work::default());
    summary.info.system_wide = false;
    summary.info.symptom = Some(symptom);
    summary.runtimes.push(RuntimeSummary {
        pid: 7,
        program: "Shop".into(),
        ..runtime
    });
    summary
}

fn first(summary: &Summary) -> Finding {
    find(summary).into_iter().next().unwrap()
}

#[track_caller]
fn expect(summary: &Summary, rule: &str, words: &[&str]) {
    let found = first(summary);
    assert_eq!(found.rule, rule, "{found:#?}");
    for words in words {
        assert!(found.text.contains(words), "{words}: {}", found.text);
    }
}

fn growth(is_full: bool, first_bytes: u64, last_bytes: u64) -> RuntimeSummary {
    RuntimeSummary {
        gc: Some(GcSummary {
            growth: Some(HeapGrowth {
                is_full,
                collections: 5,
                first_bytes,
                last_bytes,
                seconds: 8.0,
            }),
            ..GcSummary::default()
        }),
        ..RuntimeSummary::default()
    }
}

#[test]
fn answers_precede_what_costs_more() {
    let contended = RuntimeSummary {
        contention: Some(WaitSummary {
            count: 100,
            ms: 50_000.0,
            ..WaitSummary::default()
        }),
        ..RuntimeSummary::default()
    };
    for (symptom, expected) in [
        (Symptom::HighCpu, ["cpu-use", "lock-contention"]),
        (Symptom::LockContention, ["lock-contention", "cpu-use"]),
    ] {
        let found = find(&of(symptom, 10_000.0, contended.clone()));
        let rules: Vec<&str> = found.iter().map(|found| &*found.rule).collect();
        assert_eq!(rules, expected);
    }
}

#[test]
fn what_is_not_found_is_said_with_what_was_measured() {
    for symptom in Symptom::value_variants() {
        let quiet = of(*symptom, 10.0, RuntimeSummary::default());
        let found = first(&quiet);
        assert_eq!(found.rule, "not-found", "{symptom:?}");
        let start = format!("nothing found for {}: ", variant_name(symptom));
        assert!(found.text.starts_with(&start), "{}", found.text);
        assert!(found.text.contains(" try "), "{}", found.text);
        let mut selected = quiet.clone();
        let notice = Notice::new(NoticeKind::Selection, "a part", "");
        selected.quality.notices.push(notice);
        assert_eq!(find(&selected), []);
    }
    let busy = of(Symptom::Hang, 10_000.0, RuntimeSummary::default());
    expect(&busy, "not-found", &["frequent causes follow, or try -for"]);
    assert_eq!(find(&busy)[1].rule, "cpu-use");
}

/// The user who names a symptom has it.
#[test]
fn thresholds_are_lower_for_the_symptom() {
    let mut slow = of(Symptom::SlowRequests, 1500.0, RuntimeSummary::default());
    let route = RequestRoute {
        name: "GET /orders".into(),
        counts: RequestCounts {
            count: 10,
            ..RequestCounts::default()
        },
        p99_ms: 100.0,
        ..RequestRoute::default()
    };
    slow.runtimes[0].requests = Some(RequestSummary {
        routes: vec![route],
        ..RequestSummary::default()
    });
    expect(&slow, "slow-requests", &["requests GET /orders"]);
    slow.info.symptom = Some(Symptom::HighCpu);
    expect(&slow, "cpu-use", &["used 0.15 of 2 CPUs"]);
    slow.info.symptom = None;
    assert_eq!(find(&slow), []);
}

#[test]
fn a_heap_that_grows_is_a_leak_only_if_asked() {
    let mb = |mb: f64| (mb * 1e6) as u64;
    for (is_full, first, last, is_found) in [
        (true, mb(10.0), mb(11.1), true),
        (true, mb(10.0), mb(10.9), false),
        (true, mb(100.0), mb(109.0), false),
        (false, mb(10.0), mb(19.0), true),
        (false, mb(10.0), mb(17.0), false),
        (true, mb(20.0), mb(10.0), false),
    ] {
        let heap = growth(is_full, first, last);
        let leak = of(Symptom::MemoryLeak, 10.0, heap.clone());
        let rule = if is_found {
            "memory-growth"
        } else {
            "not-found"
        };
        expect(&leak, rule, &["the heap of Shop (pid 7)"]);
        let mut other = leak.clone();
        other.info.symptom = None;
        assert_eq!(find(&other), []);
    }
    let certain = of(Symptom::MemoryLeak, 10.0, growth(true, mb(10.0), mb(90.0)));
    let words = ["from 10.0 to 90.0 MB", "10.0 MB/s", "dotnet-gcdump"];
    expect(&certain, "memory-growth", &words);
}

#[test]
fn memory_beside_the_heap_is_native() {
    let mut leak = of(
        Symptom::MemoryLeak,
        10.0,
        growth(true, 10_000_000, 10_100_000),
    );
    leak.info.memory.push(ProcessMemory {
        pid: 7,
        first_kib: 100_000,
        last_kib: 200_000,
        max_kib: 200_000,
        has_ended: false,
    });
    let words = [
        "from 102.4 to 204.8 MB",
        "10.0 to 10.1 MB in 8.0 s: the rest is native",
    ];
    expect(&leak, "memory-growth", &words);
    leak.runtimes = vec![growth(true, 10_000_000, 95_000_000)];
    leak.runtimes[0].pid = 7;
    let found = find(&leak);
    let growth = found.iter().filter(|found| found.rule == "memory-growth");
    assert_eq!(growth.count(), 1, "{found:#?}");
    leak.runtimes.clear();
    let words = ["it is native memory", "a capture with -faults"];
    expect(&leak, "memory-growth", &words);
    leak.info.memory[0].has_ended = true;
    leak.faults = Some(Default::default());
    let words = ["to 204.8 MB before it ended", "`report -kind faults`"];
    expect(&leak, "memory-growth", &words);
    assert!(first(&leak).command.contains(&"faults".to_owned()));
}

/// The heap is measured between two collections, the resident memory in all of the capture.
#[test]
fn a_heap_that_grows_as_fast_as_the_memory_precedes_it() {
    let allocated = |bytes, mut runtime: RuntimeSummary| {
        runtime.allocations = Some(AllocationSummary {
            bytes,
            ..AllocationSummary::default()
        });
        runtime
    };
    let memory = |leak: &mut Summary, last_kib| {
        leak.info.memory = vec![ProcessMemory {
            pid: 7,
            first_kib: 100_000,
            last_kib,
            ..ProcessMemory::default()
        }];
    };
    let mut short = growth(true, 70_000_000, 90_000_000);
    let gc = short.gc.as_mut().unwrap();
    gc.growth.as_mut().unwrap().seconds = 2.0;
    let mut leak = of(Symptom::MemoryLeak, 10.0, allocated(600_000_000, short));
    let texts = |leak: &Summary| -> Vec<String> {
        let found = find(leak).into_iter();
        let found = found.filter(|found| found.rule == "memory-growth");
        found.map(|found| found.text).collect()
    };
    memory(&mut leak, 250_000);
    let found = texts(&leak);
    assert_eq!(found.len(), 1, "{found:#?}");
    // The rest is more than the heap, but what it is is not certain.
    memory(&mut leak, 900_000);
    let found = texts(&leak);
    assert!(found[0].starts_with("the heap of Shop"), "{found:#?}");
    assert!(found[1].contains("the rest is native"), "{found:#?}");
    // The program allocated less than that.
    leak.runtimes[0].allocations.as_mut().unwrap().bytes = 30_000_000;
    let found = texts(&leak);
    let words = "all objects that it allocated meanwhile took 30.0 MB: it is native memory";
    assert!(found[0].contains(words), "{found:#?}");
}

#[test]
fn memory_that_is_not_read_is_said() {
    let mut leak = of(Symptom::MemoryLeak, 10.0, RuntimeSummary::default());
    leak.runtimes.clear();
    leak.info.system_wide = true;
    let words = ["resident memory is read in a capture with -pid"];
    expect(&leak, "not-found", &words);
    leak.info.memory.push(ProcessMemory {
        pid: 7,
        first_kib: 1000,
        last_kib: 2000,
        max_kib: 2000,
        has_ended: true,
    });
    expect(&leak, "not-found", &["2.0 MB before it ended"]);
}

#[test]
fn failures_and_slow_steps_of_the_network_are_found() {
    let route = |name: &str, p99_ms, failed| RequestRoute {
        direction: RequestDirection::Out,
        name: name.into(),
        counts: RequestCounts {
            count: 10,
            failed,
            ..RequestCounts::default()
        },
        mean_ms: p99_ms,
        p50_ms: p99_ms,
        p99_ms,
        ..RequestRoute::default()
    };
    let network = |routes, network| RuntimeSummary {
        requests: Some(RequestSummary {
            routes,
            ..RequestSummary::default()
        }),
        network,
        ..RuntimeSummary::default()
    };
    let found = |runtime| of(Symptom::Networking, 10.0, runtime);
    let fast = found(network(vec![route("http://a/", 99.0, 0)], vec![]));
    expect(
        &fast,
        "not-found",
        &["sent 10 requests, none failed", "99 ms"],
    );
    let slow = found(network(vec![route("http://a/", 100.0, 0)], vec![]));
    expect(
        &slow,
        "network",
        &["requests to http://a/ take 0.10 s at p50"],
    );
    let both = vec![route("http://a/", 1.0, 4), route("http://b/", 1.0, 1)];
    let failing = found(network(both, vec![]));
    expect(
        &failing,
        "network",
        &["5 of 20 requests failed, 4 of them to http://a/"],
    );
    let step = NetworkStep {
        kind: StepKind::Resolution,
        count: 3,
        max_ms: 100.0,
        slowest: "db.internal".into(),
        ..NetworkStep::default()
    };
    let names = found(network(vec![], vec![step]));
    let words = ["3 name resolutions, the longest took 100 ms (db.internal)"];
    expect(&names, "network", &words);
}

/// A server that takes connections and does not answer.
#[test]
fn requests_and_steps_that_do_not_end_are_found() {
    let hanging = |count, unended, age: f64| RequestRoute {
        direction: RequestDirection::Out,
        name: "https://a/".into(),
        counts: RequestCounts {
            count,
            unended,
            ..RequestCounts::default()
        },
        unended_ms: Some(age),
        ..RequestRoute::default()
    };
    let runtime = |route, network| RuntimeSummary {
        requests: Some(RequestSummary {
            routes: vec![route],
            ..RequestSummary::default()
        }),
        network,
        ..RuntimeSummary::default()
    };
    let found = |runtime| of(Symptom::Networking, 10.0, runtime);
    let mut hangs = found(runtime(hanging(12, 12, 8200.0), vec![]));
    let words = ["Shop (pid 7): 12 requests to https://a/ have not ended, the oldest after 8.20 s"];
    expect(&hangs, "network", &words);
    assert!(first(&hangs).command.contains(&"requests".to_owned()));
    assert!(first(&hangs).cost_cpus > 0.5);
    let new = found(runtime(hanging(2, 2, 50.0), vec![]));
    let words = ["sent 2 requests, just before the capture ended"];
    expect(&new, "not-found", &words);
    let queue = NetworkStep {
        count: 3,
        max_ms: 2000.0,
        ..NetworkStep::default()
    };
    let handshakes = NetworkStep {
        kind: StepKind::Handshake,
        unended: 4,
        unended_ms: Some(9000.0),
        oldest: "a".into(),
        ..NetworkStep::default()
    };
    hangs.runtimes[0].network = vec![queue, handshakes];
    let words =
        ["; 4 TLS handshakes: not ended, the oldest after 9.00 s (a); 3 waits for a connection"];
    expect(&hangs, "network", &words);
    assert!(first(&hangs).command.contains(&"network".to_owned()));
}

#[test]
fn the_start_of_a_program_is_found_unless_it_is_over() {
    let mut start = of(Symptom::Startup, 500.0, RuntimeSummary::default());
    start.processes[0].work.jit = 400;
    let wait = PlaceTime {
        pid: 7,
        reason: "socket".into(),
        method: "Shop.Program.Connect()".into(),
        own: true,
        ms: 1500.0,
        ..PlaceTime::default()
    };
    start.thread_time = Some(ThreadTime {
        places: vec![wait],
        ..ThreadTime::default()
    });
    let words = [
        "Shop (pid 7) used 0.50 s of CPU time in 10.0 s: 40 % JIT compilation",
        "longest wait: 1.50 s in Program.Connect",
    ];
    expect(&start, "startup", &words);
    let old = Notice::new(NoticeKind::SymptomUnfit, "it is old", "");
    start.quality.notices.push(old);
    expect(&start, "not-found", &["had started long before"]);
}

#[test]
fn threads_that_wait_for_a_cpu_do_not_hang() {
    let mut hang = of(Symptom::Hang, 10.0, RuntimeSummary::default());
    for (reason, rule) in [("preempted", "not-found"), ("socket", "thread-time")] {
        let place = PlaceTime {
            pid: 7,
            reason: reason.into(),
            method: "read_all".into(),
            own: true,
            ms: 9000.0,
            ..PlaceTime::default()
        };
        hang.thread_time = Some(ThreadTime {
            places: vec![place],
            ..ThreadTime::default()
        });
        expect(&hang, rule, &[]);
    }
}

#[test]
fn requests_without_an_answer_are_not_answered() {
    let mut slow = of(Symptom::SlowRequests, 10.0, RuntimeSummary::default());
    let counts = RequestCounts {
        count: 4,
        unended: 4,
        ..RequestCounts::default()
    };
    let mut set_age = |age_ms| {
        let route = RequestRoute {
            counts,
            unended_ms: Some(age_ms),
            ..RequestRoute::default()
        };
        slow.runtimes[0].requests = Some(RequestSummary {
            incoming: counts,
            routes: vec![route],
            ..RequestSummary::default()
        });
        slow.clone()
    };
    let words = ["no request was answered, 4 had not ended, the oldest after 900 ms"];
    expect(&set_age(900.0), "not-found", &words);
    expect(
        &set_age(1000.0),
        "stuck-requests",
        &["the oldest after 1.00 s"],
    );
}

/// Threads of the pool serve requests. A main thread may wait for the key that ends the program.
#[test]
fn a_pool_whose_threads_wait_in_your_code_delays_requests() {
    for (waiting_ms, expected) in [(61_000.0, "thread-pool"), (59_000.0, "not-found")] {
        let pool = ThreadPoolSummary {
            first_threads: Some(2),
            max_threads: 12,
            ..ThreadPoolSummary::default()
        };
        let runtime = RuntimeSummary {
            thread_pool: Some(pool),
            ..RuntimeSummary::default()
        };
        let mut slow = of(Symptom::SlowRequests, 10.0, runtime);
        let place = |method: &str, ms, pool_threads| PlaceTime {
            pid: 7,
            reason: "sleep".into(),
            method: method.into(),
            own: true,
            ms,
            threads: 12,
            pool_threads,
            ..PlaceTime::default()
        };
        slow.thread_time = Some(ThreadTime {
            places: vec![
                place("Shop.Orders.Get(int)", waiting_ms, 12),
                place("Shop.Timer.Run()", 100_000.0, 0),
            ],
            ..ThreadTime::default()
        });
        let words = match expected {
            "thread-pool" => {
                "Shop (pid 7) grew from 2 to 12 threads, which wait 51 % of the time, most in Orders.Get: work waits"
            }
            _ => "nothing found",
        };
        expect(&slow, expected, &[words]);
    }
}

#[test]
fn threads_of_the_pool_that_sleep_in_your_code_delay_requests() {
    let place = |reason: &str, method: &str, ms, pool_threads| PlaceTime {
        pid: 7,
        reason: reason.into(),
        method: method.into(),
        own: true,
        ms,
        pool_threads,
        ..PlaceTime::default()
    };
    let mut slow = of(Symptom::SlowRequests, 10.0, RuntimeSummary::default());
    slow.thread_time = Some(ThreadTime {
        places: vec![
            place("file", "Shop.Program.Main(string[])", 10_000.0, 0),
            place("sleep", "Shop.Timer.Run()", 9000.0, 0),
            place("sleep", "Shop.Orders.Get(int)", 8000.0, 40),
        ],
        ..ThreadTime::default()
    });
    let found = find(&slow);
    let words = "wait: 8.0 s asleep in Orders.Get, 10.0 s for files in Program.Main";
    assert!(found[1].text.contains(words), "{found:#?}");
    assert_eq!(found[1].figures["blocked_ms"], 8000.0);
    slow.info.symptom = Some(Symptom::Hang);
    expect(&slow, "thread-time", &[words]);
    slow.info.symptom = None;
    assert_eq!(find(&slow)[0].figures["blocked_ms"], 0.0);
}

#[test]
fn waits_for_other_threads_may_be_locks() {
    let mut locks = of(Symptom::LockContention, 10.0, RuntimeSummary::default());
    let place = PlaceTime {
        pid: 7,
        reason: "event".into(),
        method: "Shop.Orders.Add(int)".into(),
        own: true,
        ms: 9000.0,
        ..PlaceTime::default()
    };
    locks.thread_time = Some(ThreadTime {
        places: vec![place],
        ..ThreadTime::default()
    });
    let words = [
        "no thread waited for what is known as a lock; threads of Shop (pid 7) waited 9.0 s for other threads in \
         Orders.Add; ",
    ];
    expect(&locks, "not-found", &words);
}

#[test]
fn locks_of_native_programs_are_found_by_their_time() {
    let mut locks = of(Symptom::LockContention, 10.0, RuntimeSummary::default());
    let place = |method: &str, ms| PlaceTime {
        pid: 7,
        reason: "lock".into(),
        method: method.into(),
        own: true,
        ms,
        ..PlaceTime::default()
    };
    locks.thread_time = Some(ThreadTime {
        places: vec![place("push", 3000.0), place("pop", 1000.0)],
        ..ThreadTime::default()
    });
    let words = ["wait for locks: 4.0 s together; 75 % of it in push"];
    expect(&locks, "lock-contention", &words);
}
