//! `GET` of a collection: selectors, pages, versions.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use serde_json::{Value, json};

use super::{Call, Engine, api_version, view};
use crate::{
    object::{Revision, Stored},
    selector::{FieldSelector, LabelSelector},
    status::Failure,
    store::Snapshot,
    types::{Origin, Resource, Scope},
};

/// How long a request waits for a version that is announced but not there yet.
const FRESHNESS: Duration = Duration::from_secs(3);

/// How many objects are converted at once while a page is put together.
const PORTION: usize = 1000;

/// A list is sent in pieces of about this size.
const PIECE: usize = 128 * 1024;

/// Which objects of a collection are asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    labels: LabelSelector,
    fields: FieldSelector,
    name: Option<String>,
}

impl Filter {
    /// Reads the selectors of a query.
    pub(crate) fn parse(call: &Call<'_>) -> Result<Self, Failure> {
        let resource = call.resource;
        let labels = LabelSelector::parse(call.query.get("labelSelector").unwrap_or_default())
            .map_err(Failure::bad_request)?;
        let fields = FieldSelector::parse(call.query.get("fieldSelector").unwrap_or_default())
            .map_err(Failure::bad_request)?;
        for requirement in fields.requirements() {
            let field = requirement.field.as_str();
            let known = field == "metadata.name"
                || (field == "metadata.namespace" && resource.scope == Scope::Namespaced)
                || resource.selectable.iter().any(|known| &**known == field);
            if !known {
                let why = if resource.origin == Origin::BuiltIn && resource.selectable.is_empty() {
                    format!(
                        "{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                    )
                } else {
                    format!("field label not supported: {field}")
                };
                return Err(Failure::bad_request(why));
            }
        }
        let name = (!call.name.is_empty()).then(|| call.name.to_owned());
        Ok(Self { labels, fields, name })
    }

    /// Whether everything is asked for.
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.name.is_none()
    }

    /// Whether an object is asked for.
    pub(crate) fn matches(&self, resource: &Resource, stored: &Stored) -> bool {
        if self.name.as_deref().is_some_and(|name| name != &*stored.key.name) {
            return false;
        }
        let label = |key: &str| {
            let labels = &stored.header.labels;
            labels.binary_search_by(|(found, _)| (**found).cmp(key)).ok().map(|index| &*labels[index].1)
        };
        self.labels.matches(label) && self.fields_match(resource, stored)
    }

    fn fields_match(&self, resource: &Resource, stored: &Stored) -> bool {
        let mut object = None;
        self.fields.requirements().iter().all(|requirement| {
            let found = match requirement.field.as_str() {
                "metadata.name" => stored.key.name.to_string(),
                "metadata.namespace" => stored.key.namespace.to_string(),
                field => {
                    let object = object
                        .get_or_insert_with(|| super::convert::from_storage(resource, view::tree(stored)));
                    resource.field(field, object).unwrap_or_default()
                }
            };
            requirement.accepts(&found)
        })
    }
}

/// A page of a list.
#[derive(Debug)]
pub(crate) struct Listed {
    /// The version that the list shows.
    pub(crate) revision: Revision,
    /// The objects of this page.
    pub(crate) objects: Vec<Arc<Stored>>,
    /// Where the next page begins.
    pub(crate) page: Option<Page>,
}

/// That there is more.
#[derive(Debug)]
pub(crate) struct Page {
    /// For the client to send back.
    pub(crate) token: String,
    /// How many objects follow; unknown when they are filtered.
    pub(crate) remaining: Option<usize>,
}

impl Page {
    /// That more follows after these objects, of which there is at least one.
    fn after(objects: &[Arc<Stored>], revision: Revision, remaining: Option<usize>) -> Self {
        let (namespace, name) = objects
            .last()
            .map(|last| (last.key.namespace.to_string(), last.key.name.to_string()))
            .unwrap_or_default();
        Self { token: Token { revision: revision.0, namespace, name }.to_text(), remaining }
    }
}

impl Listed {
    /// `metadata` of the list.
    pub(crate) fn metadata(&self) -> Value {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if let Some(page) = &self.page {
            metadata["continue"] = page.token.as_str().into();
            if let Some(remaining) = page.remaining {
                metadata["remainingItemCount"] = remaining.into();
            }
        }
        metadata
    }
}

impl Engine {
    /// Waits until reads are as fresh as a version that the client has seen.
    pub(crate) async fn fresh(&self, revision: u64) -> Result<(), Failure> {
        if self.store.revision().0 >= revision {
            return Ok(());
        }
        tokio::time::timeout(FRESHNESS, self.store.wait_for(Revision(revision)))
            .await
            .map_err(|_| Failure::too_large_resource_version(revision, self.store.revision().0))
    }

    /// The objects that a query asks for.
    pub(crate) async fn list(&self, call: &Call<'_>) -> Result<Listed, Failure> {
        let filter = Filter::parse(call)?;
        let limit = call.query.number("limit")?.unwrap_or(0);
        let limit = usize::try_from(limit).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let token = call.query.get("continue").map(Token::parse).transpose()?;
        let snapshot = self.snapshot(call, token.as_ref()).await?;
        let resource = call.resource;
        if resource.conversion_webhook().is_some() {
            let candidates: Vec<Arc<Stored>> = match &token {
                None => snapshot.iter().cloned().collect(),
                Some(token) => snapshot.after(&token.namespace, &token.name).cloned().collect(),
            };
            return self.list_converted(resource, &filter, limit, snapshot.revision, &candidates).await;
        }
        let mut objects = Vec::new();
        let mut page = None;
        let matching = |stored: &&Arc<Stored>| filter.matches(resource, stored);
        let mut collect = |found: &mut dyn Iterator<Item = &Arc<Stored>>| {
            while let Some(stored) = found.next() {
                if objects.len() == limit {
                    let remaining = filter.is_empty().then(|| found.count() + 1);
                    page = Some(Page::after(&objects, snapshot.revision, remaining));
                    break;
                }
                objects.push(Arc::clone(stored));
            }
        };
        match &token {
            None => collect(&mut snapshot.iter().filter(matching)),
            Some(token) => collect(&mut snapshot.after(&token.namespace, &token.name).filter(matching)),
        }
        Ok(Listed { revision: snapshot.revision, objects, page })
    }

    /// A page of objects that a webhook converts: selectors see them converted, so no more are than needed.
    async fn list_converted(
        &self,
        resource: &Resource,
        filter: &Filter,
        limit: usize,
        revision: Revision,
        candidates: &[Arc<Stored>],
    ) -> Result<Listed, Failure> {
        let mut objects: Vec<Arc<Stored>> = Vec::new();
        let portion = limit.clamp(1, PORTION);
        for (number, some) in candidates.chunks(portion).enumerate() {
            for (index, stored) in self.shown_many(resource, some.to_vec()).await?.into_iter().enumerate() {
                if !filter.matches(resource, &stored) {
                    continue;
                }
                if objects.len() == limit {
                    let before = number * portion + index;
                    let remaining = filter.is_empty().then(|| candidates.len() - before);
                    let page = Some(Page::after(&objects, revision, remaining));
                    return Ok(Listed { revision, objects, page });
                }
                objects.push(stored);
            }
        }
        Ok(Listed { revision, objects, page: None })
    }

    async fn snapshot(&self, call: &Call<'_>, token: Option<&Token>) -> Result<Snapshot, Failure> {
        let storage = &*call.resource.storage.name;
        let namespace = (!call.object_namespace().is_empty()).then(|| call.object_namespace());
        let expired = || {
            Failure::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
            )
        };
        let matching = call.query.get("resourceVersionMatch");
        if let Some(token) = token {
            if matching.is_some() {
                return Err(invalid_list("resourceVersionMatch is forbidden when continue is provided"));
            }
            return self.store.list_at(storage, namespace, Revision(token.revision)).map_err(|_| expired());
        }
        let version = call.query.get("resourceVersion");
        let revision = match version {
            None | Some("0") => None,
            Some(text) => Some(text.parse::<u64>().map_err(|_| {
                Failure::bad_request(format!(
                    "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing \
                     {text:?}: invalid syntax"
                ))
            })?),
        };
        match (matching, revision) {
            (None | Some("NotOlderThan"), None) if matching.is_none() || version.is_some() => {}
            (None | Some("NotOlderThan"), Some(revision)) => self.fresh(revision).await?,
            (Some("Exact"), Some(revision)) => {
                self.fresh(revision).await?;
                return self.store.list_at(storage, namespace, Revision(revision)).map_err(|_| {
                    Failure::expired(format!(
                        "The resourceVersion for the provided list is too old: {revision}"
                    ))
                });
            }
            (Some(_), None) if version.is_none() => {
                return Err(invalid_list(
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            (Some("Exact"), None) => {
                return Err(invalid_list(
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
            }
            (Some(other), _) => {
                let allowed = ["Exact", "NotOlderThan", ""];
                let error = crate::schema::FieldError::not_supported("resourceVersionMatch", other, &allowed);
                return Err(super::call::options_failure("ListOptions", &error));
            }
            (None, None) => {}
        }
        Ok(self.store.list(storage, namespace))
    }
}

fn invalid_list(why: &str) -> Failure {
    let error = crate::schema::FieldError::forbidden("resourceVersionMatch", why);
    super::call::options_failure("ListOptions", &error)
}

/// A list as JSON, piece by piece: a large one never lies in memory as a whole beside its objects.
pub(crate) struct Rendering {
    resource: Arc<Resource>,
    lens: view::Lens,
    objects: std::vec::IntoIter<Arc<Stored>>,
    /// What precedes the next object; nothing after the end.
    before: Option<Vec<u8>>,
    size: usize,
}

impl Rendering {
    /// Begins with the first piece.
    pub(crate) fn new(resource: &Arc<Resource>, lens: view::Lens, listed: Listed) -> Self {
        let mut metadata = listed.metadata();
        if resource.origin != Origin::BuiltIn && listed.page.is_none() {
            // Lists of custom resources say so when nothing follows; others say nothing.
            metadata["continue"] = "".into();
        }
        let prefix = super::meta::prefix(&resource.list_kind, &api_version(resource));
        Self {
            resource: Arc::clone(resource),
            lens,
            size: listed.objects.iter().map(|stored| stored.bytes.len() + 1).sum(),
            objects: listed.objects.into_iter(),
            before: Some(format!("{prefix}\"metadata\":{metadata},\"items\":[").into_bytes()),
        }
    }

    /// About how many bytes it will be.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// All of it at once.
    pub(crate) fn whole(self) -> Vec<u8> {
        let mut whole = Vec::with_capacity(self.size + 256);
        self.for_each(|piece| whole.extend_from_slice(&piece));
        whole
    }
}

impl Iterator for Rendering {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let before = self.before.take()?;
        let mut piece = Vec::with_capacity(PIECE.min(self.size) + before.len() + 256);
        piece.extend_from_slice(&before);
        while piece.len() < PIECE {
            let Some(stored) = self.objects.next() else {
                piece.extend_from_slice(b"]}");
                return Some(piece.into());
            };
            self.lens.item(&self.resource, &stored, &mut piece);
            if self.objects.len() > 0 {
                piece.push(b',');
            }
        }
        self.before = Some(Vec::new());
        Some(piece.into())
    }
}

/// Where a list goes on: after this object, at this version.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Token {
    revision: u64,
    namespace: String,
    name: String,
}

impl Token {
    fn to_text(&self) -> String {
        URL_SAFE_NO_PAD
            .encode(json!({"v": 1, "rv": self.revision, "ns": self.namespace, "name": self.name}).to_string())
    }

    fn parse(text: &str) -> Result<Self, Failure> {
        let bad = || {
            Failure::bad_request("continue key is not valid: start a new list without the continue parameter")
        };
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| bad())?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|_| bad())?;
        let text = |field: &str| value[field].as_str().map(ToOwned::to_owned).ok_or_else(bad);
        Ok(Self {
            revision: value["rv"].as_u64().ok_or_else(bad)?,
            namespace: text("ns")?,
            name: text("name")?,
        })
    }
}
