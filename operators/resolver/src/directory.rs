//! The services that are known, and what is known of them.

use crate::host::{self, Named};
use crate::ports::Behind;
use crate::target::{Route, ServiceKey, Target};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use tokio::sync::watch;

/// The services that requests are held for and handed to. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    known: Arc<RwLock<Known>>,
    doors: Arc<watch::Sender<Doors>>,
}

/// Ports of the resolver, and what stands behind each.
pub(crate) type Doors = BTreeMap<u16, Behind>;

#[derive(Debug, Default)]
struct Known {
    /// By name, then by namespace: most look-ups come with both, bare names with one.
    services: HashMap<String, BTreeMap<String, Arc<Target>>>,
}

impl Directory {
    /// A directory without services.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says how a service looks now. Requests that waited for a pod go as soon as one is there.
    pub fn set(&self, key: &ServiceKey, route: Route) {
        let target = {
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            let named = known.services.entry(key.name.clone()).or_default();
            Arc::clone(
                named.entry(key.namespace.clone()).or_insert_with(|| Arc::new(Target::new(key.clone()))),
            )
        };
        target.set(route);
    }

    /// Says how many pods of a service exist, ready or not: with that a cold start is measured in
    /// its parts.
    pub fn scheduled(&self, key: &ServiceKey, pods: usize) {
        if let Some(target) = self.get(key) {
            target.scheduled(pods);
        }
    }

    /// Gives ports of a service ports of their own at the resolver, by the number of the former.
    /// What comes in there needs no `Host`, nor be HTTP at all. Ports that are not named any more
    /// are closed; connections that came in by them stay.
    pub fn listen(&self, key: &ServiceKey, ports: &BTreeMap<u16, u16>) {
        self.doors.send_if_modified(|doors| {
            let before = doors.clone();
            doors.retain(|_, behind| behind.service != *key);
            for (&port, &own) in ports {
                // Whoever has it keeps it: two services behind one port would be a lottery.
                doors.entry(own).or_insert_with(|| Behind { service: key.clone(), port });
            }
            before != *doors
        });
    }

    pub(crate) fn doors(&self) -> watch::Receiver<Doors> {
        self.doors.subscribe()
    }

    /// Forgets a service. Requests that wait for it are refused.
    pub fn remove(&self, key: &ServiceKey) {
        self.listen(key, &BTreeMap::new());
        let gone = {
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            let gone = known.services.get_mut(&key.name).and_then(|named| named.remove(&key.namespace));
            known.services.retain(|_, named| !named.is_empty());
            gone
        };
        if let Some(target) = gone {
            target.close();
        }
    }

    /// A service, if it is known.
    pub fn get(&self, key: &ServiceKey) -> Option<Arc<Target>> {
        self.read().services.get(&key.name)?.get(&key.namespace).cloned()
    }

    /// All services, by name and namespace.
    pub fn all(&self) -> Vec<Arc<Target>> {
        let mut all: Vec<_> = self.read().services.values().flat_map(BTreeMap::values).cloned().collect();
        all.sort_by(|a, b| a.key().cmp(b.key()));
        all
    }

    /// The service and its port that a host names. A bare name is enough where only one namespace
    /// has a service of that name; which namespace the client is in cannot be seen.
    pub(crate) fn find(&self, host: &str, domain: &str) -> Option<(Arc<Target>, Option<u16>)> {
        let Named { service, namespace, port } = host::parse(host, domain)?;
        let known = self.read();
        let named = known.services.get(service).or_else(|| {
            // Names of services are lower case, hosts in any.
            known.services.get(&service.to_ascii_lowercase())
        })?;
        let target = match namespace {
            Some(namespace) => named.get(namespace).or_else(|| named.get(&namespace.to_ascii_lowercase()))?,
            None if named.len() == 1 => named.values().next()?,
            None => return None,
        };
        Some((Arc::clone(target), port))
    }

    fn read(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> Directory {
        let directory = Directory::new();
        for (namespace, name) in [("shop", "web"), ("shop", "api"), ("lab", "api")] {
            directory.set(&ServiceKey::new(namespace, name), Route::default());
        }
        directory
    }

    fn found(host: &str) -> Option<String> {
        directory().find(host, "cluster.local").map(|(target, _)| target.key().to_string())
    }

    #[test]
    fn a_bare_name_is_found_where_it_is_unambiguous() {
        assert_eq!(found("web:80").as_deref(), Some("shop/web"));
        assert_eq!(found("api"), None);
        assert_eq!(found("api.lab").as_deref(), Some("lab/api"));
        assert_eq!(found("WEB.Shop.svc").as_deref(), Some("shop/web"));
    }

    #[test]
    fn only_known_services_are_found() {
        assert_eq!(found("kubernetes.default.svc"), None);
        assert_eq!(found("web.lab"), None);
        let directory = directory();
        directory.remove(&ServiceKey::new("shop", "web"));
        assert!(directory.find("web", "cluster.local").is_none());
        assert_eq!(directory.all().len(), 2);
    }
}
