//! Splits query text into tokens, each with its place.
//!
//! Keywords are not told apart from names here: `c.order` is a property and `ORDER` a keyword, and
//! only the parser knows which is meant.

use crate::error::{Diagnostic, Span};

/// One token and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// What it is.
    pub kind: Kind,
    /// Its bytes in the text.
    pub span: Span,
}

/// What a token is.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A name or a keyword.
    Word(String),
    /// `@name`, with the `@`.
    Parameter(String),
    /// A string literal, unescaped.
    String(String),
    /// A number literal.
    Number(f64),
    /// An integer literal that fits 64 bits, kept exact for the integer functions.
    Integer(i64),
    /// An operator or a bracket.
    Symbol(&'static str),
    /// The end of the text.
    End,
}

/// Longest first, so that `>>>` is not read as `>` three times.
const SYMBOLS: [&str; 34] = [
    ">>>", "!=", "<>", "<=", ">=", "<<", ">>", "||", "??", "+", "-", "*", "/", "%", "&", "|", "^",
    "~", "=", "<", ">", "?", ":", ",", ".", "(", ")", "[", "]", "{", "}", "!", ";", "$",
];

/// All tokens of the text, the last of them [`Kind::End`].
pub fn tokenize(text: &str) -> Result<Vec<Token>, Diagnostic> {
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blanks();
        let start = lexer.at;
        let kind = lexer.next()?;
        let done = kind == Kind::End;
        tokens.push(Token { kind, span: lexer.span(start) });
        if done {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn span(&self, start: usize) -> Span {
        Span { start: start as u32, end: self.at as u32 }
    }

    /// Passes everything up to the first character that does not belong.
    fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !belongs(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn skip_blanks(&mut self) {
        loop {
            self.take_while(|c| c.is_whitespace() || c == '\u{feff}');
            let rest = self.rest();
            if rest.starts_with("--") {
                self.take_while(|c| c != '\n');
            } else if rest.starts_with("/*") {
                self.at += rest.find("*/").map_or(rest.len(), |end| end + 2);
            } else {
                return;
            }
        }
    }

    fn next(&mut self) -> Result<Kind, Diagnostic> {
        let Some(first) = self.peek() else { return Ok(Kind::End) };
        let start = self.at;
        match first {
            '\'' | '"' => self.string(first),
            '@' => {
                self.at += 1;
                let name = self.take_while(is_word);
                if name.is_empty() {
                    return Err(self.invalid(start));
                }
                Ok(Kind::Parameter(format!("@{name}")))
            }
            '0'..='9' => self.number(),
            '.' if self.rest()[1..].starts_with(|c: char| c.is_ascii_digit()) => self.number(),
            c if is_word_start(c) => Ok(Kind::Word(self.take_while(is_word).to_owned())),
            c => {
                let symbol = SYMBOLS.iter().find(|symbol| self.rest().starts_with(**symbol));
                self.at += symbol.map_or(c.len_utf8(), |symbol| symbol.len());
                match symbol {
                    Some(symbol) if !matches!(*symbol, "!" | ";" | "$") => Ok(Kind::Symbol(symbol)),
                    _ => Err(self.invalid(start)),
                }
            }
        }
    }

    fn invalid(&self, start: usize) -> Diagnostic {
        let token = &self.text[start..self.at];
        let message = format!("Syntax error, invalid token '{token}'.");
        Diagnostic::at(self.span(start), "SC1010", message)
    }

    fn string(&mut self, quote: char) -> Result<Kind, Diagnostic> {
        let start = self.at;
        self.at += 1;
        let mut value = String::new();
        loop {
            value.push_str(self.take_while(|c| c != quote && c != '\\'));
            match self.peek() {
                None => {
                    let message = "Syntax error, invalid string literal token.";
                    return Err(Diagnostic::at(self.span(start), "SC1011", message));
                }
                Some('\\') => {
                    let escape = self.at;
                    match self.escape() {
                        Some(c) => value.push(c),
                        None => return Err(self.invalid(escape)),
                    }
                }
                Some(_) => {
                    self.at += 1;
                    return Ok(Kind::String(value));
                }
            }
        }
    }

    /// The character after a backslash; a surrogate pair counts as one, a lone half is replaced.
    fn escape(&mut self) -> Option<char> {
        self.at += 1;
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(match c {
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let high = self.hex4()?;
                if (0xd800..0xdc00).contains(&high) && self.rest().starts_with("\\u") {
                    let before = self.at;
                    self.at += 2;
                    let low = self.hex4()?;
                    if (0xdc00..0xe000).contains(&low) {
                        let code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                        return char::from_u32(code);
                    }
                    self.at = before;
                }
                char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            '\'' | '"' | '\\' | '/' => c,
            _ => return None,
        })
    }

    fn hex4(&mut self) -> Option<u32> {
        let digits = self.rest().get(..4)?;
        let code = digits.bytes().all(|b| b.is_ascii_hexdigit());
        self.at += 4;
        code.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
    }

    fn number(&mut self) -> Result<Kind, Diagnostic> {
        let start = self.at;
        let rest = self.rest();
        let value = if rest.starts_with("0x") || rest.starts_with("0X") {
            self.at += 2;
            let digits = self.take_while(|c| c.is_ascii_hexdigit());
            i64::from_str_radix(digits, 16).ok().map(Kind::Integer)
        } else {
            self.take_while(|c| c.is_ascii_digit());
            if self.rest().starts_with('.') {
                self.at += 1;
                self.take_while(|c| c.is_ascii_digit());
            }
            self.exponent();
            let literal = &self.text[start..self.at];
            let exact = literal.parse().ok().map(Kind::Integer);
            exact.or_else(|| {
                let double = literal.parse::<f64>().ok().filter(|double| double.is_finite());
                double.map(Kind::Number)
            })
        };
        // `1abc` is one bad token, not a number and an alias.
        let tail = self.take_while(is_word);
        value.filter(|_| tail.is_empty()).ok_or_else(|| {
            let token = &self.text[start..self.at];
            let message = format!("Syntax error, invalid numeric value token '{token}'.");
            Diagnostic::at(self.span(start), "SC1012", message)
        })
    }

    fn exponent(&mut self) {
        let rest = self.rest();
        if !rest.starts_with(['e', 'E']) {
            return;
        }
        let digits = rest[1..].trim_start_matches(['+', '-']);
        let sign = rest.len() - 1 - digits.len();
        if sign <= 1 && digits.starts_with(|c: char| c.is_ascii_digit()) {
            self.at += 1 + sign;
            self.take_while(|c| c.is_ascii_digit());
        }
    }
}

fn is_word_start(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
