//! Functions of JIT code: named while they were sampled, or from the files that the runtime wrote.

use std::io;

use perfcollect_symbols::demangle::demangle;
use perfcollect_symbols::dotnet_name::{self, ManagedName};
use perfcollect_symbols::symbolizer::JitSymbols;

use super::cancel::CancelCheck;
use super::elf::READY_TO_RUN;
use super::jit_symbol_files::{self, JitSymbolError, useless};
use super::time_budget::Reading;
use super::{SymbolizedGroup, is_blank, offset, unsymbolized};
use crate::dotnet::MethodName;
use crate::machine::JitProcess;
use crate::trace::{
    CodeAddress, FrameId, Function, FunctionKind, Method, Methods, Nanos, Pid, ProcessId,
};

/// Module of code whose name contains no module.
pub(super) const MODULE: &str = "jit";

pub(super) fn name(
    frames: &[FrameId],
    codes: &[CodeAddress],
    methods: &Methods,
    (process, pid, host): (ProcessId, Pid, Option<&io::Result<JitProcess>>),
    until: Nanos,
    (reading, cancel): (&Reading<'_>, CancelCheck<'_>),
) -> SymbolizedGroup {
    let known: Vec<_> = frames.iter().map(|frame| methods.of(*frame)).collect();
    let is_open = |known: &Option<_>| known.is_none();
    let open = || codes.iter().zip(&known).filter(|(_, known)| is_open(known));
    let addresses: Vec<_> = open().map(|(code, _)| offset(*code)).collect();
    let (written, fault) = match &addresses[..] {
        [] => (JitSymbols::default(), None),
        addresses => {
            let is_over = || cancel() || reading.is_over();
            let (written, fault) = jit_symbol_files::read(host, addresses, until, &is_over);
            (
                written,
                reading.overrun().map(JitSymbolError::overrun).or(fault),
            )
        }
    };
    let functions: Vec<_> = codes
        .iter()
        .zip(&known)
        .map(|(&code, known)| match known {
            Some(Some(method)) => of_method(method),
            Some(None) => unsymbolized(code),
            None => match written.lookup(offset(code)) {
                Some((symbol, _)) if is_blank(symbol.name) => Function {
                    start: Some(symbol.start),
                    ..unsymbolized(code)
                },
                Some((symbol, _)) => function(symbol.name),
                None => unsymbolized(code),
            },
        })
        .collect();
    // A method of several processes has one frame, which belongs to the first of them. So the
    // runtime may have named methods of this process that have no frame here. Other code is its
    // stubs then.
    let has_name = |function: &Function| function.name.is_some();
    let named = methods.has_names(process) || functions.iter().any(has_name);
    let fault = (!named).then(|| fault.unwrap_or_else(|| useless(&written, host)));
    SymbolizedGroup {
        gaps: Vec::from_iter(fault.map(|fault| fault.gap(pid))),
        ..SymbolizedGroup::of(functions.into_iter())
    }
}

fn of_method(method: &Method) -> Function {
    Function {
        name: Some(method.name.clone()),
        module: match &*method.module {
            "" => MODULE.into(),
            module => module.into(),
        },
        tier: method.tier.clone(),
        kind: FunctionKind::Jit,
        start: None,
        inlined: false,
    }
}

/// Returns the function of a method that the runtime listed.
pub(crate) fn function_of_method(name: MethodName, is_jitted: bool) -> Function {
    let (kind, tier) = match is_jitted {
        true => (FunctionKind::Jit, name.tier),
        false => (FunctionKind::ReadyToRun, Some(READY_TO_RUN)),
    };
    Function {
        kind,
        ..of_method(&Method {
            name: name.method.into(),
            module: name.module.into(),
            tier: tier.map(Into::into),
        })
    }
}

/// Returns a function from a perf map or jitdump.
pub(crate) fn function(name: &[u8]) -> Function {
    let (name, module, tier) = match ManagedName::parse(name) {
        Some(managed) => (managed.method, managed.assembly.into(), managed.tier),
        None => {
            let stub = dotnet_name::stub(name).map(|kind| format!("[stub] {kind}"));
            let name = stub.unwrap_or_else(|| demangle(name).into_owned());
            (name, MODULE.into(), None)
        }
    };
    Function {
        name: Some(name.into()),
        module,
        tier: tier.map(Into::into),
        kind: FunctionKind::Jit,
        start: None,
        inlined: false,
    }
}
