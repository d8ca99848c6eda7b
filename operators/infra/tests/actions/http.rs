//! The `http` plugin: what it promises, as a table.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use steersman_infra::action::http::Http;
use steersman_infra::action::web::{PrivateAddresses, Web, WebOptions};
use steersman_infra::action::{Action, ActionError, Drift, Needed, Progress, Task};
use steersman_infra::types::Operation;

use crate::sockets::{Then, plain, secured};
use crate::support::answering::{Question, Reply, answering};

const NOW: i64 = 1_800_000_000;

/// A server that notes what it is asked and answers everything alike.
struct Server {
    url: String,
    asked: Arc<Mutex<Vec<Question>>>,
    reply: Arc<Mutex<Reply>>,
}

impl Server {
    async fn start() -> Self {
        let (asked, reply) = (Arc::default(), Arc::new(Mutex::new(Reply::new(200, json!({})))));
        let (notes, says): (Arc<Mutex<Vec<Question>>>, _) = (Arc::clone(&asked), Arc::clone(&reply));
        let url = answering(move |question| {
            notes.lock().expect("the notes").push(question);
            says.lock().expect("the reply").clone()
        })
        .await;
        Self { url, asked, reply }
    }

    fn says(&self, reply: Reply) {
        *self.reply.lock().expect("the reply") = reply;
    }

    fn asked(&self) -> MutexGuard<'_, Vec<Question>> {
        self.asked.lock().expect("the notes")
    }

    fn last(&self) -> Question {
        self.asked().last().expect("a question").clone()
    }
}

fn options() -> WebOptions {
    WebOptions { private_addresses: PrivateAddresses::Allow, ..WebOptions::default() }
}

thread_local! {
    /// One for each test, which has a thread of its own: reading the machine's authorities takes its time.
    static PLUGIN: Http = Http::new(Web::new(options()).expect("a client"));
}

fn plugin() -> Http {
    PLUGIN.with(Clone::clone)
}

fn task(operation: Operation, config: Value) -> Task {
    let now = Timestamp::from_second(NOW).expect("a time");
    Task {
        attempt: "attempt-1".into(),
        started_at: now,
        operation,
        name: "pg".into(),
        namespace: "default".into(),
        uid: "u".into(),
        type_name: "Box".into(),
        type_version: "v1".into(),
        generation: 1,
        parameters: Map::from_iter([
            ("size".to_owned(), json!(5)),
            ("path".to_owned(), json!("../a b?c=d#e")),
            ("tags".to_owned(), json!(["x", "y"])),
        ]),
        config: serde_json::from_value(config).expect("an object"),
        last_run: None,
        outputs: Map::new(),
        now,
    }
}

/// A task whose requests go to one place.
fn things(url: &str, operation: Operation, more: &Value) -> Task {
    let mut config = json!({"base_url": url, "apply": {"path": "/things/{{ name }}"}, "destroy": {"path": "/things/{{ name }}"}});
    for (name, value) in more.as_object().cloned().unwrap_or_default() {
        config[name] = value;
    }
    task(operation, config)
}

/// How a call ended, in a word, and how long the other side wants to be left alone.
fn verdict(result: &Result<Progress, ActionError>) -> (&'static str, Option<u64>) {
    match result {
        Ok(Progress::Done(_)) => ("done", None),
        Ok(Progress::Running { .. }) => ("running", None),
        Ok(Progress::Failed { .. }) => ("failed", None),
        Err(ActionError::Transient { retry_after, .. }) => ("transient", retry_after.map(|it| it.as_secs())),
        Err(ActionError::Permanent(_)) => ("permanent", None),
        Err(ActionError::Unknown(_)) => ("unknown", None),
    }
}

async fn carry_out(task: &Task) -> Result<Progress, ActionError> {
    match task.operation {
        Operation::Apply => plugin().apply(task).await,
        Operation::Destroy => plugin().destroy(task).await,
    }
}

#[tokio::test]
async fn every_status_code_means_something() {
    use Operation::{Apply, Destroy};
    let server = Server::start().await;
    let cases: [(Operation, &str, &[u16]); 9] = [
        (Apply, "done", &[200, 201, 202, 204]),
        (Apply, "permanent", &[203, 206, 400, 401, 402, 403, 404, 405, 410, 413, 415, 422, 451]),
        (Apply, "transient", &[408, 409, 425, 429, 500, 501, 503, 507]),
        (Apply, "unknown", &[502, 504]),
        (Apply, "permanent", &[300, 301, 302, 303, 304, 307, 308]),
        (Destroy, "done", &[200, 202, 204, 404, 410]),
        (Destroy, "permanent", &[201, 302, 400, 401, 403, 405]),
        (Destroy, "transient", &[408, 409, 429, 500, 503]),
        (Destroy, "unknown", &[502, 504]),
    ];
    for (operation, expected, codes) in cases {
        for code in codes {
            server.says(Reply::new(*code, Value::Null));
            let result = carry_out(&things(&server.url, operation, &json!({}))).await;
            assert_eq!(verdict(&result).0, expected, "{operation:?} {code}: {result:?}");
            if let Err(error) = result {
                assert!(error.to_string().contains(&format!("/things/pg: HTTP {code}")), "{error}");
            }
        }
    }
    // What means success can be said.
    let picky = things(&server.url, Apply, &json!({"apply": {"path": "/x", "expect": [207, 302]}}));
    for (code, expected) in [(207, "done"), (302, "done"), (200, "permanent"), (500, "transient")] {
        server.says(Reply::new(code, Value::Null));
        assert_eq!(verdict(&carry_out(&picky).await).0, expected, "{code}");
    }
    // Without a request there is nothing to do.
    let mut stays = things(&server.url, Destroy, &json!({}));
    stays.config.remove("destroy");
    server.asked().clear();
    let Ok(Progress::Done(done)) = carry_out(&stays).await else { panic!("not done") };
    assert_eq!(done.text, "no destroy request is configured: nothing was done");
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn a_server_that_wants_to_be_left_alone_says_for_how_long() {
    let server = Server::start().await;
    let task = things(&server.url, Operation::Apply, &json!({}));
    // NOW is Fri, 15 Jan 2027 08:00:00 UTC.
    let reply = |code| Reply::new(code, json!({"message": "later"}));
    let cases = [
        (reply(429).with("retry-after", 17), "transient", Some(17)),
        (reply(503).with("retry-after", 120), "transient", Some(120)),
        (reply(503).with("retry-after", "Fri, 15 Jan 2027 08:01:30 GMT"), "transient", Some(90)),
        (reply(503).with("retry-after", "Fri, 15 Jan 2027 07:00:00 GMT"), "transient", None),
        (reply(503).with("retry-after", "soon"), "transient", None),
        (
            reply(429).with("x-ratelimit-remaining", 0).with("x-ratelimit-reset", NOW + 30),
            "transient",
            Some(30),
        ),
        (reply(429).with("ratelimit-remaining", 0).with("ratelimit-reset", NOW + 42), "transient", Some(42)),
        (
            reply(403).with("x-ratelimit-remaining", 0).with("x-ratelimit-reset", NOW + 5),
            "transient",
            Some(5),
        ),
        (reply(403).with("x-ratelimit-remaining", 7).with("x-ratelimit-reset", NOW + 5), "permanent", None),
        (reply(400).with("retry-after", 17), "permanent", None),
    ];
    for (reply, expected, wait) in cases {
        server.says(reply.clone());
        let result = carry_out(&task).await;
        assert_eq!(verdict(&result), (expected, wait), "{reply:?}: {result:?}");
        assert!(
            result.expect_err("refused").to_string().ends_with(": later"),
            "what the server said is told"
        );
    }
}

#[tokio::test]
async fn requests_of_an_attempt_that_change_something_have_its_key_and_no_others() {
    let server = Server::start().await;
    let read =
        json!({"read": {"path": "/things/{{ name }}"}, "apply": {"method": "POST", "path": "/things"}});
    let task = things(&server.url, Operation::Apply, &read);
    let key = |question: &Question| {
        let found = question.headers.get("idempotency-key")?;
        found.to_str().ok().map(ToOwned::to_owned)
    };
    server.says(Reply::new(504, Value::Null));
    assert_eq!(verdict(&plugin().apply(&task).await).0, "unknown");
    assert_eq!(key(&server.last()), Some("attempt-1".to_owned()));
    // Looks first; what is not there is sent again, as the same request.
    server.says(Reply::new(201, json!({"size": 1})));
    server.asked().clear();
    assert_eq!(verdict(&plugin().resume(&task, None).await).0, "done");
    let seen: Vec<(String, bool)> =
        server.asked().iter().map(|it| (it.method.to_string(), key(it).is_some())).collect();
    assert_eq!(seen, [("GET".to_owned(), false), ("POST".to_owned(), true)]);
    assert_eq!(key(&server.last()), Some("attempt-1".to_owned()));
    // What is there is not.
    server.says(Reply::new(200, Value::Object(task.parameters.clone())));
    server.asked().clear();
    assert_eq!(verdict(&plugin().resume(&task, None).await).0, "done");
    assert_eq!(server.asked().len(), 1);
    // Another attempt is another request, and nobody can give it the key of another.
    let mut other = Task { attempt: "attempt-2".into(), ..task };
    other.config.insert("headers".into(), json!({"Idempotency-Key": "mine"}));
    plugin().apply(&other).await.expect("done");
    assert_eq!(key(&server.last()), Some("attempt-2".to_owned()));
}

#[tokio::test]
async fn placeholders_become_values_and_never_more_than_that() {
    let server = Server::start().await;
    let apply = json!({"method": "PATCH", "path": "/{{ type }}/{{ parameters.path }}/{{ name }}",
        "headers": {"X-Size": "{{ parameters.size }} GiB"},
        "body": {"size": "{{ parameters.size }}", "tags": "{{ parameters.tags }}", "first": "{{ parameters.tags.0 }}",
            "text": "{{ namespace }}/{{ name }}@{{ version }}.{{ generation }}", "all": "{{ spec }}", "n": [1, "{{uid}}"]}});
    let task = things(
        &server.url,
        Operation::Apply,
        &json!({"apply": apply, "headers": {"X-Run": "{{ attempt }}"}}),
    );
    carry_out(&task).await.expect("done");
    let asked = server.last();
    assert_eq!((asked.method.as_str(), asked.path.as_str()), ("PATCH", "/Box/..%2Fa%20b%3Fc%3Dd%23e/pg"));
    assert_eq!(asked.query, "");
    assert_eq!(asked.headers["x-size"], "5 GiB");
    assert_eq!(asked.headers["x-run"], "attempt-1");
    assert_eq!(asked.headers["content-type"], "application/json");
    assert_eq!(
        asked.body,
        json!({"size": 5, "tags": ["x", "y"], "first": "x", "text": "default/pg@v1.1", "all": task.parameters, "n": [1, "u"]})
    );
    // Without a body the parameters are sent, and with DELETE nothing is.
    carry_out(&things(&server.url, Operation::Apply, &json!({}))).await.expect("done");
    assert_eq!(server.last().body, Value::Object(task.parameters.clone()));
    carry_out(&things(&server.url, Operation::Destroy, &json!({}))).await.expect("done");
    assert_eq!((server.last().method.as_str(), server.last().body), ("DELETE", Value::Null));

    for (config, why) in [
        (json!({"apply": {"path": "/{{ parameters.none }}"}}), "{{ parameters.none }} names nothing"),
        (json!({"apply": {"path": "/{{ name"}}), "has a {{ without its }}"),
        (
            json!({"apply": {"path": "/x", "body": {"a": "{{ response.id }}"}}}),
            "{{ response.id }} names nothing",
        ),
        (json!({"aply": {"path": "/x"}}), "unknown field `aply`"),
        (json!({"base_url": ""}), "needs base_url"),
        (json!({"timeout_seconds": 0}), "should be from 1 to 300"),
        (json!({"timeout_seconds": 3600}), "should be from 1 to 300"),
    ] {
        let wrong = things(&server.url, Operation::Apply, &config);
        let error = plugin().validate(&wrong).await.expect_err(why);
        assert!(
            matches!(&error, ActionError::Permanent(message) if message.contains(why)),
            "{config}: {error}"
        );
    }
    let mut bare = task;
    bare.config.remove("apply");
    let error = plugin().validate(&bare).await.expect_err("incomplete").to_string();
    assert!(
        error.contains("missing field `apply`") && error.contains("put it into plugin_config"),
        "{error}"
    );
}

#[tokio::test]
async fn what_goes_on_elsewhere_is_followed_until_it_is_done_or_has_failed_or_takes_too_long() {
    let server = Server::start().await;
    let poll = json!({"path": "/operations/{{ response.id }}", "interval_seconds": 7, "timeout_seconds": 60,
        "done": {"at": "/state", "in": ["succeeded", "skipped"]}, "failed": {"at": "/state", "in": ["broken"]}});
    let task = things(
        &server.url,
        Operation::Apply,
        &json!({"poll": poll, "outputs": {"ip": "/result/ip", "old": "/none"}}),
    );
    server.says(Reply::new(202, json!({"id": "o/1"})));
    let Ok(Progress::Running { checkpoint, after, .. }) = plugin().apply(&task).await else {
        panic!("not running")
    };
    assert_eq!(after, Duration::from_secs(7));
    let ask = || {
        let (task, checkpoint) = (task.clone(), checkpoint.clone());
        async move { plugin().resume(&task, Some(&checkpoint)).await }
    };
    for (reply, expected) in [
        (Reply::new(200, json!({"state": "running"})), "running"),
        (Reply::new(200, json!({})), "running"),
        (Reply::new(200, json!({"state": "broken"})), "failed"),
        (Reply::new(404, Value::Null), "permanent"),
        (Reply::new(429, Value::Null).with("retry-after", 9), "transient"),
        (Reply::new(500, Value::Null), "transient"),
        (Reply::new(200, json!({"state": "skipped"})), "done"),
    ] {
        server.says(reply.clone());
        let result = ask().await;
        assert_eq!(verdict(&result).0, expected, "{reply:?}: {result:?}");
        let asked = server.last();
        assert_eq!((asked.method.as_str(), asked.path.as_str()), ("GET", "/operations/o%2F1"));
    }
    // The outputs are of the last answer; what it does not name is as it was.
    let mut again = task.clone();
    again.outputs.insert("old".into(), json!("kept"));
    server.says(Reply::new(200, json!({"state": "succeeded", "result": {"ip": "192.0.2.1"}})));
    let Ok(Progress::Done(done)) = plugin().resume(&again, Some(&checkpoint)).await else {
        panic!("not done")
    };
    assert_eq!(Value::Object(done.outputs), json!({"ip": "192.0.2.1", "old": "kept"}));
    server.says(Reply::new(200, json!({"state": "running"})));
    let late = Task { now: Timestamp::from_second(NOW + 61).expect("a time"), ..task.clone() };
    let Ok(Progress::Failed { message, .. }) = plugin().resume(&late, Some(&checkpoint)).await else {
        panic!("not failed")
    };
    assert!(message.contains("is not done in time"), "{message}");
}

#[tokio::test]
async fn what_is_there_is_compared_with_what_should_be() {
    let server = Server::start().await;
    let read = json!({"read": {"path": "/things/{{ name }}", "at": "/spec"}, "apply": {"path": "/things/{{ name }}", "body": {"size": "{{ parameters.size }}"}}});
    let task = things(&server.url, Operation::Apply, &read);
    let gone = Drift::Found("it is gone".into());
    let differs = |what: &str| Drift::Found(what.into());
    for (reply, drift, needed) in [
        (Reply::new(200, json!({"spec": {"size": 5, "id": 7}})), Drift::None, Needed::No),
        (Reply::new(200, json!({"spec": {"size": 5.0}})), Drift::None, Needed::No),
        (Reply::new(200, json!({"spec": {"size": 6}})), differs("size is 6 instead of 5"), Needed::Yes),
        (Reply::new(200, json!({"size": 5})), differs("it is null instead of {\"size\":5}"), Needed::Yes),
        (Reply::new(404, Value::Null), gone.clone(), Needed::Yes),
        (Reply::new(410, Value::Null), gone, Needed::Yes),
    ] {
        server.says(reply.clone());
        assert_eq!(plugin().detect_drift(&task).await, Ok(drift), "{reply:?}");
        assert_eq!(plugin().plan(&task).await.expect("a plan").needed, needed, "{reply:?}");
    }
    for (code, permanent) in [(500, false), (503, false), (401, true), (302, true)] {
        server.says(Reply::new(code, Value::Null));
        let error = plugin().detect_drift(&task).await.expect_err("nothing is known");
        assert_eq!(matches!(error, ActionError::Permanent(_)), permanent, "{code}: {error}");
        assert!(plugin().plan(&task).await.is_err(), "{code}");
    }
    assert!(server.asked().iter().all(|it| it.method == "GET"), "nothing was touched");
    // Without a way to look there is no drift, and always something to do.
    let blind = things(&server.url, Operation::Apply, &json!({}));
    assert_eq!(plugin().detect_drift(&blind).await, Ok(Drift::None));
    assert_eq!(plugin().plan(&blind).await.expect("a plan").needed, Needed::Yes);
}

#[tokio::test]
async fn nothing_goes_where_it_was_not_meant_to_go() {
    let (server, other) = (Server::start().await, Server::start().await);
    let secret = json!({"headers": {"Authorization": "Bearer x"}});
    // A redirect is not followed, and named.
    server.says(Reply::new(307, Value::Null).with("location", format!("{}/elsewhere", other.url)));
    let error =
        carry_out(&things(&server.url, Operation::Apply, &secret)).await.expect_err("refused").to_string();
    assert!(error.contains(&format!("to {}/elsewhere: redirects are not followed", other.url)), "{error}");
    assert_eq!(server.last().headers["authorization"], "Bearer x");
    assert!(other.asked().is_empty());
    // Headers for one address go to no other, unless the request has them itself.
    let mut elsewhere = secret.clone();
    elsewhere["apply"] = json!({"path": format!("{}/x", other.url), "headers": {"X-Own": "1"}});
    carry_out(&things(&server.url, Operation::Apply, &elsewhere)).await.expect("done");
    let asked = other.last();
    assert!(!asked.headers.contains_key("authorization") && asked.headers.contains_key("x-own"), "{asked:?}");
    // Private addresses are not reached unless they may be.
    let strict = Http::new(Web::new(WebOptions::default()).expect("a client"));
    server.asked().clear();
    let here = server.url.replace("127.0.0.1", "localhost");
    for url in [&server.url, &here] {
        let error =
            strict.apply(&things(url, Operation::Apply, &json!({}))).await.expect_err("refused").to_string();
        assert!(error.contains("private network"), "{error}");
    }
    for (url, why) in [("ftp://example.test", "must begin with http"), ("http://exa mple", "is no URL")] {
        let error = carry_out(&things(url, Operation::Apply, &json!({}))).await.expect_err("refused");
        assert!(matches!(&error, ActionError::Permanent(message) if message.contains(why)), "{error:?}");
    }
    let odd = json!({"headers": {"X-Run": "a\nb"}});
    let error = carry_out(&things(&server.url, Operation::Apply, &odd)).await.expect_err("refused");
    assert!(matches!(&error, ActionError::Permanent(message) if message.contains("\"X-Run\"")), "{error:?}");
    let odd = json!({"apply": {"path": "/x", "method": "ON TIME"}});
    let error = carry_out(&things(&server.url, Operation::Apply, &odd)).await.expect_err("refused");
    assert!(
        matches!(&error, ActionError::Permanent(message) if message.contains("no HTTP method")),
        "{error:?}"
    );
    assert!(server.asked().is_empty(), "nothing was sent");
}

#[tokio::test]
async fn answers_that_are_late_broken_huge_or_no_json_are_bounded() {
    let say = |text: &str| Then::Say(text.as_bytes().to_vec());
    let head = |length: usize| format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
    let mut huge = head(5 << 20).into_bytes();
    huge.resize(huge.len() + (5 << 20), b' ');
    let mut endless = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
    endless.resize(8 << 20, b'x');
    for (case, then, expected, why) in [
        ("none", Then::Keep, "unknown", "no answer within 1s"),
        ("closed", say(""), "unknown", "connection closed"),
        ("broken off", say(&(head(100) + "{")), "unknown", "the answer broke off"),
        ("nonsense", say("SMTP ready\r\n\r\n"), "unknown", "invalid HTTP version"),
        ("huge", Then::Say(huge), "permanent", "HTTP 200 OK: the answer is larger than 4 MiB"),
        ("without end", Then::Say(endless), "permanent", "the answer is larger than 4 MiB"),
    ] {
        let url = plain(then).await;
        let task =
            things(&url, Operation::Apply, &json!({"timeout_seconds": if case == "none" { 1 } else { 60 }}));
        let result = carry_out(&task).await;
        assert_eq!(verdict(&result).0, expected, "{case}: {result:?}");
        let error = result.expect_err(case).to_string();
        assert!(error.contains(why), "{case}: {error}");
    }
    // Not JSON, and nothing at all, are answers too.
    for (body, expected) in [("plain text", json!("plain text")), ("", Value::Null)] {
        let url = plain(say(&(head(body.len()) + body))).await;
        let Ok(Progress::Done(done)) =
            carry_out(&things(&url, Operation::Apply, &json!({"outputs": {"all": ""}}))).await
        else {
            panic!("not done")
        };
        assert_eq!(done.outputs["all"], expected);
    }
    // Nobody there: nothing was done.
    let nobody = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let url = format!("http://{}", nobody.local_addr().expect("an address"));
    drop(nobody);
    let result = carry_out(&things(&url, Operation::Apply, &json!({}))).await;
    assert_eq!(verdict(&result).0, "transient", "{result:?}");
}

#[tokio::test]
async fn certificates_are_checked_against_the_machines_authorities_and_those_that_are_named() {
    let answer = Then::Say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}".to_vec());
    let (url, authority) = secured(answer).await;
    let trusting =
        |authorities| Http::new(Web::new(WebOptions { authorities, ..options() }).expect("a client"));
    let task = things(&url, Operation::Apply, &json!({}));
    let result = trusting(vec![authority.clone()]).apply(&task).await;
    assert_eq!(verdict(&result).0, "done", "{result:?}");
    let error = trusting(Vec::new()).apply(&task).await.expect_err("unknown authority");
    assert!(
        matches!(&error, ActionError::Transient { message, .. } if message.contains("certificate")),
        "{error:?}"
    );
    // The name counts.
    let other = things(&url.replace("localhost", "127.0.0.1"), Operation::Apply, &json!({}));
    let error = trusting(vec![authority]).apply(&other).await.expect_err("another name").to_string();
    assert!(error.contains("certificate"), "{error}");
}
