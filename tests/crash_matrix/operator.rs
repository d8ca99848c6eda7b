//! A `steer up` that can be killed and started again, and asked over REST.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::support::{eventually, steer};
use crate::world::World;
use crate::{PATIENCE, last_lines};

/// The process with the operator in it.
pub(crate) struct Operator {
    child: Child,
    dir: PathBuf,
    environment: Vec<(String, String)>,
}

impl Operator {
    pub(crate) fn start(dir: &Path, environment: &[(String, String)]) -> Self {
        let child = Self::spawn(dir, environment);
        let mut operator = Self { child, dir: dir.to_owned(), environment: environment.to_vec() };
        operator.wait_until_it_answers();
        operator
    }

    fn spawn(dir: &Path, environment: &[(String, String)]) -> Child {
        let log = std::fs::File::options().create(true).append(true).open(dir.with_extension("log"));
        let log = log.expect("a log");
        let _ = std::fs::remove_file(dir.join("rest"));
        Command::new(steer())
            .args(["up", "--api-port", "0", "--http-port", "0", "--metrics-port", "0"])
            .args(["--runtime", "fake", "--data-dir"])
            .arg(dir)
            .envs(environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("started")
    }

    fn wait_until_it_answers(&mut self) {
        eventually("`steer up` answers", || {
            if let Some(status) = self.child.try_wait().expect("a status") {
                panic!("`steer up` ended with {status}:\n{}", self.log());
            }
            (self.request("GET", "/health", None)?.0 == 200).then_some(())
        });
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a pid"))
    }

    pub(crate) fn log(&self) -> String {
        last_lines(&self.dir.with_extension("log"))
    }

    /// A resource type for all plugins.
    pub(crate) fn create_type(&self) {
        let schema = json!({"type": "object", "properties": {"size": {"type": "integer"}}});
        let body = json!({"name": "Thing", "version": "v1", "schema": schema});
        let made = self.request("POST", "/api/v1/resource-types", Some(&body));
        assert_eq!(made.map(|(code, _)| code), Some(201));
    }

    /// Asks until there is an answer, starting the process again if it was killed. A POST that was
    /// killed after it took effect is found by its name.
    pub(crate) fn ask(&mut self, world: &World, method: &str, path: &str, body: Option<&Value>) -> Value {
        eventually(&format!("{method} {path} is answered"), || {
            let (code, answer) = self.try_ask(world, method, path, body)?;
            match (code, method) {
                (200..=299, _) => Some(answer),
                (409, "POST") => {
                    let name = body.and_then(|body| body["name"].as_str())?;
                    let path = format!("/api/v1/resources/by-name/Thing/v1/{name}");
                    Some(self.try_ask(world, "GET", &path, None)?.1)
                }
                _ => None,
            }
        })
    }

    /// Asks once; nothing if the process was killed, which is started again then.
    pub(crate) fn try_ask(
        &mut self,
        world: &World,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Option<(u16, Value)> {
        self.revive(world);
        self.request(method, path, body)
    }

    /// Starts the process again if it was killed.
    pub(crate) fn revive(&mut self, world: &World) {
        if self.child.try_wait().expect("a status").is_some() {
            assert!(world.has_killed(), "`steer up` ended by itself:\n{}", self.log());
            self.child = Self::spawn(&self.dir, &self.environment);
            self.wait_until_it_answers();
        }
    }

    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Option<(u16, Value)> {
        let address = std::fs::read_to_string(self.dir.join("rest")).ok()?;
        let authority = address.trim().strip_prefix("http://")?;
        let mut stream = TcpStream::connect(authority).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let body = body.map_or_else(String::new, ToString::to_string);
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let code = head.split(' ').nth(1)?.parse().ok()?;
        Some((code, serde_json::from_str(body).unwrap_or_default()))
    }

    pub(crate) fn stop(mut self) {
        kill(self.pid(), Signal::SIGINT).expect("signalled");
        eventually("`steer up` stops", || self.child.try_wait().expect("a status"));
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
