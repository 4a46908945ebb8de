//! The user's own code: what is neither the kernel, nor a runtime or framework, nor a library of
//! the system.

use rustc_hash::FxHashMap;

use super::go_code::GoFiles;
use crate::trace::{Function, FunctionId, FunctionKind, Trace};

/// Assemblies of .NET and its libraries, by the first part of their names.
const FRAMEWORK: [&str; 2] = ["System", "Microsoft"];
/// Other modules of managed code that the user did not write: assemblies and placeholders.
const RUNTIME_MODULES: [&str; 7] = [
    "mscorlib",
    "netstandard",
    "WindowsBase",
    "Microsoft",
    "stub",
    "stubs",
    "jit",
];
/// Native libraries of runtimes, wherever they are, by the start of their file names.
const RUNTIME_LIBRARIES: [&str; 10] = [
    "libcoreclr",
    "libclr",
    "libhostfxr",
    "libhostpolicy",
    "libmscordaccore",
    "libSystem.",
    "libjvm.",
    "libnode.",
    "libpython",
    "libstdc++.",
];
/// The C library and its parts.
const C_LIBRARIES: [&str; 5] = ["libc.", "libc-", "libpthread", "ld-linux", "ld-musl"];
/// Programs that run others in a language of theirs.
const INTERPRETERS: [&str; 3] = ["node", "nodejs", "python"];
/// This program, which a capture of an idle machine sees most.
const PERFCOLLECT: &str = env!("CARGO_PKG_NAME");
/// Directories of the libraries of the system.
const SYSTEM: [&str; 6] = [
    "/lib/",
    "/lib32/",
    "/lib64/",
    "/usr/lib/",
    "/usr/lib32/",
    "/usr/lib64/",
];
/// Directories of installed packages of Python and Node, anywhere.
const PACKAGES: [&str; 4] = [
    "/lib-dynload/",
    "/site-packages/",
    "/dist-packages/",
    "/node_modules/",
];
/// Starts of the names that V8 and Python give to functions of scripts, and what the names of their
/// own functions contain.
const SCRIPT_FUNCTIONS: [(&str, &str); 6] = [
    ("JS:", " node:"),
    ("LazyCompile:", " node:"),
    ("Function:", " node:"),
    ("Script:", " node:"),
    ("Eval:", " node:"),
    ("py::", ":<frozen "),
];
/// Functions at the root of every program.
const ROOTS: [&str; 3] = ["_start", "start_thread", "__libc_start_main"];

/// Start of the names of stubs that .NET generates for calls of native code.
const IL_STUB: &str = "dynamicClass.IL_STUB";
/// End of the name of a stub that calls a function of a library.
const PLT: &str = "@plt";

/// Which functions of a trace are the user's own and have a name.
#[derive(Debug)]
pub(crate) struct OwnCode(Vec<bool>);

impl OwnCode {
    /// Classifies the functions of a trace, with the paths of its ELF files.
    pub(crate) fn new<'a>(trace: &Trace, paths: impl Iterator<Item = &'a str>) -> Self {
        let known = paths.map(|path| (path.rsplit('/').next().unwrap_or(path), path));
        let known: FxHashMap<&str, &str> = known.collect();
        // The place of a library is unknown in text.
        let is_of_system = |file: &str| match known.get(file) {
            Some(path) => is_library(file) && is_installed(path),
            None => is_library(file),
        };
        let go = GoFiles::of(&trace.functions);
        let is_own = |function: &Function| {
            let module = function.module.trim();
            let name = function.name.as_deref().unwrap_or_default();
            let is_stub = is_root(name) || name.ends_with(PLT) || name.starts_with(IL_STUB);
            !name.trim().is_empty()
                && !is_stub
                && match function.kind {
                    FunctionKind::Kernel
                    | FunctionKind::Unmapped
                    | FunctionKind::Marker
                    | FunctionKind::Blocked
                    | FunctionKind::Group => false,
                    FunctionKind::Native => {
                        !module.is_empty()
                            && !module.starts_with('[')
                            && !["vdso", PERFCOLLECT].contains(&module)
                            && !is_of_system(module)
                            && !is_runtime_library(module)
                            && !is_c_library(module)
                            && !is_interpreter(module)
                            && !go.is_of_go(module, name)
                    }
                    FunctionKind::Jit | FunctionKind::ReadyToRun => {
                        !is_framework(module) || is_of_script(name)
                    }
                }
        };
        Self(trace.functions.iter().map(is_own).collect())
    }

    /// Returns whether a function is the user's own and has a name.
    pub(crate) fn is_own(&self, function: FunctionId) -> bool {
        self.0.get(function.index()).copied().unwrap_or(false)
    }
}

/// Returns whether a library is in a directory for those of the system or of packages.
fn is_installed(path: &str) -> bool {
    SYSTEM.iter().any(|folder| path.starts_with(folder))
        || PACKAGES.iter().any(|folder| path.contains(folder))
}

/// Returns whether an assembly belongs to .NET.
fn is_framework(module: &str) -> bool {
    let first = module.split('.').next().unwrap_or(module);
    FRAMEWORK.contains(&first) && module.contains('.') || RUNTIME_MODULES.contains(&module)
}

/// Returns whether a native library belongs to a runtime.
fn is_runtime_library(file: &str) -> bool {
    let mut prefixes = RUNTIME_LIBRARIES.iter();
    prefixes.any(|prefix| file.starts_with(prefix))
}

/// Returns whether a native library is the C library, a part of it, or what it loads libraries with.
pub(crate) fn is_c_library(file: &str) -> bool {
    let mut prefixes = C_LIBRARIES.iter();
    prefixes.any(|prefix| file.starts_with(prefix))
}

/// Returns whether a function is at the root of every program.
pub(crate) fn is_root(name: &str) -> bool {
    ROOTS.contains(&name)
}

/// Returns whether a function is one of a script that the user wrote.
fn is_of_script(name: &str) -> bool {
    let mut kinds = SCRIPT_FUNCTIONS.iter();
    kinds.any(|(start, of_runtime)| name.starts_with(start) && !name.contains(of_runtime))
}

/// Returns whether a program runs others in a language of theirs, such as `python3.12`.
fn is_interpreter(file: &str) -> bool {
    let name = file.trim_end_matches(|c: char| c == '.' || c.is_ascii_digit());
    INTERPRETERS.contains(&name)
}

/// Returns whether a file is a shared library. Programs may be in the directories of libraries.
fn is_library(file: &str) -> bool {
    file.ends_with(".so") || file.contains(".so.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_own(kind: FunctionKind, module: &str, name: &str) -> bool {
        let go = Function::named("runtime.goexit", "shop", FunctionKind::Native);
        let trace = Trace {
            functions: vec![Function::named(name, module, kind), go],
            ..Trace::default()
        };
        let paths = [
            "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
            "/usr/lib/postgresql/15/bin/postgres",
            "/srv/shop/libshop.so",
            "/srv/dotnet/libcoreclr.so",
            "/opt/python/lib/python3.12/lib-dynload/_json.cpython-312-x86_64-linux-gnu.so",
            "/srv/venv/lib/python3.12/site-packages/numpy/_multiarray.so",
            "/srv/shop/_cart.cpython-312-x86_64-linux-gnu.so",
        ];
        OwnCode::new(&trace, paths.into_iter()).is_own(FunctionId(0))
    }

    #[test]
    fn code_of_system_and_runtime_is_not_own() {
        use FunctionKind::{Jit, Kernel, Native, ReadyToRun};
        for (kind, module, name, expected) in [
            (Jit, "Shop", "Shop.Cart.Add(int)", true),
            (Jit, "Shop", "dynamicClass.IL_STUB_PInvoke(int)", false),
            (Jit, "Systematic", "A.B()", true),
            (
                Jit,
                "System.Private.CoreLib",
                "System.String.Concat()",
                false,
            ),
            (ReadyToRun, "Microsoft.AspNetCore.Http", "A.B()", false),
            (ReadyToRun, "Shop.Orders", "Shop.Orders.Total()", true),
            (Native, "postgres", "ExecScan", true),
            (Native, "postgres", "_start", false),
            (Native, "postgres", "write@plt", false),
            (Native, "libshop.so", "shop_total", true),
            (Native, "libcrypto.so.3", "EVP_DigestUpdate", false),
            (Native, "libunknown.so.2", "f", false),
            (Native, "libcoreclr.so", "IL_Throw", false),
            (
                Native,
                "_json.cpython-312-x86_64-linux-gnu.so",
                "scanstring_unicode",
                false,
            ),
            (Native, "_multiarray.so", "sum", false),
            (
                Native,
                "_cart.cpython-312-x86_64-linux-gnu.so",
                "total",
                true,
            ),
            (Native, "shop", "main.main", true),
            (Native, "shop", "shop.example/cart.(*Cart).Total", true),
            (Native, "shop", "sort.Strings", false),
            (Native, "shop", "memeqbody", false),
            (Native, "sorter", "sort.Strings", true),
            (Native, "python3.12", "_PyEval_EvalFrameDefault", false),
            (Native, "libpython3.12.so.1.0", "PyList_Append", false),
            (Native, "node", "v8::internal::Heap::Scavenge()", false),
            (Native, "node_exporter", "main.main", true),
            (Native, "perfcollect", "perfcollect::main", false),
            (Jit, "jit", "JS:*total /srv/shop/cart.js:7:3", true),
            (Jit, "jit", "JS:~emit node:events:465:44", false),
            (Jit, "jit", "Builtin:ArrayMap", false),
            (Jit, "jit", "py::total:/srv/shop/cart.py", true),
            (
                Jit,
                "jit",
                "py::_find_spec:<frozen importlib._bootstrap>",
                false,
            ),
            (Native, "postgres", " ", false),
            (Kernel, "vmlinux", "do_syscall_64", false),
        ] {
            assert_eq!(is_own(kind, module, name), expected, "{module} {name}");
        }
    }
}
