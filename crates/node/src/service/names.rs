//! Names of Services inside the pod network: a small name server.
//!
//! Knows `<service>.<namespace>.svc.cluster.local` and answers with the Service's address, or for
//! a headless one with its endpoints. Pods have no way further out, so every other name does not
//! exist.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tokio_util::sync::CancellationToken;

use super::directory::Directory;
use crate::runtime::Network;

const ZONE: [&str; 3] = ["svc", "cluster", "local"];
const TYPE_A: u16 = 1;
const CLASS_IN: u16 = 1;
const NO_SUCH_NAME: u16 = 3;
/// Answers that fit into a datagram.
const ANSWERS: usize = 20;

/// Answers at the directory's address until the node ends.
pub(crate) async fn serve(network: Network, directory: Directory, shutdown: CancellationToken) {
    let Some(server) = directory.name_server() else { return };
    directory.wait().await;
    // On a real cluster the address may belong to its own name service.
    if !network.is_shared() || directory.has_address(IpAddr::V4(server)) {
        return;
    }
    let socket = match network.bind(SocketAddr::from((server, 53))).await {
        Ok(socket) => socket,
        Err(error) => {
            tracing::warn!(%error, "no name server for pods");
            return;
        }
    };
    let mut buffer = [0_u8; 1500];
    loop {
        let received = tokio::select! {
            () = shutdown.cancelled() => return,
            received = socket.recv_from(&mut buffer) => received,
        };
        let Ok((length, client)) = received else { continue };
        if let Some(answer) = answer(&buffer[..length], &directory) {
            let _ = socket.send_to(&answer, client).await;
        }
    }
}

/// The answer to a query; `None` when it is not one.
fn answer(query: &[u8], directory: &Directory) -> Option<Vec<u8>> {
    let flags = number(query, 2)?;
    let questions = number(query, 4)?;
    if flags & 0x8000 != 0 || questions != 1 {
        return None;
    }
    let (labels, end) = name(query, 12)?;
    let kind = number(query, end)?;
    let found = addresses(&labels, directory);
    let code = if found.is_none() { NO_SUCH_NAME } else { 0 };
    // Other types of a name that exists have no answers, which is no error.
    let found = found.filter(|_| kind == TYPE_A).unwrap_or_default();
    let mut answer = Vec::with_capacity(512);
    answer.extend_from_slice(query.get(..2)?);
    let recursion = flags & 0x0100;
    answer.extend_from_slice(&(0x8400 | recursion | code).to_be_bytes());
    let count = u16::try_from(found.len().min(ANSWERS)).ok()?;
    for value in [1, count, 0, 0] {
        answer.extend_from_slice(&value.to_be_bytes());
    }
    answer.extend_from_slice(query.get(12..end + 4)?);
    for address in found.iter().take(ANSWERS) {
        // The name is a pointer to the question's.
        for value in [0xc00c, TYPE_A, CLASS_IN, 0, 5, 4] {
            answer.extend_from_slice(&u16::to_be_bytes(value));
        }
        answer.extend_from_slice(&address.octets());
    }
    Some(answer)
}

/// The addresses of a name; `None` when there is no such name.
fn addresses(labels: &[String], directory: &Directory) -> Option<Vec<Ipv4Addr>> {
    let [name, namespace, zone @ ..] = labels else { return None };
    if zone != ZONE {
        return None;
    }
    let entry = directory.get(namespace, name)?;
    let v4 = |address: &IpAddr| match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    };
    Some(match &entry.address {
        Some(address) => v4(address).into_iter().collect(),
        None => entry.endpoints.iter().filter_map(v4).collect(),
    })
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// A name's labels in lower case, and where it ends.
fn name(bytes: &[u8], mut at: usize) -> Option<(Vec<String>, usize)> {
    let mut labels = Vec::new();
    loop {
        let length = usize::from(*bytes.get(at)?);
        at += 1;
        match length {
            0 => return Some((labels, at)),
            1..=63 if labels.len() < 32 => {
                let label = bytes.get(at..at + length)?;
                labels.push(String::from_utf8_lossy(label).to_lowercase());
                at += length;
            }
            // Queries have no use for compression.
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::directory::Entry;
    use super::super::table::ServiceKey;
    use super::*;

    fn query(name: &str, kind: u16) -> Vec<u8> {
        let mut bytes = vec![0x12, 0x34, 0x01, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            bytes.push(u8::try_from(label.len()).expect("short"));
            bytes.extend_from_slice(label.as_bytes());
        }
        bytes.push(0);
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&CLASS_IN.to_be_bytes());
        bytes
    }

    fn directory() -> Directory {
        let directory = Directory::new(None);
        let key = ServiceKey { namespace: "ns".into(), name: "web".into() };
        let address = Some(IpAddr::from([10, 96, 0, 5]));
        directory.set(key, Some(Entry { address, ..Entry::default() }));
        directory
    }

    #[test]
    fn a_service_is_found_by_its_name() {
        let answer = answer(&query("Web.ns.svc.cluster.local", TYPE_A), &directory()).expect("one");
        assert_eq!(&answer[..2], [0x12, 0x34]);
        assert_eq!((answer[3] & 0xf, answer[7]), (0, 1));
        assert_eq!(&answer[answer.len() - 4..], [10, 96, 0, 5]);
    }

    #[test]
    fn another_type_has_no_answer_and_another_name_does_not_exist() {
        let empty = answer(&query("web.ns.svc.cluster.local", 28), &directory()).expect("one");
        assert_eq!((empty[3] & 0xf, empty[7]), (0, 0));
        let none = answer(&query("example.com", TYPE_A), &directory()).expect("one");
        assert_eq!(none[3] & 0xf, 3);
    }

    #[test]
    fn garbage_gets_no_answer() {
        for bytes in [&[][..], &[0; 12], &[0xff; 40]] {
            assert_eq!(answer(bytes, &directory()), None);
        }
    }
}
