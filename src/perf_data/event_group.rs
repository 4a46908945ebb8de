//! Events that count the same thing: on a hybrid processor, perf opens one per type of CPU.

use rustc_hash::{FxHashMap, FxHashSet};

use super::RecordingInfo;
use super::attribute::{Attribute, Excluded};
use super::event_name::without_modifiers;
use crate::perf::RecordFormat;

/// Name prefixes of performance monitoring units of CPUs, as opposed to other devices.
const CPU_UNITS: [&str; 5] = ["cpu_", "armv", "arm_cortex", "apple_", "riscv_"];
/// Maximum number of types of CPUs in a processor.
const MAX_UNITS: usize = 16;

/// One event, or several that count the same thing on different CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventGroup {
    /// Name, unique among the groups of a recording. Contains no unit if there are several.
    pub name: String,
    /// Indices of [`RecordingInfo::events`], ascending; never empty.
    pub members: Vec<usize>,
}

impl EventGroup {
    /// Returns the groups of a recording, in the order of their first event.
    #[must_use]
    pub fn all(info: &RecordingInfo) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        let mut by_identity: FxHashMap<Identity, (usize, Vec<Unit>)> = FxHashMap::default();
        for (at, event) in info.events.iter().enumerate() {
            if let Some((identity, unit)) = Identity::new(info, event) {
                let entry = by_identity.entry(identity);
                let (group, units) = entry.or_insert((groups.len(), Vec::new()));
                let is_new = units.len() < MAX_UNITS && !units.contains(&unit);
                if is_new {
                    units.push(unit);
                }
                if is_new && *group < groups.len() {
                    groups[*group].members.push(at);
                    continue;
                }
            }
            groups.push(Self {
                name: event.name.clone(),
                members: vec![at],
            });
        }
        for group in groups.iter_mut().filter(|group| group.members.len() > 1) {
            group.name = without_unit(&group.name).1;
        }
        make_distinct(&mut groups);
        groups
    }

    /// Returns the group with a name, or a group of the single event with this name.
    ///
    /// If there is none, ignores modifiers: first in the names of groups, then in those of events.
    #[must_use]
    pub fn find(info: &RecordingInfo, name: &str) -> Option<Self> {
        let groups = Self::all(info);
        let by_name = groups.iter().find(|group| group.name == name);
        let by_event = || {
            let at = info.events.iter().position(|event| event.name == name)?;
            Some(Self {
                name: name.into(),
                members: vec![at],
            })
        };
        let by_base = || {
            let is_base = |group: &&Self| without_modifiers(&group.name) == name;
            groups.iter().find(is_base).cloned()
        };
        let by_event_base = || {
            let base = |name: &str| {
                let (unit, event) = without_unit(name);
                unit.map(|unit| (unit.to_owned(), without_modifiers(&event).to_owned()))
            };
            let requested = base(name)?;
            let mut events = info.events.iter();
            let at = events.position(|event| base(&event.name).as_ref() == Some(&requested))?;
            Some(Self {
                name: info.events[at].name.clone(),
                members: vec![at],
            })
        };
        by_name
            .cloned()
            .or_else(by_event)
            .or_else(by_base)
            .or_else(by_event_base)
    }
}

/// Appends an index to repeated names, so that the user can select each event.
fn make_distinct(groups: &mut [EventGroup]) {
    let mut used: FxHashSet<String> = FxHashSet::default();
    let mut indices: FxHashMap<String, u32> = FxHashMap::default();
    for group in groups {
        let name = group.name.clone();
        while !used.insert(group.name.clone()) {
            let index = indices.entry(name.clone()).or_insert(1);
            *index += 1;
            group.name = format!("{name}#{index}");
        }
    }
}

/// The properties that all events of a group share, regardless of the type of CPU.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    event: Counted,
    excluded: Excluded,
    by_frequency: bool,
    period: u64,
    format: RecordFormat,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Counted {
    /// A generic event of the kernel: type and configuration.
    Generic(u32, u32),
    /// An event of a unit, by name.
    Named(String),
}

/// The performance monitoring unit of an event's CPUs, by type or name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Unit {
    Type(u32),
    Name(String),
}

impl Identity {
    /// Returns `None` if the event is not restricted to one type of CPU.
    fn new(info: &RecordingInfo, event: &Attribute) -> Option<(Self, Unit)> {
        let (counted, unit) = match event.hybrid_unit() {
            Some(unit) => {
                let config = event.config as u32;
                (Counted::Generic(event.kind, config), Unit::Type(unit))
            }
            None => {
                let (unit, name) = without_unit(&event.name);
                let is_listed = |unit: &&str| info.hybrid_units.iter().any(|listed| listed == unit);
                let is_of_cpus = |unit: &&str| {
                    is_listed(unit) || CPU_UNITS.iter().any(|prefix| unit.starts_with(prefix))
                };
                let unit = unit.filter(is_of_cpus)?;
                (Counted::Named(name), Unit::Name(unit.to_owned()))
            }
        };
        let identity = Self {
            event: counted,
            excluded: event.excluded,
            by_frequency: event.by_frequency,
            period: event.period,
            format: event.format,
        };
        Some((identity, unit))
    }
}

/// Splits `cpu_core/cycles/u` into `cpu_core` and `cycles:u`.
///
/// Returns the whole name and no unit if the name has another form.
fn without_unit(name: &str) -> (Option<&str>, String) {
    let parts = name.split_once('/').and_then(|(unit, rest)| {
        let (event, modifiers) = rest.rsplit_once('/')?;
        (!unit.is_empty() && !event.is_empty()).then_some((unit, event, modifiers))
    });
    match parts {
        Some((unit, event, "")) => (Some(unit), event.to_owned()),
        Some((unit, event, modifiers)) => {
            let modifiers = modifiers.trim_start_matches(':');
            (Some(unit), format!("{event}:{modifiers}"))
        }
        None => (None, name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use perf_event_open_sys::bindings as sys;

    use super::*;

    fn event(name: &str, kind: u32, config: u64) -> Attribute {
        Attribute {
            name: name.into(),
            kind,
            config,
            ..Attribute::default()
        }
    }

    fn groups(events: Vec<Attribute>) -> Vec<(String, Vec<usize>)> {
        let info = RecordingInfo {
            events,
            hybrid_units: vec!["big".into(), "little".into()],
            ..RecordingInfo::default()
        };
        let groups = EventGroup::all(&info).into_iter();
        groups.map(|group| (group.name, group.members)).collect()
    }

    #[test]
    fn groups_events_of_a_hybrid_processor() {
        let hardware = sys::PERF_TYPE_HARDWARE;
        let all = groups(vec![
            event("cpu_core/cycles:ppp/", hardware, 4 << 32),
            event("cpu_atom/cycles:ppp/", hardware, 7 << 32),
            event("cpu_core/instructions/", hardware, 4 << 32 | 1),
            event("dummy:HG", sys::PERF_TYPE_SOFTWARE, 9),
        ]);
        assert_eq!(all[0], ("cycles:ppp".into(), vec![0, 1]));
        assert_eq!(all[1], ("cpu_core/instructions/".into(), vec![2]));
        assert_eq!(all.len(), 3);
        // The configuration of a raw event does not identify its unit.
        let raw = [("cpu_core/mem-loads/u", 4), ("cpu_atom/mem-loads/u", 10)];
        let raw = raw.map(|(name, kind)| event(name, kind, 0x5cd));
        assert_eq!(groups(raw.to_vec()), [("mem-loads:u".into(), vec![0, 1])]);
        let listed = [("big/x/", 8), ("little/x/", 9)].map(|(name, kind)| event(name, kind, 1));
        assert_eq!(groups(listed.to_vec()).len(), 1);
    }

    #[test]
    fn keeps_similar_events_apart() {
        let hardware = sys::PERF_TYPE_HARDWARE;
        let user = |name: &str, config| {
            let mut event = event(name, hardware, config);
            event.excluded.kernel = true;
            event
        };
        let pairs = [
            // A repeated event is a separate group.
            [event("cycles", hardware, 0), event("cycles", hardware, 0)],
            [event("ibs_op//", 9, 0), event("ibs_fetch//", 10, 0)],
            [event("uncore_a/x/", 11, 1), event("uncore_b/x/", 12, 1)],
            [
                event("cpu_core/cycles/", hardware, 4 << 32),
                user("cpu_atom/cycles/u", 7 << 32),
            ],
        ];
        for pair in pairs {
            assert_eq!(groups(pair.to_vec()).len(), 2, "{pair:?}");
        }
    }

    #[test]
    fn finds_each_group_by_name() {
        let info = RecordingInfo {
            events: vec![
                event("cycles:u", 0, 0),
                event("cycles:u", 0, 0),
                event("cpu_core/cycles/", 0, 4 << 32),
                event("cpu_atom/cycles/", 0, 7 << 32),
            ],
            ..RecordingInfo::default()
        };
        let members = |name: &str| EventGroup::find(&info, name).map(|group| group.members);
        assert_eq!(members("cycles:u"), Some(vec![0]));
        assert_eq!(members("cycles:u#2"), Some(vec![1]));
        assert_eq!(members("cycles"), Some(vec![2, 3]));
        assert_eq!(members("cpu_atom/cycles/"), Some(vec![3]));
        assert_eq!(members("instructions"), None);
        let info = RecordingInfo {
            events: vec![
                event("sched:sched_wakeup", 2, 1),
                event("cpu_core/cycles:ppp/", 0, 4 << 32),
                event("cpu_atom/cycles:ppp/", 0, 7 << 32),
            ],
            ..RecordingInfo::default()
        };
        let members = |name: &str| EventGroup::find(&info, name).map(|group| group.members);
        assert_eq!(members("sched"), None);
        assert_eq!(members("cycles"), Some(vec![1, 2]));
        assert_eq!(members("cpu_atom/cycles/"), Some(vec![2]));
    }
}
