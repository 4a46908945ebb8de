//! The names a .NET runtime writes into perf maps and jitdumps.
//!
//! ```text
//! instance void [System.Private.CoreLib] System.Threading.Timer::.ctor(class System.Object)[QuickJitted]
//! return type    assembly                type                    method                    tier
//! ```
//! `PerfMap::LogJITCompiledMethod` in the runtime's src/coreclr/vm/perfmap.cpp prints the full signature, then the tier;
//! `DOTNET_PerfMapShowOptimizationTiers=0` leaves the tier out. Stubs have no assembly:
//! `stub<17> GenerateResolveStub<RESOLVE_STUB>`.

use std::borrow::Cow;

use crate::dotnet::il_text;

/// How the runtime compiled a method: names of PerfView's `OptimizationTier`. The runtime's method events have the number of one of
/// the first eight in their flags.
pub const TIERS: [&str; 10] = [
    "Unknown",
    "MinOptJitted",
    "Optimized",
    "QuickJitted",
    "OptimizedTier1",
    "OptimizedTier1OSR",
    "QuickJittedInstrumented",
    "OptimizedTier1Instrumented",
    "ReadyToRun",
    "PreJIT",
];
/// Names that perf maps of .NET Core 3.1 to 10 have for some of [`TIERS`].
const PERF_MAP_TIERS: [(&str, &str); 3] = [
    ("InstrumentedTier", "QuickJittedInstrumented"),
    ("InstrumentedTierOptimized", "OptimizedTier1Instrumented"),
    ("PreJit-cold", "PreJIT"),
];

/// A .NET method's name in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagedName<'a> {
    /// The assembly's simple name: `System.Private.CoreLib`.
    pub assembly: Cow<'a, str>,
    /// `Namespace.Type.Method(parameters)`, types spelled as in C#, nested ones behind `+`. The return type is dropped.
    pub method: String,
    /// One of [`TIERS`].
    pub tier: Option<&'static str>,
}

impl<'a> ManagedName<'a> {
    /// Takes a name apart; `None` for a stub and for names of other runtimes. Bytes that are no UTF-8 become U+FFFD.
    #[must_use]
    pub fn parse(name: &'a [u8]) -> Option<Self> {
        let (name, tier) = split_tier(name);
        let (assembly, method) = split_assembly(name)?;
        let colons = memchr::memmem::find(method, b"::").filter(|&at| at > 0)?;
        let (type_name, method_name) = (method.get(..colons)?, method.get(colons + 2..)?);
        if method_name.is_empty() {
            return None;
        }
        let (mut method, of_type) = il_text::owner(&String::from_utf8_lossy(type_name));
        method.push('.');
        let method_name = without_comments(&String::from_utf8_lossy(method_name));
        let (name, parameters) = method_name
            .find('(')
            .and_then(|at| method_name.split_at_checked(at))
            .unwrap_or((&method_name, ""));
        method.push_str(name);
        match il_text::parameters(parameters, &of_type) {
            Some(spelled) => method.push_str(&spelled),
            None => method.push_str(parameters),
        }
        Some(Self {
            assembly: String::from_utf8_lossy(assembly),
            method,
            tier,
        })
    }
}

/// What a stub is for, from `stub<17> GenerateResolveStub<RESOLVE_STUB>`; `None`: the name is of no stub.
#[must_use]
pub fn stub(name: &[u8]) -> Option<Cow<'_, str>> {
    let (head, stub) = name.split_at_checked(memchr::memchr(b' ', name)?)?;
    let number = head.strip_prefix(b"stub")?;
    let is_numbered = number.starts_with(b"<") && number.ends_with(b">");
    let kind = stub.strip_suffix(b">")?;
    let kind = kind.get(memchr::memchr(b'<', kind)? + 1..)?;
    (number.is_empty() || is_numbered).then(|| String::from_utf8_lossy(kind))
}

fn split_tier(name: &[u8]) -> (&[u8], Option<&'static str>) {
    let tier_of = |name: &[u8]| {
        let inner = name.strip_suffix(b"]")?;
        let open = memchr::memrchr(b'[', inner)?;
        let word = inner.get(open + 1..)?;
        let known = TIERS.into_iter().map(|tier| (tier, tier));
        let mut known = known.chain(PERF_MAP_TIERS);
        let (_, tier) = known.find(|(name, _)| name.as_bytes() == word)?;
        Some((open, tier))
    };
    match tier_of(name) {
        Some((open, tier)) => (name.get(..open).unwrap_or(name), Some(tier)),
        None => (name, None),
    }
}

/// Splits at the first ` [assembly] `. Other brackets lack one of the blanks: `string[]`,
/// `class [System.Runtime]System.Func`, `modreq([System.Runtime]System.X)`.
fn split_assembly(name: &[u8]) -> Option<(&[u8], &[u8])> {
    for open in memchr::memmem::find_iter(name, b" [") {
        let from = name.get(open + 2..)?;
        let close = memchr::memchr(b']', from)?;
        let (assembly, rest) = from.split_at_checked(close)?;
        if let Some(method) = rest
            .strip_prefix(b"] ")
            .filter(|_| !assembly.is_empty() && !assembly.contains(&b'['))
        {
            return Some((assembly, method));
        }
    }
    None
}

/// Drops ` /* MT: 0x7f.. */`, which dynamic methods have behind a class: the address differs from process to process.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once(" /* MT: ") {
        let Some((_, after)) = comment.split_once(" */") else {
            break;
        };
        out.push_str(before);
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    fn parts(name: &str) -> Option<(String, String, Option<&'static str>)> {
        ManagedName::parse(name.as_bytes())
            .map(|name| (name.assembly.into_owned(), name.method, name.tier))
    }

    #[track_caller]
    fn check(name: &str, assembly: &str, method: &str, tier: Option<&'static str>) {
        assert_eq!(
            parts(name),
            Some((assembly.to_owned(), method.to_owned(), tier))
        );
    }

    // Names below are from maps of .NET 8.0.33 and 10.0.12.

    #[test]
    fn static_instance_and_untiered() {
        let tier = Some("OptimizedTier1");
        check(
            "int32 [app] Program::Fib(int32)[OptimizedTier1]",
            "app",
            "Program.Fib(int)",
            tier,
        );
        check(
            "instance void [asm] N.T::M(string)",
            "asm",
            "N.T.M(string)",
            None,
        );
        check(
            "void [System.Private.CoreLib] A.B::C()[PreJit-cold]",
            "System.Private.CoreLib",
            "A.B.C()",
            Some("PreJIT"),
        );
    }

    #[test]
    fn constructors_keep_their_dot() {
        check(
            "instance void [split] Program+<>c::.ctor()[QuickJitted]",
            "split",
            "Program+<>c..ctor()",
            Some("QuickJitted"),
        );
    }

    #[test]
    fn brackets_of_types_are_not_the_assembly() {
        check(
            "class [System.Runtime]System.Func`2<uint64,uint64> [split] Split.Modes.DynamicCode::Emit(string)[InstrumentedTier]",
            "split",
            "Split.Modes.DynamicCode.Emit(string)",
            Some("QuickJittedInstrumented"),
        );
        check(
            "instance void modreq([System.Runtime]System.Runtime.CompilerServices.IsExternalInit) [split] Split.Options::set_Mode(string)[QuickJitted]",
            "split",
            "Split.Options.set_Mode(string)",
            Some("QuickJitted"),
        );
        check(
            "string[] [split] P::Q(class [System.Runtime]System.X[])",
            "split",
            "P.Q(System.X[])",
            None,
        );
    }

    #[test]
    fn lambdas_and_nested_generics() {
        check(
            "instance bool [split] Program+<>c__DisplayClass0_0::<<Main>$>b__0(class Split.Mode)[QuickJitted]",
            "split",
            "Program+<>c__DisplayClass0_0.<<Main>$>b__0(Split.Mode)",
            Some("QuickJitted"),
        );
        check(
            "instance uint64 [split] Split.Modes.Generics+Box`1[System.__Canon]::GenericBurn(uint64)[OptimizedTier1OSR]",
            "split",
            "Split.Modes.Generics+Box<System.__Canon>.GenericBurn(ulong)",
            Some("OptimizedTier1OSR"),
        );
        check(
            "void [app] <>c::<LambdaCaller>b__0_0()",
            "app",
            "<>c.<LambdaCaller>b__0_0()",
            None,
        );
    }

    #[test]
    fn dynamic_methods_lose_the_address_of_their_method_table() {
        check(
            "uint64 [Anonymously Hosted DynamicMethods Assembly] dynamicClass::lambda_method1(System.Runtime.CompilerServices.Closure /* MT: 0x7faea75ef7d8 */,uint64)[Optimized]",
            "Anonymously Hosted DynamicMethods Assembly",
            "dynamicClass.lambda_method1(System.Runtime.CompilerServices.Closure,ulong)",
            Some("Optimized"),
        );
        check("void [a] D::m(X /* MT: 0x1", "a", "D.m(X /* MT: 0x1", None);
    }

    #[test]
    fn only_known_words_are_tiers() {
        check(
            "void [a] T::M(int32)[Turbo]",
            "a",
            "T.M(int32)[Turbo]",
            None,
        );
        check("void [a] T::M(int32[])", "a", "T.M(int[])", None);
    }

    #[test]
    fn stubs_and_foreign_names_are_not_managed() {
        for name in [
            "stub<17> AllocateTemporaryEntryPoints<PRECODE_STUB>",
            "stub ReportStubBlock<MethodCallThunk>",
            "LazyCompile:~main [eval]:1",
            "void [a] NoColons(int32)",
            "void [a] ::M()",
            "void [a] T::",
            "void [] T::M()",
            "",
        ] {
            assert_eq!(parts(name), None, "{name}");
        }
    }

    #[test]
    fn stubs_say_what_they_are_for() {
        let kind = |name: &str| stub(name.as_bytes()).map(Cow::into_owned);
        let of = |kind: &str| Some(kind.to_owned());
        assert_eq!(
            kind("stub<17> AllocateTemporaryEntryPoints<PRECODE_STUB>"),
            of("PRECODE_STUB")
        );
        assert_eq!(
            kind("stub ReportStubBlock<VSD_ResolveStub>"),
            of("VSD_ResolveStub")
        );
        for other in ["stub", "stub x", "stubs f<A>", "void [a] T::M()", ""] {
            assert_eq!(kind(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(pieces in prop::collection::vec(prop_oneof![
            Just(" [".to_owned()), Just("] ".to_owned()), Just("]".to_owned()), Just("[Optimized]".to_owned()),
            Just("::".to_owned()), Just(" /* MT: ".to_owned()), Just(" */".to_owned()), ".{0,3}",
        ], 0..20)) {
            if let Some(name) = ManagedName::parse(pieces.concat().as_bytes()) {
                prop_assert!(name.method.contains('.') && !name.assembly.is_empty());
            }
        }
    }
}
