//! Archives as the tests write and read them.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use rawzip::path::EntryPath;
use rawzip::{CompressionMethod, ZipArchive, ZipArchiveWriter};

/// An archive of entries: name and content.
pub(crate) fn zip_of<N: AsRef<[u8]>, C: AsRef<[u8]>>(
    entries: impl IntoIterator<Item = (N, C)>,
) -> Vec<u8> {
    let mut zip = ZipArchiveWriter::new(Vec::new());
    for (name, content) in entries {
        let (entry, config) = zip
            .new_file(EntryPath::verbatim(name.as_ref()))
            .compression_method(CompressionMethod::DEFLATE)
            .start()
            .unwrap();
        let mut out = config.wrap(DeflateEncoder::new(entry, Compression::fast()));
        out.write_all(content.as_ref()).unwrap();
        let (encoder, descriptor) = out.finish().unwrap();
        encoder.finish().unwrap().finish(descriptor).unwrap();
    }
    zip.finish().unwrap()
}

/// Names and contents of all entries.
pub(crate) fn unzip(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
    let archive = ZipArchive::from_slice(archive).unwrap();
    let mut entries = archive.entries();
    let mut unzipped = Vec::new();
    while let Some(entry) = entries.next_entry().unwrap() {
        let name = String::from_utf8(entry.file_path().as_ref().to_vec()).unwrap();
        assert_eq!(entry.compression_method(), CompressionMethod::DEFLATE);
        let found = archive.get_entry(entry.wayfinder()).unwrap();
        let mut content = Vec::new();
        let mut unpacked = found.verifying_reader(DeflateDecoder::new(found.data()));
        unpacked.read_to_end(&mut content).unwrap();
        unzipped.push((name, content));
    }
    unzipped
}

/// Content of the entry with a name.
pub(crate) fn entry(archive: &[u8], name: &str) -> Vec<u8> {
    let mut entries = unzip(archive).into_iter();
    let found = entries.find(|(found, _)| found == name);
    found.unwrap_or_else(|| panic!("no {name}")).1
}

/// Flips bits in the middle of the first entry whose name contains `part`.
pub(crate) fn damage(bytes: &mut [u8], part: &str) {
    let archive = ZipArchive::from_slice(&*bytes).unwrap();
    let mut entries = archive.entries();
    let middle = loop {
        let entry = entries.next_entry().unwrap().expect("the entry");
        if String::from_utf8_lossy(entry.file_path().as_ref()).contains(part) {
            let found = archive.get_entry(entry.wayfinder()).unwrap();
            let (start, end) = found.compressed_data_range();
            break (start + end) / 2;
        }
    };
    bytes[middle as usize] ^= 0x55;
}
