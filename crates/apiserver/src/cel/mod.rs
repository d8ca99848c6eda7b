//! The Common Expression Language, as far as rules in custom resource definitions use it.
//!
//! ```text
//!   text ─► lex ─► parse ─► expression ─► check: type and worst cost, when a definition is written
//!                                     └─► eval: value and real cost, when an object is
//! ```
//!
//! Expressions have no loops but over lists and maps that are there, no memory and no side effects;
//! with a budget they end soon, whatever they say.

mod check;
mod error;
mod eval;
mod expression;
mod format;
mod functions;
mod lex;
mod network;
mod parse;
mod signature;
mod strings;
mod time;
mod types;
mod value;

#[cfg(test)]
mod tests;

pub(crate) use check::{Variable, Verdict};
pub(crate) use error::{CompileError, EvalError};
pub(crate) use eval::Scope;
pub(crate) use types::{Level, Type};
pub(crate) use value::Value;

use expression::Expression;

/// An expression that can be evaluated.
#[derive(Debug)]
pub(crate) struct Program {
    text: String,
    expression: Expression,
}

impl Program {
    /// Reads an expression.
    pub(crate) fn parse(text: &str) -> Result<Program, CompileError> {
        Ok(Program { text: text.to_owned(), expression: parse::parse(text)? })
    }

    /// Whether it makes sense where these variables are known, of which type it is and what it may cost.
    pub(crate) fn check<'s>(&self, variables: &[Variable<'s>]) -> Result<Verdict<'s>, CompileError> {
        check::check(&self.expression, variables, &self.text)
    }

    /// Whether it looks at a variable.
    pub(crate) fn mentions(&self, variable: &str) -> bool {
        self.expression.mentions(variable)
    }

    /// Its value.
    pub(crate) fn evaluate<'a>(&self, scope: &mut Scope<'a>) -> Result<Value<'a>, EvalError> {
        eval::evaluate(&self.expression, scope)
    }
}
