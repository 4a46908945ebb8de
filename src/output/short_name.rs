//! Names of .NET methods as short as they are spoken: `List<Order>.Add` for
//! `System.Collections.Generic.List<Shop.Order>.Add(Shop.Order)`.

use std::borrow::Cow;

use crate::trace::{Function, FunctionKind};

/// How methods of .NET are called in pictures of stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameStyle {
    /// With namespaces and parameters.
    #[default]
    Full,
    /// By type and method. Methods that are then called alike are one.
    Short,
}

impl NameStyle {
    /// The name of a function in this way.
    pub(super) fn of<'a>(self, function: &Function, name: &'a str) -> Cow<'a, str> {
        // Other runtimes have names of other kinds, and no tiers.
        let is_dotnet = function.kind == FunctionKind::ReadyToRun
            || function.kind == FunctionKind::Jit && function.tier.is_some();
        match self {
            Self::Short if is_dotnet => short(name).map_or(Cow::Borrowed(name), Cow::Owned),
            _ => Cow::Borrowed(name),
        }
    }
}

/// `Type.Method` of `Namespace.Type.Method(parameters)`; `None`: it is no such name.
fn short(name: &str) -> Option<String> {
    let mut out = String::with_capacity(name.len());
    // Where the names begin that are open: `out` ends in the innermost one.
    let mut begins = vec![0];
    // Where the last two parts of the outermost name begin.
    let (mut type_at, mut method_at) = (0, 0);
    let mut previous = '\0';
    for letter in name.chars() {
        let is_outermost = begins.len() == 1;
        match letter {
            '(' if is_outermost && !out.is_empty() => {
                return (method_at > 0).then(|| out.split_off(type_at));
            }
            // The method of `Type..ctor` begins with a dot.
            '.' if is_outermost && previous != '.' => {
                out.push('.');
                (type_at, method_at) = (method_at, out.len());
            }
            '.' if !is_outermost => out.truncate(*begins.last()?),
            '<' => {
                out.push('<');
                begins.push(out.len());
            }
            '>' if !is_outermost => {
                begins.pop();
                out.push('>');
            }
            ',' | ' ' | '(' if !is_outermost => {
                out.push(letter);
                *begins.last_mut()? = out.len();
            }
            _ => out.push(letter),
        }
        previous = letter;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn type_and_method_are_left() {
        for (full, expected) in [
            ("Program.Main(string[])", "Program.Main"),
            ("A.B.Type.Method(A.B.Other, int)", "Type.Method"),
            (
                "System.Collections.Generic.Dictionary<System.__Canon, Shop.Order>.TryGetValue(System.__Canon, Shop.Order&)",
                "Dictionary<__Canon, Order>.TryGetValue",
            ),
            (
                "Split.Modes.Generics+Box<A.B<C.D>>.GenericBurn<System.__Canon>(ulong)",
                "Generics+Box<B<D>>.GenericBurn<__Canon>",
            ),
            ("System.Threading.Timer..ctor()", "Timer..ctor"),
            ("Type..cctor()", "Type..cctor"),
            (
                "System.Runtime.CompilerServices.AsyncMethodBuilderCore.Start<Program+<<Main>$>d__0>(Program+<<Main>$>d__0&)",
                "AsyncMethodBuilderCore.Start<Program+<<Main>$>d__0>",
            ),
            (
                "Split.Modes.Lambda+<>c__DisplayClass1_0.<LambdaCaller>b__0(ulong)",
                "Lambda+<>c__DisplayClass1_0.<LambdaCaller>b__0",
            ),
            (
                "dynamicClass.EmittedBurn(ulong)",
                "dynamicClass.EmittedBurn",
            ),
        ] {
            assert_eq!(short(full).as_deref(), Some(expected), "{full}");
        }
        for other in [
            "",
            "main",
            "[stub] precode",
            "f(int)",
            "(",
            "a.b",
            "A<B.C(",
            ">.<",
        ] {
            assert_eq!(short(other), None, "{other}");
        }
    }

    #[test]
    fn only_names_of_dotnet_are_shortened() {
        let function = |kind, tier: Option<&str>| Function {
            name: None,
            module: "m".into(),
            tier: tier.map(Into::into),
            kind,
            start: None,
            inlined: false,
        };
        let name = "a.b.c(d.e)";
        for (kind, tier, expected) in [
            (FunctionKind::Jit, Some("QuickJitted"), "b.c"),
            (FunctionKind::ReadyToRun, None, "b.c"),
            (FunctionKind::Jit, None, name),
            (FunctionKind::Native, None, name),
        ] {
            let function = function(kind, tier);
            assert_eq!(NameStyle::Short.of(&function, name), expected);
            assert_eq!(NameStyle::Full.of(&function, name), name);
        }
    }

    proptest! {
        #[test]
        fn any_name_is_survived(name in "[a-zA-Zé.<>(), +]{0,60}") {
            if let Some(short) = short(&name) {
                prop_assert!(short.len() <= name.len());
            }
        }
    }
}
