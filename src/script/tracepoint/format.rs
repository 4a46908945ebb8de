//! The format of a tracepoint: its fields, and how they are printed.

use super::expression::{Expression, Parser};
use super::print::{KernelNames, Printer};

/// A field of a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) offset: usize,
    pub(super) size: usize,
    pub(super) is_signed: bool,
    /// Bytes of one element, if it is an array.
    pub(super) element: Option<usize>,
    /// Where it holds a place (offset and length of 16 bits each) in place of the value; counted from its own end?
    pub(super) place: Option<DataLoc>,
    /// Whether it is text.
    pub(super) is_text: bool,
    /// Whether it is where something is in the kernel.
    pub(super) is_pointer: bool,
}

/// From where a place in a sample is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataLoc {
    /// From the begin of the sample (`__data_loc`).
    Begin,
    /// From behind the field (`__rel_loc`).
    Field,
}

/// How to print a tracepoint.
pub(super) struct Format {
    pub(super) id: u64,
    pub(super) fields: Vec<Field>,
    /// The text with its conversions, and what they convert; `None`: it is not understood, and all fields are printed.
    printed: Option<(String, Vec<Expression>)>,
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

    /// Appends what a sample says.
    pub(super) fn print(&self, raw: &[u8], names: &KernelNames<'_>, out: &mut Vec<u8>) {
        let printer = Printer {
            format: self,
            raw,
            names,
        };
        let start = out.len();
        if let Some((text, arguments)) = &self.printed
            && printer.print(text, arguments, out).is_some()
        {
            return;
        }
        out.truncate(start);
        printer.print_fields(out);
    }
}

/// `field:char prev_comm[16]; offset:8; size:16; signed:0;`
fn field_of(line: &str) -> Option<Field> {
    let mut parts = line.split(';').map(str::trim);
    let declaration = parts.next()?.strip_prefix(':').or(line.split(';').next())?;
    let declaration = declaration.trim_start_matches(" special:").trim();
    let mut number =
        |key: &str| -> Option<usize> { parts.next()?.strip_prefix(key)?.trim().parse().ok() };
    let (offset, size, signed) = (number("offset:")?, number("size:")?, number("signed:"));
    let (before, name) = declaration.rsplit_once([' ', '*'])?;
    let place = match before {
        _ if before.starts_with("__data_loc") => Some(DataLoc::Begin),
        _ if before.starts_with("__rel_loc") => Some(DataLoc::Field),
        _ => None,
    };
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
        place,
        is_text,
        is_pointer: !is_array && size == 8 && declaration.contains('*'),
    })
}
