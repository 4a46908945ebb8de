//! The stacks of the target's threads when the capture ended.

use std::io::Write;

use super::ViewError;
use super::opened::OpenTrace;
use super::stacks::{StackText, print_stacks};

/// Prints the stacks of threads when the capture ended. Returns false if the trace does not have them, or they
/// are not selected.
///
/// # Errors
/// The trace cannot be read, or `out` cannot be written to.
pub fn print_blocked(
    trace: &OpenTrace,
    text: StackText,
    out: &mut impl Write,
) -> Result<bool, ViewError> {
    let Some(report) = trace.threads()? else {
        return Ok(false);
    };
    print_stacks(&report, text, out).map_err(ViewError::Print)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::output::summary::Summary;
    use crate::selection::Selection;
    use crate::trace::Trace;
    use crate::zip::made::zip_of;

    fn print(threads: &[u8]) -> Result<bool, ViewError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.trace.zip");
        let summary = serde_json::to_vec(&Summary::new(&Trace::default())).unwrap();
        let entries = [
            ("x.trace/summary.json", &*summary),
            ("x.trace/threads.json", threads),
        ];
        std::fs::write(&path, zip_of(entries)).unwrap();
        let trace = OpenTrace::open(&path, &Selection::default())?;
        let text = StackText {
            screen: None,
            full: true,
            top: usize::MAX,
        };
        print_blocked(&trace, text, &mut Vec::new())
    }

    #[test]
    fn malformed_threads_are_an_error() {
        for threads in [&b"{"[..], b"", b"[]", b"\xff", b"{\"format_version\":1}"] {
            let error = print(threads).unwrap_err().to_string();
            assert!(
                error.starts_with("threads.json in the trace is corrupt"),
                "{error}"
            );
        }
    }
}
