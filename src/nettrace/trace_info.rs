//! The header of a trace.

use crate::bytes::Bytes;
use crate::ids::Nanos;

/// Limit on the key-value pairs read from a version 6 stream.
const MAX_PAIRS: u32 = 1024;
/// Limit on the keys and values that are kept, in bytes.
const MAX_PAIR_BYTES: usize = 64 << 10;

/// Properties of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceInfo {
    /// Version of the format: 4 to 6.
    pub version: u32,
    /// Start in UTC: year, month, day of the week, day, hour, minute, second, millisecond.
    pub start_time: [u16; 8],
    /// Start in ticks.
    pub start_ticks: u64,
    /// Frequency of ticks. On Linux 10⁹: ticks are nanoseconds of `CLOCK_MONOTONIC`.
    pub ticks_per_second: u64,
    /// Size of an address in a stack: 4 or 8.
    pub pointer_bytes: u8,
    /// The process id in the pid namespace of the process itself.
    pub process: Option<u32>,
    /// Number of CPUs; versions 4 and 5 only.
    pub cpus: Option<u32>,
    /// Time between two samples of a thread by the runtime, in nanoseconds; versions 4 and 5 only.
    pub sample_period_ns: Option<u32>,
    /// Other keys and values of version 6, such as `HardwareThreadCount`.
    pub properties: Vec<(String, String)>,
}

impl TraceInfo {
    /// Size of the trace object in versions 4 and 5.
    pub(super) const OBJECT_BYTES: u32 = 48;

    pub(super) fn parse_object(version: u32, payload: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(payload);
        let mut info = Self::parse_common(version, &mut bytes)?;
        info.process = Some(bytes.u32()?);
        info.cpus = bytes.u32();
        info.sample_period_ns = bytes.u32();
        Some(info)
    }

    pub(super) fn parse_block(version: u32, payload: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(payload);
        let mut info = Self::parse_common(version, &mut bytes)?;
        let mut left = MAX_PAIR_BYTES;
        for _ in 0..bytes.u32()?.min(MAX_PAIRS) {
            let (key, value) = (string(&mut bytes)?, string(&mut bytes)?);
            let [key, value] = [key, value].map(|text| String::from_utf8_lossy(text).into_owned());
            if key == "ProcessId" {
                info.process = value.parse().ok();
            } else if let Some(rest) = left.checked_sub(key.len() + value.len()) {
                left = rest;
                info.properties.push((key, value));
            }
        }
        Some(info)
    }

    fn parse_common(version: u32, bytes: &mut Bytes<'_>) -> Option<Self> {
        let mut start_time = [0; 8];
        for part in &mut start_time {
            *part = bytes.u16()?;
        }
        Some(Self {
            version,
            start_time,
            start_ticks: bytes.u64()?,
            ticks_per_second: bytes.u64().filter(|&ticks| ticks > 0)?,
            pointer_bytes: match bytes.u32()? {
                4 => 4,
                8 => 8,
                _ => return None,
            },
            process: None,
            cpus: None,
            sample_period_ns: None,
            properties: Vec::new(),
        })
    }

    /// Converts ticks to nanoseconds. Ticks are signed in the format; negative ones are 0.
    #[must_use]
    pub fn nanos(&self, ticks: u64) -> Nanos {
        let ticks = u64::try_from(ticks.cast_signed()).unwrap_or(0);
        let nanos = u128::from(ticks) * 1_000_000_000 / u128::from(self.ticks_per_second);
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Converts nanoseconds to ticks.
    #[must_use]
    pub fn ticks(&self, time: Nanos) -> u64 {
        let ticks = u128::from(time.0) * u128::from(self.ticks_per_second) / 1_000_000_000;
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }
}

/// Reads a string of version 6: its length, then UTF-8.
pub(super) fn string<'a>(bytes: &mut Bytes<'a>) -> Option<&'a [u8]> {
    let length = bytes.varuint32()?;
    bytes.take(length as usize)
}
