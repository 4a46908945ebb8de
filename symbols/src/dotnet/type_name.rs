//! C# spelling of type names: with namespace, `+` before nested types.

/// Limit on the type arguments. A larger arity suffix counts as part of the name.
const MAX_ARITY: usize = 1024;

/// Returns the C# keyword for a type of the core library, or the name unchanged.
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

/// Formats the declaring type of a method: `System.String`, followed by type arguments if any.
#[must_use]
pub fn owner<A: AsRef<str>>(name: &str, arguments: &[A]) -> String {
    match arguments {
        [] => name.to_owned(),
        arguments => instantiated(name, arguments),
    }
}

/// Formats a type with arguments: `` List`1+Enumerator `` and `int` give `List<int>+Enumerator`.
///
/// Each part of the name takes as many arguments as its arity suffix declares. If the arities do
/// not add up, all arguments follow the name.
#[must_use]
pub fn instantiated<A: AsRef<str>>(name: &str, arguments: &[A]) -> String {
    if arguments.is_empty() {
        return keyword(name).to_owned();
    }
    let mut formatted = String::with_capacity(name.len() + 16 * arguments.len());
    let mut rest = arguments;
    for (index, part) in name.split('+').enumerate() {
        if index > 0 {
            formatted.push('+');
        }
        let Some((plain, count)) = part_arity(part) else {
            formatted.push_str(part);
            continue;
        };
        let Some((part_arguments, others)) = rest.split_at_checked(count) else {
            rest = arguments;
            break;
        };
        formatted.push_str(plain);
        push_arguments(&mut formatted, part_arguments);
        rest = others;
    }
    if rest.is_empty() {
        return formatted;
    }
    let mut formatted = name.to_owned();
    push_arguments(&mut formatted, arguments);
    formatted
}

/// Appends `<a,b>`.
pub fn push_arguments<A: AsRef<str>>(out: &mut String, arguments: &[A]) {
    let separators = std::iter::once("<").chain(std::iter::repeat(","));
    for (separator, argument) in separators.zip(arguments) {
        out.push_str(separator);
        out.push_str(argument.as_ref());
    }
    out.push('>');
}

/// Returns the number of type arguments that a name declares.
pub(super) fn arity(name: &str) -> usize {
    let parts = name.split('+').filter_map(part_arity);
    parts.map(|(_, count)| count).sum()
}

/// Splits the arity suffix from one part of a name.
fn part_arity(part: &str) -> Option<(&str, usize)> {
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
    fn places_arguments_after_their_part_of_the_name() {
        for (name, arguments, expected) in [
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
            assert_eq!(instantiated(name, arguments), expected);
        }
    }
}
