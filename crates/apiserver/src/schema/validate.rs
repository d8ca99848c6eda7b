//! Whether a custom resource is what its schema demands.
//!
//! Texts and the order of complaints about one value are those of Kubernetes; clients show them.

use serde_json::{Number, Value};

use super::{
    Constraints, FieldError, ListKind, Ref, Scalar, Schema, Shape, Struct, Unknown,
    error::{quote, show_float, show_number},
    formats,
};

/// What is wrong with a new object.
pub fn validate(value: &Value, schema: &Schema) -> Vec<FieldError> {
    check(value, None, schema)
}

/// What is wrong with a changed object.
///
/// Parts that did not change are not looked at again, so that objects stay editable when their
/// schema became stricter.
pub fn validate_update(value: &Value, old: &Value, schema: &Schema) -> Vec<FieldError> {
    check(value, Some(old), schema)
}

fn check(value: &Value, old: Option<&Value>, schema: &Schema) -> Vec<FieldError> {
    let mut errors = Vec::new();
    node("", value, old, schema, &mut errors);
    errors
}

fn node(path: &str, value: &Value, old: Option<&Value>, schema: &Schema, errors: &mut Vec<FieldError>) {
    if old == Some(value) {
        return;
    }
    check_type(path, value, schema, errors);
    if let Value::Number(number) = value {
        check_range(path, number, schema, errors);
    }
    let constraints = schema.constraints.as_deref();
    if let Some(constraints) = constraints {
        if !value.is_null() {
            check_junctions(path, value, constraints, errors);
            match value {
                Value::String(text) => check_text(path, text, constraints, errors),
                Value::Number(number) => check_number(path, number, constraints, errors),
                _ => {}
            }
        }
        check_allowed(path, value, constraints, errors);
    }
    match value {
        Value::Array(elements) => check_list(path, elements, old, schema, errors),
        Value::Object(fields) => check_object(path, fields, old, schema, errors),
        _ => {}
    }
}

fn check_type(path: &str, value: &Value, schema: &Schema, errors: &mut Vec<FieldError>) {
    let constraints = schema.constraints.as_deref();
    if constraints.is_some_and(|constraints| constraints.untyped) || (value.is_null() && schema.nullable) {
        return;
    }
    let expected = match &schema.shape {
        Shape::Any => return,
        Shape::Struct(_) | Shape::Map { .. } => "object",
        Shape::List { .. } => "array",
        Shape::Scalar(scalar) => match scalar {
            Scalar::Int32 | Scalar::Int64 => "integer",
            Scalar::Number => "number",
            Scalar::Boolean => "boolean",
            Scalar::IntOrString => "integer,string",
            _ => "string",
        },
    };
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::Number(number) if !number.is_f64() || whole(number).is_some() => "integer",
        Value::Number(_) => "number",
    };
    if expected.split(',').any(|name| name == found) || (expected == "number" && found == "integer") {
        return;
    }
    // Where the schema has a format, numbers and flags are told that instead of the type.
    let (expected, found) = match (known_format(schema), value) {
        (Some(format), Value::Number(number)) => (format, if number.is_f64() { "float64" } else { "int64" }),
        (Some(format), Value::Bool(_) | Value::Object(_)) => (format, ""),
        _ => (expected, found),
    };
    errors.push(FieldError::type_invalid(
        field(path),
        found,
        format!("{path} in body must be of type {expected}: {}", quote(found)),
    ));
}

/// The format of a schema, where it is one that goes with its type.
fn known_format(schema: &Schema) -> Option<&str> {
    let format = schema.constraints.as_deref()?.format.as_deref()?;
    let known = match &schema.shape {
        Shape::Scalar(Scalar::Int32 | Scalar::Int64) => matches!(format, "int32" | "int64"),
        Shape::Scalar(Scalar::Number) => matches!(format, "float" | "double"),
        Shape::Scalar(Scalar::String) => formats::is_known(format),
        _ => false,
    };
    known.then_some(format)
}

/// Whole numbers fit into the bits that their format has.
fn check_range(path: &str, number: &Number, schema: &Schema, errors: &mut Vec<FieldError>) {
    let fits = match &schema.shape {
        Shape::Scalar(Scalar::Int32) => whole(number).is_some_and(|number| i32::try_from(number).is_ok()),
        Shape::Scalar(Scalar::Int64) => whole(number).is_some(),
        _ => true,
    };
    if !fits {
        let format = known_format(schema)
            .map_or("(default format)".to_owned(), |format| format!("with format {format}"));
        let detail = format!("Checked value must be of type integer {format} in {path}");
        errors.push(FieldError::invalid("<nil>", "", detail));
    }
}

fn check_text(path: &str, text: &str, constraints: &Constraints, errors: &mut Vec<FieldError>) {
    let invalid = |detail: String| FieldError::invalid(field(path), text, detail);
    let length = text.chars().count() as u64;
    if let Some(max) = constraints.max_length.filter(|max| length > *max) {
        errors.push(FieldError::too_long(field(path), max));
    }
    if let Some(min) = constraints.min_length.filter(|min| length < *min) {
        errors.push(invalid(format!("{path} in body should be at least {min} chars long")));
    }
    if let Some((pattern, compiled)) = &constraints.pattern
        && !compiled.is_match(text)
    {
        errors.push(invalid(format!("{path} in body should match '{pattern}'")));
    }
    if let Some(format) = &constraints.format
        && formats::check(format, text) == Some(false)
    {
        let detail = format!("{path} in body must be of type {format}: {}", quote(text));
        errors.push(FieldError::type_invalid(field(path), text, detail));
    }
}

fn check_number(path: &str, number: &Number, constraints: &Constraints, errors: &mut Vec<FieldError>) {
    let mut invalid = |detail: String| {
        errors.push(FieldError::invalid(field(path), Value::Number(number.clone()), detail));
    };
    // Limits are told in the same kind of number as the value.
    let show_limit = |limit: &Number| match limit.as_f64() {
        Some(float) if number.is_f64() => show_float(float),
        _ => show_number(limit),
    };
    if let Some(multiple) = &constraints.multiple_of
        && !is_multiple(number, multiple)
    {
        invalid(format!("{path} in body should be a multiple of {}", show_limit(multiple)));
    }
    if let Some((max, exclusive)) = &constraints.maximum {
        let order = compare(number, max);
        if order.is_gt() || (*exclusive && order.is_eq()) {
            let words = if *exclusive { "less than" } else { "less than or equal to" };
            invalid(format!("{path} in body should be {words} {}", show_limit(max)));
        }
    }
    if let Some((min, exclusive)) = &constraints.minimum {
        let order = compare(number, min);
        if order.is_lt() || (*exclusive && order.is_eq()) {
            let words = if *exclusive { "greater than" } else { "greater than or equal to" };
            invalid(format!("{path} in body should be {words} {}", show_limit(min)));
        }
    }
}

fn check_allowed(path: &str, value: &Value, constraints: &Constraints, errors: &mut Vec<FieldError>) {
    let Some(allowed) = &constraints.allowed else { return };
    if allowed.iter().any(|candidate| equal(candidate, value)) {
        return;
    }
    let names: Vec<String> = allowed
        .iter()
        .map(|candidate| candidate.as_str().map_or_else(|| candidate.to_string(), ToOwned::to_owned))
        .collect();
    errors.push(FieldError::not_supported(field(path), value.clone(), &names));
}

fn check_junctions(path: &str, value: &Value, constraints: &Constraints, errors: &mut Vec<FieldError>) {
    let outcomes = |schemas: &[Ref]| -> Vec<Vec<FieldError>> {
        schemas
            .iter()
            .map(|schema| {
                let mut errors = Vec::new();
                node(path, value, None, schema, &mut errors);
                errors
            })
            .collect()
    };
    let complaint = |text: &str| FieldError::invalid("<nil>", "", format!("{} {text}", quote(path)));
    if !constraints.any_of.is_empty() {
        let outcomes = outcomes(&constraints.any_of);
        if !outcomes.iter().any(Vec::is_empty) {
            errors.push(complaint("must validate at least one schema (anyOf)"));
            errors.extend(outcomes.into_iter().min_by_key(Vec::len).unwrap_or_default());
        }
    }
    if !constraints.one_of.is_empty() {
        let outcomes = outcomes(&constraints.one_of);
        match outcomes.iter().filter(|errors| errors.is_empty()).count() {
            1 => {}
            0 => {
                errors.push(complaint("must validate one and only one schema (oneOf). Found none valid"));
                errors.extend(outcomes.into_iter().min_by_key(Vec::len).unwrap_or_default());
            }
            several => errors.push(complaint(&format!(
                "must validate one and only one schema (oneOf). Found {several} valid alternatives"
            ))),
        }
    }
    if !constraints.all_of.is_empty() {
        let outcomes = outcomes(&constraints.all_of);
        let (total, valid) = (outcomes.len(), outcomes.iter().filter(|errors| errors.is_empty()).count());
        errors.extend(outcomes.into_iter().flatten());
        if valid < total {
            let none = if valid == 0 { ". None validated" } else { "" };
            errors.push(complaint(&format!("must validate all the schemas (allOf){none}")));
        }
    }
    if let Some(not) = &constraints.not
        && outcomes(std::slice::from_ref(not)).iter().all(Vec::is_empty)
    {
        errors.push(complaint("must not validate the schema (not)"));
    }
}

fn check_list(
    path: &str,
    elements: &[Value],
    old: Option<&Value>,
    schema: &Schema,
    errors: &mut Vec<FieldError>,
) {
    if let Shape::List { items, kind } = &schema.shape {
        let old = old.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for (at, element) in elements.iter().enumerate() {
            node(&format!("{path}[{at}]"), element, counterpart(element, old, kind), items, errors);
        }
    }
    if let Some(constraints) = schema.constraints.as_deref() {
        let size = elements.len() as u64;
        if let Some(min) = constraints.min_items.filter(|min| size < *min) {
            let detail = format!("{path} in body should have at least {min} items");
            errors.push(FieldError::invalid(field(path), size, detail));
        }
        if let Some(max) = constraints.max_items.filter(|max| size > *max) {
            errors.push(FieldError::too_many(field(path), size, max));
        }
        if constraints.unique_items && !repeated(elements).is_empty() {
            errors.push(FieldError::invalid(
                field(path),
                "",
                format!("{path} in body shouldn't contain duplicates"),
            ));
        }
    }
    if let Shape::List { kind, .. } = &schema.shape {
        check_identity(path, elements, kind, errors);
    }
}

/// The element of the old list that `element` was, where elements have an identity.
pub(super) fn counterpart<'a>(element: &Value, old: &'a [Value], kind: &ListKind) -> Option<&'a Value> {
    let ListKind::Map(keys) = kind else { return None };
    old.iter().find(|candidate| keys.iter().all(|key| candidate.get(&**key) == element.get(&**key)))
}

/// Sets hold a value once, maps hold a key once.
fn check_identity(path: &str, elements: &[Value], kind: &ListKind, errors: &mut Vec<FieldError>) {
    let identities: Vec<Value> = match kind {
        ListKind::Atomic => return,
        ListKind::Set => elements.to_vec(),
        ListKind::Map(keys) => {
            if let Some(at) = elements.iter().position(|element| !element.is_object() && !element.is_null()) {
                let detail = "must be an object for an array of list-type map";
                errors.push(FieldError::invalid(format!("{path}[{at}]"), elements[at].clone(), detail));
                return;
            }
            let identity = |element: &Value| {
                let pairs =
                    keys.iter().filter_map(|key| Some((key.to_string(), element.get(&**key)?.clone())));
                Value::Object(pairs.collect())
            };
            elements.iter().map(identity).collect()
        }
    };
    for at in repeated(&identities) {
        errors.push(FieldError::duplicate(format!("{path}[{at}]"), identities[at].clone()));
    }
}

/// The positions at which a value occurs for the second time.
fn repeated(values: &[Value]) -> Vec<usize> {
    let mut seen = std::collections::HashMap::new();
    let mut positions = Vec::new();
    for (at, value) in values.iter().enumerate() {
        let times = seen.entry(value.to_string()).or_insert(0_u32);
        *times += 1;
        if *times == 2 {
            positions.push(at);
        }
    }
    positions
}

fn check_object(
    path: &str,
    fields: &serde_json::Map<String, Value>,
    old: Option<&Value>,
    schema: &Schema,
    errors: &mut Vec<FieldError>,
) {
    let constraints = schema.constraints.as_deref();
    let size = fields.len() as u64;
    if let Some(constraints) = constraints {
        if let Some(min) = constraints.min_properties.filter(|min| size < *min) {
            let detail = format!("{path} in body should have at least {min} properties");
            errors.push(FieldError::invalid(field(path), size, detail));
        }
        if let Some(max) = constraints.max_properties.filter(|max| size > *max) {
            errors.push(FieldError::too_many(field(path), size, max));
        }
    }
    let before = |name: &str| old.and_then(|old| old.get(name));
    match &schema.shape {
        Shape::Struct(known) => {
            for (name, value) in fields {
                let schema = match (known.fields.get(name.as_str()), &known.unknown) {
                    (Some(field), _) => &field.schema,
                    (None, Unknown::Typed(values)) => values,
                    (None, _) => continue,
                };
                node(&child(path, name), value, before(name), schema, errors);
            }
            for (name, known) in &known.fields {
                if known.required && !fields.contains_key(&**name) {
                    errors.push(FieldError::required(child(path, name), ""));
                }
            }
            check_embedded(path, fields, known, errors);
        }
        Shape::Map { values, .. } => {
            for (name, value) in fields {
                node(&child(path, name), value, before(name), values, errors);
            }
        }
        _ => {}
    }
    for name in constraints.map_or(&[][..], |constraints| &constraints.required) {
        if !fields.contains_key(&**name) {
            errors.push(FieldError::required(child(path, name), ""));
        }
    }
}

/// An embedded object says what it is.
fn check_embedded(
    path: &str,
    fields: &serde_json::Map<String, Value>,
    known: &Struct,
    errors: &mut Vec<FieldError>,
) {
    if !known.embedded {
        return;
    }
    for name in ["apiVersion", "kind"] {
        let path = child(path, name);
        match fields.get(name) {
            None => errors.push(FieldError::required(path, "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::invalid(path, "", "must not be empty"));
            }
            Some(Value::String(text)) if name == "kind" && !formats::is_label(&text.to_lowercase()) => {
                errors.push(FieldError::invalid(
                    path,
                    text.as_str(),
                    format!("may have mixed case, but should otherwise match: {}", formats::LABEL_RULE),
                ));
            }
            Some(Value::String(text)) if name == "apiVersion" && text.matches('/').count() > 1 => {
                let detail = format!("unexpected GroupVersion string: {text}");
                errors.push(FieldError::invalid(path, text.as_str(), detail));
            }
            Some(_) => {}
        }
    }
}

fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The object itself has no path.
fn field(path: &str) -> String {
    if path.is_empty() { "<nil>".to_owned() } else { path.to_owned() }
}

/// A whole number, also when written with a fraction of zero.
fn whole(number: &Number) -> Option<i64> {
    number.as_i64().or_else(|| {
        let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 9.2e18)?;
        Some(float as i64)
    })
}

fn is_multiple(number: &Number, factor: &Number) -> bool {
    if let (Some(number), Some(factor)) = (number.as_i64(), factor.as_i64()) {
        return factor != 0 && number % factor == 0;
    }
    let (Some(number), Some(factor)) = (number.as_f64(), factor.as_f64()) else { return true };
    let quotient = number / factor;
    (quotient - quotient.round()).abs() < 1e-9
}

fn compare(left: &Number, right: &Number) -> std::cmp::Ordering {
    match (left.as_i64(), right.as_i64()) {
        (Some(left), Some(right)) => left.cmp(&right),
        _ => {
            let (left, right) = (left.as_f64().unwrap_or_default(), right.as_f64().unwrap_or_default());
            left.partial_cmp(&right).unwrap_or(std::cmp::Ordering::Equal)
        }
    }
}

/// Equality in which 1 and 1.0 are the same number.
fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare(left, right).is_eq(),
        _ => left == right,
    }
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
