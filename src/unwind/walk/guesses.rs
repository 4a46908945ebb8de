//! Callers that rbp leads to, in code that may keep something else in it.
//!
//! A guess may skip callers or find a wrong one, and errors add up. So a guess that follows a guess,
//! in code that could be read and does not show the caller, counts only if it is confirmed: the
//! chain goes on to code whose caller is known, or to the root. JIT code and its stubs that keep a
//! frame pointer lead there. Values in rbp that are no frame pointers lead nowhere.

use super::Walk;
use crate::trace::Truncation;

/// The guesses of one walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Guesses {
    /// Number of frames when the last caller was guessed.
    last: Option<usize>,
    /// Number of frames up to the first guess of those that nothing has confirmed.
    unconfirmed: Option<usize>,
}

impl Guesses {
    /// Adds a guess of the caller of the last frame.
    pub(super) fn add(&mut self, frames: usize) {
        self.last = Some(frames);
    }

    /// Notes that the code of the last frame could be read before its caller is guessed.
    pub(super) fn doubt_if_repeated(&mut self, frames: usize) {
        let before = self.last.and_then(|last| last.checked_add(1));
        if before == Some(frames) {
            self.unconfirmed.get_or_insert(frames);
        }
    }

    /// Confirms the guesses if the caller of the last frame was not guessed.
    pub(super) fn end_step(&mut self, frames: usize) {
        if self.last != Some(frames) {
            self.unconfirmed = None;
        }
    }
}

impl Walk<'_> {
    /// Drops the frames of guesses that nothing has confirmed where rbp led nowhere.
    pub(super) fn drop_unconfirmed(&mut self, truncation: Option<Truncation>) {
        let is_nowhere = truncation == Some(Truncation::UnwindFailed);
        if let Some(frames) = self.guesses.unconfirmed
            && is_nowhere
        {
            self.leaf_first.truncate(frames);
            let addresses = &mut self.unwinder.addresses;
            addresses.truncate(frames.saturating_sub(self.first_user));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_in_a_row_are_unconfirmed() {
        let mut guesses = Guesses::default();
        let mut step = |frames, is_guess, is_readable| {
            if is_readable {
                guesses.doubt_if_repeated(frames);
            }
            if is_guess {
                guesses.add(frames);
            }
            guesses.end_step(frames);
            guesses.unconfirmed
        };
        assert_eq!(step(1, true, true), None);
        assert_eq!(step(2, true, true), Some(2));
        assert_eq!(step(3, true, true), Some(2));
        assert_eq!(step(4, false, false), None);
        assert_eq!(step(5, true, true), None);
        assert_eq!(step(6, false, false), None);
        assert_eq!(step(7, true, false), None);
        assert_eq!(step(8, true, false), None);
        assert_eq!(step(9, true, true), Some(9));
    }
}
