//! Which processes of a whole machine are asked for events.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::time::Duration;

use perfcollect::trace::NoticeKind;
use support::events::entries;
use support::{Runtime, Saved, Workload, captured_during, wait_for_cpu_time, workloads};

const LIMIT: Duration = Duration::from_secs(120);
const BUSY: usize = 2;

fn has_events(saved: &Saved, process: &Workload) -> bool {
    let stream = format!("/eventpipe/{}.nettrace", process.pid());
    !entries(&saved.path, &stream).is_empty()
}

#[test]
fn idle_processes_are_asked_only_for_chosen_events() {
    need_capture!();
    let program = need!(workloads::idle());
    let runtime = need!(Runtime::at_least(8));
    let start = |_| Workload::start(&mut runtime.command(&program));
    let processes: Vec<_> = (0..8).map(start).collect();
    let (busy, idle) = processes.split_at(BUSY);

    let saved = captured_during(&[], || {
        for process in busy {
            process.say("work");
            wait_for_cpu_time(process.pid(), Duration::from_secs(1));
        }
    });
    for process in busy {
        assert!(has_events(&saved, process), "{:?}", saved.summary);
    }
    for process in idle {
        assert!(!has_events(&saved, process), "{:?}", saved.summary);
    }
    let [notice] = saved.notices(NoticeKind::EventsNotRequested)[..] else {
        panic!("{:?}", saved.summary);
    };
    assert!(notice.count >= idle.len() as u64, "{notice:?}");
    assert!(notice.what.contains("as they were idle"), "{notice:?}");

    let streams = |saved: &Saved| {
        processes
            .iter()
            .filter(|process| has_events(saved, process))
            .count()
    };
    let saved = captured_during(&["-clrevents", "gc"], || {
        wait_for_cpu_time(busy[0].pid(), Duration::from_secs(1));
    });
    assert_eq!(streams(&saved), processes.len(), "{:?}", saved.summary);
    for process in processes {
        process.done(LIMIT);
    }
}
