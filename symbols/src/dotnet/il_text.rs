//! Parser for type names as the runtime prints them. The result is spelled as in C#.
//!
//! ```text
//! class [System.Runtime]System.Func`2<uint64,!0>     in signatures: kind, assembly, name, arguments
//! valuetype [app]Outer`1/Inner<!!0>&                  / before nested types
//! N.Box`1[System.Int32]                               elsewhere: arguments in brackets, + before nested types
//! ```

use super::type_name::{instantiated, keyword};

/// Nesting limit of types.
const MAX_DEPTH: usize = 16;
const MAX_ARGUMENTS: usize = 1024;
/// Calling conventions of function pointers. The C# names omit them.
const CONVENTIONS: [&str; 7] = [
    "unmanaged ",
    "cdecl ",
    "stdcall ",
    "thiscall ",
    "fastcall ",
    "vararg ",
    "instance ",
];
/// Size limit of the arguments substituted in one signature.
const MAX_SUBSTITUTED_BYTES: usize = 16 << 10;
/// Integer types of several words, as perf maps (the first two) and events print them.
///
/// A name precedes its own prefixes.
const MULTI_WORD_INTEGERS: [(&str, &str); 8] = [
    ("native int", "nint"),
    ("native uint", "nuint"),
    ("native unsigned int", "nuint"),
    ("unsigned int8", "byte"),
    ("unsigned int16", "ushort"),
    ("unsigned int32", "uint"),
    ("unsigned int64", "ulong"),
    ("unsigned int", "nuint"),
];

/// Formats the declaring type of a method. Returns the name with its arguments, and the arguments.
pub(crate) fn owner(input: &str) -> (String, Vec<String>) {
    let mut parser = Parser {
        rest: input,
        type_arguments: &[],
        bytes_left: MAX_SUBSTITUTED_BYTES,
    };
    match parser.named_type(0) {
        Some((name, arguments)) if parser.rest.is_empty() && !arguments.is_empty() => {
            (name, arguments)
        }
        _ => (input.to_owned(), Vec::new()),
    }
}

/// Formats method parameters such as `(int32,!0)`, with `type_arguments` for type variables.
///
/// Returns `None` if the input is not a parameter list.
pub(crate) fn parameters(input: &str, type_arguments: &[String]) -> Option<String> {
    let mut parser = Parser {
        rest: input,
        type_arguments,
        bytes_left: MAX_SUBSTITUTED_BYTES,
    };
    let types = parser.parameters(0)?;
    parser
        .rest
        .is_empty()
        .then(|| format!("({})", types.join(",")))
}

struct Parser<'a> {
    rest: &'a str,
    type_arguments: &'a [String],
    /// Remaining bytes for arguments that replace type variables.
    bytes_left: usize,
}

impl Parser<'_> {
    fn take(&mut self, prefix: &str) -> bool {
        let rest = self.rest.strip_prefix(prefix);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, prefix: &str) -> Option<()> {
        self.take(prefix).then_some(())
    }

    fn parameters(&mut self, depth: usize) -> Option<Vec<String>> {
        self.expect("(")?;
        if self.take(")") {
            return Some(Vec::new());
        }
        let types = self.list(depth)?;
        self.expect(")")?;
        Some(types)
    }

    /// Parses comma-separated types.
    fn list(&mut self, depth: usize) -> Option<Vec<String>> {
        let mut types = vec![self.any_type(depth + 1)?];
        while self.take(",") {
            if types.len() >= MAX_ARGUMENTS {
                return None;
            }
            types.push(self.any_type(depth + 1)?);
        }
        Some(types)
    }

    fn any_type(&mut self, depth: usize) -> Option<String> {
        if depth > MAX_DEPTH {
            return None;
        }
        while self.take("pinned ") || self.take("...") {}
        let mut name = self.type_without_suffixes(depth)?;
        loop {
            if self.take("&") {
                name.push('&');
            } else if self.take("*") {
                name.push('*');
            } else if self.take(" modreq(") || self.take(" modopt(") {
                let (_, rest) = self.rest.split_once(')')?;
                self.rest = rest;
            } else if self.take("[") {
                let (bounds, rest) = self.rest.split_once(']')?;
                self.rest = rest;
                name.push('[');
                name.extend(bounds.chars().filter(|c| *c == ','));
                name.push(']');
            } else {
                return Some(name);
            }
        }
    }

    fn type_without_suffixes(&mut self, depth: usize) -> Option<String> {
        if self.rest.starts_with('!') {
            return self.variable();
        }
        if self.take("method ") {
            while CONVENTIONS.iter().any(|word| self.take(word)) {}
            let return_type = self.any_type(depth + 1)?;
            self.expect(" *")?;
            let mut types = self.parameters(depth)?;
            types.push(return_type);
            return Some(format!("delegate*<{}>", types.join(",")));
        }
        for (printed, keyword) in MULTI_WORD_INTEGERS {
            if self.take(printed) {
                return Some(keyword.to_owned());
            }
        }
        let _ = self.take("class ") || self.take("valuetype ") || self.take("value class ");
        if self.rest.starts_with('[') {
            let (_, rest) = self.rest.split_once(']')?;
            self.rest = rest;
        }
        self.named_type(depth).map(|(name, _)| name)
    }

    fn variable(&mut self) -> Option<String> {
        let prefix = self.rest.len() - self.rest.trim_start_matches('!').len();
        let digits = self.rest.get(prefix..)?;
        let digits = digits
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(digits.len());
        let (variable, rest) = self.rest.split_at_checked(prefix + digits)?;
        self.rest = rest;
        let argument = match variable.strip_prefix('!')?.parse::<usize>() {
            Ok(index) => self.type_arguments.get(index),
            Err(_) => None,
        };
        let name = argument.map_or(variable, String::as_str);
        self.bytes_left = self.bytes_left.checked_sub(name.len())?;
        Some(name.to_owned())
    }

    /// Parses a type name. Returns the name with its arguments, and the arguments.
    fn named_type(&mut self, depth: usize) -> Option<(String, Vec<String>)> {
        if depth > MAX_DEPTH {
            return None;
        }
        let (name, rest) = self.rest.split_at_checked(name_bytes(self.rest))?;
        if name.is_empty() {
            return None;
        }
        self.rest = rest;
        let mut arguments = Vec::new();
        let close = match rest.as_bytes() {
            [b'<', ..] => Some(">"),
            [b'[', next, ..] if !matches!(next, b']' | b',' | b'0'..=b'9') => Some("]"),
            _ => None,
        };
        if let Some(close) = close.filter(|_| name.contains('`')) {
            self.rest = rest.get(1..)?;
            arguments = self.list(depth)?;
            self.expect(close)?;
        }
        let name = name.replace('/', "+");
        let name = match primitive(&name) {
            Some(keyword) => keyword.to_owned(),
            None if arguments.is_empty() => keyword(&name).to_owned(),
            None => instantiated(&name, &arguments),
        };
        Some((name, arguments))
    }
}

/// Returns the length of the name at the start of the input.
///
/// Compilers generate names such as `<Run>d__0`. An angle bracket at the start of a part therefore
/// belongs to the name, with everything up to its closing bracket.
fn name_bytes(input: &str) -> usize {
    let mut open = 0_u32;
    let mut previous = b'.';
    for (at, byte) in input.bytes().enumerate() {
        let starts_part = matches!(previous, b'.' | b'/' | b'+' | b'<');
        match byte {
            b'<' if open > 0 || starts_part => open += 1,
            b'>' if open > 0 => open -= 1,
            b'<' | b'>' | b',' | b'(' | b')' | b'[' | b']' | b'&' | b'*' | b' ' if open == 0 => {
                return at;
            }
            _ => {}
        }
        previous = byte;
    }
    input.len()
}

fn primitive(name: &str) -> Option<&'static str> {
    Some(match name {
        "int8" => "sbyte",
        "uint8" => "byte",
        "int16" => "short",
        "uint16" => "ushort",
        "int32" => "int",
        "uint32" => "uint",
        "int64" => "long",
        "uint64" => "ulong",
        "float32" => "float",
        "float64" => "double",
        // Names that only events print.
        "int" => "nint",
        "wchar" => "char",
        "refany" | "typedref" => "System.TypedReference",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn formats_parameters_as_in_csharp() {
        let type_arguments = ["int".to_owned(), "string".to_owned()];
        for (input, expected) in [
            ("()", "()"),
            ("(int32,native int,uint8*&)", "(int,nint,byte*&)"),
            (
                "(string[],object,bool[0...,0...])",
                "(string[],object,bool[,])",
            ),
            (
                "(class [System.Runtime]System.Func`2<uint64,!1>)",
                "(System.Func<ulong,string>)",
            ),
            (
                "(valuetype [a]N.Map`2/Keys<!0,valuetype [b]System.Decimal>&,!!0)",
                "(N.Map<int,decimal>+Keys&,!!0)",
            ),
            (
                "(!!0&,class [a]P/<>c__DisplayClass1_0`1<!!3>,class P/<<Main>$>d__0)",
                "(!!0&,P+<>c__DisplayClass1_0<!!3>,P+<<Main>$>d__0)",
            ),
            ("(!1& modreq([a]In),!7)", "(string&,!7)"),
            (
                "(unsigned int8*,unsigned int,wchar&,int,value class A.B)",
                "(byte*,nuint,char&,nint,A.B)",
            ),
            (
                "(method unmanaged int32 *(bool,class [a]X),int32)",
                "(delegate*<bool,X,int>,int)",
            ),
            ("(N.List`1[System.Int32],X[])", "(N.List<int>,X[])"),
        ] {
            let formatted = parameters(input, &type_arguments);
            assert_eq!(formatted.as_deref(), Some(expected));
        }
        for input in ["", "(", "(int32", "(,)", "(int32))", "(class [a)"] {
            assert_eq!(parameters(input, &type_arguments), None, "{input}");
        }
    }

    #[test]
    fn splits_type_arguments_from_declaring_types() {
        for (input, expected, expected_arguments) in [
            ("Program", "Program", &[][..]),
            (
                "N.A`1+B`1[System.Int32,N.X]",
                "N.A<int>+B<N.X>",
                &["int", "N.X"],
            ),
            ("N.A`1+<Run>d__0[X[]]", "N.A<X[]>+<Run>d__0", &["X[]"]),
            ("<>c", "<>c", &[]),
            ("System.String", "System.String", &[]),
            ("N.A`1[", "N.A`1[", &[]),
        ] {
            let (name, arguments) = owner(input);
            assert_eq!(name, expected);
            assert_eq!(arguments, expected_arguments);
        }
    }

    proptest! {
        #[test]
        fn never_panics(pieces in prop::collection::vec(prop_oneof![
            Just("(".to_owned()), Just(")".to_owned()), Just("`1".to_owned()), Just("<".to_owned()), Just(">".to_owned()),
            Just("[".to_owned()), Just("]".to_owned()), Just(",".to_owned()), Just("class [a]".to_owned()),
            Just("method ".to_owned()), Just(" *".to_owned()), Just("!!".to_owned()), Just(" modreq(".to_owned()), ".{0,3}",
        ], 0..30)) {
            let input = pieces.concat();
            let _ = (parameters(&input, &[]), owner(&input));
        }
    }
}
