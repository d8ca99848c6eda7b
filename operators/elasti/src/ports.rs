//! A port of its own at the resolver for each port of a Service, so that it need not be guessed from
//! what a client says whose a connection is.

use crate::types::{ElastiService, ResolverPort};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;
use steersman::Key;
use steersman_resolver::ServicePort;

/// How long every resolver gets to listen on a new port before connections are sent there.
pub(crate) const SETTLE: Duration = Duration::from_secs(2);

/// The ports of a Service, each with its own at the resolver.
pub(crate) type Own = BTreeMap<u16, u16>;

/// The ports that an ElastiService has.
pub(crate) fn of(elasti: &ElastiService) -> Own {
    let ports = elasti.status.iter().flat_map(|status| &status.resolver_ports);
    ports.map(|one| (one.port, one.resolver_port)).collect()
}

/// As a status says them.
pub(crate) fn told(own: &Own) -> Vec<ResolverPort> {
    own.iter().map(|(&port, &resolver_port)| ResolverPort { port, resolver_port }).collect()
}

/// Gives every port of a Service one of its own that nobody else has; those it has it keeps. Where the
/// range is used up, the rest has none and is told apart by `Host`.
pub(crate) fn assign(
    key: &Key,
    ports: &[ServicePort],
    before: &Own,
    taken: &BTreeSet<u16>,
    range: &RangeInclusive<u16>,
) -> Own {
    let mut own = Own::new();
    let mut used: BTreeSet<u16> = taken.clone();
    for port in ports {
        let kept = before.get(&port.number).filter(|kept| range.contains(kept) && !used.contains(kept));
        if let Some(&found) = kept {
            used.insert(found);
            own.insert(port.number, found);
        }
    }
    if range.is_empty() {
        return own;
    }
    let size = u32::from(range.end().saturating_sub(*range.start())) + 1;
    for port in ports {
        if own.contains_key(&port.number) {
            continue;
        }
        // Where to begin depends on the name, so that a port rarely changes hands.
        let seed = format!("{key}:{}", port.number);
        let hash =
            seed.bytes().fold(0x811c_9dc5_u32, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let places = (0..size).map(|step| (hash.wrapping_add(step)) % size);
        let candidates = places.filter_map(|place| range.start().checked_add(u16::try_from(place).ok()?));
        if let Some(found) = candidates.into_iter().find(|found| !used.contains(found)) {
            used.insert(found);
            own.insert(port.number, found);
        }
    }
    own
}

/// Whether a slice leads to these ports already.
pub(crate) fn leads_there(slice: &EndpointSlice, own: &Own) -> bool {
    let numbers = slice.ports.iter().flatten().filter_map(|port| u16::try_from(port.port?).ok());
    let numbers: BTreeSet<u16> = numbers.collect();
    !own.is_empty() && own.values().all(|own| numbers.contains(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(numbers: &[u16]) -> Vec<ServicePort> {
        numbers.iter().map(|&number| ServicePort { number, name: number.to_string() }).collect()
    }

    #[test]
    fn every_port_has_one_of_its_own_that_nobody_else_has() {
        let range = 10_000..=10_003;
        let web = Key::new("shop", "web");
        let first = assign(&web, &ports(&[80, 81]), &Own::new(), &BTreeSet::new(), &range);
        assert_eq!(first.len(), 2);
        let taken: BTreeSet<u16> = first.values().copied().collect();
        assert_eq!(taken.len(), 2);
        let other = assign(&Key::new("lab", "web"), &ports(&[80, 81, 82]), &Own::new(), &taken, &range);
        assert!(other.values().all(|own| !taken.contains(own) && range.contains(own)));
        assert_eq!(other.len(), 2, "the range is used up");
    }

    #[test]
    fn what_was_given_is_kept_and_what_is_gone_is_given_back() {
        let range = 10_000..=19_999;
        let web = Key::new("shop", "web");
        let before = assign(&web, &ports(&[80, 81]), &Own::new(), &BTreeSet::new(), &range);
        let after = assign(&web, &ports(&[81, 443]), &before, &BTreeSet::new(), &range);
        assert_eq!(after[&81], before[&81]);
        assert!(after.contains_key(&443) && !after.contains_key(&80));
        assert_eq!(assign(&web, &ports(&[80, 81]), &before, &BTreeSet::new(), &range), before);
    }
}
