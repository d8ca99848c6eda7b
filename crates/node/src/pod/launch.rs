//! From a container's specification to the program that is started for it.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};

use super::Shared;
use super::env::{self, expand};
use super::fields::Surroundings;
use super::volumes::Prepared;
use crate::image::{self, ImageError};
use crate::nginx;
use crate::runtime::{Access, MARKER, Mount, Place, PodFolder, PodNetwork, Program, RuntimeKind};
use crate::service::View;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Why a container cannot be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Something that the container refers to is not there (yet).
    #[error("{0}")]
    Config(String),
}

/// What a program is put together from.
pub(crate) struct Launch<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) pod: &'a Pod,
    pub(crate) folder: &'a PodFolder,
    pub(crate) volumes: &'a Prepared,
    pub(crate) address: IpAddr,
    pub(crate) network: PodNetwork,
}

impl Launch<'_> {
    /// What the pod's fields are read from.
    pub(crate) fn surroundings(&self) -> Surroundings {
        let (cores, memory) = self.shared.size;
        Surroundings { address: self.address, host: self.shared.host, cores, memory }
    }

    /// Puts the program together.
    pub(crate) async fn program(&self, container: &Container) -> Result<Program, LaunchError> {
        let image = container.image.as_deref().unwrap_or_default();
        let command = container.command.as_deref().unwrap_or_default();
        let found = self.find(image, command)?;
        let root = self.folder.root(&container.name);
        std::fs::create_dir_all(&root).map_err(config)?;

        let base = self.base_variables(container, &root, &found);
        let around = self.surroundings();
        let mut env = env::environment(self.pod, container, &around, base, &self.shared.client)
            .await
            .map_err(config)?;
        if is_own(container) {
            self.redirect_port(&mut env);
        }
        let known =
            |name: &str| env.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let mut mounts = self.volumes.mounts(container, known).map_err(config)?;
        let all =
            |texts: &[String]| -> Vec<String> { texts.iter().map(|text| expand(text, known)).collect() };
        let args = container.args.as_deref();
        let argv = match &found {
            image::Program::Nginx(program) => {
                let listen = |port| match self.own_listener() {
                    Some(address) => {
                        let port = self.shared.runtime.network().redirect(address, port);
                        SocketAddr::new(address, port).to_string()
                    }
                    None => port.to_string(),
                };
                let command = nginx::command(program, container, &root, listen, &mounts);
                let mut argv = command.map_err(config)?;
                argv.extend(all(args.unwrap_or_default()));
                argv
            }
            image::Program::Command { .. } if !command.is_empty() => {
                [all(command), all(args.unwrap_or_default())].concat()
            }
            image::Program::Command { entry, args: default, .. } => {
                [entry.clone(), args.map_or_else(|| default.clone(), all)].concat()
            }
        };
        let working_dir = self.working_dir(container, &root);
        self.own_mounts(container, &root, &argv, &mut mounts)?;
        if self.shared.runtime.kind() == RuntimeKind::Process {
            link_volumes(&root, &mounts).map_err(config)?;
        }
        Ok(Program { argv, env, working_dir, place: Place::Own(mounts) })
    }

    fn find(&self, image: &str, command: &[String]) -> Result<image::Program, ImageError> {
        // Nothing is run, so nothing needs to be there.
        if self.shared.runtime.kind() == RuntimeKind::Fake {
            return Ok(image::Program::Command { entry: vec![], args: vec![], env: vec![] });
        }
        self.shared.images().find(image, command)
    }

    /// What a container finds in its environment before its own variables.
    fn base_variables(
        &self,
        container: &Container,
        root: &Path,
        found: &image::Program,
    ) -> Vec<(String, String)> {
        let metadata = &self.pod.metadata;
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let namespace = text(&metadata.namespace);
        let path = std::env::var("PATH").unwrap_or_else(|_| PATH.to_string());
        let root = root.display().to_string();
        let mut base = vec![
            ("PATH".to_string(), path),
            ("HOSTNAME".to_string(), hostname(self.pod)),
            ("HOME".to_string(), root.clone()),
            ("POD_ROOT".to_string(), root),
            (MARKER.to_string(), text(&metadata.uid)),
        ];
        let spec = self.pod.spec.as_ref();
        if spec.is_none_or(|spec| spec.enable_service_links != Some(false)) {
            let view = match (self.network, self.shared.runtime.kind()) {
                (PodNetwork::Own, RuntimeKind::Sandbox) => View::Inside,
                _ => View::Host,
            };
            base.extend(self.shared.services.variables(&namespace, view));
        }
        if let image::Program::Command { env, .. } = found {
            base.extend(env.iter().cloned());
        }
        if is_own(container) {
            let port = container.ports.iter().flatten().next();
            base.extend(port.map(|port| ("PORT".to_string(), port.container_port.to_string())));
            base.extend(self.own_listener().map(|address| ("HOST".to_string(), address.to_string())));
        }
        base
    }

    /// The address to listen on where pods share the host's network but not its address.
    fn own_listener(&self) -> Option<IpAddr> {
        let apart = self.shared.runtime.kind() == RuntimeKind::Process;
        (apart && self.network == PodNetwork::Own).then_some(self.address)
    }

    /// Our own program listens where `$PORT` says, so it can be told to use a port that it may.
    fn redirect_port(&self, env: &mut [(String, String)]) {
        let Some(address) = self.own_listener() else { return };
        for (_, value) in env.iter_mut().filter(|(name, _)| name == "PORT") {
            if let Ok(port) = value.parse() {
                *value = self.shared.runtime.network().redirect(address, port).to_string();
            }
        }
    }

    fn working_dir(&self, container: &Container, root: &Path) -> PathBuf {
        match (container.working_dir.as_deref().filter(|dir| !dir.is_empty()), self.shared.runtime.kind()) {
            (Some(dir), RuntimeKind::Process) if !Path::new(dir).is_dir() => {
                root.join(dir.trim_start_matches('/'))
            }
            (Some(dir), _) => PathBuf::from(dir),
            (None, RuntimeKind::Process) => root.to_path_buf(),
            (None, _) => PathBuf::from("/"),
        }
    }

    /// What every container has besides its volumes.
    fn own_mounts(
        &self,
        container: &Container,
        root: &Path,
        argv: &[String],
        mounts: &mut Vec<Mount>,
    ) -> Result<(), LaunchError> {
        let mut add = |source: PathBuf, target: PathBuf, access: Access| {
            if !mounts.iter().any(|mount| mount.target == target) {
                mounts.push(Mount { source, target, access });
            }
        };
        add(root.to_path_buf(), root.to_path_buf(), Access::ReadWrite);
        let message = self.folder.termination(&container.name);
        std::fs::write(&message, "").map_err(config)?;
        let path = container.termination_message_path.as_deref();
        let path = path.filter(|path| !path.is_empty()).unwrap_or("/dev/termination-log");
        add(message, Path::new("/").join(path), Access::ReadWrite);
        if self.network == PodNetwork::Own {
            for name in ["hosts", "hostname", "resolv.conf"] {
                let file = self.folder.etc(name);
                if file.is_file() {
                    add(file, Path::new("/etc").join(name), Access::ReadWrite);
                }
            }
        }
        // These folders are the container's own and hide what the host has there.
        if let Some(program) = argv.first().map(Path::new)
            && ["/tmp", "/run", "/var/tmp"].iter().any(|own| program.starts_with(own))
            && program.is_file()
        {
            add(program.to_path_buf(), program.to_path_buf(), Access::ReadOnly);
        }
        Ok(())
    }

    /// Writes the pod's own `/etc/hosts`, `/etc/hostname` and `/etc/resolv.conf`.
    pub(crate) fn write_etc(&self) -> std::io::Result<()> {
        let name = hostname(self.pod);
        let address = self.address;
        let mut hosts = format!("127.0.0.1\tlocalhost\n{address}\t{name}\n");
        let spec = self.pod.spec.as_ref();
        for alias in spec.iter().flat_map(|spec| spec.host_aliases.iter().flatten()) {
            let names = alias.hostnames.as_deref().unwrap_or_default().join("\t");
            hosts.push_str(&format!("{}\t{names}\n", alias.ip));
        }
        std::fs::write(self.folder.etc("hosts"), hosts)?;
        std::fs::write(self.folder.etc("hostname"), format!("{name}\n"))?;
        if let Some(server) = self.shared.services.name_server() {
            let namespace = self.pod.metadata.namespace.as_deref().unwrap_or("default");
            let text = format!(
                "nameserver {server}\nsearch {namespace}.svc.cluster.local svc.cluster.local \
                 cluster.local\noptions ndots:5\n"
            );
            std::fs::write(self.folder.etc("resolv.conf"), text)?;
        }
        Ok(())
    }
}

fn is_own(container: &Container) -> bool {
    container.image.as_deref().is_some_and(|image| image.starts_with(image::OWN))
}

fn config(error: impl std::fmt::Display) -> LaunchError {
    LaunchError::Config(error.to_string())
}

/// A pod's host name: what it asks for, else its own name, cut to what Linux allows.
pub(crate) fn hostname(pod: &Pod) -> String {
    let asked = pod.spec.as_ref().and_then(|spec| spec.hostname.clone());
    let name = asked.or_else(|| pod.metadata.name.clone()).unwrap_or_default();
    name.chars().take(63).collect::<String>().trim_end_matches(['-', '.']).to_string()
}

/// Without a root of its own a container finds its volumes below `$POD_ROOT`.
fn link_volumes(root: &Path, mounts: &[Mount]) -> std::io::Result<()> {
    for mount in mounts {
        let Ok(inner) = mount.target.strip_prefix("/") else { continue };
        if mount.target == root {
            continue;
        }
        let link = root.join(inner);
        if let Some(parent) = link.parent() {
            std::fs::create_dir_all(parent)?;
        }
        if link.symlink_metadata().is_err() {
            std::os::unix::fs::symlink(&mount.source, link)?;
        }
    }
    Ok(())
}

/// Where a pod's traffic goes: its own address, unless it wants the host's or serves nothing.
pub(crate) fn network(pod: &Pod) -> PodNetwork {
    let Some(spec) = &pod.spec else { return PodNetwork::Host };
    if spec.host_network == Some(true) {
        return PodNetwork::Host;
    }
    let serves = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
        .any(|container| container.ports.as_ref().is_some_and(|ports| !ports.is_empty()));
    if serves { PodNetwork::Own } else { PodNetwork::Host }
}

/// The user and group that a pod's processes see themselves as.
pub(crate) fn user(pod: &Pod, shared: &Shared) -> (u32, u32) {
    let Some(spec) = &pod.spec else { return (0, 0) };
    let first = spec.containers.first();
    let context = first.and_then(|container| container.security_context.as_ref());
    let pod_context = spec.security_context.as_ref();
    let number = |value: Option<i64>| value.and_then(|value| u32::try_from(value).ok());
    let image = first.and_then(|container| container.image.as_deref()).unwrap_or_default();
    let by_image = shared.images().user(image);
    let user = number(context.and_then(|one| one.run_as_user))
        .or_else(|| number(pod_context.and_then(|one| one.run_as_user)))
        .or(by_image);
    let group = number(context.and_then(|one| one.run_as_group))
        .or_else(|| number(pod_context.and_then(|one| one.run_as_group)))
        .or(by_image);
    (user.unwrap_or(0), group.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: &serde_json::Value) -> Pod {
        serde_json::from_value(serde_json::json!({"metadata": {"name": "p"}, "spec": spec})).expect("a pod")
    }

    #[test]
    fn a_pod_without_ports_stays_on_the_host_network() {
        let none = pod(&serde_json::json!({"containers": [{"name": "c"}]}));
        assert_eq!(network(&none), PodNetwork::Host);
        let ports = serde_json::json!([{"name": "c", "ports": [{"containerPort": 80}]}]);
        let serving = pod(&serde_json::json!({"containers": ports}));
        assert_eq!(network(&serving), PodNetwork::Own);
        let host = pod(&serde_json::json!({"hostNetwork": true, "containers": ports}));
        assert_eq!(network(&host), PodNetwork::Host);
    }

    #[test]
    fn a_long_name_is_cut_to_a_host_name() {
        let mut long = pod(&serde_json::json!({"containers": []}));
        long.metadata.name = Some(format!("{}-{}", "a".repeat(62), "b".repeat(20)));
        assert_eq!(hostname(&long), "a".repeat(62));
    }
}
