//! What the payload of an event holds.

/// A part of a payload.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its name; may be empty.
    pub name: String,
    /// What it is.
    pub kind: FieldType,
}

/// How a part of a payload is stored. Numbers are little-endian and nothing is aligned.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldType {
    /// Four bytes, or one.
    Bool {
        /// Its size.
        bytes: u8,
    },
    /// One unit of UTF-16.
    Utf16Unit,
    /// One unit of UTF-8.
    Utf8Unit,
    /// A signed number.
    Signed {
        /// Its size.
        bytes: u8,
    },
    /// An unsigned number.
    Unsigned {
        /// Its size.
        bytes: u8,
    },
    /// A signed number, zigzag in groups of seven bits.
    VarSigned,
    /// An unsigned number in groups of seven bits.
    VarUnsigned,
    /// Four bytes of floating point.
    Float,
    /// Eight bytes of floating point.
    Double,
    /// Steps of 100 ns since 1601.
    FileTime,
    /// Year, month, day of the week, day, hour, minute, second, millisecond; 16 bits each.
    SystemTime,
    /// 16 bytes.
    Guid,
    /// UTF-16 up to a NUL.
    Utf16Text,
    /// A number of 16 bits, and as many of these.
    Array(Box<FieldType>),
    /// A number of 32 bits, and as many of these.
    LongArray(Box<FieldType>),
    /// As many of these as there are to the end.
    Rest(Box<FieldType>),
    /// As many of these.
    FixedArray(Box<FieldType>, u16),
    /// Size and place of an array elsewhere in the payload.
    Located {
        /// Of what.
        element: Box<FieldType>,
        /// Counted from behind this field, not from the beginning of the payload.
        relative: bool,
    },
    /// Fields one after the other.
    Record(Vec<Field>),
}
