//! Stacks with callers that are not certain.

use serde::{Deserialize, Serialize};

/// How a caller was found that neither unwind information nor a checked analysis describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doubt {
    /// By an analysis that could not be checked. A call precedes the return address.
    Likely,
    /// By the frame pointer, in code that may keep none.
    Guessed,
}

/// Stacks with doubtful callers in one file, or in the JIT code of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoubtfulCode {
    /// Name of the file, or of the kind of code.
    pub name: String,
    /// Number of stacks with a likely caller.
    pub likely: u64,
    /// Number of stacks with a guessed caller.
    pub guessed: u64,
}

/// All stacks with doubtful callers. A stack counts once, by the least certain of its callers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doubts {
    /// Number of stacks with a likely caller.
    pub likely: u64,
    /// Number of stacks with a guessed caller.
    pub guessed: u64,
    /// The first of them by code: at most [`Doubts::MAX_CODE`].
    pub by_code: Vec<DoubtfulCode>,
}

impl Doubts {
    /// Maximum number of elements of `by_code`.
    pub const MAX_CODE: usize = 64;

    /// Counts a stack. `at` is the index of the code.
    pub fn count(&mut self, doubt: Doubt, at: Option<usize>) {
        let code = at.and_then(|at| self.by_code.get_mut(at));
        let mut unlisted = 0;
        let (all, of_code) = match doubt {
            Doubt::Likely => (&mut self.likely, code.map(|code| &mut code.likely)),
            Doubt::Guessed => (&mut self.guessed, code.map(|code| &mut code.guessed)),
        };
        *all += 1;
        *of_code.unwrap_or(&mut unlisted) += 1;
    }

    /// Adds code, and returns its index. Returns `None` if there are too many.
    pub fn add_code(&mut self, name: String) -> Option<usize> {
        let at = self.by_code.len();
        (at < Self::MAX_CODE).then(|| {
            let code = DoubtfulCode {
                name,
                ..DoubtfulCode::default()
            };
            self.by_code.push(code);
            at
        })
    }
}
