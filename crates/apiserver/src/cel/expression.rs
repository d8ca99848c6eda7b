//! Expressions as trees.

use regex::Regex;

use super::error::Position;

/// An expression and where it stands.
#[derive(Debug)]
pub(crate) struct Expression {
    pub(super) kind: Kind,
    pub(super) at: Position,
}

#[derive(Debug)]
pub(super) enum Kind {
    Literal(Literal),
    Name(String),
    /// `operand.field`, or `operand.?field`.
    Select {
        operand: Box<Expression>,
        field: String,
        access: Access,
    },
    /// `has(operand.field)`.
    Has {
        operand: Box<Expression>,
        field: String,
    },
    /// `operand[index]`, or `operand[?index]`.
    Index {
        operand: Box<Expression>,
        index: Box<Expression>,
        access: Access,
    },
    Call(Call),
    List(Vec<(Expression, Access)>),
    Map(Vec<(Expression, Expression, Access)>),
    And(Box<Expression>, Box<Expression>),
    Or(Box<Expression>, Box<Expression>),
    Conditional(Box<[Expression; 3]>),
    Loop(Box<Loop>),
}

/// What becomes of a part that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// It is an error.
    Plain,
    /// It is an empty optional.
    Optional,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
}

/// A function call, also that of an operator such as `_+_`.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) function: String,
    pub(super) target: Option<Box<Expression>>,
    pub(super) arguments: Vec<Expression>,
    /// The regular expression of the call, where it is written out.
    pub(super) pattern: Option<Regex>,
}

/// A macro that goes through a list or the keys of a map.
#[derive(Debug)]
pub(super) struct Loop {
    pub(super) quantifier: Quantifier,
    pub(super) range: Expression,
    /// The names of the element; of a key or index and a value where there are two.
    pub(super) names: Vec<String>,
    /// Leaves elements out before the body sees them.
    pub(super) filter: Option<Expression>,
    pub(super) body: Expression,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantifier {
    All,
    Exists,
    ExistsOne,
    Filter,
    Map,
}

impl Expression {
    /// Whether it names a variable that is not bound by a macro inside it.
    pub(crate) fn mentions(&self, name: &str) -> bool {
        match &self.kind {
            Kind::Literal(_) => false,
            Kind::Name(own) => own == name,
            Kind::Select { operand, .. } | Kind::Has { operand, .. } => operand.mentions(name),
            Kind::Index { operand, index, .. } => operand.mentions(name) || index.mentions(name),
            Kind::Call(call) => {
                call.target.as_ref().is_some_and(|target| target.mentions(name))
                    || call.arguments.iter().any(|argument| argument.mentions(name))
            }
            Kind::List(elements) => elements.iter().any(|(element, _)| element.mentions(name)),
            Kind::Map(entries) => {
                entries.iter().any(|(key, value, _)| key.mentions(name) || value.mentions(name))
            }
            Kind::And(left, right) | Kind::Or(left, right) => left.mentions(name) || right.mentions(name),
            Kind::Conditional(parts) => parts.iter().any(|part| part.mentions(name)),
            Kind::Loop(looping) => {
                looping.range.mentions(name)
                    || (!looping.names.iter().any(|own| own == name)
                        && (looping.body.mentions(name)
                            || looping.filter.as_ref().is_some_and(|filter| filter.mentions(name))))
            }
        }
    }
}
