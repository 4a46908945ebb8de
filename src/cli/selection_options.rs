//! Options that select a part of a trace.

use clap::Args;

use super::values::second;
use crate::selection::{CodePatterns, GroupPatterns, Patterns, Selection, Times};

/// Which part of a trace to print, and how to group its frames.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Selection")]
pub(super) struct SelectionOptions {
    /// Start, in seconds after the capture's start
    #[arg(long, value_name = "SECONDS", value_parser = second)]
    from: Option<f64>,
    /// End, in seconds after the capture's start
    #[arg(long, value_name = "SECONDS", value_parser = second)]
    to: Option<f64>,
    /// One process: its id, name or program (such as app.dll)
    #[arg(long, alias = "processfilter", value_name = "NAME|PID")]
    pub(super) process: Option<String>,
    /// Threads of one name, or one thread by its id
    #[arg(long, value_name = "NAME|TID")]
    pub(super) thread: Option<String>,
    #[command(flatten)]
    pub(super) code: CodeOptions,
}

/// Patterns for frames, as in PerfView.
#[derive(Args, Clone, Debug)]
pub(super) struct CodeOptions {
    /// Only samples in which each PATTERN matches a frame
    ///
    /// A frame is `module!method`. In a pattern, * stands for any characters, % for letters and digits, ^ for the start
    /// of the name, | for or; upper and lower case are the same. The outermost frames are `Process64 NAME (PID)` and
    /// `Thread (TID)`. These options mean what IncPats, ExcPats, FoldPats and GroupPats mean in PerfView.
    #[arg(long, alias = "incpats", value_name = "PATTERN[;...]", value_parser = Patterns::parse)]
    include: Option<Patterns>,
    /// No samples in which a PATTERN matches a frame
    #[arg(long, alias = "excpats", value_name = "PATTERN[;...]", value_parser = Patterns::parse)]
    exclude: Option<Patterns>,
    /// Charge frames that match to their callers
    #[arg(long, alias = "foldpats", value_name = "PATTERN[;...]", value_parser = Patterns::parse)]
    fold: Option<Patterns>,
    /// Show frames that match as one: PATTERN->NAME, or by their entries: PATTERN=>NAME
    ///
    /// `{%}!=>module $1` groups by module and shows what is called from other modules. `PATTERN->` keeps frames as they
    /// are, whatever patterns follow.
    #[arg(long, alias = "grouppats", value_name = "PATTERN->NAME[;...]", value_parser = GroupPatterns::parse)]
    group: Option<GroupPatterns>,
    /// Show all code but yours as one group, OTHER, by its entries
    #[arg(long)]
    justmycode: bool,
}

impl SelectionOptions {
    /// Returns whether it selects by what only samples have.
    pub(super) fn selects_samples(&self) -> bool {
        let of_any_time = Selection {
            times: Times::default(),
            ..self.selection()
        };
        of_any_time.selects_samples_only()
    }

    /// Returns what is selected.
    pub(super) fn selection(&self) -> Selection {
        let code = self.code.clone();
        Selection {
            times: Times {
                from: self.from,
                to: self.to,
            },
            process: self.process.clone(),
            thread: self.thread.clone(),
            patterns: CodePatterns {
                group: code.group.unwrap_or_default(),
                fold: code.fold.unwrap_or_default(),
                include: code.include.unwrap_or_default(),
                exclude: code.exclude.unwrap_or_default(),
                just_my_code: code.justmycode,
            },
        }
    }
}
