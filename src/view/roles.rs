//! What modules and threads of runtimes do, in words.

/// Modules, by the start of their file names.
const MODULES: [(&str, &str); 12] = [
    ("libclrjit.", "JIT compiler"),
    ("libclrgc", "garbage collector"),
    ("libcoreclr.", ".NET runtime"),
    ("libSystem.", ".NET native library"),
    ("libhostfxr.", ".NET host"),
    ("libhostpolicy.", ".NET host"),
    ("libjvm.", "Java virtual machine"),
    ("libnode.", "Node.js and V8"),
    ("libc.", "C library"),
    ("ld-musl", "C library"),
    ("libcrypto.", "OpenSSL"),
    ("vmlinux", "kernel"),
];

/// Threads, by the start of their names (15 bytes).
const THREADS: [(&str, &str); 12] = [
    (".NET TP Worker", "thread pool"),
    (".NET TP Gate", "thread pool"),
    (".NET Server GC", "garbage collection"),
    (".NET BGC", "garbage collection"),
    (".NET Tiered Com", "tiered compilation"),
    (".NET Finalizer", "finalizers"),
    (".NET EventPipe", "runtime events"),
    (".NET Sockets", "sockets"),
    ("C1 CompilerThre", "JIT compilation"),
    ("C2 CompilerThre", "JIT compilation"),
    ("GC Thread#", "garbage collection"),
    ("G1 ", "garbage collection"),
];

/// Returns what a module does, if that is known.
pub(super) fn of_module(file: &str) -> Option<&'static str> {
    find(&MODULES, file)
}

/// Returns what a thread does, if that is known.
pub(super) fn of_thread(name: &str) -> Option<&'static str> {
    find(&THREADS, name)
}

fn find(roles: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    let mut roles = roles.iter();
    roles
        .find(|(prefix, _)| name.starts_with(prefix))
        .map(|(_, role)| *role)
}
