//! The format of a tracepoint: its fields, and how to print them.

use super::expression::{Expression, Parser};

/// A field of a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) offset: usize,
    pub(super) size: usize,
    pub(super) is_signed: bool,
    /// Element size in bytes, if the field is an array.
    pub(super) element: Option<usize>,
    /// Whether the field contains offset and length of the value, 16 bits each (`__data_loc`).
    pub(super) is_dynamic: bool,
    /// Whether the value is a string.
    pub(super) is_text: bool,
    /// Whether the value is a kernel address.
    pub(super) is_pointer: bool,
    /// Whether the type is `long`, which perf prints like an address.
    pub(super) is_long: bool,
}

/// How to print a tracepoint.
pub(super) struct Format {
    pub(super) id: u64,
    pub(super) fields: Vec<Field>,
    /// The format string and its arguments. `None`: unknown, so that all fields are printed.
    pub(super) printed: Option<(String, Vec<Expression>)>,
}

impl Format {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut id = None;
        let mut fields = Vec::new();
        let mut printed = None;
        for line in text.lines() {
            if let Some(number) = line.strip_prefix("ID:") {
                id = number.trim().parse().ok();
            } else if let Some(field) = line.trim_start().strip_prefix("field") {
                fields.extend(field_of(field));
            } else if let Some(print) = line.strip_prefix("print fmt:") {
                printed = Parser::new(print.trim()).print_format();
            }
        }
        Some(Self {
            id: id?,
            fields,
            printed,
        })
    }

    pub(super) fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// Parses `field:char prev_comm[16]; offset:8; size:16; signed:0;`.
fn field_of(line: &str) -> Option<Field> {
    let mut parts = line.split(';').map(str::trim);
    let declaration = parts.next()?.strip_prefix(':').or(line.split(';').next())?;
    let declaration = declaration.trim_start_matches(" special:").trim();
    let mut number =
        |key: &str| -> Option<usize> { parts.next()?.strip_prefix(key)?.trim().parse().ok() };
    let (offset, size, signed) = (number("offset:")?, number("size:")?, number("signed:"));
    let (before, name) = declaration.rsplit_once([' ', '*'])?;
    let (name, count) = match name.split_once('[') {
        Some((name, count)) => (name, count.trim_end_matches(']').parse::<usize>().ok()),
        None => (name, None),
    };
    let is_array = declaration.contains('[');
    let is_text = is_array && before.contains("char") && !before.contains("unsigned char");
    let element = match (is_array, count) {
        (true, Some(count)) => size.checked_div(count),
        (true, None) => Some(1),
        (false, _) => None,
    };
    Some(Field {
        name: name.into(),
        offset,
        size,
        is_signed: signed == Some(1),
        element,
        is_dynamic: before.starts_with("__data_loc"),
        is_text,
        is_pointer: !is_array && size == 8 && declaration.contains('*'),
        is_long: before.contains("long"),
    })
}
