use super::*;
use crate::output::summary::{
    BlockedGroup, BlockedProcess, BlockedSummary, DeadlockRow, GcSummary, HeapGrowth, LockRow,
    NetworkStep, PlaceTime, ProcessSummary, ProgramSummary, RequestCounts, RequestDirection,
    RequestRoute, RequestSummary, RuntimeSummary, Share, ThreadTime, WakeupRow, WakeupSummary,
    Work, WorkKind, WorkMethod,
};
use crate::trace::{ConnectionRow, Connections, CpuPressure, ProcessWaits, Symptom, Trace};
use clap::ValueEnum;

/// A process that used `cpu_ms` of ten seconds, with so many samples of each kind of work.
pub(super) fn summary(cpu_ms: f64, samples: u64, work: Work) -> Summary {
    let mut summary = Summary::new(&Trace::default());
    summary.info.cpus = 2;
    summary.info.end_ns = 10_000_000_000;
    summary.info.event = "cpu-clock".into();
    summary.info.system_wide = true;
    (summary.samples, summary.cpu_ms) = (samples, cpu_ms);
    summary.processes.push(ProcessSummary {
        pid: 7,
        name: "shop".into(),
        command_line: "dotnet /srv/Shop.dll".into(),
        samples,
        cpu_ms,
        work,
    });
    summary
}

pub(super) fn rules(summary: &Summary) -> Vec<String> {
    let mut rules: Vec<String> = find(summary).into_iter().map(|found| found.rule).collect();
    rules.sort_unstable();
    rules
}

#[test]
fn a_quiet_process_has_no_findings() {
    let all = Work {
        own: 1000,
        ..Work::default()
    };
    assert_eq!(rules(&summary(400.0, 1000, all)), [""; 0]);
    assert_eq!(rules(&Summary::new(&Trace::default())), [""; 0]);
}

#[test]
fn each_kind_of_work_is_found_above_its_threshold() {
    type Set = fn(&mut Work, u64);
    let cases: [(&str, Set, u64); 7] = [
        ("gc", |work, count| work.gc = count, 100),
        ("jit", |work, count| work.jit = count, 150),
        ("exceptions", |work, count| work.exceptions = count, 50),
        ("page-faults", |work, count| work.page_faults = count, 100),
        ("spinning", |work, count| work.spinning = count, 50),
        ("sync-over-async", |work, count| work.task_waits = count, 10),
        (
            "debug-build",
            |work, count| (work.own, work.not_optimized) = (1000, count),
            500,
        ),
    ];
    for (rule, set, threshold) in cases {
        for (count, expected) in [(threshold - 1, false), (threshold, true)] {
            let mut work = Work::default();
            set(&mut work, count);
            let found = rules(&summary(10_000.0, 1000, work));
            assert_eq!(
                found.iter().any(|found| found == rule),
                expected,
                "{rule}: {found:?}"
            );
            assert!(found.contains(&"cpu-use".to_owned()), "{found:?}");
        }
    }
}

#[test]
fn the_most_costly_finding_is_first() {
    let work = Work {
        spinning: 300,
        jit: 400,
        ..Work::default()
    };
    let found = find(&summary(10_000.0, 1000, work));
    let rules: Vec<&str> = found.iter().map(|found| &*found.rule).collect();
    assert_eq!(rules, ["cpu-use", "jit", "spinning"]);
    assert_eq!(found[1].figures["cpu_percent"], 40.0);
    assert_eq!(found[1].subject, "Shop");
}

/// A program that ends at once has started, and that is all.
#[test]
fn what_starts_and_ends_has_no_findings() {
    let work = Work {
        jit: 40,
        page_faults: 30,
        ..Work::default()
    };
    assert_eq!(rules(&summary(249.0, 100, work)), [] as [String; 0]);
    let longer = rules(&summary(5000.0, 100, work));
    assert!(longer.contains(&"jit".to_owned()) && longer.contains(&"page-faults".to_owned()));
}

/// Whatever a summary contains, rules return finite figures.
#[test]
fn hostile_numbers_have_finite_figures() {
    let most = Work {
        kernel: u64::MAX,
        page_faults: 1,
        jit: u64::MAX,
        gc: u64::MAX,
        exceptions: u64::MAX,
        spinning: u64::MAX,
        task_waits: u64::MAX,
        not_optimized: u64::MAX,
        own: 100,
        truncated: u64::MAX,
    };
    for (cpu_ms, samples, end_ns) in [
        (f64::NAN, 1, 1),
        (f64::INFINITY, u64::MAX, u64::MAX),
        (-1.0, 1, 0),
        (1e308, 1, 1),
    ] {
        let mut summary = summary(cpu_ms, samples, most);
        summary.info.end_ns = end_ns;
        summary.info.cpu_pressure = Some(CpuPressure {
            waiting_ms: f64::MAX,
            throttled_ms: f64::INFINITY,
            throttled_periods: u64::MAX,
            throttled_group: "shop".into(),
            processes: vec![
                ProcessWaits {
                    waited_ms: f64::INFINITY,
                    ..ProcessWaits::default()
                },
                ProcessWaits {
                    pid: -1,
                    waited_ms: f64::MAX,
                    ran_ms: f64::MAX,
                    threads: u64::MAX,
                },
            ],
            threads_omitted: u64::MAX,
        });
        summary.quality.stacks.rooted = u64::MAX;
        summary.quality.stacks.too_deep = u64::MAX;
        summary.runtimes.push(RuntimeSummary {
            gc: Some(GcSummary {
                growth: Some(HeapGrowth {
                    last_bytes: u64::MAX,
                    seconds: f64::MIN_POSITIVE,
                    ..HeapGrowth::default()
                }),
                ..GcSummary::default()
            }),
            network: vec![NetworkStep {
                failed: u64::MAX,
                mean_ms: f64::INFINITY,
                max_ms: f64::NAN,
                ..NetworkStep::default()
            }],
            exceptions: Some(Default::default()),
            contention: Some(Default::default()),
            thread_pool: Some(Default::default()),
            requests: Some(RequestSummary {
                routes: vec![
                    RequestRoute {
                        counts: RequestCounts {
                            count: u64::MAX,
                            ..RequestCounts::default()
                        },
                        mean_ms: f64::INFINITY,
                        p99_ms: f64::MAX,
                        cpu_percent: Some(f64::NAN),
                        gc_percent: f64::INFINITY,
                        ..RequestRoute::default()
                    };
                    2
                ],
                ..RequestSummary::default()
            }),
            ..RuntimeSummary::default()
        });
        for symptom in [None]
            .into_iter()
            .chain(Symptom::value_variants().iter().copied().map(Some))
        {
            summary.info.symptom = symptom;
            for found in find(&summary) {
                let mut figures = found.figures.values();
                assert!(figures.all(|figure| figure.is_finite()), "{found:?}");
            }
        }
    }
}

#[test]
fn a_process_that_got_less_cpu_time_than_it_could_use_is_found() {
    for (waited_ms, ran_ms, expected) in [
        (5000.0, 5000.0, true),
        (2500.0, 10_000.0, true),
        // Too little of what it asked for, or of the capture.
        (2500.0, 10_001.0, false),
        (2499.0, 0.0, false),
    ] {
        let mut summary = summary(1.0, 1, Work::default());
        summary.info.cpu_pressure = Some(CpuPressure {
            processes: vec![ProcessWaits {
                pid: 7,
                waited_ms,
                ran_ms,
                threads: 1,
            }],
            ..CpuPressure::default()
        });
        let found = find(&summary);
        assert_eq!(found.len(), usize::from(expected), "{found:?}");
        assert!(found.iter().all(|found| found.pid == Some(7)));
    }
}

/// A build starts one compiler after the other.
#[test]
fn processes_of_a_program_share_a_finding() {
    let mut summary = summary(10_000.0, 1000, Work::default());
    let first = summary.processes[0].clone();
    let pids = 7..10;
    summary.processes = pids
        .clone()
        .map(|pid| ProcessSummary {
            pid,
            cpu_ms: 3000.0,
            ..first.clone()
        })
        .collect();
    summary.programs.push(ProgramSummary {
        name: first.program().to_owned(),
        processes: 3,
        pid: 7,
        samples: 3000,
        cpu_ms: 10_000.0,
    });
    summary.shares.own_methods = pids
        .clone()
        .map(|pid| Share {
            pid,
            name: "Shop.Total()".into(),
            samples: 500,
            ..Share::default()
        })
        .collect();
    summary.info.cpu_pressure = Some(CpuPressure {
        processes: pids
            .map(|pid| ProcessWaits {
                pid,
                waited_ms: 2000.0,
                ran_ms: 3000.0,
                threads: 1,
            })
            .collect(),
        ..CpuPressure::default()
    });
    let found = find(&summary);
    let rules: Vec<&str> = found.iter().map(|found| &*found.rule).collect();
    assert_eq!(rules, ["cpu-use", "run-queue"]);
    assert_eq!(found[0].figures["method_percent"], 50.0);
    assert!(found[0].text.contains("Shop.Total"), "{found:?}");
    assert_eq!(found[1].figures["waited_ms"], 6000.0);
    assert_eq!((found[1].pid, &*found[1].subject), (None, "Shop"));
}

/// Workers of one program have the same trouble.
#[test]
fn the_same_in_many_processes_is_counted() {
    let mut summary = summary(10_000.0, 1000, Work::default());
    let first = summary.processes[0].clone();
    let pids = 7..15;
    summary.processes = pids
        .map(|pid| ProcessSummary {
            pid,
            ..first.clone()
        })
        .collect();
    let found = find(&summary);
    assert_eq!(found.len(), MAX_SAME, "{found:?}");
    let last = &found[MAX_SAME - 1].text;
    assert!(
        last.ends_with("; the same in 5 more processes of Shop"),
        "{last}"
    );
}

/// A selection has samples of exceptions and no events.
#[test]
fn the_method_behind_work_is_named_once() {
    let work = Work {
        exceptions: 500,
        ..Work::default()
    };
    let mut summary = summary(10_000.0, 1000, work);
    summary.shares.work_methods = vec![WorkMethod {
        pid: summary.processes[0].pid,
        work: WorkKind::Exceptions,
        name: "Shop.Validate()".into(),
        module: "Shop".into(),
        samples: 500,
    }];
    let found = find(&summary);
    let thrown = found.iter().find(|found| found.rule == "exceptions");
    let text = &thrown.unwrap().text;
    assert_eq!(text.matches("of it by Shop.Validate").count(), 1, "{text}");
}

/// A process with threads, of which so many do each of these for so long, and for 20 s at most.
fn blocked(groups: &[(&str, u64, f64)]) -> Summary {
    let count = |reason: &str| {
        let of_reason = groups.iter().filter(|(name, ..)| *name == reason);
        of_reason.map(|(_, threads, _)| threads).sum()
    };
    let mut summary = summary(0.0, 0, Work::default());
    let rows = groups.iter().map(|&(reason, threads, since)| BlockedGroup {
        pid: 7,
        reason: reason.into(),
        words: "wait".into(),
        threads,
        name: "worker".into(),
        method: format!("Shop.{reason}(int)"),
        since_s: Some([since, 20.0]),
        ..BlockedGroup::default()
    });
    summary.blocked = Some(BlockedSummary {
        processes: vec![BlockedProcess {
            pid: 7,
            name: "Shop".into(),
            threads: groups.iter().map(|(_, threads, _)| threads).sum(),
            running: count("runs"),
            locked: count("lock"),
            idle: count("idle"),
            stopped: count("stopped"),
            ended: count("ended"),
            ..BlockedProcess::default()
        }],
        groups: rows.collect(),
        ..BlockedSummary::default()
    });
    summary
}

/// Returns the text of the only finding.
#[track_caller]
fn text(summary: &Summary) -> String {
    let found = find(summary);
    let [finding] = &found[..] else {
        panic!("{found:?}");
    };
    finding.text.clone()
}

#[test]
fn a_process_that_hardly_runs_is_found_with_what_it_waits_for() {
    let hardly = "Shop (pid 7) hardly ran (0.00 CPUs): ";
    for (groups, expected) in [
        (
            &[("io", 3, 20.0), ("idle", 4, 20.0)][..],
            "all 7 threads wait: 3 threads wait in Shop.io, for 20.0 s; 4 are idle",
        ),
        (
            &[
                ("event", 1, 2.5),
                ("io", 2, 0.1),
                ("sleep", 3, 20.0),
                ("idle", 1, 20.0),
            ],
            "all 7 threads wait: thread worker wait in Shop.event, for at least 2.5 s; 2 threads wait in Shop.io; \
             3 more; 1 is idle",
        ),
        (
            &[("io", 3, 20.0)],
            "all 3 threads wait in Shop.io, for 20.0 s",
        ),
        (
            &[("io", 1, 20.0)],
            "its only thread wait in Shop.io, for 20.0 s",
        ),
        (&[("idle", 4, 20.0)], "all 4 threads are idle"),
        // A main thread that has ended does not wait.
        (
            &[("io", 2, 20.0), ("ended", 1, 20.0)],
            "all 2 threads wait in Shop.io, for 20.0 s",
        ),
        // Its child is not in the capture, or has ended.
        (
            &[("child", 1, 20.0)],
            "its only thread wait in Shop.child, for 20.0 s",
        ),
    ] {
        assert_eq!(text(&blocked(groups)), format!("{hardly}{expected}"));
    }
    for busy in [
        blocked(&[("io", 3, 20.0), ("runs", 1, 0.0)]),
        blocked(&[("ended", 1, 20.0)]),
    ] {
        assert_eq!(rules(&busy), [""; 0]);
    }
    let mut busy = blocked(&[("io", 3, 20.0)]);
    (busy.samples, busy.cpu_ms) = (250, 250.0);
    (busy.processes[0].samples, busy.processes[0].cpu_ms) = (250, 250.0);
    assert!(!rules(&busy).contains(&"waiting".to_owned()));
}

#[test]
fn a_process_that_waits_for_its_child_is_no_news() {
    let mut parent = blocked(&[("child", 1, 20.0)]);
    let processes = &mut parent.blocked.as_mut().unwrap().processes;
    processes.push(BlockedProcess {
        pid: 8,
        threads: 1,
        running: 1,
        ..BlockedProcess::default()
    });
    assert_eq!(rules(&parent), [""; 0]);
    let waits_for = |reason: &str| {
        let place = PlaceTime {
            pid: 7,
            process: "Shop".into(),
            reason: reason.into(),
            ms: 20_000.0,
            ..PlaceTime::default()
        };
        Some(ThreadTime {
            places: vec![place],
            ..ThreadTime::default()
        })
    };
    parent.thread_time = waits_for("child");
    assert_eq!(rules(&parent), [""; 0]);
    parent.thread_time = waits_for("lock");
    assert_eq!(rules(&parent), ["thread-time"]);
    let woken = |pid, waker: &str, wakeups| WakeupRow {
        pid,
        waker: waker.into(),
        method: "Shop.Release(int)".into(),
        wakeups,
        ..WakeupRow::default()
    };
    parent.wakeups = Some(WakeupSummary {
        rows: vec![
            woken(8, "other", 90),
            woken(7, "boss", 60),
            woken(7, "a timer", 50),
        ],
        ..WakeupSummary::default()
    });
    let text = text(&parent);
    assert!(
        text.ends_with("; mostly woken by boss in Shop.Release"),
        "{text}"
    );
    // Its only thread waits once.
    parent.blocked.as_mut().unwrap().processes[1].ended = 1;
    assert_eq!(rules(&parent), ["waiting"]);
}

#[test]
fn threads_that_were_not_read_are_counted() {
    let mut partly = blocked(&[("io", 3, 20.0)]);
    partly.blocked.as_mut().unwrap().processes[0].omitted = 2;
    let expected = "Shop (pid 7) hardly ran (0.00 CPUs): 3 of its 5 threads wait \
                    in Shop.io, for 20.0 s";
    assert_eq!(text(&partly), expected);
}

#[test]
fn a_stopped_process_is_one_finding() {
    let mut stopped = blocked(&[
        ("stopped", 5, 20.0),
        ("stopped", 4, 20.0),
        ("ended", 1, 20.0),
    ]);
    // It ran until it was stopped.
    (stopped.samples, stopped.cpu_ms) = (250, 250.0);
    (stopped.processes[0].samples, stopped.processes[0].cpu_ms) = (250, 250.0);
    assert_eq!(
        text(&stopped),
        "Shop (pid 7) is stopped, all 9 threads: 5 of them in Shop.stopped"
    );
}

#[test]
fn the_start_of_events_does_not_hide_that_a_process_waits() {
    // 20 ms a second, and 100 ms in all for the start.
    for (has_events, cpu_ms, expected) in [
        (false, 199.0, true),
        (false, 200.0, false),
        (true, 299.0, true),
        (true, 300.0, false),
    ] {
        let mut waits = blocked(&[("io", 3, 20.0)]);
        (waits.samples, waits.cpu_ms) = (100, cpu_ms);
        (waits.processes[0].samples, waits.processes[0].cpu_ms) = (100, cpu_ms);
        waits.runtimes.extend(has_events.then(|| RuntimeSummary {
            pid: 7,
            ..RuntimeSummary::default()
        }));
        let found = rules(&waits).contains(&"waiting".to_owned());
        assert_eq!(found, expected, "{has_events} {cpu_ms}");
    }
}

/// A lock for which threads wait: so many for half of the capture, the last one of them for so long.
fn locked(long_waiting: u64, long_s: f64) -> Summary {
    let mut summary = blocked(&[("lock", 3, 20.0), ("runs", 1, 0.0)]);
    summary.blocked.as_mut().unwrap().locks.push(LockRow {
        pid: 7,
        threads: 3,
        long_waiting,
        long_s: Some(long_s),
        methods: ["Shop.A", "Shop.B", "Shop.C"].map(Into::into).into(),
        method_count: 9,
        owner: Some(12),
        owner_words: "sleeps".into(),
        owner_method: "Shop.Keep()".into(),
        ..LockRow::default()
    });
    summary
}

#[test]
fn a_lock_counts_if_threads_wait_for_long() {
    for (threads, since, expected) in [
        (2, 5.0, true),
        (1, 9.0, true),
        (1, 8.9, false),
        (0, 9.0, false),
    ] {
        let expected: &[&str] = if expected { &["blocked-by-lock"] } else { &[] };
        assert_eq!(rules(&locked(threads, since)), expected);
    }
    let mut all_wait = locked(3, 7.0);
    // What the other threads do is no further finding.
    all_wait.blocked.as_mut().unwrap().processes[0].running = 0;
    assert_eq!(
        text(&all_wait),
        "3 threads of Shop (pid 7) have waited for at least 7.0 s in Shop.A, Shop.B and 7 more places for a lock \
         that thread 12 has, which sleeps in Shop.Keep"
    );
}

#[test]
fn waits_for_locks_name_the_owner_at_the_end() {
    let mut short = locked(0, 0.2);
    short.thread_time = Some(ThreadTime {
        places: vec![PlaceTime {
            pid: 7,
            reason: "lock".into(),
            method: "Shop.A".into(),
            own: true,
            ms: 20_000.0,
            ..PlaceTime::default()
        }],
        ..ThreadTime::default()
    });
    assert_eq!(
        text(&short),
        "threads of Shop (pid 7) wait: 20.0 s for locks in Shop.A; at the end, 3 threads waited for a lock that thread \
         12 has, which sleeps in Shop.Keep"
    );
}

#[test]
fn connections_that_nobody_accepts_are_found_once_for_many_addresses() {
    let row = |port: u16, connections, unaccepted| ConnectionRow {
        pid: 7,
        process: "web".into(),
        is_inbound: true,
        address: format!("0.0.0.0:{port}"),
        connections,
        unaccepted,
        ..ConnectionRow::default()
    };
    let found = |rows: Vec<ConnectionRow>| {
        let mut summary = summary(10.0, 10, Work::default());
        summary.info.connections = Some(Connections {
            rows,
            ..Connections::default()
        });
        find(&summary)
    };
    // One that is just being accepted.
    assert_eq!(found(vec![row(80, 20, 1)]), []);
    let one = found(vec![row(80, 0, 5)]);
    assert_eq!(
        one[0].text,
        "web (pid 7): connections at 0.0.0.0:80: 5 connections waited at the end for the process to accept: its \
         clients get no answer"
    );
    let many = found((1..=5).map(|port| row(port, 0, 5)).collect());
    assert_eq!(many.len(), 3);
    let end = "; the same with 2 more addresses";
    assert!(many[2].text.ends_with(end), "{}", many[2].text);
}

#[test]
fn a_list_of_files_is_shortened_between_two_of_them() {
    let mut waits = blocked(&[("io", 1, 20.0)]);
    let group = &mut waits.blocked.as_mut().unwrap().groups[0];
    group.waits_for =
        "epoll of a Unix socket, TCP 127.0.0.1:45997 -> 127.0.0.1:80 and 100 more".into();
    assert!(
        text(&waits).contains("(epoll of a Unix socket, ...)"),
        "{}",
        text(&waits)
    );
}

#[test]
fn a_deadlock_costs_all_threads_that_wait_for_a_lock() {
    let mut summary = blocked(&[("lock", 6, 20.0)]);
    summary
        .blocked
        .as_mut()
        .unwrap()
        .deadlocks
        .push(DeadlockRow {
            pid: 7,
            threads: 2,
            tids: vec![8, 9],
            methods: vec!["Shop.Order(int)".into(), String::new()],
        });
    let found = find(&summary);
    let [deadlock] = &found[..] else {
        panic!("{found:?}");
    };
    let text = "deadlock in Shop (pid 7): 2 threads wait for each other's locks, in Shop.Order";
    assert_eq!((&*deadlock.text, deadlock.cost_cpus), (text, 6.0));
    // It is first, although all threads together wait for longer elsewhere.
    summary.info.system_wide = false;
    let place = PlaceTime {
        pid: 7,
        process: "Shop".into(),
        reason: "task".into(),
        ms: 80_000.0,
        ..PlaceTime::default()
    };
    summary.thread_time = Some(ThreadTime {
        places: vec![place],
        ..ThreadTime::default()
    });
    let found = find(&summary);
    let rules: Vec<_> = found.iter().map(|found| &*found.rule).collect();
    assert_eq!(rules, ["deadlock", "thread-time"]);
    assert!(found[0].cost_cpus < found[1].cost_cpus);
    // In a capture of the machine, it is one of many programs without work.
    summary.info.system_wide = true;
    let found = find(&summary);
    let rules: Vec<_> = found.iter().map(|found| &*found.rule).collect();
    assert_eq!(rules, ["deadlock"]);
}

/// Requests of a direction: how many started, how many of these have not ended, and the 99th percentile.
fn requests(direction: RequestDirection, count: u64, unended: u64, p99_ms: f64) -> RequestRoute {
    RequestRoute {
        direction,
        name: "GET /orders/{id}".into(),
        counts: RequestCounts {
            count,
            unended,
            ..RequestCounts::default()
        },
        mean_ms: p99_ms / 2.0,
        p50_ms: p99_ms / 2.0,
        p99_ms,
        unended_ms: (unended > 0).then_some(6000.0),
        ..RequestRoute::default()
    }
}

fn with_requests(routes: Vec<RequestRoute>) -> Summary {
    let mut summary = summary(0.0, 0, Work::default());
    summary.runtimes.push(RuntimeSummary {
        pid: 7,
        program: "Shop".into(),
        requests: Some(RequestSummary {
            routes,
            ..RequestSummary::default()
        }),
        ..RuntimeSummary::default()
    });
    summary
}

#[test]
fn slow_and_stuck_requests_are_found() {
    use RequestDirection::{In, Out};
    for (route, expected) in [
        (requests(In, 3, 0, 500.0), Some("slow-requests")),
        (requests(In, 3, 0, 499.0), None),
        (requests(In, 2, 0, 5000.0), None),
        (requests(Out, 30, 0, 5000.0), None),
        (requests(In, 3, 3, 0.0), Some("stuck-requests")),
        (requests(In, 3, 2, 5000.0), None),
        (requests(Out, 3, 3, 0.0), None),
    ] {
        let found = rules(&with_requests(vec![route.clone()]));
        assert_eq!(found, Vec::from_iter(expected), "{route:?}");
    }
}

#[test]
fn the_time_of_slow_requests_has_names() {
    let mut slow = requests(RequestDirection::In, 100, 0, 1200.0);
    slow.cpu_percent = Some(20.0);
    slow.calls_percent = 60.0;
    slow.gc_percent = 4.9;
    let mut call = requests(RequestDirection::Out, 100, 0, 900.0);
    (call.name, call.caller) = ("http://db/x".into(), Some(slow.name.clone()));
    let found = find(&with_requests(vec![slow, call]));
    let text = "requests GET /orders/{id} of Shop (pid 7) are slow: 0.60 s at p50, 1.20 s at p99, 100 in all; \
        of their time 80 % is outside the CPU, 60 % waits for requests that they send (http://db/x)";
    assert_eq!((&*found[0].text, found[0].cost_cpus), (text, 1.0));
}
