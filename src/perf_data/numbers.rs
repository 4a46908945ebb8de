//! Numbers in the byte order of the machine that wrote the file.

use crate::bytes::Bytes;

/// The byte order of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    Little,
    Big,
}

/// Bytes, and in which order numbers have them.
#[derive(Clone, Copy)]
pub(super) struct Numbers<'a> {
    pub(super) bytes: Bytes<'a>,
    pub(super) order: Order,
}

impl<'a> Numbers<'a> {
    pub(super) fn new(bytes: &'a [u8], order: Order) -> Self {
        Self {
            bytes: Bytes(bytes),
            order,
        }
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        let value = self.bytes.u16()?;
        Some(match self.order {
            Order::Little => value,
            Order::Big => value.swap_bytes(),
        })
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        let value = self.bytes.u32()?;
        Some(match self.order {
            Order::Little => value,
            Order::Big => value.swap_bytes(),
        })
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        let value = self.bytes.u64()?;
        Some(match self.order {
            Order::Little => value,
            Order::Big => value.swap_bytes(),
        })
    }

    /// Bit fields: the order of the bits in a byte is that of the bytes.
    pub(super) fn bits(&mut self) -> Option<u64> {
        let bytes = self.bytes.array::<8>()?;
        Some(u64::from_le_bytes(match self.order {
            Order::Little => bytes,
            Order::Big => bytes.map(u8::reverse_bits),
        }))
    }

    /// `perf_header_string`: a length, then so many bytes, of which the text ends at the first NUL.
    pub(super) fn text(&mut self) -> Option<String> {
        let len = self.u32()? as usize;
        let text = Bytes(self.bytes.take(len)?).c_string();
        Some(String::from_utf8_lossy(text).into_owned())
    }
}
