//! Servers of debug files, and the URLs of files on them.

use std::path::PathBuf;

use super::module::Module;

/// Microsoft's symbol server, which has .NET's native symbols.
const MICROSOFT: &str = "https://msdl.microsoft.com/download/symbols";

/// Layout of the files on a server and in its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// `NAME/KEY/NAME`, as dotnet/symstore specifies in "Simple Symbol Query Protocol".
    SymbolServer,
    /// `buildid/HEX/debuginfo`, as debuginfod(8) specifies.
    Debuginfod,
}

/// A server of debug files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub(super) layout: Layout,
    /// URL without a trailing slash.
    url: String,
}

/// A file on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RemoteFile {
    /// URL of the file.
    pub(super) url: String,
    /// Path in the cache of the layout.
    pub(super) path: PathBuf,
}

impl Server {
    pub(super) fn new(layout: Layout, url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let is_http = ["http", "https"]
            .iter()
            .any(|supported| scheme.eq_ignore_ascii_case(supported));
        let is_clean = !rest.contains(|c: char| c.is_control() || c.is_whitespace());
        (is_http && is_clean && !rest.trim_end_matches('/').is_empty()).then(|| Self {
            layout,
            url: url.trim_end_matches('/').to_owned(),
        })
    }

    /// Creates a symbol server. Returns `None` if `url` is not an `http` or `https` URL.
    #[must_use]
    pub fn symbol_server(url: &str) -> Option<Self> {
        Self::new(Layout::SymbolServer, url)
    }

    /// Returns the default symbol server.
    pub(super) fn microsoft() -> Self {
        Self {
            layout: Layout::SymbolServer,
            url: MICROSOFT.into(),
        }
    }

    /// Returns the files that may have a module's symbols, in the order of the requests.
    pub(super) fn entries(&self, module: &Module) -> Vec<RemoteFile> {
        let entry = |(query, path): (String, PathBuf)| RemoteFile {
            url: format!("{}/{query}", self.url),
            path,
        };
        match self.layout {
            Layout::SymbolServer => keys(module)
                .into_iter()
                .map(|[name, key]| {
                    let query = format!("{}/{key}/{}", encoded(&name), encoded(&name));
                    (query, [&name, &key, &name].iter().collect())
                })
                .map(entry)
                .collect(),
            Layout::Debuginfod => {
                let id = module.build_id.to_string();
                let query = format!("buildid/{id}/debuginfo");
                vec![entry((query, [&*id, "debuginfo"].iter().collect()))]
            }
        }
    }
}

/// Returns the paths of a module's files in a cache of a layout.
pub(super) fn cache_paths(layout: Layout, module: &Module) -> Vec<PathBuf> {
    let server = Server {
        layout,
        url: String::new(),
    };
    let entries = server.entries(module).into_iter();
    entries.map(|entry| entry.path).collect()
}

/// Returns names and keys on a symbol server, of the debug file and of the image.
///
/// The image has the symbols if it is not stripped.
fn keys(module: &Module) -> Vec<[String; 2]> {
    let id = &module.build_id;
    let debug = ["_.debug".to_owned(), format!("elf-buildid-sym-{id}")];
    let image = module
        .file_name()
        .map(|name| [name.to_lowercase(), format!("elf-buildid-{id}")]);
    [Some(debug), image].into_iter().flatten().collect()
}

/// Percent-encodes a name as part of a URL.
fn encoded(name: &str) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    name.bytes()
        .map(|byte| match keep(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use perfcollect_symbols::build_id::BuildId;

    use super::*;

    fn module(path: &str) -> Module {
        Module {
            path: path.into(),
            build_id: "180a373d6afbabf0eb1f09be1bc45bd796a71085"
                .parse::<BuildId>()
                .unwrap(),
            debug_link: None,
        }
    }

    fn urls(server: &Server, path: &str) -> Vec<String> {
        let entries = server.entries(&module(path));
        entries.into_iter().map(|entry| entry.url).collect()
    }

    #[test]
    fn symbol_server_requests_debug_file_then_image() {
        let server = Server::symbol_server("http://h/s/").unwrap();
        let id = "180a373d6afbabf0eb1f09be1bc45bd796a71085";
        assert_eq!(
            urls(&server, "/opt/libFoo+1.so"),
            [
                format!("http://h/s/_.debug/elf-buildid-sym-{id}/_.debug"),
                format!("http://h/s/libfoo%2B1.so/elf-buildid-{id}/libfoo%2B1.so"),
            ]
        );
        assert_eq!(urls(&server, "").len(), 1);
        assert_eq!(
            cache_paths(Layout::SymbolServer, &module("libFoo.so"))[1],
            PathBuf::from(format!("libfoo.so/elf-buildid-{id}/libfoo.so"))
        );
    }

    #[test]
    fn debuginfod_requests_by_build_id() {
        let server = Server::new(Layout::Debuginfod, "https://d.example").unwrap();
        let id = "180a373d6afbabf0eb1f09be1bc45bd796a71085";
        let expected = [format!("https://d.example/buildid/{id}/debuginfo")];
        assert_eq!(urls(&server, "/opt/libfoo.so"), expected);
    }

    #[test]
    fn rejects_urls_other_than_http() {
        for bad in [
            "",
            "ftp://h",
            "file:///etc",
            "http://",
            "https:///",
            "h",
            "http://h/a b",
        ] {
            assert_eq!(Server::symbol_server(bad), None, "{bad}");
        }
    }
}
