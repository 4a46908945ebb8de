//! Events about requests, from the payloads of ASP.NET Core and HttpClient.

use super::activity_path::ActivityId;
use super::path_name::path_name;
use crate::dotnet::{HOSTING, HTTP_CLIENT, TASKS};
use crate::history::fields::prefix;
use crate::nettrace::{EventMetadata, Value};
use crate::trace::RuntimeEvent;

/// Maximum length of a method and of a host, in bytes.
const MAX_METHOD_BYTES: usize = 20;
const MAX_HOST_BYTES: usize = 100;
/// Maximum number of values read of an event. Those that matter are the first ones.
const MAX_VALUES: u32 = 16;
/// Status codes from which a request has failed.
const MIN_FAILED: i64 = 400;

/// Whether the process answers a request or sends it. As a number, 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Direction {
    /// ASP.NET Core answers it.
    Incoming,
    /// HttpClient sends it.
    Outgoing,
}

/// What an event reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestEvent {
    /// A request starts: `GET /orders/{id}`, or `http://host:80/orders/{id}`.
    Start(Direction, String),
    /// It fails. It ends later.
    Failed(Direction),
    /// It ends. Whether it failed, if the event has a status code.
    Stop(Direction, bool),
    /// The thread continues for another activity.
    Switch(ActivityId),
}

/// Returns whether events of a kind are about requests.
pub(crate) fn is_about_requests(kind: &EventMetadata) -> bool {
    let name = kind.name.as_str();
    match kind.provider.as_str() {
        HOSTING => matches!(name, "RequestStart" | "RequestStop" | "UnhandledException"),
        HTTP_CLIENT => matches!(name, "RequestStart" | "RequestStop" | "RequestFailed"),
        TASKS => name == "SetActivityId",
        _ => false,
    }
}

impl RequestEvent {
    /// Reads an event that [is about requests](is_about_requests). Returns `None` if it is truncated.
    pub(super) fn read(event: &RuntimeEvent) -> Option<Self> {
        let kind = &*event.metadata;
        let direction = match kind.provider.as_str() {
            TASKS => return event.payload.first_chunk().copied().map(Self::Switch),
            HOSTING => Direction::Incoming,
            _ => Direction::Outgoing,
        };
        let fields = kind.fields.as_deref().unwrap_or_default();
        let fields = Value::parse_leading(fields, &event.payload, MAX_VALUES);
        let text = |name: &str| {
            fields.iter().find_map(|(field, value)| match value {
                Value::Text(text) if *field == name => Some(text.as_str()),
                _ => None,
            })
        };
        let number = |name: &str| {
            fields.iter().find_map(|(field, value)| match value {
                Value::Signed(number) if *field == name => Some(*number),
                _ => None,
            })
        };
        match (kind.name.as_str(), direction) {
            ("RequestStart", Direction::Incoming) => {
                let method = prefix(text("method")?, MAX_METHOD_BYTES);
                let path = path_name(text("path")?);
                Some(Self::Start(direction, format!("{method} {path}")))
            }
            ("RequestStart", Direction::Outgoing) => {
                let scheme = prefix(text("scheme")?, MAX_METHOD_BYTES);
                let host = prefix(text("host")?, MAX_HOST_BYTES);
                let path = path_name(text("pathAndQuery")?);
                let port = match (scheme, number("port")?) {
                    ("http", 80) | ("https", 443) => String::new(),
                    (_, port) => format!(":{port}"),
                };
                Some(Self::Start(
                    direction,
                    format!("{scheme}://{host}{port}{path}"),
                ))
            }
            ("RequestStop", _) => {
                // The status code is -1 if there was no answer.
                let status = number("statusCode");
                let failed = status.is_some_and(|status| !(0..MIN_FAILED).contains(&status));
                Some(Self::Stop(direction, failed))
            }
            _ => Some(Self::Failed(direction)),
        }
    }
}
