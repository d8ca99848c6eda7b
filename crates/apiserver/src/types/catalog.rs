//! The types alive now.
//!
//! A catalog never changes. When a definition comes or goes the server makes the next one and
//! swaps it in; what did not change is shared between the two.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    sync::Arc,
};

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{Origin, Resource, builtin, crd, version};

/// Every served resource type, built-in and custom.
pub struct Catalog {
    groups: Vec<Group>,
    by_group: HashMap<Arc<str>, usize>,
    /// What each definition is served as, so that the next catalog need not read it again.
    custom: HashMap<Arc<str>, Custom>,
    hash: String,
    documents: crate::openapi::Documents,
}

/// An API group with its versions, the preferred one first.
pub struct Group {
    /// Its name; empty for the core group.
    pub name: Arc<str>,
    /// Its versions, the preferred one first.
    pub versions: Vec<Arc<Version>>,
}

/// One version of a group.
pub struct Version {
    /// API group; empty for the core group.
    pub group: Arc<str>,
    /// Its name, for example `v1`.
    pub name: Arc<str>,
    /// Its resources, in the order of discovery.
    pub resources: Vec<Arc<Resource>>,
    by_plural: HashMap<Arc<str>, usize>,
    by_kind: HashMap<Arc<str>, usize>,
    hash: String,
    pub(crate) document: crate::openapi::Cached,
}

/// Group and version.
type VersionKey = (Arc<str>, Arc<str>);

#[derive(Clone)]
struct Custom {
    uid: Arc<str>,
    generation: i64,
    resources: Vec<Arc<Resource>>,
}

impl Catalog {
    /// The built-in types and nothing else.
    pub fn builtin() -> Self {
        Self::assemble(HashMap::new(), None)
    }

    /// The built-in types and those of the given CustomResourceDefinitions that are established.
    ///
    /// What this catalog already knows of a definition of the same uid and generation is used
    /// again; definitions that are not in the list are forgotten.
    pub fn with_definitions(&self, definitions: &[Value]) -> Self {
        let mut custom = HashMap::new();
        for definition in definitions.iter().filter(|definition| crd::is_established(definition)) {
            let name: Arc<str> = definition["metadata"]["name"].as_str().unwrap_or_default().into();
            let uid: Arc<str> = definition["metadata"]["uid"].as_str().unwrap_or_default().into();
            let generation = definition["metadata"]["generation"].as_i64().unwrap_or_default();
            let known = self
                .custom
                .get(&name)
                .filter(|known| known.uid == uid && known.generation == generation && generation != 0);
            let entry = match known {
                Some(known) => known.clone(),
                None => match crd::resources_of(definition) {
                    Ok(resources) => {
                        let resources = resources.into_iter().map(Arc::new).collect();
                        Custom { uid, generation, resources }
                    }
                    Err(error) => {
                        tracing::warn!(definition = %name, %error, "the definition is not served");
                        continue;
                    }
                },
            };
            custom.insert(name, entry);
        }
        Self::assemble(custom, Some(self))
    }

    fn assemble(custom: HashMap<Arc<str>, Custom>, before: Option<&Self>) -> Self {
        let mut names: Vec<Arc<str>> = Vec::new();
        let mut versions: HashMap<VersionKey, Vec<Arc<Resource>>> = HashMap::new();
        let sorted: BTreeMap<&Arc<str>, &Custom> = custom.iter().collect();
        let custom_resources = sorted.values().flat_map(|custom| &custom.resources);
        for resource in builtin::resources().iter().chain(custom_resources) {
            let key = (resource.group.clone(), resource.version.clone());
            if !names.contains(&resource.group) {
                names.push(resource.group.clone());
            }
            versions.entry(key).or_default().push(resource.clone());
        }
        let mut groups: Vec<Group> =
            names.into_iter().map(|name| Group { name, versions: Vec::new() }).collect();
        let by_group: HashMap<Arc<str>, usize> =
            groups.iter().enumerate().map(|(at, group)| (group.name.clone(), at)).collect();
        for ((group, name), resources) in versions {
            let known = before.and_then(|before| before.version(&group, &name)).filter(|known| {
                known.resources.len() == resources.len()
                    && known.resources.iter().zip(&resources).all(|(left, right)| Arc::ptr_eq(left, right))
            });
            let version = known
                .cloned()
                .unwrap_or_else(|| Arc::new(Version::new(group.clone(), name, resources, &custom)));
            if let Some(group) = by_group.get(&group).and_then(|at| groups.get_mut(*at)) {
                group.versions.push(version);
            }
        }
        for group in &mut groups {
            group.versions.sort_by(|left, right| version::compare(&right.name, &left.name));
        }
        let hash = hash_of(sorted.iter().map(|(name, custom)| (*name, *custom)));
        Self { groups, by_group, custom, hash, documents: crate::openapi::Documents::default() }
    }

    /// The resource that is served at this path.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        let version = self.version(group, version)?;
        version.by_plural.get(plural).and_then(|at| version.resources.get(*at))
    }

    /// The resource whose objects are of this kind.
    pub fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        let version = self.version(group, version)?;
        version.by_kind.get(kind).and_then(|at| version.resources.get(*at))
    }

    /// Every resource, group by group, preferred versions first.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.groups.iter().flat_map(|group| &group.versions).flat_map(|version| &version.resources)
    }

    /// The groups in the order of discovery; the core group is the first.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// A group by name; the core group's is empty.
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.by_group.get(name).and_then(|at| self.groups.get(*at))
    }

    /// One version of a group.
    pub fn version(&self, group: &str, version: &str) -> Option<&Arc<Version>> {
        self.group(group)?.versions.iter().find(|candidate| &*candidate.name == version)
    }

    /// Changes whenever the served types do; fit for an ETag.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    pub(crate) fn documents(&self) -> &crate::openapi::Documents {
        &self.documents
    }
}

impl Group {
    /// The version that clients should use.
    pub fn preferred(&self) -> Option<&Arc<Version>> {
        self.versions.first()
    }
}

impl Version {
    fn new(
        group: Arc<str>,
        name: Arc<str>,
        resources: Vec<Arc<Resource>>,
        custom: &HashMap<Arc<str>, Custom>,
    ) -> Self {
        let known = resources.iter().filter_map(|resource| match &resource.origin {
            Origin::BuiltIn => None,
            Origin::Custom { definition, .. } => custom.get_key_value(definition),
        });
        let hash = hash_of(known);
        let index = |key: fn(&Resource) -> &Arc<str>| {
            let mut index = HashMap::new();
            for (at, resource) in resources.iter().enumerate() {
                index.entry(key(resource).clone()).or_insert(at);
            }
            index
        };
        let (by_plural, by_kind) = (index(|resource| &resource.plural), index(|resource| &resource.kind));
        Self { group, name, resources, by_plural, by_kind, hash, document: crate::openapi::Cached::default() }
    }

    /// Changes whenever what is described of it does.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// `group/version`, or the version alone for the core group.
    pub fn api_version(&self) -> String {
        super::api_version(&self.group, &self.name)
    }
}

fn hash_of<'a>(custom: impl Iterator<Item = (&'a Arc<str>, &'a Custom)>) -> String {
    let mut digest = Sha256::new();
    digest.update(env!("CARGO_PKG_VERSION"));
    for (name, custom) in custom {
        digest.update(format!("{name}\0{}\0{}\0", custom.uid, custom.generation));
    }
    let mut text = String::new();
    for byte in digest.finalize() {
        let _ = write!(text, "{byte:02X}");
    }
    text
}
