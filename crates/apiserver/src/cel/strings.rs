//! What can be done with text. Positions are counted in characters.

use std::borrow::Cow;

use regex::Regex;

use super::error::EvalError;
use super::value::Value;
use super::{format, functions};

type Outcome<'a> = Result<Value<'a>, EvalError>;

/// The most bytes that a text may grow to.
const LONGEST: usize = 16 << 20;

pub(super) fn method<'a>(
    name: &str,
    text: &Cow<'a, str>,
    arguments: &[Value<'a>],
    pattern: Option<&Regex>,
) -> Outcome<'a> {
    use Value::{Bool, Int, String};
    Ok(match (name, arguments) {
        ("size", []) => Int(text.chars().count() as i64),
        ("contains", [String(part)]) => Bool(text.contains(&**part)),
        ("startsWith", [String(part)]) => Bool(text.starts_with(&**part)),
        ("endsWith", [String(part)]) => Bool(text.ends_with(&**part)),
        ("matches", [String(expression)]) => Bool(with(pattern, expression, |regex| regex.is_match(text))?),
        ("find", [String(expression)]) => with(pattern, expression, |regex| {
            Value::string(regex.find(text).map_or("", |found| found.as_str()))
        })?,
        ("findAll", [String(expression)]) => find_all(text, expression, -1, pattern)?,
        ("findAll", [String(expression), Int(most)]) => find_all(text, expression, *most, pattern)?,
        ("charAt", [Int(at)]) => {
            let length = text.chars().count() as i64;
            match usize::try_from(*at) {
                Ok(index) if *at < length => {
                    Value::string(text.chars().skip(index).take(1).collect::<std::string::String>())
                }
                _ if *at == length => Value::string(""),
                _ => return EvalError::failed(format!("index out of range: {at}")),
            }
        }
        ("indexOf", [String(part)]) => index_of(text, part, 0)?,
        ("indexOf", [String(part), Int(from)]) => index_of(text, part, *from)?,
        ("lastIndexOf", [String(part)]) => {
            Int(text.rfind(&**part).map_or(-1, |at| text[..at].chars().count() as i64))
        }
        ("lastIndexOf", [String(part), Int(upto)]) => {
            let Ok(upto) = usize::try_from(*upto) else {
                return EvalError::failed(format!("index out of range: {upto}"));
            };
            let end = text.char_indices().nth(upto).map_or(text.len(), |(at, _)| at);
            let end = (end + part.len()).min(text.len());
            let head = text.get(..end).unwrap_or(text);
            Int(head.rfind(&**part).map_or(-1, |at| text[..at].chars().count() as i64))
        }
        ("lowerAscii", []) => Value::string(text.to_ascii_lowercase()),
        ("upperAscii", []) => Value::string(text.to_ascii_uppercase()),
        ("trim", []) => Value::string(text.trim()),
        ("reverse", []) => Value::string(text.chars().rev().collect::<std::string::String>()),
        ("replace", [String(from), String(to)]) => replaced(text, from, to, -1)?,
        ("replace", [String(from), String(to), Int(most)]) => replaced(text, from, to, *most)?,
        ("split", [String(at)]) => split(text, at, -1),
        ("split", [String(at), Int(most)]) => split(text, at, *most),
        ("substring", [Int(start)]) => substring(text, *start, text.chars().count() as i64)?,
        ("substring", [Int(start), Int(end)]) => substring(text, *start, *end)?,
        ("format", [Value::List(list)]) => {
            Value::string(format::text(text, &list.iter().collect::<Vec<_>>())?)
        }
        _ => return EvalError::overload(name),
    })
}

/// Uses the expression that was compiled before, or compiles it now.
fn with<T>(
    pattern: Option<&Regex>,
    expression: &str,
    action: impl FnOnce(&Regex) -> T,
) -> Result<T, EvalError> {
    match pattern {
        Some(regex) => Ok(action(regex)),
        None => match Regex::new(expression) {
            Ok(regex) => Ok(action(&regex)),
            Err(_) => EvalError::failed(format!("Illegal regex: error parsing regexp: {expression}")),
        },
    }
}

fn find_all<'a>(text: &str, expression: &str, most: i64, pattern: Option<&Regex>) -> Outcome<'a> {
    with(pattern, expression, |regex| {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Value::list(regex.find_iter(text).take(most).map(|found| Value::string(found.as_str())).collect())
    })
}

fn index_of<'a>(text: &str, part: &str, from: i64) -> Outcome<'a> {
    let length = text.chars().count();
    let Some(from) = usize::try_from(from).ok().filter(|from| *from <= length) else {
        return EvalError::failed(format!("index out of range: {from}"));
    };
    let start = text.char_indices().nth(from).map_or(text.len(), |(at, _)| at);
    Ok(Value::Int(text[start..].find(part).map_or(-1, |at| text[..start + at].chars().count() as i64)))
}

fn replaced<'a>(text: &str, from: &str, to: &str, most: i64) -> Outcome<'a> {
    let times = usize::try_from(most).unwrap_or(usize::MAX).min(text.matches(from).count());
    if text.len().saturating_add(times.saturating_mul(to.len())) > LONGEST {
        return Err(EvalError::TooCostly);
    }
    Ok(Value::string(text.replacen(from, to, times)))
}

fn split<'a>(text: &str, at: &str, most: i64) -> Value<'a> {
    let parts: Vec<String> = match (usize::try_from(most), at) {
        (Ok(0), _) => Vec::new(),
        (Ok(most), "") => {
            let mut parts: Vec<String> = text.chars().take(most - 1).map(String::from).collect();
            parts.push(text.chars().skip(most - 1).collect());
            parts
        }
        (Err(_), "") => text.chars().map(String::from).collect(),
        (Ok(most), at) => text.splitn(most, at).map(String::from).collect(),
        (Err(_), at) => text.split(at).map(String::from).collect(),
    };
    Value::list(parts.into_iter().map(Value::string).collect())
}

fn substring<'a>(text: &str, start: i64, end: i64) -> Outcome<'a> {
    let length = text.chars().count() as i64;
    if start < 0 || start > length {
        return EvalError::failed(format!("index out of range: {start}"));
    }
    if end < 0 || end > length {
        return EvalError::failed(format!("index out of range: {end}"));
    }
    if start > end {
        return EvalError::failed(format!("invalid substring range. start: {start}, end: {end}"));
    }
    let (start, count) = (start.unsigned_abs() as usize, (end - start).unsigned_abs() as usize);
    Ok(Value::string(text.chars().skip(start).take(count).collect::<String>()))
}

pub(super) fn join<'a>(elements: &[Value<'a>], between: &str) -> Outcome<'a> {
    let mut joined = String::new();
    for (at, element) in elements.iter().enumerate() {
        let Value::String(text) = element else { return EvalError::overload("join") };
        if at > 0 {
            joined.push_str(between);
        }
        joined.push_str(text);
        if joined.len() > LONGEST {
            return Err(EvalError::TooCostly);
        }
    }
    Ok(Value::string(joined))
}

/// A value in a text.
pub(super) fn shown(value: &Value<'_>) -> String {
    functions::show(value)
}
