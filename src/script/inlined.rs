//! Functions that were inlined: a thread for each file has its debug information open and answers.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use crate::machine::CodeFile;
use crate::symbolize;

/// Names, innermost first, or why they are not known.
type InlineReply = Result<Vec<String>, String>;

/// Who knows what was inlined in a file; ends when nobody asks any more.
pub(super) struct Inlined {
    asked: Sender<u64>,
    answers: Receiver<InlineReply>,
}

impl Inlined {
    pub(super) fn of(file: &Arc<CodeFile>) -> Self {
        let file = Arc::clone(file);
        let (asked, to_answer) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        thread::spawn(move || {
            symbolize::with_inlined(&file, |inlined| {
                let mut answered = to_answer
                    .iter()
                    .map(|address| answer.send(inlined(address)));
                answered.all(|sent| sent.is_ok());
            });
        });
        Self { asked, answers }
    }

    /// The functions inlined at an address; none if there is no debug information.
    pub(super) fn at(&self, address: u64) -> InlineReply {
        let asked = self.asked.send(address).ok();
        let answer = asked.and_then(|()| self.answers.recv().ok());
        answer.unwrap_or_else(|| Ok(Vec::new()))
    }
}
