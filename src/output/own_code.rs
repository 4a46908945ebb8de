//! The user's own code: what is neither the kernel, nor a runtime or framework, nor a library of
//! the system.

use rustc_hash::FxHashSet;

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
const RUNTIME_LIBRARIES: [&str; 12] = [
    "libcoreclr",
    "libclr",
    "libhostfxr",
    "libhostpolicy",
    "libmscordaccore",
    "libSystem.",
    "libjvm.",
    "libnode.",
    "libc.",
    "libstdc++.",
    "ld-linux",
    "ld-musl",
];
/// Directories of the libraries of the system.
const SYSTEM: [&str; 6] = [
    "/lib/",
    "/lib32/",
    "/lib64/",
    "/usr/lib/",
    "/usr/lib32/",
    "/usr/lib64/",
];
/// Functions at the root of every program.
const ROOTS: [&str; 3] = ["_start", "start_thread", "__libc_start_main"];

/// Which functions of a trace are the user's own and have a name.
#[derive(Debug)]
pub(crate) struct OwnCode(Vec<bool>);

impl OwnCode {
    /// Classifies the functions of a trace.
    pub(crate) fn new(trace: &Trace) -> Self {
        let modules = trace.modules.iter().map(|module| &*module.path);
        let system: FxHashSet<&str> = modules
            .filter_map(|path| {
                let file = path.rsplit('/').next().unwrap_or(path);
                is_of_system(path, file).then_some(file)
            })
            .collect();
        let is_own = |function: &Function| {
            let module = function.module.trim();
            let is_named = |name: &str| !name.trim().is_empty() && !ROOTS.contains(&name);
            function.name.as_deref().is_some_and(is_named)
                && match function.kind {
                    FunctionKind::Kernel | FunctionKind::Unmapped | FunctionKind::Marker => false,
                    FunctionKind::Native => {
                        !module.is_empty()
                            && !module.starts_with('[')
                            && module != "vdso"
                            && !system.contains(module)
                            && !is_runtime_library(module)
                    }
                    FunctionKind::Jit | FunctionKind::ReadyToRun => !is_framework(module),
                }
        };
        Self(trace.functions.iter().map(is_own).collect())
    }

    /// Returns whether a function is the user's own and has a name.
    pub(crate) fn is_own(&self, function: FunctionId) -> bool {
        self.0.get(function.index()).copied().unwrap_or(false)
    }
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

/// Returns whether a file is a shared library of the system. Programs may be in the same folders.
fn is_of_system(path: &str, file: &str) -> bool {
    let is_library = file.ends_with(".so") || file.contains(".so.");
    is_library && SYSTEM.iter().any(|folder| path.starts_with(folder))
}
