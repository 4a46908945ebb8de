//! The spool: the temporary file on disk that holds a running capture.
//!
//! With a spool, memory does not grow with the length of a capture, and `kill -9` loses little
//! data.
//!
//! ```text
//! spool  = block*                               read up to the last whole block
//! block  = "PCS8" sequence raw_len stored_len crc stored
//!          u32 little endian each; sequence starts at 0; raw_len <= 256 KiB;
//!          stored is LZ4, or the rows themselves if stored_len = raw_len;
//!          crc (CRC-32) covers all of the block before it and `stored`
//! rows   = (kind row)*                          never split between blocks;
//!          integers are LEB128, strings have a length
//!
//! kind 1 header       JSON of [`Header`]: first row of the first block, and only there
//!      2 file         path, pid, known?, device, inode, size, mtime, build id
//!      3 process      pid, name, command line
//!      4 thread       process, tid, name
//!      5 process name process, name               a later name replaces the earlier
//!      6 thread name  thread, name
//!      7 JIT process  process, pid in its namespace, uid, start, device and inode of its root
//!                     directory, path of its jitdump
//!      8 frame        kind of address, file or process, address - address of the frame before;
//!                     kind 6 (blocked): kind of place, system call, what its descriptor is;
//!                     kind 7 (waker): kind, thread or outsider
//!      9 stack node   distance back to the parent (0: a root), distance back to the frame
//!     10 losses       the counters so far, and those of each CPU with losses or pauses
//!     11 clock        time: everything before it is in the spool
//!     12 end          time: the capture was stopped properly; last row
//!     13 method       process, start, size, name, module, tier: names later frames of this code
//!     14 ksymbol      start, size, unregistered?, name, module: names later frames of this
//!                     kernel code; unregistered: names earlier frames, if their code was not
//!                     registered before
//!     15 event code   process, address in stacks of events, time, distance back to the frame
//!     17 doubts       likely stacks; name, likely and guessed stacks of each code
//!     16 forget       no later row refers to a frame or node before this one
//!     18 process end  process, time
//!     19 outsider     pid, name: a process that is not one of the target
//!     20 results      JSON of [`Header`] with what is known at the end only: it replaces that of row 1
//!   0x80 sample       flags 1 thread, 2 CPU, 4 weight, 8 stack: the fields that differ from the
//!                     sample before; time - time of the sample before (signed), these fields
//!   0x40 blocked      the same of the time for which a thread waited, with the end as its time,
//!                     and the row before of this kind
//!   0x20 faults       the same of a sample of page faults, with their number as its weight
//!   0xc0 wake-ups     the same of a sample of wake-ups: the thread that was woken, the stack of what woke it
//! ```
//!
//! Version PCS7 has no rows of wake-ups, outsiders and results, and no frames of wakers; PCS6 also no rows of faults; PCS5 also no blocked rows and frames, and its crc does not cover the version; PCS4
//! also no row 18, PCS3 also no row 17, PCS2 also no row 16. The reader accepts all.
//!
//! Files, processes, threads, frames and nodes have ids in the order of their rows. Each row
//! precedes its first use (a frame or node may repeat, see `Recorder`). So any number of whole
//! blocks from the start of the file is a complete capture.
//!
//! A block goes to the kernel when it is full, and twice a second: `kill -9` loses at most that. A
//! crash of the system loses what the kernel had not written back yet (by default up to 30 s). No
//! `fsync` is issued, as it would make the disk's other users wait.
//!
//! The reader trusts nothing: lengths are bounded, ids are checked, and reading ends at the first
//! wrong byte. A sample weighs 100 s at most, and no thread waited for longer than the system ran. All weights
//! together fit in 64 bits ([`crate::trace::Samples`]), so that readers can add them.

mod block;
mod codec;
mod header;
mod id_remap;
mod reader;
mod row;
pub(super) mod sample;
pub(super) mod wire;
mod writer;

pub use header::Header;
pub use reader::{Ending, RawTrace, SpoolError};
pub use row::{
    EventCodeRow, FileIdentity, FileRow, JitProcessRow, KsymbolRow, MethodRow, RowError, SpoolRow,
};
pub use writer::{SpoolEnd, SpoolWriter};

/// Returns a spool of one block, with an empty header, these rows and a correct checksum.
///
/// For tests and fuzzing: an attacker could write such a file.
#[must_use]
pub fn pack_rows(rows: &[u8]) -> Vec<u8> {
    let json = serde_json::to_vec(&Header::default()).unwrap_or_default();
    let mut raw = Vec::new();
    codec::Codec::default().encode(&SpoolRow::Header(json.into()), &mut raw);
    raw.extend_from_slice(rows);
    raw.truncate(block::MAX_RAW_BYTES);
    let mut spool = Vec::new();
    block::pack(0, &raw, &mut spool);
    spool
}

#[cfg(test)]
mod tests;
