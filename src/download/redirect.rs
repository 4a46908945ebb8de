//! Resolves redirects: only to `http` and `https` URLs, and never from `https` to `http`.

use ureq::http::Uri;

use super::fetch_error::FetchError;

/// Returns the URL of a `Location` header in the response from `from`.
///
/// # Errors
/// Returns an error if the URL has another scheme, or redirects from `https` to `http`.
pub(super) fn target(from: &Uri, location: &str) -> Result<Uri, FetchError> {
    let invalid = || FetchError::Elsewhere(location.to_owned());
    let scheme = from.scheme_str().unwrap_or_default();
    let authority = from.authority().map_or("", |authority| authority.as_str());
    let has_scheme = location
        .split_once(':')
        .is_some_and(|(scheme, _)| !scheme.contains(['/', '?', '#']));
    let whole = match location {
        location if has_scheme => location.to_owned(),
        location if location.starts_with("//") => format!("{scheme}:{location}"),
        location => format!("{scheme}://{authority}{}", resolve(from, location)),
    };
    let to: Uri = whole.parse().map_err(|_| invalid())?;
    match (scheme, to.scheme_str()) {
        ("https", Some("http")) => Err(FetchError::Downgrade),
        (_, Some("http" | "https")) if to.host().is_some_and(|host| !host.is_empty()) => Ok(to),
        _ => Err(invalid()),
    }
}

/// Returns path and query of a location without a host (RFC 3986, 5.2.2).
fn resolve(from: &Uri, location: &str) -> String {
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

/// Removes the segments `.` and `..` from a path (RFC 3986, 5.2.4).
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
    fn resolves_absolute_and_relative_locations() {
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
            let target = redirected("http://a:9/x/y?q", location);
            assert_eq!(target.as_deref(), Ok(expected), "{location}");
        }
    }

    #[test]
    fn rejects_other_schemes_and_downgrades() {
        for location in ["file:///etc/passwd", "ftp://h/x", "http://", "a b", "x:y"] {
            let error = redirected("http://a/x", location).unwrap_err();
            let expected = format!("redirected to {location:?}, which is not an http or https URL");
            assert_eq!(error, expected);
        }
        let error = redirected("https://a/x", "http://a/x").unwrap_err();
        assert_eq!(error, "redirected from https to http");
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_location_stays_on_https_or_fails(location in ".{0,40}") {
            let from = "https://a:9/x/y".parse().unwrap();
            if let Ok(to) = target(&from, &location) {
                proptest::prop_assert_eq!(to.scheme_str(), Some("https"));
            }
        }
    }
}
