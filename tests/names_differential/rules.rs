//! In what names may differ, and how that is proved.

use perfcollect_symbols::demangle::demangle;

use crate::peers::Peer;
use crate::sampled::shown;
use crate::symbol_table::SymbolTable;

/// Why a name of theirs is not ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// Several symbols begin where this function does. Ours is chosen by binding and underscores, addr2line's by the debug information, of
    /// functions that were folded into one too.
    Alias,
    /// Ours is the symbol of a part or a copy (`.cold`, `.part.0`, `.llvm.1`), theirs the function in the source.
    Clone,
    /// Stubs of the linkage table have no symbols. We name them by their relocations.
    LinkageTable,
    /// addr2line takes the last symbol before the address, however far. Ours ends.
    PastEnd,
    /// llvm-symbolizer passes symbols over that have no type or no size.
    Untyped,
    /// A function of one file only has no linkage name in the debug information: theirs is its identifier alone.
    Identifier,
    /// binutils do not read all that tells of inlined functions (in what other linkers made of it): addr2line has only the outer ones.
    OuterOnly,
    /// addr2line tells the name in the source of a function that is exported under another, where llvm-symbolizer tells just ours.
    NameInSource,
    /// addr2line gives the innermost function, where that has no linkage name, the name of the symbol it is inlined into.
    InnermostAsSymbol,
}

/// What no rule explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Difference {
    /// One has a name and the other has none.
    Nothing,
    /// Not as many functions.
    Count,
    /// Another function is inlined.
    Inlined,
    /// In another function.
    Outermost,
}

/// The rules by which `ours`, as shown, are `theirs`; else what differs.
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

/// A name of theirs as ours are shown.
fn named(their: &str) -> String {
    shown(&demangle(their.as_bytes()))
}

/// A function that calls itself is there many times: its chain of `len` once.
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

/// Where the function starts, or the address, stands for the name.
fn is_unnamed(name: &str) -> bool {
    name.strip_prefix("0x")
        .is_some_and(|hex| u64::from_str_radix(hex, 16).is_ok())
}

fn is_untyped(address: u64, name: &str, table: &SymbolTable) -> bool {
    table
        .around(address)
        .any(|symbol| symbol.is_called(name) && (symbol.kind == "NOTYPE" || symbol.size == 0))
}

/// `f(clone.cold)`, as shown, and `f.cold` without their ends.
fn without_clone(name: &str) -> &str {
    let end = name
        .find("(clone.")
        .or_else(|| name.find('.').filter(|&dot| dot > 0));
    &name[..end.unwrap_or(name.len())]
}
