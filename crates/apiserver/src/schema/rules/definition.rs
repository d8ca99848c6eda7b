//! Whether the rules of a definition make sense, and what they may cost.

use serde_json::Value as Json;

use super::FieldPath;
use crate::cel::{Level, Program, Type, Variable};
use crate::schema::{FieldError, FieldErrorKind, ListKind, Schema, Shape};

/// What one rule may cost for the worst object that the schema admits.
const RULE_LIMIT: u64 = 10_000_000;

/// What all rules of a schema may cost together.
const TOTAL_LIMIT: u64 = 100_000_000;

/// How many times a value may be there at most, for which rules are counted.
const MOST_TIMES: u64 = 3 << 20;

/// What is wrong with the rules of a schema that stands at this path of a definition.
pub(crate) fn check_definition(schema: &Schema, path: &str) -> Vec<FieldError> {
    let mut checker = Checker { errors: Vec::new(), total: 0, costs: Vec::new() };
    checker.node(schema, &Place { path, level: Level::Whole, times: 1, unrelated: None });
    if checker.total > TOTAL_LIMIT {
        checker.costs.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
        for (_, path) in checker.costs.iter().take(4) {
            let words =
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            checker.errors.push(FieldError::forbidden(path.clone(), words));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        checker.errors.push(FieldError::forbidden(path, excess(what, checker.total, TOTAL_LIMIT)));
    }
    checker.errors
}

struct Checker {
    errors: Vec<FieldError>,
    total: u64,
    costs: Vec<(u64, String)>,
}

/// Where in a schema a node is.
struct Place<'a> {
    path: &'a str,
    level: Level,
    /// How often its value may be there.
    times: u64,
    /// The list above it whose elements have no identity, so that there is no value before.
    unrelated: Option<&'a str>,
}

impl Checker {
    fn node(&mut self, schema: &Schema, place: &Place<'_>) {
        let path = place.path;
        let constraints = schema.constraints.as_deref();
        for (at, rule) in constraints.iter().flat_map(|constraints| &constraints.rules).enumerate() {
            let path = format!("{path}.x-kubernetes-validations[{at}]");
            let before = self.errors.len();
            form(rule, schema, &path, &mut self.errors);
            if self.errors.len() == before {
                self.rule(rule, schema, &path, place);
            }
        }
        match &schema.shape {
            Shape::Struct(fields) => {
                for (name, field) in fields.fields.iter().filter(|(_, field)| field.schema.name.is_none()) {
                    let path = format!("{path}.properties[{name}]");
                    self.node(&field.schema, &Place { path: &path, level: Level::Inner, ..*place });
                }
            }
            Shape::Map { values, .. } => {
                let path = format!("{path}.additionalProperties");
                let times = multiplied(place.times, schema);
                self.node(values, &Place { path: &path, level: Level::Inner, times, ..*place });
            }
            Shape::List { items, kind } => {
                let inner = format!("{path}.items");
                let unrelated = match kind {
                    ListKind::Map(_) => place.unrelated,
                    ListKind::Atomic | ListKind::Set => Some(place.unrelated.unwrap_or(path)),
                };
                let times = multiplied(place.times, schema);
                self.node(items, &Place { path: &inner, level: Level::Inner, times, unrelated });
            }
            Shape::Any | Shape::Scalar(_) => {}
        }
    }

    fn rule(&mut self, rule: &Json, schema: &Schema, path: &str, place: &Place<'_>) {
        let text = |key: &str| rule[key].as_str().unwrap_or_default().trim();
        let at = format!("{path}.rule");
        let Some(kind) = Type::of(schema, place.level) else {
            let words = "rules cannot be used where the type of the value is not known";
            self.errors.push(about(rule, at, words));
            return;
        };
        let old = match rule["optionalOldSelf"] == true {
            true => Type::Optional(std::rc::Rc::new(kind.clone())),
            false => kind.clone(),
        };
        let variables =
            [Variable { name: "self".to_owned(), kind }, Variable { name: "oldSelf".to_owned(), kind: old }];
        let compiled = Program::parse(text("rule"))
            .and_then(|program| program.check(&variables).map(|verdict| (program, verdict)));
        match compiled {
            Err(error) => {
                self.errors.push(about(rule, at, &format!("compilation failed: {error}")));
                return;
            }
            Ok((program, verdict)) => {
                if !matches!(verdict.kind, Type::Bool | Type::Dyn) {
                    let words = "cel expression must evaluate to a bool";
                    self.errors.push(about(rule, at.clone(), words));
                }
                self.cost("estimated rule cost", verdict.cost.saturating_mul(place.times), at.clone());
                let uses_old = program.mentions("oldSelf");
                if let (true, Some(list)) = (uses_old && rule["optionalOldSelf"] != true, place.unrelated) {
                    let words = format!(
                        "oldSelf cannot be used on the uncorrelatable portion of the schema within {list}"
                    );
                    self.errors.push(FieldError::invalid(at, text("rule"), words));
                }
                if !uses_old && rule["optionalOldSelf"] == true {
                    let words = "may not be set if oldSelf is not used in rule";
                    self.errors.push(FieldError::invalid(format!("{path}.optionalOldSelf"), true, words));
                }
            }
        }
        if text("messageExpression").is_empty() {
            return;
        }
        let at = format!("{path}.messageExpression");
        match Program::parse(text("messageExpression")).and_then(|program| program.check(&variables)) {
            Err(error) => {
                let words = format!("messageExpression compilation failed: {error}");
                self.errors.push(about(rule, at, &words));
            }
            Ok(verdict) if !matches!(verdict.kind, Type::String(_) | Type::Dyn) => {
                let words = "messageExpression must evaluate to a string";
                self.errors.push(about(rule, at, words));
            }
            Ok(verdict) => {
                self.cost("estimated messageExpression cost", verdict.cost.saturating_mul(place.times), at);
            }
        }
    }

    fn cost(&mut self, what: &str, cost: u64, path: String) {
        self.total = self.total.saturating_add(cost);
        // What is less than a hundredth of the limit is not what breaks it.
        if cost >= TOTAL_LIMIT / 100 {
            self.costs.push((cost, path.clone()));
        }
        if cost > RULE_LIMIT {
            self.errors.push(FieldError::forbidden(path, excess(what, cost, RULE_LIMIT)));
        }
    }
}

/// How often the elements of a list or the values of a map are there.
fn multiplied(times: u64, schema: &Schema) -> u64 {
    let most = match Type::of(schema, Level::Inner) {
        Some(Type::List(_, most) | Type::Map(_, _, most)) => most,
        _ => 1,
    };
    times.saturating_mul(most).min(MOST_TIMES)
}

fn excess(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

/// What is wrong with the form of a rule.
fn form(rule: &Json, schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    let text = |key: &str| rule[key].as_str().unwrap_or_default();
    let lines = |text: &str| text.contains(['\n', '\r']);
    let (message, given) = (text("message").trim(), text("message"));
    let trimmed = text("rule").trim();
    if trimmed.is_empty() {
        errors.push(FieldError::required(format!("{path}.rule"), "rule is not specified"));
    } else if !given.is_empty() && message.is_empty() {
        let words = "must be non-empty if specified";
        errors.push(FieldError::invalid(format!("{path}.message"), given, words));
    } else if lines(message) {
        let words = "must not contain line breaks";
        errors.push(FieldError::invalid(format!("{path}.message"), given, words));
    } else if lines(trimmed) && message.is_empty() {
        let words = "must be specified if rule contains line breaks";
        errors.push(FieldError::required(format!("{path}.message"), words));
    }
    if !text("messageExpression").is_empty() && text("messageExpression").trim().is_empty() {
        let words = "must be non-empty if specified";
        errors.push(FieldError::required(format!("{path}.messageExpression"), words));
    }
    let reasons = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    if let Some(reason) = rule["reason"].as_str()
        && !reasons.contains(&reason)
    {
        errors.push(FieldError::not_supported(format!("{path}.reason"), reason, &reasons));
    }
    let field = text("fieldPath");
    if !field.is_empty() {
        let known = FieldPath::parse(field.trim()).is_some_and(|path| path.exists_in(schema));
        let words = if field.trim().is_empty() {
            "must be non-empty if specified"
        } else if lines(field) {
            "must not contain line breaks"
        } else if !known {
            "must be a valid path"
        } else {
            return;
        };
        errors.push(FieldError::invalid(format!("{path}.fieldPath"), field, words));
    }
}

/// A complaint that shows the rule as Kubernetes does, with its fields in this order.
fn about(rule: &Json, at: String, words: &str) -> FieldError {
    let text = |key: &str| rule.get(key).cloned().unwrap_or_else(|| "".into());
    let fields = [
        ("Rule", text("rule")),
        ("Message", text("message")),
        ("MessageExpression", text("messageExpression")),
        ("Reason", rule["reason"].clone()),
        ("FieldPath", text("fieldPath")),
        ("OptionalOldSelf", rule["optionalOldSelf"].clone()),
    ];
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    let shown = format!("{{{}}}", fields.join(","));
    let shown = shown.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    FieldError { field: at, kind: FieldErrorKind::Invalid, bad: None, detail: format!("{shown}: {words}") }
}
