//! Deferred callchains (Linux 6.19, `--call-graph fp,defer`).
//!
//! A sample contains the kernel part. A separate record contains the user part; the kernel writes
//! it when the thread returns to user space.
//!
//! ```text
//! sample     ... nr  PERF_CONTEXT_KERNEL ip ip ...  PERF_CONTEXT_USER_DEFERRED cookie ...
//! deferred   cookie  nr  PERF_CONTEXT_USER ip ip ...  sample_id
//! ```

use perf_event_open_sys::bindings as sys;

use super::layout::Layout;
use super::record::{Record, U64s, USER_DEFERRED};
use crate::bytes::Bytes;
use crate::ids::Tid;

/// `PERF_RECORD_CALLCHAIN_DEFERRED`.
pub const CALLCHAIN_DEFERRED: u32 = 22;
const HEADER_BYTES: usize = 8;
const ENTRY_BYTES: usize = 8;

/// Key that joins both parts: the thread and the kernel's cookie for one entry into the kernel.
pub type DeferredKey = (Tid, u64);

/// User part of callchains.
#[derive(Clone, Copy, Debug)]
pub struct DeferredChain<'a> {
    /// Key of the samples that it completes.
    pub key: DeferredKey,
    /// Addresses, leaf first. A context marker may precede them.
    pub addresses: U64s<'a>,
}

impl Layout {
    /// Parses the user part of callchains. Returns `None` if the record has another type.
    #[must_use]
    pub fn deferred_chain<'a>(&self, record: &'a [u8]) -> Option<DeferredChain<'a>> {
        let mut fields = Bytes(record.get(..self.trailer_start(record)?)?);
        if fields.u32()? != CALLCHAIN_DEFERRED {
            return None;
        }
        fields.take(HEADER_BYTES - 4)?;
        let (cookie, entries) = (fields.u64()?, fields.u64()?);
        let bytes = usize::try_from(entries).ok()?.checked_mul(ENTRY_BYTES)?;
        Some(DeferredChain {
            key: (self.trailer_tid(record)?, cookie),
            addresses: U64s(fields.take(bytes)?),
        })
    }

    /// Returns the key of the user part that a sample waits for, if its callchain is deferred.
    #[must_use]
    pub fn waits_for(&self, record: &[u8]) -> Option<DeferredKey> {
        let Ok(Record::Sample(sample)) = self.parse(record) else {
            return None;
        };
        let (entries, _) = sample.callchain.0.as_chunks::<ENTRY_BYTES>();
        match entries {
            [.., marker, cookie] if u64::from_le_bytes(*marker) == USER_DEFERRED => {
                Some((sample.tid, u64::from_le_bytes(*cookie)))
            }
            _ => None,
        }
    }

    /// Returns the record of a sample with the user part in place of marker and cookie.
    ///
    /// If `user` is `None`, the user part of the callchain is empty.
    #[must_use]
    pub fn join(&self, record: &[u8], user: Option<&DeferredChain<'_>>) -> Option<Vec<u8>> {
        let Ok(Record::Sample(sample)) = self.parse(record) else {
            return None;
        };
        let chain = sample.callchain.0;
        // `chain` is a slice of `record`.
        let start = (chain.as_ptr() as usize).checked_sub(record.as_ptr() as usize)?;
        let kernel = chain.get(..chain.len().checked_sub(2 * ENTRY_BYTES)?)?;
        let user = user.map_or(&[][..], |user| user.addresses.0);
        let marker = sys::PERF_CONTEXT_USER.to_le_bytes();
        let user = user.strip_prefix(&marker).unwrap_or(user);
        let entries = (kernel.len() + marker.len() + user.len()) / ENTRY_BYTES;
        let parts = [
            record.get(..start.checked_sub(ENTRY_BYTES)?)?,
            &(entries as u64).to_le_bytes(),
            kernel,
            &marker,
            user,
            record.get(start + chain.len()..)?,
        ];
        Some(parts.concat())
    }
}
