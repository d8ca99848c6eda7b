//! A real control plane with our programs beside it.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use xtask::parts::Kubernetes;

use super::{eventually, steer};

/// The name of our node.
pub const NODE: &str = "steersman-node";

/// A `steer` that runs beside the control plane, stopped when the test ends.
pub struct Beside(Child);

impl Beside {
    pub fn start(log: &Path, args: &[&str]) -> Self {
        let log = fs::File::create(log).unwrap();
        let command = Command::new(steer())
            .args(args)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        Self(command.unwrap())
    }

    /// Our node, with its state and `node.log` in this folder. It does what kube-proxy does, too.
    pub fn node(kubernetes: &Kubernetes, folder: &Path, more: &[&str]) -> Self {
        let user = format!("system:node:{NODE}");
        let identity = kubernetes.kubeconfig_for(&user, "system:nodes").unwrap();
        bind(kubernetes, "system:node-proxier");
        let (state, ca) = (folder.join("node"), kubernetes.ca_certificate());
        let args = [
            "node",
            "--name",
            NODE,
            "--kubeconfig",
            identity.to_str().unwrap(),
            "--data-dir",
            state.to_str().unwrap(),
            "--client-ca-file",
            ca.to_str().unwrap(),
        ];
        Self::start(&folder.join("node.log"), &[&args, more].concat())
    }

    pub fn stop(mut self) {
        self.tell();
        let status = eventually("it stops when told to", || self.0.try_wait().unwrap());
        assert!(status.success(), "it ended with {status}");
    }

    fn tell(&self) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap_or(i32::MAX));
        let _ = kill(pid, Signal::SIGTERM);
    }
}

/// A node that is asked takes its pods with it.
impl Drop for Beside {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        self.tell();
        for _ in 0..200 {
            if self.0.try_wait().is_ok_and(|ended| ended.is_some()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Gives our node a role.
pub fn bind(kubernetes: &Kubernetes, role: &str) {
    let name = format!("node-{}", role.replace(':', "-"));
    let (role, user) = (format!("--clusterrole={role}"), format!("--user=system:node:{NODE}"));
    kubernetes.run(&["create", "clusterrolebinding", &name, &role, &user]).unwrap();
}

/// Waits for our node.
pub fn ready(kubernetes: &Kubernetes) {
    eventually("our node is ready", || {
        let node = json(kubernetes, &["get", "node", NODE]);
        let conditions = node.pointer("/status/conditions").and_then(Value::as_array).cloned();
        let ready = |one: &Value| text(one, "/type") == "Ready" && text(one, "/status") == "True";
        conditions.unwrap_or_default().iter().any(ready).then_some(())
    });
}

/// What kubectl prints as JSON, or null.
pub fn json(kubernetes: &Kubernetes, args: &[&str]) -> Value {
    let text = kubernetes.run(&[args, &["-o", "json"]].concat()).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// A string in an object, or an empty one.
pub fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}
