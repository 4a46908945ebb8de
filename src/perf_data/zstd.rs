//! Decompression of compressed records (`perf record -z`), which together are one stream.

use zstd_safe::{DCtx, InBuffer, OutBuffer, get_error_name};

/// Maximum number of bytes to decompress at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Decompressor with a buffer, which keeps an incomplete record until the rest is decompressed.
#[derive(Default)]
pub(super) struct Decompressor {
    context: Option<DCtx<'static>>,
    /// Decompressed bytes, consumed up to `at`.
    out: Vec<u8>,
    at: usize,
}

impl Decompressor {
    /// Returns the decompressed bytes that were not consumed yet.
    pub(super) fn rest(&self) -> &[u8] {
        &self.out[self.at..]
    }

    pub(super) fn consume(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// Decompresses the next part of `input` and returns the number of input bytes read.
    ///
    /// The output is bounded, because a few bytes of input can decompress to gigabytes.
    pub(super) fn feed(&mut self, input: &[u8]) -> Result<usize, &'static str> {
        self.out.drain(..self.at);
        self.at = 0;
        let context = self.context.get_or_insert_with(DCtx::create);
        let filled = self.out.len();
        self.out.resize(filled + CHUNK_BYTES, 0);
        let mut source = InBuffer::around(input);
        let mut target = OutBuffer::around_pos(&mut self.out[..], filled);
        let result = context.decompress_stream(&mut target, &mut source);
        let (written, read) = (target.pos(), source.pos());
        self.out.truncate(written);
        result.map_err(get_error_name)?;
        Ok(read)
    }
}
