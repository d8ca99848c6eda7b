//! One service: the requests that wait for it, and the pods that take them.

use crate::metrics::Stats;
use crate::probe::Probe;
use crate::rise::Rise;
use hyper::header::HeaderValue;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// Names a Service.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ServiceKey {
    /// The Service of this name in this namespace.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Whether clients are meant to come through the resolver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// They are: the service sleeps, wakes or is about to sleep.
    #[default]
    Proxy,
    /// They are not: pods serve directly. Requests that still come are handed on all the same,
    /// with a hint to connect anew.
    Serve,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Its number, which clients use.
    pub number: u16,
    /// Its name; empty where there is only one.
    pub name: String,
}

/// How a service looks now.
#[derive(Clone, Debug, Default)]
pub struct Route {
    /// Its ports, in the order of the Service.
    pub ports: Vec<ServicePort>,
    /// The pods that are ready, and no others.
    pub backends: Vec<Backend>,
    /// Whether clients are meant to come here.
    pub mode: Mode,
    /// Requests that are answered without a pod; the first that fits counts.
    pub probes: Arc<[Probe]>,
}

/// A pod that takes requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its address.
    pub address: IpAddr,
    /// Which of its ports stands behind each port of the Service.
    pub ports: BTreeMap<u16, u16>,
}

/// One service: the requests that wait for it, and the pods that take them.
pub struct Target {
    key: ServiceKey,
    /// The key as it is written into requests.
    header: HeaderValue,
    state: Mutex<State>,
    changed: Notify,
    /// Whether a cold start is under way: looked at by every answer, hardly ever true.
    rising: AtomicBool,
    pub(crate) stats: Stats,
}

#[derive(Default)]
struct State {
    ports: Vec<ServicePort>,
    slots: Vec<Arc<Slot>>,
    mode: Mode,
    probes: Arc<[Probe]>,
    /// First come, first served: tickets only grow.
    waiting: BTreeMap<u64, Waiter>,
    tickets: u64,
    waking: bool,
    rise: Option<Rise>,
    closed: bool,
    per_backend: usize,
}

/// A pod and how it does.
struct Slot {
    backend: Backend,
    busy: AtomicUsize,
    trouble: Mutex<Trouble>,
}

#[derive(Default)]
struct Trouble {
    failures: u32,
    until: Option<Instant>,
}

struct Waiter {
    port: u16,
    handover: oneshot::Sender<Permit>,
}

/// The right to send one request to one pod. Dropping it lets the next one go.
pub(crate) struct Permit {
    target: Arc<Target>,
    slot: Arc<Slot>,
    pub(crate) address: SocketAddr,
}

/// Why a request does not get a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Too many wait already.
    Full,
    /// None came in time.
    TimedOut,
    /// The service is no longer known.
    Gone,
}

/// How many requests may wait, and how many do.
#[derive(Debug)]
pub(crate) struct Limits {
    pub(crate) per_service: usize,
    pub(crate) total: usize,
    pub(crate) per_backend: usize,
    pub(crate) pending: AtomicUsize,
}

impl Target {
    pub(crate) fn new(key: ServiceKey) -> Self {
        let header = HeaderValue::from_str(&key.to_string());
        Self {
            header: header.unwrap_or_else(|_| HeaderValue::from_static("unknown")),
            key,
            state: Mutex::default(),
            changed: Notify::new(),
            rising: AtomicBool::new(false),
            stats: Stats::default(),
        }
    }

    /// Which service it is.
    pub fn key(&self) -> &ServiceKey {
        &self.key
    }

    /// The key as it is written into requests.
    pub(crate) fn header(&self) -> &HeaderValue {
        &self.header
    }

    pub(crate) fn label(&self) -> &str {
        self.header.to_str().unwrap_or_default()
    }

    /// How many requests wait.
    pub fn pending(&self) -> usize {
        self.lock().waiting.len()
    }

    /// How many pods are ready.
    pub fn ready(&self) -> usize {
        self.lock().slots.len()
    }

    pub(crate) fn mode(&self) -> Mode {
        self.lock().mode
    }

    /// The requests that are answered without a pod, where there are any.
    pub(crate) fn probes(&self) -> Option<Arc<[Probe]>> {
        let state = self.lock();
        (!state.probes.is_empty()).then(|| Arc::clone(&state.probes))
    }

    /// The port of the Service that a request means: the one it names; else that of plain HTTP, or
    /// the first.
    pub(crate) fn port(&self, named: Option<u16>) -> Option<u16> {
        let state = self.lock();
        let wanted = named.unwrap_or(80);
        let has = |number: u16| state.ports.iter().any(|port| port.number == number);
        match named {
            _ if has(wanted) => Some(wanted),
            // A forwarded port says nothing; with one port there is nothing to choose.
            Some(_) if state.ports.len() != 1 => None,
            _ => state.ports.first().map(|port| port.number),
        }
    }

    pub(crate) fn set(self: &Arc<Self>, route: Route) {
        {
            let mut state = self.lock();
            let before = std::mem::take(&mut state.slots);
            state.slots = route
                .backends
                .into_iter()
                .map(|backend| match before.iter().find(|slot| slot.backend == backend) {
                    Some(slot) => Arc::clone(slot),
                    None => Arc::new(Slot { backend, busy: AtomicUsize::new(0), trouble: Mutex::default() }),
                })
                .collect();
            state.ports = route.ports;
            if state.mode != route.mode {
                self.stats.switched();
            }
            state.mode = route.mode;
            state.probes = route.probes;
            let awake = !state.slots.is_empty();
            if let Some(rise) = state.rise.as_mut().filter(|_| awake) {
                rise.ready();
            }
        }
        self.changed.notify_waiters();
        self.dispatch();
    }

    /// Refuses everything that waits and will come.
    pub(crate) fn close(&self) {
        let waiting = {
            let mut state = self.lock();
            state.closed = true;
            state.slots.clear();
            std::mem::take(&mut state.waiting)
        };
        drop(waiting);
        self.changed.notify_waiters();
    }

    /// A pod for one request: at once where one has room, else after those that came before.
    /// `wake` is called when there is no pod at all and nobody is asking for one yet.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        port: u16,
        deadline: Instant,
        limits: &Limits,
        wake: impl FnOnce(),
    ) -> Result<Permit, Refused> {
        let (ticket, mut handover, begins_waking) = {
            let mut state = self.lock();
            state.per_backend = limits.per_backend;
            if state.closed {
                return Err(Refused::Gone);
            }
            if state.waiting.is_empty()
                && let Some(slot) = state.pick(port)
            {
                drop(state);
                return Ok(self.permit(slot, port));
            }
            if state.waiting.len() >= limits.per_service {
                return Err(Refused::Full);
            }
            let ticket = Ticket::draw(Arc::clone(self), limits, &mut state).ok_or(Refused::Full)?;
            let (sender, handover) = oneshot::channel();
            state.waiting.insert(ticket.number, Waiter { port, handover: sender });
            let begins_waking = state.slots.is_empty() && !state.waking;
            state.waking |= begins_waking;
            if begins_waking {
                state.rise = Some(Rise::begin());
                self.rising.store(true, Ordering::Relaxed);
            }
            (ticket, handover, begins_waking)
        };
        self.stats.held(1);
        if begins_waking {
            wake();
        }
        let permit = loop {
            self.dispatch();
            let until = self.trouble_ends().map_or(deadline, |end| end.min(deadline));
            tokio::select! {
                biased;
                permit = &mut handover => break permit.map_err(|_| Refused::Gone),
                () = tokio::time::sleep_until(until) => {
                    if Instant::now() >= deadline {
                        break Err(Refused::TimedOut);
                    }
                }
            }
        };
        drop(ticket);
        permit
    }

    /// A wake-up call was acknowledged.
    pub(crate) fn notified(&self) {
        if let Some(rise) = &mut self.lock().rise {
            rise.notified();
        }
    }

    /// This many pods exist, ready or not.
    pub(crate) fn scheduled(&self, pods: usize) {
        if pods > 0
            && let Some(rise) = &mut self.lock().rise
        {
            rise.scheduled();
        }
    }

    /// A pod has answered; the cold start that this ends, if it does.
    pub(crate) fn answered(&self) -> Option<Rise> {
        if !self.rising.load(Ordering::Relaxed) {
            return None;
        }
        let mut state = self.lock();
        let rise = state.rise.take_if(|rise| rise.is_ready());
        self.rising.store(state.rise.is_some(), Ordering::Relaxed);
        rise
    }

    /// Waits until waking makes sense to think about again; false once nobody asks any more.
    pub(crate) async fn keep_waking(&self, delay: Duration) -> bool {
        let changed = self.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        if !self.still_waking() {
            return false;
        }
        // Either way there is news to look at.
        let _ = tokio::time::timeout(delay, changed).await;
        self.still_waking()
    }

    /// Whether requests wait and no pod is there; gives up the role of asking when not.
    pub(crate) fn still_waking(&self) -> bool {
        let mut state = self.lock();
        state.waking = !state.closed && state.slots.is_empty() && !state.waiting.is_empty();
        if !state.waking && state.slots.is_empty() {
            // Everyone left before a pod came: there will be no answer to measure.
            state.rise = None;
        }
        state.waking
    }

    /// Gives pods to those who wait, as far as pods have room.
    fn dispatch(self: &Arc<Self>) {
        loop {
            let (waiter, slot) = {
                let mut state = self.lock();
                if !state.has_room() {
                    return;
                }
                let free = state.waiting.iter().find_map(|(&number, waiter)| {
                    let slot = state.pick(waiter.port)?;
                    Some((number, slot))
                });
                let Some((number, slot)) = free else {
                    return;
                };
                let Some(waiter) = state.waiting.remove(&number) else {
                    return;
                };
                (waiter, slot)
            };
            // Out of the lock: a permit that nobody takes any more comes back here.
            let permit = self.permit(slot, waiter.port);
            drop(waiter.handover.send(permit));
        }
    }

    fn permit(self: &Arc<Self>, slot: Arc<Slot>, port: u16) -> Permit {
        let port = slot.backend.ports.get(&port).copied().unwrap_or(port);
        let address = SocketAddr::new(slot.backend.address, port);
        Permit { target: Arc::clone(self), slot, address }
    }

    /// When the next pod that could not be reached may be tried again.
    fn trouble_ends(&self) -> Option<Instant> {
        let state = self.lock();
        state.slots.iter().filter_map(|slot| lock(&slot.trouble).until).min()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    /// Whether any pod can take anything: without one, a long queue need not be gone through.
    fn has_room(&self) -> bool {
        let room = |slot: &Arc<Slot>| slot.busy.load(Ordering::Relaxed) < self.per_backend.max(1);
        !self.waiting.is_empty() && self.slots.iter().any(room)
    }

    /// The pod with the fewest requests that has this port and room, and takes the place in it.
    fn pick(&self, port: u16) -> Option<Arc<Slot>> {
        let room = |slot: &&Arc<Slot>| {
            slot.backend.ports.contains_key(&port)
                && slot.busy.load(Ordering::Relaxed) < self.per_backend.max(1)
                && lock(&slot.trouble).until.is_none_or(|until| until <= Instant::now())
        };
        let slot = self.slots.iter().filter(room).min_by_key(|slot| slot.busy.load(Ordering::Relaxed))?;
        slot.busy.fetch_add(1, Ordering::Relaxed);
        Some(Arc::clone(slot))
    }
}

impl Permit {
    /// The pod could not be reached: others go first for a moment.
    pub(crate) fn unreachable(self) {
        const FIRST: Duration = Duration::from_millis(20);
        const LONGEST: Duration = Duration::from_secs(1);
        let mut trouble = lock(&self.slot.trouble);
        let pause = FIRST.saturating_mul(1 << trouble.failures.min(8)).min(LONGEST);
        trouble.failures = trouble.failures.saturating_add(1);
        trouble.until = Some(Instant::now() + pause);
    }

    /// The pod was reached.
    pub(crate) fn reached(&self) {
        let mut trouble = lock(&self.slot.trouble);
        if trouble.failures > 0 {
            *trouble = Trouble::default();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.slot.busy.fetch_sub(1, Ordering::Relaxed);
        self.target.dispatch();
    }
}

/// A place in the queue. Dropping it gives the place up, whoever left: the request that got its
/// pod, or the client.
struct Ticket<'a> {
    target: Arc<Target>,
    limits: &'a Limits,
    number: u64,
}

impl<'a> Ticket<'a> {
    fn draw(target: Arc<Target>, limits: &'a Limits, state: &mut State) -> Option<Self> {
        let taken = limits.pending.fetch_add(1, Ordering::Relaxed);
        if taken >= limits.total {
            limits.pending.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        state.tickets += 1;
        Some(Self { target, limits, number: state.tickets })
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let (waiter, last) = {
            let mut state = self.target.lock();
            let waiter = state.waiting.remove(&self.number);
            (waiter, state.waiting.is_empty())
        };
        drop(waiter);
        if last {
            self.target.changed.notify_waiters();
        }
        self.limits.pending.fetch_sub(1, Ordering::Relaxed);
        self.target.stats.held(-1);
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Target").field(&self.key).finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
