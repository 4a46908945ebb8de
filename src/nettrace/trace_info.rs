//! What a stream says of itself at its beginning.

use crate::bytes::Bytes;
use crate::ids::Nanos;

/// Most notes of a version 6 stream that are looked at.
const MAX_NOTES: u32 = 1024;

/// The trace as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceInfo {
    /// Version of the format: 4 to 6.
    pub version: u32,
    /// When it began, UTC: year, month, day of the week, day, hour, minute, second, millisecond.
    pub began: [u16; 8],
    /// The same moment in ticks.
    pub began_ticks: u64,
    /// On Linux 10⁹: ticks are nanoseconds of `CLOCK_MONOTONIC`.
    pub ticks_per_second: u64,
    /// Bytes of an address in a stack: 4 or 8.
    pub pointer_bytes: u8,
    /// The process as it numbers itself, in its own pid namespace.
    pub process: Option<u32>,
}

impl TraceInfo {
    /// Size of the object in versions 4 and 5.
    pub(super) const OBJECT_BYTES: u32 = 48;

    pub(super) fn parse_object(version: u32, payload: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(payload);
        let mut info = Self::parse_common(version, &mut bytes)?;
        info.process = Some(bytes.u32()?);
        Some(info)
    }

    pub(super) fn parse_block(version: u32, payload: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(payload);
        let mut info = Self::parse_common(version, &mut bytes)?;
        for _ in 0..bytes.u32()?.min(MAX_NOTES) {
            let (key, value) = (text(&mut bytes)?, text(&mut bytes)?);
            if key == b"ProcessId" {
                info.process = std::str::from_utf8(value).ok().and_then(|v| v.parse().ok());
            }
        }
        Some(info)
    }

    fn parse_common(version: u32, bytes: &mut Bytes<'_>) -> Option<Self> {
        let mut began = [0; 8];
        for part in &mut began {
            *part = bytes.u16()?;
        }
        Some(Self {
            version,
            began,
            began_ticks: bytes.u64()?,
            ticks_per_second: bytes.u64().filter(|&ticks| ticks > 0)?,
            pointer_bytes: match bytes.u32()? {
                4 => 4,
                8 => 8,
                _ => return None,
            },
            process: None,
        })
    }

    /// Ticks as nanoseconds.
    #[must_use]
    pub fn nanos(&self, ticks: u64) -> Nanos {
        let nanos = u128::from(ticks) * 1_000_000_000 / u128::from(self.ticks_per_second);
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// A text of version 6: its length, and UTF-8.
pub(super) fn text<'a>(bytes: &mut Bytes<'a>) -> Option<&'a [u8]> {
    let length = bytes.varuint32()?;
    bytes.take(length as usize)
}
