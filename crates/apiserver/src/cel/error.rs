//! What is wrong with an expression, and where in it.

use std::fmt;

/// A place in an expression, counted in characters from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Position(pub(crate) usize);

/// An expression that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CompileError {
    message: String,
    at: Position,
    text: String,
}

impl CompileError {
    pub(super) fn new(message: impl Into<String>, at: Position, text: &str) -> CompileError {
        CompileError { message: message.into(), at, text: text.to_owned() }
    }
}

impl std::error::Error for CompileError {}

impl fmt::Display for CompileError {
    /// With the line and a mark below the place, as Kubernetes shows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut line, mut column, mut start) = (1, 0, 0);
        for (index, character) in self.text.chars().enumerate().take(self.at.0) {
            column += 1;
            if character == '\n' {
                (line, column, start) = (line + 1, 0, index + 1);
            }
        }
        let shown: String =
            self.text.chars().skip(start).take_while(|character| *character != '\n').collect();
        let message = &self.message;
        write!(f, "ERROR: <input>:{line}:{}: {message}\n | {shown}\n | {}^", column + 1, ".".repeat(column))
    }
}

/// Why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EvalError {
    /// The expression does not fit the values, as Kubernetes words it.
    Failed(String),
    /// It would take too long.
    TooCostly,
}

impl EvalError {
    pub(super) fn failed<T>(message: impl Into<String>) -> Result<T, EvalError> {
        Err(EvalError::Failed(message.into()))
    }

    pub(super) fn overload<T>(function: &str) -> Result<T, EvalError> {
        EvalError::failed(format!("no such overload: {function}"))
    }
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EvalError::Failed(message) => f.write_str(message),
            EvalError::TooCostly => f.write_str("call cost exceeds limit"),
        }
    }
}
