//! `matchConditions`: expressions that must all hold for a webhook to be asked.

use serde_json::Value as Json;

use super::{Attributes, config::MatchCondition, review, rules::Invocation};
use crate::cel::{EvalError, Program, Scope, Value};

/// What the conditions of one webhook may cost together, as in Kubernetes.
const BUDGET: u64 = 2_500_000;

/// Whether the conditions of a webhook hold. One that does not is enough to leave the webhook out; one that
/// cannot be judged is an error only where all others hold.
pub(super) fn hold(
    invocation: &Invocation,
    attributes: &Attributes<'_>,
    object: Option<&Json>,
    old: Option<&Json>,
) -> Result<bool, String> {
    let conditions = &invocation.hook.match_conditions;
    if conditions.is_empty() {
        return Ok(true);
    }
    let request = review::request(attributes, invocation);
    let mut scope = Scope::new(
        vec![
            ("object".to_owned(), object.map_or(Value::Null, |object| Value::of(object, None))),
            ("oldObject".to_owned(), old.map_or(Value::Null, |old| Value::of(old, None))),
            ("request".to_owned(), Value::of(&request, None)),
        ],
        BUDGET,
    );
    let mut errors = Vec::new();
    for condition in conditions {
        match judge(condition, &mut scope) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(why) => errors.push(why),
        }
    }
    match errors.as_slice() {
        [] => Ok(true),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}

fn judge<'a>(condition: &MatchCondition, scope: &mut Scope<'a>) -> Result<bool, String> {
    let expression = condition.expression.trim();
    let program = Program::parse(expression).map_err(|error| format!("compilation error: {error}"))?;
    let failed = |why: String| format!("expression '{expression}' resulted in error: {why}");
    match program.evaluate(scope) {
        Ok(Value::Bool(holds)) => Ok(holds),
        Ok(_) => Err(failed("it is neither true nor false".to_owned())),
        Err(EvalError::Failed(why)) => Err(failed(why)),
        Err(EvalError::TooCostly) => Err(
            "validation failed due to running out of cost budget, no further validation rules will be run"
                .to_owned(),
        ),
    }
}
