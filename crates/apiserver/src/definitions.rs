//! Definitions of custom resources as they come and go: names accepted, types served, objects removed.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use futures::{FutureExt as _, future::select_all};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    engine::{
        Engine,
        meta::{Meta, encode, time_text},
        view,
    },
    object::{Key, Revision, Stored},
    store::{Operation, Store, Write, WriteError},
    types::{Catalog, Origin, Resource, crd},
};

const STORAGE: &str = "apiextensions.k8s.io/customresourcedefinitions";
/// Keeps a definition until its objects are gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
/// How long to wait after a write that failed for a reason of the store's.
const BACK_OFF: Duration = Duration::from_secs(1);

/// What is served at one moment.
pub(crate) struct Served {
    /// The types.
    pub(crate) catalog: Catalog,
    /// By definition: objects written before this revision may not have the type's present shape.
    shapes: HashMap<Arc<str>, Shape>,
}

struct Shape {
    generation: i64,
    since: Revision,
}

impl Served {
    /// What a store's definitions say.
    pub(crate) fn load(store: &Store) -> Self {
        Self { catalog: Catalog::builtin(), shapes: HashMap::new() }.next(store)
    }

    /// The same with the definitions that a store has now.
    fn next(&self, store: &Store) -> Self {
        let snapshot = store.list(STORAGE, None);
        let mut definitions = Vec::new();
        let mut shapes = HashMap::new();
        for stored in snapshot.iter() {
            let definition = view::tree(stored);
            let generation = stored.header.generation;
            let since = match self.shapes.get(&stored.key.name) {
                Some(known) if known.generation == generation => known.since,
                // Requests wrote objects of the old shape until now.
                Some(_) => snapshot.revision,
                None => stored.revision,
            };
            shapes.insert(stored.key.name.clone(), Shape { generation, since });
            if is_established(&definition) {
                definitions.push(definition);
            }
        }
        Self { catalog: self.catalog.with_definitions(&definitions), shapes }
    }

    /// The revision before which objects of a custom resource may have another shape than the type has now.
    pub(crate) fn reshape_before(&self, resource: &Resource) -> Option<u64> {
        match &resource.origin {
            Origin::BuiltIn => None,
            Origin::Custom { definition, .. } => self.shapes.get(definition).map(|shape| shape.since.0),
        }
    }
}

fn is_established(definition: &Value) -> bool {
    let conditions = definition["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

/// Follows the definitions until the server is gone.
pub(crate) async fn run(engine: Weak<Engine>, store: Store, closing: CancellationToken) {
    loop {
        let Some(strong) = engine.upgrade() else { return };
        let settled = settle(&strong).await;
        drop(strong);
        let Settled { revision, waiting } = match settled {
            Ok(settled) => settled,
            Err(error) => {
                tracing::warn!(%error, "cannot settle custom resource definitions, trying again");
                tokio::select! {
                    () = closing.cancelled() => return,
                    () = tokio::time::sleep(BACK_OFF) => continue,
                }
            }
        };
        // A change of a definition, or of an object that a doomed definition waits for.
        let storages = std::iter::once(STORAGE).chain(waiting.iter().map(String::as_str));
        let watches: Result<Vec<_>, _> =
            storages.map(|storage| store.watch(storage, None, revision)).collect();
        let Ok(mut watches) = watches else { continue };
        let next = select_all(watches.iter_mut().map(|watch| watch.next().boxed()));
        tokio::select! {
            () = closing.cancelled() => return,
            (event, _, _) = next => if event.is_none() { return },
        }
    }
}

/// That there is nothing more to do for now.
struct Settled {
    /// What was looked at.
    revision: Revision,
    /// Where objects are that definitions wait for.
    waiting: Vec<String>,
}

/// What became of a definition that is to go.
enum Finish {
    /// It waits for others than us.
    Nothing,
    /// It or its objects were written.
    Written,
    /// Objects in this storage must go first.
    Waiting(String),
}

/// Brings every definition's status, the catalog and the objects of doomed definitions up to date.
async fn settle(engine: &Engine) -> Result<Settled, WriteError> {
    loop {
        let mut waiting = Vec::new();
        let snapshot = engine.store.list(STORAGE, None);
        let definitions: Vec<(Arc<Stored>, Value)> =
            snapshot.iter().map(|stored| (Arc::clone(stored), view::tree(stored))).collect();
        let all: Vec<&Value> = definitions.iter().map(|(_, definition)| definition).collect();
        let mut changed = false;
        for (stored, definition) in &definitions {
            if definition.is_deleting() {
                match finish(engine, stored, definition).await? {
                    Finish::Nothing => {}
                    Finish::Written => changed = true,
                    Finish::Waiting(storage) => waiting.push(storage),
                }
            } else {
                changed |= accept(engine, stored, definition, &all).await?;
            }
        }
        engine.served.store(Arc::new(engine.served.load().next(&engine.store)));
        if !changed {
            return Ok(Settled { revision: snapshot.revision, waiting });
        }
    }
}

/// Writes a definition's status. The types are served before anybody can see that they are.
async fn accept(
    engine: &Engine,
    stored: &Arc<Stored>,
    definition: &Value,
    all: &[&Value],
) -> Result<bool, WriteError> {
    let others: Vec<Value> =
        all.iter().filter(|other| other.name() != definition.name()).map(|other| (*other).clone()).collect();
    let now = (engine.options.clock)();
    let status = crd::status_for(definition, &others, now);
    if status == definition["status"] {
        return Ok(false);
    }
    let mut object = definition.clone();
    object["status"] = status;
    if is_established(&object) && !is_established(definition) {
        let served = engine.served.load();
        // As the store has them now: others may have been established earlier in this round.
        let snapshot = engine.store.list(STORAGE, None);
        let others =
            snapshot.iter().map(|stored| view::tree(stored)).filter(|other| other.name() != object.name());
        let mut established: Vec<Value> = others.filter(is_established).collect();
        established.push(object.clone());
        let mut shapes: HashMap<Arc<str>, Shape> = HashMap::new();
        for (name, shape) in &served.shapes {
            shapes.insert(name.clone(), Shape { generation: shape.generation, since: shape.since });
        }
        let catalog = served.catalog.with_definitions(&established);
        engine.served.store(Arc::new(Served { catalog, shapes }));
    }
    write(engine, &stored.key, Operation::Update { expected: stored.revision }, &object).await.map(|()| true)
}

/// Removes the objects of a definition that is to go, then lets it go.
async fn finish(engine: &Engine, stored: &Arc<Stored>, definition: &Value) -> Result<Finish, WriteError> {
    let finalizers = definition.finalizers();
    if !finalizers.iter().any(|finalizer| finalizer == CLEANUP) {
        return Ok(Finish::Nothing);
    }
    let spec = &definition["spec"];
    let storage = format!(
        "{}/{}",
        spec["group"].as_str().unwrap_or_default(),
        spec["names"]["plural"].as_str().unwrap_or_default()
    );
    let now = time_text((engine.options.clock)());
    let mut waiting = false;
    for object in engine.store.list(&storage, None).iter() {
        let expected = object.revision;
        let mut last = view::tree(object);
        if object.header.finalizers.is_empty() {
            write(engine, &object.key, Operation::Delete { expected }, &last).await?;
        } else {
            waiting = true;
            if object.header.deletion_timestamp.is_none() {
                last.meta_set("deletionTimestamp", Some(now.as_str().into()));
                last.meta_set("deletionGracePeriodSeconds", Some(0.into()));
                write(engine, &object.key, Operation::Update { expected }, &last).await?;
            }
        }
    }
    if waiting {
        return Ok(Finish::Waiting(storage));
    }
    let mut last = definition.clone();
    last.set_finalizers(finalizers.into_iter().filter(|finalizer| finalizer != CLEANUP).collect());
    let expected = stored.revision;
    let operation = if last.finalizers().is_empty() {
        Operation::Delete { expected }
    } else {
        Operation::Update { expected }
    };
    write(engine, &stored.key, operation, &last).await?;
    Ok(Finish::Written)
}

/// Writes, unless somebody else did so in between: then the next round sees it.
async fn write(engine: &Engine, key: &Key, operation: Operation, object: &Value) -> Result<(), WriteError> {
    match engine.store.write(Write { key: key.clone(), operation, bytes: encode(object), fence: None }).await
    {
        Ok(_) | Err(WriteError::Conflict { .. } | WriteError::NotFound | WriteError::Exists) => Ok(()),
        Err(error) => Err(error),
    }
}
