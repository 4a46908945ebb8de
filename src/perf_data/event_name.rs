//! Names of events: the attribute that a name determines, and the name that perf derives from an
//! attribute.
//!
//! See `evsel__name` in `tools/perf/util/evsel.c`.

use perf_event_open_sys::bindings as sys;

use super::attribute::Attribute;

const SOFTWARE: [&str; 12] = [
    "cpu-clock",
    "task-clock",
    "page-faults",
    "context-switches",
    "cpu-migrations",
    "minor-faults",
    "major-faults",
    "alignment-faults",
    "emulation-faults",
    "dummy",
    "bpf-output",
    "cgroup-switches",
];
const HARDWARE: [&str; 10] = [
    "cycles",
    "instructions",
    "cache-references",
    "cache-misses",
    "branches",
    "branch-misses",
    "bus-cycles",
    "stalled-cycles-frontend",
    "stalled-cycles-backend",
    "ref-cycles",
];
const CACHES: [&str; 7] = [
    "L1-dcache",
    "L1-icache",
    "LLC",
    "dTLB",
    "iTLB",
    "branch",
    "node",
];
/// Types of cache access: singular before `-misses`, plural alone.
const CACHE_ACCESSES: [[&str; 2]; 3] = [
    ["load", "loads"],
    ["store", "stores"],
    ["prefetch", "prefetches"],
];
/// Access types of a breakpoint (`HW_BREAKPOINT_R`, `_W`, `_X`).
const BREAKPOINT_ACCESSES: [(u32, char); 3] = [(1, 'r'), (2, 'w'), (4, 'x')];

/// Modifier letters (`tools/perf/util/parse-events.l`).
const MODIFIERS: &str = "ukhpPGHSDIWebR";

/// Removes modifiers from a name: `cycles:ppp` becomes `cycles`; `sched:sched_switch` stays.
pub(super) fn without_modifiers(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((base, letters)) if letters.chars().all(|letter| MODIFIERS.contains(letter)) => base,
        _ => name,
    }
}

impl Attribute {
    /// Creates an event from the name that perf prints.
    pub(crate) fn printed(name: &str) -> Self {
        let (kind, config) = kind_and_config(name);
        Self {
            name: name.into(),
            kind,
            config,
            ..Self::default()
        }
    }
}

/// Returns type and configuration of an event, as far as its printed name determines them.
fn kind_and_config(name: &str) -> (u32, u64) {
    let base = without_modifiers(name);
    match SOFTWARE.iter().position(|known| *known == base) {
        Some(config) => (sys::PERF_TYPE_SOFTWARE, config as u64),
        None if base.contains(':') => (sys::PERF_TYPE_TRACEPOINT, 0),
        None => (sys::PERF_TYPE_RAW, 0),
    }
}

/// Derives a name with modifiers from type and configuration.
///
/// Returns `None` if they do not identify the event.
pub(super) fn derived(event: &Attribute) -> Option<String> {
    let config = usize::try_from(event.config).unwrap_or(usize::MAX);
    let base = match event.kind {
        sys::PERF_TYPE_HARDWARE => HARDWARE.get(event.config as u32 as usize)?.to_string(),
        sys::PERF_TYPE_SOFTWARE => SOFTWARE.get(config)?.to_string(),
        sys::PERF_TYPE_HW_CACHE => cache(event.config & 0xffff_ffff)?,
        sys::PERF_TYPE_RAW => format!("raw {:#x}", event.config),
        sys::PERF_TYPE_BREAKPOINT => breakpoint(event),
        _ => return None,
    };
    Some(base + &modifiers(event))
}

/// Names the `config` of `PERF_TYPE_HW_CACHE`: one byte each for cache, access and result.
fn cache(config: u64) -> Option<String> {
    let byte = |at: u32| usize::from((config >> (8 * at)) as u8);
    let cache = CACHES.get(byte(0))?;
    let [access, accesses] = CACHE_ACCESSES.get(byte(1))?;
    match byte(2) {
        0 => Some(format!("{cache}-{accesses}")),
        1 => Some(format!("{cache}-{access}-misses")),
        _ => None,
    }
}

fn breakpoint(event: &Attribute) -> String {
    let access = BREAKPOINT_ACCESSES
        .iter()
        .filter(|(bit, _)| event.breakpoint_access & bit != 0)
        .map(|(_, letter)| letter);
    let access: String = access.collect();
    format!("mem:{:#x}:{access}", event.breakpoint_address)
}

/// Returns the modifiers that differ from the default, such as `:u`, `:ppp` or `:HG`.
fn modifiers(event: &Attribute) -> String {
    let excluded = event.excluded;
    let mut letters = String::new();
    let mut excludes_guest_by_default = false;
    if excluded.kernel || excluded.user || excluded.hypervisor {
        let modes = [
            (excluded.kernel, 'k'),
            (excluded.user, 'u'),
            (excluded.hypervisor, 'h'),
        ];
        letters.extend(included(modes));
        excludes_guest_by_default = true;
    }
    if event.precise_ip > 0 {
        letters.extend(std::iter::repeat_n('p', event.precise_ip.into()));
        excludes_guest_by_default = true;
    }
    if excluded.host || excluded.guest == excludes_guest_by_default {
        letters.extend(included([(excluded.host, 'H'), (excluded.guest, 'G')]));
    }
    match letters.is_empty() {
        true => letters,
        false => format!(":{letters}"),
    }
}

fn included<const N: usize>(modes: [(bool, char); N]) -> impl Iterator<Item = char> {
    modes
        .into_iter()
        .filter(|(is_excluded, _)| !is_excluded)
        .map(|(_, letter)| letter)
}
