//! The beginning of a stream: how it is framed, and what it says of itself.

use std::io::Read;

use super::block::{self, BlockKind, Framing};
use super::error::{NettraceError, NettraceErrorKind};
use super::feed::Feed;
use super::trace_info::TraceInfo;

/// The object stream that versions 4 and 5 are; its length comes before.
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
        return Err(feed.error(NettraceErrorKind::Damaged(
            "no object `Trace` at the beginning",
        )));
    };
    let offset = feed.offset();
    let mut payload = Vec::new();
    feed.block(TraceInfo::OBJECT_BYTES, &mut payload)?;
    block::end_object(feed)?;
    let info = TraceInfo::parse_object(version, &payload);
    info.filter(|_| version >= 4)
        .ok_or_else(|| beginning_damaged(offset))
}

fn trace_block<R: Read>(feed: &mut Feed<R>) -> Result<TraceInfo, NettraceError> {
    let version = feed.u32()?;
    if version != 6 {
        return Err(feed.error(NettraceErrorKind::Version(version)));
    }
    let _minor = feed.u32()?;
    let Some((BlockKind::Trace, size)) = block::begin(feed, Framing::Blocks)? else {
        return Err(feed.error(NettraceErrorKind::Damaged(
            "no block `Trace` at the beginning",
        )));
    };
    let offset = feed.offset();
    let mut payload = Vec::new();
    feed.block(size, &mut payload)?;
    TraceInfo::parse_block(version, &payload).ok_or_else(|| beginning_damaged(offset))
}

fn beginning_damaged(offset: u64) -> NettraceError {
    NettraceError {
        offset,
        problem: NettraceErrorKind::Damaged("what the stream says of itself"),
    }
}
