//! Fields of a tracepoint's samples, from its file `events/SYSTEM/NAME/format` of tracefs.

/// A field of a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TracepointField {
    pub(crate) name: String,
    pub(crate) offset: usize,
    pub(crate) size: usize,
    pub(crate) is_signed: bool,
    /// Element size in bytes, if the field is an array.
    pub(crate) element: Option<usize>,
    /// Whether the field contains offset and length of the value, 16 bits each (`__data_loc`).
    pub(crate) is_dynamic: bool,
    /// Whether the value is a string.
    pub(crate) is_text: bool,
    /// Whether the value is a kernel address.
    pub(crate) is_pointer: bool,
    /// Whether the type is `long`, which perf prints like an address.
    pub(crate) is_long: bool,
}

impl TracepointField {
    /// Returns the bytes of the field in the raw data of a sample.
    pub(crate) fn bytes<'a>(&self, raw: &'a [u8]) -> Option<&'a [u8]> {
        raw.get(self.offset..self.offset.checked_add(self.size)?)
    }

    /// Returns the field as an unsigned number of at most 64 bits.
    pub(crate) fn unsigned(&self, raw: &[u8]) -> Option<u64> {
        let mut number = [0; 8];
        let bytes = self.bytes(raw)?;
        number.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(u64::from_le_bytes(number))
    }

    /// Parses the fields of a format.
    pub(crate) fn all(format: &str) -> Vec<Self> {
        format.lines().filter_map(Self::parse_line).collect()
    }

    /// Parses `field:char prev_comm[16]; offset:8; size:16; signed:0;`.
    fn parse_line(line: &str) -> Option<Self> {
        let line = line.trim_start().strip_prefix("field")?;
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
        Some(Self {
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
}

/// Parses the id of a tracepoint in its format, which its samples start with.
pub(crate) fn tracepoint_id(format: &str) -> Option<u64> {
    let mut ids = format.lines().filter_map(|line| line.strip_prefix("ID:"));
    ids.next()?.trim().parse().ok()
}
