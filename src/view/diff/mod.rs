//! `perfcollect diff`: what takes another share of the CPU time in a trace than in an earlier one.

mod change;
mod profile;

use std::io::{self, Write};

use super::report::short;
use super::screen::headline;
use super::table::{Cell, Table, TableFormat};
use super::{OpenTrace, ViewError};
use crate::output::own_code::OwnCode;
use crate::output::sanitize::terminal;
use crate::output::summary::Summary;
use change::{Change, Rest, Side, changes, rest};
use profile::{Code, Profile};

/// Part of the samples in or below the user's code from which on that stands for the program.
const MIN_OWN_PART: f64 = 0.5;
/// Change of the rest (10 %) that is worth a line.
const MIN_REST: f64 = 0.1;

/// A trace that is compared.
struct Compared {
    path: String,
    summary: Summary,
    profile: Profile,
}

/// The difference between two traces.
pub struct Difference {
    before: Compared,
    after: Compared,
    rest: Rest,
    /// Number of functions in both.
    functions: usize,
    changes: [Changes; 2],
}

/// The changes of one kind of code.
struct Changes {
    /// Name in tables for programs.
    kind: &'static str,
    /// Heading for people.
    heading: &'static str,
    rows: Vec<Change>,
}

impl Compared {
    fn read(trace: OpenTrace) -> Result<Self, ViewError> {
        let path = trace.path.to_string_lossy().into_owned();
        let (summary, trace) = trace.into_trace()?;
        if trace.samples.is_empty() {
            let path = terminal(&path).into_owned();
            return Err(ViewError::NoSamples { path });
        }
        let paths = summary.modules.iter().map(|module| &*module.path);
        let profile = Profile::of(&trace, &OwnCode::new(&trace, paths));
        Ok(Self {
            path,
            summary,
            profile,
        })
    }

    fn own(&self) -> Side<'_> {
        Side {
            samples: self.profile.samples,
            all: &self.profile.all,
            by_code: &self.profile.by_own,
        }
    }

    fn functions(&self) -> Side<'_> {
        Side {
            by_code: &self.profile.by_function,
            ..self.own()
        }
    }

    fn has_own(&self) -> bool {
        self.profile.own_part() >= MIN_OWN_PART
    }
}

impl Difference {
    /// Compares a trace with an earlier one.
    ///
    /// # Errors
    /// Returns an error if the samples of one cannot be read.
    pub fn new(before: OpenTrace, after: OpenTrace) -> Result<Self, ViewError> {
        let (before, after) = (Compared::read(before)?, Compared::read(after)?);
        let own = [before.own(), after.own()];
        let functions = [before.functions(), after.functions()];
        let [a, b] = match before.has_own() && after.has_own() {
            true => &own,
            false => &functions,
        };
        let rest = rest(a, b);
        let compare = |kind, heading, [a, b]: &[Side<'_>; 2]| Changes {
            kind,
            heading,
            rows: changes(a, b, rest.times),
        };
        let in_both = functions[0].by_code.keys();
        let in_both = in_both.filter(|code| functions[1].by_code.contains_key(*code));
        Ok(Self {
            rest,
            functions: in_both.count(),
            changes: [
                compare("own", "your code, with the libraries it calls", &own),
                compare("function", "function, by self CPU time", &functions),
            ],
            before,
            after,
        })
    }

    /// Prints at most `top` rows of each table.
    ///
    /// # Errors
    /// Returns the error of a failed write to `out`.
    pub fn print(&self, format: TableFormat, top: usize, out: &mut impl Write) -> io::Result<()> {
        match format {
            TableFormat::Text => self.print_text(top, out),
            format => self.table(top).write(format, out),
        }
    }

    fn print_text(&self, top: usize, out: &mut impl Write) -> io::Result<()> {
        for (name, compared) in [("before", &self.before), ("after", &self.after)] {
            let path = terminal(&compared.path);
            writeln!(out, "{name:<7} {path}: {}", headline(&compared.summary))?;
        }
        match self.cpu_time_of_rest() {
            _ if self.rest.parts[0] == 0.0 => writeln!(
                out,
                "no code takes the same part of the CPU time in both: the changes are of these parts"
            )?,
            Some(times) if (times - 1.0).abs() >= MIN_REST => writeln!(
                out,
                "the other code takes {times:.2} times the CPU time of before: the changes are beside that"
            )?,
            _ => {}
        }
        if self.changes.iter().all(|changes| changes.rows.is_empty()) {
            return writeln!(
                out,
                "\nno difference: none of {} functions takes 10 % more or less CPU time, and 1 % of all, beyond chance",
                self.functions
            );
        }
        for changes in &self.changes {
            print_changes(changes, top, out)?;
        }
        Ok(())
    }

    /// Returns the CPU time of the rest per time of the capture, relative to before.
    fn cpu_time_of_rest(&self) -> Option<f64> {
        let cpus = [&self.before, &self.after].map(|compared| compared.summary.cpus());
        match cpus {
            [Some(before), Some(after)] if before > 0.0 => Some(self.rest.times * after / before),
            _ => None,
        }
    }

    fn table(&self, top: usize) -> Table {
        let rows = self.changes.iter().flat_map(|changes| {
            let rows = changes.rows.iter().take(top);
            rows.map(|change| {
                let [before, after] = change.parts.map(|part| Cell::Number(part * 100.0));
                let times = match change.times.is_finite() {
                    true => Cell::Number(change.times),
                    false => Cell::None,
                };
                let (module, name) = &change.code;
                [
                    changes.kind.into(),
                    before,
                    after,
                    times,
                    certainty(change).into(),
                    (&**module).into(),
                    (&**name).into(),
                ]
            })
        });
        let [before, after] = self.rest.parts.map(|part| Cell::Number(part * 100.0));
        let rest = [
            "rest".into(),
            before,
            after,
            self.cpu_time_of_rest().map_or(Cell::None, Cell::Number),
            "".into(),
            "".into(),
            "".into(),
        ];
        let columns = [
            "kind",
            "before_percent",
            "after_percent",
            "times",
            "certainty",
            "module",
            "method",
        ];
        Table::new("diff", columns, rows.chain([rest]))
    }
}

fn print_changes(changes: &Changes, top: usize, out: &mut impl Write) -> io::Result<()> {
    if changes.rows.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n   before     after  times          {}",
        changes.heading
    )?;
    for change in changes.rows.iter().take(top) {
        let [before, after] = change.parts.map(|part| format!("{:.1} %", part * 100.0));
        let times = match change.times {
            0.0 => "gone".to_owned(),
            times if times.is_finite() => format!("{times:.2}"),
            _ => "new".to_owned(),
        };
        let certainty = certainty(change);
        let code = shown(&change.code);
        writeln!(
            out,
            "{before:>9} {after:>9} {times:>6}  {certainty:<6}  {code}"
        )?;
    }
    let more = changes.rows.len().saturating_sub(top);
    match more {
        0 => Ok(()),
        more => writeln!(out, "... and {more} more"),
    }
}

fn certainty(change: &Change) -> &'static str {
    match change.is_sure {
        true => "sure",
        false => "likely",
    }
}

fn shown((module, name): &Code) -> String {
    match &**name {
        "" => format!("{}, functions without a name", short(module)),
        name => format!("{}!{}", short(module), short(name)),
    }
}
