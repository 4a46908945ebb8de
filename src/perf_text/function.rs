//! Functions and objects as perf prints them.

use super::lines::Frame;
use crate::machine::without_mark;
use crate::naming;
use crate::trace::{Function, FunctionKind};

/// What perf calls a function, in our terms.
pub(super) fn function(frame: &Frame<'_>) -> Function {
    let object = frame.object;
    let has_name = !frame.symbol.is_empty() && frame.symbol != b"[unknown]";
    let file = object.rsplit(|&byte| byte == b'/').next().unwrap_or(object);
    let file = without_mark(file);
    let (kind, module) = match object {
        b"[unknown]" | b"" => (FunctionKind::Unmapped, text(b"unmapped")),
        b"[vdso]" => (FunctionKind::Native, text(b"vdso")),
        _ if is_jit(object, file) && has_name => return naming::function_of_jit(frame.symbol),
        _ if is_jit(object, file) => (FunctionKind::Jit, text(b"jit")),
        _ if object.starts_with(b"[kernel.") || object.starts_with(b"[guest.kernel.") => {
            (FunctionKind::Kernel, text(b"vmlinux"))
        }
        [b'[', name @ .., b']'] => match name {
            b"stack" | b"heap" | b"vsyscall" => (FunctionKind::Unmapped, text(name)),
            module => (FunctionKind::Kernel, text(module)),
        },
        _ if file.to_ascii_lowercase().ends_with(b".dll") => (FunctionKind::ReadyToRun, text(file)),
        _ => (FunctionKind::Native, text(file)),
    };
    Function {
        name: has_name.then(|| text(frame.symbol)),
        start: None,
        module,
        tier: None,
        kind,
        inlined: object == b"inlined",
    }
}

/// Memory of code made at run time, perf's maps of it, and the files that `perf inject --jit` makes.
fn is_jit(object: &[u8], file: &[u8]) -> bool {
    let is_map = file.starts_with(b"perf-") && file.ends_with(b".map");
    let is_dump = file.starts_with(b"jitted-") && file.ends_with(b".so");
    let is_memory = [&b"//anon"[..], b"/memfd:", b"/dev/zero", b"/anon_hugepage"];
    is_map || is_dump || is_memory.iter().any(|begin| object.starts_with(begin))
}

pub(super) fn text(bytes: &[u8]) -> Box<str> {
    String::from_utf8_lossy(bytes).into()
}
