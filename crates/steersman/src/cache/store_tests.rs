use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::*;

fn header(name: &str, uid: &str, version: u64, owner: Option<&str>) -> Header {
    let owners: Vec<_> = owner
        .into_iter()
        .map(|uid| json!({"apiVersion": "v1", "kind": "X", "name": "x", "uid": uid}))
        .collect();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": name, "namespace": "shop", "uid": uid, "resourceVersion": version.to_string(),
        "ownerReferences": owners,
    }, "data": {"version": version.to_string()}});
    Header::scan(object.to_string().as_bytes(), &ConfigMap::api_resource(), &BTreeSet::new())
        .expect("an object")
}

fn store() -> (KindStore, Arc<Mutex<Vec<String>>>) {
    let store = KindStore::new(ConfigMap::api_resource(), Selection::all());
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = Arc::clone(&log);
    store.listen(Arc::new(move |change| {
        let line = match change {
            Change::Initial(entry) => format!("initial {}", entry.header.key().name()),
            Change::Applied { old: None, new } => format!("added {}", new.header.key().name()),
            Change::Applied { new, .. } => format!("changed {}", new.header.key().name()),
            Change::Deleted(old) => format!("deleted {}", old.header.key().name()),
            Change::Synced => "synced".to_owned(),
        };
        lock(&sink).push(line);
    }));
    (store, log)
}

fn list(store: &KindStore, version: u64, headers: Vec<Header>) {
    store.list_started();
    store.listed(headers);
    store.list_finished(&version.to_string());
}

fn take(log: &Mutex<Vec<String>>) -> Vec<String> {
    std::mem::take(&mut *lock(log))
}

fn version(store: &KindStore, name: &str) -> Option<String> {
    let entry = store.get(&Key::new("shop", name))?;
    Some(entry.header.resource_version().to_owned())
}

#[test]
fn a_relist_reports_objects_that_went_in_between() {
    let (store, log) = store();
    list(&store, 5, vec![header("a", "1", 3, None), header("b", "2", 4, None)]);
    assert_eq!(take(&log), ["added a", "added b", "synced"]);
    list(&store, 9, vec![header("b", "2", 4, None)]);
    assert_eq!(take(&log), ["deleted a"], "b did not change");
}

#[test]
fn an_older_event_never_undoes_a_newer_state() {
    let (store, log) = store();
    list(&store, 5, vec![header("a", "1", 5, None)]);
    store.written(header("a", "1", 8, None));
    store.applied(header("a", "1", 7, None));
    assert_eq!(version(&store, "a").as_deref(), Some("8"));
    store.applied(header("a", "1", 8, None));
    assert_eq!(take(&log), ["added a", "synced", "changed a"]);
}

#[test]
fn an_answer_that_comes_after_its_deletion_was_seen_brings_nothing_back() {
    let (store, log) = store();
    list(&store, 5, Vec::new());
    store.applied(header("a", "1", 6, None));
    store.deleted(&header("a", "1", 7, None));
    store.written(header("a", "1", 6, None));
    assert_eq!(version(&store, "a"), None);
    assert_eq!(take(&log), ["synced", "added a", "deleted a"]);
}

#[test]
fn what_we_deleted_stays_away_even_when_older_events_arrive() {
    let (store, log) = store();
    list(&store, 5, vec![header("a", "1", 5, None)]);
    store.erased(&Key::new("shop", "a"), "1");
    store.applied(header("a", "1", 6, None));
    assert_eq!(version(&store, "a"), None);
    store.deleted(&header("a", "1", 7, None));
    store.applied(header("a", "2", 8, None));
    assert_eq!(version(&store, "a").as_deref(), Some("8"), "a new object of the same name");
    assert_eq!(take(&log), ["added a", "synced", "deleted a", "added a"]);
}

#[test]
fn a_list_that_began_before_our_deletion_does_not_bring_it_back() {
    let (store, _) = store();
    list(&store, 5, vec![header("a", "1", 5, None)]);
    store.list_started();
    store.erased(&Key::new("shop", "a"), "1");
    store.listed(vec![header("a", "1", 5, None)]);
    store.list_finished("6");
    assert_eq!(version(&store, "a"), None);
    store.deleted(&header("a", "1", 7, None));
    assert_eq!(version(&store, "a"), None);
}

#[test]
fn a_write_newer_than_the_list_survives_the_sweep() {
    let (store, _) = store();
    list(&store, 5, Vec::new());
    store.written(header("a", "1", 9, None));
    store.list_started();
    store.list_finished("7");
    assert_eq!(version(&store, "a").as_deref(), Some("9"));
}

#[test]
fn a_write_outside_of_the_watched_namespace_is_not_kept() {
    let store = KindStore::new(ConfigMap::api_resource(), Selection::all().in_namespace("bank"));
    list(&store, 5, Vec::new());
    store.written(header("a", "1", 9, None));
    assert_eq!(version(&store, "a"), None);
}

#[test]
fn owned_objects_are_found_by_their_owner() {
    let (store, _) = store();
    list(&store, 5, vec![header("a", "1", 3, Some("o-1")), header("b", "2", 4, None)]);
    let names = |uid| -> Vec<String> {
        let entries = store.owned_by(uid);
        entries.iter().map(|entry| entry.header.key().name().to_owned()).collect()
    };
    assert_eq!(names("o-1"), ["a"]);
    store.applied(header("a", "1", 6, Some("o-2")));
    assert!(names("o-1").is_empty());
    assert_eq!(names("o-2"), ["a"]);
    store.deleted(&header("a", "1", 7, Some("o-2")));
    assert!(names("o-2").is_empty());
}

#[test]
fn an_index_follows_the_objects() {
    let (store, _) = store();
    list(&store, 5, vec![header("a", "1", 3, None)]);
    store.index(
        "version",
        Box::new(|entry| {
            let object = entry.typed::<ConfigMap>();
            let data = object.and_then(|object| object.data.clone());
            data.unwrap_or_default().into_values().collect()
        }),
    );
    assert_eq!(store.by_index("version", "3").len(), 1);
    store.applied(header("a", "1", 6, None));
    assert_eq!(store.by_index("version", "3").len(), 0);
    assert_eq!(store.by_index("version", "6").len(), 1);
}

#[test]
fn a_late_listener_hears_of_everything_that_is_there() {
    let (store, _) = store();
    list(&store, 5, vec![header("a", "1", 3, None)]);
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = Arc::clone(&heard);
    store.listen(Arc::new(move |change| {
        lock(&sink).push(format!("{change:?}"));
    }));
    let heard = take(&heard);
    assert_eq!(heard.len(), 2);
    assert!(heard[0].starts_with("Initial"));
    assert!(heard[1].starts_with("Synced"));
}

#[test]
fn a_listener_that_panics_does_not_stop_the_others() {
    let (store, log) = store();
    store.listen(Arc::new(|_| panic!("mapper")));
    list(&store, 5, vec![header("a", "1", 3, None)]);
    list(&store, 6, Vec::new());
    assert_eq!(take(&log), ["added a", "synced", "deleted a"]);
}

mod model {
    //! The store against a map: whatever order of lists, events and own writes it sees, it
    //! ends up with what the server has.

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Write(u8),
        Delete(u8),
        OwnWrite(u8),
        OwnDelete(u8),
        /// The watch delivers up to so many of the pending events.
        Deliver(u8),
        Relist,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..4u8).prop_map(Step::Write),
            (0..4u8).prop_map(Step::Delete),
            (0..4u8).prop_map(Step::OwnWrite),
            (0..4u8).prop_map(Step::OwnDelete),
            (1..4u8).prop_map(Step::Deliver),
            Just(Step::Relist),
        ]
    }

    #[derive(Clone)]
    enum Event {
        Applied(Header),
        Deleted(Header),
    }

    #[derive(Default)]
    struct Server {
        revision: u64,
        objects: BTreeMap<String, (String, u64)>,
        events: std::collections::VecDeque<Event>,
    }

    impl Server {
        fn write(&mut self, name: &str) -> Header {
            self.revision += 1;
            let revision = self.revision;
            let object = self.objects.entry(name.to_owned());
            let (uid, version) = object.or_insert_with(|| (format!("uid-{revision}"), 0));
            *version = revision;
            let header = header(name, uid, revision, None);
            self.events.push_back(Event::Applied(header.clone()));
            header
        }

        fn delete(&mut self, name: &str) -> Option<String> {
            let (uid, _) = self.objects.remove(name)?;
            self.revision += 1;
            let header = header(name, &uid, self.revision, None);
            self.events.push_back(Event::Deleted(header));
            Some(uid)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn the_store_ends_where_the_server_is_and_never_shows_less_than_we_wrote(
            steps in proptest::collection::vec(step(), 1..60)
        ) {
            let store = KindStore::new(ConfigMap::api_resource(), Selection::all());
            let mut server = Server::default();
            list(&store, 0, Vec::new());
            for step in steps {
                match step {
                    Step::Write(n) => { server.write(&format!("o{n}")); }
                    Step::Delete(n) => { server.delete(&format!("o{n}")); }
                    Step::OwnWrite(n) => {
                        let name = format!("o{n}");
                        let written = server.write(&name);
                        store.written(written.clone());
                        let seen = version(&store, &name);
                        prop_assert_eq!(seen.as_deref(), Some(written.resource_version()));
                    }
                    Step::OwnDelete(n) => {
                        let name = format!("o{n}");
                        if let Some(uid) = server.delete(&name) {
                            store.erased(&Key::new("shop", &name), &uid);
                            let seen = store.get(&Key::new("shop", &name));
                            prop_assert!(seen.is_none_or(|entry| entry.header.uid() != uid));
                        }
                    }
                    Step::Deliver(n) => {
                        for _ in 0..n {
                            match server.events.pop_front() {
                                Some(Event::Applied(header)) => store.applied(header),
                                Some(Event::Deleted(header)) => store.deleted(&header),
                                None => {}
                            }
                        }
                    }
                    Step::Relist => {
                        server.events.clear();
                        let headers = server.objects.iter()
                            .map(|(name, (uid, version))| header(name, uid, *version, None))
                            .collect();
                        list(&store, server.revision, headers);
                    }
                }
            }
            while let Some(event) = server.events.pop_front() {
                match event {
                    Event::Applied(header) => store.applied(header),
                    Event::Deleted(header) => store.deleted(&header),
                }
            }
            let seen: BTreeMap<String, (String, u64)> = store.all().iter().map(|entry| {
                let header = &entry.header;
                let version = header.resource_version().parse().expect("a number");
                (header.key().name().to_owned(), (header.uid().to_owned(), version))
            }).collect();
            prop_assert_eq!(seen, server.objects);
        }
    }
}
