//! What the helpers of an ElastiService are called: exactly as KubeElasti calls them.

use sha2::{Digest, Sha256};

/// The finalizer on every ElastiService.
pub const FINALIZER: &str = "elasti.truefoundry.com/finalizer";
/// Who looks after our EndpointSlices, so that nobody else does.
pub const MANAGED_BY: &str = "elasti.truefoundry.com";

/// The Service that leads to the pods whatever the public one does.
pub fn private_service(service: &str) -> String {
    let hash = hash(service);
    bounded(&format!("elasti-{service}-pvt-"), &hash, 63)
}

/// The EndpointSlice that leads to the resolver.
pub fn slice(service: &str) -> String {
    let hash = hash(service);
    bounded(&format!("elasti-{service}-endpointslice-to-resolver-"), &hash, 253)
}

fn hash(service: &str) -> String {
    let digest = Sha256::digest(service.as_bytes());
    digest.iter().take(5).map(|byte| format!("{byte:02x}")).collect()
}

/// The two parts together, or what fits of them.
fn bounded(prefix: &str, hash: &str, longest: usize) -> String {
    let mut name = format!("{prefix}{hash}");
    name.truncate(longest);
    name.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_kubeelasti() {
        for (service, hash) in [
            ("target-deployment", "9696239e87"),
            ("target-statefulset", "ff3e71892b"),
            ("target-grpc", "849ec905b5"),
            ("service", "9df6b026a8"),
        ] {
            assert_eq!(private_service(service), format!("elasti-{service}-pvt-{hash}"));
            assert_eq!(slice(service), format!("elasti-{service}-endpointslice-to-resolver-{hash}"));
        }
    }

    #[test]
    fn long_names_stay_within_what_is_allowed() {
        let long = "a".repeat(63);
        assert!(private_service(&long).len() <= 63);
        assert!(slice(&long).len() <= 253);
        assert!(!private_service(&format!("{}-b", "a".repeat(55))).ends_with('-'));
    }
}
