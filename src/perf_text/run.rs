//! Lines of a stack with one address: functions that are inlined, or call themselves.

use super::frame::Frame;
use super::labels::Labels;

/// Successive lines with the same address and module: functions inlined into the last of them, or that
/// of a function that calls itself, repeated.
pub(super) struct Run<'l, 'a> {
    pub(super) lines: &'l [&'a [u8]],
    /// Lines of one frame.
    unit: usize,
}

impl<'l, 'a> Run<'l, 'a> {
    /// Returns the run that the lines start with.
    pub(super) fn first(lines: &'l [&'a [u8]], labels: Option<&Labels>) -> Option<Self> {
        let first = place(lines.first()?);
        let len = match first {
            Some(_) => lines.iter().take_while(|line| place(line) == first).count(),
            None => 1,
        };
        let lines = &lines[..len];
        let repeats = |unit: &usize| len % unit == 0 && lines[*unit..] == lines[..len - unit];
        let is_inlined = len > 1
            && Frame::indented(lines[0]).is_some_and(|frame| {
                labels.is_some_and(|labels| labels.is_in_itself(frame.symbol))
            });
        let shortest = if is_inlined { 2 } else { 1 };
        Some(Self {
            lines,
            unit: (shortest..=len).find(repeats).unwrap_or(len),
        })
    }

    /// Returns the lines of each frame: a function, after those that are inlined into it.
    pub(super) fn units(&self) -> impl Iterator<Item = &'l [&'a [u8]]> {
        self.lines.chunks(self.unit)
    }
}

/// Returns address and module of a line; `None` if it has no address.
fn place(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.trim_ascii();
    let address = line.split(u8::is_ascii_whitespace).next()?;
    let module = line.rsplit(u8::is_ascii_whitespace).next()?;
    (address != b"0").then_some((address, module))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const F: &[u8] = b" 1f f (m)";
    const G: &[u8] = b" 1f g (m)";
    const OTHER: &[u8] = b" 2f f (m)";

    fn units(lines: &[&[u8]], labels: Option<&Labels>) -> (usize, Vec<usize>) {
        let run = Run::first(lines, labels).unwrap();
        (run.lines.len(), run.units().map(<[_]>::len).collect())
    }

    #[test]
    fn splits_a_run_into_frames() {
        assert_eq!(units(&[F, G, OTHER], None), (2, vec![2]));
        assert_eq!(units(&[F, G, F, G, OTHER], None), (4, vec![2, 2]));
        assert_eq!(units(&[b" 0 x (m)", b" 0 x (m)"], None), (1, vec![1]));
        let mut labels = Labels::default();
        labels.read(&b"p (1);f;f_[i] 1\n"[..], 1).unwrap();
        assert_eq!(units(&[F, F, F, F], Some(&labels)), (4, vec![2, 2]));
    }

    /// Each line of a recursion is compared once, not once for each line before it.
    #[test]
    fn a_recursion_is_one_run() {
        let mut lines = vec![F; 4096];
        lines.push(OTHER);
        assert_eq!(units(&lines, None), (4096, vec![1; 4096]));
    }
}
