//! What users do, from the first type to the last deletion, the same on every store.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    support::{eventually, steer},
    world::World,
};

/// Where the scenario takes place.
pub(crate) struct Place<'a> {
    /// Address of the REST API.
    pub(crate) address: &'a str,
    /// For `kubectl`.
    pub(crate) kubeconfig: &'a Path,
}

/// Status code and body, by the curl that users have.
pub(crate) fn curl(url: &str, args: &[&str]) -> (u16, Value) {
    let output = Command::new("curl")
        .args(["--silent", "--max-time", "30", "--write-out", "\n%{http_code}"])
        .args(args)
        .arg(url)
        .stdin(Stdio::null())
        .output()
        .expect("curl");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, code) = text.rsplit_once('\n').unwrap_or((&text, "0"));
    (code.parse().unwrap_or(0), serde_json::from_str(body).unwrap_or_default())
}

impl Place<'_> {
    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        curl(&format!("{}{path}", self.address), &[])
    }

    pub(crate) fn send(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let url = format!("{}{path}", self.address);
        curl(&url, &["--request", method, "--header", "Content-Type: application/json", "--data", &body])
    }

    /// Waits until a resource is as it should be.
    pub(crate) fn wait(&self, path: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        eventually(&format!("{path} is {what}; see what it said last in the scenario"), || {
            last = self.get(path).1;
            is(&last).then(|| last.clone())
        })
    }

    fn kubectl(&self, args: &[&str], input: Option<Value>) -> String {
        let mut child = Command::new("kubectl")
            .args(args)
            .env("KUBECONFIG", self.kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl");
        let text = input.map(|input| input.to_string()).unwrap_or_default();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "kubectl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// `steer infra` with these arguments.
    fn steer(&self, args: &[&str]) -> String {
        let output = Command::new(steer()).arg("infra").args(args).args(["--server", self.address]).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// The type of the disks in the small world.
pub(crate) fn disk_type(world: &World) -> Value {
    json!({
        "name": "Disk",
        "version": "v1",
        "schema": {
            "type": "object",
            "required": ["size"],
            "properties": {"size": {"type": "integer", "minimum": 10}, "tier": {"type": "string", "default": "small"}},
        },
        "metadata": {"action_defaults": {"http": {
            "base_url": world.url,
            "apply": {"path": "/disks/{{ name }}"},
            "destroy": {"path": "/disks/{{ name }}"},
            "read": {"path": "/disks/{{ name }}"},
            "outputs": {"device": "/device"},
        }}},
    })
}

pub(crate) fn resource(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"name": name, "resource_type_name": kind, "resource_type_version": "v1", "action_plugin": "http", "spec": spec})
}

fn is(status: &'static str, generation: i64) -> impl Fn(&Value) -> bool {
    move |it| it["status"] == status && it["observed_generation"] == generation
}

/// From the first type to the last deletion.
pub(crate) fn scenario(place: &Place<'_>, world: &World) {
    assert_eq!(place.get("/health").0, 200);
    let (code, kind) = place.send("POST", "/api/v1/resource-types", Some(disk_type(world)));
    assert_eq!((code, &kind["id"]), (201, &json!(1)), "{kind}");
    assert_eq!(place.send("POST", "/api/v1/resource-types", Some(disk_type(world))).0, 409);

    let (code, refused) =
        place.send("POST", "/api/v1/resources", Some(resource("Disk", "data", &json!({"size": 5}))));
    let reason = "Spec validation failed: size: 5 is less than the minimum of 10";
    assert_eq!((code, &refused["detail"]), (400, &json!(reason)));

    // One that fails at first, and is repeated.
    world.lock().failures = 2;
    let (code, made) =
        place.send("POST", "/api/v1/resources", Some(resource("Disk", "data", &json!({"size": 100}))));
    assert_eq!((code, &made["id"], &made["status"]), (201, &json!(1), &json!("pending")), "{made}");
    assert_eq!(
        place.send("POST", "/api/v1/resources", Some(resource("Disk", "data", &json!({"size": 100})))).0,
        409
    );
    place.wait("/api/v1/resources/1", "ready", is("ready", 1));
    assert_eq!(world.lock().disks["/disks/data"], json!({"size": 100, "tier": "small"}));
    assert_eq!(place.get("/api/v1/resources/1/outputs").1, json!({"outputs": {"device": "/dev/disks/data"}}));
    let (_, entries) = place.get("/api/v1/resources/1/history?fields=all");
    let seen: Vec<(bool, &str)> = entries
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["success"] == true, it["trigger_reason"].as_str().unwrap()))
        .collect();
    assert_eq!(seen, [(true, "retry"), (false, "retry"), (false, "initial")]);

    // A change, and the same wish again.
    let change = json!({"spec": {"size": 200}});
    let (code, changed) = place.send("PUT", "/api/v1/resources/1", Some(change.clone()));
    assert_eq!((code, &changed["generation"]), (200, &json!(2)), "{changed}");
    place.wait("/api/v1/resources/by-name/Disk/v1/data", "ready again", is("ready", 2));
    assert_eq!(place.send("PUT", "/api/v1/resources/1", Some(change)).1["generation"], 2);
    assert_eq!(world.lock().disks["/disks/data"]["size"], 200);

    // Somebody changes the disk behind our back.
    world.lock().disks.insert("/disks/data".into(), json!({"size": 1}));
    eventually("the disk is repaired", || (world.lock().disks["/disks/data"]["size"] == 200).then_some(()));
    place.wait("/api/v1/resources/1", "ready after the repair", is("ready", 2));
    let reason = |entries: &Value| entries[0]["trigger_reason"].clone();
    place.wait("/api/v1/resources/1/history?fields=all&limit=1", "told", |it| reason(it) == "drift");
    assert_eq!(place.send("POST", "/api/v1/resources/1/reconcile", None).0, 202);
    place.wait("/api/v1/resources/1/history?fields=all&limit=1", "told", |it| reason(it) == "manual");

    // The same objects for kubectl, in both directions.
    let table = place.kubectl(&["get", "resources", "--all-namespaces"], None);
    assert!(table.contains("disk.data") && table.contains("ready"), "{table}");
    let namespace =
        place.kubectl(&["get", "resources", "-A", "-o", "jsonpath={.items[0].metadata.namespace}"], None);
    let object = json!({"apiVersion": "infra.steersman.io/v1", "kind": "Resource",
        "metadata": {"name": "disk.logs", "namespace": namespace},
        "spec": {"type": "Disk", "typeVersion": "v1", "actionPlugin": "http", "parameters": {"size": 30}}});
    place.kubectl(&["apply", "-f", "-"], Some(object));
    let logs = place.wait("/api/v1/resources/by-name/Disk/v1/logs", "ready", is("ready", 1));
    assert!(logs["id"].as_i64().is_some_and(|id| id > 1), "{logs}");

    commands(place);

    // Away with it: destroyed first, and the history stays.
    assert_eq!(place.send("DELETE", "/api/v1/resource-types/1", None).0, 409);
    assert_eq!(place.send("DELETE", "/api/v1/resources/1", None).0, 202);
    place.kubectl(&["delete", "resource", "disk.logs", "--namespace", &namespace, "--timeout", "60s"], None);
    eventually("the resource is gone", || (place.get("/api/v1/resources/1").0 == 404).then_some(()));
    assert!(world.lock().disks.is_empty());
    let (code, entries) = place.get("/api/v1/resources/1/history?fields=all&limit=1");
    assert_eq!((code, reason(&entries)), (200, json!("deletion")));
    assert_eq!(place.send("DELETE", "/api/v1/resource-types/1", None).0, 204);
    assert!(world.lock().keys.values().all(|times| *times == 1), "nothing was asked for twice");
}

/// The same by `steer infra`.
fn commands(place: &Place<'_>) {
    let types = place.steer(&["types"]);
    assert!(types.starts_with("ID   NAME   VERSION   STATUS"), "{types}");
    let list = place.steer(&["list", "--status", "ready", "--type", "Disk"]);
    assert_eq!(list.lines().count(), 3, "{list}");
    for name in ["1", "Disk/data", "Disk/v1/data"] {
        let shown = place.steer(&["get", name]);
        assert!(shown.contains("Status:       ready") && shown.contains("\"tier\": \"small\""), "{shown}");
    }
    let history = place.steer(&["history", "Disk/data", "--limit", "2"]);
    assert!(history.lines().count() == 3 && history.contains("manual"), "{history}");
    assert_eq!(place.steer(&["outputs", "1"]), "{\n  \"device\": \"/dev/disks/data\"\n}\n");
    assert_eq!(place.steer(&["reconcile", "Disk/data"]), "resource Disk/data is reconciled now\n");
    let json: Value = serde_json::from_str(&place.steer(&["list", "--json"])).unwrap();
    assert_eq!(json.as_array().map(Vec::len), Some(2));
    let nobody = Command::new(steer())
        .args(["infra", "get", "Disk/none", "--server", place.address])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&nobody.stderr).into_owned();
    assert_eq!(nobody.status.code(), Some(1));
    assert!(said.contains("there is no resource Disk/none"), "{said}");
}
