//! Metadata of assemblies, read once for all processes that have the same file mapped.
//!
//! A process is believed about its own assemblies only: what another process is to use comes from a file, and the kernel
//! says which file is mapped.

use std::hash::Hasher;
use std::sync::Arc;

use perfcollect_symbols::dotnet::metadata::Metadata;
use perfcollect_symbols::dotnet::pe::{PeImage, metadata_in_memory};
use rustc_hash::{FxHashMap, FxHasher};

use super::file_bytes::FileBytes;
use super::memory::Memory;
use crate::machine::{MappedFiles, MappedPlace};
use crate::trace::ProcessId;
use crate::trace::spool::FileIdentity;

/// Bytes of metadata that are kept; that of a web server takes 8 MB.
const MAX_BYTES: usize = 32 << 20;
/// Largest metadata of a module made at run time.
const MAX_MADE_BYTES: usize = 16 << 20;
/// Images of a process that are remembered.
const MAX_IMAGES: usize = 4096;
/// What tells an image from another at its address: headers with the time it was made, or the hash that stands for it.
const HEAD_BYTES: usize = 512;

/// Metadata by where it was read.
#[derive(Debug, Default)]
pub struct MetadataCache {
    known: FxHashMap<Source, CachedMetadata>,
    bytes: usize,
    uses: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Source {
    /// An image in a file.
    File(FileIdentity, u64),
    /// Memory of a process.
    Memory(ProcessId, ImageKey),
}

/// Where something is, and a sum of its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ImageKey {
    address: u64,
    head: u64,
}

#[derive(Debug)]
struct CachedMetadata {
    /// `None`: there is none that can be read.
    metadata: Option<Arc<Metadata>>,
    used: u64,
}

/// The images of one process.
#[derive(Debug)]
pub(super) struct Images {
    process: ProcessId,
    files: MappedFiles,
    sources: FxHashMap<ImageKey, Source>,
}

impl Images {
    pub(super) fn of(process: ProcessId, files: MappedFiles) -> Self {
        Self {
            process,
            files,
            sources: FxHashMap::default(),
        }
    }
}

impl MetadataCache {
    /// The metadata of the image at an address of a process.
    pub(super) fn of_image(
        &mut self,
        images: &mut Images,
        memory: &impl Memory,
        base: u64,
    ) -> Option<Arc<Metadata>> {
        let place = ImageKey {
            address: base,
            head: head(memory, base)?,
        };
        let known = images.sources.get(&place).copied();
        if let Some(found) = known.and_then(|source| self.get(&source)) {
            return found;
        }
        let mapped = images.files.at(base).filter(|file| is_same(file, place));
        let (source, metadata) = match mapped {
            Some(mapped) => {
                let source = Source::File(mapped.identity, mapped.offset);
                if images.sources.len() >= MAX_IMAGES {
                    images.sources.clear();
                }
                images.sources.insert(place, source);
                if let Some(found) = self.get(&source) {
                    return found;
                }
                let file = FileBytes(&mapped.file);
                let image = PeImage::parse(&file, mapped.offset);
                (source, image.and_then(|image| image.metadata(&file)))
            }
            None => {
                let source = Source::Memory(images.process, place);
                images.sources.insert(place, source);
                (source, metadata_in_memory(memory, base))
            }
        };
        self.keep(source, metadata)
    }

    /// The metadata of a module made at run time, which lies in memory by itself. It grows with the module, and moves.
    pub(super) fn of_bytes(
        &mut self,
        images: &Images,
        memory: &impl Memory,
        address: u64,
        size: u64,
    ) -> Option<Arc<Metadata>> {
        let place = ImageKey {
            address,
            head: head(memory, address)? ^ size,
        };
        let source = Source::Memory(images.process, place);
        if let Some(found) = self.get(&source) {
            return found;
        }
        let bytes = memory.vec(address, size, MAX_MADE_BYTES);
        self.keep(source, bytes.and_then(Metadata::open))
    }

    fn get(&mut self, source: &Source) -> Option<Option<Arc<Metadata>>> {
        let entry = self.known.get_mut(source)?;
        self.uses += 1;
        entry.used = self.uses;
        Some(entry.metadata.clone())
    }

    fn keep(&mut self, source: Source, metadata: Option<Metadata>) -> Option<Arc<Metadata>> {
        let metadata = metadata.map(Arc::new);
        self.bytes += size(metadata.as_ref());
        self.uses += 1;
        let entry = CachedMetadata {
            metadata: metadata.clone(),
            used: self.uses,
        };
        if let Some(old) = self.known.insert(source, entry) {
            self.bytes -= size(old.metadata.as_ref());
        }
        while self.bytes > MAX_BYTES || self.known.len() > MAX_IMAGES {
            let oldest = self.known.iter().min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(source, _)| *source) else {
                break;
            };
            if let Some(entry) = self.known.remove(&oldest) {
                self.bytes -= size(entry.metadata.as_ref());
            }
        }
        metadata
    }
}

fn size(metadata: Option<&Arc<Metadata>>) -> usize {
    metadata.map_or(0, |metadata| metadata.size())
}

fn head(memory: &impl Memory, address: u64) -> Option<u64> {
    let mut bytes = [0; HEAD_BYTES];
    let read = memory.read(address, &mut bytes);
    let mut sum = FxHasher::default();
    sum.write(bytes.get(..read).filter(|bytes| !bytes.is_empty())?);
    Some(sum.finish())
}

/// Whether a file begins as the image in memory does: it may have been written to since it was mapped.
fn is_same(mapped: &MappedPlace, place: ImageKey) -> bool {
    head(&FileBytes(&mapped.file), mapped.offset) == Some(place.head)
}
