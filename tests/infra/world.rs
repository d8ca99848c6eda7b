//! A small API of disks on loopback, which the `http` plugin acts on, and which counts.

use std::{
    collections::{BTreeMap, HashMap},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard},
};

use serde_json::{Value, json};

/// The API and what it knows.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) url: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
pub(crate) struct State {
    /// What there is, by path.
    pub(crate) disks: BTreeMap<String, Value>,
    /// How often each idempotency key has made something happen.
    pub(crate) keys: HashMap<String, u32>,
    /// How many of the next changes fail.
    pub(crate) failures: u32,
    /// Jobs begun at `/jobs`, by path, and whether they may end.
    pub(crate) jobs: BTreeMap<String, bool>,
}

impl World {
    /// Serves until the test ends.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let world = Self { url, state: Arc::default() };
        let serving = world.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let world = serving.clone();
                std::thread::spawn(move || world.serve(stream));
            }
        });
        world
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn serve(&self, stream: TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let mut stream = stream;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
            let mut words = line.split_whitespace();
            let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
            let (mut length, mut key) = (0, String::new());
            loop {
                let mut header = String::new();
                reader.read_line(&mut header).ok()?;
                let Some((name, value)) = header.trim().split_once(':') else { break };
                match name.to_lowercase().as_str() {
                    "content-length" => length = value.trim().parse().ok()?,
                    "idempotency-key" => key = value.trim().to_owned(),
                    _ => {}
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).ok()?;
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let (code, answer) = self.answer(&method, &path, &key, body);
            let answer = if answer.is_null() { String::new() } else { answer.to_string() };
            write!(
                stream,
                "HTTP/1.1 {code} OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{answer}",
                answer.len()
            )
            .ok()?;
        }
    }

    fn answer(&self, method: &str, path: &str, key: &str, body: Value) -> (u16, Value) {
        let mut state = self.lock();
        if method != "GET" && state.failures > 0 {
            state.failures -= 1;
            return (503, json!({"error": "no luck"}));
        }
        if method != "GET" {
            *state.keys.entry(key.to_owned()).or_default() += 1;
        }
        let is_job = path.starts_with("/jobs/");
        match method {
            "PUT" if is_job => {
                state.jobs.entry(path.to_owned()).or_insert(false);
                (202, json!({"state": "running"}))
            }
            "GET" if is_job => match state.jobs.get(path) {
                None => (404, Value::Null),
                Some(false) => (200, json!({"state": "running"})),
                Some(true) => (200, json!({"state": "done"})),
            },
            "PUT" => {
                state.disks.insert(path.to_owned(), body);
                (201, json!({"device": format!("/dev{path}")}))
            }
            "DELETE" => match state.disks.remove(path).is_some() || state.jobs.remove(path).is_some() {
                true => (204, Value::Null),
                false => (404, Value::Null),
            },
            _ => state.disks.get(path).map_or((404, Value::Null), |disk| (200, disk.clone())),
        }
    }
}
