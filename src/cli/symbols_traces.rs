//! `perfcollect symbols NAME.trace.zip`: symbolizes written traces and reports the result.

use std::path::Path;

use super::downloads::listed;
use super::progress::Reporter;
use super::{OneLine, say};
use crate::capture::Signals;
use crate::output::file::capture_name;
use crate::resymbolize::{NamedModule, ResymbolizeError, Resymbolized, resymbolize};
use crate::symbolize::Options;

/// Symbolizes traces. Returns how many were not symbolized, or not completely.
pub(super) fn symbolize(
    traces: &[&Path],
    options: &Options,
    reporter: &Reporter,
    signals: &Signals,
) -> usize {
    let mut incomplete = 0;
    for (done, path) in traces.iter().enumerate() {
        let shown = format!("Symbolizing {}", capture_name(path));
        let result = reporter.during(&shown, &|| None, || {
            resymbolize(path, options, &|| signals.pending())
        });
        match result {
            Ok(result) => {
                let is_complete = result.ambiguous.is_empty() && result.kept.is_empty();
                incomplete += usize::from(!is_complete);
                report(path, &result, reporter);
            }
            Err(error) => {
                say(OneLine(&error.to_string()));
                incomplete += 1;
                if let ResymbolizeError::Cancelled(_) = error {
                    return incomplete + traces.len() - done - 1;
                }
            }
        }
    }
    incomplete
}

fn report(path: &Path, result: &Resymbolized, reporter: &Reporter) {
    let shown = path.display();
    for name in &result.ambiguous {
        let line = format!("{shown}: skipped {name}: several builds in it have this file name");
        say(OneLine(&line));
    }
    if result.modules.is_empty() {
        let why = match (result.missing, result.unresolved) {
            (0, 0) => "no native frame in it is unresolved".to_owned(),
            (0, _) => "the debug files have no names for its unresolved frames".to_owned(),
            (missing, _) => {
                format!("no debug file found for its {missing} modules without symbols")
            }
        };
        reporter.say(&format!("{shown}: unchanged: {why}"));
    } else {
        let modules = result.modules.iter();
        let modules = listed(modules.map(|module| {
            let name = module.path.rsplit('/').next().unwrap_or_default();
            let NamedModule {
                addresses, frames, ..
            } = module;
            format!("{name} ({frames} frames at {addresses} addresses)")
        }));
        reporter.say(&format!("{shown}: symbolized {modules}"));
    }
    for path in &result.replaced {
        reporter.say(&format!("{}: updated", path.display()));
    }
    for (path, why) in &result.kept {
        let line = format!("{}: not updated: {why}", path.display());
        say(OneLine(&line));
    }
    if result.modules.is_empty() {
        return;
    }
    let name = capture_name(path);
    let recording = path.with_file_name(format!("{name}.perf.data"));
    if recording.exists() {
        reporter.say(&format!(
            "{}: not updated: the new symbols are in {shown} only",
            recording.display()
        ));
    }
    if result.has_threads {
        reporter.say(&format!(
            "{shown}: not updated: what threads waited for (`report -kind blocked`), whose names are of the capture: \
             `collect -symbols` gives them more"
        ));
    }
    if result.unresolved > 0 {
        reporter.say(&format!(
            "{shown}: {} native frames stay unresolved; `perfcollect view` lists their modules",
            result.unresolved
        ));
    }
}
