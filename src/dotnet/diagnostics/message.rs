//! Encoding of commands and replies.
//!
//! ```text
//! magic[14] | u16 size, including these 20 bytes | u8 set | u8 command | u16 0 | payload
//! string    u32 count of UTF-16 units including the NUL | units | NUL
//! ```

use super::error::DiagnosticsError;
use crate::bytes::{Bytes, utf16};

const MAGIC: [u8; 14] = *b"DOTNET_IPC_V1\0";
pub(super) const HEADER_BYTES: usize = 20;
const EVENT_PIPE: u8 = 2;
const PROCESS: u8 = 4;
const SERVER: u8 = 0xff;
const OK: u8 = 0;
const ERROR: u8 = 0xff;
/// Event format: nettrace.
const NETTRACE: u32 = 1;

/// A requested provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// The provider's name.
    pub name: String,
    /// The keywords of the requested events.
    pub keywords: u64,
    /// The highest level of verbosity: 0 (always) to 5 (verbose).
    pub level: u32,
    /// Arguments of the provider as `KEY=VALUE;KEY=VALUE`. Usually empty.
    pub arguments: String,
    /// Events to exclude.
    pub excluded: Excluded,
}

/// Events to exclude: by a filter from .NET 10 on; .NET 8 and 9 get a second session
/// ([`SessionRequest::split_excluded`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Excluded {
    /// Ids of the events.
    pub ids: Vec<u32>,
    /// Keywords that move to the second session. Their other events need no stack.
    pub keywords: u64,
    /// Level of the second session.
    pub level: u32,
}

/// Rundown keyword of the garbage collector's settings.
///
/// A rundown with any keyword also contains the runtime's version and its command line.
pub const GC_SETTINGS: u64 = 1;

/// Buffer limit of a session with few events, in MiB.
const FEW_EVENTS_MIB: u32 = 16;

/// The parameters of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRequest {
    /// Limit of the runtime's event buffer in MiB. The runtime drops events beyond the limit.
    pub buffer_mib: u32,
    /// Keywords of the rundown at the end of the session. Before .NET 9 a session has a complete
    /// rundown or none. It has none for [`GC_SETTINGS`] alone, because a complete one is too large.
    pub rundown_keywords: u64,
    /// Whether events have the stack of their thread. Before .NET 9 they always have.
    pub stacks: bool,
    /// The requested providers.
    pub providers: Vec<Provider>,
}

impl SessionRequest {
    /// Splits the request for a runtime that knows only levels. Returns the second request: events
    /// with the keywords of excluded events, at the level below these. `None` if nothing is excluded.
    pub fn split_excluded(&mut self) -> Option<Self> {
        let mut second = Self {
            buffer_mib: self.buffer_mib.min(FEW_EVENTS_MIB),
            rundown_keywords: 0,
            stacks: false,
            providers: Vec::new(),
        };
        for provider in &mut self.providers {
            let Excluded {
                keywords, level, ..
            } = std::mem::take(&mut provider.excluded);
            if keywords != 0 {
                provider.keywords &= !keywords;
                second.providers.push(Provider {
                    keywords,
                    level,
                    ..provider.clone()
                });
            }
        }
        (!second.providers.is_empty()).then_some(second)
    }
}

/// A command. Only the functions of this type create commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Command {
    set: u8,
    id: u8,
    payload: Vec<u8>,
}

impl Command {
    /// Requests information about the process (`ProcessInfo3`, `2` or `1`).
    pub(super) fn process_info(version: InfoVersion) -> Self {
        let id = match version {
            InfoVersion::One => 0,
            InfoVersion::Two => 4,
            InfoVersion::Three => 8,
        };
        Self {
            set: PROCESS,
            id,
            payload: Vec::new(),
        }
    }

    /// Starts a session (`CollectTracing5`, `4`, `3` or `2`).
    pub(super) fn collect_tracing(version: CollectVersion, request: &SessionRequest) -> Self {
        let mut payload = Vec::new();
        if version == CollectVersion::Five {
            // Output type: the runtime streams the events over this connection.
            payload.extend(0_u32.to_le_bytes());
        }
        payload.extend(request.buffer_mib.to_le_bytes());
        payload.extend(NETTRACE.to_le_bytes());
        match version {
            CollectVersion::Two | CollectVersion::Three => {
                payload.push(u8::from(request.rundown_keywords & !GC_SETTINGS != 0));
            }
            _ => payload.extend(request.rundown_keywords.to_le_bytes()),
        }
        if version != CollectVersion::Two {
            payload.push(u8::from(request.stacks));
        }
        payload.extend((request.providers.len() as u32).to_le_bytes());
        for provider in &request.providers {
            payload.extend(provider.keywords.to_le_bytes());
            payload.extend(provider.level.to_le_bytes());
            put_string(&mut payload, &provider.name);
            match provider.arguments.as_str() {
                "" => payload.extend(0_u32.to_le_bytes()),
                arguments => put_string(&mut payload, arguments),
            }
            if version == CollectVersion::Five {
                // Event filter: a list of disabled ids follows.
                payload.push(0);
                let ids = &provider.excluded.ids;
                payload.extend((ids.len() as u32).to_le_bytes());
                payload.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
            }
        }
        Self {
            set: EVENT_PIPE,
            id: match version {
                CollectVersion::Two => 3,
                CollectVersion::Three => 4,
                CollectVersion::Four => 5,
                CollectVersion::Five => 6,
            },
            payload,
        }
    }

    /// Stops a session.
    pub(super) fn stop_tracing(session: u64) -> Self {
        Self {
            set: EVENT_PIPE,
            id: 1,
            payload: session.to_le_bytes().into(),
        }
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>, DiagnosticsError> {
        let size = HEADER_BYTES + self.payload.len();
        let size_field = u16::try_from(size).map_err(|_| DiagnosticsError::TooLong(size))?;
        let mut bytes = Vec::with_capacity(size);
        bytes.extend(MAGIC);
        bytes.extend(size_field.to_le_bytes());
        bytes.extend([self.set, self.id, 0, 0]);
        bytes.extend(&self.payload);
        Ok(bytes)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InfoVersion {
    One,
    Two,
    Three,
}

/// Version of the start command. .NET Core 3.1 has `Two`, 9 adds `Three` and `Four`, 10 `Five`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CollectVersion {
    Two,
    Three,
    Four,
    Five,
}

/// The header of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplyHeader {
    pub(super) payload_bytes: usize,
    is_error: bool,
}

impl ReplyHeader {
    pub(super) fn parse(header: &[u8; HEADER_BYTES]) -> Result<Self, DiagnosticsError> {
        let mut bytes = Bytes(header);
        let magic = bytes.array();
        let size = usize::from(bytes.u16().unwrap_or(0));
        let (set, id) = (bytes.u8(), bytes.u8());
        if magic != Some(MAGIC) {
            return Err(DiagnosticsError::Malformed("wrong magic"));
        }
        let payload_bytes = size
            .checked_sub(HEADER_BYTES)
            .ok_or(DiagnosticsError::Malformed("size smaller than a header"))?;
        match (set, id) {
            (Some(SERVER), Some(id @ (OK | ERROR))) => Ok(Self {
                payload_bytes,
                is_error: id == ERROR,
            }),
            _ => Err(DiagnosticsError::Malformed("not a reply")),
        }
    }

    /// Returns the payload, or the error that it contains.
    pub(super) fn check(self, payload: Vec<u8>) -> Result<Vec<u8>, DiagnosticsError> {
        if !self.is_error {
            return Ok(payload);
        }
        let code = Bytes(&payload).u32();
        Err(code.map_or(
            DiagnosticsError::Malformed("error without a code"),
            DiagnosticsError::Refused,
        ))
    }
}

/// Returns the payload of a complete reply.
///
/// # Errors
/// The reply is malformed, or contains an error.
pub fn read_reply(reply: &[u8]) -> Result<Vec<u8>, DiagnosticsError> {
    let (header, payload) = reply
        .split_first_chunk()
        .ok_or(DiagnosticsError::Malformed("truncated header"))?;
    let header = ReplyHeader::parse(header)?;
    let payload = payload
        .get(..header.payload_bytes)
        .ok_or(DiagnosticsError::Malformed("truncated reply"))?;
    header.check(payload.to_vec())
}

fn put_string(payload: &mut Vec<u8>, string: &str) {
    let units = string.encode_utf16().count() as u32 + 1;
    payload.extend(units.to_le_bytes());
    payload.extend(string.encode_utf16().chain([0]).flat_map(u16::to_le_bytes));
}

/// Reads a string of a reply, without its NUL.
pub(super) fn string(bytes: &mut Bytes<'_>) -> Option<String> {
    let units = bytes.u32()? as usize;
    let string = utf16(bytes.take(units.checked_mul(2)?)?);
    Some(string.trim_end_matches('\0').to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::error::UNKNOWN_COMMAND;
    use super::*;

    fn request() -> SessionRequest {
        SessionRequest {
            buffer_mib: 16,
            rundown_keywords: 0x118,
            stacks: false,
            providers: vec![Provider {
                name: "A".into(),
                keywords: 0x18,
                level: 4,
                arguments: String::new(),
                excluded: Excluded::default(),
            }],
        }
    }

    /// The bytes follow the specification of the protocol.
    #[test]
    fn encodes_all_versions_of_the_start_command() {
        let provider = [
            &[0x18, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0][..],
            &[2, 0, 0, 0, b'A', 0, 0, 0, 0, 0, 0, 0],
        ]
        .concat();
        let start = [16, 0, 0, 0, 1, 0, 0, 0];
        let keywords = [0x18, 1, 0, 0, 0, 0, 0, 0];
        let count = [1, 0, 0, 0];
        let payload = |version| Command::collect_tracing(version, &request()).payload;
        let two = [&start[..], &[1], &count, &provider].concat();
        assert_eq!(payload(CollectVersion::Two), two);
        let mut with_arguments = request();
        with_arguments.providers[0].arguments = "B".into();
        let with_arguments = Command::collect_tracing(CollectVersion::Two, &with_arguments).payload;
        assert_eq!(with_arguments[two.len() - 4..], [2, 0, 0, 0, b'B', 0, 0, 0]);
        let mut settings = request();
        settings.rundown_keywords = GC_SETTINGS;
        let settings = Command::collect_tracing(CollectVersion::Two, &settings).payload;
        assert_eq!(settings[start.len()], 0);
        let three = [&start[..], &[1, 0], &count, &provider].concat();
        assert_eq!(payload(CollectVersion::Three), three);
        let four = [&start[..], &keywords, &[0], &count, &provider].concat();
        assert_eq!(payload(CollectVersion::Four), four);
        let five = [&[0; 4][..], &four, &[0; 5]].concat();
        assert_eq!(payload(CollectVersion::Five), five);
        let mut filtered = request();
        filtered.providers[0].excluded.ids = vec![10, 0x102];
        let filtered = |version| Command::collect_tracing(version, &filtered).payload;
        assert_eq!(filtered(CollectVersion::Four), four);
        let filter = [0, 2, 0, 0, 0, 10, 0, 0, 0, 2, 1, 0, 0];
        let five = [&[0; 4][..], &four, &filter].concat();
        assert_eq!(filtered(CollectVersion::Five), five);
    }

    #[test]
    fn events_that_an_old_runtime_cannot_exclude_are_in_a_second_request() {
        assert_eq!(request().split_excluded(), None);
        let mut first = request();
        first.stacks = true;
        first.providers[0].level = 5;
        first.providers[0].excluded = Excluded {
            ids: vec![10],
            keywords: 0x10,
            level: 4,
        };
        let second = first.split_excluded().unwrap();
        let of = |request: &SessionRequest| {
            let [provider] = &request.providers[..] else {
                panic!("{request:?}");
            };
            assert_eq!(provider.excluded, Excluded::default());
            let rundown = request.rundown_keywords;
            (provider.keywords, provider.level, request.stacks, rundown)
        };
        assert_eq!(of(&first), (8, 5, true, 0x118));
        assert_eq!(of(&second), (0x10, 4, false, 0));
    }

    #[test]
    fn encodes_size_and_rejects_long_commands() {
        let bytes = Command::stop_tracing(0x0102).encode().unwrap();
        assert_eq!(&bytes[..20], b"DOTNET_IPC_V1\0\x1c\0\x02\x01\0\0");
        assert_eq!(&bytes[20..], [2, 1, 0, 0, 0, 0, 0, 0]);
        let mut long = request();
        long.providers[0].name = "x".repeat(40_000);
        let long = Command::collect_tracing(CollectVersion::Two, &long).encode();
        assert!(matches!(long, Err(DiagnosticsError::TooLong(80_000..))));
    }

    #[test]
    fn rejects_malformed_replies() {
        let reply = |set, id, size: u16, payload: &[u8]| {
            let mut bytes = MAGIC.to_vec();
            bytes.extend(size.to_le_bytes());
            bytes.extend([set, id, 0, 0]);
            bytes.extend(payload);
            read_reply(&bytes)
        };
        assert_eq!(reply(0xff, 0, 22, &[1, 2]).unwrap(), [1, 2]);
        let unknown = reply(0xff, 0xff, 24, &UNKNOWN_COMMAND.to_le_bytes()).unwrap_err();
        assert!(unknown.is_unknown_command(), "{unknown}");
        for bad in [
            reply(0xff, 0, 19, &[]),
            reply(0xff, 0, 30, &[]),
            reply(0xff, 1, 20, &[]),
            reply(4, 0, 20, &[]),
            reply(0xff, 0xff, 21, &[0]),
            read_reply(b"HTTP/1.1 400 Bad Request"),
        ] {
            assert!(
                matches!(bad, Err(DiagnosticsError::Malformed(_))),
                "{bad:?}"
            );
        }
    }
}
