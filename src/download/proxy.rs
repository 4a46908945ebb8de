//! Selects the proxy of a URL.
//!
//! Reads `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`, as curl does.

use ureq::Proxy;
use ureq::http::Uri;

/// Returns the proxy for `url` from the environment.
///
/// # Errors
/// Returns a message with the name of the variable whose value is not a proxy URL.
pub(super) fn of(url: &Uri) -> Result<Option<Proxy>, String> {
    match chosen(url, |name| std::env::var(name).ok()) {
        None => Ok(None),
        Some((name, value)) => match Proxy::new(&value) {
            Ok(proxy) => Ok(Some(proxy)),
            Err(_) => Err(format!("{name} is not a proxy URL")),
        },
    }
}

fn chosen(url: &Uri, variable: impl Fn(&str) -> Option<String>) -> Option<(&'static str, String)> {
    let find = |names: &[&'static str]| {
        names.iter().find_map(|&name| {
            let value = variable(name).filter(|value| !value.is_empty())?;
            Some((name, value))
        })
    };
    if let Some((_, exceptions)) = find(&["no_proxy", "NO_PROXY"])
        && is_excepted(url.host().unwrap_or_default(), &exceptions)
    {
        return None;
    }
    match url.scheme_str() {
        // `HTTP_PROXY` is not read: in a CGI program it contains a header of the client.
        Some("http") => find(&["http_proxy", "all_proxy", "ALL_PROXY"]),
        _ => find(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]),
    }
}

/// Returns whether `exceptions` contain a host or one of its parent domains.
fn is_excepted(host: &str, exceptions: &str) -> bool {
    let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
    exceptions.split([',', ' ']).any(|exception| {
        let name = exception.trim_start_matches('*').trim_start_matches('.');
        let name = name.trim_matches(['[', ']']).to_ascii_lowercase();
        let is_subdomain = || {
            host.strip_suffix(&name)
                .is_some_and(|rest| rest.ends_with('.'))
        };
        exception == "*" || (!name.is_empty() && (host == name || is_subdomain()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(url: &str, variables: &[(&str, &str)]) -> Option<String> {
        let variable = |name: &str| {
            let entry = variables.iter().find(|(key, _)| *key == name);
            entry.map(|(_, value)| (*value).to_owned())
        };
        chosen(&url.parse().unwrap(), variable).map(|(_, value)| value)
    }

    #[test]
    fn selects_proxy_by_scheme() {
        let both = [
            ("http_proxy", "h"),
            ("HTTPS_PROXY", "s"),
            ("all_proxy", "a"),
        ];
        assert_eq!(proxy("http://x/", &both).as_deref(), Some("h"));
        assert_eq!(proxy("https://x/", &both).as_deref(), Some("s"));
        assert_eq!(proxy("https://x/", &both[2..]).as_deref(), Some("a"));
        assert_eq!(proxy("http://x/", &[("HTTP_PROXY", "h")]), None);
        assert_eq!(proxy("http://x/", &[("http_proxy", "")]), None);
    }

    #[test]
    fn exceptions_include_subdomains() {
        let all = [
            ("http_proxy", "h"),
            ("no_proxy", "localhost, .corp.example,*.lan,[::1]"),
        ];
        for direct in [
            "localhost:80",
            "corp.example",
            "a.corp.example",
            "b.lan",
            "[::1]:8080",
        ] {
            assert_eq!(proxy(&format!("http://{direct}/"), &all), None, "{direct}");
        }
        for through in ["notcorp.example", "localhost.example", "example"] {
            assert!(
                proxy(&format!("http://{through}/"), &all).is_some(),
                "{through}"
            );
        }
        assert_eq!(
            proxy("http://x/", &[("http_proxy", "h"), ("no_proxy", "*")]),
            None
        );
    }
}
