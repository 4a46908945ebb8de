//! What a capture left on the disk.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use perfcollect::output::summary::Summary;
use perfcollect::trace::{Notice, NoticeKind};
use tempfile::TempDir;

use super::zip;

/// Samples by stack: process first, leaf last.
pub type Stacks = BTreeMap<Vec<String>, u64>;

/// A trace that was read whole.
pub struct Saved {
    /// `NAME.trace.zip`.
    pub path: PathBuf,
    /// `NAME.flamegraph.svg`, the same as in the archive.
    pub flame_graph: PathBuf,
    pub summary: Summary,
    /// `stacks.folded`.
    pub stacks: Stacks,
    /// `perf.data.txt`.
    pub perf_text: Vec<u8>,
    directory: TempDir,
}

impl Saved {
    /// Reads the trace NAME in a directory.
    #[track_caller]
    pub fn open(directory: TempDir, name: &str) -> Self {
        let path = directory.path().join(format!("{name}.trace.zip"));
        let flame_graph = directory.path().join(format!("{name}.flamegraph.svg"));
        let archive =
            std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let entry = |entry: &str| zip::entry(&archive, &format!("{name}.trace/{entry}"));
        let folded = String::from_utf8(entry("stacks.folded")).expect("UTF-8");
        let saved = Self {
            summary: serde_json::from_slice(&entry("summary.json")).expect("a summary"),
            stacks: stacks_of(&folded),
            perf_text: entry("perf.data.txt"),
            path,
            flame_graph,
            directory,
        };
        assert!(!entry("perfcollect.log").is_empty());
        assert_eq!(entry("flamegraph.svg"), saved.svg().as_bytes());
        // Every part tells the same.
        let samples = saved.stacks.values().sum::<u64>();
        assert_eq!(samples, saved.summary.samples);
        let quality = saved.summary.quality.stacks;
        assert_eq!(samples, quality.samples());
        saved
    }

    /// The directory it lies in, which goes with it.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn svg(&self) -> String {
        std::fs::read_to_string(&self.flame_graph).expect("the flame graph is there, and UTF-8")
    }

    /// Samples whose stack has frames with these words in their names, outermost first; others may lie between.
    pub fn samples_under(&self, words: &[&str]) -> u64 {
        let has = |stack: &[String]| {
            let mut frames = stack.iter().skip(1);
            words
                .iter()
                .all(|word| frames.any(|frame| frame.contains(word)))
        };
        let under = self.stacks.iter().filter(|(stack, _)| has(stack));
        under.map(|(_, samples)| samples).sum()
    }

    /// Fails unless at least 99 of 100 samples reach the root of their thread, and all kernel frames have names.
    #[track_caller]
    pub fn expect_complete(&self) {
        let quality = &self.summary.quality;
        assert!(
            quality.stacks.rooted * 100 >= self.summary.samples * 99,
            "{quality:#?}"
        );
        assert!(
            quality.names.kernel.named > 0 && quality.names.kernel.unresolved == 0,
            "{quality:#?}"
        );
    }

    /// Returns the notices of a kind.
    pub fn notices(&self, kind: NoticeKind) -> Vec<&Notice> {
        notices_of(&self.summary, kind)
    }

    /// Whether the kernel dropped records: a machine that others use, too, may keep the collector waiting.
    pub fn is_lossy(&self) -> bool {
        !self.notices(NoticeKind::RecordsLost).is_empty()
    }

    /// Nothing else is printed.
    #[track_caller]
    pub fn expect_no_notices(&self) {
        let mut notices = self.summary.quality.notices.clone();
        notices.retain(|notice| notice.kind != NoticeKind::RecordsLost);
        assert_eq!(notices, []);
    }
}

/// Returns the notices of a kind.
pub fn notices_of(summary: &Summary, kind: NoticeKind) -> Vec<&Notice> {
    let notices = summary.quality.notices.iter();
    notices.filter(|notice| notice.kind == kind).collect()
}

/// The lines of `stacks.folded`: frames with `;` between them, then a space and a count.
#[track_caller]
pub fn stacks_of(folded: &str) -> Stacks {
    let mut stacks = Stacks::new();
    for line in folded.split_terminator('\n') {
        let (stack, count) = line
            .rsplit_once(' ')
            .unwrap_or_else(|| panic!("no count: {line:?}"));
        let frames: Vec<String> = stack.split(';').map(str::to_owned).collect();
        assert!(frames.iter().all(|frame| !frame.is_empty()), "{line:?}");
        let count: u64 = count
            .parse()
            .unwrap_or_else(|_| panic!("no count: {line:?}"));
        assert!(
            count > 0 && stacks.insert(frames, count).is_none(),
            "{line:?}"
        );
    }
    stacks
}

/// The names of a directory's entries, in order.
pub fn file_names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Returns how many files without a name a process has open in a directory.
pub fn unnamed_files(pid: u32, directory: &Path) -> usize {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    let links = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    let is_unnamed = |link: &PathBuf| {
        link.starts_with(directory) && link.to_string_lossy().ends_with(" (deleted)")
    };
    links.filter(is_unnamed).count()
}
