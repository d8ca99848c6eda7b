//! One request, as the verbs see it.

use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderMap;

use crate::{
    http::Query,
    schema::FieldError,
    server::User,
    status::Failure,
    store::Fence,
    types::{Resource, Scope},
};

/// Whether a write is for real.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DryRun {
    /// It is.
    No,
    /// All is done but the write.
    All,
}

/// What happens to fields that nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// They are dropped.
    Ignore,
    /// They are dropped and named in a warning.
    Warn,
    /// The request is refused.
    Strict,
}

/// Who asks for what.
pub(crate) struct Call<'a> {
    pub(crate) user: &'a User,
    pub(crate) resource: &'a Arc<Resource>,
    /// The namespace of the path; empty for objects in none and for all namespaces.
    pub(crate) namespace: &'a str,
    /// The name in the path; empty for collections.
    pub(crate) name: &'a str,
    pub(crate) query: &'a Query,
    pub(crate) manager: String,
    pub(crate) fence: Option<Fence>,
    pub(crate) dry_run: DryRun,
    pub(crate) validation: FieldValidation,
    warnings: Mutex<Vec<String>>,
}

impl<'a> Call<'a> {
    /// Reads the options that all writes share.
    pub(crate) fn new(
        user: &'a User,
        resource: &'a Arc<Resource>,
        namespace: &'a str,
        name: &'a str,
        query: &'a Query,
        headers: &HeaderMap,
    ) -> Result<Self, Failure> {
        let validation = match query.get("fieldValidation") {
            None | Some("Warn") => FieldValidation::Warn,
            Some("Strict") => FieldValidation::Strict,
            Some("Ignore") => FieldValidation::Ignore,
            Some(other) => {
                let error =
                    FieldError::not_supported("fieldValidation", other, &["", "Ignore", "Strict", "Warn"]);
                return Err(options_failure("CreateOptions", &error));
            }
        };
        let manager = query.get("fieldManager").unwrap_or_default();
        if manager.len() > 128 || manager.chars().any(char::is_control) {
            let error = FieldError::invalid(
                "fieldManager",
                manager,
                "may not be more than 128 bytes of printable text",
            );
            return Err(options_failure("CreateOptions", &error));
        }
        Ok(Self {
            user,
            resource,
            namespace,
            name,
            query,
            manager: if manager.is_empty() { manager_of(headers) } else { manager.to_owned() },
            fence: fence(headers)?,
            dry_run: dry_run(query.all("dryRun"))?,
            validation,
            warnings: Mutex::default(),
        })
    }

    /// The namespace that objects get.
    pub(crate) fn object_namespace(&self) -> &str {
        match self.resource.scope {
            Scope::Namespaced => self.namespace,
            Scope::Cluster => "",
        }
    }

    /// Says something to the client beside the answer.
    pub(crate) fn warn(&self, text: impl Into<String>) {
        let text = text.into();
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        if !warnings.contains(&text) {
            warnings.push(text);
        }
    }

    /// What was said.
    pub(crate) fn into_warnings(self) -> Vec<String> {
        self.warnings.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the client itself named a field manager.
    pub(crate) fn names_manager(&self) -> bool {
        self.query.get("fieldManager").is_some()
    }
}

/// Options of a request that break rules.
pub(crate) fn options_failure(kind: &str, error: &FieldError) -> Failure {
    Failure::invalid("meta.k8s.io", kind, "", std::slice::from_ref(error))
}

/// Reads `dryRun`, which is nothing or `All`.
pub(crate) fn dry_run<'a>(values: impl Iterator<Item = &'a str>) -> Result<DryRun, Failure> {
    let mut found = DryRun::No;
    for value in values.filter(|value| !value.is_empty()) {
        if value != "All" {
            return Err(options_failure(
                "CreateOptions",
                &FieldError::not_supported("dryRun", vec![value], &["All"]),
            ));
        }
        found = DryRun::All;
    }
    Ok(found)
}

/// The field manager of clients that name none: the first word of their User-Agent.
fn manager_of(headers: &HeaderMap) -> String {
    let agent =
        headers.get(http::header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let first: String = agent
        .split('/')
        .next()
        .unwrap_or_default()
        .chars()
        .filter(|character| !character.is_control())
        .take(128)
        .collect();
    if first.is_empty() { "unknown".to_owned() } else { first }
}

/// Reads `Steersman-Fence: <namespace>/<lease>/<leaseTransitions>`.
fn fence(headers: &HeaderMap) -> Result<Option<Fence>, Failure> {
    let Some(value) = headers.get("steersman-fence") else { return Ok(None) };
    let parts: Vec<&str> = value.to_str().unwrap_or_default().split('/').collect();
    if let [namespace, lease, transitions] = parts.as_slice()
        && let Ok(transitions) = transitions.parse()
    {
        return Ok(Some(Fence { namespace: (*namespace).into(), lease: (*lease).into(), transitions }));
    }
    Err(Failure::bad_request("the header Steersman-Fence must be <namespace>/<lease>/<leaseTransitions>"))
}
