//! Who is asked when, and what an answer or the lack of one means.

use std::collections::HashSet;

use futures::future::join_all;
use serde_json::Value;

use super::{
    Attributes, CallError, Kind, Rehearsal, conditions,
    config::{FailurePolicy, Hook, Reinvocation, SideEffects, Sort},
    review::{Question, Verdict},
    rules::{self, Invocation},
};
use crate::{
    admit,
    engine::{Call, Engine},
    patch, schema,
    status::Failure,
    types::{Origin, Resource},
};

/// Why a webhook's answer cannot be had.
enum Trouble {
    /// The failure policy decides.
    Unanswered(String),
    /// The request fails whatever the policy says.
    Final(Failure),
}

impl Engine {
    /// Lets mutating webhooks change an object before it is checked.
    ///
    /// A webhook with `reinvocationPolicy: IfNeeded` is asked once more when one after it changed something.
    pub(crate) async fn mutate(
        &self,
        call: &Call<'_>,
        attributes: &Attributes<'_>,
        mut object: Option<&mut Value>,
        old: Option<&Value>,
    ) -> Result<(), Failure> {
        let hooks = self.webhooks.configurations.hooks(Sort::Mutating, &self.store);
        if hooks.is_empty() || attributes.is_exempt() {
            return Ok(());
        }
        let mut asked: HashSet<String> = HashSet::new();
        let mut again: HashSet<String> = HashSet::new();
        for round in 0..2 {
            if round == 1 && again.is_empty() {
                break;
            }
            let wanted = std::mem::take(&mut again);
            for hook in &hooks {
                if round == 1 && !wanted.contains(&hook.id) {
                    continue;
                }
                let served = self.served.load_full();
                let invocation =
                    rules::invocation(hook, attributes, object.as_deref(), old, &served, &self.store)?;
                let Some(invocation) = invocation else { continue };
                if !self.conditions_hold(&invocation, attributes, object.as_deref(), old).await? {
                    continue;
                }
                let changed =
                    self.mutate_once(call, attributes, &invocation, object.as_deref_mut(), old).await;
                let changed = match changed {
                    Ok(changed) => changed,
                    Err(Trouble::Unanswered(why)) => {
                        forgive(hook, &why)?;
                        false
                    }
                    Err(Trouble::Final(failure)) => return Err(failure),
                };
                if changed {
                    again.extend(asked.drain());
                }
                if hook.reinvocation == Reinvocation::IfNeeded {
                    asked.insert(hook.id.clone());
                }
            }
        }
        Ok(())
    }

    /// Asks validating webhooks about an object as it would be stored.
    pub(crate) async fn validate(
        &self,
        call: &Call<'_>,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Failure> {
        let hooks = self.webhooks.configurations.hooks(Sort::Validating, &self.store);
        if hooks.is_empty() || attributes.is_exempt() {
            return Ok(());
        }
        let served = self.served.load_full();
        let mut invocations = Vec::new();
        for hook in &hooks {
            let found = rules::invocation(hook, attributes, object, old, &served, &self.store)?;
            if let Some(invocation) = found
                && self.conditions_hold(&invocation, attributes, object, old).await?
            {
                invocations.push(invocation);
            }
        }
        let answers = join_all(invocations.iter().map(|invocation| async move {
            let object = self.seen(attributes.resource, invocation, object).await?;
            let old = self.seen(attributes.resource, invocation, old).await?;
            let verdict =
                self.ask(Sort::Validating, attributes, invocation, object.as_ref(), old.as_ref()).await;
            match verdict {
                Ok(verdict) => {
                    verdict.warnings.iter().for_each(|warning| call.warn(warning.clone()));
                    if verdict.allowed { Ok(()) } else { Err(verdict.refusal(&invocation.hook.name)) }
                }
                Err(Trouble::Unanswered(why)) => forgive(&invocation.hook, &why),
                Err(Trouble::Final(failure)) => Err(failure),
            }
        }));
        answers.await.into_iter().collect()
    }

    /// Lets one webhook change the object; answers whether it did.
    async fn mutate_once(
        &self,
        call: &Call<'_>,
        attributes: &Attributes<'_>,
        invocation: &Invocation,
        object: Option<&mut Value>,
        old: Option<&Value>,
    ) -> Result<bool, Trouble> {
        let resource = attributes.resource;
        let name = &invocation.hook.name;
        let shown = self.seen(resource, invocation, object.as_deref()).await.map_err(Trouble::Final)?;
        let old = self.seen(resource, invocation, old).await.map_err(Trouble::Final)?;
        let verdict = self.ask(Sort::Mutating, attributes, invocation, shown.as_ref(), old.as_ref()).await?;
        verdict.warnings.iter().for_each(|warning| call.warn(warning.clone()));
        if !verdict.allowed {
            return Err(Trouble::Final(verdict.refusal(name)));
        }
        if verdict.patch.is_empty() {
            return Ok(false);
        }
        let operations: Value =
            serde_json::from_slice(&verdict.patch).ok().filter(Value::is_array).ok_or_else(|| {
                Trouble::Unanswered("received undecodable patch in webhook response".to_owned())
            })?;
        if operations.as_array().is_some_and(Vec::is_empty) {
            return Ok(false);
        }
        let (Some(object), Some(shown)) = (object, shown) else {
            return Err(Trouble::Final(Failure::internal(format!(
                "admission webhook \"{name}\" attempted to modify the object, which is not supported for this operation"
            ))));
        };
        if verdict.patch_type != "JSONPatch" {
            return Err(Trouble::Unanswered(format!("unsupported patch type {:?}", verdict.patch_type)));
        }
        let failed = |why: String| Trouble::Final(Failure::internal(why));
        let patched =
            patch::json_patch(&shown, &verdict.patch).map_err(|error| failed(plain(&error.to_string())))?;
        let mut patched = match &invocation.resource {
            Some(other) if attributes.kind == Kind::of(resource) => {
                self.as_shown_by(other, resource, &patched).await.map_err(Trouble::Final)?
            }
            _ => patched,
        };
        if attributes.kind == Kind::of(resource) {
            settle(resource, &mut patched).map_err(failed)?;
        }
        let changed = patched != *object;
        *object = patched;
        Ok(changed)
    }

    async fn ask(
        &self,
        sort: Sort,
        attributes: &Attributes<'_>,
        invocation: &Invocation,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Verdict, Trouble> {
        let hook = &invocation.hook;
        if attributes.rehearsal == Rehearsal::DryRun && hook.side_effects == SideEffects::Some {
            return Err(Trouble::Final(Failure::bad_request(format!(
                "admission webhook \"{}\" does not support dry run",
                hook.name
            ))));
        }
        let question = Question::new(attributes, invocation, object, old)
            .map_err(|why| Trouble::Unanswered(format!("could not create admission objects: {why}")))?;
        let answer = self.webhooks.ask(&hook.callee, self, &question.body).await.map_err(|error| {
            Trouble::Unanswered(match error {
                CallError::Setup(why) => why,
                CallError::Call(why) => format!("failed to call webhook: {why}"),
            })
        })?;
        if let Some(why) = question.mismatch(&answer) {
            return Err(Trouble::Unanswered(format!("failed to call webhook: {why}")));
        }
        question
            .verdict(sort, &answer)
            .map_err(|why| Trouble::Unanswered(format!("received invalid webhook response: {why}")))
    }

    /// Whether the conditions of a webhook hold for a request; what cannot be judged is up to the failure
    /// policy.
    async fn conditions_hold(
        &self,
        invocation: &Invocation,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<bool, Failure> {
        if invocation.hook.match_conditions.is_empty() {
            return Ok(true);
        }
        let object = self.seen(attributes.resource, invocation, object).await?;
        let old = self.seen(attributes.resource, invocation, old).await?;
        match conditions::hold(invocation, attributes, object.as_ref(), old.as_ref()) {
            Ok(hold) => Ok(hold),
            Err(why) if invocation.hook.failure_policy == FailurePolicy::Ignore => {
                tracing::warn!(webhook = invocation.hook.name, why, "left out a webhook");
                Ok(false)
            }
            Err(why) => Err(Failure::forbidden(attributes.resource, &attributes.name, &why)),
        }
    }

    /// The object in the version that the webhook knows.
    async fn seen(
        &self,
        resource: &Resource,
        invocation: &Invocation,
        object: Option<&Value>,
    ) -> Result<Option<Value>, Failure> {
        match (&invocation.resource, object) {
            (_, None) => Ok(None),
            (Some(other), Some(object)) if invocation.kind == Kind::of(other) => {
                let seen = self.as_shown_by(resource, other, object).await;
                // Clients know these words twice.
                seen.map(Some).map_err(|failure| {
                    Failure::internal(format!("Internal error occurred: {}", failure.message))
                })
            }
            (_, Some(object)) => Ok(Some(object.clone())),
        }
    }
}

/// Goes on without a webhook where its policy allows that.
fn forgive(hook: &Hook, why: &str) -> Result<(), Failure> {
    let why = format!("failed calling webhook \"{}\": {why}", hook.name);
    match hook.failure_policy {
        FailurePolicy::Ignore => {
            tracing::warn!(why, "going on without a webhook");
            Ok(())
        }
        FailurePolicy::Fail => Err(Failure::internal(why)),
    }
}

/// Makes a patched object what a decoded one is: of the right types, pruned, defaulted.
fn settle(resource: &Resource, object: &mut Value) -> Result<(), String> {
    if resource.origin == Origin::BuiltIn {
        schema::check_types(object, &resource.schema)?;
    }
    schema::prune(object, &resource.schema);
    admit::decode::canonical(object, resource);
    admit::defaults::apply(resource, object);
    Ok(())
}

/// The reason alone, without the words that answer a PATCH.
fn plain(message: &str) -> String {
    message
        .strip_prefix("the server rejected our request due to an error in our request: ")
        .unwrap_or(message)
        .to_owned()
}
