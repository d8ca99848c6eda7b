//! Ways in beside the REST API: every event takes effect once, whatever is repeated or breaks.

mod support;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use serde_json::{Value, json};
use steersman::CancellationToken;
use steersman_infra::action::Registry;
use steersman_infra::input::event::{Event, Mapping};
use steersman_infra::input::intake::{Intake, IntakeError, Taken};
use steersman_infra::{History, Inputs, Resource, RestOptions, rest};
use steersman_test::{Cluster, Running};
use support::answering::{Reply, answering};
use support::{World, box_type, cluster, stand_in};
use xtask::parts::{or_skip, queues, rabbitmq};

fn plugins() -> Registry {
    Registry::new().with(World::default())
}

fn body(name: &str, size: i64) -> Value {
    json!({"name": name, "resource_type_name": "Box", "resource_type_version": "v1", "action_plugin": "fake",
        "spec": {"size": size}})
}

fn event(message: &Value) -> Event {
    Mapping::default().read(message).expect("an event")
}

fn with(mut message: Value, field: &str, value: &str) -> Value {
    message[field] = json!(value);
    message
}

fn listen(cluster: &Cluster, inputs: &Value) -> Running {
    let inputs = Inputs::parse(&inputs.to_string(), |_| true).expect("inputs");
    let manager = cluster.manager(cluster.options("infra"));
    cluster.run_manager(inputs.add_to(manager, "default", &plugins(), &cluster.clock()))
}

async fn size_of(cluster: &Cluster, name: &str) -> Option<i64> {
    let found = cluster.get::<Resource>(name).await?;
    found.spec.parameters.get("size").and_then(Value::as_i64)
}

#[tokio::test]
async fn an_event_takes_effect_once_however_often_and_late_it_is_delivered() {
    let cluster = cluster().await;
    box_type(&cluster).await;
    let intake = Intake::new(&cluster.client(), "default", plugins(), cluster.clock());
    let take = async |id: &str, message: Value| intake.take("queue", id, &event(&message)).await;
    assert_eq!(take("a", body("one", 1)).await, Ok(Taken::Now));
    assert_eq!(take("b", body("one", 2)).await, Ok(Taken::Now));
    assert_eq!(take("a", body("one", 1)).await, Ok(Taken::Before), "an old one does not turn back the clock");
    assert_eq!(size_of(&cluster, "box.one").await, Some(2));
    let first = cluster.get::<Resource>("box.one").await.expect("a resource");
    assert!(first.id().is_some() && first.metadata.generation == Some(2));
    assert_eq!(take("r", with(body("one", 9), "operation", "reconcile")).await, Ok(Taken::Now));
    assert_eq!(take("r", with(body("one", 9), "operation", "reconcile")).await, Ok(Taken::Before));
    assert_eq!(size_of(&cluster, "box.one").await, Some(2));

    let deletion = || with(body("one", 0), "operation", "delete");
    assert_eq!(take("d", deletion()).await, Ok(Taken::Now));
    let going = cluster.get::<Resource>("box.one").await.expect("kept by its finalizer");
    assert!(going.metadata.deletion_timestamp.is_some());
    let busy = take("c", body("one", 3)).await;
    assert!(matches!(&busy, Err(IntakeError::Later(why)) if why.contains("being deleted")), "{busy:?}");
    cluster.patch::<Resource>("box.one", json!({"metadata": {"finalizers": null}})).await;
    cluster.wait_until_gone::<Resource>("box.one").await;
    for (id, message) in [("a", body("one", 1)), ("b", body("one", 2)), ("d", deletion())] {
        assert_eq!(take(id, message).await, Ok(Taken::Before), "{id} is of the first one");
    }
    assert_eq!(take("c", body("one", 3)).await, Ok(Taken::Now));
    for id in ["a", "b", "d"] {
        let message = if id == "d" { deletion() } else { body("one", 1) };
        assert_eq!(take(id, message).await, Ok(Taken::Before), "{id} is of the first one");
    }
    let second = cluster.get::<Resource>("box.one").await.expect("a resource");
    assert!(second.metadata.deletion_timestamp.is_none() && second.uid() != first.uid());
    assert_eq!(size_of(&cluster, "box.one").await, Some(3));
}

#[tokio::test]
async fn a_deletion_that_a_crash_cut_short_is_finished_when_it_is_delivered_again() {
    let cluster = cluster().await;
    box_type(&cluster).await;
    let intake = Intake::new(&cluster.client(), "default", plugins(), cluster.clock());
    intake.take("q", "a", &event(&body("one", 1))).await.expect("taken");
    // The tombstone is written, and the deletion is not.
    let faulty =
        Intake::new(&cluster.faults().between(&cluster.client()), "default", plugins(), cluster.clock());
    cluster.faults().crash_after(0);
    let deletion = event(&with(body("one", 0), "operation", "delete"));
    tokio::select! {
        taken = faulty.take("q", "d", &deletion) => panic!("the process is gone, and yet: {taken:?}"),
        () = cluster.faults().crashed() => {}
    }
    cluster.faults().clear();
    let there = cluster.get::<Resource>("box.one").await.expect("a resource");
    assert!(there.metadata.deletion_timestamp.is_none());
    assert!(cluster.get::<ConfigMap>("infra-input-tombstones").await.is_some());
    intake.take("q", "d", &deletion).await.expect("taken");
    let going = cluster.get::<Resource>("box.one").await.expect("a resource");
    assert!(going.metadata.deletion_timestamp.is_some());
}

#[tokio::test]
async fn what_can_never_take_effect_is_poison_with_a_reason() {
    let cluster = cluster().await;
    box_type(&cluster).await;
    let intake = Intake::new(&cluster.client(), "default", plugins(), cluster.clock());
    let cases = [
        (body("one", 0), "Spec validation failed: size: 0 is less than the minimum of 1"),
        (with(body("one", 1), "resource_type_name", "Ball"), "Resource type Ball/v1 not found"),
        (
            with(body("one", 1), "action_plugin", "magic"),
            "Unknown action plugin: magic. Available plugins: fake",
        ),
        (with(body("one", 1), "operation", "reconcile"), "there is no resource box.one to reconcile"),
    ];
    for (message, why) in cases {
        let refused = intake.take("q", "x", &event(&message)).await;
        assert_eq!(refused, Err(IntakeError::Poison(why.to_owned())));
    }
    assert!(cluster.get::<Resource>("box.one").await.is_none());
}

async fn post(url: &str, headers: &[(&str, &str)], body: &str) -> (u16, Value) {
    let mut request = http::Request::builder().method("POST").uri(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request =
        request.body(http_body_util::Full::new(bytes::Bytes::from(body.to_owned()))).expect("a request");
    let client =
        hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).build_http();
    let answer = client.request(request).await.expect("an answer");
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.expect("a body").to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

fn signature(secret: &str, text: &str) -> String {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes());
    ring::hmac::sign(&key, text.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn a_webhook_takes_what_is_signed_once_and_nothing_else() {
    let cluster = cluster().await;
    box_type(&cluster).await;
    let secret = "a secret of both sides";
    let inputs = json!({"hub": {"plugin": "webhook", "secret": secret, "scheme": "github"},
        "ci": {"plugin": "webhook", "secret": secret}});
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let stop = CancellationToken::new();
    let options = RestOptions {
        inputs: Inputs::parse(&inputs.to_string(), |_| true).expect("inputs"),
        clock: cluster.clock(),
        ..RestOptions::new(plugins(), History::memory().expect("a history"))
    };
    let face = tokio::spawn(rest(cluster.client(), options, listener, stop.clone()));
    let (hub, ci) =
        (format!("http://{address}/api/v1/webhooks/hub"), format!("http://{address}/api/v1/webhooks/ci"));

    let message = body("one", 1).to_string();
    let signed = format!("sha256={}", signature(secret, &message));
    // Called from elsewhere, under another name: the signature is what counts.
    let headers = [("x-hub-signature-256", signed.as_str()), ("host", "infra.example")];
    assert_eq!(post(&hub, &headers, &message).await.0, 202);
    assert_eq!(size_of(&cluster, "box.one").await, Some(1));
    let again = post(&hub, &headers, &message).await;
    assert_eq!(again, (200, json!({"message": "this event was accepted before"})));
    assert_eq!(post(&hub, &headers, &body("one", 2).to_string()).await.0, 401);
    assert_eq!(post(&hub, &[], &message).await.0, 401);
    let poison = body("one", 0).to_string();
    let signed = format!("sha256={}", signature(secret, &poison));
    let refused = post(&hub, &[("x-hub-signature-256", signed.as_str())], &poison).await;
    assert_eq!(
        (refused.0, refused.1["detail"].as_str().is_some_and(|why| why.contains("minimum"))),
        (422, true)
    );
    assert_eq!(post(&format!("http://{address}/api/v1/webhooks/none"), &headers, &message).await.0, 404);

    let now = (cluster.clock())().as_second();
    let message = body("one", 5).to_string();
    let stamped = |time: i64| format!("t={time},v1={}", signature(secret, &format!("{time}.{message}")));
    assert_eq!(post(&ci, &[("steersman-signature", &stamped(now - 301))], &message).await.0, 401);
    assert_eq!(post(&ci, &[("steersman-signature", &stamped(now))], &message).await.0, 202);
    assert_eq!(size_of(&cluster, "box.one").await, Some(5));
    stop.cancel();
    face.await.expect("not cancelled").expect("ended well");
}

#[tokio::test]
async fn polling_reads_every_page_once_and_nothing_while_nothing_changes() {
    let cluster = cluster().await;
    box_type(&cluster).await;
    let feed: Arc<Mutex<Vec<Value>>> = Arc::default();
    feed.lock()
        .expect("the feed")
        .extend((1..=5).map(|n| json!({"event": n, "box": format!("b{n}"), "size": n})));
    feed.lock().expect("the feed").push(json!({"event": 6, "box": "Not a name", "size": 6}));
    let server = Arc::clone(&feed);
    let url = stand_in(move |asked| {
        assert_eq!(asked.headers["x-token"], "t");
        let feed = server.lock().expect("the feed");
        let after: usize = asked.query.strip_prefix("since=").and_then(|it| it.parse().ok()).unwrap_or(0);
        let page: Vec<Value> = feed.iter().skip(after).take(2).cloned().collect();
        let next = (after + page.len()).to_string();
        (200, json!({"data": page, "next": next}))
    })
    .await;
    let inputs = json!({"feed": {"plugin": "polling", "url": url, "headers": {"x-token": "t"},
        "interval_seconds": 0.05, "items": "/data", "cursor": "/next", "cursor_parameter": "since",
        "mapping": {"id": "/event", "name": "/box", "spec": {"size": 1}, "resource_type_name": "Box",
            "resource_type_version": "v1", "action_plugin": "fake"}}});
    let running = listen(&cluster, &inputs);
    cluster.wait_for_object::<Resource>("box.b5").await;
    let place = cluster
        .wait_for("the poison is parked", || async {
            let map = cluster.get::<ConfigMap>("infra-input-places").await?;
            let place: Value = serde_json::from_str(map.data?.get("feed")?).ok()?;
            place["parked"].to_string().contains("is no name").then_some(place)
        })
        .await;
    assert_eq!(place["cursor"], "6");
    // A new process goes on where the old one was.
    running.kill().await;
    cluster.delete::<Resource>("box.b1").await;
    cluster.patch::<Resource>("box.b1", json!({"metadata": {"finalizers": null}})).await;
    feed.lock().expect("the feed").push(json!({"event": 7, "box": "b7", "size": 7}));
    let _running = listen(&cluster, &inputs);
    cluster.wait_for_object::<Resource>("box.b7").await;
    assert!(cluster.get::<Resource>("box.b1").await.is_none(), "what was read is not read again");
}

#[tokio::test]
async fn polling_with_an_etag_is_told_that_nothing_changed() {
    let cluster = cluster().await;
    box_type(&cluster).await;
    let (asked_plainly, unchanged) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (plain, told) = (Arc::clone(&asked_plainly), Arc::clone(&unchanged));
    let url = answering(move |asked| {
        if asked.headers.get("if-none-match").is_some_and(|known| known == "\"v1\"") {
            told.fetch_add(1, Ordering::Relaxed);
            return Reply::new(304, Value::Null);
        }
        plain.fetch_add(1, Ordering::Relaxed);
        Reply::new(200, json!([body("one", 4)])).with("etag", "\"v1\"")
    })
    .await;
    let inputs = json!({"feed": {"plugin": "polling", "url": url, "interval_seconds": 0.05}});
    let _running = listen(&cluster, &inputs);
    cluster.wait_for_object::<Resource>("box.one").await;
    cluster
        .wait_for("several rounds", || async { (unchanged.load(Ordering::Relaxed) > 2).then_some(()) })
        .await;
    assert_eq!(asked_plainly.load(Ordering::Relaxed), 1);
}

const PUBLISH: &str = r#"
import json, pika, sys
connection = pika.BlockingConnection(pika.URLParameters(sys.argv[1]))
channel = connection.channel()
channel.queue_declare("events", durable=True)
channel.confirm_delivery()
for id, body in json.loads(sys.argv[2]):
    channel.basic_publish("", "events", body, pika.BasicProperties(message_id=id, delivery_mode=2))
connection.close()
"#;

const COUNT: &str = r#"
import json, pika, sys
connection = pika.BlockingConnection(pika.URLParameters(sys.argv[1]))
channel = connection.channel()
print(channel.queue_declare("events", durable=True, passive=True).method.message_count)
"#;

const PARKED: &str = r#"
import json, pika, sys
connection = pika.BlockingConnection(pika.URLParameters(sys.argv[1]))
channel = connection.channel()
found = []
while True:
    method, properties, body = channel.basic_get("events.parked")
    if method is None:
        break
    found.append([properties.message_id, properties.headers["x-steersman-reason"], body.decode()])
    channel.basic_ack(method.delivery_tag)
print(json.dumps(found))
"#;

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_rabbitmq_survive_broken_connections_killed_processes_and_a_killed_broker() {
    let (Some(clients), Some(mut broker)) = (or_skip(queues()), or_skip(rabbitmq())) else {
        return;
    };
    let cluster = cluster().await;
    box_type(&cluster).await;
    let url = broker.url();
    let publish = |messages: Vec<(String, String)>| {
        clients.run(PUBLISH, &[&url, &json!(messages).to_string()]).expect("published");
    };
    let message = |id: &str, body: &Value| (id.to_owned(), body.to_string());
    publish((0..20).map(|n| message(&format!("m{n}"), &body(&format!("b{n}"), 1))).collect());
    let inputs = json!({"events": {"plugin": "rabbitmq", "url": url, "queue": "events"}});
    let running = listen(&cluster, &inputs);
    cluster.wait_for_object::<Resource>("box.b3").await;
    running.kill().await;

    // Again what was delivered before, what is broken, and something new.
    publish(vec![
        message("m0", &body("b0", 7)),
        message("u0", &body("b0", 2)),
        message("m0", &body("b0", 7)),
        ("p1".into(), "this is no JSON".into()),
        message("p2", &body("b0", 0)),
        message("last", &body("last", 1)),
    ]);
    let running = listen(&cluster, &inputs);
    cluster.wait_for_object::<Resource>("box.last").await;
    assert_eq!(size_of(&cluster, "box.b0").await, Some(2), "repetitions change nothing");
    broker.close_connections().expect("closed");
    publish(vec![message("after-close", &body("after-close", 1))]);
    cluster.wait_for_object::<Resource>("box.after-close").await;
    broker.restart().expect("started again");
    publish(vec![message("after-restart", &body("after-restart", 1))]);
    cluster.wait_for_object::<Resource>("box.after-restart").await;
    running.stop().await;

    for n in 0..20 {
        assert!(cluster.get::<Resource>(&format!("box.b{n}")).await.is_some(), "b{n} was lost");
    }
    assert_eq!(clients.run(COUNT, &[&url]).expect("a count").trim(), "0", "all was acknowledged");
    let parked = clients.run(PARKED, &[&url]).expect("parked messages");
    // One whose parking was not confirmed before a connection broke may be parked again.
    let mut parked: Vec<(String, String, String)> = serde_json::from_str(&parked).expect("JSON");
    parked.sort();
    parked.dedup();
    let reasons: Vec<(&str, &str)> = parked.iter().map(|(id, why, _)| (id.as_str(), why.as_str())).collect();
    assert!(reasons[0].0 == "p1" && reasons[0].1.starts_with("the message is no JSON"), "{reasons:?}");
    assert_eq!(reasons[1], ("p2", "Spec validation failed: size: 0 is less than the minimum of 1"));
    assert_eq!((reasons.len(), parked[0].2.as_str()), (2, "this is no JSON"));
}

const SQS: &str = r#"
import boto3, json, sys
client = boto3.client("sqs", endpoint_url=sys.argv[1], region_name="us-east-1",
                      aws_access_key_id="key", aws_secret_access_key="secret")
queue = client.create_queue(QueueName="events", Attributes={"VisibilityTimeout": "2"})["QueueUrl"]
parking = client.create_queue(QueueName="parked")["QueueUrl"]
for body in json.loads(sys.argv[2]):
    client.send_message(QueueUrl=queue, MessageBody=body)
print(json.dumps([queue, parking]))
"#;

const SQS_LEFT: &str = r#"
import boto3, json, sys
client = boto3.client("sqs", endpoint_url=sys.argv[1], region_name="us-east-1",
                      aws_access_key_id="key", aws_secret_access_key="secret")
names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
queue, parking = [client.get_queue_url(QueueName=name)["QueueUrl"] for name in ["events", "parked"]]
left = client.get_queue_attributes(QueueUrl=queue, AttributeNames=names)["Attributes"]
parked = client.receive_message(QueueUrl=parking, MaxNumberOfMessages=10, VisibilityTimeout=0, MessageAttributeNames=["All"])
print(json.dumps([sum(int(n) for n in left.values()),
    [m["MessageAttributes"]["steersman-reason"]["StringValue"] for m in parked.get("Messages", [])]]))
"#;

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_sqs_are_deleted_after_their_effect_and_poison_is_parked() {
    let Some(clients) = or_skip(queues()) else {
        return;
    };
    let server = clients.sqs().expect("a server");
    let cluster = cluster().await;
    box_type(&cluster).await;
    let send = |messages: &[Value]| -> (String, String) {
        let texts: Vec<String> =
            messages.iter().map(|it| it.as_str().map_or_else(|| it.to_string(), ToOwned::to_owned)).collect();
        let printed = clients.run(SQS, &[&server.url(), &json!(texts).to_string()]).expect("sent");
        serde_json::from_str(&printed).expect("two queues")
    };
    let numbered = |id: &str, message: Value| with(message, "id", id);
    let (queue, parking) =
        send(&[numbered("a", body("one", 1)), numbered("b", body("two", 1)), json!("neither fish nor fowl")]);
    let inputs = json!({"events": {"plugin": "sqs", "queue_url": queue, "parking_queue_url": parking,
        "access_key_id": "key", "secret_access_key": "secret", "wait_seconds": 1}});
    let running = listen(&cluster, &inputs);
    cluster.wait_for_object::<Resource>("box.two").await;
    running.kill().await;
    send(&[numbered("c", body("one", 2)), numbered("a", body("one", 1)), numbered("d", body("three", 1))]);
    let running = listen(&cluster, &inputs);
    cluster.wait_for_object::<Resource>("box.three").await;
    let (left, parked) = {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        loop {
            let printed = clients.run(SQS_LEFT, &[&server.url()]).expect("a count");
            let found: (i64, Vec<String>) = serde_json::from_str(&printed).expect("JSON");
            if (found.0 == 0 && !found.1.is_empty()) || tokio::time::Instant::now() > deadline {
                break found;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    running.stop().await;
    assert_eq!(left, 0, "all was deleted");
    // Killed between parking and deleting, it is parked again; never lost.
    assert!(
        !parked.is_empty() && parked.iter().all(|why| why.starts_with("the message is no JSON")),
        "{parked:?}"
    );
    assert_eq!(size_of(&cluster, "box.one").await, Some(2), "the repetition of a changes nothing");
}
