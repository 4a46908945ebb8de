//! Names and lines in the room that a screen has for them.

use textwrap::core::display_width;

/// Returns a name that fits, or nearly: without its module, and then without its middle, if it is too
/// long.
pub(super) fn fitted(module: &str, method: &str, room: usize) -> String {
    let whole = format!("{module}!{method}");
    if display_width(&whole) <= room {
        return whole;
    }
    let letters: Vec<char> = method.chars().collect();
    if letters.len() <= room {
        return method.to_owned();
    }
    let end = room.saturating_sub(1) / 2;
    let start = room.saturating_sub(end + 1);
    let part = |letters: &[char]| letters.iter().collect::<String>();
    part(&letters[..start]) + "…" + &part(&letters[letters.len() - end..])
}

/// Cuts a line at a width.
fn cut(line: &str, width: usize) -> String {
    let mut taken = 0;
    let fits = |c: &char| {
        taken += display_width(c.encode_utf8(&mut [0; 4]));
        taken <= width
    };
    line.chars().take_while(fits).collect()
}

/// Cuts a line at a width, with a sign that there is more.
pub(crate) fn with_ellipsis(line: &str, width: usize) -> String {
    match display_width(line) <= width {
        true => line.to_owned(),
        false => cut(line, width.saturating_sub(1)) + "…",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_a_name_tell_it_from_others() {
        assert_eq!(fitted("app", "Sort.Round", 14), "app!Sort.Round");
        assert_eq!(fitted("app", "Sort.Round", 13), "Sort.Round");
        assert_eq!(fitted("app", "Sort.Round", 10), "Sort.Round");
        assert_eq!(fitted("app", "Sort.Round", 9), "Sort…ound");
        assert_eq!(fitted("app", "Sort.Round", 8), "Sort…und");
        assert_eq!(fitted("app", "Sort.Round", 1), "…");
        assert_eq!(fitted("app", "Sört…Ründ", 5), "Sö…nd");
    }
}
