//! Reads ZIP archives, which are untrusted: the reader of an entry bounds its size.

use std::fs::File;
use std::io::{self, Read};

use flate2::read::DeflateDecoder;
use rawzip::{
    CompressionMethod, Error, ErrorKind, FileReader, RECOMMENDED_BUFFER_SIZE, ZipArchive,
    ZipArchiveEntryWayfinder,
};

/// More than the archive of any capture has.
const MAX_ENTRIES: usize = 1 << 16;

/// An open archive.
pub(crate) struct Zip {
    archive: ZipArchive<FileReader>,
    entries: Vec<Entry>,
    /// Length of the file.
    bytes: u64,
}

/// A file in an archive, as the archive's directory declares it.
pub(crate) struct Entry {
    /// The whole path.
    pub(crate) name: String,
    method: CompressionMethod,
    is_encrypted: bool,
    place: ZipArchiveEntryWayfinder,
}

impl Entry {
    /// Bytes it unpacks to; reading more or fewer is an error.
    pub(crate) fn size(&self) -> u64 {
        self.place.uncompressed_size_hint()
    }

    /// Bytes it takes in the archive, as the archive's directory declares it: see [`Zip::packed_size`].
    pub(crate) fn compressed_size(&self) -> u64 {
        self.place.compressed_size_hint()
    }
}

impl Zip {
    pub(crate) fn open(file: File) -> Result<Self, Error> {
        let bytes = file.metadata()?.len();
        let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
        let archive = ZipArchive::from_file(file, &mut buffer)?;
        let mut entries = Vec::new();
        let mut directory = archive.entries(&mut buffer);
        while let Some(entry) = directory.next_entry()? {
            if entries.len() == MAX_ENTRIES {
                let msg = format!("more than {MAX_ENTRIES} entries");
                return Err(ErrorKind::InvalidInput { msg }.into());
            }
            entries.push(Entry {
                name: String::from_utf8_lossy(entry.file_path().as_ref()).into_owned(),
                method: entry.compression_method(),
                is_encrypted: entry.flags().is_encrypted(),
                place: entry.wayfinder(),
            });
        }
        Ok(Self {
            archive,
            entries,
            bytes,
        })
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The first entry with a name.
    pub(crate) fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// Bytes that an entry takes in the archive, which are not more than the archive has.
    pub(crate) fn packed_size(&self, entry: &Entry) -> u64 {
        entry.compressed_size().min(self.bytes)
    }

    /// Unpacks an entry. A wrong checksum or size is an error at its end.
    pub(crate) fn unpack(&self, entry: &Entry) -> io::Result<impl Read + use<'_>> {
        if entry.is_encrypted {
            return Err(io::Error::other("it is encrypted"));
        }
        let found = self.archive.get_entry(entry.place);
        let found = found.map_err(io::Error::other)?;
        let unpacked: Box<dyn Read> = match entry.method {
            CompressionMethod::STORE => Box::new(found.reader()),
            CompressionMethod::DEFLATE => Box::new(DeflateDecoder::new(found.reader())),
            method => {
                let why = format!("compression method {method:?} is not supported");
                return Err(io::Error::other(why));
            }
        };
        Ok(found.verifying_reader(unpacked))
    }
}

#[cfg(test)]
#[path = "../tests/support/zip.rs"]
#[allow(dead_code, clippy::unwrap_used)]
pub(crate) mod made;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write;

    use super::*;

    fn open(bytes: &[u8]) -> Result<Zip, Error> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Zip::open(file)
    }

    fn unpacked(bytes: &[u8]) -> io::Result<String> {
        let zip = open(bytes).unwrap();
        io::read_to_string(zip.unpack(zip.entry("b").unwrap())?)
    }

    #[test]
    fn unpacks_what_was_deflated_or_stored() {
        let deflated = made::zip_of([("a", "1"), ("b", "2")]);
        assert_eq!(unpacked(&deflated).unwrap(), "2");
        // As Python's zipfile module stores it.
        let stored = b"PK\x03\x04\x14\0\0\0\0\0\0\0!\0\xb7\xef\xdc\x83\x01\0\0\0\x01\0\0\0\x01\0\0\0b1\
            PK\x01\x02\x14\x03\x14\0\0\0\0\0\0\0!\0\xb7\xef\xdc\x83\x01\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\x80\x01\0\0\0\0b\
            PK\x05\x06\0\0\0\0\x01\0\x01\0/\0\0\0 \0\0\0\0\0";
        assert_eq!(unpacked(stored).unwrap(), "1");
    }

    /// The directory of an archive is what the reader believes.
    #[test]
    fn a_directory_that_lies_is_an_error() {
        let good = made::zip_of([("b", "content")]);
        let directory = good.windows(4).position(|bytes| bytes == b"PK\x01\x02");
        for (field, value, why) in [
            (8, 1, "encrypted"),
            (10, 12, "compression method"),
            (16, 0x55, "checksum"),
            (24, 6, "size"),
            (24, 8, "size"),
        ] {
            let mut bad = good.clone();
            bad[directory.unwrap() + field] = value;
            let error = unpacked(&bad).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn entries_have_a_limit() {
        let mut zip = rawzip::ZipArchiveWriter::new(Vec::new());
        for number in 0..=MAX_ENTRIES {
            zip.new_dir(format!("{number}/")).create().unwrap();
        }
        let error = open(&zip.finish().unwrap()).err().unwrap();
        assert!(error.to_string().contains("65536 entries"), "{error}");
    }
}
