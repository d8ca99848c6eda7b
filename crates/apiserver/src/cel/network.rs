//! Addresses: of hosts, of networks, of pages.

use std::net::IpAddr;

/// A network, with the address as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cidr {
    pub(super) address: IpAddr,
    pub(super) prefix: u8,
}

/// An address of a host: no zones, no IPv4 dressed as IPv6, no leading zeros.
pub(super) fn ip(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.parse().ok()?;
    match address {
        IpAddr::V6(six) if six.to_ipv4_mapped().is_some() => None,
        other => Some(other),
    }
}

fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(four) => (u128::from(u32::from(four)) << 96, 32),
        IpAddr::V6(six) => (u128::from(six), 128),
    }
}

impl Cidr {
    pub(super) fn parse(text: &str) -> Option<Cidr> {
        let (address, prefix) = text.split_once('/')?;
        let address = ip(address)?;
        if prefix.len() > 1 && prefix.starts_with('0') {
            return None;
        }
        let prefix: u8 = prefix.parse().ok()?;
        (prefix <= bits(address).1).then_some(Cidr { address, prefix })
    }

    fn mask(self) -> u128 {
        u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0)
    }

    pub(super) fn contains(self, address: IpAddr) -> bool {
        let ((own, length), (other, other_length)) = (bits(self.address), bits(address));
        length == other_length && own & self.mask() == other & self.mask()
    }

    pub(super) fn contains_network(self, other: Cidr) -> bool {
        self.prefix <= other.prefix && self.contains(other.address)
    }

    pub(super) fn masked(self) -> Cidr {
        let masked = bits(self.address).0 & self.mask();
        let address = match self.address {
            IpAddr::V4(_) => IpAddr::V4(((masked >> 96) as u32).into()),
            IpAddr::V6(_) => IpAddr::V6(masked.into()),
        };
        Cidr { address, prefix: self.prefix }
    }
}

/// An absolute address of a page, or an absolute path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(super) text: String,
    pub(super) scheme: String,
    pub(super) host: String,
    pub(super) path: String,
    pub(super) query: String,
}

impl Url {
    pub(super) fn parse(text: &str) -> Option<Url> {
        if text.is_empty() || text.chars().any(|c| c.is_control() || c == ' ') {
            return None;
        }
        let whole = text.to_owned();
        let (scheme, rest) = match text.split_once(':') {
            Some((scheme, rest)) if is_scheme(scheme) => (scheme.to_ascii_lowercase(), rest),
            _ if text.starts_with('/') => (String::new(), text),
            _ => return None,
        };
        let (host, rest) = match rest.strip_prefix("//") {
            Some(rest) => {
                let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                let (authority, rest) = rest.split_at(end);
                (authority.rsplit('@').next().unwrap_or_default().to_owned(), rest)
            }
            None => (String::new(), rest),
        };
        if !host.is_empty() && !is_host(&host) {
            return None;
        }
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        if !is_escaped(path) {
            return None;
        }
        Some(Url { text: whole, scheme, host, path: path.to_owned(), query: query.to_owned() })
    }

    /// The host without port and brackets.
    pub(super) fn hostname(&self) -> &str {
        match self.host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => self.host.split(':').next().unwrap_or_default(),
        }
    }

    pub(super) fn port(&self) -> &str {
        let after = self.host.rsplit(']').next().unwrap_or_default();
        after.rsplit_once(':').map_or("", |(_, port)| port)
    }

    /// The parameters, each with its values, by name.
    pub(super) fn parameters(&self) -> Vec<(String, Vec<String>)> {
        let mut parameters: Vec<(String, Vec<String>)> = Vec::new();
        for pair in self.query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name), decode(value));
            match parameters.iter_mut().find(|(known, _)| *known == name) {
                Some((_, values)) => values.push(value),
                None => parameters.push((name, vec![value])),
            }
        }
        parameters
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

fn is_host(host: &str) -> bool {
    let port = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((inner, after)) if inner.parse::<std::net::Ipv6Addr>().is_ok() => after,
            _ => return false,
        },
        None => host.find(':').map_or("", |at| &host[at..]),
    };
    port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.chars().all(|c| c.is_ascii_digit()))
}

fn is_escaped(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().enumerate().all(|(at, byte)| {
        *byte != b'%' || bytes.get(at + 1..at + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
    })
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match (first, hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = tail;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_hold_addresses_and_smaller_networks() {
        let network = Cidr::parse("10.1.0.0/16").expect("a network");
        assert!(network.contains(ip("10.1.2.3").expect("an address")));
        assert!(!network.contains(ip("10.2.2.3").expect("an address")));
        assert!(network.contains_network(Cidr::parse("10.1.2.0/24").expect("a network")));
        assert!(!network.contains_network(Cidr::parse("10.0.0.0/8").expect("a network")));
        assert_eq!(Cidr::parse("10.1.2.3/8").map(Cidr::masked), Cidr::parse("10.0.0.0/8"));
        assert!(Cidr::parse("0.0.0.0/0").expect("all").contains(ip("8.8.8.8").expect("an address")));
        for bad in ["10.0.0.0", "10.0.0.0/33", "::ffff:1.2.3.4/96", "a/8", "10.0.0.0/08"] {
            assert_eq!(Cidr::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn addresses_of_pages_are_taken_apart() {
        let url = Url::parse("https://me@example.com:8443/a%20b?k=v1&k=v+2&n").expect("an address");
        assert_eq!((url.scheme.as_str(), url.host.as_str()), ("https", "example.com:8443"));
        assert_eq!((url.hostname(), url.port(), url.path.as_str()), ("example.com", "8443", "/a%20b"));
        let parameters = [
            ("k".to_owned(), vec!["v1".to_owned(), "v 2".to_owned()]),
            ("n".to_owned(), vec![String::new()]),
        ];
        assert_eq!(url.parameters(), parameters);
        assert_eq!(Url::parse("https://[::1]:80/").expect("six").hostname(), "::1");
        assert!(Url::parse("/absolute/path").is_some());
        for bad in ["", "relative", "http://a b/", "https://example.com:abc/", "https://a/%zz"] {
            assert_eq!(Url::parse(bad), None, "{bad}");
        }
    }
}
