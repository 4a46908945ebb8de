//! Parser for the method names that a .NET runtime writes to perf maps and jitdumps.
//!
//! ```text
//! instance void [System.Private.CoreLib] System.Threading.Timer::.ctor(class System.Object)[QuickJitted]
//! return type    assembly                type                    method                    tier
//! ```
//! `PerfMap::LogJITCompiledMethod` in the runtime's src/coreclr/vm/perfmap.cpp prints the full
//! signature, then the tier. `DOTNET_PerfMapShowOptimizationTiers=0` omits the tier. Stubs have no
//! assembly: `stub<17> GenerateResolveStub<RESOLVE_STUB>`.

use std::borrow::Cow;

use crate::dotnet::il_text;

/// Tier names in perf maps of .NET Core 3.1 to 10, and in method events as tools print them.
const TIERS: [&str; 14] = [
    "Unknown",
    "MinOptJitted",
    "Optimized",
    "QuickJitted",
    "OptimizedTier1",
    "OptimizedTier1OSR",
    "InstrumentedTier",
    "InstrumentedTierOptimized",
    "QuickJittedInstrumented",
    "OptimizedTier1Instrumented",
    "ReadyToRun",
    "PreJIT",
    "PreJit-cold",
    "Instrumented",
];

/// The parts of a .NET method's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagedName<'a> {
    /// The assembly's simple name: `System.Private.CoreLib`.
    pub assembly: Cow<'a, str>,
    /// `Namespace.Type.Method(parameters)`, types spelled as in C#, `+` before nested types. The
    /// return type is omitted.
    pub method: String,
    /// The optimization tier, as the runtime prints it.
    pub tier: Option<&'static str>,
}

impl<'a> ManagedName<'a> {
    /// Parses a name. Returns `None` for stubs and for names of other runtimes.
    ///
    /// U+FFFD replaces invalid UTF-8.
    #[must_use]
    pub fn parse(name: &'a [u8]) -> Option<Self> {
        let (name, tier) = split_tier(name);
        let (assembly, method) = split_assembly(name)?;
        let colons = memchr::memmem::find(method, b"::").filter(|&at| at > 0)?;
        let (type_name, method_name) = (method.get(..colons)?, method.get(colons + 2..)?);
        if method_name.is_empty() {
            return None;
        }
        let (mut method, type_arguments) = il_text::owner(&String::from_utf8_lossy(type_name));
        method.push('.');
        let method_name = without_comments(&String::from_utf8_lossy(method_name));
        let (name, parameters) = method_name
            .find('(')
            .and_then(|at| method_name.split_at_checked(at))
            .unwrap_or((&method_name, ""));
        method.push_str(name);
        match il_text::parameters(parameters, &type_arguments) {
            Some(formatted) => method.push_str(&formatted),
            None => method.push_str(parameters),
        }
        Some(Self {
            assembly: String::from_utf8_lossy(assembly),
            method,
            tier,
        })
    }
}

/// Returns the kind of a stub: `RESOLVE_STUB` for `stub<17> GenerateResolveStub<RESOLVE_STUB>`.
///
/// Returns `None` if the name is not that of a stub.
#[must_use]
pub fn stub(name: &[u8]) -> Option<Cow<'_, str>> {
    let (head, stub) = name.split_at_checked(memchr::memchr(b' ', name)?)?;
    let index = head.strip_prefix(b"stub")?;
    let is_index = index.starts_with(b"<") && index.ends_with(b">");
    let kind = stub.strip_suffix(b">")?;
    let kind = kind.get(memchr::memchr(b'<', kind)? + 1..)?;
    (index.is_empty() || is_index).then(|| String::from_utf8_lossy(kind))
}

fn split_tier(name: &[u8]) -> (&[u8], Option<&'static str>) {
    let find_tier = |name: &[u8]| {
        let inner = name.strip_suffix(b"]")?;
        let open = memchr::memrchr(b'[', inner)?;
        let word = inner.get(open + 1..)?;
        let tier = TIERS.iter().find(|tier| tier.as_bytes() == word)?;
        Some((open, *tier))
    };
    match find_tier(name) {
        Some((open, tier)) => (name.get(..open).unwrap_or(name), Some(tier)),
        None => (name, None),
    }
}

/// Splits at the first ` [assembly] `.
///
/// Other brackets lack one of the spaces: `string[]`, `class [System.Runtime]System.Func`,
/// `modreq([System.Runtime]System.X)`.
fn split_assembly(name: &[u8]) -> Option<(&[u8], &[u8])> {
    for open in memchr::memmem::find_iter(name, b" [") {
        let inner = name.get(open + 2..)?;
        let close = memchr::memchr(b']', inner)?;
        let (assembly, rest) = inner.split_at_checked(close)?;
        if let Some(method) = rest
            .strip_prefix(b"] ")
            .filter(|_| !assembly.is_empty() && !assembly.contains(&b'['))
        {
            return Some((assembly, method));
        }
    }
    None
}

/// Removes ` /* MT: 0x7f.. */`, which follows classes in the parameters of dynamic methods.
///
/// The address in the comment differs between processes.
fn without_comments(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
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

    // The names are from perf maps of .NET 8.0.33 and 10.0.12.

    #[test]
    fn parses_static_and_instance_methods_with_and_without_tier() {
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
            Some("PreJit-cold"),
        );
    }

    #[test]
    fn keeps_dot_of_constructors() {
        check(
            "instance void [split] Program+<>c::.ctor()[QuickJitted]",
            "split",
            "Program+<>c..ctor()",
            Some("QuickJitted"),
        );
    }

    #[test]
    fn distinguishes_assembly_from_other_brackets() {
        check(
            "class [System.Runtime]System.Func`2<uint64,uint64> [split] Split.Modes.DynamicCode::Emit(string)[InstrumentedTier]",
            "split",
            "Split.Modes.DynamicCode.Emit(string)",
            Some("InstrumentedTier"),
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
    fn parses_lambdas_and_nested_generics() {
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
    fn removes_method_table_addresses_of_dynamic_methods() {
        check(
            "uint64 [Anonymously Hosted DynamicMethods Assembly] dynamicClass::lambda_method1(System.Runtime.CompilerServices.Closure /* MT: 0x7faea75ef7d8 */,uint64)[Optimized]",
            "Anonymously Hosted DynamicMethods Assembly",
            "dynamicClass.lambda_method1(System.Runtime.CompilerServices.Closure,ulong)",
            Some("Optimized"),
        );
        check("void [a] D::m(X /* MT: 0x1", "a", "D.m(X /* MT: 0x1", None);
    }

    #[test]
    fn accepts_only_known_tiers() {
        check(
            "void [a] T::M(int32)[Turbo]",
            "a",
            "T.M(int32)[Turbo]",
            None,
        );
        check("void [a] T::M(int32[])", "a", "T.M(int[])", None);
    }

    #[test]
    fn rejects_stubs_and_names_of_other_runtimes() {
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
    fn returns_kind_of_stubs() {
        let kind = |name: &'static str| stub(name.as_bytes());
        assert_eq!(
            kind("stub<17> AllocateTemporaryEntryPoints<PRECODE_STUB>").as_deref(),
            Some("PRECODE_STUB")
        );
        assert_eq!(
            kind("stub ReportStubBlock<VSD_ResolveStub>").as_deref(),
            Some("VSD_ResolveStub")
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
