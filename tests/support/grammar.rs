//! A strict reader of `perf.data.txt`: the grammar and the limits PerfView's parser has, one check per pitfall.

use std::collections::HashMap;

/// Tiers of optimization as a name may end in them.
const TIERS: [&str; 8] = [
    "[MinOptJitted]",
    "[Optimized]",
    "[QuickJitted]",
    "[QuickJittedInstrumented]",
    "[OptimizedTier1]",
    "[OptimizedTier1Instrumented]",
    "[OptimizedTier1OSR]",
    "[ReadyToRun]",
];

/// A sample as PerfView would show it.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub process: String,
    pub pid: i32,
    pub cpu: u64,
    /// Nanoseconds.
    pub time: u64,
    /// (module, symbol), leaf first.
    pub frames: Vec<(String, String)>,
}

pub struct Parsed {
    /// All lines that count as samples of the CPU, idle ones included.
    pub events: Vec<Event>,
    pub zero: u64,
}

impl Parsed {
    /// The samples PerfView emits, with their weights: all that have a later event on their CPU number.
    pub fn samples(&self) -> Vec<(&Event, u64)> {
        let mut last_of: HashMap<u64, &Event> = HashMap::new();
        let mut samples = Vec::new();
        for event in &self.events {
            if let Some(last) = last_of.insert(event.cpu, event) {
                samples.push((last, event.time - last.time));
            }
        }
        samples
    }
}

fn number(text: &str) -> u64 {
    assert!(
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()),
        "number {text:?}"
    );
    text.parse().unwrap()
}

fn header(line: &str) -> (Event, &str) {
    // No name has a bracket, so this one ends the CPU number.
    let (before, after) = line.split_once("] ").unwrap();
    let (who, cpu) = before.rsplit_once(" [").unwrap();
    let cpu = number(cpu);
    let (comm, ids) = who.rsplit_once(' ').unwrap();
    let (pid, tid) = ids.split_once('/').unwrap();
    number(tid);
    // Pitfall 1: a name that ends early or breaks the process picker.
    assert!(
        !comm.is_empty() && comm.trim() == comm && !comm.starts_with([':', '-']),
        "{comm:?}"
    );
    assert!(
        !comm.contains(['/', '(', ')', '[', ']', '|', ';']),
        "{comm:?}"
    );
    let (time, detail) = after.split_once(": ").unwrap();
    let (seconds, fraction) = time.split_once('.').unwrap();
    assert_eq!(fraction.len(), 9);
    let (period, event) = detail.split_once(' ').unwrap();
    number(period);
    // Pitfalls 2 and 3: a colon after the event, and not much after that.
    let (name, rest) = event.split_once(':').unwrap();
    assert!(!name.is_empty() && rest.len() <= 256, "{event:?}");
    let event = Event {
        process: comm.to_owned(),
        pid: number(pid) as i32,
        cpu,
        time: number(seconds) * 1_000_000_000 + number(fraction),
        frames: Vec::new(),
    };
    (event, &line[line.len() - rest.len()..])
}

fn frame(line: &str) -> (String, String) {
    // Pitfall 2: frames begin with a tab.
    let (address, rest) = line.strip_prefix('\t').unwrap().split_once(' ').unwrap();
    assert!(u64::from_str_radix(address, 16).is_ok(), "{line:?}");
    let open = rest.rfind('(').unwrap();
    // Pitfalls 3 and 4: length, brackets and names of a module.
    assert!(rest.len() - open <= 256, "{line:?}");
    let module = rest[open..]
        .strip_prefix('(')
        .unwrap()
        .strip_suffix(')')
        .unwrap();
    assert!(!module.is_empty() && module.trim() == module, "{line:?}");
    assert!(
        !module.contains(['(', ')', '[', ']', '/', '\\']),
        "{line:?}"
    );
    // Pitfall 7: perf's own files, and tiers that are none.
    assert!(
        !module.to_lowercase().ends_with(".map") && !module.starts_with("jitted-"),
        "{line:?}"
    );
    let symbol = rest[..open].strip_suffix(' ').unwrap();
    let without_tier = TIERS
        .iter()
        .find_map(|tier| symbol.strip_suffix(tier))
        .unwrap_or(symbol);
    assert!(
        !without_tier.is_empty() && without_tier.trim() == without_tier,
        "{line:?}"
    );
    assert!(
        !without_tier.starts_with(['(', '[']) && !without_tier.contains("+0x"),
        "{line:?}"
    );
    if let Some((_, last)) = without_tier
        .strip_suffix(']')
        .and_then(|s| s.rsplit_once('['))
    {
        assert!(
            last.trim().parse::<i64>().is_err() && !last.contains("Jitted"),
            "{line:?}"
        );
    }
    (module.to_owned(), without_tier.to_owned())
}

/// Reads the text, and panics where PerfView would fail, lose or bend something.
pub fn parse(text: &[u8]) -> Parsed {
    // Pitfall 4: control characters; and bytes PerfView would show as Latin-1.
    assert!(
        text.iter()
            .all(|b| matches!(b, b'\t' | b'\n' | b' '..=b'~'))
    );
    let text = std::str::from_utf8(text).unwrap();
    // Pitfall 2: comments only at the top; we write none. Each event ends with an empty line.
    let mut blocks = text.strip_suffix("\n\n").unwrap().split("\n\n");
    let marker = blocks.next().unwrap();
    let (marker_event, detail) = header(marker);
    // Pitfall 9: nothing after the last number.
    assert_eq!(detail, "sched_process_exit: comm=swapper pid=0 prio=120");
    // Pitfall 6: not the time that does not count.
    assert!(marker_event.time > 0);
    let mut now = marker_event.time;
    let mut events = Vec::new();
    for block in blocks {
        let mut lines = block.split('\n');
        let (mut event, detail) = header(lines.next().unwrap());
        // Pitfall 8: whatever stood there could make it another kind of event.
        assert_eq!(detail, " ");
        // Pitfall 6: order of time.
        assert!(event.time >= now, "{block}");
        now = event.time;
        event.frames = lines.map(frame).collect();
        assert!(event.frames.len() <= 1000);
        events.push(event);
    }
    Parsed {
        events,
        zero: marker_event.time,
    }
}
