//! One API server.

use std::{fmt, net::Ipv4Addr, str::FromStr, sync::Arc};

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::{
    admit::addresses::Addresses,
    auth::Authenticator,
    bootstrap,
    definitions::{self, Served},
    engine::{Engine, LastSweep, view},
    http::InProcess,
    openapi::Descriptions,
    store::{Store, WriteError},
};

/// Tells the time. Nothing else in the crate reads a clock.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Who sends a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Name, for example `admin` or `system:node:one`.
    pub name: String,
    /// Groups, for example `system:masters`.
    pub groups: Vec<String>,
}

impl User {
    /// A user of these groups; every user is also in `system:authenticated`.
    pub fn new(name: impl Into<String>, groups: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let mut groups: Vec<String> = groups.into_iter().map(Into::into).collect();
        if !groups.iter().any(|group| group == "system:authenticated") {
            groups.push("system:authenticated".to_owned());
        }
        Self { name: name.into(), groups }
    }

    /// A user who may do everything.
    pub fn admin() -> Self {
        Self::new("admin", ["system:masters"])
    }
}

/// Whether EndpointSlices and Endpoints may name loopback addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LoopbackEndpoints {
    /// They may not, as on every other API server.
    #[default]
    Refuse,
    /// They may: pods that are plain processes have loopback addresses.
    Accept,
}

/// Whether pods act as service accounts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ServiceAccounts {
    /// They only name one: nobody makes accounts, as in most tests.
    #[default]
    Ignored,
    /// A pod's account must be there, and its token is mounted into the pod.
    Mounted,
}

/// The range of addresses that Services get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceCidr {
    /// Its first address.
    pub base: Ipv4Addr,
    /// Length of its prefix, 8 to 30.
    pub prefix: u8,
}

impl ServiceCidr {
    /// How many addresses it has.
    pub(crate) fn size(self) -> u32 {
        1 << (32 - u32::from(self.prefix.clamp(8, 30)))
    }

    /// Whether an address is in it.
    pub(crate) fn contains(self, address: Ipv4Addr) -> bool {
        let (base, address) = (u32::from(self.base), u32::from(address));
        (base..base + self.size()).contains(&address)
    }

    /// The address of the API server itself: the first after the base.
    pub fn first(self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.base) + 1)
    }
}

impl Default for ServiceCidr {
    /// 10.96.0.0/16
    fn default() -> Self {
        Self { base: Ipv4Addr::new(10, 96, 0, 0), prefix: 16 }
    }
}

impl fmt::Display for ServiceCidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

/// A text that is no range of addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a range of IPv4 addresses with a prefix of 8 to 30 bits, such as 10.96.0.0/16")]
pub struct CidrError(String);

impl FromStr for ServiceCidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let parse = || {
            let (base, prefix) = text.split_once('/')?;
            let base: Ipv4Addr = base.parse().ok()?;
            let prefix: u8 = prefix.parse().ok().filter(|prefix| (8..=30).contains(prefix))?;
            let mask = u32::MAX << (32 - u32::from(prefix));
            (u32::from(base) & !mask == 0).then_some(Self { base, prefix })
        };
        parse().ok_or_else(|| CidrError(text.to_owned()))
    }
}

/// How the API server calls kubelets, for logs.
#[derive(Debug, Clone)]
pub struct KubeletClient {
    /// The client certificate that kubelets know, in PEM.
    pub certificate_pem: String,
    /// Its key, in PEM.
    pub key_pem: String,
    /// The CA of kubelets' serving certificates, in PEM; none accepts any, as Kubernetes does by default.
    pub ca_pem: Option<String>,
}

/// How an API server is set up.
#[derive(Clone)]
pub struct Options {
    /// Tells the time; the system's by default.
    pub clock: Clock,
    /// Whether endpoints may be loopback addresses; refused by default, as elsewhere.
    pub loopback_endpoints: LoopbackEndpoints,
    /// Whether pods get the token of their service account; by default they do not.
    pub service_accounts: ServiceAccounts,
    /// The range of Services' addresses; 10.96.0.0/16 by default.
    pub service_cidr: ServiceCidr,
    /// The address and port that `default/kubernetes` points to; none by default, then it has no endpoints.
    pub advertise: Option<std::net::SocketAddr>,
    /// How kubelets are called; none by default, then there are no logs.
    pub kubelet: Option<KubeletClient>,
    /// Who is who on the network; nobody by default. In-process callers need none of it.
    pub authenticator: Option<Arc<Authenticator>>,
    /// What built-in types are for, in words, asked for when a client wants to read them; none by default.
    pub descriptions: Option<fn() -> &'static Descriptions>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: Arc::new(Timestamp::now),
            loopback_endpoints: LoopbackEndpoints::default(),
            service_accounts: ServiceAccounts::default(),
            service_cidr: ServiceCidr::default(),
            advertise: None,
            kubelet: None,
            authenticator: None,
            descriptions: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("loopback_endpoints", &self.loopback_endpoints)
            .field("service_cidr", &self.service_cidr)
            .field("advertise", &self.advertise)
            .finish_non_exhaustive()
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The first objects could not be written.
    #[error("cannot write the first objects: {0}")]
    Bootstrap(#[from] WriteError),
}

/// An API server. Cheap to clone; all clones are the same server.
#[derive(Clone)]
pub struct Server {
    pub(crate) engine: Arc<Engine>,
    /// Ends the task beside requests with the last clone.
    _tasks: Arc<Tasks>,
}

struct Tasks {
    closing: CancellationToken,
    definitions: tokio::task::JoinHandle<()>,
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.closing.cancel();
        self.definitions.abort();
    }
}

impl Server {
    /// Opens a server on a store: loads its definitions and makes the objects that every cluster has.
    ///
    /// # Errors
    /// When the store refuses those objects.
    pub async fn open(store: Store, options: Options) -> Result<Self, OpenError> {
        let services: Vec<_> = store.list("services", None).iter().map(|stored| view::tree(stored)).collect();
        let closing = CancellationToken::new();
        let engine = Arc::new(Engine {
            served: arc_swap::ArcSwap::from_pointee(Served::load(&store)),
            addresses: Addresses::load(options.service_cidr, services.into_iter()),
            store,
            options,
            webhooks: crate::admit::webhook::Webhooks::default(),
            conversions: crate::conversion::Kept::default(),
            last_sweep: LastSweep::default(),
            closing: closing.clone(),
        });
        bootstrap::run(&engine).await?;
        let definitions =
            tokio::spawn(definitions::run(Arc::downgrade(&engine), engine.store.clone(), closing.clone()));
        Ok(Self { engine, _tasks: Arc::new(Tasks { closing, definitions }) })
    }

    /// The server as a service for a client in the same process, which acts as this user.
    pub fn service(&self, user: User) -> InProcess {
        InProcess::new(self.clone(), user)
    }

    /// The store below.
    pub fn store(&self) -> &Store {
        &self.engine.store
    }

    /// What the server was opened with.
    pub fn options(&self) -> &Options {
        &self.engine.options
    }

    /// Ends all watches and what runs beside requests. Requests that come later still read and write the store.
    pub fn close(&self) {
        self.engine.closing.cancel();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("revision", &self.engine.store.revision()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_addresses_are_read_and_checked() {
        let range: ServiceCidr = "10.96.0.0/16".parse().expect("a range");
        assert_eq!((range, range.first().to_string().as_str()), (ServiceCidr::default(), "10.96.0.1"));
        assert!(
            range.contains(Ipv4Addr::new(10, 96, 255, 1)) && !range.contains(Ipv4Addr::new(10, 97, 0, 0))
        );
        for bad in ["10.96.0.0", "10.96.0.1/16", "x/16", "10.0.0.0/33", "10.0.0.0/4"] {
            assert!(bad.parse::<ServiceCidr>().is_err(), "{bad}");
        }
    }
}
