//! Names as their programmers wrote them: Rust (both manglings), C++ (Itanium ABI), else unchanged.

use std::borrow::Cow;
use std::fmt::{self, Write};

use cpp_demangle::{BorrowedSymbol, DemangleOptions, ParseOptions};

/// Longer names are left mangled: the time and the output of demangling can grow much faster than the name.
pub const MAX_MANGLED_BYTES: usize = 4096;
/// A name that would grow longer is left mangled: back references can double it at every step.
pub const MAX_DEMANGLED_BYTES: usize = 64 << 10;
/// Of a longer name these first bytes are shown, with `...` behind them; C++ reaches 20 KB.
pub const MAX_NAME_BYTES: usize = 64 << 10;
/// Most bytes of a name that readers keep: by the last one it is known to be longer.
pub(crate) const KEPT_NAME_BYTES: usize = MAX_NAME_BYTES + 1;
/// Behind the beginning of a name that is too long.
pub(crate) const ELLIPSIS: &str = "...";
/// What stands behind the name of the function that a stub of the procedure linkage table jumps to.
pub(crate) const PLT_SUFFIX: &str = "@plt";
/// Places tried where the suffixes of clones may begin; compilers write a dot before them, if any.
const MAX_SUFFIXES: usize = 3;
/// Places tried where the name of a constructor may be, or may end.
const MAX_POSITIONS: usize = 32;
const COMMA: &str = ", ";
/// Depth of what is read. At each level that does not fit cpp_demangle tries others, so that a name that is none takes ten times longer for
/// each 16 levels: 5 ms for these. Of 163 199 names of LLVM, Clang, Node.js and the JVM all but 3 need no more.
const MAX_PARSE_DEPTH: u32 = 64;
/// The same for the parts of a name that are tried one after the other: 0.1 ms each.
const MAX_PART_DEPTH: u32 = 48;
/// Depth of what is written; back references lead deeper than a name is.
const MAX_OUTPUT_DEPTH: u32 = 160;

/// The readable form of a symbol name. Rust hashes are dropped. What compilers append is kept as c++filt
/// writes it: `_Z3foov.cold` is `foo() [clone .cold]`; `@plt` of a stub stays at its end. A name that is not understood is given back, up to
/// [`MAX_NAME_BYTES`] of it, bytes that are no UTF-8 as U+FFFD.
///
/// ```
/// use perfcollect_symbols::demangle::demangle;
/// assert_eq!(demangle(b"_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"), "core::fmt::Write::write_fmt");
/// assert_eq!(demangle(b"_ZNSt6vectorIiSaIiEE9push_backEOi.part.0"), "std::vector<int, std::allocator<int> >::push_back(int&&) [clone .part.0]");
/// assert_eq!(demangle(b"main"), "main");
/// ```
#[must_use]
pub fn demangle(name: &[u8]) -> Cow<'_, str> {
    let options = DemangleOptions::default().hide_expression_literal_types();
    let Some((mut text, suffix)) = demangled(name, options) else {
        return unchanged(name);
    };
    for clone in clones(suffix) {
        text.push_str(" [clone ");
        text.push_str(clone);
        text.push(']');
    }
    text.push_str(stub_suffix(name));
    text.into()
}

/// The same without the parameters of functions and without what compilers append, as perf prints them: `foo`. Numbers in
/// templates have their type, `a<8u>`.
#[must_use]
pub fn demangle_bare(name: &[u8]) -> Cow<'_, str> {
    let options = DemangleOptions::default().no_params().no_return_type();
    let Some((mut bare, _)) = demangled(name, options) else {
        return unchanged(name);
    };
    // What stands behind parameters.
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
        Some((begin, _)) => String::from_utf8_lossy(begin) + ELLIPSIS,
    }
}

/// How types of numbers are written before them and behind them.
const CASTS: [(&str, &str); 6] = [
    ("(int)", ""),
    ("(unsigned int)", "u"),
    ("(long)", "l"),
    ("(unsigned long)", "ul"),
    ("(long long)", "ll"),
    ("(unsigned long long)", "ull"),
];

/// `(unsigned int)8` is `8u`.
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
        let (number, rest) = match digits {
            0 => ("", piece),
            _ => piece.split_at_checked(sign + digits).unwrap_or(("", piece)),
        };
        for part in match number {
            "" => [cast, rest, ""],
            number => [number, suffix, rest],
        } {
            out.push_str(part);
        }
    }
    out
}

/// The readable form of what is before the clone suffixes, and those; without the mark of a stub.
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

/// What may be a suffix of clones, the longest first. Manglings have no dots of their own, but the legacy Rust one writes `..` for `::`
/// in names of impls, and GCC has one in the type of a coroutine's frame (`14_Z4coroi.Frame`).
fn clone_suffixes(name: &str) -> impl Iterator<Item = &str> {
    let bytes = name.as_bytes();
    let is_dot = |at: Option<usize>| at.and_then(|at| bytes.get(at)) == Some(&b'.');
    let is_alone = move |at: usize| !is_dot(at.checked_sub(1)) && !is_dot(at.checked_add(1));
    // A clone suffix comes behind a whole name, in legacy Rust behind its `E`.
    let is_whole = |base: &str| !is_legacy_rust(bytes) || base.ends_with('E');
    let suffixes = name.match_indices('.').filter_map(move |(at, _)| {
        let (base, suffix) = name.split_at_checked(at)?;
        (is_alone(at) && is_whole(base)).then_some(suffix)
    });
    suffixes.take(MAX_SUFFIXES).chain([""])
}

/// `.isra.0` and `.cold` of `.isra.0.cold`: a number belongs to what is before it.
fn clones(suffix: &str) -> impl Iterator<Item = &str> {
    let mut rest = suffix;
    std::iter::from_fn(move || {
        let begins = |&(at, _): &(usize, &str)| {
            let behind = rest.as_bytes().get(at + 1);
            at > 0 && !behind.is_some_and(u8::is_ascii_digit)
        };
        let end = rest.match_indices('.').find(begins);
        let (clone, behind) = rest.split_at_checked(end.map_or(rest.len(), |(at, _)| at))?;
        rest = behind;
        (!clone.is_empty()).then_some(clone)
    })
}

fn is_legacy_rust(name: &[u8]) -> bool {
    memchr::memmem::find(name, b"17h").is_some()
}

fn rust(name: &str) -> Option<String> {
    let demangled = rustc_demangle::try_demangle(name).ok()?;
    let mut out = Bounded::default();
    // The alternate form is the one without the hash.
    write!(out, "{demangled:#}").ok()?;
    Some(out.text)
}

fn cpp(name: &str, options: DemangleOptions) -> Option<String> {
    let as_it_is = parsed(name, MAX_PARSE_DEPTH)?;
    let constructor = constructor_end(name).and_then(|end| name.split_at_checked(end));
    let with_return_type = constructor.map(|(name, rest)| [name, "v", rest].concat());
    let with_return_type = with_return_type.as_deref();
    let symbol = with_return_type.and_then(|name| parsed(name, MAX_PARSE_DEPTH));
    let symbol = symbol.unwrap_or(as_it_is);
    let mut out = Bounded::default();
    let options = options.recursion_limit(MAX_OUTPUT_DEPTH);
    symbol.structured_demangle(&mut out, &options).ok()?;
    Some(thunk(&out.text).unwrap_or(out.text))
}

fn parsed(name: &str, depth: u32) -> Option<BorrowedSymbol<'_>> {
    let parsing = ParseOptions::default().recursion_limit(depth);
    let (symbol, tail) = BorrowedSymbol::with_tail_and_options(name.as_bytes(), &parsing).ok()?;
    tail.is_empty().then_some(symbol)
}

/// Where the name of a constructor that is a template ends (`_ZN1OC1IiEE`), also of the one that a local name is in (`_ZZN1OC1IiEE`).
/// Its parameters follow at once, while other templates have the type they return there; the demangler takes the first parameter for that.
fn constructor_end(name: &str) -> Option<usize> {
    let (_, encoding) = name.split_once("_Z")?;
    let encoding = encoding.trim_start_matches('Z');
    let is_name = |end: usize, close: &str| {
        let name = encoding.get(..end);
        name.is_some_and(|name| parsed(&["_Z", name, close].concat(), MAX_PART_DEPTH).is_some())
    };
    let bytes = encoding.as_bytes();
    let is_mark = |at: &usize| matches!(bytes.get(*at..), Some([b'C', b'1'..=b'5', b'I', ..]));
    let mut marks = (0..bytes.len()).filter(is_mark).take(MAX_POSITIONS);
    // What is before it is the name of the class, or the short one of `std::string`; within a function's own name it would be none.
    let mark = marks.find(|&at| encoding.get(..at) == Some("NSs") || is_name(at, "E"))?;
    let is_end = |end: &usize| bytes.get(..*end).is_some_and(|name| name.ends_with(b"EE"));
    let mut ends = (mark..=bytes.len()).filter(is_end).take(MAX_POSITIONS);
    let end = ends.find(|&end| is_name(end, ""))?;
    Some(name.len() - encoding.len() + end)
}

/// `{virtual override thunk({offset(-16)}, f())}` as others write it: `non-virtual thunk to f()`.
fn thunk(text: &str) -> Option<String> {
    let inside = text.strip_prefix("{virtual override thunk({")?;
    let (offset, name) = inside.strip_suffix(")}")?.split_once("}, ")?;
    let kind = match offset.starts_with("virtual") {
        true => "virtual",
        false => "non-virtual",
    };
    Some(format!("{kind} thunk to {name}"))
}

/// Takes text up to [`MAX_DEMANGLED_BYTES`], then fails, which ends the demangling.
#[derive(Default)]
struct Bounded {
    text: String,
    /// A comma was written last: nothing comes of an empty list of arguments (`V<4, >`).
    is_comma: bool,
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.text.len().saturating_add(text.len()) > MAX_DEMANGLED_BYTES {
            return Err(fmt::Error);
        }
        if self.is_comma && matches!(text, ">" | ")") {
            self.text.truncate(self.text.len() - COMMA.len());
        }
        self.is_comma = text == COMMA;
        self.text.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rust_names_lose_their_hash() {
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
    fn clones_are_written_as_cpp_filt_does() {
        assert_eq!(demangle(b"_Z3foov.cold"), "foo() [clone .cold]");
        assert_eq!(
            demangle(b"_Z3fooi.constprop.0.isra.0"),
            "foo(int) [clone .constprop.0] [clone .isra.0]"
        );
    }

    #[test]
    fn an_empty_list_of_arguments_leaves_no_comma() {
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
    fn templates_of_constructors_keep_their_first_parameter() {
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
    fn bodies_of_coroutines_are_clones() {
        assert_eq!(
            demangle(b"_Z4coroPZ4coroiE14_Z4coroi.Frame.actor"),
            "coro(coro(int)::_Z4coroi.Frame*) [clone .actor]"
        );
    }

    #[test]
    fn thunks_tell_where_they_lead() {
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
    fn bare_names_are_those_of_perf() {
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
    fn stubs_have_the_name_of_their_function() {
        assert_eq!(demangle(b"_Znwm@plt"), "operator new(unsigned long)@plt");
        assert_eq!(demangle_bare(b"_ZN1a1bEi@plt"), "a::b@plt");
        assert_eq!(demangle(b"memmove@plt"), "memmove@plt");
    }

    #[test]
    fn other_names_stay() {
        let long = [b"_ZN".as_slice(), &[b'a'; MAX_MANGLED_BYTES]].concat();
        assert_eq!(demangle(b"malloc"), "malloc");
        assert_eq!(demangle(b"foo.cold"), "foo.cold");
        assert_eq!(demangle(b"_Z"), "_Z");
        assert_eq!(demangle(b"_Znot mangled"), "_Znot mangled");
        assert_eq!(demangle(b"bad\xff"), "bad\u{fffd}");
        assert_eq!(demangle(&long).len(), long.len());
    }

    #[test]
    fn a_name_that_doubles_at_every_step_is_left_mangled() {
        // Each pair of substitutions repeats all before: 2^40 letters if written out.
        let mut name = b"_Z1fI1aE".to_vec();
        name.extend_from_slice(b"St4pairI1aS_E");
        for index in 0..36u32 {
            let digit = char::from_digit(index, 36).unwrap().to_ascii_uppercase();
            name.extend_from_slice(format!("St4pairIS{digit}_S{digit}_E").as_bytes());
        }
        assert!(demangle(&name).len() <= MAX_DEMANGLED_BYTES);
    }

    /// Each level that does not fit is tried in several ways.
    #[test]
    fn a_name_that_is_none_at_its_depth_is_soon_left_mangled() {
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
