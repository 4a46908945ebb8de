//! The hottest path: from a process down its most sampled callees, in one pass over folded stacks.

/// A frame and its total samples.
pub(super) type Step = (String, u64);

/// A frame of the current stack.
struct OpenFrame {
    frame: String,
    samples: u64,
    /// Hottest path below the frame, leaf first.
    best: Vec<Step>,
}

/// Finds the hottest path in folded stacks that are sorted frame by frame.
///
/// Memory holds only the current stack and its hottest callees.
pub(super) struct HotPath {
    open: Vec<OpenFrame>,
    /// Maximum depth; deeper frames count to the last one.
    max_depth: usize,
    samples: u64,
}

impl HotPath {
    pub(super) fn new(max_depth: usize) -> Self {
        let all = OpenFrame {
            frame: String::new(),
            samples: 0,
            best: Vec::new(),
        };
        Self {
            open: vec![all],
            max_depth,
            samples: 0,
        }
    }

    /// Adds a line `process;root;...;leaf COUNT`. Returns the samples of all lines until now, or
    /// `None` if the line is malformed.
    pub(super) fn push_line(&mut self, line: &str) -> Option<u64> {
        let (stack, count) = line.rsplit_once(' ')?;
        let count: u64 = count.parse().ok().filter(|count| *count > 0)?;
        self.samples = self.samples.checked_add(count)?;
        let frames = || stack.split(';').take(self.max_depth);
        let current = self.open[1..].iter().map(|open| open.frame.as_str());
        let shared = current.zip(frames()).take_while(|(a, b)| a == b).count();
        let new: Vec<String> = frames().skip(shared).map(str::to_owned).collect();
        self.close_below(shared);
        self.open.extend(new.into_iter().map(|frame| OpenFrame {
            frame,
            samples: 0,
            best: Vec::new(),
        }));
        for open in &mut self.open {
            open.samples += count;
        }
        Some(self.samples)
    }

    /// Returns the samples of all lines, and the hottest path from its root.
    pub(super) fn finish(mut self) -> (u64, Vec<Step>) {
        self.close_below(0);
        let mut path = self.open.pop().map(|all| all.best).unwrap_or_default();
        path.reverse();
        (self.samples, path)
    }

    fn close_below(&mut self, depth: usize) {
        while self.open.len() > depth + 1
            && let Some(OpenFrame {
                frame,
                samples,
                best: mut path,
            }) = self.open.pop()
        {
            path.push((frame, samples));
            if let Some(caller) = self.open.last_mut()
                && caller.best.last().is_none_or(|(_, best)| *best < samples)
            {
                caller.best = path;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn follows_the_most_sampled_callees() {
        let mut path = HotPath::new(10);
        for line in [
            "p (1);a;b 3",
            "p (1);a;c;d 4",
            "p (1);a;c;e 2",
            "p (1);z 5",
            "q (2);x 9",
        ] {
            path.push_line(line).unwrap();
        }
        let step = |frame: &str, samples| (frame.to_owned(), samples);
        let hottest = vec![step("p (1)", 14), step("a", 9), step("c", 6), step("d", 4)];
        assert_eq!(path.finish(), (23, hottest));
    }

    #[test]
    fn rejects_malformed_lines() {
        let mut path = HotPath::new(10);
        assert_eq!(path.push_line("no count"), None);
        assert_eq!(path.push_line(""), None);
        assert_eq!(
            path.push_line("a 18446744073709551615")
                .and_then(|_| path.push_line("a 1")),
            None
        );
    }
}
