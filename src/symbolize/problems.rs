//! Notices about files whose symbols are incomplete.

use std::io;
use std::path::Path;

use perfcollect_symbols::symbolizer::{FileSymbolizer, Problem};
use rustix::io::Errno;

use super::unresolved::{Unresolved, UnresolvedKind};
use crate::machine::{CodeFile, Content};
use crate::trace::{MORE_DESCRIPTORS, Notice, NoticeKind, lacks_descriptors};

/// Problems with the symbols of a file.
#[derive(Debug, Default)]
pub(crate) struct FileProblems {
    pub(crate) notices: Vec<Notice>,
    pub(crate) gaps: Vec<Unresolved>,
}

/// Returns the problems of a file. `inlined`: whether inlined functions are shown.
pub(crate) fn take(symbols: &FileSymbolizer, path: &Path, inlined: bool) -> FileProblems {
    let shown = path.display();
    let nameless = format!("functions of {shown} do not all have names");
    let incomplete = match inlined {
        true => format!("inlined functions of {shown} are not all shown"),
        false => nameless.clone(),
    };
    let mut problems = FileProblems::default();
    let all = symbols.take_problems();
    let is_corrupt = all
        .iter()
        .any(|problem| matches!(problem, Problem::Dwarf(_)));
    for problem in all {
        let (kind, subject, what, remedy) = match &problem {
            Problem::ClosedDirectory(directory) => {
                problems.gaps.push(not_searched(directory));
                continue;
            }
            // One of them explains the rest.
            Problem::NoSplitUnit { .. } if is_corrupt => continue,
            Problem::Elf(_) | Problem::Image(_) | Problem::Go(_) => (
                NoticeKind::SymbolsIncomplete,
                path.display(),
                format!("{nameless}: {problem}"),
                "",
            ),
            Problem::NoSupplementary {
                path: part,
                is_rejected,
            } => {
                let lack = match is_rejected {
                    true => "was not used",
                    false => "is not there",
                };
                let part = part.display();
                let what = format!("{incomplete}: {part}, where it has their names, {lack}");
                let remedy = "install the package it is in, or give its directory with -symbols";
                (NoticeKind::DebugPartMissing, part, what, remedy)
            }
            Problem::NoSplitUnit { path: part, .. } => (
                NoticeKind::DebugPartMissing,
                part.display(),
                format!("{incomplete}: {problem}"),
                "",
            ),
            Problem::Rejected { path, .. } => (
                NoticeKind::DebugFileRejected,
                path.display(),
                problem.to_string(),
                "",
            ),
            _ => (
                NoticeKind::SymbolsIncomplete,
                path.display(),
                format!("{incomplete}: {problem}"),
                "",
            ),
        };
        let notice = Notice::new(kind, what, remedy).about(subject);
        if !problems.notices.contains(&notice) {
            problems.notices.push(notice);
        }
    }
    problems
}

fn not_searched(directory: &Path) -> Unresolved {
    Unresolved {
        kind: UnresolvedKind::Directory,
        who: directory.display().to_string(),
        why: io::Error::from(Errno::ACCESS).to_string(),
        remedy: "if it is another user's home, set HOME to your own; else run as a user who may look there",
    }
}

/// Returns the unresolved code of a file of a user whose files took too long.
pub(super) fn overrun(file: &CodeFile, why: String) -> Unresolved {
    Unresolved {
        kind: UnresolvedKind::File,
        who: file.clean_path().display().to_string(),
        why,
        remedy: "give -noinline, which reads less",
    }
}

/// Returns the unresolved code of a file that cannot be opened: it has neither symbols nor unwind
/// information.
pub(crate) fn unavailable(file: &CodeFile) -> Option<Unresolved> {
    let Content::Unavailable(error) = &file.content else {
        return None;
    };
    let remedy = match error.kind() {
        _ if lacks_descriptors(error) => MORE_DESCRIPTORS,
        io::ErrorKind::PermissionDenied => {
            "run as root, or with CAP_SYS_PTRACE, CAP_CHECKPOINT_RESTORE and CAP_DAC_READ_SEARCH"
        }
        _ => "",
    };
    Some(Unresolved {
        kind: UnresolvedKind::File,
        who: file.clean_path().display().to_string(),
        why: error.to_string(),
        remedy,
    })
}
