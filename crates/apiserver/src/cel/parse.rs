//! Words put together to expressions; macros are recognised here.

use regex::Regex;

use super::error::{CompileError, Position};
use super::expression::{Access, Call, Expression, Kind, Literal, Loop, Quantifier};
use super::lex::{Token, Word, lex};

/// How deep expressions may be nested: more than anybody writes, with room to spare on a stack even in a debug build.
const DEPTH: usize = 50;

/// Reads an expression.
pub(super) fn parse(text: &str) -> Result<Expression, CompileError> {
    let mut parser = Parser { tokens: lex(text)?, next: 0, depth: 0, text };
    let expression = parser.conditional()?;
    match &parser.peek().word {
        Word::End => Ok(expression),
        word => {
            let message = format!("Syntax error: mismatched input '{}' expecting <EOF>", show(word));
            Err(CompileError::new(message, parser.peek().at, text))
        }
    }
}

struct Parser<'a> {
    tokens: Vec<Token>,
    next: usize,
    depth: usize,
    text: &'a str,
}

fn show(word: &Word) -> String {
    match word {
        Word::Name(name) => name.clone(),
        Word::Sign(sign) => (*sign).to_owned(),
        Word::End => "<EOF>".to_owned(),
        Word::Literal(Literal::String(text)) => format!("\"{text}\""),
        Word::Literal(Literal::Bool(value)) => value.to_string(),
        Word::Literal(Literal::Int(number)) => number.to_string(),
        Word::Literal(Literal::Uint(number)) => format!("{number}u"),
        Word::Literal(Literal::Double(number)) => number.to_string(),
        Word::Literal(Literal::Null) => "null".to_owned(),
        Word::Literal(Literal::Bytes(_)) => "bytes".to_owned(),
    }
}

impl Parser<'_> {
    fn peek(&self) -> &Token {
        // The last token is the end, and is never taken.
        &self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        if token.word != Word::End {
            self.next += 1;
        }
        token
    }

    fn accept(&mut self, sign: &str) -> Option<Position> {
        match &self.peek().word {
            Word::Sign(found) if *found == sign => Some(self.take().at),
            _ => None,
        }
    }

    fn expect(&mut self, sign: &str) -> Result<Position, CompileError> {
        match self.accept(sign) {
            Some(at) => Ok(at),
            None => self.fail(&format!("mismatched input '{}' expecting '{sign}'", show(&self.peek().word))),
        }
    }

    fn fail<T>(&self, message: &str) -> Result<T, CompileError> {
        Err(CompileError::new(format!("Syntax error: {message}"), self.peek().at, self.text))
    }

    fn conditional(&mut self) -> Result<Expression, CompileError> {
        self.depth += 1;
        if self.depth > DEPTH {
            return self.fail("expression recursion limit exceeded: 100");
        }
        let condition = self.or()?;
        let expression = match self.accept("?") {
            None => condition,
            Some(at) => {
                let then = self.or()?;
                self.expect(":")?;
                let other = self.conditional()?;
                Expression { kind: Kind::Conditional(Box::new([condition, then, other])), at }
            }
        };
        self.depth -= 1;
        Ok(expression)
    }

    fn or(&mut self) -> Result<Expression, CompileError> {
        let mut left = self.and()?;
        while let Some(at) = self.accept("||") {
            let right = self.and()?;
            left = Expression { kind: Kind::Or(Box::new(left), Box::new(right)), at };
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Expression, CompileError> {
        let mut left = self.relation()?;
        while let Some(at) = self.accept("&&") {
            let right = self.relation()?;
            left = Expression { kind: Kind::And(Box::new(left), Box::new(right)), at };
        }
        Ok(left)
    }

    fn relation(&mut self) -> Result<Expression, CompileError> {
        self.binary(
            &[
                ("==", "_==_"),
                ("!=", "_!=_"),
                ("<=", "_<=_"),
                (">=", "_>=_"),
                ("<", "_<_"),
                (">", "_>_"),
                ("in", "@in"),
            ],
            Self::sum,
        )
    }

    fn sum(&mut self) -> Result<Expression, CompileError> {
        self.binary(&[("+", "_+_"), ("-", "_-_")], Self::product)
    }

    fn product(&mut self) -> Result<Expression, CompileError> {
        self.binary(&[("*", "_*_"), ("/", "_/_"), ("%", "_%_")], Self::unary)
    }

    fn binary(
        &mut self,
        operators: &[(&str, &str)],
        operand: fn(&mut Self) -> Result<Expression, CompileError>,
    ) -> Result<Expression, CompileError> {
        let mut left = operand(self)?;
        'next: loop {
            for (sign, function) in operators {
                if let Some(at) = self.accept(sign) {
                    let right = operand(self)?;
                    left = call(function, None, vec![left, right], at);
                    continue 'next;
                }
            }
            return Ok(left);
        }
    }

    fn unary(&mut self) -> Result<Expression, CompileError> {
        for (sign, function) in [("!", "!_"), ("-", "-_")] {
            if let Some(at) = self.accept(sign) {
                self.depth += 1;
                if self.depth > DEPTH {
                    return self.fail("expression recursion limit exceeded: 100");
                }
                let operand = self.unary()?;
                self.depth -= 1;
                return Ok(match (function, operand.kind) {
                    ("-_", Kind::Literal(Literal::Int(number))) => {
                        Expression { kind: Kind::Literal(Literal::Int(number.wrapping_neg())), at }
                    }
                    ("-_", Kind::Literal(Literal::Double(number))) => {
                        Expression { kind: Kind::Literal(Literal::Double(-number)), at }
                    }
                    (function, kind) => call(function, None, vec![Expression { kind, at: operand.at }], at),
                });
            }
        }
        let operand = self.member()?;
        if let Kind::Literal(Literal::Int(i64::MIN)) = operand.kind {
            return Err(CompileError::new("Syntax error: invalid int literal", operand.at, self.text));
        }
        Ok(operand)
    }

    fn member(&mut self) -> Result<Expression, CompileError> {
        let mut operand = self.primary()?;
        let mut length = 0;
        loop {
            length += 1;
            if length > 8 * DEPTH {
                return self.fail("expression recursion limit exceeded: 100");
            }
            operand = if let Some(at) = self.accept(".") {
                let field = self.field()?;
                match self.accept("(") {
                    Some(at) => {
                        let arguments = self.arguments(")")?;
                        self.method(operand, field, arguments, at)?
                    }
                    None => select(operand, field, Access::Plain, at),
                }
            } else if let Some(at) = self.accept(".?") {
                let field = self.field()?;
                select(operand, field, Access::Optional, at)
            } else if let Some(at) = self.accept("[") {
                self.index(operand, Access::Plain, at)?
            } else if let Some(at) = self.accept("[?") {
                self.index(operand, Access::Optional, at)?
            } else if matches!(self.peek().word, Word::Sign("{")) {
                return self.fail("mismatched input '{': messages cannot be made here");
            } else {
                return Ok(operand);
            };
        }
    }

    fn index(
        &mut self,
        operand: Expression,
        access: Access,
        at: Position,
    ) -> Result<Expression, CompileError> {
        let index = self.conditional()?;
        self.expect("]")?;
        let kind = Kind::Index { operand: Box::new(operand), index: Box::new(index), access };
        Ok(Expression { kind, at })
    }

    fn field(&mut self) -> Result<String, CompileError> {
        match self.peek().word.clone() {
            Word::Name(name) => {
                self.take();
                Ok(name)
            }
            Word::Sign("in") => {
                self.take();
                Ok("in".to_owned())
            }
            word => self.fail(&format!("mismatched input '{}' expecting IDENTIFIER", show(&word))),
        }
    }

    fn arguments(&mut self, close: &str) -> Result<Vec<Expression>, CompileError> {
        let mut arguments = Vec::new();
        if self.accept(close).is_some() {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.conditional()?);
            if self.accept(",").is_none() {
                self.expect(close)?;
                return Ok(arguments);
            }
        }
    }

    fn primary(&mut self) -> Result<Expression, CompileError> {
        let token = self.take();
        let at = token.at;
        match token.word {
            Word::Literal(literal) => Ok(Expression { kind: Kind::Literal(literal), at }),
            Word::Sign("(") => {
                let inner = self.conditional()?;
                self.expect(")")?;
                Ok(inner)
            }
            Word::Sign("[") => self.list(at),
            Word::Sign("[?") => {
                let first = self.conditional()?;
                self.rest_of_list(vec![(first, Access::Optional)], at)
            }
            Word::Sign("{") => self.map(Access::Plain, at),
            Word::Sign("{?") => self.map(Access::Optional, at),
            Word::Sign(".") => {
                let name = self.field()?;
                Ok(Expression { kind: Kind::Name(name), at })
            }
            Word::Name(name) => match self.accept("(") {
                Some(open) => {
                    let mut arguments = self.arguments(")")?;
                    if name == "has" && arguments.len() == 1 {
                        return self.has(arguments.remove(0), open);
                    }
                    self.function(name, None, arguments, open)
                }
                None => Ok(Expression { kind: Kind::Name(name), at }),
            },
            word => {
                self.next = self.next.saturating_sub(usize::from(word != Word::End));
                let expected = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, \
                     STRING, BYTES, IDENTIFIER}";
                self.fail(&format!("mismatched input '{}' expecting {expected}", show(&word)))
            }
        }
    }

    fn list(&mut self, at: Position) -> Result<Expression, CompileError> {
        if self.accept("]").is_some() {
            return Ok(Expression { kind: Kind::List(Vec::new()), at });
        }
        let access = self.optional();
        let first = self.conditional()?;
        self.rest_of_list(vec![(first, access)], at)
    }

    fn rest_of_list(
        &mut self,
        mut elements: Vec<(Expression, Access)>,
        at: Position,
    ) -> Result<Expression, CompileError> {
        while self.accept(",").is_some() {
            if matches!(self.peek().word, Word::Sign("]")) {
                break;
            }
            let access = self.optional();
            elements.push((self.conditional()?, access));
        }
        self.expect("]")?;
        Ok(Expression { kind: Kind::List(elements), at })
    }

    fn map(&mut self, first: Access, at: Position) -> Result<Expression, CompileError> {
        let mut entries = Vec::new();
        let mut access = first;
        if access == Access::Plain && self.accept("}").is_some() {
            return Ok(Expression { kind: Kind::Map(entries), at });
        }
        loop {
            if access == Access::Plain {
                access = self.optional();
            }
            let key = self.conditional()?;
            self.expect(":")?;
            entries.push((key, self.conditional()?, access));
            access = Access::Plain;
            if self.accept(",").is_none() || matches!(self.peek().word, Word::Sign("}")) {
                self.expect("}")?;
                return Ok(Expression { kind: Kind::Map(entries), at });
            }
        }
    }

    fn optional(&mut self) -> Access {
        if self.accept("?").is_some() { Access::Optional } else { Access::Plain }
    }

    fn has(&self, argument: Expression, at: Position) -> Result<Expression, CompileError> {
        match argument.kind {
            Kind::Select { operand, field, access: Access::Plain } => {
                Ok(Expression { kind: Kind::Has { operand, field }, at })
            }
            _ => Err(CompileError::new("invalid argument to has() macro", argument.at, self.text)),
        }
    }

    /// A method, unless it is a macro or the function of a namespace such as `math.greatest`.
    fn method(
        &mut self,
        target: Expression,
        name: String,
        mut arguments: Vec<Expression>,
        at: Position,
    ) -> Result<Expression, CompileError> {
        let quantifier = match (name.as_str(), arguments.len()) {
            ("all", 2 | 3) => Quantifier::All,
            ("exists", 2 | 3) => Quantifier::Exists,
            ("exists_one" | "existsOne", 2 | 3) => Quantifier::ExistsOne,
            ("filter", 2) => Quantifier::Filter,
            ("map", 2 | 3) => Quantifier::Map,
            ("transformList", 3 | 4) => Quantifier::Map,
            ("optMap" | "optFlatMap", 2) => return self.optional_map(target, &name, arguments, at),
            _ => {
                if let Kind::Name(space) = &target.kind
                    && matches!(space.as_str(), "sets" | "ip" | "format" | "optional" | "strings" | "math")
                {
                    return self.function(format!("{space}.{name}"), None, arguments, at);
                }
                return self.function(name, Some(Box::new(target)), arguments, at);
            }
        };
        let Some(body) = arguments.pop() else { return self.fail("missing argument") };
        let variables = match (name.as_str(), arguments.len()) {
            ("map", 2) => 1,
            ("transformList", _) => 2,
            (_, count) => count,
        };
        let filter = if arguments.len() > variables { arguments.pop() } else { None };
        let mut names = Vec::new();
        for argument in arguments {
            match argument.kind {
                Kind::Name(variable) => names.push(variable),
                _ => return Err(CompileError::new("argument must be a simple name", argument.at, self.text)),
            }
        }
        let looping = Loop { quantifier, range: target, names, filter, body };
        Ok(Expression { kind: Kind::Loop(Box::new(looping)), at })
    }

    /// `optional.optMap(name, expression)`.
    fn optional_map(
        &mut self,
        target: Expression,
        name: &str,
        arguments: Vec<Expression>,
        at: Position,
    ) -> Result<Expression, CompileError> {
        let mut arguments = arguments.into_iter();
        let (Some(Expression { kind: Kind::Name(variable), .. }), Some(body)) =
            (arguments.next(), arguments.next())
        else {
            return Err(CompileError::new("argument must be a simple name", at, self.text));
        };
        // An optional is gone through like a list of one element or none.
        let looping =
            Loop { quantifier: Quantifier::Map, range: target, names: vec![variable], filter: None, body };
        let function = format!("@{name}");
        Ok(call(&function, None, vec![Expression { kind: Kind::Loop(Box::new(looping)), at }], at))
    }

    fn function(
        &mut self,
        name: String,
        target: Option<Box<Expression>>,
        arguments: Vec<Expression>,
        at: Position,
    ) -> Result<Expression, CompileError> {
        let mut pattern = None;
        let expression = if target.is_some() { arguments.first() } else { arguments.get(1) };
        if matches!(name.as_str(), "matches" | "find" | "findAll")
            && let Some(Expression { kind: Kind::Literal(Literal::String(text)), at }) = expression
        {
            match Regex::new(text) {
                Ok(regex) => pattern = Some(regex),
                Err(_) => {
                    let message = format!("invalid {name} argument");
                    return Err(CompileError::new(message, *at, self.text));
                }
            }
        }
        Ok(Expression { kind: Kind::Call(Call { function: name, target, arguments, pattern }), at })
    }
}

fn call(
    function: &str,
    target: Option<Box<Expression>>,
    arguments: Vec<Expression>,
    at: Position,
) -> Expression {
    Expression {
        kind: Kind::Call(Call { function: function.to_owned(), target, arguments, pattern: None }),
        at,
    }
}

fn select(operand: Expression, field: String, access: Access, at: Position) -> Expression {
    Expression { kind: Kind::Select { operand: Box::new(operand), field, access }, at }
}
