//! Cache of assembly metadata, shared by all processes that map the same file.
//!
//! Metadata from the memory of a process is trusted for that process only. Shared metadata comes
//! from a file, and the kernel reports which file is mapped.

use std::hash::Hasher;
use std::sync::Arc;

use perfcollect_symbols::dotnet::metadata::Metadata;
use perfcollect_symbols::dotnet::pe::{PeError, PeImage, metadata_in_memory};
use rustc_hash::{FxHashMap, FxHasher};

use super::memory::{Memory, ReadError};
use crate::machine::{MappedFiles, MappedPlace};
use crate::trace::ProcessId;
use crate::trace::spool::FileIdentity;

/// Size limit of the cache. The metadata of a web server has 8 MB.
const MAX_BYTES: usize = 32 << 20;
/// Size limit of the metadata of a dynamic module.
const MAX_DYNAMIC_BYTES: usize = 16 << 20;
/// Limit on the images of a process.
const MAX_IMAGES: usize = 4096;
/// Number of bytes that identify the image at an address. Its headers contain its timestamp or a
/// hash.
const HEADER_BYTES: usize = 512;

/// Metadata by source. The least recently used metadata is removed first.
#[derive(Debug, Default)]
pub struct MetadataCache {
    entries: FxHashMap<Source, CachedMetadata>,
    bytes: usize,
    uses: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Source {
    /// An image at an offset of a file.
    File(FileIdentity, u64),
    /// An image in the memory of a process.
    Memory(ProcessId, ImageKey),
}

/// Address of an image and hash of its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ImageKey {
    address: u64,
    header_hash: u64,
}

/// The metadata of an image, or the reason why it cannot be used.
type CacheResult = Result<Arc<Metadata>, PeError>;

#[derive(Debug)]
struct CachedMetadata {
    metadata: CacheResult,
    last_use: u64,
}

/// The images of one process.
#[derive(Debug)]
pub(super) struct Images {
    process: ProcessId,
    files: MappedFiles,
    sources: FxHashMap<ImageKey, Source>,
}

impl Images {
    pub(super) fn new(process: ProcessId, files: MappedFiles) -> Self {
        Self {
            process,
            files,
            sources: FxHashMap::default(),
        }
    }
}

impl MetadataCache {
    /// Returns the metadata of the image at an address of a process.
    ///
    /// # Errors
    /// The image is not readable or corrupt.
    pub(super) fn image(
        &mut self,
        images: &mut Images,
        memory: &impl Memory,
        base: u64,
    ) -> CacheResult {
        let key = ImageKey {
            address: base,
            header_hash: header_hash(memory, base)?,
        };
        let source = images.sources.get(&key).copied();
        if let Some(metadata) = source.and_then(|source| self.get(&source)) {
            return metadata;
        }
        let mapped = images.files.at(base).filter(|file| is_same(file, key));
        let (source, metadata) = match mapped {
            Some(mapped) => {
                let source = Source::File(mapped.identity, mapped.offset);
                if images.sources.len() >= MAX_IMAGES {
                    images.sources.clear();
                }
                images.sources.insert(key, source);
                if let Some(metadata) = self.get(&source) {
                    return metadata;
                }
                let image = PeImage::parse(&mapped.file, mapped.offset);
                let metadata = image.and_then(|image| image.metadata(&mapped.file));
                (source, metadata)
            }
            None => {
                let source = Source::Memory(images.process, key);
                images.sources.insert(key, source);
                (source, metadata_in_memory(memory, base))
            }
        };
        self.insert(source, metadata)
    }

    /// Returns the metadata of a dynamic module, which has no image.
    ///
    /// The metadata grows with the module, and its address changes.
    ///
    /// # Errors
    /// The metadata is not readable or corrupt.
    pub(super) fn dynamic_module(
        &mut self,
        images: &Images,
        memory: &impl Memory,
        address: u64,
        size: u64,
    ) -> CacheResult {
        let key = ImageKey {
            address,
            header_hash: header_hash(memory, address)? ^ size,
        };
        let source = Source::Memory(images.process, key);
        if let Some(metadata) = self.get(&source) {
            return metadata;
        }
        let bytes = memory.vec(address, size, MAX_DYNAMIC_BYTES);
        let metadata = bytes.map_err(PeError::from);
        let metadata = metadata.and_then(|bytes| Ok(Metadata::open(bytes)?));
        self.insert(source, metadata)
    }

    /// Removes the metadata from the memory of a process that has ended.
    pub fn forget(&mut self, ended: ProcessId) {
        let Self { entries, bytes, .. } = self;
        entries.retain(|source, entry| {
            let is_of_ended = matches!(source, Source::Memory(process, _) if *process == ended);
            if is_of_ended {
                *bytes -= size(&entry.metadata);
            }
            !is_of_ended
        });
    }

    fn get(&mut self, source: &Source) -> Option<CacheResult> {
        let entry = self.entries.get_mut(source)?;
        self.uses += 1;
        entry.last_use = self.uses;
        Some(entry.metadata.clone())
    }

    fn insert(&mut self, source: Source, metadata: Result<Metadata, PeError>) -> CacheResult {
        let metadata = metadata.map(Arc::new);
        self.bytes += size(&metadata);
        self.uses += 1;
        let entry = CachedMetadata {
            metadata: metadata.clone(),
            last_use: self.uses,
        };
        if let Some(old) = self.entries.insert(source, entry) {
            self.bytes -= size(&old.metadata);
        }
        while self.bytes > MAX_BYTES || self.entries.len() > MAX_IMAGES {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.last_use);
            let Some(oldest) = oldest.map(|(source, _)| *source) else {
                break;
            };
            if let Some(entry) = self.entries.remove(&oldest) {
                self.bytes -= size(&entry.metadata);
            }
        }
        metadata
    }
}

fn size(metadata: &CacheResult) -> usize {
    metadata.as_ref().map_or(0, |metadata| metadata.size())
}

fn header_hash(memory: &impl Memory, address: u64) -> Result<u64, ReadError> {
    let mut bytes = [0; HEADER_BYTES];
    let read = memory.read(address, &mut bytes);
    let header = bytes.get(..read).filter(|bytes| !bytes.is_empty());
    let mut hasher = FxHasher::default();
    hasher.write(header.ok_or(ReadError::Unreadable {
        address,
        bytes: HEADER_BYTES,
    })?);
    Ok(hasher.finish())
}

/// Returns whether the image in a file has the header of the image in memory.
///
/// The file may have been modified since it was mapped.
fn is_same(mapped: &MappedPlace, key: ImageKey) -> bool {
    header_hash(&mapped.file, mapped.offset) == Ok(key.header_hash)
}
