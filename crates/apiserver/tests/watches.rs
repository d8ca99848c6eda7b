//! Watches, under a clock that stands still.

mod support;

use serde_json::json;
use support::{CONFIG_MAPS, World, config_map};

#[tokio::test(start_paused = true)]
async fn a_watch_tells_of_every_change_in_order() {
    let world = World::new().await;
    let client = &world.client;
    let from = client.get(CONFIG_MAPS).await.ok(200)["metadata"]["resourceVersion"]
        .as_str()
        .expect("a version")
        .to_owned();
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={from}")).await;
    let created = client.post(CONFIG_MAPS, &config_map("a", &json!({}))).await.ok(201);
    client.patch("merge", &format!("{CONFIG_MAPS}/a"), &json!({"data": {"k": "v"}})).await.ok(200);
    client.delete(&format!("{CONFIG_MAPS}/a")).await.ok(200);
    let first = watch.next().await.expect("an event");
    assert_eq!((&first["type"], &first["object"]), (&json!("ADDED"), &created));
    assert_eq!(watch.brief().await, ("MODIFIED".into(), "a".into()));
    let last = watch.next().await.expect("an event");
    assert_eq!((&last["type"], &last["object"]["data"]["k"]), (&json!("DELETED"), &json!("v")));
}

#[tokio::test(start_paused = true)]
async fn a_watch_begins_with_what_there_is_and_says_where_that_ends() {
    let world = World::new().await;
    let client = &world.client;
    for name in ["a", "b"] {
        client.post(CONFIG_MAPS, &config_map(name, &json!({}))).await.ok(201);
    }
    client.patch("merge", &format!("{CONFIG_MAPS}/b"), &json!({"data": {"k": "v"}})).await.ok(200);
    let query =
        "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?{query}")).await;
    assert_eq!(watch.brief().await, ("ADDED".into(), "a".into()));
    assert_eq!(watch.brief().await, ("ADDED".into(), "b".into()));
    let end = watch.next().await.expect("a bookmark");
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    client.post(CONFIG_MAPS, &config_map("c", &json!({}))).await.ok(201);
    assert_eq!(watch.brief().await, ("ADDED".into(), "c".into()));
}

#[tokio::test(start_paused = true)]
async fn objects_come_into_and_go_out_of_a_selection() {
    let world = World::new().await;
    let client = &world.client;
    client.post(CONFIG_MAPS, &config_map("a", &json!({}))).await.ok(201);
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=true&labelSelector=x%3Dy")).await;
    let label = |value: &'static str| async move {
        client
            .patch("merge", &format!("{CONFIG_MAPS}/a"), &json!({"metadata": {"labels": {"x": value}}}))
            .await
            .ok(200)
    };
    label("y").await;
    let left = label("z").await;
    assert_eq!(watch.brief().await, ("ADDED".into(), "a".into()));
    let gone = watch.next().await.expect("an event");
    assert_eq!(gone["type"], "DELETED");
    assert_eq!(gone["object"]["metadata"]["labels"]["x"], "y", "the object as the watcher knew it");
    assert_eq!(gone["object"]["metadata"]["resourceVersion"], left["metadata"]["resourceVersion"]);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_gets_bookmarks_and_ends_in_time() {
    let world = World::new().await;
    let mut watch = world
        .client
        .watch(&format!(
            "{CONFIG_MAPS}?watch=true&resourceVersion=1&allowWatchBookmarks=true&timeoutSeconds=150"
        ))
        .await;
    let started = tokio::time::Instant::now();
    world
        .client
        .post("/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": "s"}}))
        .await
        .ok(201);
    let mut bookmarks = 0;
    while let Some(event) = watch.next().await {
        assert_eq!(event["type"], "BOOKMARK");
        assert_eq!(
            event["object"]["metadata"]["resourceVersion"],
            world.server.store().revision().to_string()
        );
        bookmarks += 1;
    }
    assert_eq!((bookmarks, started.elapsed().as_secs()), (3, 150));
    let mut quiet =
        world.client.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion=1&timeoutSeconds=5")).await;
    assert_eq!(quiet.next().await, None, "no bookmarks unless asked");
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_when_the_server_closes() {
    let world = World::new().await;
    let mut watch = world.client.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion=1")).await;
    world.server.close();
    assert_eq!(watch.next().await, None);
}
