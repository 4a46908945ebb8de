//! Commands and replies as bytes.
//!
//! ```text
//! magic[14] | u16 size, these 20 bytes included | u8 set | u8 command | u16 0 | payload
//! text      u32 units of UTF-16, the NUL included | units | NUL
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
/// The format of the events: nettrace.
const NETTRACE: u32 = 1;

/// A provider whose events are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// Its name.
    pub name: String,
    /// The groups of events.
    pub keywords: u64,
    /// The most talkative events: 0 (always) to 5 (verbose).
    pub level: u32,
    /// What it is told besides, as `KEY=VALUE;KEY=VALUE`; mostly empty.
    pub arguments: String,
}

/// Of the rundown: how the garbage collector is set up. What the runtime is, and its command line, comes with any group.
pub const GC_SETTINGS: u64 = 1;

/// What a session is to deliver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRequest {
    /// MiB that the runtime may hold back; it drops what goes beyond.
    pub buffer_mib: u32,
    /// Groups of events of the rundown at the end, in which the runtime tells all it has. Runtimes before 9 know all or
    /// none, which is too much for [`GC_SETTINGS`].
    pub rundown_keywords: u64,
    /// Whether events bring the stack of their thread. Runtimes before 9 always do.
    pub stacks: bool,
    /// Whose events.
    pub providers: Vec<Provider>,
}

/// A command. Only the functions here make one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Command {
    set: u8,
    id: u8,
    payload: Vec<u8>,
}

impl Command {
    /// Who are you, in the forms `ProcessInfo3`, `2` and `1`.
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

    /// Begin a session, in the forms `CollectTracing5`, `4`, `3` and `2`.
    pub(super) fn collect_tracing(version: CollectVersion, request: &SessionRequest) -> Self {
        let mut payload = Vec::new();
        if version == CollectVersion::Five {
            // The events come on this connection.
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
            put_text(&mut payload, &provider.name);
            match provider.arguments.as_str() {
                "" => payload.extend(0_u32.to_le_bytes()),
                arguments => put_text(&mut payload, arguments),
            }
            if version == CollectVersion::Five {
                // All events but those of an empty list.
                payload.push(0);
                payload.extend(0_u32.to_le_bytes());
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

    /// End a session.
    pub(super) fn stop_tracing(session: u64) -> Self {
        Self {
            set: EVENT_PIPE,
            id: 1,
            payload: session.to_le_bytes().into(),
        }
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>, DiagnosticsError> {
        let size = HEADER_BYTES + self.payload.len();
        let announced = u16::try_from(size).map_err(|_| DiagnosticsError::TooLong(size))?;
        let mut bytes = Vec::with_capacity(size);
        bytes.extend(MAGIC);
        bytes.extend(announced.to_le_bytes());
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

/// Two is of 3.1, Three and Four of 9, Five of 10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CollectVersion {
    Two,
    Three,
    Four,
    Five,
}

/// The beginning of a reply.
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
            return Err(DiagnosticsError::Malformed("another protocol"));
        }
        let payload_bytes = size
            .checked_sub(HEADER_BYTES)
            .ok_or(DiagnosticsError::Malformed("a reply without a header"))?;
        match (set, id) {
            (Some(SERVER), Some(id @ (OK | ERROR))) => Ok(Self {
                payload_bytes,
                is_error: id == ERROR,
            }),
            _ => Err(DiagnosticsError::Malformed("not a reply")),
        }
    }

    /// The payload, unless it is that of an error.
    pub(super) fn check(self, payload: Vec<u8>) -> Result<Vec<u8>, DiagnosticsError> {
        if !self.is_error {
            return Ok(payload);
        }
        let code = Bytes(&payload).u32();
        Err(code.map_or(
            DiagnosticsError::Malformed("an error without a number"),
            DiagnosticsError::Refused,
        ))
    }
}

/// The payload of a whole reply.
///
/// # Errors
/// It is none, or that of an error.
pub fn read_reply(reply: &[u8]) -> Result<Vec<u8>, DiagnosticsError> {
    let (header, payload) = reply
        .split_first_chunk()
        .ok_or(DiagnosticsError::Malformed("a reply without a header"))?;
    let header = ReplyHeader::parse(header)?;
    let payload = payload
        .get(..header.payload_bytes)
        .ok_or(DiagnosticsError::Malformed("a reply that is cut off"))?;
    header.check(payload.to_vec())
}

fn put_text(payload: &mut Vec<u8>, text: &str) {
    let units = text.encode_utf16().count() as u32 + 1;
    payload.extend(units.to_le_bytes());
    payload.extend(text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes));
}

/// A text of a reply, without its NUL.
pub(super) fn text(bytes: &mut Bytes<'_>) -> Option<String> {
    let units = bytes.u32()? as usize;
    let text = utf16(bytes.take(units.checked_mul(2)?)?);
    Some(text.trim_end_matches('\0').to_owned())
}

#[cfg(test)]
mod tests {
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
            }],
        }
    }

    /// Byte by byte as the protocol states them.
    #[test]
    fn sessions_in_all_forms() {
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
        let mut told = request();
        told.providers[0].arguments = "B".into();
        let told = Command::collect_tracing(CollectVersion::Two, &told).payload;
        assert_eq!(told[two.len() - 4..], [2, 0, 0, 0, b'B', 0, 0, 0]);
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
    }

    #[test]
    fn a_command_has_its_size() {
        let bytes = Command::stop_tracing(0x0102).encode().unwrap();
        assert_eq!(&bytes[..20], b"DOTNET_IPC_V1\0\x1c\0\x02\x01\0\0");
        assert_eq!(&bytes[20..], [2, 1, 0, 0, 0, 0, 0, 0]);
        let mut long = request();
        long.providers[0].name = "x".repeat(40_000);
        let long = Command::collect_tracing(CollectVersion::Two, &long).encode();
        assert!(matches!(long, Err(DiagnosticsError::TooLong(80_000..))));
    }

    #[test]
    fn replies_that_are_none_are_refused() {
        let reply = |set, id, size: u16, payload: &[u8]| {
            let mut bytes = MAGIC.to_vec();
            bytes.extend(size.to_le_bytes());
            bytes.extend([set, id, 0, 0]);
            bytes.extend(payload);
            read_reply(&bytes)
        };
        assert_eq!(reply(0xff, 0, 22, &[1, 2]).unwrap(), [1, 2]);
        let unknown = reply(0xff, 0xff, 24, &UNKNOWN.to_le_bytes()).unwrap_err();
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

    const UNKNOWN: u32 = 0x8013_1385;
}
