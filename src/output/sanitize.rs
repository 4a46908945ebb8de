//! Escapes strings of the target for each format. Every name in a trace is untrusted.

use std::borrow::Cow;

use perfcollect_symbols::dotnet_name::TIERS;

/// Maximum length of a name, in bytes.
///
/// PerfView accepts any length, but one name occurs in many frames.
const MAX_NAME_BYTES: usize = 2048;

/// Maximum length of a module name, in bytes.
///
/// PerfView's reader allows 256 bytes from the last `(` to the end of the line. File systems allow
/// 255 per name.
const MAX_MODULE_BYTES: usize = 200;

/// Maximum length of a process name, in bytes. Linux has 15; longer names come from imported
/// traces.
const MAX_COMM_BYTES: usize = 64;

/// Returns PerfView's name of a tier, or `None` for one that PerfView would read as part of the
/// name.
pub(crate) fn perf_tier(tier: &str) -> Option<&'static str> {
    TIERS.into_iter().find(|supported| *supported == tier)
}

/// Escapes a process name for PerfView and perf.
///
/// PerfView searches `perf.data.txt` for ` pid/tid [` to find the end of a name, and inserts the
/// name into a regular expression. Therefore only letters, digits and safe punctuation remain.
/// Other readers of such files treat a line that starts with `#` as a comment.
pub(crate) fn perf_comm(name: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "_.+:#@- ".contains(c);
    let mut comm = collapse_spaces(name.chars().map(|c| if safe(c) { c } else { '_' }));
    if comm.starts_with([':', '-', '#']) {
        comm.insert(0, '_');
    }
    let comm = truncate(&comm, MAX_COMM_BYTES).trim_end();
    if comm.is_empty() { "unnamed" } else { comm }.to_owned()
}

/// Escapes a process name for `perf.data.txt`.
///
/// Readers other than PerfView end the name at the first number between spaces.
pub(crate) fn perf_text_comm(name: &str) -> String {
    let comm = perf_comm(name);
    let (first, rest) = comm.split_once(' ').unwrap_or((&comm, ""));
    let words = rest.split_terminator(' ').map(|word| {
        let is_number = word.bytes().all(|b| b.is_ascii_digit());
        format!("{}{word}", if is_number { '_' } else { ' ' })
    });
    std::iter::once(first.to_owned()).chain(words).collect()
}

/// Escapes the name of an event for a header line.
///
/// The result has no colon. Readers parse the part after a colon as the detail, which determines
/// the kind of the event.
pub(crate) fn perf_event(name: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let event: String = name
        .chars()
        .map(|c| if safe(c) { c } else { '_' })
        .collect();
    let event = truncate(&event, MAX_COMM_BYTES);
    if event.is_empty() { "unnamed" } else { event }.to_owned()
}

/// Escapes a module name for a frame line, or returns `None` if nothing remains of it.
///
/// The reader removes directories and brackets, and treats `.map` and `jitted-*.so` as files of
/// perf.
pub(crate) fn perf_module(name: &str) -> Option<String> {
    let name = name.trim().trim_end_matches("(deleted)").trim_end();
    let name = name.rsplit(['/', '\\']).next().unwrap_or(name);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let safe = |c: char| (c.is_ascii_graphic() || c == ' ') && !"()[]!".contains(c);
    let module = collapse_spaces(name.chars().map(|c| if safe(c) { c } else { '_' }));
    let mut module = truncate(&module, MAX_MODULE_BYTES).trim_end().to_owned();
    if module.to_ascii_lowercase().ends_with(".map") {
        let dot = module.len() - ".map".len();
        module.replace_range(dot..=dot, "_");
    }
    if module.to_ascii_lowercase().starts_with("jitted-") {
        let dash = "jitted".len();
        module.replace_range(dash..=dash, "_");
    }
    (!module.is_empty() && module != "unknown").then_some(module)
}

/// Escapes the name of a function, without its tier, for a frame line.
///
/// The reader decodes bytes as Latin-1. It removes enclosing brackets, a suffix that looks like an
/// offset, and a tier or a number in brackets at the end.
pub(crate) fn perf_symbol(name: &str) -> String {
    let name = name.replace("(anonymous namespace)", "{anonymous}");
    let name = truncate_distinct(&name);
    let mut ascii = String::with_capacity(name.len());
    for c in name.chars() {
        if c == ' ' || c.is_ascii_graphic() {
            ascii.push(c);
        } else {
            ascii.extend(c.escape_unicode());
        }
    }
    let mut symbol = collapse_spaces(ascii.chars()).replace("+0x", "_0x");
    disarm_leading_bracket(&mut symbol);
    disarm_tier(&mut symbol);
    if symbol.is_empty() {
        symbol.push('_');
    }
    symbol
}

/// Replaces `[x]` and `(x)` at the start by `{x}`.
///
/// The reader removes brackets around a symbol, and fails on an empty symbol.
fn disarm_leading_bracket(symbol: &mut String) {
    let (open, close) = match symbol.as_bytes().first() {
        Some(b'(') => ('(', ')'),
        Some(b'[') => ('[', ']'),
        _ => return,
    };
    let mut depth = 0;
    let end = symbol.char_indices().find_map(|(at, c)| {
        depth += i32::from(c == open) - i32::from(c == close);
        (depth == 0).then_some(at)
    });
    if let Some(end) = end {
        symbol.replace_range(end..=end, "}");
    }
    symbol.replace_range(..1, "{");
}

/// Replaces `f[3]` by `f{3}`.
///
/// The reader parses numbers and tier names in brackets as the tier, also several and in any case.
fn disarm_tier(symbol: &mut String) {
    let Some((open, inner)) = symbol.strip_suffix(']').and_then(|rest| {
        let open = rest.rfind('[')?;
        Some((open, &rest[open + 1..]))
    }) else {
        return;
    };
    let is_tier = |part: &str| {
        let number = part.trim_start_matches(['+', '-']);
        TIERS.iter().any(|tier| part.eq_ignore_ascii_case(tier))
            || number.bytes().all(|digit| digit.is_ascii_digit())
    };
    if inner.split(',').all(|part| is_tier(part.trim())) {
        let close = symbol.len() - 1;
        symbol.replace_range(close.., "}");
        symbol.replace_range(open..=open, "{");
    }
}

/// Escapes one frame of a folded stack: no `;`, no line ends, and no characters invalid in XML.
///
/// Readers would parse a trailing number as a second count, and a leading `#` as a comment.
pub(crate) fn folded(name: &str) -> String {
    let mut frame = collapse_spaces(truncate_distinct(name).chars().map(|c| match c {
        ';' => ':',
        c if is_unprintable(c) => '_',
        c => c,
    }));
    if let Some(space) = frame.rfind(' ')
        && frame[space + 1..]
            .bytes()
            .all(|b| b.is_ascii_digit() || b == b'.')
    {
        frame.replace_range(space..=space, "_");
    }
    if frame.starts_with('#') {
        frame.replace_range(..1, "_");
    }
    if frame.is_empty() {
        frame.push('_');
    }
    frame
}

/// Escapes a string for a terminal or a log line: control characters become `\u{1b}`.
pub(crate) fn terminal(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unprintable(c) {
            escaped.extend(c.escape_unicode());
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// Escapes the base name of a trace for a directory in its archive: valid on Windows, never a path.
pub(crate) fn entry_name(name: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let entry: String = name
        .chars()
        .map(|c| if safe(c) { c } else { '_' })
        .collect();
    let entry = truncate(&entry, MAX_COMM_BYTES).trim_start_matches('.');
    if entry.is_empty() { "capture" } else { entry }.to_owned()
}

/// Returns at most the first `max` bytes of `text`, up to a character boundary.
pub(crate) fn truncate(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len()))
        .rev()
        .find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

/// Shortens a long name: appends `...` and a checksum, so that different names stay different.
pub(crate) fn truncate_distinct(name: &str) -> Cow<'_, str> {
    if name.len() <= MAX_NAME_BYTES {
        return name.into();
    }
    let suffix = format!("...{:08x}", crc32fast::hash(name.as_bytes()));
    (truncate(name, MAX_NAME_BYTES - suffix.len()).to_owned() + &suffix).into()
}

/// Truncates a string to `max` bytes. Appends `…` if it was longer.
pub(crate) fn truncate_with_ellipsis(text: &str, max: usize) -> Cow<'_, str> {
    match truncate(text, max) {
        whole if whole.len() == text.len() => whole.into(),
        truncated => format!("{truncated}…").into(),
    }
}

/// Removes leading and trailing spaces, and replaces each run of spaces by one.
fn collapse_spaces(text: impl Iterator<Item = char>) -> String {
    let mut out = String::new();
    for c in text {
        if c != ' ' || !(out.is_empty() || out.ends_with(' ')) {
            out.push(c);
        }
    }
    out.truncate(out.trim_end_matches(' ').len());
    out
}

/// Returns whether a character moves the cursor, ends a line, changes the text direction or is
/// invalid in XML.
pub(crate) fn is_unprintable(c: char) -> bool {
    let bidi = matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}');
    let line_end = matches!(c, '\u{2028}' | '\u{2029}');
    c.is_control() || bidi || line_end || matches!(c, '\u{feff}' | '\u{fff9}'..='\u{ffff}')
}

/// Escapes characters of JSON that a terminal must not get. serde_json escapes only those of ASCII.
#[must_use]
pub(crate) fn json_text(json: &str) -> Cow<'_, str> {
    let is_harmful = |c: char| !c.is_ascii_control() && is_unprintable(c) || c == '\u{7f}';
    if !json.contains(is_harmful) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match is_harmful(c) {
            true => {
                let units = &mut [0; 2];
                let units = c.encode_utf16(units).iter();
                out.extend(units.map(|unit| format!("\\u{unit:04x}")));
            }
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Quotes words as a line for a shell.
#[must_use]
pub(crate) fn shell_line(words: impl Iterator<Item = impl AsRef<str>>) -> String {
    let words: Vec<_> = words.map(|word| shell_word(word.as_ref())).collect();
    words.join(" ")
}

/// Escapes a text for CSV, for programs that take some text for formulas.
#[must_use]
pub(crate) fn csv_text(text: &str) -> Cow<'_, str> {
    let text = terminal(text);
    match text.starts_with(['=', '+', '-', '@']) {
        true => format!("'{text}").into(),
        false => text,
    }
}

/// Quotes a string as one word for a shell, if necessary.
#[must_use]
pub(crate) fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./+,:=@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
#[path = "sanitize_tests.rs"]
mod tests;
