//! Demangled names of perfcollect against c++filt (binutils), for all symbols of real programs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use perfcollect_symbols::demangle::demangle;

use crate::peers::{self, filter};
use crate::support::{Missing, workloads};
use crate::symbol_table::SymbolTable;

/// Reason for a different spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Spelling {
    /// c++filt keeps crate hashes and types of constants, and drops what LLVM appends.
    Rust,
    /// perfcollect prints `std::ostream` for the mangled `So`; c++filt expands it.
    Standard,
    /// c++filt prints the types of constants: `1l`, `(Color)2`.
    Literal,
    /// perfcollect keeps it mangled because cpp_demangle cannot parse it.
    Mangled,
    /// cpp_demangle appends `&` to the outer class of a nested one.
    Reference,
}

fn explain(name: &str, our: &str, their: &str) -> Option<Spelling> {
    let is_standard = || expanded(our) == their.replace(' ', "");
    let is_literal = || expanded(our) == expanded(&without_literal_types(their));
    let is_rust = || our.split(" [clone ").next() == Some(&without_hashes(their));
    match () {
        () if our == name => Some(Spelling::Mangled),
        () if is_standard() => Some(Spelling::Standard),
        () if is_literal() => Some(Spelling::Literal),
        () if is_rust() => Some(Spelling::Rust),
        () if our.replace('&', "") == their.replace('&', "") => Some(Spelling::Reference),
        () => None,
    }
}

/// Expansions of `std::string` and the like, without spaces.
fn expanded(name: &str) -> String {
    let short = [
        (
            "string",
            "char, std::char_traits<char>, std::allocator<char>",
        ),
        ("iostream", "char, std::char_traits<char>"),
        ("istream", "char, std::char_traits<char>"),
        ("ostream", "char, std::char_traits<char>"),
    ];
    let mut name = format!("{name} ").replace("std::nullptr_t", "decltype(nullptr)");
    for (class, arguments) in short {
        for end in [":", "&", "*", ">", " ", ",", ")"] {
            let whole = format!("std::basic_{class}<{arguments} >{end}");
            name = name.replace(&format!("std::{class}{end}"), &whole);
        }
        // Its constructors and destructor.
        for end in ["(", "<"] {
            for tilde in ["", "~"] {
                name = name.replace(
                    &format!(" >::{tilde}{class}{end}"),
                    &format!(" >::{tilde}basic_{class}{end}"),
                );
            }
        }
    }
    name.replace(' ', "")
}

/// Converts `f<(ns::Color)2, 1l>` to `f<2, 1>`.
fn without_literal_types(name: &str) -> String {
    let mut text = String::new();
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let cast = rest
            .strip_prefix('(')
            .and_then(|inside| inside.split_once(')'));
        let is_type = |inside: &str| {
            inside
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_:".contains(&byte))
        };
        let is_argument = text.ends_with(['<', ' ']);
        match cast {
            Some((inside, after))
                if is_argument
                    && is_type(inside)
                    && after.starts_with(|c: char| c.is_ascii_digit()) =>
            {
                rest = after
            }
            _ if is_argument && c.is_ascii_digit() => {
                let digits = rest
                    .find(|c: char| !c.is_ascii_digit())
                    .unwrap_or(rest.len());
                text.push_str(&rest[..digits]);
                rest = rest[digits..].trim_start_matches(['u', 'l']);
            }
            _ => {
                text.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    text
}

/// Converts `core[c1f1a4ba060b9bfa]::array<4: usize>` to `core::array<4>`.
fn without_hashes(name: &str) -> String {
    let mut pieces = name.split('[');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let rest = piece
            .split_once(']')
            .filter(|(hash, _)| hash.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match rest {
            Some((_, rest)) => text.push_str(rest),
            None => text.extend(["[", piece]),
        }
    }
    let text = text.replace(": usize", "");
    // In the legacy mangling it is the last part.
    match text.rsplit_once("::h") {
        Some((text, hash)) if hash.len() == 16 => text.to_owned(),
        _ => text,
    }
}

#[test]
fn names_are_spelled_as_by_cpp_filt() {
    let cpp = need!(workloads::chains("chains-cpp"));
    let rust = need!(workloads::chains("chains-rust"));
    if let Some(missing) = peers::missing() {
        skip!(Missing::Command(missing))
    }
    let library = Path::new("/usr/lib/x86_64-linux-gnu/libstdc++.so.6");
    let mut names = BTreeSet::new();
    for file in [&cpp, &rust, library] {
        let table = SymbolTable::new(file);
        names.extend(
            table
                .iter()
                .map(|symbol| symbol.name.clone())
                .filter(|name| name.starts_with("_Z") || name.starts_with("_R")),
        );
    }
    let names: Vec<String> = names.into_iter().collect();
    let theirs = filter(&mut Command::new("c++filt"), &names.join("\n"));
    let mut spellings: BTreeMap<Spelling, usize> = BTreeMap::new();
    let mut unexplained = Vec::new();
    for (name, their) in names.iter().zip(theirs.lines()) {
        let our = demangle(name.as_bytes());
        match explain(name, &our, their) {
            _ if our == their => {}
            Some(spelling) => *spellings.entry(spelling).or_default() += 1,
            None => unexplained.push(format!("{name}:\n  ours   {our}\n  theirs {their}")),
        }
    }
    println!("{} mangled names: {spellings:?}", names.len());
    assert!(
        unexplained.is_empty(),
        "{}:\n{}",
        unexplained.len(),
        unexplained.join("\n")
    );
}
