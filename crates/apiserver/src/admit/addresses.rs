//! Addresses and node ports of Services: given out once, whoever asks at the same time.

use std::{
    collections::BTreeSet,
    net::Ipv4Addr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rand::Rng as _;
use serde_json::{Value, json};

use crate::{
    engine::{Call, DryRun, meta::Meta},
    schema::FieldError,
    server::ServiceCidr,
    status::Failure,
    types::Resource,
};

/// Node ports are given out of these.
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;

/// What is given out.
#[derive(Debug)]
pub(crate) struct Addresses {
    range: ServiceCidr,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    addresses: BTreeSet<u32>,
    ports: BTreeSet<u16>,
}

impl Addresses {
    /// From the Services there are.
    pub(crate) fn load(range: ServiceCidr, services: impl Iterator<Item = Value>) -> Self {
        let addresses = Self { range, used: Mutex::default() };
        addresses.reload(services);
        addresses
    }

    /// The same again, when Services came and went without being asked for here.
    pub(crate) fn reload(&self, services: impl Iterator<Item = Value>) {
        let mut used = Used::default();
        for service in services {
            used.addresses.extend(address_of(&service).map(u32::from));
            used.ports.extend(ports_of(&service));
        }
        *self.lock() = used;
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a Service what it needs and does not have. What is reserved is given back unless it is kept.
    pub(crate) fn assign(
        &self,
        call: &Call<'_>,
        service: &mut Value,
        live: Option<&Value>,
    ) -> Result<Reserved<'_>, Failure> {
        let mut reserved =
            Reserved { addresses: self, new: Used::default(), old: Used::default(), kept: false };
        if &*call.resource.storage.name != "services" {
            return Ok(reserved);
        }
        let invalid =
            |service: &Value, error: FieldError| Failure::invalid("", "Service", service.name(), &[error]);
        let kind = service["spec"]["type"].as_str().unwrap_or("ClusterIP").to_owned();
        let (had_address, had_ports) =
            live.map_or((None, Vec::new()), |live| (address_of(live), ports_of(live)));
        self.assign_address(service, &kind, had_address, &mut reserved)
            .map_err(|error| invalid(service, error))?;
        let wants_ports = matches!(kind.as_str(), "NodePort" | "LoadBalancer")
            && !(kind == "LoadBalancer" && service["spec"]["allocateLoadBalancerNodePorts"] == false);
        self.assign_ports(service, wants_ports, &had_ports, &mut reserved)
            .map_err(|error| invalid(service, error))?;
        let keeps: Vec<u16> = ports_of(service);
        reserved.old.ports.extend(had_ports.into_iter().filter(|port| !keeps.contains(port)));
        if let Some(had) = had_address
            && address_of(service) != Some(had)
        {
            reserved.old.addresses.insert(had.into());
        }
        Ok(reserved)
    }

    fn assign_address(
        &self,
        service: &mut Value,
        kind: &str,
        had: Option<Ipv4Addr>,
        reserved: &mut Reserved<'_>,
    ) -> Result<(), FieldError> {
        let spec = &mut service["spec"];
        if kind == "ExternalName" {
            if let Some(map) = spec.as_object_mut() {
                map.remove("clusterIP");
                map.remove("clusterIPs");
            }
            return Ok(());
        }
        let given = spec["clusterIP"]
            .as_str()
            .or_else(|| spec["clusterIPs"][0].as_str())
            .unwrap_or_default()
            .to_owned();
        let address = match given.as_str() {
            "None" => {
                spec["clusterIP"] = "None".into();
                spec["clusterIPs"] = json!(["None"]);
                // Endpoints that somebody else writes may be of both families.
                if spec["selector"].as_object().is_none_or(serde_json::Map::is_empty)
                    && spec.get("ipFamilyPolicy").is_none()
                {
                    spec["ipFamilies"] = json!(["IPv4", "IPv6"]);
                    spec["ipFamilyPolicy"] = "RequireDualStack".into();
                }
                families(spec);
                return Ok(());
            }
            "" => match had {
                Some(had) => had,
                None => self.free_address(reserved)?,
            },
            text => {
                let address: Ipv4Addr = text.parse().map_err(|_| {
                    FieldError::invalid(
                        "spec.clusterIPs[0]",
                        text,
                        "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                    )
                })?;
                if had != Some(address) {
                    self.take_address(address, reserved)
                        .map_err(|why| FieldError::invalid("spec.clusterIPs", json!([text]), why))?;
                }
                address
            }
        };
        spec["clusterIP"] = address.to_string().into();
        spec["clusterIPs"] = json!([address.to_string()]);
        families(spec);
        Ok(())
    }

    fn free_address(&self, reserved: &mut Reserved<'_>) -> Result<Ipv4Addr, FieldError> {
        let mut used = self.lock();
        let size = self.range.size();
        let start = rand::rng().random_range(0..size.max(1));
        for step in 0..size {
            // The first addresses are kept for the API server and DNS, the last is the broadcast address.
            let host = (start + step) % size;
            if host < 16.min(size / 2) || host == size - 1 {
                continue;
            }
            let address = u32::from(self.range.base) + host;
            if used.addresses.insert(address) {
                reserved.new.addresses.insert(address);
                return Ok(address.into());
            }
        }
        Err(FieldError::internal(
            "spec.clusterIPs",
            format!("failed to allocate an address: the range {} is full", self.range),
        ))
    }

    fn take_address(&self, address: Ipv4Addr, reserved: &mut Reserved<'_>) -> Result<(), String> {
        if !self.range.contains(address) {
            return Err(format!(
                "failed to allocate IP {address}: the provided network does not match the current range {}",
                self.range
            ));
        }
        if !self.lock().addresses.insert(address.into()) {
            return Err(format!("failed to allocate IP {address}: provided IP is already allocated"));
        }
        reserved.new.addresses.insert(address.into());
        Ok(())
    }

    fn assign_ports(
        &self,
        service: &mut Value,
        wanted: bool,
        had: &[u16],
        reserved: &mut Reserved<'_>,
    ) -> Result<(), FieldError> {
        let Some(ports) = service.pointer_mut("/spec/ports").and_then(Value::as_array_mut) else {
            return Ok(());
        };
        let mut given: Vec<u16> = Vec::new();
        for (index, port) in ports.iter_mut().enumerate() {
            let number = port["nodePort"].as_u64().and_then(|number| u16::try_from(number).ok()).unwrap_or(0);
            match (wanted, number) {
                (false, 0) => {
                    if let Some(map) = port.as_object_mut() {
                        map.remove("nodePort");
                    }
                }
                (false, _) => {}
                (true, 0) => {
                    let number = self.free_port(reserved)?;
                    given.push(number);
                    port["nodePort"] = number.into();
                }
                (true, number) => {
                    if !had.contains(&number) && !given.contains(&number) {
                        let field = format!("spec.ports[{index}].nodePort");
                        if !NODE_PORTS.contains(&number) {
                            return Err(FieldError::invalid(
                                field,
                                number,
                                "provided port is not in the valid range. The range of valid ports is 30000-32767",
                            ));
                        }
                        if !self.lock().ports.insert(number) {
                            return Err(FieldError::invalid(
                                field,
                                number,
                                "provided port is already allocated",
                            ));
                        }
                        reserved.new.ports.insert(number);
                    }
                    given.push(number);
                }
            }
        }
        Ok(())
    }

    fn free_port(&self, reserved: &mut Reserved<'_>) -> Result<u16, FieldError> {
        let mut used = self.lock();
        let (first, last) = (*NODE_PORTS.start(), *NODE_PORTS.end());
        let start = rand::rng().random_range(NODE_PORTS);
        let port = (start..=last).chain(first..start).find(|port| !used.ports.contains(port));
        let port = port.ok_or_else(|| {
            FieldError::internal("spec.ports", "failed to allocate a nodePort: range is full")
        })?;
        used.ports.insert(port);
        reserved.new.ports.insert(port);
        Ok(port)
    }

    /// Takes back what a Service had that is gone.
    pub(crate) fn release(&self, resource: &Resource, service: &Value, dry_run: DryRun) {
        if &*resource.storage.name == "services" && dry_run == DryRun::No {
            let mut used = self.lock();
            address_of(service).map(|address| used.addresses.remove(&address.into()));
            ports_of(service).iter().for_each(|port| {
                used.ports.remove(port);
            });
        }
    }
}

fn families(spec: &mut Value) {
    if spec.get("ipFamilies").is_none() {
        spec["ipFamilies"] = json!(["IPv4"]);
    }
    if spec.get("ipFamilyPolicy").is_none() {
        spec["ipFamilyPolicy"] = "SingleStack".into();
    }
}

fn address_of(service: &Value) -> Option<Ipv4Addr> {
    service["spec"]["clusterIP"].as_str()?.parse().ok()
}

fn ports_of(service: &Value) -> Vec<u16> {
    let number = |port: &Value| {
        port["nodePort"].as_u64().and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0)
    };
    service["spec"]["ports"].as_array().into_iter().flatten().filter_map(number).collect()
}

/// What a write took; given back when the write does not happen.
#[derive(Debug)]
pub(crate) struct Reserved<'a> {
    addresses: &'a Addresses,
    new: Used,
    old: Used,
    kept: bool,
}

impl Reserved<'_> {
    /// The write happened: what is new stays taken, what is old is free.
    pub(crate) fn keep(mut self, dry_run: DryRun) {
        self.kept = dry_run == DryRun::No;
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let free = if self.kept { &self.old } else { &self.new };
        if free.addresses.is_empty() && free.ports.is_empty() {
            return;
        }
        let mut used = self.addresses.lock();
        for address in &free.addresses {
            used.addresses.remove(address);
        }
        for port in &free.ports {
            used.ports.remove(port);
        }
    }
}
