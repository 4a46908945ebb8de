//! The CRC-32 of `.gnu_debuglink`: reflected polynomial 0x04c11db7, as in zlib and ISO 3309.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Limit of a file for the CRC: 5 s at the 400 MB/s of this table.
pub(crate) const MAX_CRC_FILE_BYTES: u64 = 2 << 30;

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < table.len() {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 {
                value >> 1 ^ 0xedb8_8320
            } else {
                value >> 1
            };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
}

/// The state of a checksum.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crc32(u32);

impl Crc32 {
    fn new() -> Self {
        Self(!0)
    }

    fn update(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            let index = usize::from(self.0 as u8 ^ byte);
            self.0 = TABLE.get(index).copied().unwrap_or_default() ^ self.0 >> 8;
        }
    }

    fn finish(self) -> u32 {
        !self.0
    }

    /// Computes the checksum of a file.
    ///
    /// The file may grow meanwhile, so at most [`MAX_CRC_FILE_BYTES`] are read.
    ///
    /// # Errors
    /// Reading fails.
    pub(crate) fn compute(file: &File) -> io::Result<u32> {
        let mut crc = Self::new();
        let mut buffer = vec![0; 64 << 10];
        let mut offset = 0;
        while offset <= MAX_CRC_FILE_BYTES {
            match file.read_at(&mut buffer, offset) {
                Ok(0) => break,
                Ok(read) => {
                    crc.update(buffer.get(..read).unwrap_or_default());
                    offset = offset.saturating_add(read as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(crc.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computes_the_check_value_of_the_standard() {
        let mut crc = Crc32::new();
        crc.update(b"1234");
        crc.update(b"56789");
        assert_eq!(crc.finish(), 0xcbf4_3926);
    }
}
