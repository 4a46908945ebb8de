//! The arguments of a print format, which are C expressions over the fields of the sample.

/// Nesting limit of brackets and operators.
const MAX_DEPTH: usize = 64;
/// Maximum number of tokens of one format.
const MAX_TOKENS: usize = 1 << 16;

/// An expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expression {
    Number(u64),
    Text(String),
    /// A kernel variable or constant whose value is not in the recording.
    Unknown,
    /// `REC->field`
    Field(String),
    /// `REC->field[at]`
    Element(String, Box<Expression>),
    /// The lowest bytes of a number.
    Cast(usize, Box<Expression>),
    Unary(&'static str, Box<Expression>),
    Binary(&'static str, Box<Expression>, Box<Expression>),
    Choice(Box<Expression>, Box<Expression>, Box<Expression>),
    /// `__print_flags(value, "|", {1, "A"}, ...)`
    Flags(Box<Expression>, String, Vec<(u64, String)>),
    /// `__print_symbolic(value, {1, "A"}, ...)`
    Symbolic(Box<Expression>, Vec<(u64, String)>),
    /// `__get_str(field)`
    TextOf(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Number(u64),
    Text(String),
    Word(String),
    Sign(&'static str),
}

/// Operators, longest first.
const SIGNS: [&str; 29] = [
    "->", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "(", ")", "[", "]", "{", "}", ",", "?",
    ":", "+", "-", "*", "/", "%", "&", "|", "~", "!", "<", ">",
];

/// Binary operators by precedence, lowest first.
const LEVELS: [&[&str]; 9] = [
    &["||"],
    &["&&"],
    &["|"],
    &["&"],
    &["==", "!="],
    &["<", ">", "<=", ">="],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

/// Parses a print format.
pub(super) struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

impl Parser {
    pub(super) fn new(text: &str) -> Self {
        Self {
            tokens: tokens(text).unwrap_or_default(),
            at: 0,
            depth: 0,
        }
    }

    /// Parses the format string and its arguments. Returns `None` if they have an unknown part.
    pub(super) fn print_format(&mut self) -> Option<(String, Vec<Expression>)> {
        let Token::Text(text) = self.next()? else {
            return None;
        };
        let mut arguments = Vec::new();
        while self.accept(",") {
            arguments.push(self.choice()?);
        }
        (self.at == self.tokens.len()).then_some((text, arguments))
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn accept(&mut self, sign: &str) -> bool {
        let is_it = matches!(self.tokens.get(self.at), Some(Token::Sign(found)) if *found == sign);
        self.at += usize::from(is_it);
        is_it
    }

    fn expect(&mut self, sign: &str) -> Option<()> {
        self.accept(sign).then_some(())
    }

    fn word(&mut self) -> Option<String> {
        match self.next()? {
            Token::Word(word) => Some(word),
            _ => None,
        }
    }

    fn text(&mut self) -> Option<String> {
        match self.next()? {
            Token::Text(text) => Some(text),
            _ => None,
        }
    }

    fn choice(&mut self) -> Option<Expression> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let condition = self.binary(0)?;
        let expression = if self.accept("?") {
            let yes = self.choice()?;
            self.expect(":")?;
            let no = self.choice()?;
            Expression::Choice(condition.into(), yes.into(), no.into())
        } else {
            condition
        };
        self.depth -= 1;
        Some(expression)
    }

    fn binary(&mut self, level: usize) -> Option<Expression> {
        let Some(operators) = LEVELS.get(level) else {
            return self.unary();
        };
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = operators.iter().find(|operator| self.accept(operator)) {
            let right = self.binary(level + 1)?;
            left = Expression::Binary(operator, left.into(), right.into());
        }
        Some(left)
    }

    fn unary(&mut self) -> Option<Expression> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let sign = ["-", "!", "~"].into_iter().find(|sign| self.accept(sign));
        let expression = match sign {
            Some(sign) => Expression::Unary(sign, self.unary()?.into()),
            None => self.primary()?,
        };
        self.depth -= 1;
        Some(expression)
    }

    fn primary(&mut self) -> Option<Expression> {
        match self.next()? {
            Token::Number(number) => Some(Expression::Number(number)),
            Token::Text(mut text) => {
                // Adjacent literals are one string.
                while let Some(Token::Text(more)) = self.tokens.get(self.at) {
                    text.push_str(more);
                    self.at += 1;
                }
                Some(Expression::Text(text))
            }
            Token::Sign("(") => {
                if let Some(bytes) = self.cast() {
                    let of = self.unary()?;
                    return Some(Expression::Cast(bytes, of.into()));
                }
                let inner = self.choice()?;
                self.expect(")")?;
                Some(inner)
            }
            Token::Word(word) => self.named(&word),
            Token::Sign(_) => None,
        }
    }

    /// Reads the rest of a cast after its bracket and returns the size of the type. Reads nothing
    /// if it is not a cast.
    fn cast(&mut self) -> Option<usize> {
        let start = self.at;
        let mut bytes = None;
        while let Some(Token::Word(word)) = self.tokens.get(self.at) {
            bytes = Some(size_of(word));
            self.at += 1;
        }
        while self.accept("*") {
            bytes = bytes.map(|_| 8);
        }
        let bytes = bytes.filter(|_| self.accept(")") && self.is_operand());
        if bytes.is_none() {
            self.at = start;
        }
        bytes
    }

    /// Returns whether an operand follows, as it does after a cast but not after a name in
    /// brackets.
    fn is_operand(&self) -> bool {
        let next = self.tokens.get(self.at);
        next.is_some_and(|next| !matches!(next, Token::Sign(sign) if *sign != "("))
    }

    fn named(&mut self, word: &str) -> Option<Expression> {
        match word {
            "REC" => {
                self.expect("->")?;
                let field = self.word()?;
                if self.accept("[") {
                    let at = self.choice()?;
                    self.expect("]")?;
                    return Some(Expression::Element(field, at.into()));
                }
                Some(Expression::Field(field))
            }
            "__get_str" => {
                self.expect("(")?;
                let field = self.word()?;
                self.expect(")")?;
                Some(Expression::TextOf(field))
            }
            "__print_flags" => {
                self.expect("(")?;
                let value = self.choice()?;
                self.expect(",")?;
                let between = self.text()?;
                let names = self.names()?;
                Some(Expression::Flags(value.into(), between, names))
            }
            "__print_symbolic" => {
                self.expect("(")?;
                let value = self.choice()?;
                let names = self.names()?;
                Some(Expression::Symbolic(value.into(), names))
            }
            // An unknown function.
            _ if self.accept("(") => None,
            _ => Some(Expression::Unknown),
        }
    }

    /// Reads `, {1, "A"}, {2, "B"})`.
    fn names(&mut self) -> Option<Vec<(u64, String)>> {
        let mut names = Vec::new();
        while self.accept(",") {
            self.expect("{")?;
            let value = constant(&self.choice()?);
            self.expect(",")?;
            // A null pointer follows the last name.
            if let Expression::Text(name) = self.choice()? {
                // A name without a known value matches no value.
                names.extend(value.map(|value| (value, name)));
            }
            self.expect("}")?;
        }
        self.expect(")")?;
        Some(names)
    }
}

/// Returns the size in bytes of a cast's type, from its last word. Like perf, a cast never extends
/// a sign.
fn size_of(word: &str) -> usize {
    match word {
        "u8" | "s8" | "char" => 1,
        "u16" | "s16" | "short" => 2,
        "u32" | "s32" | "int" => 4,
        _ => 8,
    }
}

/// Returns the value of a constant expression.
fn constant(expression: &Expression) -> Option<u64> {
    value_of(expression, &mut |_| None)
}

/// Returns the value of an expression; `leaf` returns the values of its leaves. Like perf, it
/// computes with unsigned numbers.
pub(super) fn value_of(
    of: &Expression,
    leaf: &mut dyn FnMut(&Expression) -> Option<u64>,
) -> Option<u64> {
    Some(match of {
        Expression::Number(number) => *number,
        Expression::Cast(bytes, of) => truncate(value_of(of, leaf)?, *bytes),
        Expression::Unary(operator, of) => {
            let value = value_of(of, leaf)?;
            match *operator {
                "-" => value.wrapping_neg(),
                "!" => u64::from(value == 0),
                _ => !value,
            }
        }
        Expression::Binary(operator, left, right) => {
            let (left, right) = (value_of(left, leaf)?, value_of(right, leaf)?);
            binary(operator, left, right)?
        }
        Expression::Choice(condition, yes, no) => match value_of(condition, leaf)? {
            0 => value_of(no, leaf)?,
            _ => value_of(yes, leaf)?,
        },
        other => leaf(other)?,
    })
}

fn binary(operator: &str, left: u64, right: u64) -> Option<u64> {
    let shift = u32::try_from(right).unwrap_or(u32::MAX);
    Some(match operator {
        "||" => u64::from(left != 0 || right != 0),
        "&&" => u64::from(left != 0 && right != 0),
        "|" => left | right,
        "&" => left & right,
        "==" => u64::from(left == right),
        "!=" => u64::from(left != right),
        "<" => u64::from(left < right),
        ">" => u64::from(left > right),
        "<=" => u64::from(left <= right),
        ">=" => u64::from(left >= right),
        "<<" => left.checked_shl(shift).unwrap_or(0),
        ">>" => left.checked_shr(shift).unwrap_or(0),
        "+" => left.wrapping_add(right),
        "-" => left.wrapping_sub(right),
        "*" => left.wrapping_mul(right),
        "/" => left.checked_div(right)?,
        "%" => left.checked_rem(right)?,
        _ => return None,
    })
}

/// Zero-extends the lowest bytes of a number.
pub(super) fn truncate(value: u64, bytes: usize) -> u64 {
    let unused = 64_u32.saturating_sub(8 * bytes as u32).min(63);
    value << unused >> unused
}

fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        if tokens.len() >= MAX_TOKENS {
            return None;
        }
        let len;
        if first == '"' {
            let (text, used) = quoted(rest)?;
            tokens.push(Token::Text(text));
            len = used;
        } else if first.is_ascii_digit() {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric());
            len = end.unwrap_or(rest.len());
            tokens.push(Token::Number(number(&rest[..len])?));
        } else if first.is_ascii_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            len = end.unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..len].into()));
        } else {
            let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign))?;
            tokens.push(Token::Sign(sign));
            len = sign.len();
        }
        rest = rest[len..].trim_start();
    }
    Some(tokens)
}

/// Reads a string literal and returns its length with the quotes.
fn quoted(text: &str) -> Option<(String, usize)> {
    let mut unquoted = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((unquoted, at + 1)),
            '\\' => match chars.next()?.1 {
                'n' => unquoted.push('\n'),
                't' => unquoted.push('\t'),
                other => unquoted.push(other),
            },
            other => unquoted.push(other),
        }
    }
    None
}

fn number(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(['u', 'U', 'l', 'L']);
    let parsed = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16),
        None if digits.len() > 1 && digits.starts_with('0') => u64::from_str_radix(digits, 8),
        None => digits.parse(),
    };
    parsed.ok()
}
