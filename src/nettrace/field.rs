//! The fields of an event's payload.

/// A field of a payload.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// The field's name, which may be empty.
    pub name: String,
    /// The field's type.
    pub kind: FieldType,
}

/// The encoding of a field. Integers are little-endian. Fields are not aligned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FieldType {
    /// A boolean of one or four bytes.
    Bool {
        /// Size of the field.
        bytes: u8,
    },
    /// One UTF-16 code unit.
    Utf16Unit,
    /// One UTF-8 code unit.
    Utf8Unit,
    /// A signed integer.
    Signed {
        /// Size of the field.
        bytes: u8,
    },
    /// An unsigned integer.
    Unsigned {
        /// Size of the field.
        bytes: u8,
    },
    /// A signed integer as a zigzag LEB128.
    VarSigned,
    /// An unsigned integer as LEB128.
    VarUnsigned,
    /// A floating-point number of four bytes.
    Float,
    /// A floating-point number of eight bytes.
    Double,
    /// Steps of 100 ns since 1601.
    FileTime,
    /// Year, month, day of the week, day, hour, minute, second, millisecond; 16 bits each.
    SystemTime,
    /// A GUID of 16 bytes.
    Guid,
    /// A NUL-terminated UTF-16 string.
    Utf16Text,
    /// A 16-bit count, then the elements.
    Array(Box<FieldType>),
    /// A 32-bit count, then the elements.
    LongArray(Box<FieldType>),
    /// Elements up to the end of the payload.
    Rest(Box<FieldType>),
    /// A fixed number of elements.
    FixedArray(Box<FieldType>, u16),
    /// Size and offset of an array at another position of the payload.
    Located {
        /// The type of the elements.
        element: Box<FieldType>,
        /// Whether the offset counts from the end of this field, not from the start of the payload.
        relative: bool,
    },
    /// Consecutive fields.
    Record(Vec<Field>),
}

/// Returns the approximate memory of fields, in bytes.
pub(super) fn bytes(fields: &[Field]) -> usize {
    let bytes = |field: &Field| size_of::<Field>() + field.name.len() + inner_bytes(&field.kind);
    fields.iter().map(bytes).sum()
}

fn inner_bytes(kind: &FieldType) -> usize {
    match kind {
        FieldType::Record(fields) => bytes(fields),
        FieldType::Array(element)
        | FieldType::LongArray(element)
        | FieldType::Rest(element)
        | FieldType::FixedArray(element, _)
        | FieldType::Located { element, .. } => size_of::<FieldType>() + inner_bytes(element),
        _ => 0,
    }
}
