//! The spool: what a running capture has found, on the disk, so that neither its length nor its death costs anything.
//!
//! ```text
//! spool  = block*                               read from the first to the last whole one
//! block  = "PCS2" sequence raw_len stored_len crc stored
//!          u32 little endian each; sequence counts from 0; raw_len <= 256 KiB; stored is LZ4, or the rows
//!          themselves where stored_len = raw_len; crc (CRC-32) is over the three numbers and `stored`
//! rows   = (kind row)*                          never split between blocks; numbers are LEB128, texts have a length
//!
//! kind 1 header       JSON of [`Header`]: first row of the first block, and only there
//!      2 file         path, pid, known?, device, inode, size, mtime, build id
//!      3 process      pid, name, command line
//!      4 thread       process, tid, name
//!      5 process name process, name               a later name replaces the earlier
//!      6 thread name  thread, name
//!      7 JIT host     process, pid in its namespace, uid, start, device and inode of its root directory
//!      8 frame        kind of address, file or process, address - address of the frame before
//!      9 stack node   distance back to the parent (0: a root), distance back to the frame
//!     10 losses       the counters so far, and those of each CPU that lost something or was throttled
//!     11 clock        time: everything before it is in the spool
//!     12 end          time: the capture ended by itself; last row
//!     13 method       process, start, size, name, module, tier: what frames of this code are called that come later
//!     14 kernel code  start, size, gone?, name, module: what frames of this code in the kernel are called that come
//!                     later; gone: that came before, and were not told
//!   0x80 sample       flags 1 thread, 2 CPU, 4 weight, 8 stack tell what differs from the sample before;
//!                     time - time of the sample before (signed), then what differs
//! ```
//!
//! Files, processes, threads, frames and nodes are numbered in the order of their rows and defined before they are
//! used (a frame or node may be defined again, see `Recorder`), so any number of whole blocks from the beginning is a whole recording. A block goes to the kernel when it is
//! full and twice a second: `kill -9` costs at most that. A reset of the machine costs what the kernel had not written
//! back yet (by default up to 30 s); no `fsync` is issued, which would make the disk's other users wait.
//!
//! The reader trusts nothing: lengths are bounded, ids checked, and the first byte that is wrong ends the reading.

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
pub use row::{FileIdentity, FileRow, JitProcessRow, KsymbolRow, MethodRow, RowError, SpoolRow};
pub use writer::{SpoolEnd, SpoolWriter};

/// A spool of one block, with a good checksum around these rows behind an empty header; what a hostile hand could make.
/// For tests and fuzzing.
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
