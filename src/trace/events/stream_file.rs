//! The file of an event stream: LZ4 frames (`lz4 -d` unpacks it).
//!
//! Each part of the stream is a separate frame. So a killed capture keeps all parts but the last,
//! and an idle stream needs no buffer. A file that does not start with a frame is read unchanged:
//! older versions did not compress, and streams in an archive are compressed by the archive.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use lz4_flex::frame::{BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

use crate::bytes::Positioned;

/// First bytes of a frame (`LZ4 Frame Format Description`).
const MAGIC: [u8; 4] = 0x184d_2204_u32.to_le_bytes();
/// Size of the buffer for compressed data.
const BUFFER_BYTES: usize = 8 << 10;
/// Limit on the last part, which is read again to insert something.
const MAX_PART_BYTES: u64 = 17 << 20;

/// Writer of the file of a stream.
#[derive(Debug)]
pub struct StreamWriter {
    file: File,
    /// Length of the stream and of the file.
    end: Offset,
    /// Start of the last part.
    last: Offset,
}

#[derive(Clone, Copy, Debug, Default)]
struct Offset {
    in_stream: u64,
    in_file: u64,
}

impl StreamWriter {
    /// Creates a writer of a new, empty file.
    #[must_use]
    pub fn new(file: File) -> Self {
        Self {
            file,
            end: Offset::default(),
            last: Offset::default(),
        }
    }

    /// Appends a part of the stream. Returns by how many bytes the file grew.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn append(&mut self, part: &[u8]) -> io::Result<u64> {
        // An empty frame would look like the end of the file.
        if part.is_empty() {
            return Ok(0);
        }
        let frame = frame_of(part)?;
        self.file.write_all_at(&frame, self.end.in_file)?;
        self.last = self.end;
        self.end.in_stream += part.len() as u64;
        self.end.in_file += frame.len() as u64;
        Ok(frame.len() as u64)
    }

    /// Inserts bytes at an offset of the stream: in the last part, or at its end.
    ///
    /// Returns false, and changes nothing, if the offset is elsewhere or the last part is larger
    /// than 17 MiB.
    ///
    /// # Errors
    /// The file cannot be read or written. It is then as before.
    pub fn insert(&self, offset: u64, bytes: &[u8]) -> io::Result<bool> {
        let Self { file, end, last } = self;
        let start = offset.checked_sub(last.in_stream);
        let Some(start) = start.filter(|_| end.in_stream - last.in_stream <= MAX_PART_BYTES) else {
            return Ok(false);
        };
        let mut old = vec![0; (end.in_file - last.in_file) as usize];
        file.read_exact_at(&mut old, last.in_file)?;
        let mut part = Vec::new();
        FrameDecoder::new(&old[..]).read_to_end(&mut part)?;
        let Some((before, after)) = part.split_at_checked(start as usize) else {
            return Ok(false);
        };
        let new = frame_of(&[before, bytes, after].concat())?;
        file.write_all_at(&new, last.in_file).inspect_err(|_| {
            let _ = file.write_all_at(&old, last.in_file);
            let _ = file.set_len(end.in_file);
        })?;
        Ok(true)
    }
}

fn frame_of(part: &[u8]) -> io::Result<Vec<u8>> {
    let info = FrameInfo::new()
        .block_size(BlockSize::Max64KB)
        .block_checksums(true);
    let mut frame = FrameEncoder::with_frame_info(info, Vec::new());
    frame.write_all(part)?;
    Ok(frame.finish()?)
}

/// Reader of the file of a stream.
#[derive(Debug)]
pub(crate) struct StreamBytes(Bytes);

#[derive(Debug)]
enum Bytes {
    Plain(Positioned<Arc<File>>),
    Compressed(Box<FrameDecoder<BufReader<Positioned<Arc<File>>>>>),
}

impl StreamBytes {
    /// Creates a reader of the whole stream.
    pub(crate) fn new(file: Arc<File>) -> Self {
        let mut magic = [0; 4];
        let is_compressed = file.read_exact_at(&mut magic, 0).is_ok() && magic == MAGIC;
        let bytes = Positioned { file, at: 0 };
        Self(match is_compressed {
            true => {
                let buffered = BufReader::with_capacity(BUFFER_BYTES, bytes);
                Bytes::Compressed(FrameDecoder::new(buffered).into())
            }
            false => Bytes::Plain(bytes),
        })
    }
}

impl Read for StreamBytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let frames = match &mut self.0 {
            Bytes::Plain(bytes) => return bytes.read(buffer),
            Bytes::Compressed(frames) => frames,
        };
        // The decoder returns 0 at the end of a frame, and at the end of the file.
        for _ in 0..2 {
            match frames.read(buffer) {
                Ok(0) => {}
                // The file ends within a frame.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
        }
        Ok(0)
    }
}

/// Reader of the file of a stream that ends where the file is damaged.
pub(super) struct UndamagedBytes(pub(super) StreamBytes);

impl Read for UndamagedBytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer) {
            Err(error) if error.raw_os_error().is_none() => Ok(0),
            read => read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> [Vec<u8>; 3] {
        let noise = |seed: u32, len: usize| {
            let mixed = |at: u32| (at ^ seed).wrapping_mul(2_654_435_761);
            (0..len as u32)
                .map(|at| (mixed(mixed(at)) >> 24) as u8)
                .collect()
        };
        [vec![7; 200_000], noise(1, 100), noise(2, 70_000)]
    }

    fn written(parts: &[Vec<u8>]) -> (File, StreamWriter) {
        let file = tempfile::tempfile().unwrap();
        let mut writer = StreamWriter::new(file.try_clone().unwrap());
        for part in parts {
            writer.append(part).unwrap();
        }
        (file, writer)
    }

    fn read(file: &File) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        StreamBytes::new(file.try_clone()?.into()).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    #[test]
    fn parts_round_trip_and_a_truncated_file_keeps_those_before() {
        let parts = parts();
        let (file, writer) = written(&parts);
        let length = file.metadata().unwrap().len();
        assert_eq!(length, writer.end.in_file);
        assert!(length < 90_000, "{length}");
        assert!(read(&file).unwrap() == parts.concat());
        file.set_len(writer.last.in_file + 1000).unwrap();
        assert!(read(&file).unwrap() == parts[..2].concat());
        file.set_len(2).unwrap();
        assert_eq!(read(&file).unwrap().len(), 2);
    }

    #[test]
    fn reads_a_file_that_is_not_compressed_and_a_corrupt_one_up_to_the_damage() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"Nettrace", 0).unwrap();
        assert_eq!(read(&file).unwrap(), b"Nettrace");
        let (file, writer) = written(&parts());
        file.write_all_at(&[0x55; 8], writer.last.in_file + 5000)
            .unwrap();
        assert_eq!(read(&file).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let undamaged = |file: File| {
            let mut bytes = Vec::new();
            let mut reader = UndamagedBytes(StreamBytes::new(file.into()));
            reader.read_to_end(&mut bytes).unwrap();
            bytes
        };
        assert!(undamaged(file) == parts()[..2].concat());
        // A system that crashed may leave zeros at the end.
        let (file, writer) = written(&parts());
        file.set_len(writer.end.in_file + 4096).unwrap();
        assert!(read(&file).is_err());
        assert!(undamaged(file) == parts().concat());
    }

    #[test]
    fn inserts_into_the_last_part_only() {
        let parts = parts();
        let whole = parts.concat();
        let (file, writer) = written(&parts);
        for offset in [0, 200_099, whole.len() + 1] {
            assert!(!writer.insert(offset as u64, b"new").unwrap(), "{offset}");
        }
        assert!(read(&file).unwrap() == whole);
        for offset in [200_100, 260_000, whole.len()] {
            let (file, writer) = written(&parts);
            assert!(writer.insert(offset as u64, b"new").unwrap(), "{offset}");
            let (before, after) = whole.split_at(offset);
            assert!(read(&file).unwrap() == [before, b"new", after].concat());
        }
    }
}
