//! A strict reader of `perf.data.txt`: the grammar and the limits of PerfView's parser and of other readers of perf script
//! text, one check per pitfall.

/// Tiers of optimization as a name may end in them.
pub const TIERS: [&str; 8] = [
    "[MinOptJitted]",
    "[Optimized]",
    "[QuickJitted]",
    "[QuickJittedInstrumented]",
    "[OptimizedTier1]",
    "[OptimizedTier1Instrumented]",
    "[OptimizedTier1OSR]",
    "[ReadyToRun]",
];

/// A sample as readers show it.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub process: String,
    pub pid: i32,
    pub tid: i32,
    pub cpu: u64,
    /// Nanoseconds.
    pub time: u64,
    /// Its period, and the time to its end on its CPU number.
    pub weight: u64,
    /// (module, symbol), leaf first.
    pub frames: Vec<(String, String)>,
}

pub struct Parsed {
    /// The samples in the order of the text.
    pub events: Vec<Event>,
    pub zero: u64,
}

fn number(text: &str) -> u64 {
    assert!(
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()),
        "number {text:?}"
    );
    text.parse().unwrap()
}

/// CPU number and time of `[001] 4321.987654321: `, and the rest.
fn moment(line: &str) -> (u64, u64, &str) {
    let (cpu, rest) = line.strip_prefix('[').unwrap().split_once("] ").unwrap();
    let (time, rest) = rest.split_once(": ").unwrap();
    let (seconds, fraction) = time.split_once('.').unwrap();
    assert_eq!(fraction.len(), 9);
    let time = number(seconds) * 1_000_000_000 + number(fraction);
    (number(cpu), time, rest)
}

fn header(line: &str) -> (Event, &str) {
    // No name has a bracket, so this one starts the CPU number.
    let (who, rest) = line.split_at(line.find('[').unwrap());
    let (cpu, time, detail) = moment(rest);
    let (comm, ids) = who.strip_suffix(' ').unwrap().rsplit_once(' ').unwrap();
    let (pid, tid) = ids.split_once('/').unwrap();
    // Other readers than PerfView take a name of one letter only with a second space.
    let comm = match comm.strip_suffix(' ') {
        Some(letter) if letter.len() == 1 => letter,
        _ => comm,
    };
    assert!(comm.len() > 1 || who.contains("  "), "{line:?}");
    // Pitfall 1: a name that ends early, is a comment or breaks the process picker.
    assert!(
        !comm.is_empty() && comm.trim() == comm && !comm.starts_with([':', '-', '#']),
        "{comm:?}"
    );
    assert!(
        !comm.contains(['/', '(', ')', '[', ']', '|', ';']),
        "{comm:?}"
    );
    let mut others = comm.split(' ').skip(1);
    assert!(
        !others.any(|word| word.bytes().all(|b| b.is_ascii_digit())),
        "{comm:?}"
    );
    let (period, event) = detail.split_once(' ').unwrap();
    // Pitfalls 2, 3 and 8: a colon and a space after the event, which is one word.
    let event = event.strip_suffix(": ").unwrap();
    assert!(
        !event.is_empty() && !event.contains([':', ' ']),
        "{event:?}"
    );
    let sample = Event {
        process: comm.to_owned(),
        pid: number(pid) as i32,
        tid: number(tid) as i32,
        cpu,
        time,
        weight: number(period),
        frames: Vec::new(),
    };
    (sample, event)
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
    // Other readers than PerfView drop a frame whose module has a space.
    assert!(
        !module.contains(['(', ')', '[', ']', '/', '\\', ' ']),
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

/// Reads the text, and panics where a reader would fail, lose or bend something.
pub fn parse(text: &[u8]) -> Parsed {
    // Pitfall 4: control characters; and bytes PerfView would show as Latin-1.
    assert!(
        text.iter()
            .all(|b| matches!(b, b'\t' | b'\n' | b' '..=b'~'))
    );
    let text = std::str::from_utf8(text).unwrap();
    // The Firefox Profiler knows the format by the first line.
    assert!(text.starts_with("# ========\n"), "{text}");
    assert!(text.ends_with('\n'));
    let mut lines = text.lines().skip_while(|line| line.starts_with('#'));
    // Pitfall 6: time zero, and not the time that does not count. See `output::perf_text` on what hides it from others.
    let first = lines.next().unwrap();
    let first = first.strip_prefix(" swapper (cpu_idle) 0/0 ").unwrap();
    let (0, zero @ 1.., detail) = moment(first) else {
        panic!("{first}")
    };
    let event_of_all = detail.strip_prefix("1 ").unwrap().strip_suffix(": ");
    assert_eq!(lines.next(), Some(""));

    let mut events: Vec<Event> = Vec::new();
    while let Some(line) = lines.next() {
        let (mut sample, event) = header(line);
        assert_eq!(Some(event), event_of_all);
        // Pitfall 6: order of time, a separate CPU number.
        let now = events.last().map_or(zero, |last| last.time);
        assert!(sample.time >= now, "{line}");
        assert_eq!(sample.cpu, events.len() as u64 + 1, "{line}");
        let frames = lines.by_ref().take_while(|line| !line.is_empty());
        sample.frames = frames.map(frame).collect();
        assert!((1..=1000).contains(&sample.frames.len()), "{line}");
        let no_stack = ("perfcollect".to_owned(), "{no stack}".to_owned());
        sample.frames.retain(|frame| *frame != no_stack);
        // Pitfall 5: what ends it there.
        let end = lines.next().unwrap().strip_prefix("# 0/0 ").unwrap();
        let end = moment(end);
        assert_eq!(end, (sample.cpu, sample.time + sample.weight, "end:"));
        events.push(sample);
    }
    Parsed { events, zero }
}
