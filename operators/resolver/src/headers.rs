//! Which headers travel on, and which belong to one connection only.

use hyper::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRANSFER_ENCODING,
    UPGRADE,
};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// The services for which a request came through a resolver. Not `Via`, for which some servers
/// stop compressing.
const VIA: HeaderName = HeaderName::from_static("x-elasti-via");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Whether a request or an answer asks for another protocol on its connection.
pub(crate) fn is_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(UPGRADE)
        && headers.get_all(CONNECTION).iter().any(|value| {
            value
                .to_str()
                .is_ok_and(|value| value.split(',').any(|token| token.trim().eq_ignore_ascii_case("upgrade")))
        })
}

/// Takes away what is about the connection it came on, and what `Connection` says is.
pub(crate) fn strip(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let named: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(|token| token.trim().parse().ok())
            // Whose a request is, how long it is and where it has been must not be taken away.
            .filter(|name| *name != HOST && *name != CONTENT_LENGTH && *name != VIA)
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    for name in [CONNECTION, KEEP_ALIVE, PROXY_CONNECTION, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    // Trailers are carried over; gRPC insists on being told so.
    let trailers = headers.get(TE).is_some_and(|te| te.as_bytes().eq_ignore_ascii_case(b"trailers"));
    if !trailers {
        headers.remove(TE);
    }
}

/// How often a request has come through a resolver for this service already. A pod that passes
/// on what it gets may well ask its own service again, but not for ever.
pub(crate) fn rounds(headers: &HeaderMap, service: &str) -> usize {
    let names = headers.get_all(VIA).iter().filter_map(|value| value.to_str().ok());
    names.flat_map(|value| value.split(',')).filter(|name| name.trim() == service).count()
}

/// Prepares the headers of a request for the pod.
pub(crate) fn forward(
    headers: &mut HeaderMap,
    client: &HeaderValue,
    host: Option<HeaderValue>,
    service: &HeaderValue,
) {
    headers.append(VIA, service.clone());
    // The first read of the body sends the "100 Continue" that this asks for.
    headers.remove(EXPECT);
    let before = headers.get(FORWARDED_FOR).map(HeaderValue::as_bytes).filter(|before| !before.is_empty());
    let chain = match before {
        Some(before) => HeaderValue::from_bytes(&[before, b", ", client.as_bytes()].concat()),
        None => Ok(client.clone()),
    };
    headers.insert(FORWARDED_FOR, chain.unwrap_or_else(|_| client.clone()));
    if !headers.contains_key(FORWARDED_HOST)
        && let Some(host) = host
    {
        headers.insert(FORWARDED_HOST, host);
    }
    if !headers.contains_key(FORWARDED_PROTO) {
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static("http"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn what_is_about_the_connection_stays_behind() {
        let mut given = headers(&[
            ("connection", "close, x-private, host"),
            ("x-private", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "gzip"),
            ("host", "web"),
            ("accept", "*/*"),
        ]);
        strip(&mut given);
        assert_eq!(given, headers(&[("host", "web"), ("accept", "*/*")]));
    }

    #[test]
    fn the_client_is_added_to_those_before_it() {
        let mut given = headers(&[("x-forwarded-for", "10.0.0.1"), ("expect", "100-continue")]);
        let service = HeaderValue::from_static("shop/web");
        let host = Some(HeaderValue::from_static("web.shop"));
        forward(&mut given, &HeaderValue::from_static("10.0.0.2"), host, &service);
        assert_eq!((rounds(&given, "shop/web"), rounds(&given, "shop/other")), (1, 0));
        assert_eq!(given["x-forwarded-for"], "10.0.0.1, 10.0.0.2");
        assert_eq!(given["x-forwarded-host"], "web.shop");
        assert!(!given.contains_key("expect"));
    }

    #[test]
    fn an_upgrade_needs_both_headers() {
        assert!(is_upgrade(&headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")])));
        assert!(!is_upgrade(&headers(&[("upgrade", "websocket")])));
        assert!(!is_upgrade(&headers(&[("connection", "keep-alive")])));
    }
}
