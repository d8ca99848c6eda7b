//! Resources that are questions: who am I, may I, whose token is this.

use serde_json::{Value, json};

use crate::{
    auth::{Claims, ISSUER},
    engine::{
        Call, Engine, Outcome, api_version,
        meta::{Meta, empty, object_mut, time_text},
    },
    schema::FieldError,
    server::User,
    status::Failure,
};

/// Answers a review; nothing when the resource holds objects.
pub(super) fn answer(engine: &Engine, call: &Call<'_>, body: &Value) -> Result<Option<Outcome>, Failure> {
    let status = match (&*call.resource.group, &*call.resource.plural) {
        ("authorization.k8s.io", "selfsubjectaccessreviews") => access(call.user),
        ("authorization.k8s.io", "subjectaccessreviews" | "localsubjectaccessreviews") => {
            access(&subject(body)?)
        }
        ("authorization.k8s.io", "selfsubjectrulesreviews") => rules(),
        ("authentication.k8s.io", "selfsubjectreviews") => {
            json!({"userInfo": {"username": call.user.name, "groups": call.user.groups}})
        }
        ("authentication.k8s.io", "tokenreviews") => token_status(engine, body),
        _ => return Ok(None),
    };
    let mut review = body.clone();
    if !review.is_object() {
        return Err(Failure::bad_request("the body must be a review"));
    }
    review["apiVersion"] = api_version(call.resource).into();
    review["kind"] = (&*call.resource.kind).into();
    review.meta_set("creationTimestamp", Some(time_text((engine.options.clock)()).into()));
    review["status"] = status;
    Ok(Some(Outcome::review(review)))
}

/// Roles are not enforced yet: whoever is known may do everything.
fn access(user: &User) -> Value {
    let known = user.groups.iter().any(|group| group == "system:authenticated" || group == "system:masters");
    if known {
        json!({"allowed": true, "reason": "roles are not enforced by this server yet"})
    } else {
        json!({"allowed": false})
    }
}

fn subject(body: &Value) -> Result<User, Failure> {
    let spec = &body["spec"];
    let name = spec["user"].as_str().unwrap_or_default();
    let groups: Vec<String> = spec["groups"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(ToOwned::to_owned)
        .collect();
    if name.is_empty() && groups.is_empty() {
        let error = FieldError::invalid("spec.user", name, "at least one of user or group must be specified");
        return Err(Failure::invalid("authorization.k8s.io", "SubjectAccessReview", "", &[error]));
    }
    Ok(User { name: name.to_owned(), groups })
}

/// As for [`access`]: everything.
fn rules() -> Value {
    json!({
        "incomplete": false,
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    })
}

fn token_status(engine: &Engine, body: &Value) -> Value {
    let token = body["spec"]["token"].as_str().unwrap_or_default();
    let audiences = audiences(&body["spec"]);
    match engine
        .options
        .authenticator
        .as_ref()
        .and_then(|authenticator| authenticator.token_for(token, (engine.options.clock)(), &audiences))
    {
        Some((user, audiences)) => json!({
            "authenticated": true, "user": {"username": user.name, "groups": user.groups}, "audiences": audiences,
        }),
        None => json!({"user": {}, "error": "[invalid bearer token]"}),
    }
}

/// For whom a token is, or is shown to: this server where nobody is named.
fn audiences(spec: &Value) -> Vec<String> {
    let named = spec["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let named: Vec<String> = named.filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect();
    if named.is_empty() { vec![ISSUER.to_owned()] } else { named }
}

/// `POST serviceaccounts/<name>/token`: a token for a service account.
pub(super) fn token(engine: &Engine, call: &Call<'_>, body: &Value) -> Result<Outcome, Failure> {
    let stored = engine.stored(call.resource, call.object_namespace(), call.name)?;
    let authenticator = engine.options.authenticator.as_ref().ok_or_else(|| {
        Failure::unavailable("this server was started without an authority, so it cannot issue tokens")
    })?;
    let seconds = body["spec"]["expirationSeconds"].as_i64().unwrap_or(3600).clamp(600, 1 << 32);
    let now = (engine.options.clock)();
    let expires = now.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(now);
    let audiences = audiences(&body["spec"]);
    let (namespace, account) = (call.object_namespace(), call.name);
    let claims = Claims { namespace, account, uid: &stored.header.uid, audiences: &audiences };
    let token = authenticator.issue_token(claims, now, expires);
    let mut request = body.clone();
    let map = object_mut(&mut request);
    map.insert("apiVersion".into(), "authentication.k8s.io/v1".into());
    map.insert("kind".into(), "TokenRequest".into());
    let spec = object_mut(map.entry("spec").or_insert_with(empty));
    spec.insert("expirationSeconds".into(), seconds.into());
    spec.insert("audiences".into(), audiences.into());
    map.insert("status".into(), json!({"token": token, "expirationTimestamp": time_text(expires)}));
    request.meta_set("name", Some(call.name.into()));
    request.meta_set("namespace", Some(call.object_namespace().into()));
    Ok(Outcome::review(request))
}
