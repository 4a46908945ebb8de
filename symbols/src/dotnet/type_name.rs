//! How types are spelled: as in C#, with namespaces, nested types behind `+`.

/// Most arguments of one type; beyond, the mark is a part of the name.
const MAX_ARITY: usize = 1024;

/// The C# word for a type of the core library, or the name itself.
#[must_use]
pub fn keyword(name: &str) -> &str {
    let Some(short) = name.strip_prefix("System.") else {
        return name;
    };
    match short {
        "Void" => "void",
        "Boolean" => "bool",
        "Char" => "char",
        "SByte" => "sbyte",
        "Byte" => "byte",
        "Int16" => "short",
        "UInt16" => "ushort",
        "Int32" => "int",
        "UInt32" => "uint",
        "Int64" => "long",
        "UInt64" => "ulong",
        "Single" => "float",
        "Double" => "double",
        "Decimal" => "decimal",
        "String" => "string",
        "Object" => "object",
        "IntPtr" => "nint",
        "UIntPtr" => "nuint",
        _ => name,
    }
}

/// A type as it stands before its methods: `System.String`, with arguments if it takes any.
#[must_use]
pub fn owner<A: AsRef<str>>(name: &str, arguments: &[A]) -> String {
    match arguments {
        [] => name.to_owned(),
        arguments => instantiated(name, arguments),
    }
}

/// A type with its arguments: `` List`1+Enumerator `` and `int` are `List<int>+Enumerator`. Arguments belong to the parts
/// of the name that say how many they take; where that does not come out even, all stand at the end.
#[must_use]
pub fn instantiated<A: AsRef<str>>(name: &str, arguments: &[A]) -> String {
    if arguments.is_empty() {
        return keyword(name).to_owned();
    }
    let mut spelled = String::with_capacity(name.len() + 16 * arguments.len());
    let mut rest = arguments;
    for (index, part) in name.split('+').enumerate() {
        if index > 0 {
            spelled.push('+');
        }
        let Some((plain, count)) = own_arity(part) else {
            spelled.push_str(part);
            continue;
        };
        let Some((own, others)) = rest.split_at_checked(count) else {
            rest = arguments;
            break;
        };
        spelled.push_str(plain);
        push_arguments(&mut spelled, own);
        rest = others;
    }
    if rest.is_empty() {
        return spelled;
    }
    let mut spelled = name.to_owned();
    push_arguments(&mut spelled, arguments);
    spelled
}

/// Adds `<a,b>`.
pub fn push_arguments<A: AsRef<str>>(out: &mut String, arguments: &[A]) {
    let separators = std::iter::once("<").chain(std::iter::repeat(","));
    for (separator, argument) in separators.zip(arguments) {
        out.push_str(separator);
        out.push_str(argument.as_ref());
    }
    out.push('>');
}

/// How many arguments a name says it takes.
pub(super) fn arity(name: &str) -> usize {
    let own = name.split('+').filter_map(own_arity);
    own.map(|(_, count)| count).sum()
}

/// A name that takes arguments of its own, without the mark, and how many.
fn own_arity(part: &str) -> Option<(&str, usize)> {
    let (plain, count) = part.rsplit_once('`')?;
    let count = count
        .parse()
        .ok()
        .filter(|count| (1..=MAX_ARITY).contains(count))?;
    Some((plain, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_go_where_they_belong() {
        for (name, arguments, spelled) in [
            ("System.Int32", &[][..], "int"),
            ("A.Int32", &[], "A.Int32"),
            ("N.List`1", &["int"], "N.List<int>"),
            ("N.Map`2+Keys", &["int", "string"], "N.Map<int,string>+Keys"),
            ("A`1+B`1", &["int", "string"], "A<int>+B<string>"),
            ("Program+<Run>d__0`1", &["T"], "Program+<Run>d__0<T>"),
            ("Odd", &["int"], "Odd<int>"),
            ("Odd`2", &["int"], "Odd`2<int>"),
            ("Odd`1", &["int", "int"], "Odd`1<int,int>"),
            ("Odd`x", &[], "Odd`x"),
        ] {
            assert_eq!(instantiated(name, arguments), spelled);
        }
    }
}
