//! Kernel functions, by /proc/kallsyms.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use perfcollect_symbols::kallsyms::{KallsymsError, KernelSymbols};

use super::stop::{Stop, Stoppable};
use super::{Named, lossy, nameless, offset};
use crate::trace::{CodeAddress, Function, FunctionKind, Notice};

/// Module of the functions that are in no loadable module.
pub(super) const PROPER: &str = "vmlinux";
const KALLSYMS: &str = "/proc/kallsyms";

/// `kallsyms`: where the list of functions is, if not where the kernel has it.
pub(super) fn name(codes: &[CodeAddress], kallsyms: Option<&Path>, stop: Stop<'_>) -> Named {
    let addresses: Vec<_> = codes.iter().copied().map(offset).collect();
    let symbols = File::open(kallsyms.unwrap_or(Path::new(KALLSYMS)))
        .map_err(KallsymsError::Read)
        .and_then(|inner| {
            let file = Stoppable { inner, stop };
            KernelSymbols::read_for(BufReader::with_capacity(1 << 16, file), &addresses)
        });
    let (symbols, notice) = match symbols {
        Ok(symbols) => (symbols, None),
        Err(error) => (
            KernelSymbols::default(),
            Some(Notice::new(
                format!("kernel frames have no names: {error}"),
                "run as root, or set kernel.kptr_restrict to 0 for the time of the capture",
            )),
        ),
    };
    let functions = codes.iter().map(|&code| {
        symbols.lookup(offset(code)).map_or_else(
            || nameless(code),
            |found| Function {
                name: Some(lossy(found.symbol.name)),
                module: found.module.map_or_else(|| PROPER.into(), lossy),
                tier: None,
                kind: FunctionKind::Kernel,
                start: None,
                inlined: false,
            },
        )
    });
    Named {
        functions: functions.collect(),
        notices: notice.into_iter().collect(),
        ..Named::default()
    }
}
