//! Which port of 127.0.0.1 a Service is published on, the same after every restart if possible.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use tokio::net::TcpListener;

/// Chooses ports and remembers them on disk.
#[derive(Debug)]
pub(super) struct Ports {
    file: PathBuf,
    range: RangeInclusive<u16>,
    chosen: BTreeMap<String, u16>,
}

impl Ports {
    /// Reads what was chosen before.
    pub(super) fn open(file: PathBuf, range: RangeInclusive<u16>) -> Self {
        let text = std::fs::read(&file).unwrap_or_default();
        let chosen = serde_json::from_slice(&text).unwrap_or_default();
        Ports { file, range, chosen }
    }

    /// Listens for a Service's port, named `namespace/name/port`.
    pub(super) async fn listen(&mut self, name: &str) -> io::Result<TcpListener> {
        for port in self.candidates(name) {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            if let Ok(listener) = TcpListener::bind(address).await {
                if self.chosen.insert(name.to_string(), port) != Some(port) {
                    self.save();
                }
                return Ok(listener);
            }
        }
        TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await
    }

    /// The one chosen before, then ones that follow from the name alone.
    fn candidates(&self, name: &str) -> impl Iterator<Item = u16> + use<> {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let (first, last) = (*self.range.start(), *self.range.end());
        let size = u64::from(last.saturating_sub(first)) + 1;
        let start = hasher.finish() % size;
        let next = move |step: u64| u16::try_from(u64::from(first) + (start + step) % size).unwrap_or(first);
        let taken: Vec<u16> =
            self.chosen.iter().filter(|(known, _)| *known != name).map(|(_, port)| *port).collect();
        let before = self.chosen.get(name).copied();
        before.into_iter().chain((0..64).map(next).filter(move |port| !taken.contains(port)))
    }

    /// The Service is gone; its port may go to another.
    pub(super) fn forget(&mut self, name: &str) {
        if self.chosen.remove(name).is_some() {
            self.save();
        }
    }

    fn save(&self) {
        let saved = serde_json::to_vec_pretty(&self.chosen)
            .map_err(io::Error::from)
            .and_then(|text| std::fs::write(&self.file, text));
        if let Err(error) = saved {
            tracing::warn!(%error, file = %self.file.display(), "cannot remember Services' ports");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_service_keeps_its_port_across_restarts() {
        let folder = tempfile::tempdir().expect("folder");
        let open = || Ports::open(folder.path().join("services.json"), 20_000..=29_999);
        let mut ports = open();
        let first = ports.listen("ns/web/80").await.expect("listening");
        let port = first.local_addr().expect("address").port();
        let other = ports.listen("ns/web/81").await.expect("listening");
        assert_ne!(other.local_addr().expect("address").port(), port);
        drop(first);
        let again = open().listen("ns/web/80").await.expect("listening");
        assert_eq!(again.local_addr().expect("address").port(), port);
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_replaced() {
        let folder = tempfile::tempdir().expect("folder");
        let mut ports = Ports::open(folder.path().join("services.json"), 20_000..=29_999);
        let first = ports.listen("ns/web/80").await.expect("listening");
        let second = ports.listen("ns/web/80").await.expect("another port");
        assert_ne!(first.local_addr().expect("one"), second.local_addr().expect("two"));
    }
}
