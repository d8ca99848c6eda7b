//! The words of an expression.

use super::error::{CompileError, Position};
use super::expression::Literal;

/// A word and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub(super) word: Word,
    pub(super) at: Position,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Word {
    Name(String),
    Literal(Literal),
    /// An operator or a bracket.
    Sign(&'static str),
    End,
}

/// Operators and brackets, those first that begin with another one.
const SIGNS: [&str; 27] = [
    "==", "!=", "<=", ">=", "&&", "||", "[?", ".?", "{?", "(", ")", "[", "]", "{", "}", ".", ",", "?", ":",
    "<", ">", "+", "-", "*", "/", "%", "!",
];

/// Names that nobody may give to a variable.
const RESERVED: [&str; 18] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
    "in",
];

pub(super) fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name) && name != "in"
}

/// Cuts an expression into words.
pub(super) fn lex(text: &str) -> Result<Vec<Token>, CompileError> {
    let mut lexer = Lexer { characters: text.chars().collect(), position: 0, text };
    let mut tokens = Vec::new();
    loop {
        let token = lexer.next()?;
        let end = token.word == Word::End;
        tokens.push(token);
        if end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    characters: Vec<char>,
    position: usize,
    text: &'a str,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.characters.get(self.position + ahead).copied()
    }

    fn error<T>(&self, message: impl Into<String>, at: usize) -> Result<T, CompileError> {
        Err(CompileError::new(format!("Syntax error: {}", message.into()), Position(at), self.text))
    }

    fn next(&mut self) -> Result<Token, CompileError> {
        self.skip();
        let start = self.position;
        let at = Position(start);
        let Some(first) = self.peek(0) else { return Ok(Token { word: Word::End, at }) };
        let word = if first.is_ascii_alphabetic() || first == '_' {
            self.name_or_string()?
        } else if first.is_ascii_digit() || (first == '.' && self.peek(1).is_some_and(|c| c.is_ascii_digit()))
        {
            self.number()?
        } else if first == '"' || first == '\'' {
            Word::Literal(self.string(Prefix::default())?)
        } else if first == '`' {
            self.quoted_name()?
        } else {
            let rest: String = self.characters[start..].iter().take(2).collect();
            // `[?` is an index with an optional; `{?` and a lone `?` are told apart by what they follow.
            match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
                Some(sign) => {
                    self.position += sign.len();
                    Word::Sign(sign)
                }
                None => return self.error(format!("token recognition error at: '{first}'"), start),
            }
        };
        Ok(Token { word, at })
    }

    fn skip(&mut self) {
        while let Some(character) = self.peek(0) {
            if character.is_whitespace() {
                self.position += 1;
            } else if character == '/' && self.peek(1) == Some('/') {
                while self.peek(0).is_some_and(|character| character != '\n') {
                    self.position += 1;
                }
            } else {
                return;
            }
        }
    }

    fn take_while(&mut self, fits: impl Fn(char) -> bool) -> String {
        let start = self.position;
        while self.peek(0).is_some_and(&fits) {
            self.position += 1;
        }
        self.characters[start..self.position].iter().collect()
    }

    fn name_or_string(&mut self) -> Result<Word, CompileError> {
        let start = self.position;
        let name = self.take_while(|character| character.is_ascii_alphanumeric() || character == '_');
        if matches!(self.peek(0), Some('"' | '\'')) && name.len() <= 2 {
            let lower = name.to_ascii_lowercase();
            if lower.chars().all(|letter| letter == 'r' || letter == 'b') && lower != "rr" && lower != "bb" {
                let prefix = Prefix { raw: lower.contains('r'), bytes: lower.contains('b') };
                return self.string(prefix).map(Word::Literal);
            }
        }
        Ok(match name.as_str() {
            "true" => Word::Literal(Literal::Bool(true)),
            "false" => Word::Literal(Literal::Bool(false)),
            "null" => Word::Literal(Literal::Null),
            "in" => Word::Sign("in"),
            _ if is_reserved(&name) && !self.follows_dot(start) => {
                return self.error(format!("reserved identifier: {name}"), start);
            }
            _ => Word::Name(name),
        })
    }

    fn follows_dot(&self, start: usize) -> bool {
        self.characters[..start]
            .iter()
            .rev()
            .find(|c| !c.is_whitespace())
            .is_some_and(|c| matches!(c, '.' | '?'))
    }

    fn quoted_name(&mut self) -> Result<Word, CompileError> {
        let start = self.position;
        self.position += 1;
        let name = self.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/' | ' '));
        if self.peek(0) != Some('`') {
            return self.error("missing '`'", start);
        }
        self.position += 1;
        Ok(Word::Name(name))
    }

    fn number(&mut self) -> Result<Word, CompileError> {
        let start = self.position;
        if self.peek(0) == Some('0') && matches!(self.peek(1), Some('x' | 'X')) {
            self.position += 2;
            let digits = self.take_while(|character| character.is_ascii_hexdigit());
            return self.whole(&digits, 16, start);
        }
        let mut digits = self.take_while(|character| character.is_ascii_digit());
        let mut is_double = false;
        if self.peek(0) == Some('.') && self.peek(1).is_some_and(|character| character.is_ascii_digit()) {
            is_double = true;
            self.position += 1;
            digits.push('.');
            digits.push_str(&self.take_while(|character| character.is_ascii_digit()));
        }
        if matches!(self.peek(0), Some('e' | 'E')) {
            let signed = usize::from(matches!(self.peek(1), Some('+' | '-')));
            if self.peek(1 + signed).is_some_and(|character| character.is_ascii_digit()) {
                is_double = true;
                digits.extend(&self.characters[self.position..=self.position + signed]);
                self.position += 1 + signed;
                digits.push_str(&self.take_while(|character| character.is_ascii_digit()));
            }
        }
        if !is_double {
            return self.whole(&digits, 10, start);
        }
        match digits.parse() {
            Ok(number) => Ok(Word::Literal(Literal::Double(number))),
            Err(_) => self.error("invalid double literal", start),
        }
    }

    fn whole(&mut self, digits: &str, radix: u32, start: usize) -> Result<Word, CompileError> {
        if matches!(self.peek(0), Some('u' | 'U')) {
            self.position += 1;
            return match u64::from_str_radix(digits, radix) {
                Ok(number) => Ok(Word::Literal(Literal::Uint(number))),
                Err(_) => self.error("invalid uint literal", start),
            };
        }
        // The largest magnitude is only there with a minus before it; the parser folds that in.
        match u64::from_str_radix(digits, radix) {
            Ok(number) if number <= 1 << 63 => Ok(Word::Literal(Literal::Int(number as i64))),
            _ => self.error("invalid int literal", start),
        }
    }

    fn string(&mut self, prefix: Prefix) -> Result<Literal, CompileError> {
        let start = self.position;
        let quote = self.peek(0).unwrap_or('"');
        let triple = self.peek(1) == Some(quote) && self.peek(2) == Some(quote);
        let length = if triple { 3 } else { 1 };
        self.position += length;
        let mut text = String::new();
        let mut bytes = Vec::new();
        loop {
            let Some(character) = self.peek(0) else {
                return self.error("token recognition error: a string does not end", start);
            };
            if (0..length).all(|ahead| self.peek(ahead) == Some(quote)) {
                self.position += length;
                break;
            }
            if character == '\n' && !triple {
                return self.error("token recognition error: a string does not end", start);
            }
            self.position += 1;
            if character == '\\' && !prefix.raw {
                self.escape(prefix, &mut text, &mut bytes)?;
            } else {
                text.push(character);
                bytes.extend(character.encode_utf8(&mut [0; 4]).bytes());
            }
        }
        Ok(if prefix.bytes { Literal::Bytes(bytes) } else { Literal::String(text) })
    }

    fn escape(&mut self, prefix: Prefix, text: &mut String, bytes: &mut Vec<u8>) -> Result<(), CompileError> {
        let start = self.position;
        let kind = self.peek(0).unwrap_or_default();
        self.position += 1;
        let simple = match kind {
            'n' => Some('\n'),
            't' => Some('\t'),
            'r' => Some('\r'),
            'a' => Some('\u{7}'),
            'b' => Some('\u{8}'),
            'f' => Some('\u{c}'),
            'v' => Some('\u{b}'),
            '\\' | '\'' | '"' | '`' | '?' => Some(kind),
            _ => None,
        };
        let code = match (simple, kind) {
            (Some(character), _) => u32::from(character),
            (None, 'x' | 'X') => self.digits(2, 16, start)?,
            (None, 'u') if !prefix.bytes => self.digits(4, 16, start)?,
            (None, 'U') if !prefix.bytes => self.digits(8, 16, start)?,
            (None, '0'..='3') => {
                self.position -= 1;
                self.digits(3, 8, start)?
            }
            _ => return self.error(format!("token recognition error at: '\\{kind}'"), start),
        };
        let Some(character) = char::from_u32(code) else {
            return self.error("invalid unicode code point", start);
        };
        text.push(character);
        match u8::try_from(code) {
            Ok(byte) if simple.is_none() => bytes.push(byte),
            _ => bytes.extend(character.encode_utf8(&mut [0; 4]).bytes()),
        }
        Ok(())
    }

    fn digits(&mut self, count: usize, radix: u32, start: usize) -> Result<u32, CompileError> {
        let digits: String = self.characters[self.position..].iter().take(count).collect();
        self.position += digits.chars().count();
        match u32::from_str_radix(&digits, radix) {
            Ok(code) if digits.len() == count => Ok(code),
            _ => self.error("invalid escape sequence", start),
        }
    }
}

/// What stands before a string's quote.
#[derive(Debug, Clone, Copy, Default)]
struct Prefix {
    raw: bool,
    bytes: bool,
}
