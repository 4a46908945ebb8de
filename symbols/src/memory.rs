//! Bytes by address, wherever they are: what the readers of .NET images and structures read from.

/// Bytes by address: a process, a file laid out as it is mapped, or an image made by a test.
pub trait Memory {
    /// Fills `buffer` from `address` on and returns how many bytes were there.
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize;

    /// N bytes, if all are there.
    fn bytes<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        (self.read(address, &mut bytes) == N).then_some(bytes)
    }

    /// An 8-bit number.
    fn u8(&self, address: u64) -> Option<u8> {
        self.bytes(address).map(u8::from_le_bytes)
    }

    /// A 16-bit number.
    fn u16(&self, address: u64) -> Option<u16> {
        self.bytes(address).map(u16::from_le_bytes)
    }

    /// A 32-bit number.
    fn u32(&self, address: u64) -> Option<u32> {
        self.bytes(address).map(u32::from_le_bytes)
    }

    /// So many bytes, if all are there and there are no more than `limit`.
    fn vec(&self, address: u64, len: u64, limit: usize) -> Option<Vec<u8>> {
        let len = usize::try_from(len).ok().filter(|len| *len <= limit)?;
        let mut bytes = vec![0; len];
        (self.read(address, &mut bytes) == len).then_some(bytes)
    }

    /// A 64-bit number, or a pointer.
    fn u64(&self, address: u64) -> Option<u64> {
        self.bytes(address).map(u64::from_le_bytes)
    }
}

/// Any reference reads like what it refers to.
impl<M: Memory + ?Sized> Memory for &M {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        M::read(self, address, buffer)
    }
}

/// Bytes from an address on.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    /// Address of the first byte.
    pub start: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl Memory for Image<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let from = address
            .checked_sub(self.start)
            .and_then(|at| usize::try_from(at).ok())
            .and_then(|at| self.bytes.get(at..))
            .unwrap_or_default();
        let length = from.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..length), from.get(..length)) {
            to.copy_from_slice(from);
        }
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_ends_where_its_bytes_do() {
        let image = Image {
            start: 0x1000,
            bytes: &[1, 2, 3, 4, 5],
        };
        assert_eq!(image.u32(0x1001), Some(0x0504_0302));
        assert_eq!(image.u32(0x1002), None);
        assert_eq!(image.u32(0xfff), None);
        assert_eq!(image.read(0x1004, &mut [0; 9]), 1);
    }
}
