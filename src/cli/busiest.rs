//! `perfcollect` alone, on a terminal: shows the busiest processes and captures the one that is chosen.

use std::cmp::Reverse;
use std::ffi::OsString;
use std::io::{self, BufRead, IsTerminal, Write};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use textwrap::core::display_width;

use super::OneLine;
use super::screen;
use crate::machine::{self, ProcError};
use crate::output::summary::program_of;
use crate::trace::Pid;
use crate::view::fitted::with_ellipsis;

/// Time in which CPU use is measured.
const MEASURED: Duration = Duration::from_millis(1000);
/// Number of processes shown.
const SHOWN: usize = 12;
/// Width of a line if the terminal's is not known.
const WIDTH: usize = 80;
/// Width of the columns before the command line.
const COLUMNS: usize = 35;
/// Width of the column of programs.
const PROGRAM: usize = 15;
/// Seconds of the capture.
const SECONDS: &str = "10";

/// A process and the CPUs that it used.
struct Busy {
    pid: Pid,
    cpus: f64,
    name: String,
    command_line: String,
}

/// Returns whether there is somebody to ask.
pub(super) fn can_ask() -> bool {
    [io::stdin().is_terminal(), io::stdout().is_terminal()] == [true, true]
}

/// Asks for a process. Returns the words of a capture of it, or `None` if none is wanted.
pub(super) fn ask() -> Result<Option<Vec<OsString>>, ProcError> {
    let rows = busiest()?;
    let width = screen::of(io::stdout()).map_or(WIDTH, |screen| screen.size.width);
    let mut text = String::from("  #   CPUs      PID  PROGRAM          COMMAND\n");
    for (number, row) in (1..).zip(&rows) {
        let program = program_of(&row.name, &row.command_line);
        let program = with_ellipsis(&OneLine(program).to_string(), PROGRAM);
        let padding = " ".repeat(PROGRAM.saturating_sub(display_width(&program)));
        let command = OneLine(&row.command_line).to_string();
        let command = with_ellipsis(&command, width.saturating_sub(COLUMNS + 1));
        let Busy { pid, cpus, .. } = row;
        text += &format!(
            "{number:>3}  {cpus:>5.2}  {:>7}  {program}{padding}  {command}\n",
            pid.0
        );
    }
    if rows.is_empty() {
        text += "     no process uses CPU time now\n";
    }
    text += &format!(
        "Capture which one for {SECONDS} s? Number, PID or name, m for the whole machine, Enter for none: "
    );
    let _ = super::print(text.as_bytes());
    let _ = io::stdout().flush();
    let mut answer = String::new();
    // An error is no answer.
    let _ = io::stdin().lock().read_line(&mut answer);
    let target = match answer.trim() {
        "m" | "M" => Vec::new(),
        "" => return Ok(None),
        answer => match answer.parse::<usize>() {
            Ok(number) => {
                let row = number.checked_sub(1).and_then(|at| rows.get(at));
                let pid = row.map_or_else(|| answer.to_owned(), |row| row.pid.0.to_string());
                vec!["-pid".into(), pid.into()]
            }
            Err(_) => vec!["-n".into(), answer.into()],
        },
    };
    let words = ["perfcollect", "collect"].map(OsString::from).into_iter();
    let limit = ["-collectsec", SECONDS].map(OsString::from);
    Ok(Some(words.chain(target).chain(limit).collect()))
}

/// Returns the processes that use most CPU time now.
fn busiest() -> Result<Vec<Busy>, ProcError> {
    let ticks = || -> Result<FxHashMap<Pid, u64>, ProcError> {
        let pids = machine::pids()?.into_iter();
        Ok(pids
            .filter_map(|pid| Some((pid, machine::cpu_ticks(pid)?)))
            .collect())
    };
    let start = Instant::now();
    let before = ticks()?;
    sleep(MEASURED);
    let after = ticks()?;
    let seconds = start.elapsed().as_secs_f64();
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    let own = std::process::id();
    let used = after.into_iter().filter_map(|(pid, ticks)| {
        let used = ticks.checked_sub(*before.get(&pid)?)?;
        let is_busy = used > 0 && u32::try_from(pid.0) != Ok(own);
        is_busy.then_some((used, pid))
    });
    let mut used: Vec<(u64, Pid)> = used.collect();
    used.sort_unstable_by_key(|(used, pid)| (Reverse(*used), pid.0));
    used.truncate(SHOWN);
    let rows = used.into_iter().map(|(used, pid)| Busy {
        pid,
        cpus: used as f64 / per_second / seconds,
        name: machine::process_name(pid).unwrap_or_default(),
        command_line: String::from_utf8_lossy(&machine::command_line(pid)).into_owned(),
    });
    Ok(rows.collect())
}
