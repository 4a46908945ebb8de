//! Parts of an x86-64 instruction: bytes, prefixes and the ModRM operand.

/// Cursor over the bytes of an instruction.
pub(super) struct Reader<'a> {
    pub(super) code: &'a [u8],
    pub(super) at: usize,
}

impl Reader<'_> {
    pub(super) fn peek(&self) -> Option<u8> {
        self.code.get(self.at).copied()
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    pub(super) fn i8(&mut self) -> Option<i32> {
        self.byte().map(|byte| i32::from(byte.cast_signed()))
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        let bytes = self.code.get(self.at..)?.first_chunk()?;
        self.at += 4;
        Some(i32::from_le_bytes(*bytes))
    }

    pub(super) fn skip(&mut self, bytes: usize) -> Option<()> {
        self.at += bytes;
        (self.at <= self.code.len()).then_some(())
    }
}

/// Decoded prefixes: REX bits and the operand size.
#[derive(Clone, Copy, Default)]
pub(super) struct Prefix {
    pub(super) wide: bool,
    pub(super) reg: u8,
    pub(super) rm: u8,
    pub(super) short: bool,
}

impl Prefix {
    pub(super) fn immediate_bytes(self) -> usize {
        if self.short { 2 } else { 4 }
    }
}

/// A ModRM operand with its SIB byte and displacement.
#[derive(Clone, Copy)]
pub(super) struct Operand {
    pub(super) reg: u8,
    /// Register, or base register of the address. `None` for other address forms.
    pub(super) rm: Option<u8>,
    /// Displacement, or `None` for a register operand.
    pub(super) displacement: Option<i32>,
}

impl Operand {
    pub(super) fn read(reader: &mut Reader<'_>, prefix: Prefix) -> Option<Self> {
        let modrm = reader.byte()?;
        let (mode, reg, rm) = (modrm >> 6, modrm >> 3 & 7 | prefix.reg, modrm & 7);
        if mode == 3 {
            return Some(Self {
                reg,
                rm: Some(rm | prefix.rm),
                displacement: None,
            });
        }
        let (mut base, mut absolute) = (Some(rm | prefix.rm), mode == 0 && rm == 5);
        if rm == 4 {
            let sib = reader.byte()?;
            // Only a base register without an index is relevant.
            base = (sib >> 3 & 7 == 4).then_some(sib & 7 | prefix.rm);
            absolute = mode == 0 && sib & 7 == 5;
        }
        let displacement = match mode {
            1 => reader.i8()?,
            2 => reader.i32()?,
            _ if absolute => {
                base = None;
                reader.i32()?
            }
            _ => 0,
        };
        Some(Self {
            reg,
            rm: base,
            displacement: Some(displacement),
        })
    }

    pub(super) fn is_register(&self) -> bool {
        self.displacement.is_none()
    }
}
