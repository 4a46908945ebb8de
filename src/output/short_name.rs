//! Short names of .NET methods, without namespaces and parameters.
//!
//! For example, `List<Order>.Add` for
//! `System.Collections.Generic.List<Shop.Order>.Add(Shop.Order)`.

use std::borrow::Cow;

use crate::trace::{Function, FunctionKind};

/// Style of .NET method names in folded stacks and flame graphs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameStyle {
    /// Names with namespaces and parameters.
    #[default]
    Full,
    /// Type and method only. Methods with the same short name share a frame.
    Short,
}

impl NameStyle {
    /// Formats the name of a method in this style, if it is in the format of .NET.
    pub(crate) fn of_method(self, name: &str) -> Cow<'_, str> {
        match self {
            Self::Short => short(name).map_or(Cow::Borrowed(name), Cow::Owned),
            Self::Full => Cow::Borrowed(name),
        }
    }

    /// Formats the name of a function in this style.
    pub(super) fn format<'a>(self, function: &Function, name: &'a str) -> Cow<'a, str> {
        // Other runtimes have other name formats, and no tiers.
        let is_dotnet = function.kind == FunctionKind::ReadyToRun
            || function.kind == FunctionKind::Jit && function.tier.is_some();
        match self {
            Self::Short if is_dotnet => short(name).map_or(Cow::Borrowed(name), Cow::Owned),
            _ => Cow::Borrowed(name),
        }
    }
}

/// Returns the short name of an asynchronous method for that of its state machine: `Orders.Load` for
/// `Shop.Orders+<Load>d__5.MoveNext()`; for another method, its own short name.
pub(crate) fn awaiting(name: &str) -> String {
    let method = || {
        let (outer, rest) = name.split_once("+<")?;
        let (method, rest) = rest.split_once('>')?;
        let is_plain = !method.is_empty() && !method.contains('<');
        (is_plain && rest.ends_with(".MoveNext()")).then(|| format!("{outer}.{method}()"))
    };
    let method = method().unwrap_or_else(|| name.to_owned());
    short(&method).unwrap_or(method)
}

/// Returns `Type.Method` for `Namespace.Type.Method(parameters)`, or `None` for other formats.
fn short(name: &str) -> Option<String> {
    let mut out = String::with_capacity(name.len());
    // Offsets in `out` of the nested names that are not complete. `out` ends in the innermost one.
    let mut starts = vec![0];
    // Offsets of the last two parts of the outermost name.
    let (mut type_at, mut method_at) = (0, 0);
    let mut previous = '\0';
    for letter in name.chars() {
        let is_outermost = starts.len() == 1;
        match letter {
            // A receiver in Go: `sort.(*StringSlice).Less`.
            '(' if is_outermost && previous == '.' => return None,
            '(' if is_outermost && !out.is_empty() => {
                return (method_at > 0).then(|| out.split_off(type_at));
            }
            // The method name in `Type..ctor` starts with a dot.
            '.' if is_outermost && previous != '.' => {
                out.push('.');
                (type_at, method_at) = (method_at, out.len());
            }
            '.' if !is_outermost => out.truncate(*starts.last()?),
            '<' => {
                out.push('<');
                starts.push(out.len());
            }
            '>' if !is_outermost => {
                starts.pop();
                out.push('>');
            }
            ',' | ' ' | '(' if !is_outermost => {
                out.push(letter);
                *starts.last_mut()? = out.len();
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
    fn state_machines_have_the_name_of_their_method() {
        for (name, expected) in [
            ("Shop.Orders+<Load>d__5.MoveNext()", "Orders.Load"),
            ("Program+<Handle>c__async0.MoveNext()", "Program.Handle"),
            (
                "A.Pool<System.__Canon>+<Run>d__8.MoveNext()",
                "Pool<__Canon>.Run",
            ),
            (
                "A.B+<<Start>g__Accept|0>d.MoveNext()",
                "B+<<Start>g__Accept|0>d.MoveNext",
            ),
            ("A.B.Plain(int)", "B.Plain"),
            ("", ""),
        ] {
            assert_eq!(awaiting(name), expected);
        }
    }

    #[test]
    fn shortens_to_type_and_method() {
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
            "sort.(*StringSlice).Less",
            "net/http.(*Server).Serve(int)",
        ] {
            assert_eq!(short(other), None, "{other}");
        }
    }

    #[test]
    fn shortens_only_dotnet_names() {
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
            assert_eq!(NameStyle::Short.format(&function, name), expected);
            assert_eq!(NameStyle::Full.format(&function, name), name);
        }
    }

    proptest! {
        #[test]
        fn short_name_of_arbitrary_name_is_not_longer(name in "[a-zA-Zé.<>(), +]{0,60}") {
            if let Some(short) = short(&name) {
                prop_assert!(short.len() <= name.len());
            }
        }
    }
}
