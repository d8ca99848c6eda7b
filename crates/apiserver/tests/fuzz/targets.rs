//! What is spoiled and where it is sent.

use http::Method;
use serde_json::Value;

use crate::{
    corpus::{self, DEFINITIONS, THINGS},
    spoil::{self, Random},
    support::{Answer, Client},
};

/// Makes one request.
type Target = fn(&mut Random) -> Request;

/// What every run goes through.
pub(crate) const TARGETS: &[(&str, Target)] = &[
    ("json", json_body),
    ("yaml", yaml_body),
    ("protobuf", protobuf_body),
    ("patch", patch),
    ("query", query),
    ("schema", schema),
];

/// What only long runs go through: a definition comes and goes with every rule.
pub(crate) const LONG: &[(&str, Target)] = &[("rule", rule)];

/// A request, and what follows it.
#[derive(Debug)]
pub(crate) struct Request {
    method: Method,
    path: String,
    media: &'static str,
    body: Vec<u8>,
    then: Then,
}

#[derive(Debug, PartialEq, Eq)]
enum Then {
    Nothing,
    /// The body was a definition of `odds`: objects are made by its rules, then it goes.
    Use,
}

impl Request {
    pub(crate) async fn send(&self, client: &Client) -> Vec<Answer> {
        let headers = [("content-type", self.media)];
        let mut answers = vec![client.send(self.method.clone(), &self.path, &headers, &self.body).await];
        if self.then == Then::Use && answers[0].code == 201 {
            let odds = THINGS.replace("things", "odds");
            corpus::settle(client, &odds).await;
            let mut odd = corpus::objects().swap_remove(2).1;
            odd["kind"] = "Odd".into();
            answers.push(client.post(&odds, &odd).await);
            odd["spec"]["size"] = 7.into();
            answers.push(client.put(&format!("{odds}/kept"), &odd).await);
            answers.push(client.delete(&odds).await);
            answers.push(client.delete(&format!("{DEFINITIONS}/odds.fuzz.example.com")).await);
            for _ in 0..1000 {
                if client.get(&odds).await.code == 404 {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        answers
    }
}

/// As the value is, its tree spoiled, or its bytes.
fn spoiled(random: &mut Random, mut value: Value) -> Vec<u8> {
    if random.once_in(2) {
        spoil::tree(random, &mut value);
        return value.to_string().into_bytes();
    }
    spoil::bytes(random, value.to_string().into_bytes())
}

fn create(path: &str, media: &'static str, body: Vec<u8>) -> Request {
    Request { method: Method::POST, path: path.to_owned(), media, body, then: Then::Nothing }
}

fn json_body(random: &mut Random) -> Request {
    let (path, mut object) = random.pick(&corpus::objects()).clone();
    if object["metadata"]["name"] == "kept" && random.once_in(2) {
        // An update.
        object["spec"]["replicas"] = 3.into();
        let body = spoiled(random, object);
        return Request { method: Method::PUT, ..create(&format!("{path}/kept"), "application/json", body) };
    }
    create(path, "application/json", spoiled(random, object))
}

fn yaml_body(random: &mut Random) -> Request {
    let (path, mut object) = random.pick(&corpus::objects()).clone();
    if random.once_in(3) {
        spoil::tree(random, &mut object);
    }
    let mut text = Vec::new();
    write_yaml(&object, 0, &mut text);
    create(path, "application/yaml", spoil::bytes(random, text))
}

/// Writes a tree in YAML's own style, so that its parser has more to do than with JSON.
fn write_yaml(value: &Value, depth: usize, text: &mut Vec<u8>) {
    let indent = " ".repeat(depth * 2);
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, inner) in map {
                text.extend(format!("\n{indent}{}: ", Value::from(key.as_str())).bytes());
                write_yaml(inner, depth + 1, text);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for inner in list {
                text.extend(format!("\n{indent}- ").bytes());
                write_yaml(inner, depth + 1, text);
            }
        }
        scalar => text.extend(scalar.to_string().bytes()),
    }
}

fn protobuf_body(random: &mut Random) -> Request {
    let kinds = [
        ("/api/v1/namespaces/default/configmaps", "v1", "ConfigMap"),
        ("/api/v1/namespaces/default/pods", "v1", "Pod"),
        ("/apis/apps/v1/namespaces/default/deployments", "apps/v1", "Deployment"),
        ("/apis/coordination.k8s.io/v1/namespaces/default/leases", "coordination.k8s.io/v1", "Lease"),
        ("/api/v1/namespaces", "v1", "Namespace"),
    ];
    let (path, api_version, kind) = *random.pick(&kinds);
    let field = |number: usize, inner: &[u8]| {
        let mut bytes = Vec::new();
        spoil::varint(&mut bytes, number << 3 | 2);
        spoil::varint(&mut bytes, inner.len());
        bytes.extend(inner);
        bytes
    };
    let meta = [field(1, b"kept"), field(11, &[field(1, b"l"), field(2, b"1")].concat())].concat();
    let object = [field(1, &meta), field(2, &spoil::message(random, 6)), spoil::message(random, 4)].concat();
    let envelope = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    let mut body = [b"k8s\0".to_vec(), field(1, &envelope), field(2, &object)].concat();
    if random.once_in(2) {
        body = spoil::bytes(random, body);
    }
    create(path, "application/vnd.kubernetes.protobuf", body)
}

fn patch(random: &mut Random) -> Request {
    let (media, patch) = random.pick(&corpus::patches()).clone();
    let collections = [
        "/api/v1/namespaces/default/configmaps/kept",
        "/apis/apps/v1/namespaces/default/deployments/kept",
        "/apis/apps/v1/namespaces/default/deployments/kept/scale",
        "/apis/fuzz.example.com/v1/namespaces/default/things/kept",
    ];
    let path = format!(
        "{}?fieldManager=m&force=true&dryRun={}",
        random.pick(&collections),
        random.pick(&["", "All"])
    );
    Request { method: Method::PATCH, ..create(&path, media, spoiled(random, patch)) }
}

fn query(random: &mut Random) -> Request {
    let mut path =
        (*random.pick(&["/api/v1/namespaces/default/configmaps", "/api/v1/pods", THINGS])).to_owned();
    for number in 0..=random.below(3) {
        let (name, value) = *random.pick(corpus::QUERIES);
        let value = spoil::bytes(random, value.as_bytes().to_vec());
        path.push(if number == 0 { '?' } else { '&' });
        path.push_str(name);
        path.push('=');
        // Addresses have an end: what is longer never reaches the server.
        for byte in value.iter().take(8_000) {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    let method = if random.once_in(5) { Method::DELETE } else { Method::GET };
    Request { method, ..create(&path, "application/json", Vec::new()) }
}

fn schema(random: &mut Random) -> Request {
    let mut definition = corpus::definition("odds", "Odd", "self.size < 100");
    let schema = &mut definition["spec"]["versions"][0]["schema"];
    if random.once_in(4) {
        schema["openAPIV3Schema"]["properties"]["spec"]["properties"]["name"]["pattern"] =
            String::from_utf8_lossy(&spoil::bytes(random, b"^(a|b)*[c-e]{2,5}\\d+$".to_vec())).into();
    } else {
        spoil::tree(random, schema);
    }
    Request {
        then: Then::Use,
        ..create(DEFINITIONS, "application/json", definition.to_string().into_bytes())
    }
}

fn rule(random: &mut Random) -> Request {
    let mut text = random.pick(corpus::RULES).to_string();
    if random.once_in(2) {
        text = format!(
            "({text}) {} ({})",
            random.pick(&["&&", "||", "==", "?", "+", "in"]),
            random.pick(corpus::RULES)
        );
    }
    if !random.once_in(4) {
        text = String::from_utf8_lossy(&spoil::bytes(random, text.into_bytes())).into_owned();
    }
    let definition = corpus::definition("odds", "Odd", &text);
    Request {
        then: Then::Use,
        ..create(DEFINITIONS, "application/json", definition.to_string().into_bytes())
    }
}
