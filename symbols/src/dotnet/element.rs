//! Elements of signatures: compressed integers and element type codes (ECMA-335 II.23).

/// Element type codes. `VALUE_TYPE_NATIVE`, `CANON` and `MODULE` occur in ReadyToRun images only.
pub(super) mod code {
    pub(in super::super) const PTR: u8 = 0x0f;
    pub(in super::super) const BYREF: u8 = 0x10;
    pub(in super::super) const VALUE_TYPE: u8 = 0x11;
    pub(in super::super) const CLASS: u8 = 0x12;
    pub(in super::super) const VAR: u8 = 0x13;
    pub(in super::super) const ARRAY: u8 = 0x14;
    pub(in super::super) const GENERIC_INST: u8 = 0x15;
    pub(in super::super) const FN_PTR: u8 = 0x1b;
    pub(in super::super) const SZ_ARRAY: u8 = 0x1d;
    pub(in super::super) const M_VAR: u8 = 0x1e;
    pub(in super::super) const MODIFIER_REQUIRED: u8 = 0x1f;
    pub(in super::super) const MODIFIER_OPTIONAL: u8 = 0x20;
    pub(in super::super) const INTERNAL: u8 = 0x21;
    pub(in super::super) const MODIFIER_INTERNAL: u8 = 0x22;
    pub(in super::super) const VALUE_TYPE_NATIVE: u8 = 0x3d;
    pub(in super::super) const CANON: u8 = 0x3e;
    pub(in super::super) const MODULE: u8 = 0x3f;
    pub(in super::super) const SENTINEL: u8 = 0x41;
    pub(in super::super) const PINNED: u8 = 0x45;
}

/// Returns the C# name of a primitive element type.
pub(super) fn primitive(code: u8) -> Option<&'static str> {
    Some(match code {
        0x01 => "void",
        0x02 => "bool",
        0x03 => "char",
        0x04 => "sbyte",
        0x05 => "byte",
        0x06 => "short",
        0x07 => "ushort",
        0x08 => "int",
        0x09 => "uint",
        0x0a => "long",
        0x0b => "ulong",
        0x0c => "float",
        0x0d => "double",
        0x0e => "string",
        0x16 => "System.TypedReference",
        0x18 => "nint",
        0x19 => "nuint",
        0x1c => "object",
        _ => return None,
    })
}

/// Cursor over bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a>(pub(super) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Reads a compressed integer of one, two or four bytes. Its first byte determines the length.
    pub(super) fn compressed_u32(&mut self) -> Option<u32> {
        let first = u32::from(self.byte()?);
        if first & 0x80 == 0 {
            return Some(first);
        }
        let second = u32::from(self.byte()?);
        if first & 0x40 == 0 {
            return Some((first & 0x3f) << 8 | second);
        }
        let [third, fourth] = self.array()?.map(u32::from);
        Some((first & 0x1f) << 24 | second << 16 | third << 8 | fourth)
    }
}
