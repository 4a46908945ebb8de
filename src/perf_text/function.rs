//! Functions and objects as perf prints them.

use perfcollect_symbols::demangle::demangle;

use super::frame::Frame;
use crate::output::perf_text::markers;
use crate::output::sanitize::perf_tier;
use crate::symbolize;
use crate::trace::{Function, FunctionKind};
use perfcollect_symbols::process::without_deleted_suffix;

/// Lowest kernel address on x86-64 and ARM64.
const KERNEL_START: u64 = 0xffff << 48;
/// Maximum number of functions in one entry of a JIT compiler's perf map.
const MAX_INLINED: usize = 64;

/// Returns the functions that perf prints for a frame: the outermost first, then those inlined into
/// it.
pub(super) fn functions(frame: &Frame<'_>) -> Vec<Function> {
    if let Some(function) = written_by_perfcollect(frame) {
        return vec![function];
    }
    let object = frame.object;
    let has_name = !frame.symbol.is_empty() && frame.symbol != b"[unknown]";
    let file = object.rsplit(|&byte| byte == b'/').next().unwrap_or(object);
    let file = without_deleted_suffix(file);
    let (kind, module) = match object {
        b"[unknown]" => (FunctionKind::Unmapped, text(b"unmapped")),
        b"" if frame.address >= KERNEL_START => (FunctionKind::Kernel, text(b"vmlinux")),
        b"" if has_name => (FunctionKind::Native, Box::default()),
        b"" => (FunctionKind::Unmapped, text(b"unmapped")),
        b"[vdso]" => (FunctionKind::Native, text(b"vdso")),
        // The name that perfcollect writes.
        b"jit" => (FunctionKind::Jit, text(b"jit")),
        _ if is_jit(object, file) && has_name => return jit_functions(frame.symbol),
        _ if is_jit(object, file) => (FunctionKind::Jit, text(b"jit")),
        _ if object.starts_with(b"[kernel.") || object.starts_with(b"[guest.kernel.") => {
            (FunctionKind::Kernel, text(b"vmlinux"))
        }
        [b'[', name @ .., b']'] => match name {
            b"stack" | b"heap" | b"vsyscall" => (FunctionKind::Unmapped, text(name)),
            module => (FunctionKind::Kernel, text(module)),
        },
        _ if is_kernel_file(file) => (FunctionKind::Kernel, kernel_module(file)),
        _ if file.to_ascii_lowercase().ends_with(b".dll") => (FunctionKind::ReadyToRun, text(file)),
        _ => (FunctionKind::Native, text(file)),
    };
    let name = match kind {
        FunctionKind::Native => demangle(frame.symbol).into(),
        _ => text(frame.symbol),
    };
    vec![Function {
        name: has_name.then_some(name),
        start: None,
        module,
        tier: None,
        kind,
        inlined: object == b"inlined",
    }]
}

/// Returns the function of a frame in a form that only perfcollect writes: the end of a truncated
/// stack, an offset instead of a name, or the tier of a .NET method.
fn written_by_perfcollect(frame: &Frame<'_>) -> Option<Function> {
    let symbol = str::from_utf8(frame.symbol).ok()?;
    let function = |name: Option<&str>, kind| Function {
        name: name.map(Into::into),
        start: None,
        module: text(frame.object),
        tier: None,
        kind,
        inlined: false,
    };
    let kind = |other| match frame.object {
        b"vmlinux" => FunctionKind::Kernel,
        b"jit" => FunctionKind::Jit,
        b"unmapped" => FunctionKind::Unmapped,
        file if file.to_ascii_lowercase().ends_with(b".dll") => FunctionKind::ReadyToRun,
        _ => other,
    };
    let is_file = frame.object.contains(&b'/') || frame.object.starts_with(b"[");
    if is_file {
        return None;
    }
    if frame.object == markers::MODULE.as_bytes() && symbol.starts_with("{truncated") {
        let name = symbol.replace('{', "[").replace('}', "]");
        return Some(function(Some(&name), FunctionKind::Marker));
    }
    if frame.object == markers::MODULE.as_bytes()
        && let Some(place) = symbol.strip_prefix('{')
    {
        let name = format!("[{}]", place.strip_suffix('}').unwrap_or(place));
        return Some(function(Some(&name), FunctionKind::Blocked));
    }
    if let Some(digits) = symbol.strip_prefix("0x") {
        let start = u64::from_str_radix(digits, 16).ok()?;
        return Some(Function {
            start: (start != frame.address).then_some(start),
            ..function(None, kind(FunctionKind::Native))
        });
    }
    let (name, tier) = symbol.strip_suffix(']')?.rsplit_once('[')?;
    let tier = perf_tier(tier)?;
    let kind = match tier {
        "ReadyToRun" => FunctionKind::ReadyToRun,
        _ => FunctionKind::Jit,
    };
    Some(Function {
        tier: Some(tier.into()),
        ..function(Some(name), kind)
    })
}

/// Splits the entry of a Java agent, which appends inlined functions: `LA;::outer->LB;::inner`.
fn jit_functions(symbol: &[u8]) -> Vec<Function> {
    let mut parts = Vec::new();
    let mut rest = symbol;
    while parts.len() < MAX_INLINED
        && let Some(arrow) = rest.windows(2).position(|two| two == b"->")
    {
        parts.push(&rest[..arrow]);
        rest = &rest[arrow + 2..];
    }
    parts.push(rest);
    if parts.iter().any(|part| part.is_empty()) {
        parts = vec![symbol];
    }
    let functions = parts.into_iter().enumerate().map(|(at, part)| Function {
        inlined: at > 0,
        ..symbolize::function_of_jit(part)
    });
    functions.collect()
}

/// Returns whether the object is JIT memory, a perf map, or a file of `perf inject --jit`.
fn is_jit(object: &[u8], file: &[u8]) -> bool {
    let is_map = file.starts_with(b"perf-") && file.ends_with(b".map");
    let is_dump = file.starts_with(b"jitted-") && file.ends_with(b".so");
    let is_memory = [&b"//anon"[..], b"/memfd:", b"/dev/zero", b"/anon_hugepage"];
    is_map || is_dump || is_memory.iter().any(|begin| object.starts_with(begin))
}

/// Returns whether the file is `vmlinux`, `vmlinux-3.2.0`, a module (`ext4.ko.xz`) or a BPF
/// program.
fn is_kernel_file(file: &[u8]) -> bool {
    is_vmlinux(file) || module_stem(file).is_some() || file.starts_with(b"bpf_prog_")
}

fn is_vmlinux(file: &[u8]) -> bool {
    let version = file.strip_prefix(b"vmlinux");
    version.is_some_and(|version| matches!(version.first(), None | Some(b'-' | b'.')))
}

fn module_stem(file: &[u8]) -> Option<&[u8]> {
    let dot = file.windows(3).rposition(|three| three == b".ko")?;
    matches!(file.get(dot + 3), None | Some(b'.')).then(|| &file[..dot])
}

fn kernel_module(file: &[u8]) -> Box<str> {
    match module_stem(file) {
        Some(stem) => text(stem),
        None if is_vmlinux(file) => text(b"vmlinux"),
        None => text(b"bpf"),
    }
}

pub(super) fn text(bytes: &[u8]) -> Box<str> {
    String::from_utf8_lossy(bytes).into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn of(line: &str) -> Vec<(FunctionKind, String, String)> {
        let functions = functions(&Frame::parse(line.as_bytes()).unwrap()).into_iter();
        let parts = functions.map(|function| {
            let name = function.name.unwrap_or_default();
            (function.kind, function.module.into(), name.into())
        });
        parts.collect()
    }

    #[test]
    fn objects_tell_the_kind_of_code() {
        for (line, kind, module) in [
            ("1 f ([kernel.kallsyms])", FunctionKind::Kernel, "vmlinux"),
            (
                "1 f ([kernel.kallsyms].init.text)",
                FunctionKind::Kernel,
                "vmlinux",
            ),
            (
                "1 f (/lib/modules/4.1.0/build/vmlinux)",
                FunctionKind::Kernel,
                "vmlinux",
            ),
            ("1 f (/boot/vmlinux-4.1.0)", FunctionKind::Kernel, "vmlinux"),
            (
                "1 f (/lib/modules/4.1.0/kernel/fs/ext4/ext4.ko.xz)",
                FunctionKind::Kernel,
                "ext4",
            ),
            ("1 f ([nf_conntrack])", FunctionKind::Kernel, "nf_conntrack"),
            ("1 f (bpf_prog_1_x)", FunctionKind::Kernel, "bpf"),
            ("ffffffff81000000 f", FunctionKind::Kernel, "vmlinux"),
            ("1 f (/usr/bin/x.kosher)", FunctionKind::Native, "x.kosher"),
            (
                "1 f (/usr/bin/vmlinuxes)",
                FunctionKind::Native,
                "vmlinuxes",
            ),
            ("1 f (/tmp/perf-7.map)", FunctionKind::Jit, "jit"),
            (
                "1 [unknown] ([unknown])",
                FunctionKind::Unmapped,
                "unmapped",
            ),
        ] {
            let (found, of_module, _) = of(line).remove(0);
            assert_eq!((found, &*of_module), (kind, module), "{line}");
        }
    }

    #[test]
    fn reads_what_only_perfcollect_writes() {
        let read = |line: &str| {
            let functions = functions(&Frame::parse(line.as_bytes()).unwrap());
            let [function] = functions.try_into().unwrap();
            (function.kind, function.name, function.tier, function.start)
        };
        use FunctionKind::{Jit, Marker, Native, ReadyToRun};
        let (none, some) = (None::<Box<str>>, |text: &str| Some(text.into()));
        for (line, function) in [
            (
                "0 {truncated: lost track} (perfcollect)",
                (Marker, some("[truncated: lost track]"), none.clone(), None),
            ),
            (
                "1f {truncated} (other)",
                (Native, some("{truncated}"), none.clone(), None),
            ),
            (
                "1f 0x10 (m)",
                (Native, none.clone(), none.clone(), Some(0x10)),
            ),
            ("1f 0x1f (m)", (Native, none.clone(), none.clone(), None)),
            ("1f 0x10 (/m)", (Native, some("0x10"), none.clone(), None)),
            (
                "1f f[QuickJitted] (m)",
                (Jit, some("f"), some("QuickJitted"), None),
            ),
            (
                "1f f[ReadyToRun] (m)",
                (ReadyToRun, some("f"), some("ReadyToRun"), None),
            ),
            ("1f f[x] (m)", (Native, some("f[x]"), none.clone(), None)),
        ] {
            assert_eq!(read(line), function, "{line}");
        }
    }

    #[test]
    fn mangled_names_are_demangled() {
        let names = of("1 _ZN3foo3barEv (/x)");
        assert_eq!(names[0].2, "foo::bar()");
    }

    #[test]
    fn functions_inlined_by_java_are_apart() {
        let java = of("1 LA;::outer->LB;::inner (/tmp/perf-7.map)");
        let names: Vec<_> = java.iter().map(|(_, _, name)| &**name).collect();
        assert_eq!(names, ["LA;::outer", "LB;::inner"]);
        assert_eq!(of("1 a::operator->() (/x)").len(), 1);
        assert_eq!(of("1 f-> (/tmp/perf-7.map)").len(), 1);
    }
}
