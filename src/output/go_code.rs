//! Functions of Go programs: those of the runtime and the standard library, and the others.

use rustc_hash::FxHashSet;

use crate::trace::Function;

/// Functions of the runtime that run in every program.
const RUNTIME: [&str; 5] = [
    "runtime.goexit",
    "runtime.goexit.abi0",
    "runtime.main",
    "runtime.mcall",
    "runtime.mstart",
];
/// First parts of the import paths of the standard library.
const STANDARD: [&str; 53] = [
    "archive",
    "arena",
    "bufio",
    "builtin",
    "bytes",
    "cmp",
    "compress",
    "container",
    "context",
    "crypto",
    "database",
    "debug",
    "embed",
    "encoding",
    "errors",
    "expvar",
    "flag",
    "fmt",
    "go",
    "hash",
    "html",
    "image",
    "index",
    "internal",
    "io",
    "iter",
    "log",
    "maps",
    "math",
    "mime",
    "net",
    "os",
    "path",
    "plugin",
    "reflect",
    "regexp",
    "runtime",
    "slices",
    "sort",
    "strconv",
    "strings",
    "structs",
    "sync",
    "syscall",
    "testing",
    "text",
    "time",
    "type",
    "unicode",
    "unique",
    "unsafe",
    "vendor",
    "weak",
];

/// Files with code of Go, by name.
#[derive(Debug)]
pub(super) struct GoFiles<'a>(FxHashSet<&'a str>);

impl<'a> GoFiles<'a> {
    /// Finds the files that have functions of the runtime of Go.
    pub(super) fn of(functions: &'a [Function]) -> Self {
        let is_runtime = |function: &&Function| {
            let name = function.name.as_deref();
            name.is_some_and(|name| RUNTIME.contains(&name))
        };
        let runtimes = functions.iter().filter(is_runtime);
        Self(runtimes.map(|function| &*function.module).collect())
    }

    /// Returns whether a function is of Go's runtime or standard library, or of assembly or C in a file of
    /// Go.
    pub(super) fn is_of_go(&self, module: &str, name: &str) -> bool {
        self.0.contains(module) && is_standard(name)
    }
}

/// Returns whether a function of a Go program is in a package of the standard library, or in none.
fn is_standard(name: &str) -> bool {
    // Receivers and type arguments name other packages.
    let path = name.split(['(', '[']).next().unwrap_or(name);
    if !path.contains('.') {
        // Assembly or C.
        return true;
    }
    // `crypto/sha256.block`, `sort.(*StringSlice).Less`, `type:.eq.net.Addr`; but `go.uber.org/zap.Info`
    let first = match path.split_once('/') {
        Some((first, _)) => first,
        None => path.split('.').next().unwrap_or(path),
    };
    let first = first.split(':').next().unwrap_or(first);
    STANDARD.contains(&first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_the_standard_library_are_known() {
        for name in [
            "runtime.mallocgc",
            "crypto/sha256.block",
            "sort.(*StringSlice).Less",
            "slices.SortFunc[go.shape.[]shop.example/cart.Item]",
            "type:.eq.net/netip.Addr",
            "type:.eq.net/netip.AddrPort",
            "net/http.(*Server).Serve",
            "vendor/golang.org/x/net/idna.ToASCII",
            "memeqbody",
        ] {
            assert!(is_standard(name), "{name}");
        }
        for name in [
            "main.main",
            "main.(*Server).serve",
            "shop.example/cart.Total",
            "github.com/x/sort.Sort",
            "myshop/runtime.Run",
            "sorting.Sort",
            "go.uber.org/zap.Info",
            "net.example/text.Parse",
            "main.Map[go.shape.int,net/netip.Addr]",
        ] {
            assert!(!is_standard(name), "{name}");
        }
    }
}
