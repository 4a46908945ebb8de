//! Which events a list shows.

use std::convert::Infallible;
use std::str::FromStr;

use super::fields;
use super::list::Row;
use crate::nettrace::Value;
use crate::selection::Times;

/// Events to print. By default all.
#[derive(Clone, Debug, Default)]
pub struct EventSelection {
    /// An event must match all of them.
    pub filters: Vec<EventFilter>,
    /// Their part of the time.
    pub times: Times,
    /// Maximum number of events, or of rows of a table with one for each collection or compilation.
    pub top: Option<usize>,
}

impl EventSelection {
    pub(super) fn has(&self, row: &Row<'_>) -> bool {
        self.filters.iter().all(|filter| filter.matches(row))
    }
}

/// A condition for an event, in any case.
#[derive(Clone, Debug)]
pub enum EventFilter {
    /// Part of `Provider/Name`.
    Name(String),
    /// A field and its value. Text may be a part, flags may be one of several.
    Field {
        /// Name of the field.
        name: String,
        /// Value as printed.
        value: String,
    },
}

impl FromStr for EventFilter {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let text = text.to_lowercase();
        Ok(match text.split_once('=') {
            Some((name, value)) => Self::Field {
                name: name.into(),
                value: value.trim_matches('"').into(),
            },
            None => Self::Name(text),
        })
    }
}

impl EventFilter {
    fn matches(&self, row: &Row<'_>) -> bool {
        match self {
            Self::Name(part) => {
                let name = format!("{}/{}", row.event.metadata.provider, row.name);
                name.to_lowercase().contains(part)
            }
            Self::Field { name, value } => {
                let is_named = |field: &str| field.to_lowercase() == *name;
                let mut values = row.values.iter().filter(|(field, _)| is_named(field));
                let mut activities = row.activities();
                values.any(|(field, own)| match own {
                    Value::Text(text) => text.to_lowercase().contains(value),
                    own => {
                        let own = fields::format(row.runtime_name(), field, own.clone());
                        let own = own.to_lowercase();
                        own == *value || own.split('|').any(|flag| flag == value)
                    }
                }) || activities.any(|(field, id)| is_named(field) && id.to_string() == *value)
            }
        }
    }
}
