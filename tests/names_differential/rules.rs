//! Accepted differences between names, and how they are verified.

use perfcollect_symbols::demangle::demangle;

use crate::peers::Peer;
use crate::sampled::shown;
use crate::symbol_table::SymbolTable;

/// Reason for a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// Several symbols start at this function. perfcollect chooses by binding and underscores,
    /// addr2line by the debug information, also of functions that were folded into one.
    Alias,
    /// perfcollect has the symbol of a part or a copy (`.cold`, `.part.0`, `.llvm.1`), the other
    /// the function in the source.
    Clone,
    /// PLT stubs have no symbols. perfcollect names them by their relocations.
    LinkageTable,
    /// addr2line uses the last symbol before the address at any distance. perfcollect's symbols
    /// have an end.
    PastEnd,
    /// llvm-symbolizer ignores symbols without a type or size.
    Untyped,
    /// A function with internal linkage has no linkage name in the debug information: the others
    /// print its identifier alone.
    Identifier,
    /// binutils do not read all debug information of inlined functions from other linkers:
    /// addr2line has only the outer ones.
    OuterOnly,
    /// addr2line prints the source name of a function that is exported under another name;
    /// llvm-symbolizer agrees with perfcollect.
    NameInSource,
    /// If the innermost function has no linkage name, addr2line prints the symbol that it is
    /// inlined into.
    InnermostAsSymbol,
}

/// A difference that no rule explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Difference {
    /// Only one has a name.
    Nothing,
    /// Different numbers of functions.
    Count,
    /// Another function is inlined.
    Inlined,
    /// The outermost functions differ.
    Outermost,
}

/// Returns the rules that explain all differences between `ours`, as shown, and `theirs`, or the
/// first other difference.
pub(crate) fn explain(
    peer: Peer,
    address: u64,
    ours: &[String],
    theirs: &[String],
    table: &SymbolTable,
) -> Result<Vec<Rule>, Difference> {
    let ours = once(ours, theirs.len());
    let (outermost, inlined) = ours.split_last().ok_or(Difference::Nothing)?;
    let is_nothing = |name: &str| name == "??";
    if theirs.iter().all(|name| is_nothing(name)) {
        return match () {
            () if is_unnamed(outermost) => Ok(vec![]),
            () if outermost.ends_with("@plt") => Ok(vec![Rule::LinkageTable]),
            () if is_untyped(address, outermost, table) => Ok(vec![Rule::Untyped]),
            () => Err(Difference::Nothing),
        };
    }
    let (their_outermost, their_inlined) = theirs.split_last().ok_or(Difference::Nothing)?;
    let covers = || {
        table
            .around(address)
            .any(|symbol| symbol.size > 0 && symbol.is_called(&named(their_outermost)))
    };
    if inlined.is_empty() && their_inlined.is_empty() && !covers() {
        if is_unnamed(outermost) {
            return Ok(vec![Rule::PastEnd]);
        }
        if outermost.ends_with("@plt") && !outermost.starts_with(their_outermost) {
            return Ok(vec![Rule::LinkageTable]);
        }
    }
    if peer == Peer::Addr2line && theirs.len() < ours.len() {
        let outer = &ours[ours.len() - theirs.len()..];
        let rules = explain(peer, address, outer, theirs, table)?;
        return Ok([&rules[..], &[Rule::OuterOnly]].concat());
    }
    if inlined.len() != their_inlined.len() {
        return Err(Difference::Count);
    }
    let mut rules = Vec::new();
    for (depth, (our, their)) in inlined.iter().zip(their_inlined).enumerate() {
        if !is_same(our, their) {
            let is_symbol = || {
                table
                    .around(address)
                    .any(|symbol| symbol.is_called(&named(their)))
            };
            if peer != Peer::Addr2line || depth > 0 || !is_symbol() {
                return Err(Difference::Inlined);
            }
            rules.push(Rule::InnermostAsSymbol);
        }
    }
    rules.extend(explain_outermost(
        address,
        outermost,
        their_outermost,
        table,
    )?);
    Ok(rules)
}

fn explain_outermost(
    address: u64,
    our: &str,
    their: &str,
    table: &SymbolTable,
) -> Result<Option<Rule>, Difference> {
    let source = without_clone(our);
    let identifier = their.split('<').next().unwrap_or_default();
    let part = format!("{}{identifier}", identifier.len());
    let has_identifier = |symbol: &str| {
        (symbol.starts_with("_Z") || symbol.starts_with("_R"))
            && (symbol.contains(&part)
                || (identifier.starts_with("operator") && our.contains("operator")))
    };
    match () {
        () if is_same(our, their) => Ok(None),
        () if table.are_aliases(address, our, their)
            || table.are_aliases(address, our, &shown(&demangle(their.as_bytes()))) =>
        {
            Ok(Some(Rule::Alias))
        }
        () if source != our && is_same(source, without_clone(their)) => Ok(Some(Rule::Clone)),
        () if table
            .around(address)
            .any(|symbol| symbol.is_called(our) && has_identifier(&symbol.name)) =>
        {
            Ok(Some(Rule::Identifier))
        }
        () => Err(Difference::Outermost),
    }
}

fn is_same(our: &str, their: &str) -> bool {
    our == named(their)
}

/// Formats a name of the others as perfcollect's are shown.
fn named(their: &str) -> String {
    shown(&demangle(their.as_bytes()))
}

/// Keeps one occurrence of a recursive chain of `len` functions.
fn once(chain: &[String], len: usize) -> &[String] {
    match chain.chunks_exact(len.max(1)).collect::<Vec<_>>()[..] {
        [first, ref rest @ ..]
            if chain.len().is_multiple_of(len.max(1))
                && rest.iter().all(|again| *again == first) =>
        {
            first
        }
        _ => chain,
    }
}

/// Returns whether the name is replaced by the function's start or the address.
fn is_unnamed(name: &str) -> bool {
    name.strip_prefix("0x")
        .is_some_and(|hex| u64::from_str_radix(hex, 16).is_ok())
}

fn is_untyped(address: u64, name: &str, table: &SymbolTable) -> bool {
    table
        .around(address)
        .any(|symbol| symbol.is_called(name) && (symbol.kind == "NOTYPE" || symbol.size == 0))
}

/// Returns `f(clone.cold)`, as shown, and `f.cold` without their suffixes.
fn without_clone(name: &str) -> &str {
    let end = name
        .find("(clone.")
        .or_else(|| name.find('.').filter(|&dot| dot > 0));
    &name[..end.unwrap_or(name.len())]
}
