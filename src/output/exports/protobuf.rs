//! Messages of protocol buffers.

/// Wire type of a message or string.
const LENGTH: u64 = 2;

/// A message. Fields with the value 0 are left out, as their default.
#[derive(Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    /// Adds a number.
    pub(super) fn number(&mut self, field: u64, value: u64) -> &mut Self {
        if value > 0 {
            varint(&mut self.0, field << 3);
            varint(&mut self.0, value);
        }
        self
    }

    /// Adds a signed number.
    pub(super) fn signed(&mut self, field: u64, value: i64) -> &mut Self {
        self.number(field, value as u64)
    }

    /// Adds a list of numbers.
    pub(super) fn numbers(
        &mut self,
        field: u64,
        values: impl IntoIterator<Item = u64>,
    ) -> &mut Self {
        let mut list = Vec::new();
        values
            .into_iter()
            .for_each(|value| varint(&mut list, value));
        self.bytes(field, &list)
    }

    /// Adds a string.
    pub(super) fn bytes(&mut self, field: u64, bytes: &[u8]) -> &mut Self {
        varint(&mut self.0, field << 3 | LENGTH);
        varint(&mut self.0, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// Adds a message.
    pub(super) fn message(&mut self, field: u64, message: &Self) -> &mut Self {
        self.bytes(field, &message.0)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_fields() {
        let mut message = Message::default();
        message.number(1, 0).number(2, 300).signed(3, -1);
        assert_eq!(message.as_bytes()[..3], [0x10, 0xac, 0x02]);
        assert_eq!(message.as_bytes().len(), 3 + 1 + 10);
        let mut outer = Message::default();
        outer.numbers(1, [1, 128]).bytes(6, b"");
        assert_eq!(outer.as_bytes(), [0x0a, 3, 1, 0x80, 1, 0x32, 0]);
    }
}
