//! Types as the runtime prints them, read and spelled as in C#.
//!
//! ```text
//! class [System.Runtime]System.Func`2<uint64,!0>     in signatures: kind, assembly, name, arguments
//! valuetype [app]Outer`1/Inner<!!0>&                  nested types behind /
//! N.Box`1[System.Int32]                               elsewhere: arguments in brackets, nested types behind +
//! ```

use super::type_name::{instantiated, keyword};

/// Types within types.
const MAX_DEPTH: usize = 16;
const MAX_ARGUMENTS: usize = 1024;
/// How what a function pointer points to is called; C# names do not tell.
const CONVENTIONS: [&str; 7] = [
    "unmanaged ",
    "cdecl ",
    "stdcall ",
    "thiscall ",
    "fastcall ",
    "vararg ",
    "instance ",
];
const MAX_TEXT_BYTES: usize = 16 << 10;
/// Numbers of several words, as perf maps (the first two) and events print them. Longer ones go first.
const NUMBERS_OF_WORDS: [(&str, &str); 8] = [
    ("native int", "nint"),
    ("native uint", "nuint"),
    ("native unsigned int", "nuint"),
    ("unsigned int8", "byte"),
    ("unsigned int16", "ushort"),
    ("unsigned int32", "uint"),
    ("unsigned int64", "ulong"),
    ("unsigned int", "nuint"),
];

/// A type with its arguments, spelled, and these alone.
pub(crate) fn owner(text: &str) -> (String, Vec<String>) {
    let mut parser = Parser {
        rest: text,
        of_type: &[],
        left: MAX_TEXT_BYTES,
    };
    match parser.bare(0) {
        Some((spelled, arguments)) if parser.rest.is_empty() && !arguments.is_empty() => {
            (spelled, arguments)
        }
        _ => (text.to_owned(), Vec::new()),
    }
}

/// The parameters of a method, `(int32,!0)`, with these for the arguments of its type. `None`: they are no such text.
pub(crate) fn parameters(text: &str, of_type: &[String]) -> Option<String> {
    let mut parser = Parser {
        rest: text,
        of_type,
        left: MAX_TEXT_BYTES,
    };
    let spelled = parser.parameters(0)?;
    parser
        .rest
        .is_empty()
        .then(|| format!("({})", spelled.join(",")))
}

struct Parser<'a> {
    rest: &'a str,
    of_type: &'a [String],
    /// Bytes that arguments put in place of variables may still have.
    left: usize,
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

    /// Types with commas between them.
    fn list(&mut self, depth: usize) -> Option<Vec<String>> {
        let mut types = vec![self.spelled(depth + 1)?];
        while self.take(",") {
            if types.len() >= MAX_ARGUMENTS {
                return None;
            }
            types.push(self.spelled(depth + 1)?);
        }
        Some(types)
    }

    fn spelled(&mut self, depth: usize) -> Option<String> {
        if depth > MAX_DEPTH {
            return None;
        }
        while self.take("pinned ") || self.take("...") {}
        let mut text = self.head(depth)?;
        loop {
            if self.take("&") {
                text.push('&');
            } else if self.take("*") {
                text.push('*');
            } else if self.take(" modreq(") || self.take(" modopt(") {
                let (_, rest) = self.rest.split_once(')')?;
                self.rest = rest;
            } else if self.take("[") {
                let (bounds, rest) = self.rest.split_once(']')?;
                self.rest = rest;
                text.push('[');
                text.extend(bounds.chars().filter(|c| *c == ','));
                text.push(']');
            } else {
                return Some(text);
            }
        }
    }

    fn head(&mut self, depth: usize) -> Option<String> {
        if self.rest.starts_with('!') {
            return self.variable();
        }
        if self.take("method ") {
            while CONVENTIONS.iter().any(|word| self.take(word)) {}
            let returned = self.spelled(depth + 1)?;
            self.expect(" *")?;
            let mut types = self.parameters(depth)?;
            types.push(returned);
            return Some(format!("delegate*<{}>", types.join(",")));
        }
        for (printed, word) in NUMBERS_OF_WORDS {
            if self.take(printed) {
                return Some(word.to_owned());
            }
        }
        let _ = self.take("class ") || self.take("valuetype ") || self.take("value class ");
        if self.rest.starts_with('[') {
            let (_, rest) = self.rest.split_once(']')?;
            self.rest = rest;
        }
        self.bare(depth).map(|(text, _)| text)
    }

    fn variable(&mut self) -> Option<String> {
        let marks = self.rest.len() - self.rest.trim_start_matches('!').len();
        let digits = self.rest.get(marks..)?;
        let digits = digits
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(digits.len());
        let (variable, rest) = self.rest.split_at_checked(marks + digits)?;
        self.rest = rest;
        let known = match variable.strip_prefix('!')?.parse::<usize>() {
            Ok(index) => self.of_type.get(index),
            Err(_) => None,
        };
        let known = known.map_or(variable, String::as_str);
        self.left = self.left.checked_sub(known.len())?;
        Some(known.to_owned())
    }

    /// A name, with its arguments.
    fn bare(&mut self, depth: usize) -> Option<(String, Vec<String>)> {
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
        let spelled = match primitive(&name) {
            Some(word) => word.to_owned(),
            None if arguments.is_empty() => keyword(&name).to_owned(),
            None => instantiated(&name, &arguments),
        };
        Some((spelled, arguments))
    }
}

/// How long the name at the beginning is. Compilers make names like `<Run>d__0`: what opens at the start of a part belongs
/// to the name, and so does what is inside.
fn name_bytes(text: &str) -> usize {
    let mut open = 0_u32;
    let mut before = b'.';
    for (at, byte) in text.bytes().enumerate() {
        let starts_part = matches!(before, b'.' | b'/' | b'+' | b'<');
        match byte {
            b'<' if open > 0 || starts_part => open += 1,
            b'>' if open > 0 => open -= 1,
            b'<' | b'>' | b',' | b'(' | b')' | b'[' | b']' | b'&' | b'*' | b' ' if open == 0 => {
                return at;
            }
            _ => {}
        }
        before = byte;
    }
    text.len()
}

fn primitive(word: &str) -> Option<&'static str> {
    Some(match word {
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
        // As events print them.
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
    fn parameters_are_spelled_as_in_csharp() {
        let of_type = ["int".to_owned(), "string".to_owned()];
        for (text, spelled) in [
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
            assert_eq!(parameters(text, &of_type).as_deref(), Some(spelled));
        }
        for text in ["", "(", "(int32", "(,)", "(int32))", "(class [a)"] {
            assert_eq!(parameters(text, &of_type), None, "{text}");
        }
    }

    #[test]
    fn owners_give_their_arguments() {
        for (text, spelled, arguments) in [
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
            let (found, of_type) = owner(text);
            assert_eq!(
                (found.as_str(), &of_type[..]),
                (
                    spelled,
                    &arguments
                        .iter()
                        .map(|a| (*a).to_owned())
                        .collect::<Vec<_>>()[..]
                )
            );
        }
    }

    proptest! {
        #[test]
        fn never_panics(pieces in prop::collection::vec(prop_oneof![
            Just("(".to_owned()), Just(")".to_owned()), Just("`1".to_owned()), Just("<".to_owned()), Just(">".to_owned()),
            Just("[".to_owned()), Just("]".to_owned()), Just(",".to_owned()), Just("class [a]".to_owned()),
            Just("method ".to_owned()), Just(" *".to_owned()), Just("!!".to_owned()), Just(" modreq(".to_owned()), ".{0,3}",
        ], 0..30)) {
            let text = pieces.concat();
            let _ = (parameters(&text, &[]), owner(&text));
        }
    }
}
