//! Compressed records (`perf record -z`): one stream of records, which goes on from one compressed record to the next.

use zstd_safe::{DCtx, InBuffer, OutBuffer, get_error_name};

/// Bytes that are decompressed at once.
const PIECE_BYTES: usize = 256 << 10;

/// Records come out whole; the beginning of one waits for its end.
#[derive(Default)]
pub(super) struct Decompressor {
    context: Option<DCtx<'static>>,
    /// What has come out; read up to `at`.
    out: Vec<u8>,
    at: usize,
}

impl Decompressor {
    /// What has come out and was not taken.
    pub(super) fn rest(&self) -> &[u8] {
        &self.out[self.at..]
    }

    pub(super) fn take(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// Decompresses the next piece of `input` and tells how many bytes of it are done. Bounded: a few bytes may become
    /// gigabytes.
    pub(super) fn feed(&mut self, input: &[u8]) -> Result<usize, &'static str> {
        self.out.drain(..self.at);
        self.at = 0;
        let context = self.context.get_or_insert_with(DCtx::create);
        let filled = self.out.len();
        self.out.resize(filled + PIECE_BYTES, 0);
        let mut source = InBuffer::around(input);
        let mut target = OutBuffer::around_pos(&mut self.out[..], filled);
        let result = context.decompress_stream(&mut target, &mut source);
        let (written, done) = (target.pos(), source.pos());
        self.out.truncate(written);
        result.map_err(get_error_name)?;
        Ok(done)
    }
}
