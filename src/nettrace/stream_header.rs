//! The header of a stream: its framing and the properties of the trace.

use std::io::Read;

use super::block::{self, BlockKind, Framing};
use super::error::{NettraceError, NettraceErrorKind};
use super::feed::Feed;
use super::trace_info::TraceInfo;

/// Name of the object stream of versions 4 and 5. Its length precedes it.
const SERIALIZER: [u8; 20] = *b"!FastSerialization.1";

pub(super) fn read<R: Read>(feed: &mut Feed<R>) -> Result<(Framing, TraceInfo), NettraceError> {
    feed.expect(*b"Nettrace", NettraceErrorKind::NotNettrace)?;
    Ok(match feed.u32()? {
        0 => (Framing::Blocks, trace_block(feed)?),
        20 => (Framing::Objects, trace_object(feed)?),
        _ => return Err(feed.error(NettraceErrorKind::NotNettrace)),
    })
}

fn trace_object<R: Read>(feed: &mut Feed<R>) -> Result<TraceInfo, NettraceError> {
    feed.expect(SERIALIZER, NettraceErrorKind::NotNettrace)?;
    let Some((BlockKind::Trace, version)) = block::begin_object(feed)? else {
        return Err(feed.error(NettraceErrorKind::Corrupt(
            "header: the first object is not `Trace`",
        )));
    };
    let offset = feed.offset();
    let mut payload = Vec::new();
    feed.block(TraceInfo::OBJECT_BYTES, &mut payload)?;
    block::end_object(feed)?;
    let info = TraceInfo::parse_object(version, &payload);
    info.filter(|_| version >= 4)
        .ok_or_else(|| corrupt_trace_info(offset))
}

fn trace_block<R: Read>(feed: &mut Feed<R>) -> Result<TraceInfo, NettraceError> {
    let version = feed.u32()?;
    if version != 6 {
        return Err(feed.error(NettraceErrorKind::Version(version)));
    }
    let _minor = feed.u32()?;
    let Some((BlockKind::Trace, size)) = block::read_header(feed, Framing::Blocks)? else {
        return Err(feed.error(NettraceErrorKind::Corrupt(
            "header: the first block is not a trace block",
        )));
    };
    let offset = feed.offset();
    let mut payload = Vec::new();
    feed.block(size, &mut payload)?;
    TraceInfo::parse_block(version, &payload).ok_or_else(|| corrupt_trace_info(offset))
}

fn corrupt_trace_info(offset: u64) -> NettraceError {
    NettraceError {
        offset,
        kind: NettraceErrorKind::Corrupt("trace block"),
    }
}
