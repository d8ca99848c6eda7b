//! A certificate authority of our own, and when what it made is replaced.
//!
//! ```text
//!   CA 1   |====================|- - - -|        replaced after two thirds of its life;
//!   CA 2                |====================|   trusted before anything is signed with it
//!   shown  |-1-|-1-|-1-|-1-|-1-|-2-|-2-| …       certificates, replaced after two thirds of theirs
//! ```
//!
//! [`State::next`] decides it all from what there is and what time it is, so that replicas that share a
//! [`State`] agree without talking.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use x509_parser::extensions::GeneralName;

use super::WebhookError;
use super::certificates::Identity;

/// How long certificates live, and how long a new CA is only trusted before it signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Of a certificate authority. Two years.
    pub authority: Duration,
    /// Of a serving certificate. 90 days.
    pub serving: Duration,
    /// Between the announcement of a new CA and its first signature. An hour.
    pub overlap: Duration,
    /// How often it is looked whether anything must be replaced. A minute.
    pub check: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        Self {
            authority: 730 * DAY,
            serving: 90 * DAY,
            overlap: Duration::from_secs(3600),
            check: Duration::from_secs(60),
        }
    }
}

/// Certificates are good from this long before they were made: clocks differ.
const SKEW: Duration = Duration::from_secs(300);

/// Everything there is: authorities, the oldest first, and the certificate that is shown.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct State {
    pub(super) authorities: Vec<Identity>,
    pub(super) serving: Identity,
}

/// What is written in a certificate.
struct Facts {
    made: Timestamp,
    expires: Timestamp,
    subject: String,
    issuer: String,
    names: Vec<String>,
}

impl State {
    /// All authorities' certificates, for those who must trust what any of them signed.
    pub(super) fn bundle(&self) -> String {
        self.authorities.iter().map(|authority| authority.certificate.as_str()).collect()
    }

    /// What there should be now, where that differs from what there is.
    ///
    /// What cannot be read counts as absent.
    pub(super) fn next(
        before: Option<&Self>,
        names: &[String],
        lifetimes: &Lifetimes,
        now: Timestamp,
    ) -> Result<Option<Self>, WebhookError> {
        let known = before.map(|state| state.authorities.as_slice()).unwrap_or_default();
        let mut authorities: Vec<(Identity, Facts)> = known
            .iter()
            .filter_map(|identity| Some((identity.clone(), facts(&identity.certificate)?)))
            .filter(|(_, facts)| facts.expires > now)
            .collect();
        let worn = authorities.last().is_none_or(|(_, facts)| is_worn(facts, now));
        if worn {
            let made = make_authority(lifetimes.authority, now)?;
            let facts = facts(&made.certificate)
                .ok_or_else(|| WebhookError::Certificate("our own CA cannot be read".to_owned()))?;
            authorities.push((made, facts));
        }
        let overlap = lifetimes.overlap;
        let announced = |facts: &Facts| now >= later(facts.made, overlap);
        let (signer, signer_facts) = authorities
            .iter()
            .rev()
            .find(|(_, facts)| announced(facts))
            .or_else(|| authorities.first())
            .ok_or_else(|| WebhookError::Certificate("there is no CA".to_owned()))?;
        let fits = before.and_then(|state| facts(&state.serving.certificate)).is_some_and(|facts| {
            facts.issuer == signer_facts.subject && !is_worn(&facts, now) && same(&facts.names, names)
        });
        let serving = match before {
            Some(state) if fits => state.serving.clone(),
            _ => make_serving(signer, names, lifetimes.serving, now)?,
        };
        let authorities = authorities.into_iter().map(|(identity, _)| identity).collect();
        let after = Self { authorities, serving };
        Ok((before != Some(&after)).then_some(after))
    }
}

/// Whether two thirds of a certificate's life are over.
fn is_worn(facts: &Facts, now: Timestamp) -> bool {
    let life = facts.expires.as_second() - facts.made.as_second();
    now.as_second() - facts.made.as_second() >= life * 2 / 3
}

fn same(left: &[String], right: &[String]) -> bool {
    left.len() == right.len() && left.iter().all(|name| right.contains(name))
}

fn later(time: Timestamp, duration: Duration) -> Timestamp {
    time.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

fn make_authority(life: Duration, now: Timestamp) -> Result<Identity, WebhookError> {
    let mut params = params(Vec::new(), life, now)?;
    // Names tell authorities apart: an issuer is found by its name.
    let name = format!("steersman webhook CA {:016x}", rand::random::<u64>());
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate().map_err(|error| unmade(&error))?;
    let certificate = params.self_signed(&key).map_err(|error| unmade(&error))?;
    Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn make_serving(
    authority: &Identity,
    names: &[String],
    life: Duration,
    now: Timestamp,
) -> Result<Identity, WebhookError> {
    let key = KeyPair::from_pem(&authority.key).map_err(|error| unmade(&error))?;
    let issuer = Issuer::from_ca_cert_pem(&authority.certificate, key).map_err(|error| unmade(&error))?;
    let mut params = params(names.to_vec(), life, now)?;
    params.distinguished_name.push(DnType::CommonName, names.first().map_or("webhooks", String::as_str));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().map_err(|error| unmade(&error))?;
    let certificate = params.signed_by(&key, &issuer).map_err(|error| unmade(&error))?;
    Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn params(names: Vec<String>, life: Duration, now: Timestamp) -> Result<CertificateParams, WebhookError> {
    let mut params = CertificateParams::new(names).map_err(|error| unmade(&error))?;
    let now = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or(0));
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(SKEW);
    params.not_after = epoch + now + life;
    params.distinguished_name = DistinguishedName::new();
    Ok(params)
}

fn unmade(error: &rcgen::Error) -> WebhookError {
    WebhookError::Certificate(format!("it cannot be made: {error}"))
}

fn facts(pem: &str) -> Option<Facts> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).ok()?;
    let certificate = pem.parse_x509().ok()?;
    let validity = certificate.validity();
    let time = |seconds: i64| Timestamp::from_second(seconds).ok();
    let names = match certificate.subject_alternative_name() {
        Ok(Some(extension)) => extension.value.general_names.iter().filter_map(name_text).collect(),
        _ => Vec::new(),
    };
    Some(Facts {
        made: later(time(validity.not_before.timestamp())?, SKEW),
        expires: time(validity.not_after.timestamp())?,
        subject: certificate.subject().to_string(),
        issuer: certificate.issuer().to_string(),
        names,
    })
}

fn name_text(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match *bytes {
            [a, b, c, d] => Some(std::net::Ipv4Addr::new(*a, *b, *c, *d).to_string()),
            bytes => {
                let bytes: [u8; 16] = bytes.try_into().ok()?;
                Some(std::net::Ipv6Addr::from(bytes).to_string())
            }
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVES: Lifetimes = Lifetimes {
        authority: Duration::from_secs(9000),
        serving: Duration::from_secs(900),
        overlap: Duration::from_secs(100),
        check: Duration::from_secs(10),
    };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).expect("a time")
    }

    /// Every look at every moment of several lives: what is shown is always signed by an authority that
    /// was announced long enough before, and nothing is ever shown beyond its life.
    #[test]
    fn certificates_are_replaced_in_time_and_signed_by_authorities_known_before() {
        let names = vec!["a.b.svc".to_owned(), "127.0.0.1".to_owned()];
        let mut state = None;
        let mut announced: Vec<(String, i64)> = Vec::new();
        let (mut servings, mut changes) = (0, 0);
        for second in (0..30_000).step_by(10) {
            if let Some(next) = State::next(state.as_ref(), &names, &LIVES, at(second)).expect("a state") {
                changes += 1;
                if state.as_ref().is_none_or(|before: &State| before.serving != next.serving) {
                    servings += 1;
                }
                state = Some(next);
            }
            let now: &State = state.as_ref().expect("made at first");
            for authority in &now.authorities {
                let subject = facts(&authority.certificate).expect("readable").subject;
                if announced.iter().all(|(known, _)| *known != subject) {
                    announced.push((subject, second));
                }
            }
            let shown = facts(&now.serving.certificate).expect("readable");
            assert!(shown.expires > at(second), "expired at {second}");
            let (_, since) = announced.iter().find(|(known, _)| *known == shown.issuer).expect("announced");
            assert!(
                *since == 0 || second - since >= 100,
                "signed {}s after its announcement",
                second - since
            );
        }
        assert!(announced.len() >= 4, "{} authorities", announced.len());
        assert!(servings >= 40, "{servings} certificates");
        assert!(changes < 100, "{changes} changes");
    }

    #[test]
    fn other_names_and_damaged_state_lead_to_a_new_certificate() {
        let names = |name: &str| vec![name.to_owned()];
        let first = State::next(None, &names("a"), &LIVES, at(0)).expect("a state").expect("new");
        assert!(State::next(Some(&first), &names("a"), &LIVES, at(1)).expect("a state").is_none());
        let renamed =
            State::next(Some(&first), &names("b"), &LIVES, at(1)).expect("a state").expect("changed");
        assert!(renamed.serving != first.serving && renamed.authorities == first.authorities);
        let mut damaged = first;
        damaged.serving.certificate = "garbage".to_owned();
        let mended =
            State::next(Some(&damaged), &names("a"), &LIVES, at(1)).expect("a state").expect("changed");
        assert_eq!(facts(&mended.serving.certificate).expect("readable").names, names("a"));
    }
}
