//! Event metadata, which the stream declares before the first event of each kind.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::block::Framing;
use super::error::NettraceError;
use super::event_block::EventBlock;
use super::field::{self, Field};
use super::field_parser::{FieldParser, tagged_fields};
use super::trace_info::string;
use crate::bytes::Bytes;

/// Limits on the metadata kept. A session with many providers has some 20 KB.
const MAX_BYTES: usize = 16 << 20;
const MAX_IDS: usize = 1 << 16;
/// Tag of the optional V2 fields, with types that the original form cannot express.
const V2_FIELDS: u8 = 2;
/// Tags of optional parts of version 6.
const OPCODE: u8 = 1;
const KEYWORDS: u8 = 3;
const MESSAGE: u8 = 4;
const DESCRIPTION: u8 = 5;
const NOTE: u8 = 6;
const PROVIDER_ID: u8 = 7;
const LEVEL: u8 = 8;
const VERSION: u8 = 9;

/// The metadata of a kind of events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct EventMetadata {
    /// The provider's name, such as `Microsoft-Windows-DotNETRuntime`.
    pub provider: String,
    /// The event id, unique within the provider.
    pub id: u32,
    /// The version of the payload.
    pub version: u32,
    /// The event's name. Empty for events of the runtime itself.
    pub name: String,
    /// The keywords that enable the event.
    pub keywords: u64,
    /// The level of verbosity: 1 (critical) to 5 (verbose).
    pub level: u32,
    /// The fields of the payload, or `None` if the stream does not declare any that the reader
    /// supports. The list is empty for events of the runtime itself, which declares no fields.
    pub fields: Option<Vec<Field>>,
}

impl EventMetadata {
    /// Returns the approximate memory that it uses, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let fields = self.fields.as_deref().unwrap_or_default();
        size_of::<Self>() + self.provider.len() + self.name.len() + field::bytes(fields)
    }

    /// Parses the payload of an event in a metadata block of version 4 or 5.
    fn parse_object(payload: &[u8]) -> Option<(u32, Self)> {
        let mut bytes = Bytes(payload);
        let metadata_id = bytes.u32()?;
        let mut kind = Self {
            provider: bytes.utf16z()?,
            id: bytes.u32()?,
            name: bytes.utf16z()?,
            keywords: bytes.u64()?,
            version: bytes.u32()?,
            level: bytes.u32()?,
            fields: None,
        };
        kind.fields = FieldParser::default().fields(&mut bytes);
        while let Some(length) = bytes.u32()
            && let Some(tag) = bytes.u8()
            && let Some(part) = bytes.take(length as usize)
        {
            if tag == V2_FIELDS {
                kind.fields = tagged_fields(part);
            }
        }
        Some((metadata_id, kind))
    }

    /// Parses a row of a metadata block of version 6.
    fn parse_row(row: &[u8]) -> Option<(u32, Self)> {
        let mut bytes = Bytes(row);
        let utf8 = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let metadata_id = bytes.varuint32()?;
        let mut kind = Self {
            provider: string(&mut bytes).map(utf8)?,
            id: bytes.varuint32()?,
            name: string(&mut bytes).map(utf8)?,
            ..Self::default()
        };
        kind.fields = FieldParser::default().rows(&mut bytes);
        if kind.fields.is_some()
            && let Some(length) = bytes.u16()
            && let Some(part) = bytes.take(length.into())
        {
            kind.read_options(&mut Bytes(part));
        }
        Some((metadata_id, kind))
    }

    /// Reads the optional parts of version 6, up to the first unknown one. A part has no length, so
    /// an unknown one cannot be skipped.
    fn read_options(&mut self, bytes: &mut Bytes<'_>) -> Option<()> {
        loop {
            match bytes.u8()? {
                OPCODE => {
                    bytes.u8()?;
                }
                KEYWORDS => self.keywords = bytes.u64()?,
                MESSAGE | DESCRIPTION => {
                    string(bytes)?;
                }
                NOTE => {
                    string(bytes)?;
                    string(bytes)?;
                }
                PROVIDER_ID => {
                    bytes.take(16)?;
                }
                LEVEL => self.level = bytes.u8()?.into(),
                VERSION => self.version = bytes.u8()?.into(),
                _ => return None,
            }
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct EventMetadataTable {
    by_id: HashMap<u32, Arc<EventMetadata>>,
    /// All kinds of the stream: it may declare one again.
    kinds: HashSet<Arc<EventMetadata>>,
    /// Memory of `kinds`.
    bytes: usize,
}

impl EventMetadataTable {
    pub(super) fn get(&self, metadata_id: u32) -> Option<&Arc<EventMetadata>> {
        self.by_id.get(&metadata_id)
    }

    /// Adds the kinds of a metadata block, which is at `offset` of the stream. Returns `None` if a
    /// kind is corrupt.
    ///
    /// Metadata beyond the limit is dropped, and its events count as unknown.
    ///
    /// # Errors
    /// The block is corrupt.
    pub(super) fn add_block(
        &mut self,
        payload: &[u8],
        offset: u64,
        framing: Framing,
    ) -> Result<Option<()>, NettraceError> {
        if framing == Framing::Blocks {
            return Ok(self.add_rows(payload));
        }
        let mut rows = EventBlock::new(framing);
        rows.bytes.extend_from_slice(payload);
        rows.start(offset)?;
        while let Some((_, row)) = rows.next()? {
            let row = rows.bytes.get(row).unwrap_or_default();
            if self.add(row, EventMetadata::parse_object).is_none() {
                return Ok(None);
            }
        }
        Ok(Some(()))
    }

    fn add_rows(&mut self, payload: &[u8]) -> Option<()> {
        let mut block = Bytes(payload);
        let header = block.u16()?;
        block.take(header.into())?;
        while !block.0.is_empty() {
            let length = block.u16()?;
            self.add(block.take(length.into())?, EventMetadata::parse_row)?;
        }
        Some(())
    }

    fn add(
        &mut self,
        bytes: &[u8],
        parse: impl Fn(&[u8]) -> Option<(u32, EventMetadata)>,
    ) -> Option<()> {
        let (id, kind) = parse(bytes)?;
        self.by_id.remove(&id);
        let fits = self.bytes + kind.bytes() <= MAX_BYTES;
        let kind = match self.kinds.get(&kind) {
            Some(known) => Some(Arc::clone(known)),
            None => fits.then(|| {
                self.bytes += kind.bytes();
                let kind = Arc::new(kind);
                self.kinds.insert(Arc::clone(&kind));
                kind
            }),
        };
        if let Some(kind) = kind
            && self.by_id.len() < MAX_IDS
        {
            self.by_id.insert(id, kind);
        }
        Some(())
    }

    /// Forgets the ids.
    pub(super) fn clear(&mut self) {
        self.by_id.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds a kind with `fields` fields to a table.
    fn declare(table: &mut EventMetadataTable, metadata_id: u32, event: u32, fields: usize) {
        table.add(&[], |_| {
            let kind = EventMetadata {
                id: event,
                fields: Some(vec![
                    Field {
                        name: String::new(),
                        kind: field::FieldType::Guid,
                    };
                    fields
                ]),
                ..EventMetadata::default()
            };
            Some((metadata_id, kind))
        });
    }

    #[test]
    fn kinds_have_a_common_limit_and_may_be_declared_again() {
        let mut table = EventMetadataTable::default();
        for event in 0..1000 {
            declare(&mut table, event % 100, event, 1000);
            if event % 100 == 99 {
                table.clear();
            }
        }
        assert!(table.bytes <= MAX_BYTES);
        assert!((10..900).contains(&table.kinds.len()));
        declare(&mut table, 7, 3, 1000);
        assert_eq!(table.get(7).unwrap().id, 3);
        // An id without room for its new kind does not keep the old one.
        declare(&mut table, 7, 999, 1000);
        assert!(table.get(7).is_none());
        declare(&mut table, 0, 1000, 0);
        for id in 0..MAX_IDS as u32 + 10 {
            declare(&mut table, id, 1000, 0);
        }
        assert_eq!(table.by_id.len(), MAX_IDS);
    }
}
