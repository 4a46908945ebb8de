//! Exceptions that a process threw.

use super::stack_methods::EventMethods;
use super::tally::Tally;
use super::type_names::{TypeId, TypeNames};
use crate::bytes::Bytes;
use crate::trace::RuntimeEvent;

/// Maximum number of different types and methods of a process.
const MAX_ROWS: usize = 1 << 11;

/// The exceptions of a process.
#[derive(Debug)]
pub(crate) struct Exceptions {
    /// Number of exceptions by type, if it is known, and by the methods that threw it.
    pub(crate) rows: Tally<(Option<TypeId>, EventMethods), u64>,
    /// Number of all.
    pub(crate) count: u64,
}

impl Default for Exceptions {
    fn default() -> Self {
        Self {
            rows: Tally::new(MAX_ROWS),
            count: 0,
        }
    }
}

impl Exceptions {
    /// Takes an `ExceptionThrown` event. It starts with the name of the type.
    pub(super) fn take(
        &mut self,
        event: &RuntimeEvent,
        methods: EventMethods,
        types: &mut TypeNames,
    ) {
        let kind = types.read(&mut Bytes(&event.payload));
        self.count += 1;
        *self.rows.row((kind, methods)) += 1;
    }
}
