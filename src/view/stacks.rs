//! The report of `perfcollect stacks` as text.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use super::fitted::{fitted, with_ellipsis};
use super::report::short;
use super::screen::{MIN_SIZE, OTHER_LINES, Screen, whole_words};
use super::{count, notices};
use crate::output::NameStyle;
use crate::output::duration::duration;
use crate::output::sanitize::terminal;
use crate::output::summary::program_of;
use crate::waits::{
    Deadlock, Group, Reason, SnapshotProcess, StackFrame, StackReport, WaitingThread,
};

/// Number of functions of a stack in the short form.
const MAX_FRAMES: usize = 4;
/// Number of threads of a group that are listed in the short form.
const MAX_THREADS: usize = 8;
/// Number of deadlocks, of their threads, and of lines of a notice.
const MAX_DEADLOCKS: usize = 2;
const MAX_DEADLOCKED: usize = 4;
const MAX_NOTICE_LINES: usize = 4;
/// Number of processes in the short form.
const MAX_PROCESSES: usize = 4;
/// Width of the lines with ids of threads where there is no terminal.
const LISTED_WIDTH: usize = 120;
/// Number of names of idle threads that are listed.
const MAX_NAMES: usize = 6;
/// Number of different things that the threads of a group wait for that are listed.
const MAX_WAITS: usize = 3;
/// Shortest time that is shown, in seconds.
const MIN_SINCE: f64 = 0.001;
/// Start of the lines of functions: the user's own, and others.
const OWN: &str = "   > ";
const OTHER: &str = "     ";

/// How to print a report.
#[derive(Clone, Copy, Debug)]
pub struct StackText {
    /// The terminal, if it is one.
    pub screen: Option<Screen>,
    /// Whether to print all stacks whole.
    pub full: bool,
    /// Maximum number of groups, or of requests.
    pub top: usize,
}

/// Prints a report. On a terminal, it fits.
///
/// # Errors
/// Returns the error of a failed write to `out`.
pub fn print_stacks(report: &StackReport, text: StackText, out: &mut impl Write) -> io::Result<()> {
    let form = Form {
        full: text.full || text.screen.is_none(),
    };
    let screen = text.screen.filter(|_| !form.full);
    let width = screen.map_or(usize::MAX, |screen| {
        screen.size.width.max(MIN_SIZE.width) - 1
    });
    let bold = text.screen.is_some_and(|screen| screen.bold);
    let head: Vec<String> = head(report, form.full)
        .iter()
        .flat_map(|line| wrapped(line, screen.map(|_| width)))
        .collect();
    for line in &head {
        match bold {
            true => writeln!(out, "\x1b[1m{line}\x1b[0m")?,
            false => writeln!(out, "{line}")?,
        }
    }
    let notice = notices::most_useful(&report.notices).filter(|_| screen.is_some());
    let notice = notice.map_or_else(Vec::new, |notice| {
        let remedy = if notice.remedy.is_empty() { "" } else { "; " };
        let line = format!("notice: {}{remedy}{}", notice.what, notice.remedy);
        let mut lines = wrapped(&terminal(&line), Some(width));
        lines.truncate(MAX_NOTICE_LINES);
        lines
    });
    let blocks = form.blocks(report, width);
    let room = screen.map_or(usize::MAX, |screen| {
        let height = screen.size.height.max(MIN_SIZE.height) - OTHER_LINES;
        height.saturating_sub(head.len() + 1 + notice.len())
    });
    let mut taken = 0;
    for (shown, block) in blocks.iter().enumerate() {
        let is_last = shown + 1 == blocks.len();
        let needed = block.len() + 1 + usize::from(!is_last);
        let is_over = shown >= text.top;
        if is_over || taken + needed > room && shown > 0 {
            let rest = count((blocks.len() - shown) as u64, "group", "groups");
            let how = match is_over {
                true => "",
                false => ": -full, or `| less`, shows all",
            };
            let line = format!("... and {rest} of threads{how}");
            writeln!(out, "\n{}", with_ellipsis(&line, width))?;
            break;
        }
        taken += block.len() + 1;
        writeln!(out)?;
        for line in block {
            writeln!(out, "{}", with_ellipsis(line, width))?;
        }
    }
    for line in notice {
        writeln!(out, "{line}")?;
    }
    match screen {
        Some(_) => Ok(()),
        None => notices::print(&report.notices, out),
    }
}

/// Returns what the processes do, and their deadlocks.
fn head(report: &StackReport, full: bool) -> Vec<String> {
    let mut head: Vec<String> = Vec::new();
    let mut counts: HashMap<i32, BTreeMap<Reason, usize>> = HashMap::new();
    for group in &report.groups {
        let of_process = counts.entry(group.pid).or_default();
        *of_process.entry(group.reason).or_default() += group.threads.len();
    }
    let shown = match full {
        true => usize::MAX,
        false => MAX_PROCESSES,
    };
    for process in report.processes.iter().take(shown) {
        let reasons = counts.remove(&process.pid).unwrap_or_default();
        head.push(process_line(process, &reasons));
    }
    if let Some(hidden) = report
        .processes
        .get(shown..)
        .filter(|rest| !rest.is_empty())
    {
        let threads = hidden.iter().map(|process| process.threads).sum::<usize>();
        let processes = count(hidden.len() as u64, "more process", "more processes");
        let threads = count(threads as u64, "thread", "threads");
        head.push(format!("... and {processes}, with {threads}"));
    }
    if report.processes.is_empty() {
        head.push("no process could be read".to_owned());
    }
    let shown = if full { usize::MAX } else { MAX_DEADLOCKS };
    for deadlock in report.deadlocks.iter().take(shown) {
        head.extend(deadlock_lines(deadlock, report, full));
    }
    let hidden = report.deadlocks.len().saturating_sub(shown);
    head.extend((hidden > 0).then(|| format!("... and {hidden} more deadlocks")));
    head.extend(unknown_owners(report));
    head
}

/// Breaks a line between words.
fn wrapped(line: &str, width: Option<usize>) -> Vec<String> {
    let Some(width) = width else {
        return vec![line.to_owned()];
    };
    let words = whole_words(width)
        .break_words(true)
        .subsequent_indent(OTHER);
    textwrap::wrap(line, words)
        .into_iter()
        .map(Into::into)
        .collect()
}

/// Returns how many threads of a process wait for which reason.
fn process_line(process: &SnapshotProcess, reasons: &BTreeMap<Reason, usize>) -> String {
    let name = short(program_of(&process.name, &process.command_line));
    let threads = count(process.threads as u64, "thread", "threads");
    let counts = reasons.iter();
    let counts = counts.map(|(reason, threads)| format!("{threads} {}", reason.words(*threads)));
    let omitted = match process.omitted {
        0 => None,
        omitted => Some(format!("{omitted} more were not read")),
    };
    let counts: Vec<String> = counts.chain(omitted).collect();
    let separator = if counts.is_empty() { "" } else { ": " };
    let pid = process.pid;
    format!(
        "{name} (pid {pid}): {threads}{separator}{}",
        counts.join(", ")
    )
}

/// Returns what a deadlock consists of. On a terminal, the rest of it is counted.
fn deadlock_lines(deadlock: &Deadlock, report: &StackReport, full: bool) -> Vec<String> {
    let all = deadlock.threads.len();
    let mut lines = vec![match all {
        1 => "DEADLOCK: 1 thread waits for itself".to_owned(),
        all => format!("DEADLOCK: {all} threads wait for each other"),
    }];
    let shown = if full { all } else { MAX_DEADLOCKED.min(all) };
    lines.extend(deadlock.threads.iter().take(shown).map(|&tid| {
        let Some((group, thread)) = report.thread(tid) else {
            return format!("  {tid}");
        };
        let own = group.frames.iter().find(|frame| frame.own);
        let place = own.map_or_else(String::new, |frame| format!(" in {}", short(&frame.name)));
        let owner = match thread.lock.and_then(|lock| lock.owner) {
            Some(owner) if owner == tid => "it has itself".to_owned(),
            owner => format!("{} has", owner.unwrap_or(0)),
        };
        format!("  {} waits{place} for a lock that {owner}", labeled(thread))
    }));
    let more = all - shown;
    lines.extend((more > 0).then(|| format!("  ... and {more} more")));
    lines
}

/// Returns a line if a deadlock could not be found.
fn unknown_owners(report: &StackReport) -> Option<String> {
    let locks = report
        .groups
        .iter()
        .filter(|group| group.reason == Reason::Lock);
    let threads = locks.flat_map(|group| &group.threads);
    let is_known = |thread: &&WaitingThread| {
        thread
            .lock
            .is_some_and(|lock| lock.owner.is_some() || lock.foreign_owner.is_some())
    };
    let stayed = threads.filter(|thread| !thread.has_moved);
    let unknown = stayed.filter(|thread| !is_known(thread)).count();
    (unknown > 0).then(|| {
        format!("Who has the locks that {unknown} of the threads wait for is unknown: deadlocks of them are not found")
    })
}

/// Returns who has the lock that the threads of a group wait for: a thread, or another id.
fn owner(group: &Group) -> Option<(Option<i32>, Option<u32>)> {
    let lock = group.threads.first()?.lock?;
    Some((lock.owner, lock.foreign_owner))
}

/// Returns the id and the name of a thread.
fn labeled(thread: &WaitingThread) -> String {
    format!("{} {}", thread.tid, short(&thread.name))
        .trim_end()
        .to_owned()
}

/// Short or full.
#[derive(Clone, Copy)]
struct Form {
    full: bool,
}

impl Form {
    /// Returns the lines of each group. In the short form, all idle threads are one group.
    fn blocks(self, report: &StackReport, width: usize) -> Vec<Vec<String>> {
        let is_shown = |group: &&Group| self.full || group.reason != Reason::Idle;
        let groups = report.groups.iter().filter(is_shown).cloned();
        let groups = match self.full {
            true => groups.collect(),
            false => joined(groups),
        };
        let groups = groups.iter().map(|group| self.group(group, report, width));
        let mut blocks: Vec<Vec<String>> = groups.collect();
        let idle: Vec<&WaitingThread> = report
            .groups
            .iter()
            .filter(|group| !is_shown(group))
            .flat_map(|group| &group.threads)
            .collect();
        let screen = (!self.full).then_some(width);
        blocks.extend(idle_line(&idle).map(|line| wrapped(&line, screen)));
        blocks
    }

    fn group(self, group: &Group, report: &StackReport, width: usize) -> Vec<String> {
        let mut lines = self.heading(group, report);
        let all = waits(&group.threads);
        let shown = if self.full { all.len() } else { MAX_WAITS };
        lines.extend(all.iter().take(shown).cloned());
        let more = all.len().saturating_sub(shown);
        lines.extend((more > 0).then(|| format!("  ... and {more} more")));
        match self.full {
            true => lines.extend(group.frames.iter().map(frame_line)),
            false => lines.extend(short_frames(group, width)),
        }
        let truncated = group.truncated.iter();
        lines.extend(truncated.map(|why| format!("{OTHER}{}", terminal(why))));
        lines
    }

    /// Returns what the threads do, and which ones.
    fn heading(self, group: &Group, report: &StackReport) -> Vec<String> {
        let threads = &group.threads;
        let who = match &threads[..] {
            [one] => labeled(one),
            more => count(more.len() as u64, "thread", "threads"),
        };
        let process = match report.processes.len() {
            1 => String::new(),
            _ => format!(" of {}", group.pid),
        };
        let words = group.reason.words(threads.len());
        let owner = match owner(group).filter(|_| group.reason == Reason::Lock) {
            None | Some((None, None)) => String::new(),
            Some((None, Some(foreign))) => {
                format!(" that {foreign} has, which is no thread of this process")
            }
            Some((Some(owner), _)) => {
                let found = report.thread(owner);
                let named = found.map_or_else(|| owner.to_string(), |(_, thread)| labeled(thread));
                let itself = if threads.len() == 1 && threads[0].tid == owner {
                    " itself"
                } else {
                    ""
                };
                format!(" that {named} has{itself}")
            }
        };
        let moved = match threads.iter().filter(|thread| thread.has_moved).count() {
            0 => "",
            _ => ", and ran meanwhile",
        };
        let since = since(threads);
        let line = format!("{who}{process} {words}{owner}{since}{moved}");
        let listed = (threads.len() > 1).then(|| format!("  {}", self.listed(threads)));
        let listed = listed.iter().flat_map(|listed| match self.full {
            true => wrapped(listed, Some(LISTED_WIDTH)),
            false => vec![listed.clone()],
        });
        [line].into_iter().chain(listed).collect()
    }

    /// Lists threads by name.
    fn listed(self, threads: &[WaitingThread]) -> String {
        let shown = if self.full {
            threads.len()
        } else {
            MAX_THREADS
        };
        let mut by_name: Vec<(String, Vec<String>)> = Vec::new();
        for thread in threads.iter().take(shown) {
            let name = short(&thread.name);
            let tid = match thread.namespace_tid {
                Some(inside) => format!("{} ({inside} in its namespace)", thread.tid),
                None => thread.tid.to_string(),
            };
            match by_name.iter_mut().find(|(known, _)| *known == name) {
                Some((_, tids)) => tids.push(tid),
                None => by_name.push((name, vec![tid])),
            }
        }
        let names = by_name.iter();
        let names = names.map(|(name, tids)| format!("{} {name}", tids.join(" ")));
        let listed = names.collect::<Vec<_>>().join(", ");
        match threads.len().saturating_sub(shown) {
            0 => listed,
            more => format!("{listed} and {more} more"),
        }
    }
}

/// Joins groups that differ only in functions that are not the user's.
fn joined(groups: impl Iterator<Item = Group>) -> Vec<Group> {
    let mut joined: Vec<Group> = Vec::new();
    let mut at = HashMap::new();
    for group in groups {
        let own = group.frames.iter().filter(|frame| frame.own);
        let own: Vec<String> = own.map(|frame| frame.name.clone()).collect();
        let is_known = !own.is_empty();
        let index = *at
            .entry((group.pid, group.reason, owner(&group), own))
            .or_insert(joined.len());
        match joined.get_mut(index).filter(|_| is_known) {
            Some(known) => known.threads.extend(group.threads),
            None => joined.push(group),
        }
    }
    joined
}

/// Returns for how long threads have not run.
fn since(threads: &[WaitingThread]) -> String {
    let times = threads.iter().filter_map(|thread| thread.since_s);
    let (least, most) = times.fold((f64::MAX, 0.0), |(least, most): (f64, f64), time| {
        (least.min(time), most.max(time))
    });
    if most < MIN_SINCE {
        return String::new();
    }
    let (least, most) = (duration(least), duration(most));
    match () {
        () if least == most => format!(", for {most}"),
        () => format!(", for {least} to {most}"),
    }
}

fn frame_line(frame: &StackFrame) -> String {
    let mark = if frame.own { OWN } else { OTHER };
    let separator = if frame.is_offset { "+" } else { "!" };
    let inlined = if frame.inlined { " (inlined)" } else { "" };
    format!(
        "{mark}{}{separator}{}{inlined}",
        short(&frame.module),
        terminal(&frame.name)
    )
}

/// Returns the files and times that threads wait for: one line if it is the same for all.
fn waits(threads: &[WaitingThread]) -> Vec<String> {
    let described = |thread: &WaitingThread| Some(short(thread.waits_for.as_ref()?));
    let first = threads.first().and_then(described);
    if let Some(same) = first.filter(|first| {
        threads
            .iter()
            .all(|thread| described(thread).as_ref() == Some(first))
    }) {
        return vec![format!("  {same}")];
    }
    let lines = threads.iter().filter_map(|thread| {
        let what = described(thread)?;
        Some(format!("  {}: {what}", thread.tid))
    });
    lines.collect()
}

/// Returns the functions of the user, and the one that the innermost of them has called. Without any,
/// those at the top of the stack that do not belong to the C library.
fn short_frames(group: &Group, width: usize) -> Vec<String> {
    let frames = &group.frames;
    let own = frames.iter().position(|frame| frame.own);
    let shown: Vec<&StackFrame> = match own {
        None => {
            let shown = frames.iter().skip(group.first_shown());
            shown.take(MAX_FRAMES).collect()
        }
        Some(first) => {
            let called = first.checked_sub(1).and_then(|called| frames.get(called));
            let called = called.filter(|frame| !frame.is_offset);
            let own = frames.iter().filter(|frame| frame.own);
            called.into_iter().chain(own).take(MAX_FRAMES).collect()
        }
    };
    let line = |frame: &StackFrame| {
        let mark = if frame.own { OWN } else { OTHER };
        let name = NameStyle::Short.of_method(&frame.name);
        let room = width.saturating_sub(mark.len());
        match frame.is_offset {
            true => frame_line(frame),
            false => format!(
                "{mark}{}",
                fitted(&short(&frame.module), &short(&name), room)
            ),
        }
    };
    shown.into_iter().map(line).collect()
}

/// Returns the line about idle threads, by name.
fn idle_line(idle: &[&WaitingThread]) -> Option<String> {
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for thread in idle {
        *names.entry(short(&thread.name)).or_default() += 1;
    }
    let all = names.len();
    let mut names: Vec<(String, usize)> = names.into_iter().collect();
    names.sort_by_key(|(_, threads)| std::cmp::Reverse(*threads));
    let shown = names.iter().take(MAX_NAMES);
    let shown = shown.map(|(name, threads)| match threads {
        1 => name.clone(),
        threads => format!("{name} ({threads})"),
    });
    let shown: Vec<String> = shown.collect();
    let more = match all.saturating_sub(shown.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let words = Reason::Idle.words(idle.len());
    let number = count(idle.len() as u64, "thread", "threads");
    (!idle.is_empty()).then(|| {
        format!(
            "{number} {words}: {}{more}; -full shows their stacks",
            shown.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::FunctionKind;
    use crate::view::screen::Size;
    use crate::waits::Lock;

    fn thread(tid: i32, name: &str) -> WaitingThread {
        WaitingThread {
            tid,
            namespace_tid: None,
            name: name.into(),
            since_s: Some(12.0),
            waits_for: None,
            lock: None,
            system_call: None,
            kernel_function: None,
            has_moved: false,
        }
    }

    fn frame(name: &str, own: bool) -> StackFrame {
        StackFrame {
            module: "app".into(),
            name: name.into(),
            is_offset: false,
            kind: FunctionKind::Native,
            own,
            inlined: false,
        }
    }

    fn group(reason: Reason, threads: Vec<WaitingThread>, frames: Vec<StackFrame>) -> Group {
        Group {
            pid: 7,
            reason,
            threads,
            frames,
            truncated: None,
        }
    }

    fn report(groups: Vec<Group>) -> StackReport {
        StackReport {
            format_version: 1,
            time: String::new(),
            processes: vec![SnapshotProcess {
                pid: 7,
                name: "app".into(),
                command_line: String::new(),
                threads: groups.iter().map(|group| group.threads.len()).sum(),
                omitted: 0,
            }],
            deadlocks: Vec::new(),
            groups,
            omitted_threads: 0,
            notices: Vec::new(),
        }
    }

    fn printed(report: &StackReport, is_terminal: bool) -> String {
        printed_groups(report, is_terminal, usize::MAX)
    }

    fn printed_groups(report: &StackReport, is_terminal: bool, groups: usize) -> String {
        let screen = is_terminal.then_some(Screen {
            size: Size {
                width: 80,
                height: 24,
            },
            bold: false,
        });
        let mut out = Vec::new();
        print_stacks(
            report,
            StackText {
                screen,
                full: false,
                top: groups,
            },
            &mut out,
        )
        .unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_terminal_shows_your_functions_and_a_file_all() {
        let stack = ["futex", "lock", "total", "start"];
        let stack = stack.map(|name| frame(name, name == "total"));
        let owned = |tid| WaitingThread {
            lock: Some(Lock {
                address: 1,
                owner: Some(9),
                foreign_owner: None,
            }),
            ..thread(tid, "worker")
        };
        let mut other = stack.to_vec();
        other.remove(1);
        let groups = vec![
            group(Reason::Lock, vec![owned(10), owned(11)], stack.to_vec()),
            group(Reason::Lock, vec![owned(12)], other),
            group(
                Reason::Sleep,
                vec![thread(9, "holder")],
                vec![frame("sleep", false)],
            ),
            group(
                Reason::Idle,
                vec![thread(13, "gc")],
                vec![frame("wait", false)],
            ),
        ];
        let report = report(groups);
        assert_eq!(
            printed(&report, true),
            "app (pid 7): 5 threads: 3 wait for a lock, 1 sleeps, 1 is idle\n\n\
             3 threads wait for a lock that 9 holder has, for 12.0 s\n  10 11 12 worker\n     \
             app!lock\n   > app!total\n\n\
             9 holder sleeps, for 12.0 s\n     app!sleep\n\n\
             1 thread is idle: gc; -full shows their stacks\n"
        );
        let whole = printed(&report, false);
        for line in [
            "     app!futex\n     app!lock\n   > app!total\n     app!start\n",
            "13 gc is idle",
        ] {
            assert!(whole.contains(line), "{whole}");
        }
    }

    #[test]
    fn groups_that_are_not_shown_are_counted() {
        let sleeps = |tid| {
            let name = format!("f{tid}");
            let frames = vec![frame(&name, true)];
            group(Reason::Sleep, vec![thread(tid, "x")], frames)
        };
        let mut report = report((1..=30).map(sleeps).collect());
        report.processes[0].omitted = 5;
        let first = "app (pid 7): 30 threads: 30 sleep, 5 more were not read\n";
        let two = printed_groups(&report, false, 2);
        assert!(two.starts_with(first), "{two}");
        assert!(
            two.ends_with("> app!f2\n\n... and 28 groups of threads\n"),
            "{two}"
        );
        let screen = printed(&report, true);
        assert!(screen.lines().count() < 24, "{screen}");
        assert!(screen.contains("-full, or `| less`, shows all"), "{screen}");
        assert_eq!(
            printed(&report, false).matches("x sleeps").count(),
            30,
            "a pipe"
        );
    }

    #[test]
    fn many_processes_and_threads_are_listed_in_lines() {
        let threads = (1..=1000).map(|tid| thread(tid, "x")).collect();
        let mut report = report(vec![group(Reason::Sleep, threads, Vec::new())]);
        let one = report.processes[0].clone();
        let others = (8..=400).map(|pid| SnapshotProcess { pid, ..one.clone() });
        report.processes.extend(others);
        let screen = printed(&report, true);
        assert!(screen.lines().count() < 24, "{screen}");
        let more = "... and 390 more processes, with 390000 threads";
        assert!(screen.contains(more), "{screen}");
        let whole = printed(&report, false);
        assert!(whole.lines().all(|line| line.len() <= LISTED_WIDTH));
        assert!(whole.contains(" 1000 x\n"), "{whole}");
    }

    #[test]
    fn names_cannot_add_lines_or_escapes() {
        let name = "x\n\x1b[2JDEADLOCK\u{202e}";
        let mut evil = thread(9, name);
        evil.waits_for = Some(name.into());
        let mut group = group(Reason::Io, vec![evil], vec![frame(name, true)]);
        group.truncated = Some(name.into());
        let mut report = report(vec![group]);
        report.processes[0].name = name.into();
        for is_terminal in [true, false] {
            let text = printed(&report, is_terminal);
            let is_plain = |c: char| c == '\n' || !c.is_control() && c != '\u{202e}';
            assert!(text.chars().all(is_plain), "{text:?}");
            assert!(
                !text.lines().any(|line| line.starts_with("DEADLOCK")),
                "{text}"
            );
        }
    }
}
