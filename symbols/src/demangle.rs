//! Demangling of Rust and C++ names. Other names are returned unchanged.
//!
//! Formats: [Rust v0](https://doc.rust-lang.org/rustc/symbol-mangling/v0.html) and the legacy Rust
//! mangling, [Itanium C++ ABI](https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling).

use std::borrow::Cow;
use std::fmt::{self, Write};

use cpp_demangle::{BorrowedSymbol, DemangleOptions, ParseOptions};

/// Limit of a mangled name. Longer names stay mangled.
///
/// Time and output of demangling can grow much faster than the name.
pub const MAX_MANGLED_BYTES: usize = 4096;
/// Limit of a demangled name. A name that would exceed it stays mangled.
///
/// Each back reference can double the length of a name.
pub const MAX_DEMANGLED_BYTES: usize = 64 << 10;
/// Limit of a name. Longer names are truncated and end with `...`; C++ names reach 20 KB.
pub const MAX_NAME_BYTES: usize = 64 << 10;
/// Bytes of a name that readers keep. The last one shows that the name exceeds the limit.
pub(crate) const KEPT_NAME_BYTES: usize = MAX_NAME_BYTES + 1;
/// Suffix of a truncated name.
pub(crate) const ELLIPSIS: &str = "...";
/// Suffix of the name of a PLT stub, after the name of the function that it jumps to.
pub(crate) const PLT_SUFFIX: &str = "@plt";
/// Limit of positions at which clone suffixes may start. Compilers write a dot before a suffix.
const MAX_SUFFIXES: usize = 3;
/// Limit of positions at which the name of a constructor may be, or may end.
const MAX_POSITIONS: usize = 32;
const COMMA: &str = ", ";
/// Parser recursion limit.
///
/// cpp_demangle backtracks at each level: an invalid name costs ten times more per 16 levels, 5 ms
/// at this limit. 3 of 163 199 names of LLVM, Clang, Node.js and the JVM exceed it.
const MAX_PARSE_DEPTH: u32 = 64;
/// Parser recursion limit for parts of a name, which are tried in sequence: 0.1 ms each.
const MAX_PART_DEPTH: u32 = 48;
/// Output recursion limit. Back references can exceed the depth of the name.
const MAX_OUTPUT_DEPTH: u32 = 160;

/// Demangles a symbol name.
///
/// - Rust hashes are dropped.
/// - Clone suffixes have the form of c++filt: `_Z3foov.cold` is `foo() [clone .cold]`.
/// - The suffix `@plt` of a stub is kept.
/// - A name in an unknown mangling is returned, up to [`MAX_NAME_BYTES`] of it. Bytes that are not
///   UTF-8 become U+FFFD.
///
/// ```
/// use perfcollect_symbols::demangle::demangle;
///
/// assert_eq!(demangle(b"_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"), "core::fmt::Write::write_fmt");
/// assert_eq!(demangle(b"_ZN3app3runEi.part.0"), "app::run(int) [clone .part.0]");
/// assert_eq!(demangle(b"main"), "main");
/// ```
#[must_use]
pub fn demangle(name: &[u8]) -> Cow<'_, str> {
    let options = DemangleOptions::default().hide_expression_literal_types();
    let Some((mut output, suffix)) = demangled(name, options) else {
        return unchanged(name);
    };
    for clone in clones(suffix) {
        output.push_str(" [clone ");
        output.push_str(clone);
        output.push(']');
    }
    output.push_str(stub_suffix(name));
    output.into()
}

/// Demangles a symbol name as perf does: without parameters and clone suffixes.
///
/// Integers in template arguments have the suffix of their type.
///
/// ```
/// use perfcollect_symbols::demangle::demangle_bare;
///
/// assert_eq!(demangle_bare(b"_ZN1aILj8EE1bEi.cold"), "a<8u>::b");
/// ```
#[must_use]
pub fn demangle_bare(name: &[u8]) -> Cow<'_, str> {
    let options = DemangleOptions::default().no_params().no_return_type();
    let Some((mut bare, _)) = demangled(name, options) else {
        return unchanged(name);
    };
    // The suffix follows the parameters, which are omitted.
    bare.truncate(bare.strip_suffix(" const").unwrap_or(&bare).len());
    for (cast, suffix) in CASTS {
        bare = suffix_literals(bare, cast, suffix);
    }
    bare.push_str(stub_suffix(name));
    bare.into()
}

fn unchanged(name: &[u8]) -> Cow<'_, str> {
    match name.split_at_checked(MAX_NAME_BYTES) {
        None | Some((_, [])) => String::from_utf8_lossy(name),
        Some((start, _)) => String::from_utf8_lossy(start) + ELLIPSIS,
    }
}

/// Casts before integers, and the corresponding suffixes after them.
const CASTS: [(&str, &str); 6] = [
    ("(int)", ""),
    ("(unsigned int)", "u"),
    ("(long)", "l"),
    ("(unsigned long)", "ul"),
    ("(long long)", "ll"),
    ("(unsigned long long)", "ull"),
];

/// Replaces `(unsigned int)8` by `8u`.
fn suffix_literals(name: String, cast: &str, suffix: &str) -> String {
    let mut pieces = name.split(cast);
    let Some(mut out) = pieces.next().map(str::to_owned) else {
        return name;
    };
    if out.len() == name.len() {
        return name;
    }
    for piece in pieces {
        let is_digit = |&byte: &u8| byte.is_ascii_digit();
        let sign = usize::from(piece.starts_with('-'));
        let digits = piece.bytes().skip(sign).take_while(is_digit).count();
        let (integer, rest) = match digits {
            0 => ("", piece),
            _ => piece.split_at_checked(sign + digits).unwrap_or(("", piece)),
        };
        for part in match integer {
            "" => [cast, rest, ""],
            integer => [integer, suffix, rest],
        } {
            out.push_str(part);
        }
    }
    out
}

/// Returns the demangled name without clone suffixes, and the clone suffixes. Drops `@plt`.
fn demangled(name: &[u8], options: DemangleOptions) -> Option<(String, &str)> {
    if name.len() > MAX_MANGLED_BYTES || !is_mangled(name) {
        return None;
    }
    let name = name.strip_suffix(PLT_SUFFIX.as_bytes()).unwrap_or(name);
    let name = std::str::from_utf8(name).ok()?;
    clone_suffixes(name).find_map(|suffix| {
        let base = name.strip_suffix(suffix)?;
        Some((rust(base).or_else(|| cpp(base, options))?, suffix))
    })
}

fn stub_suffix(name: &[u8]) -> &'static str {
    match name.ends_with(PLT_SUFFIX.as_bytes()) {
        true => PLT_SUFFIX,
        false => "",
    }
}

fn is_mangled(name: &[u8]) -> bool {
    [&b"_Z"[..], b"__Z", b"_R", b"___Z"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Returns the possible clone suffixes of a name, the longest first.
///
/// Mangled names have no dots, with two exceptions: legacy Rust names have `..` for `::` in names
/// of impls, and GCC has a dot in the type of a coroutine frame (`14_Z4coroi.Frame`).
fn clone_suffixes(name: &str) -> impl Iterator<Item = &str> {
    let bytes = name.as_bytes();
    let is_dot = |index: Option<usize>| index.and_then(|index| bytes.get(index)) == Some(&b'.');
    let is_single =
        move |index: usize| !is_dot(index.checked_sub(1)) && !is_dot(index.checked_add(1));
    // A clone suffix follows a complete name, which in legacy Rust ends with `E`.
    let is_complete = |base: &str| !is_legacy_rust(bytes) || base.ends_with('E');
    let suffixes = name.match_indices('.').filter_map(move |(index, _)| {
        let (base, suffix) = name.split_at_checked(index)?;
        (is_single(index) && is_complete(base)).then_some(suffix)
    });
    suffixes.take(MAX_SUFFIXES).chain([""])
}

/// Splits `.isra.0.cold` into `.isra.0` and `.cold`. An integer belongs to the suffix before it.
fn clones(suffix: &str) -> impl Iterator<Item = &str> {
    let mut rest = suffix;
    std::iter::from_fn(move || {
        let is_start = |&(index, _): &(usize, &str)| {
            let next = rest.as_bytes().get(index + 1);
            index > 0 && !next.is_some_and(u8::is_ascii_digit)
        };
        let end = rest.match_indices('.').find(is_start);
        let end = end.map_or(rest.len(), |(index, _)| index);
        let (clone, remaining) = rest.split_at_checked(end)?;
        rest = remaining;
        (!clone.is_empty()).then_some(clone)
    })
}

fn is_legacy_rust(name: &[u8]) -> bool {
    memchr::memmem::find(name, b"17h").is_some()
}

fn rust(name: &str) -> Option<String> {
    let demangled = rustc_demangle::try_demangle(name).ok()?;
    let mut out = Bounded::default();
    // The alternate form omits the hash.
    write!(out, "{demangled:#}").ok()?;
    Some(out.output)
}

fn cpp(name: &str, options: DemangleOptions) -> Option<String> {
    let unmodified = parsed(name, MAX_PARSE_DEPTH)?;
    let constructor = constructor_end(name).and_then(|end| name.split_at_checked(end));
    let with_return_type = constructor.map(|(name, rest)| [name, "v", rest].concat());
    let with_return_type = with_return_type.as_deref();
    let symbol = with_return_type.and_then(|name| parsed(name, MAX_PARSE_DEPTH));
    let symbol = symbol.unwrap_or(unmodified);
    let mut out = Bounded::default();
    let options = options.recursion_limit(MAX_OUTPUT_DEPTH);
    symbol.structured_demangle(&mut out, &options).ok()?;
    Some(thunk(&out.output).unwrap_or(out.output))
}

fn parsed(name: &str, depth: u32) -> Option<BorrowedSymbol<'_>> {
    let parsing = ParseOptions::default().recursion_limit(depth);
    let (symbol, tail) = BorrowedSymbol::with_tail_and_options(name.as_bytes(), &parsing).ok()?;
    tail.is_empty().then_some(symbol)
}

/// Returns the end of the name of a constructor template: `_ZN1OC1IiEE`, or `_ZZN1OC1IiEE` if the
/// symbol is local to it.
///
/// The parameters follow this name directly. In other templates the return type follows, and
/// cpp_demangle parses the first parameter as one.
fn constructor_end(name: &str) -> Option<usize> {
    let (_, encoding) = name.split_once("_Z")?;
    let encoding = encoding.trim_start_matches('Z');
    let is_name = |end: usize, close: &str| {
        let name = encoding.get(..end);
        name.is_some_and(|name| parsed(&["_Z", name, close].concat(), MAX_PART_DEPTH).is_some())
    };
    let bytes = encoding.as_bytes();
    let is_constructor =
        |index: &usize| matches!(bytes.get(*index..), Some([b'C', b'1'..=b'5', b'I', ..]));
    let mut constructors = (0..bytes.len()).filter(is_constructor).take(MAX_POSITIONS);
    // The name of a class precedes a constructor, or the abbreviation of `std::string`. Inside the
    // name of a function the part before is not a valid name.
    let constructor =
        constructors.find(|&index| encoding.get(..index) == Some("NSs") || is_name(index, "E"))?;
    let is_end = |end: &usize| bytes.get(..*end).is_some_and(|name| name.ends_with(b"EE"));
    let mut ends = (constructor..=bytes.len())
        .filter(is_end)
        .take(MAX_POSITIONS);
    let end = ends.find(|&end| is_name(end, ""))?;
    Some(name.len() - encoding.len() + end)
}

/// Rewrites `{virtual override thunk({offset(-16)}, f())}` to `non-virtual thunk to f()`, the form
/// of other demanglers.
fn thunk(text: &str) -> Option<String> {
    let inside = text.strip_prefix("{virtual override thunk({")?;
    let (offset, name) = inside.strip_suffix(")}")?.split_once("}, ")?;
    let kind = match offset.starts_with("virtual") {
        true => "virtual",
        false => "non-virtual",
    };
    Some(format!("{kind} thunk to {name}"))
}

/// A string of at most [`MAX_DEMANGLED_BYTES`]. Longer output is an error, which stops demangling.
#[derive(Default)]
struct Bounded {
    output: String,
    /// Whether a comma was written last: an empty argument pack would leave it (`V<4, >`).
    is_comma: bool,
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.output.len().saturating_add(text.len()) > MAX_DEMANGLED_BYTES {
            return Err(fmt::Error);
        }
        if self.is_comma && matches!(text, ">" | ")") {
            self.output.truncate(self.output.len() - COMMA.len());
        }
        self.is_comma = text == COMMA;
        self.output.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn drops_rust_hashes() {
        assert_eq!(demangle(b"_RNvCskwGfYPst2Cb_3foo3bar"), "foo::bar");
        assert_eq!(
            demangle(
                b"_ZN50_$LT$T$u20$as$u20$core..convert..Into$LT$U$GT$$GT$4into17h0123456789abcdefE"
            ),
            "<T as core::convert::Into<U>>::into"
        );
        assert_eq!(
            demangle(b"_ZN3foo3bar17h0123456789abcdefE.llvm.1234567890"),
            "foo::bar [clone .llvm.1234567890]"
        );
    }

    #[test]
    fn writes_clone_suffixes_like_cpp_filt() {
        assert_eq!(demangle(b"_Z3foov.cold"), "foo() [clone .cold]");
        assert_eq!(
            demangle(b"_Z3fooi.constprop.0.isra.0"),
            "foo(int) [clone .constprop.0] [clone .isra.0]"
        );
    }

    #[test]
    fn writes_no_comma_before_an_empty_argument_pack() {
        for (name, written) in [
            (&b"_ZNK1VILj4EJEE3runEi"[..], "V<4>::run(int) const"),
            (b"_ZNK1VILj4EJiEE3runEi", "V<4, int>::run(int) const"),
            (b"_Z3twoIJEEviDpT_", "void two<>(int)"),
            (b"_Z3twoIJiEEviDpT_", "void two<int>(int, int)"),
            (b"_Z5threeI1PJEEvi", "void three<P>(int)"),
            (b"_Z5threeI1PJiS0_IJEEEEvi", "void three<P, int, P<> >(int)"),
        ] {
            assert_eq!(demangle(name), written);
        }
        assert_eq!(demangle_bare(b"_ZN1VILj4EJEE3runEi"), "V<4u>::run");
    }

    #[test]
    fn constructor_templates_keep_their_first_parameter() {
        for (name, written) in [
            (&b"_ZN1OC1IiEEPii"[..], "O::O<int>(int*, int)"),
            (b"_ZN1OC2IiEET_i", "O::O<int>(int, int)"),
            (b"_ZN1VIlEC2IiEERKS_IT_E", "V<long>::V<int>(V<int> const&)"),
            (b"_ZN1OC1ENS_1PE", "O::O(O::P)"),
            (
                b"_ZNSsC1IPcEET_S1_RKSaIcE",
                "std::string::string<char*>(char*, char*, std::allocator<char> const&)",
            ),
            (
                b"_ZZN1OC1IiEEPiENKUlvE_clEv",
                "O::O<int>(int*)::{lambda()#1}::operator()() const",
            ),
            (b"_ZN2ns3aC1IiEEvT_", "void ns::aC1<int>(int)"),
        ] {
            assert_eq!(demangle(name), written);
        }
    }

    #[test]
    fn writes_coroutine_bodies_as_clones() {
        assert_eq!(
            demangle(b"_Z4coroPZ4coroiE14_Z4coroi.Frame.actor"),
            "coro(coro(int)::_Z4coroi.Frame*) [clone .actor]"
        );
    }

    #[test]
    fn thunks_have_the_name_of_their_target() {
        assert_eq!(
            demangle(b"_ZThn16_N1a1bD1Ev"),
            "non-virtual thunk to a::b::~b()"
        );
        assert_eq!(
            demangle(b"_ZTv0_n24_N1a1bD1Ev"),
            "virtual thunk to a::b::~b()"
        );
    }

    #[test]
    fn bare_names_equal_those_of_perf() {
        for (name, bare) in [
            (&b"_ZN1a1bEi"[..], "a::b"),
            (b"_ZN1a1bEi.cold", "a::b"),
            (b"_ZL3foov.llvm.5113162178513204800", "foo"),
            (b"_ZN1aILj8ELm9EE1bEv", "a<8u, 9ul>::b"),
            (b"_ZN1aILin1ELb1EE1bEv", "a<-1, true>::b"),
            (b"_ZN1aIiJEE1bEv", "a<int>::b"),
            (
                b"_ZZN1a1bEiENKUlvE_clEv",
                "a::b(int)::{lambda()#1}::operator()",
            ),
            (b"foo.cold", "foo.cold"),
        ] {
            assert_eq!(demangle_bare(name), bare);
        }
    }

    #[test]
    fn plt_stubs_have_the_name_of_their_function() {
        assert_eq!(demangle(b"_Znwm@plt"), "operator new(unsigned long)@plt");
        assert_eq!(demangle_bare(b"_ZN1a1bEi@plt"), "a::b@plt");
        assert_eq!(demangle(b"memmove@plt"), "memmove@plt");
    }

    #[test]
    fn returns_other_names_unchanged() {
        let long = [b"_ZN".as_slice(), &[b'a'; MAX_MANGLED_BYTES]].concat();
        assert_eq!(demangle(b"malloc"), "malloc");
        assert_eq!(demangle(b"foo.cold"), "foo.cold");
        assert_eq!(demangle(b"_Z"), "_Z");
        assert_eq!(demangle(b"_Znot mangled"), "_Znot mangled");
        assert_eq!(demangle(b"bad\xff"), "bad\u{fffd}");
        assert_eq!(demangle(&long).len(), long.len());
    }

    #[test]
    fn bounds_output_of_names_that_double_at_every_step() {
        // Each pair of substitutions repeats the one before: the full name has 2^40 letters.
        let mut name = b"_Z1fI1aE".to_vec();
        name.extend_from_slice(b"St4pairI1aS_E");
        for index in 0..36u32 {
            let digit = char::from_digit(index, 36).unwrap().to_ascii_uppercase();
            name.extend_from_slice(format!("St4pairIS{digit}_S{digit}_E").as_bytes());
        }
        assert!(demangle(&name).len() <= MAX_DEMANGLED_BYTES);
    }

    /// The parser tries several alternatives at each level.
    #[test]
    fn bounds_time_for_deeply_nested_invalid_names() {
        for level in ["SaI", "St1aI", "L1aI", "1aILSaI", "N1OC1ISaI"] {
            let name = format!("_Z{}z", level.repeat(40));
            assert_eq!(demangle(name.as_bytes()), name);
        }
    }

    proptest! {
        #[test]
        fn never_panics(prefix in prop_oneof![Just("_Z"), Just("_R"), Just("_ZN")], tail in "[A-Za-z0-9_.$]{0,60}") {
            let name = format!("{prefix}{tail}");
            prop_assert!(demangle(name.as_bytes()).len() <= MAX_DEMANGLED_BYTES);
        }
    }
}
