//! Webhook configurations, read once per change.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::rules::Rule;
use crate::{
    engine::view,
    object::Revision,
    selector::{LabelSelector, selector_text},
    store::Store,
};

/// The two sorts of webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Sort {
    /// They may change objects.
    Mutating,
    /// They may only refuse.
    Validating,
}

impl Sort {
    fn storage(self) -> &'static str {
        match self {
            Self::Mutating => "admissionregistration.k8s.io/mutatingwebhookconfigurations",
            Self::Validating => "admissionregistration.k8s.io/validatingwebhookconfigurations",
        }
    }
}

/// What happens when a webhook cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailurePolicy {
    /// The request goes on without it.
    Ignore,
    /// The request fails.
    Fail,
}

/// Whether other versions of a resource count as the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MatchPolicy {
    Exact,
    Equivalent,
}

/// Whether a webhook wants to see what later ones changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reinvocation {
    Never,
    IfNeeded,
}

/// What a call does besides answering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SideEffects {
    /// Nothing, or nothing in a dry run.
    NoneOnDryRun,
    /// Something, or nobody knows.
    Some,
}

/// Where a webhook is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Address {
    /// At an address of its own.
    Url(String),
    /// Behind a Service.
    Service { namespace: String, name: String, path: String, port: u16 },
}

/// Where a webhook is called, whom to trust there and how long to wait.
#[derive(Debug, Clone)]
pub(crate) struct Callee {
    pub(super) address: Address,
    /// Certificates of authorities that it may be signed by, in PEM.
    pub(super) ca_bundle: Vec<u8>,
    pub(super) timeout: Duration,
}

impl Callee {
    /// From a `clientConfig`.
    pub(crate) fn read(config: &Value, timeout: Duration) -> Self {
        let service = &config["service"];
        let address = match text(config, "url") {
            "" => Address::Service {
                namespace: text(service, "namespace").to_owned(),
                name: text(service, "name").to_owned(),
                path: text(service, "path").to_owned(),
                port: service["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(443),
            },
            url => Address::Url(url.to_owned()),
        };
        let ca_bundle = STANDARD.decode(text(config, "caBundle")).unwrap_or_default();
        Self { address, ca_bundle, timeout }
    }
}

/// One webhook of a configuration.
#[derive(Debug)]
pub(super) struct Hook {
    pub(super) name: String,
    /// The same between two reads of an unchanged configuration, and unlike every other webhook's.
    pub(super) id: String,
    pub(super) callee: Callee,
    pub(super) rules: Vec<Rule>,
    pub(super) failure_policy: FailurePolicy,
    pub(super) match_policy: MatchPolicy,
    pub(super) namespace_selector: Result<LabelSelector, String>,
    pub(super) object_selector: Result<LabelSelector, String>,
    pub(super) match_conditions: Vec<MatchCondition>,
    pub(super) side_effects: SideEffects,
    pub(super) review_versions: Vec<String>,
    pub(super) reinvocation: Reinvocation,
}

/// An expression that must hold for the webhook to be asked.
#[derive(Debug, Clone)]
pub(super) struct MatchCondition {
    pub(super) expression: String,
}

/// Configurations that were read, by sort and name, with the revision they were read at.
#[derive(Default)]
pub(super) struct Configurations {
    read: Mutex<HashMap<(Sort, Arc<str>), Read>>,
}

struct Read {
    revision: Revision,
    hooks: Arc<Vec<Arc<Hook>>>,
}

impl Configurations {
    /// All webhooks of a sort: configurations by name, within each in its own order.
    pub(super) fn hooks(&self, sort: Sort, store: &Store) -> Vec<Arc<Hook>> {
        let snapshot = store.list(sort.storage(), None);
        if snapshot.is_empty() {
            return Vec::new();
        }
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = Vec::new();
        let mut alive = Vec::new();
        for stored in snapshot.iter() {
            let key = (sort, Arc::clone(&stored.key.name));
            let known = read.get(&key).filter(|known| known.revision == stored.revision);
            let hooks = match known {
                Some(known) => Arc::clone(&known.hooks),
                None => {
                    let hooks = Arc::new(parse(&stored.key.name, &view::tree(stored)));
                    read.insert(key.clone(), Read { revision: stored.revision, hooks: Arc::clone(&hooks) });
                    hooks
                }
            };
            all.extend(hooks.iter().cloned());
            alive.push(key.1);
        }
        if read.keys().filter(|(found, _)| *found == sort).count() > alive.len() {
            read.retain(|(found, name), _| *found != sort || alive.contains(name));
        }
        all
    }
}

fn parse(configuration: &str, object: &Value) -> Vec<Arc<Hook>> {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    let hooks = object["webhooks"].as_array().into_iter().flatten();
    hooks
        .map(|hook| {
            let name = text(hook, "name");
            let number = seen.entry(name).or_default();
            let id = format!("{configuration}/{name}/{number}");
            *number += 1;
            Arc::new(read(hook, id))
        })
        .collect()
}

fn read(hook: &Value, id: String) -> Hook {
    let timeout = Duration::from_secs(hook["timeoutSeconds"].as_u64().unwrap_or(10).clamp(1, 30));
    let conditions = hook["matchConditions"].as_array().into_iter().flatten();
    Hook {
        name: text(hook, "name").to_owned(),
        id,
        callee: Callee::read(&hook["clientConfig"], timeout),
        rules: hook["rules"].as_array().into_iter().flatten().map(Rule::read).collect(),
        failure_policy: match text(hook, "failurePolicy") {
            "Ignore" => FailurePolicy::Ignore,
            _ => FailurePolicy::Fail,
        },
        match_policy: match text(hook, "matchPolicy") {
            "Exact" => MatchPolicy::Exact,
            _ => MatchPolicy::Equivalent,
        },
        namespace_selector: LabelSelector::parse(&selector_text(&hook["namespaceSelector"])),
        object_selector: LabelSelector::parse(&selector_text(&hook["objectSelector"])),
        match_conditions: conditions
            .map(|condition| MatchCondition { expression: text(condition, "expression").to_owned() })
            .collect(),
        side_effects: match text(hook, "sideEffects") {
            "None" | "NoneOnDryRun" => SideEffects::NoneOnDryRun,
            _ => SideEffects::Some,
        },
        review_versions: hook["admissionReviewVersions"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(ToOwned::to_owned)
            .collect(),
        reinvocation: match text(hook, "reinvocationPolicy") {
            "IfNeeded" => Reinvocation::IfNeeded,
            _ => Reinvocation::Never,
        },
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}
