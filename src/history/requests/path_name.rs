//! Paths of requests without ids, so that requests of one kind have one name.

use crate::history::fields::prefix;

/// Stands for a segment of a path that is an id.
const ID: &str = "{id}";
/// Maximum length of a path, in bytes.
const MAX_BYTES: usize = 200;
/// Length from which a segment with a digit is an id, such as a hash or a token.
const MIN_ID_BYTES: usize = 20;

/// Returns a path without query and fragment, which may have secrets, and with `{id}` for segments that are
/// numbers, GUIDs or long words with digits.
pub(super) fn path_name(path: &str) -> String {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let segments = path.split('/').map(|segment| match is_id(segment) {
        true => ID,
        false => segment,
    });
    let mut name = String::new();
    for (number, segment) in segments.enumerate() {
        if number > 0 {
            name.push('/');
        }
        name.push_str(segment);
        if name.len() > MAX_BYTES {
            return prefix(&name, MAX_BYTES).to_owned() + "…";
        }
    }
    name
}

fn is_id(segment: &str) -> bool {
    let digits = segment.bytes().filter(u8::is_ascii_digit).count();
    digits > 0 && (digits == segment.len() || segment.len() >= MIN_ID_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_queries_are_left_out() {
        for (path, expected) in [
            ("/", "/"),
            ("", ""),
            ("/orders", "/orders"),
            ("/orders/17/lines/3", "/orders/{id}/lines/{id}"),
            ("/api/v2/users", "/api/v2/users"),
            ("/reset?token=secret#x", "/reset"),
            ("/f/3f2504e0-4f89-11d3-9a0c-0305e82c3301", "/f/{id}"),
            ("/f/eyJhbGciOiJIUzI1NiJ9", "/f/{id}"),
            (
                "/a-long-name-without-digits/x",
                "/a-long-name-without-digits/x",
            ),
            ("//1//", "//{id}//"),
        ] {
            assert_eq!(path_name(path), expected);
        }
        let long = path_name(&"/é".repeat(1000));
        assert!(long.len() <= MAX_BYTES + "…".len() && long.ends_with('…'));
    }
}
