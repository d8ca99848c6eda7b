//! From what a user types (`po`, `deploy/web`, `webapps.example.com`) to a path on the server.

use anyhow::{anyhow, bail};
use futures::future::try_join_all;
use serde_json::Value;

use super::Connection;

/// A resource type that the server has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourceType {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    singular: String,
    pub(crate) kind: String,
    pub(crate) namespaced: bool,
    short_names: Vec<String>,
}

impl ResourceType {
    /// The path of a list, or of the object of this name.
    pub(crate) fn path(&self, namespace: Option<&str>, name: Option<&str>) -> String {
        let mut path = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        if let (true, Some(namespace)) = (self.namespaced, namespace) {
            path.push_str(&format!("/namespaces/{namespace}"));
        }
        path.push('/');
        path.push_str(&self.plural);
        if let Some(name) = name {
            path.push('/');
            path.push_str(name);
        }
        path
    }

    /// `group/version`, as objects carry it.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// How one object is named in messages: `deployment.apps/web`, `pod/web-1`.
    pub(crate) fn label(&self, name: &str) -> String {
        let kind = self.kind.to_lowercase();
        if self.group.is_empty() { format!("{kind}/{name}") } else { format!("{kind}.{}/{name}", self.group) }
    }

    fn answers_to(&self, word: &str) -> bool {
        let (name, group) = word.split_once('.').map_or((word, None), |(name, group)| (name, Some(group)));
        let named = self.plural == name
            || self.singular == name
            || self.kind.to_lowercase() == name
            || self.short_names.iter().any(|short| short == name);
        named
            && group.is_none_or(|group| {
                group == self.group || group == format!("{}.{}", self.version, self.group)
            })
    }
}

/// Every resource type of a server, in the order of the server's preference.
pub(crate) struct Catalog(Vec<ResourceType>);

impl Catalog {
    /// Asks the server what it has.
    pub(crate) async fn load(connection: &Connection) -> anyhow::Result<Self> {
        let groups = connection.get("/apis").await?;
        let mut paths = vec![(String::new(), "v1".to_owned())];
        for group in array(&groups, "groups") {
            let name = text(group, "name");
            let preferred =
                group.pointer("/preferredVersion/version").and_then(Value::as_str).unwrap_or_default();
            let mut versions: Vec<_> = array(group, "versions").iter().map(|v| text(v, "version")).collect();
            versions.sort_by_key(|version| version != preferred);
            paths.extend(versions.into_iter().map(|version| (name.clone(), version)));
        }
        let lists = paths.into_iter().map(|(group, version)| async move {
            let path =
                if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
            let list = connection.get(&path).await?;
            let types =
                array(&list, "resources").iter().filter(|r| !text(r, "name").contains('/')).map(|r| {
                    ResourceType {
                        group: group.clone(),
                        version: version.clone(),
                        plural: text(r, "name"),
                        singular: text(r, "singularName"),
                        kind: text(r, "kind"),
                        namespaced: r.get("namespaced").and_then(Value::as_bool).unwrap_or_default(),
                        short_names: array(r, "shortNames")
                            .iter()
                            .filter_map(|s| s.as_str().map(str::to_owned))
                            .collect(),
                    }
                });
            anyhow::Ok(types.collect::<Vec<_>>())
        });
        Ok(Self(try_join_all(lists).await?.concat()))
    }

    /// The type that a user means by this word.
    pub(crate) fn find(&self, word: &str) -> anyhow::Result<&ResourceType> {
        let lower = word.to_lowercase();
        self.0.iter().find(|t| t.answers_to(&lower)).ok_or_else(|| {
            anyhow!("the server has no resource type \"{word}\": is its CustomResourceDefinition installed?")
        })
    }

    /// The type of an object with this `apiVersion` and `kind`.
    pub(crate) fn of_object(&self, api_version: &str, kind: &str) -> anyhow::Result<&ResourceType> {
        self.0.iter().find(|t| t.kind == kind && t.api_version() == api_version).ok_or_else(|| {
            anyhow!(
                "no matches for kind \"{kind}\" in version \"{api_version}\": is its CustomResourceDefinition installed?"
            )
        })
    }

    /// The objects that words such as `pods`, `pod web-1 web-2`, `deploy/web svc/web` or `pods,services` name.
    ///
    /// A type without a name stands for all of its objects.
    pub(crate) fn parse<'a>(
        &'a self,
        words: &'a [String],
    ) -> anyhow::Result<Vec<(&'a ResourceType, Option<&'a str>)>> {
        let Some(first) = words.first() else { bail!("name a resource type, for example `pods`") };
        if words.iter().any(|word| word.contains('/')) {
            return words
                .iter()
                .map(|word| match word.split_once('/') {
                    Some((kind, name)) if !name.is_empty() => Ok((self.find(kind)?, Some(name))),
                    _ => Err(anyhow!("\"{word}\" is not TYPE/NAME; the others are, so this one must be too")),
                })
                .collect();
        }
        let types = first.split(',').map(|word| self.find(word)).collect::<anyhow::Result<Vec<_>>>()?;
        let names = &words[1..];
        if names.is_empty() {
            return Ok(types.into_iter().map(|t| (t, None)).collect());
        }
        Ok(types.into_iter().flat_map(|t| names.iter().map(move |name| (t, Some(name.as_str())))).collect())
    }
}

fn array<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text(value: &Value, field: &str) -> String {
    value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> Catalog {
        let make =
            |group: &str, version: &str, plural: &str, kind: &str, short: &[&str], namespaced| ResourceType {
                group: group.into(),
                version: version.into(),
                plural: plural.into(),
                singular: kind.to_lowercase(),
                kind: kind.into(),
                namespaced,
                short_names: short.iter().map(|s| (*s).to_owned()).collect(),
            };
        Catalog(vec![
            make("", "v1", "pods", "Pod", &["po"], true),
            make("", "v1", "nodes", "Node", &["no"], false),
            make("apps", "v1", "deployments", "Deployment", &["deploy"], true),
            make("example.com", "v1", "webapps", "WebApp", &["wa"], true),
        ])
    }

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_type_is_found_by_any_of_its_names() {
        let catalog = catalog();
        for word in
            ["deployments", "deployment", "Deployment", "deploy", "deployments.apps", "deployments.v1.apps"]
        {
            assert_eq!(catalog.find(word).unwrap().plural, "deployments", "{word}");
        }
        let error = catalog.find("deployments.example.com").unwrap_err().to_string();
        assert!(error.contains("no resource type \"deployments.example.com\""), "{error}");
    }

    #[test]
    fn words_name_types_objects_or_both() {
        let catalog = catalog();
        let shown = |text: &str| -> Vec<String> {
            catalog
                .parse(&words(text))
                .unwrap()
                .into_iter()
                .map(|(t, name)| format!("{}/{}", t.plural, name.unwrap_or("*")))
                .collect()
        };
        assert_eq!(shown("pods,wa"), ["pods/*", "webapps/*"]);
        assert_eq!(shown("po a b"), ["pods/a", "pods/b"]);
        assert_eq!(shown("deploy/web wa/web"), ["deployments/web", "webapps/web"]);
        assert!(catalog.parse(&words("deploy/web pods")).is_err());
    }

    #[test]
    fn paths_follow_scope_and_group() {
        let catalog = catalog();
        let pods = catalog.find("pods").unwrap();
        assert_eq!(pods.path(Some("a"), Some("b")), "/api/v1/namespaces/a/pods/b");
        assert_eq!(pods.path(None, None), "/api/v1/pods");
        assert_eq!(catalog.find("nodes").unwrap().path(Some("a"), None), "/api/v1/nodes");
        let webapps = catalog.find("webapps").unwrap();
        assert_eq!(webapps.path(Some("a"), None), "/apis/example.com/v1/namespaces/a/webapps");
        assert_eq!(webapps.label("x"), "webapp.example.com/x");
    }
}
