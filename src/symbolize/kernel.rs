//! Kernel functions: code that was registered during the capture by its record, all other code by
//! /proc/kallsyms.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;

use perfcollect_symbols::kallsyms::{KallsymsError, KernelSymbol, KernelSymbols};

use super::cancel::{CancelCheck, CancellableReader};
use super::{SymbolizedGroup, lossy, offset, unsymbolized};
use crate::capture::Capture;
use crate::trace::{CodeAddress, FrameId, Function, FunctionKind, Method, Notice, NoticeKind};

/// Module of functions outside loadable modules.
pub(super) const PROPER: &str = "vmlinux";
const KALLSYMS: &str = "/proc/kallsyms";

pub(super) fn name(
    frames: &[FrameId],
    codes: &[CodeAddress],
    capture: &Capture,
    cancel: CancelCheck<'_>,
) -> SymbolizedGroup {
    let methods = &capture.raw_trace.methods;
    let known = |frame: &FrameId| methods.of(*frame).flatten();
    let known: Vec<Option<&Method>> = frames.iter().map(known).collect();
    let open = codes
        .iter()
        .zip(&known)
        .filter(|(_, known)| known.is_none());
    let open: Vec<_> = open.map(|(&code, _)| offset(code)).collect();
    let (symbols, notice) = match (&open[..], &capture.kernel_mismatch) {
        ([], _) => (KernelSymbols::default(), None),
        (_, Some(why)) => (KernelSymbols::default(), Some(nothing_known(why, ""))),
        (open, None) => match read(capture.kallsyms.as_deref(), open, cancel) {
            Ok(symbols) => (symbols, None),
            Err(error) => (
                KernelSymbols::default(),
                Some(nothing_known(
                    &error.to_string(),
                    remedy(&error, capture.kallsyms.is_some()),
                )),
            ),
        },
    };
    let functions = codes.iter().zip(known).map(|(&code, known)| {
        let by_kallsyms = || symbols.lookup(offset(code)).map(of_symbol);
        let named = known.map(of_method).or_else(by_kallsyms);
        named.unwrap_or_else(|| unsymbolized(code))
    });
    SymbolizedGroup {
        notices: notice.into_iter().collect(),
        ..SymbolizedGroup::of(functions)
    }
}

/// Returns the functions at some addresses. `kallsyms`: the symbol list, if not the running
/// kernel's.
fn read(
    kallsyms: Option<&Path>,
    addresses: &[u64],
    cancel: CancelCheck<'_>,
) -> Result<KernelSymbols, KallsymsError> {
    let inner = File::open(kallsyms.unwrap_or(Path::new(KALLSYMS)))?;
    let file = CancellableReader { inner, cancel };
    KernelSymbols::read_for(BufReader::with_capacity(1 << 16, file), addresses)
}

fn nothing_known(why: &str, remedy: &str) -> Notice {
    Notice::new(
        NoticeKind::KernelUnsymbolized,
        format!("kernel frames have no names: {why}"),
        remedy,
    )
}

/// Explains `kernel.kptr_restrict`: 0 shows addresses to users that may profile the kernel, 1 to
/// those with CAP_SYSLOG, 2 to nobody.
fn remedy(error: &KallsymsError, is_copy: bool) -> &'static str {
    let restrict = fs::read_to_string("/proc/sys/kernel/kptr_restrict").unwrap_or_default();
    match (error, restrict.trim()) {
        (KallsymsError::Restricted { .. }, _) if is_copy => {
            "copy /proc/kallsyms as root, with kernel.kptr_restrict at 0 or 1, before that machine starts again"
        }
        (KallsymsError::Restricted { .. }, "2") => {
            "set kernel.kptr_restrict to 1 for the time of the capture (sysctl kernel.kptr_restrict=1); at 2 not even root sees them"
        }
        (KallsymsError::Restricted { .. }, _) => {
            "run as root, or with the capability CAP_SYSLOG; in a container: --cap-add SYSLOG"
        }
        _ => "",
    }
}

fn of_symbol(found: KernelSymbol<'_>) -> Function {
    function(
        lossy(found.symbol.name),
        found.module.map_or_else(|| PROPER.into(), lossy),
    )
}

fn of_method(method: &Method) -> Function {
    function(method.name.clone(), method.module.clone())
}

fn function(name: Box<str>, module: Box<str>) -> Function {
    Function {
        name: Some(name),
        module,
        tier: None,
        kind: FunctionKind::Kernel,
        start: None,
        inlined: false,
    }
}
