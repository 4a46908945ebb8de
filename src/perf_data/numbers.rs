//! Integers in the byte order of the recorded machine.

use crate::bytes::Bytes;

/// The byte order of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    Little,
    Big,
}

/// Unread bytes and the byte order of their integers.
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

    /// Reads a 64-bit bit field. The order of the bits in a byte is the byte order.
    pub(super) fn bits(&mut self) -> Option<u64> {
        let bytes = self.bytes.array::<8>()?;
        Some(u64::from_le_bytes(match self.order {
            Order::Little => bytes,
            Order::Big => bytes.map(u8::reverse_bits),
        }))
    }

    /// Reads a `perf_header_string`: a length, then that many bytes with a NUL-terminated string.
    pub(super) fn string(&mut self) -> Option<String> {
        let len = self.u32()? as usize;
        let string = Bytes(self.bytes.take(len)?).c_string();
        Some(String::from_utf8_lossy(string).into_owned())
    }
}
