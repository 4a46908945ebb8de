//! Notices about many processes with the same problem.

use std::mem::discriminant;

use super::{Notice, NoticeKind, Pid};

/// Maximum number of processes that a notice lists.
const MAX_LISTED: usize = 16;

/// Returns one notice for each group of processes whose errors have the same variant and remedy.
///
/// `what` gets the list of processes and the error of the first one. Errors of a group may differ
/// in details such as addresses.
pub fn process_notices<'a, E: 'a>(
    kind: NoticeKind,
    errors: impl IntoIterator<Item = (Pid, &'a E)>,
    what: impl Fn(&str, &E) -> String,
    remedy: impl Fn(&E) -> &'static str,
) -> Vec<Notice> {
    let mut errors: Vec<_> = errors.into_iter().collect();
    errors.sort_by_key(|&(pid, _)| pid);
    let mut groups: Vec<(&E, Vec<Pid>)> = Vec::new();
    for (pid, error) in errors {
        let group = groups.iter_mut().find(|(first, _)| {
            discriminant(*first) == discriminant(error) && remedy(first) == remedy(error)
        });
        match group {
            Some((_, pids)) => pids.push(pid),
            None => groups.push((error, vec![pid])),
        }
    }
    let notice = |(error, pids): (&E, Vec<Pid>)| {
        let listed = pids.iter().take(MAX_LISTED).map(Pid::to_string);
        let listed = listed.collect::<Vec<_>>().join(", ");
        let more = match pids.len().saturating_sub(MAX_LISTED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Notice::new(kind, what(&format!("{listed}{more}"), error), remedy(error))
            .about(listed)
            .counting(pids.len())
    };
    groups.into_iter().map(notice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    enum Problem {
        Address(u64),
        Permission(bool),
    }

    fn notices(errors: &[(i32, Problem)]) -> Vec<Notice> {
        process_notices(
            NoticeKind::MemoryUnreadable,
            errors.iter().map(|(pid, problem)| (Pid(*pid), problem)),
            |processes, problem| match problem {
                Problem::Address(address) => format!("process {processes}: {address:#x}"),
                Problem::Permission(_) => format!("process {processes}"),
            },
            |problem| match problem {
                Problem::Permission(true) => "run as root",
                _ => "",
            },
        )
    }

    #[test]
    fn groups_by_variant_and_remedy_and_shows_the_first_error() {
        let notices = notices(&[
            (3, Problem::Address(0x3000)),
            (2, Problem::Address(0x2000)),
            (4, Problem::Permission(false)),
            (5, Problem::Permission(true)),
        ]);
        let shown = notices.iter();
        let shown: Vec<_> = shown
            .map(|notice| (&*notice.what, &*notice.remedy, notice.count))
            .collect();
        assert_eq!(
            shown,
            [
                ("process 2, 3: 0x2000", "", 2),
                ("process 4", "", 1),
                ("process 5", "run as root", 1)
            ]
        );
    }

    #[test]
    fn counts_processes_that_the_notice_does_not_list() {
        let errors: Vec<_> = (1..=18)
            .rev()
            .map(|pid| (pid, Problem::Permission(false)))
            .collect();
        let notices = notices(&errors);
        let [notice] = &notices[..] else {
            panic!("{notices:?}");
        };
        assert_eq!(notice.count, 18);
        assert!(notice.subject.starts_with("1, 2, "), "{notice:?}");
        assert!(notice.subject.ends_with(", 16"), "{notice:?}");
        assert!(notice.what.ends_with(", 16 and 2 more"), "{notice:?}");
    }
}
