//! Makes text from the target safe for each format. Every name in a trace is hostile: whoever is sampled chose it.

use std::borrow::Cow;

/// Longest name that is written, in bytes. PerfView takes any length, but one name is in many frames, and nobody
/// reads more.
const MAX_NAME_BYTES: usize = 2048;

/// PerfView's reader allows 256 bytes from the last `(` to the end of the line; file systems allow 255 per name.
const MAX_MODULE_BYTES: usize = 200;

/// Linux has 15 bytes; more can only come from a foreign trace.
const MAX_COMM_BYTES: usize = 64;

/// Tiers PerfView knows: TraceEvent's `OptimizationTier`.
const TIERS: [&str; 10] = [
    "Unknown",
    "MinOptJitted",
    "Optimized",
    "QuickJitted",
    "OptimizedTier1",
    "OptimizedTier1OSR",
    "QuickJittedInstrumented",
    "OptimizedTier1Instrumented",
    "ReadyToRun",
    "PreJIT",
];

/// The tier as PerfView spells it, or `None` for one it would take for a part of the name.
pub(crate) fn perf_tier(tier: &str) -> Option<&'static str> {
    // Perf maps and the runtime's memory have other words for these than its events, whose words PerfView knows.
    let word = match tier {
        "InstrumentedTier" => "QuickJittedInstrumented",
        "InstrumentedTierOptimized" => "OptimizedTier1Instrumented",
        word => word,
    };
    TIERS.into_iter().find(|known| *known == word)
}

/// A process name for PerfView and perf. PerfView finds the end of one in `perf.data.txt` by looking for ` pid/tid [`, and
/// puts it into a regular expression, so only letters, digits and harmless punctuation remain. Other readers of such text
/// take a line that starts with `#` for a comment.
pub(crate) fn perf_comm(name: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "_.+:#@- ".contains(c);
    let mut comm = collapse_spaces(name.chars().map(|c| if safe(c) { c } else { '_' }));
    if comm.starts_with([':', '-', '#']) {
        comm.insert(0, '_');
    }
    let comm = cut(&comm, MAX_COMM_BYTES).trim_end();
    if comm.is_empty() { "unnamed" } else { comm }.to_owned()
}

/// The same for `perf.data.txt`, of which other readers than PerfView end the name at the first number between spaces.
pub(crate) fn perf_text_comm(name: &str) -> String {
    let comm = perf_comm(name);
    let (first, rest) = comm.split_once(' ').unwrap_or((&comm, ""));
    let words = rest.split_terminator(' ').map(|word| {
        let is_number = word.bytes().all(|b| b.is_ascii_digit());
        format!("{}{word}", if is_number { '_' } else { ' ' })
    });
    std::iter::once(first.to_owned()).chain(words).collect()
}

/// The event's name for a header line. No colon: what follows one is the detail, which decides what kind of event it is.
pub(crate) fn perf_event(name: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let event: String = name
        .chars()
        .map(|c| if safe(c) { c } else { '_' })
        .collect();
    let event = cut(&event, MAX_COMM_BYTES);
    if event.is_empty() { "unnamed" } else { event }.to_owned()
}

/// A module for a frame line, or `None` if nothing of it can be shown. The reader cuts at the last slash, strips
/// brackets, and takes `.map` and `jitted-*.so` for files of perf.
pub(crate) fn perf_module(name: &str) -> Option<String> {
    let name = name.trim().trim_end_matches("(deleted)").trim_end();
    let name = name.rsplit(['/', '\\']).next().unwrap_or(name);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let safe = |c: char| (c.is_ascii_graphic() || c == ' ') && !"()[]!".contains(c);
    let module = collapse_spaces(name.chars().map(|c| if safe(c) { c } else { '_' }));
    let mut module = cut(&module, MAX_MODULE_BYTES).trim_end().to_owned();
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

/// A function's name for a frame line, without its tier. The reader maps bytes to Latin-1, strips enclosing brackets
/// and what looks like an offset, and takes a tier or a number in brackets off the end.
pub(crate) fn perf_symbol(name: &str) -> String {
    let name = name.replace("(anonymous namespace)", "{anonymous}");
    let name = distinct(&name);
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

/// `[x]` and `(x)` become `{x}` at the start: a symbol in brackets loses them, an empty one breaks the reader.
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

/// `f[3]` becomes `f{3}`: the reader takes numbers and names of tiers (also several, in any case) for the tier.
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

/// One frame of a folded stack: no `;`, nothing that ends a line or has no place in XML.
///
/// A trailing number would be read as a second count, and a leading `#` makes the line a comment.
pub(crate) fn folded(name: &str) -> String {
    let mut frame = collapse_spaces(distinct(name).chars().map(|c| match c {
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

/// Text for a terminal or a line of a log: what a terminal would act on is shown as `\u{1b}`.
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

/// The base name of a trace as the name of a folder in its archive: legal on Windows, never a path.
pub(crate) fn entry_name(name: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let entry: String = name
        .chars()
        .map(|c| if safe(c) { c } else { '_' })
        .collect();
    let entry = cut(&entry, MAX_COMM_BYTES).trim_start_matches('.');
    if entry.is_empty() { "capture" } else { entry }.to_owned()
}

/// The first `max` bytes of `text`, never half a character.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len()))
        .rev()
        .find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

/// A name, or the beginning of a longer one with `...` and a checksum of the whole, so that those that differ only later stay two.
pub(crate) fn distinct(name: &str) -> Cow<'_, str> {
    if name.len() <= MAX_NAME_BYTES {
        return name.into();
    }
    let mark = format!("...{:08x}", crc32fast::hash(name.as_bytes()));
    (cut(name, MAX_NAME_BYTES - mark.len()).to_owned() + &mark).into()
}

/// A text of at most `max` bytes besides the mark that says where it was cut.
pub(crate) fn shortened(text: &str, max: usize) -> Cow<'_, str> {
    match cut(text, max) {
        whole if whole.len() == text.len() => whole.into(),
        cut => format!("{cut}…").into(),
    }
}

/// Trims, and makes one space of each run of them.
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

/// Characters that move the cursor, end a line, turn the writing direction or are not allowed in XML.
fn is_unprintable(c: char) -> bool {
    let bidi = matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}');
    let line_end = matches!(c, '\u{2028}' | '\u{2029}');
    c.is_control() || bidi || line_end || matches!(c, '\u{feff}' | '\u{fff9}'..='\u{ffff}')
}

/// Text as one word of a shell.
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
