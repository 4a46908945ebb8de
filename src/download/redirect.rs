//! Where a server sends us on to: another URL of http or https, and never from https to http.

use ureq::http::Uri;

use super::fetch_error::FetchError;

/// The URL that `location`, the header of an answer to `from`, stands for.
///
/// # Errors
/// It is another protocol's, or less safe.
pub(super) fn target(from: &Uri, location: &str) -> Result<Uri, FetchError> {
    let elsewhere = || FetchError::Elsewhere(location.to_owned());
    let scheme = from.scheme_str().unwrap_or_default();
    let authority = from.authority().map_or("", |authority| authority.as_str());
    let has_scheme = location
        .split_once(':')
        .is_some_and(|(scheme, _)| !scheme.contains(['/', '?', '#']));
    let whole = match location {
        location if has_scheme => location.to_owned(),
        location if location.starts_with("//") => format!("{scheme}:{location}"),
        location => format!("{scheme}://{authority}{}", place(from, location)),
    };
    let to: Uri = whole.parse().map_err(|_| elsewhere())?;
    match (scheme, to.scheme_str()) {
        ("https", Some("http")) => Err(FetchError::Downgrade),
        (_, Some("http" | "https")) if to.host().is_some_and(|host| !host.is_empty()) => Ok(to),
        _ => Err(elsewhere()),
    }
}

/// Path and query that a location without a host stands for (RFC 3986, 5.2.2).
fn place(from: &Uri, location: &str) -> String {
    let location = location.split('#').next().unwrap_or_default();
    let (path, query) = match location.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (location, None),
    };
    let directory = || from.path().rsplit_once('/').map_or("", |(path, _)| path);
    let (path, query) = match path {
        "" => (from.path().to_owned(), query.or(from.query())),
        path if path.starts_with('/') => (without_dots(path), query),
        path => (without_dots(&format!("{}/{path}", directory())), query),
    };
    match query {
        Some(query) => format!("{path}?{query}"),
        None => path,
    }
}

/// A path without `.` and `..` (RFC 3986, 5.2.4).
fn without_dots(path: &str) -> String {
    let mut kept = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        if segment == ".." {
            kept.pop();
        }
        match matches!(segment, "." | "..") {
            false => kept.push(segment),
            true if segments.peek().is_none() => kept.push(""),
            true => {}
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirected(from: &str, location: &str) -> Result<String, String> {
        let to = target(&from.parse().unwrap(), location);
        to.map(|uri| uri.to_string())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn any_way_to_name_a_place_is_understood() {
        for (location, expected) in [
            ("https://b:1/c?d", "https://b:1/c?d"),
            ("//b/c", "http://b/c"),
            ("/c:d", "http://a:9/c:d"),
            ("c", "http://a:9/x/c"),
            ("", "http://a:9/x/y?q"),
            ("?r", "http://a:9/x/y?r"),
            ("#part", "http://a:9/x/y?q"),
            ("./c:d", "http://a:9/x/c:d"),
            ("../../z/../c?d=..", "http://a:9/c?d=.."),
            ("..", "http://a:9/"),
            ("/a/b/.", "http://a:9/a/b/"),
        ] {
            let found = redirected("http://a:9/x/y?q", location);
            assert_eq!(found.as_deref(), Ok(expected), "{location}");
        }
    }

    #[test]
    fn what_is_refused_is_said() {
        for location in ["file:///etc/passwd", "ftp://h/x", "http://", "a b", "x:y"] {
            let said = redirected("http://a/x", location).unwrap_err();
            let expected = format!("redirected to {location:?}, which is no URL of http or https");
            assert_eq!(said, expected);
        }
        let said = redirected("https://a/x", "http://a/x").unwrap_err();
        assert_eq!(said, "redirected from https to http");
    }

    proptest::proptest! {
        #[test]
        fn any_text_leads_to_http_or_nowhere(location in ".{0,40}") {
            let from = "https://a:9/x/y".parse().unwrap();
            if let Ok(to) = target(&from, &location) {
                proptest::prop_assert_eq!(to.scheme_str(), Some("https"));
            }
        }
    }
}
