//! What a new connection speaks, by its first bytes, which are handed on afterwards.

use crate::line::Line;
use std::time::Duration;
use tokio::time::Instant;

/// A client that says nothing for this long waits for the server to speak first.
const SILENCE: Duration = Duration::from_millis(300);
/// Methods are shorter; more bytes than this are not looked at.
const LOOK: usize = 32;

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// HTTP/1.1 or older.
    One,
    /// HTTP/2 without TLS.
    Two,
    /// Anything else: TLS, a database's protocol, or nothing until it is spoken to.
    Other,
    /// It was closed, or ran out of time, before it said anything.
    Nothing,
}

/// Waits for the head of a request of HTTP; anything that is not HTTP/2 is taken for HTTP/1.1.
pub(crate) async fn version(line: &mut Line, patience: Duration) -> Speaks {
    let end = Instant::now() + patience;
    loop {
        let Ok(Ok(seen @ [_, ..])) = tokio::time::timeout_at(end, line.listen()).await else {
            return Speaks::Nothing;
        };
        if seen.starts_with(b"PRI") {
            return Speaks::Two;
        }
        if !b"PRI".starts_with(seen) {
            return Speaks::One;
        }
    }
}

/// Waits until it can be told what a connection speaks.
pub(crate) async fn protocol(line: &mut Line) -> Speaks {
    let end = Instant::now() + SILENCE;
    loop {
        let seen = match tokio::time::timeout_at(end, line.listen()).await {
            Err(_) => return Speaks::Other,
            Ok(Ok(seen @ [_, ..])) => &seen[..seen.len().min(LOOK)],
            Ok(_) => return Speaks::Nothing,
        };
        if let Some(speaks) = looks_like(seen) {
            return speaks;
        }
    }
}

/// What begins like this; None where more is needed to tell.
fn looks_like(seen: &[u8]) -> Option<Speaks> {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    if seen.starts_with(PREFACE) {
        return Some(Speaks::Two);
    }
    if PREFACE.starts_with(seen) {
        return None;
    }
    let method = seen.iter().take_while(|byte| byte.is_ascii_uppercase() || **byte == b'-').count();
    let Some((space, path)) = seen[method..].split_first() else {
        return if seen.len() < LOOK { None } else { Some(Speaks::Other) };
    };
    if method < 3 || *space != b' ' {
        return Some(Speaks::Other);
    }
    // `GET key` is Redis, `GET /path` is not.
    match path {
        [] | [b'*'] => None,
        [b'/' | b'h' | b'H', ..] | [b'*', b' ', ..] => Some(Speaks::One),
        _ => Some(Speaks::Other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_tell_protocols_apart() {
        let cases: [(&[u8], Option<Speaks>); 14] = [
            (b"GET / HTTP/1.1\r\n", Some(Speaks::One)),
            (b"OPTIONS * HTTP/1.1", Some(Speaks::One)),
            (b"PROPFIND /dav HTTP/1.1", Some(Speaks::One)),
            (b"GET http://web/ HTTP/1.1", Some(Speaks::One)),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0", Some(Speaks::Two)),
            (b"PRI * HTTP/2.0\r\n", None),
            (b"PR", None),
            (b"GE", None),
            (b"GET ", None),
            (b"GET key\r\n", Some(Speaks::Other)),
            (b"*3\r\n$3\r\nSET\r\n", Some(Speaks::Other)),
            (b"\x16\x03\x01\x02\0", Some(Speaks::Other)),
            (b"\0\0\0\x08\x04\xd2\x16\x2f", Some(Speaks::Other)),
            (b"SSH-2.0-OpenSSH_9.2\r\n", Some(Speaks::Other)),
        ];
        for (seen, expected) in cases {
            assert_eq!(looks_like(seen), expected, "{}", String::from_utf8_lossy(seen));
        }
    }
}
