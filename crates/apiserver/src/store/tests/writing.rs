use super::super::Fence;
use super::*;

#[tokio::test]
async fn an_empty_store_is_at_a_revision_that_clients_can_watch_from() {
    for (store, _home) in stores().await {
        assert_eq!(store.revision(), Revision(1));
        assert_eq!(store.list("pods", None).revision, Revision(1));
        assert!(store.list("pods", None).is_empty());
        assert!(store.watch("pods", None, store.revision()).is_ok());
    }
}

#[tokio::test]
async fn revisions_are_consecutive_across_storages() {
    for (store, _home) in stores().await {
        let first = create(&store, &pod("a"), "1").await.expect("creates");
        let second = create(&store, &Key::new("nodes", "", "n"), "1").await.expect("creates");
        let third = update(&store, &pod("a"), first.revision, "2").await.expect("updates");
        assert_eq!([first.revision.0, second.revision.0, third.revision.0], [2, 3, 4]);
        assert_eq!((third.created, store.revision()), (first.revision, third.revision));
        assert_eq!(payload(&store.get(&pod("a")).expect("there")), "2");
        assert_eq!(store.storages(), ["nodes".into(), "pods".into()]);
    }
}

#[tokio::test]
async fn a_write_whose_expectation_fails_changes_nothing() {
    for (store, _home) in stores().await {
        let made = create(&store, &pod("a"), "1").await.expect("creates");
        let newer = update(&store, &pod("a"), made.revision, "2").await.expect("updates");

        assert!(matches!(create(&store, &pod("a"), "3").await, Err(WriteError::Exists)));
        let stale = update(&store, &pod("a"), made.revision, "3").await;
        assert!(matches!(stale, Err(WriteError::Conflict { current }) if current.revision == newer.revision));
        let stale = delete(&store, &pod("a"), made.revision).await;
        assert!(matches!(stale, Err(WriteError::Conflict { .. })));
        assert!(matches!(update(&store, &pod("b"), made.revision, "3").await, Err(WriteError::NotFound)));
        assert!(matches!(delete(&store, &pod("b"), made.revision).await, Err(WriteError::NotFound)));
        let write = Write { key: pod("c"), operation: Operation::Create, bytes: b"{}".into(), fence: None };
        assert!(matches!(store.write(write).await, Err(WriteError::Malformed(_))));

        assert_eq!(store.revision(), newer.revision);
        assert_eq!(payload(&store.get(&pod("a")).expect("there")), "2");
    }
}

#[tokio::test]
async fn a_deleted_object_leaves_its_last_state_and_can_be_made_again() {
    for (store, _home) in stores().await {
        let made = create(&store, &pod("a"), "1").await.expect("creates");
        let last = delete(&store, &pod("a"), made.revision).await.expect("deletes");
        assert_eq!((payload(&last).as_str(), last.revision), ("gone", made.revision.next()));
        assert!(store.get(&pod("a")).is_none());
        let again = create(&store, &pod("a"), "2").await.expect("creates again");
        assert_eq!((again.created, again.revision), (last.revision.next(), last.revision.next()));
    }
}

#[tokio::test]
async fn of_many_writers_with_the_same_expectation_one_wins() {
    for (store, _home) in stores().await {
        let made = create(&store, &pod("a"), "0").await.expect("creates");
        let mut writers = tokio::task::JoinSet::new();
        for number in 0..50 {
            let store = store.clone();
            writers.spawn(async move {
                update(&store, &pod("a"), Revision(2), &number.to_string()).await.is_ok()
            });
        }
        let won = writers.join_all().await.into_iter().filter(|won| *won).count();
        assert_eq!((won, store.revision()), (1, made.revision.next()));
    }
}

#[tokio::test]
async fn a_snapshot_does_not_change_when_the_store_does() {
    for (store, _home) in stores().await {
        for (namespace, name) in [("a", "y"), ("b", "x"), ("a", "x"), ("aa", "x")] {
            create(&store, &Key::new("pods", namespace, name), "1").await.expect("creates");
        }
        let names = |snapshot: &super::super::Snapshot| -> Vec<String> {
            snapshot.iter().map(|object| object.key.to_string()).collect()
        };
        let whole = store.list("pods", None);
        let part = store.list("pods", Some("a"));
        delete(&store, &Key::new("pods", "a", "x"), Revision(4)).await.expect("deletes");

        assert_eq!(names(&whole), ["pods/a/x", "pods/a/y", "pods/aa/x", "pods/b/x"]);
        assert_eq!(names(&part), ["pods/a/x", "pods/a/y"]);
        assert_eq!((whole.len(), part.len(), store.list("pods", None).len()), (4, 2, 3));
        let rest = |snapshot: &super::super::Snapshot, namespace: &str, name: &str| {
            snapshot.after(namespace, name).map(|object| object.key.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(rest(&whole, "a", "y"), ["pods/aa/x", "pods/b/x"]);
        assert_eq!(rest(&whole, "a", "xx"), ["pods/a/y", "pods/aa/x", "pods/b/x"]);
        assert_eq!(rest(&part, "a", "x"), ["pods/a/y"]);
        assert_eq!(rest(&part, "", ""), ["pods/a/x", "pods/a/y"]);
        assert!(rest(&part, "b", "").is_empty());
    }
}

#[tokio::test]
async fn a_leader_of_an_older_term_is_fenced() {
    let lease = Key::new("coordination.k8s.io/leases", "default", "operator");
    let term =
        |transitions: u64| format!(r#"{{"metadata":{{}},"spec":{{"leaseTransitions":{transitions}}}}}"#);
    let fence =
        |transitions| Some(Fence { namespace: "default".into(), lease: "operator".into(), transitions });
    for (store, _home) in stores().await {
        let write = |name: &str, fence| Write {
            key: pod(name),
            operation: Operation::Create,
            bytes: body("1"),
            fence,
        };
        let without = store.write(write("a", fence(0))).await;
        assert!(matches!(without, Err(WriteError::Fenced { current: None, .. })));

        let bytes = br#"{"metadata":{},"spec":{}}"#.to_vec();
        let held = Write { key: lease.clone(), operation: Operation::Create, bytes, fence: None };
        let held = store.write(held).await.expect("creates");
        store.write(write("a", fence(0))).await.expect("a lease that never changed hands is in term 0");

        let (operation, bytes) = (Operation::Update { expected: held.revision }, term(3).into_bytes());
        store.write(Write { key: lease.clone(), operation, bytes, fence: None }).await.expect("updates");
        let refused = store.write(write("b", fence(2))).await;
        assert!(matches!(refused, Err(WriteError::Fenced { current: Some(3), .. })));
        assert_eq!(
            refused.expect_err("refused").to_string(),
            "lease default/operator is no longer in term 2"
        );
        store.write(write("b", fence(3))).await.expect("creates");
    }
}

#[tokio::test]
async fn waiting_for_a_revision_ends_when_it_is_there() {
    for (store, _home) in stores().await {
        store.wait_for(store.revision()).await;
        let waiting = tokio::spawn({
            let store = store.clone();
            async move {
                store.wait_for(Revision(3)).await;
                store.revision()
            }
        });
        create(&store, &pod("a"), "1").await.expect("creates");
        assert!(!waiting.is_finished());
        create(&store, &pod("b"), "1").await.expect("creates");
        assert!(waiting.await.expect("no panic") >= Revision(3));
    }
}
