//! Servers and caches, from the options and the environment.

use std::path::{Path, PathBuf};

use super::module::Module;
use super::server::{Layout, Server, cache_paths};

const SYMBOL_PATH: &str = "_NT_SYMBOL_PATH";
const DEBUGINFOD_URLS: &str = "DEBUGINFOD_URLS";

/// Servers and caches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// Servers, in the order of the queries.
    pub servers: Vec<Server>,
    /// Invalid parts of the environment, as `VARIABLE: PART`.
    pub ignored: Vec<String>,
    symbols: Option<PathBuf>,
    debuginfod: Option<PathBuf>,
    /// Other directories with the layout of a symbol server.
    stores: Vec<PathBuf>,
}

impl Sources {
    /// Reads `_NT_SYMBOL_PATH` and `DEBUGINFOD_URLS` from the environment of this process.
    ///
    /// Adds Microsoft's server if `_NT_SYMBOL_PATH` is not set. If `servers` is not empty, it
    /// replaces the servers of the environment.
    #[must_use]
    pub fn new(servers: &[Server]) -> Self {
        let variable =
            |name: &str| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned());
        Self::from_variables(servers, |name| {
            variable(name).filter(|value| !value.is_empty())
        })
    }

    /// Returns whether a server may have the debug files of distributions.
    #[must_use]
    pub fn has_debuginfod(&self) -> bool {
        let mut layouts = self.servers.iter().map(|server| server.layout);
        layouts.any(|layout| layout == Layout::Debuginfod)
    }

    fn from_variables(servers: &[Server], variable: impl Fn(&str) -> Option<String>) -> Self {
        let home = || variable("HOME").map(|home| Path::new(&home).join(".cache"));
        let caches = variable("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(home);
        let below = |name| caches.as_ref().map(|caches| caches.join(name));
        let mut sources = Self {
            symbols: below("perfcollect/symbols"),
            debuginfod: variable("DEBUGINFOD_CACHE_PATH")
                .map(PathBuf::from)
                .or_else(|| below("debuginfod_client")),
            ..Self::default()
        };
        match variable(SYMBOL_PATH) {
            Some(path) => sources.add_symbol_path(&path),
            None => sources.servers.push(Server::microsoft()),
        }
        for url in variable(DEBUGINFOD_URLS)
            .iter()
            .flat_map(|urls| urls.split_whitespace())
        {
            sources.add_server(Layout::Debuginfod, url);
        }
        if !servers.is_empty() {
            sources.servers = servers.to_vec();
        }
        sources
    }

    /// Adds the servers and directories of `srv*CACHE*URL;srv*URL;cache*DIR;DIR`.
    ///
    /// This is the syntax of Microsoft's debuggers. The first directory is the cache.
    fn add_symbol_path(&mut self, path: &str) {
        let mut directories = Vec::new();
        for element in path.split(';').map(str::trim).filter(|e| !e.is_empty()) {
            let mut words = element.split('*').map(str::trim).peekable();
            match words
                .peek()
                .map(|word| word.to_ascii_lowercase())
                .as_deref()
            {
                Some("srv" | "cache") => drop(words.next()),
                // The name of a DLL follows.
                Some("symsrv") => drop(words.by_ref().take(2).count()),
                _ => {}
            }
            for word in words.filter(|word| !word.is_empty()) {
                if word.contains("://") {
                    self.add_server(Layout::SymbolServer, word);
                } else if Path::new(word).is_absolute() {
                    directories.push(PathBuf::from(word));
                } else {
                    self.ignored.push(format!("{SYMBOL_PATH}: {word}"));
                }
            }
        }
        let mut directories = directories.into_iter();
        if let Some(first) = directories.next() {
            self.stores.extend(self.symbols.replace(first));
            self.stores.extend(directories);
        }
    }

    fn add_server(&mut self, layout: Layout, url: &str) {
        match Server::new(layout, url) {
            Some(server) if self.servers.contains(&server) => {}
            Some(server) => self.servers.push(server),
            None => {
                let variable = match layout {
                    Layout::SymbolServer => SYMBOL_PATH,
                    Layout::Debuginfod => DEBUGINFOD_URLS,
                };
                self.ignored.push(format!("{variable}: {url}"));
            }
        }
    }

    /// Returns the cache of a layout, or `None` if the environment does not locate one.
    pub(super) fn cache(&self, layout: Layout) -> Option<&Path> {
        match layout {
            Layout::SymbolServer => self.symbols.as_deref(),
            Layout::Debuginfod => self.debuginfod.as_deref(),
        }
    }

    /// Returns the cache paths where a module's debug file may be.
    ///
    /// A file at such a path may be another one. The caller must verify its build id.
    #[must_use]
    pub fn cache_paths(&self, module: &Module) -> Vec<PathBuf> {
        let symbol_paths = cache_paths(Layout::SymbolServer, module);
        let below = |directory: &PathBuf| -> Vec<PathBuf> {
            let paths = symbol_paths.iter();
            paths.map(|path| directory.join(path)).collect()
        };
        let stores = self.symbols.iter().chain(&self.stores).flat_map(below);
        let debuginfod_paths = cache_paths(Layout::Debuginfod, module);
        let debuginfod = self.debuginfod.iter();
        let debuginfod =
            debuginfod.flat_map(|cache| debuginfod_paths.iter().map(|path| cache.join(path)));
        stores.chain(debuginfod).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(servers: &[Server], variables: &[(&str, &str)]) -> Sources {
        Sources::from_variables(servers, |name| {
            let entry = variables.iter().find(|(key, _)| *key == name);
            entry.map(|(_, value)| (*value).to_owned())
        })
    }

    fn symbol_server(url: &str) -> Server {
        Server::symbol_server(url).unwrap()
    }

    #[test]
    fn default_servers_are_replaced_by_given_servers() {
        let urls = ("DEBUGINFOD_URLS", "https://a/ https://b");
        let debuginfod = |url| Server::new(Layout::Debuginfod, url).unwrap();
        let both = [debuginfod("https://a"), debuginfod("https://b")];
        let parsed = sources(&[], &[urls]).servers;
        assert_eq!(parsed[0], Server::microsoft());
        assert_eq!(parsed[1..], both);
        let parsed = sources(&[], &[urls, ("_NT_SYMBOL_PATH", "srv*http://s")]).servers;
        assert_eq!(parsed[0], symbol_server("http://s"));
        assert_eq!(parsed[1..], both);
        let only = [symbol_server("http://mine")];
        assert_eq!(sources(&only, &[urls]).servers, only);
    }

    #[test]
    fn parses_caches_and_servers_of_symbol_path() {
        let path = "srv*/c*https://one;SRV*/d*https://two; cache*/e ;symsrv*symsrv.dll*http://three;C:\\sym;ftp://x";
        let parsed = sources(&[], &[("_NT_SYMBOL_PATH", path), ("HOME", "/h")]);
        let servers = ["https://one", "https://two", "http://three"].map(symbol_server);
        assert_eq!(parsed.servers, servers);
        assert_eq!(parsed.cache(Layout::SymbolServer), Some(Path::new("/c")));
        let stores = ["/h/.cache/perfcollect/symbols", "/d", "/e"].map(PathBuf::from);
        assert_eq!(parsed.stores, stores);
        assert_eq!(
            parsed.ignored,
            ["_NT_SYMBOL_PATH: C:\\sym", "_NT_SYMBOL_PATH: ftp://x"]
        );
    }

    #[test]
    fn caches_follow_environment_variables() {
        let id = perfcollect_symbols::build_id::BuildId::from_bytes(&[0xcd; 20]).unwrap();
        let (module, hex) = (Module::from_build_id(id), "cd".repeat(20));
        let key = format!("_.debug/elf-buildid-sym-{hex}/_.debug");
        assert_eq!(
            sources(&[], &[("HOME", "/h")]).cache_paths(&module),
            [
                format!("/h/.cache/perfcollect/symbols/{key}"),
                format!("/h/.cache/debuginfod_client/{hex}/debuginfo"),
            ]
            .map(PathBuf::from)
        );
        let moved = [("XDG_CACHE_HOME", "/x"), ("DEBUGINFOD_CACHE_PATH", "/d")];
        assert_eq!(
            sources(&[], &moved).cache_paths(&module),
            [
                format!("/x/perfcollect/symbols/{key}"),
                format!("/d/{hex}/debuginfo")
            ]
            .map(PathBuf::from)
        );
        assert!(sources(&[], &[]).cache_paths(&module).is_empty());
    }
}
