//! Printing the fields of a sample.

use std::io::Write;

use rustc_hash::FxHashMap;

use super::expression::{Expression, truncate, value_of};
use super::format::Format;
use crate::bytes::Bytes;
use crate::perf_data::TracepointField;

/// Maximum width of one conversion.
const MAX_WIDTH: usize = 256;

/// Resolves kernel addresses.
pub(super) struct KernelNames<'a> {
    /// Returns the string at an address.
    pub(super) texts: &'a FxHashMap<u64, String>,
    /// Returns the function at an address, and its start.
    pub(super) function: &'a dyn Fn(u64) -> Option<(String, u64)>,
}

/// A sample and its format.
struct Printer<'a> {
    format: &'a Format,
    raw: &'a [u8],
    names: &'a KernelNames<'a>,
}

/// A conversion such as `%-5lu`.
#[derive(Default)]
struct FormatSpec {
    is_left: bool,
    has_zeros: bool,
    has_prefix: bool,
    width: usize,
    precision: Option<usize>,
    /// Size of the number in bytes.
    bytes: usize,
    kind: char,
    /// The letter after `%p` if the conversion prints the function at an address.
    function: Option<char>,
}

impl Format {
    /// Appends the text of a sample.
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

impl<'a> Printer<'a> {
    /// Prints the format string with its arguments. Returns `None` if it has an unknown part.
    fn print(&self, text: &str, arguments: &[Expression], out: &mut Vec<u8>) -> Option<()> {
        let mut arguments = arguments.iter();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('%') {
            out.extend_from_slice(before.as_bytes());
            if let Some(after) = after.strip_prefix('%') {
                out.push(b'%');
                rest = after;
                continue;
            }
            let (conversion, after) = self.conversion(after, &mut arguments)?;
            self.convert(&conversion, arguments.next()?, out)?;
            rest = after;
        }
        out.extend_from_slice(rest.as_bytes());
        Some(())
    }

    /// Reads flags, width, precision, length and type.
    fn conversion<'t>(
        &self,
        text: &'t str,
        arguments: &mut std::slice::Iter<'_, Expression>,
    ) -> Option<(FormatSpec, &'t str)> {
        let mut conversion = FormatSpec {
            bytes: 4,
            ..FormatSpec::default()
        };
        let mut rest = text;
        while let Some(flag) = rest.chars().next().filter(|c| "-0#".contains(*c)) {
            match flag {
                '-' => conversion.is_left = true,
                '0' => conversion.has_zeros = true,
                _ => conversion.has_prefix = true,
            }
            rest = &rest[1..];
        }
        let mut number = |rest: &mut &'t str| -> Option<usize> {
            if let Some(after) = rest.strip_prefix('*') {
                *rest = after;
                return usize::try_from(self.number(arguments.next()?)?).ok();
            }
            let end = rest
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len());
            let digits = &rest[..end];
            *rest = &rest[end..];
            if digits.is_empty() {
                Some(0)
            } else {
                digits.parse().ok()
            }
        };
        conversion.width = number(&mut rest)?.min(MAX_WIDTH);
        if let Some(after) = rest.strip_prefix('.') {
            rest = after;
            conversion.precision = Some(number(&mut rest)?.min(MAX_WIDTH));
        }
        while let Some(length) = rest.chars().next().filter(|c| "hlLz".contains(*c)) {
            conversion.bytes = match (length, conversion.bytes) {
                ('h', 4) => 2,
                ('h', _) => 1,
                _ => 8,
            };
            rest = &rest[1..];
        }
        let kind = rest.chars().next()?;
        conversion.kind = kind;
        rest = &rest[kind.len_utf8()..];
        if kind == 'p' {
            conversion.function = rest.chars().next().filter(|c| "sS".contains(*c));
            rest = rest.strip_prefix(['s', 'S']).unwrap_or(rest);
        }
        Some((conversion, rest))
    }

    fn convert(&self, conversion: &FormatSpec, of: &Expression, out: &mut Vec<u8>) -> Option<()> {
        let unsigned = || Some(truncate(self.number(of)?, conversion.bytes));
        let prefix = |prefix: &str, digits: String| match conversion.has_prefix && digits != "0" {
            true => format!("{prefix}{digits}"),
            false => digits,
        };
        let text = match conversion.kind {
            // perf prints it differently.
            kind if kind != 's' && conversion.precision.is_some() => return None,
            'd' | 'i' => extend(self.number(of)?, conversion.bytes).to_string(),
            'u' => unsigned()?.to_string(),
            'x' => prefix("0x", format!("{:x}", unsigned()?)),
            'X' => prefix("0X", format!("{:X}", unsigned()?)),
            'o' => prefix("0", format!("{:o}", unsigned()?)),
            'p' => match (conversion.function, self.number(of)?) {
                (Some(kind), address) => self.function(kind, address),
                (None, 0) => "(nil)".into(),
                (None, address) => format!("{address:#x}"),
            },
            's' => {
                let text = self.text(of)?;
                let most = conversion.precision.unwrap_or(usize::MAX);
                text.chars().take(most).collect()
            }
            _ => return None,
        };
        pad(conversion, &text, out);
        Some(())
    }

    /// Prints `name` for `%ps`, `name+0x10c` for `%pS`.
    fn function(&self, kind: char, address: u64) -> String {
        let Some((name, start)) = (self.names.function)(address) else {
            return format!("{address:#x}");
        };
        match kind {
            'S' => format!("{name}+{:#x}", address - start),
            _ => name,
        }
    }

    fn number(&self, of: &Expression) -> Option<u64> {
        value_of(of, &mut |leaf| match leaf {
            Expression::Field(name) => self.field_number(self.format.field(name)?),
            Expression::Element(name, at) => {
                let field = self.format.field(name)?;
                let at = usize::try_from(self.number(at)?).ok()?;
                let bytes = self.bytes(field)?;
                let size = field.element.filter(|size| (1..=8).contains(size))?;
                let from = at.checked_mul(size)?;
                integer(bytes.get(from..)?.get(..size)?, field.is_signed)
            }
            // As perf interprets it.
            Expression::Unknown => Some(0),
            _ => None,
        })
    }

    /// Returns the bytes of a field at any place of the sample.
    fn bytes(&self, field: &TracepointField) -> Option<&'a [u8]> {
        let stored = self.raw.get(field.offset..)?.get(..field.size)?;
        if !field.is_dynamic {
            return Some(stored);
        }
        let place = Bytes(stored).u32()?;
        let (offset, len) = ((place & 0xffff) as usize, (place >> 16) as usize);
        self.raw.get(offset..)?.get(..len)
    }

    fn field_number(&self, field: &TracepointField) -> Option<u64> {
        integer(self.bytes(field)?, field.is_signed)
    }

    fn text(&self, of: &Expression) -> Option<String> {
        Some(match of {
            Expression::Text(text) => text.clone(),
            Expression::Field(name) | Expression::TextOf(name) => {
                let field = self.format.field(name)?;
                if field.is_pointer {
                    let address = self.field_number(field)?;
                    let text = self.names.texts.get(&address);
                    return Some(text.map_or_else(|| format!("{address:x}"), String::clone));
                }
                let text = Bytes(self.bytes(field)?).c_string();
                String::from_utf8_lossy(text).into_owned()
            }
            Expression::Choice(condition, yes, no) => match self.number(condition)? {
                0 => self.text(no)?,
                _ => self.text(yes)?,
            },
            Expression::Flags(value, between, names) => flags(self.number(value)?, between, names),
            Expression::Symbolic(value, names) => {
                let value = self.number(value)?;
                let name = names.iter().find(|(of, _)| *of == value);
                name.map_or_else(|| format!("{value:#x}"), |(_, name)| name.clone())
            }
            _ => return None,
        })
    }

    /// Prints all fields but the common ones, as perf does if it cannot parse a format.
    fn print_fields(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"[FAILED TO PARSE]");
        let fields = self.format.fields.iter();
        for field in fields.filter(|field| !field.name.starts_with("common_")) {
            // Writing to memory cannot fail.
            let _ = write!(out, " {}=", field.name);
            match self.bytes(field) {
                Some(bytes) if field.is_text => {
                    let text = String::from_utf8_lossy(Bytes(bytes).c_string()).into_owned();
                    out.extend(text.bytes().map(|byte| byte.max(b' ')));
                }
                Some(bytes) if field.element.is_some() => {
                    let bytes: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                    let _ = write!(out, "ARRAY[{}]", bytes.join(", "));
                }
                Some(bytes) => match integer(bytes, field.is_signed) {
                    Some(number) if field.is_signed => drop(write!(out, "{}", number as i64)),
                    Some(number) if field.is_pointer || field.is_long => {
                        drop(write!(out, "{number:#x}"));
                    }
                    Some(number) => drop(write!(out, "{number}")),
                    None => out.push(b'?'),
                },
                None => out.push(b'?'),
            }
        }
    }
}

fn flags(value: u64, between: &str, names: &[(u64, String)]) -> String {
    let mut left = value;
    let mut text = String::new();
    let mut add = |name: &str| {
        if !text.is_empty() {
            text.push_str(between);
        }
        text.push_str(name);
    };
    for (flag, name) in names {
        if *flag != 0 && left & flag == *flag {
            add(name);
            left &= !flag;
        }
    }
    if left != 0 {
        add(&format!("{left:#x}"));
    }
    text
}

/// Returns a number of up to eight bytes.
fn integer(bytes: &[u8], is_signed: bool) -> Option<u64> {
    let mut number = [0; 8];
    number.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let value = u64::from_le_bytes(number);
    Some(match is_signed {
        true => extend(value, bytes.len()) as u64,
        false => value,
    })
}

/// Sign-extends the lowest bytes of a number.
fn extend(value: u64, bytes: usize) -> i64 {
    let unused = 64_u32.saturating_sub(8 * bytes as u32).min(63);
    (value << unused) as i64 >> unused
}

fn pad(conversion: &FormatSpec, text: &str, out: &mut Vec<u8>) {
    let width = conversion.width;
    let padded = match (
        conversion.is_left,
        conversion.has_zeros && conversion.kind != 's',
    ) {
        (true, _) => format!("{text:<width$}"),
        (false, true) => {
            // Zeros follow a sign or prefix.
            let mut fronts = ["0x", "0X", "-"].into_iter();
            let front = fronts.find(|front| text.starts_with(front)).unwrap_or("");
            let width = width.saturating_sub(front.len());
            format!("{front}{:0>width$}", &text[front.len()..])
        }
        (false, false) => format!("{text:>width$}"),
    };
    out.extend(padded.bytes().map(|byte| byte.max(b' ')));
}
