//! The parts by name, for the command line.

use anyhow::Context;

use super::{
    Cache, Unavailable, github_api, go_clients, helm, kubectl, kubernetes, nginx, postgres, prometheus,
    protocols, provider, python, queues, rabbitmq, schemathesis,
};

/// Told what is going on during long work.
pub type Progress<'a> = dyn FnMut(&str) + 'a;

/// One of the real parts that tests use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// etcd and Kubernetes' own control plane.
    Kubernetes,
    /// An old kubectl beside those that are there.
    Kubectl,
    /// A PostgreSQL server.
    Postgres,
    /// A web server that pods of the image `nginx` run.
    Nginx,
    /// A Python that has the Kubernetes client.
    Python,
    /// A program that holds an HTTP API against its description.
    Schemathesis,
    /// A Python that speaks WebSocket and gRPC.
    Protocols,
    /// A RabbitMQ broker.
    RabbitMq,
    /// A server that answers as Amazon SQS does, and clients of queues.
    Queues,
    /// A Python that Terraform providers can be written in.
    Provider,
    /// GitHub's description of its API.
    GitHubApi,
    /// A Prometheus server.
    Prometheus,
    /// A program written with Kubernetes' own client libraries.
    GoClients,
    /// The program that installs charts.
    Helm,
}

impl Part {
    /// All of them, cheap ones first so that a failure of a long build comes last; Helm's build uses what
    /// that of Kubernetes compiled.
    pub const ALL: [Self; 14] = [
        Self::Kubectl,
        Self::Postgres,
        Self::Nginx,
        Self::Python,
        Self::Schemathesis,
        Self::Protocols,
        Self::RabbitMq,
        Self::Queues,
        Self::Provider,
        Self::GitHubApi,
        Self::Prometheus,
        Self::GoClients,
        Self::Kubernetes,
        Self::Helm,
    ];

    /// Its name on the command line and in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kubernetes => kubernetes::NAME,
            Self::Kubectl => kubectl::NAME,
            Self::Postgres => postgres::NAME,
            Self::Nginx => nginx::NAME,
            Self::Python => python::NAME,
            Self::Schemathesis => schemathesis::NAME,
            Self::RabbitMq => rabbitmq::NAME,
            Self::Queues => queues::NAME,
            Self::Provider => provider::NAME,
            Self::GitHubApi => github_api::NAME,
            Self::Protocols => protocols::NAME,
            Self::Prometheus => prometheus::NAME,
            Self::GoClients => go_clients::NAME,
            Self::Helm => helm::NAME,
        }
    }

    /// The part of this name.
    ///
    /// # Errors
    /// When there is none; the message lists those that are.
    pub fn from_name(name: &str) -> anyhow::Result<Self> {
        Self::ALL.into_iter().find(|part| part.name() == name).with_context(|| {
            let names: Vec<_> = Self::ALL.iter().map(|part| part.name()).collect();
            format!("there is no part {name:?}; there are {}", names.join(", "))
        })
    }

    /// What was found of it, in a few words.
    ///
    /// # Errors
    /// [`Unavailable::Missing`] with how to get it.
    pub fn state(self) -> Result<String, Unavailable> {
        let cache = Cache::of_user();
        match self {
            Self::Kubernetes => kubernetes::find(&cache)
                .map(|folder| format!("{} in {}", kubernetes::RELEASE, folder.display())),
            Self::Kubectl => kubectl::kubectls().map(|found| {
                let versions: Vec<_> = found.iter().map(|one| one.version.to_string()).collect();
                versions.join(", ")
            }),
            Self::Postgres => postgres::find(&cache).map(|found| found.programs.display().to_string()),
            Self::Nginx => {
                nginx::find(&cache).map(|found| format!("{} at {}", found.version, found.path.display()))
            }
            Self::Python => python::find(&cache)
                .map(|found| format!("{} with kubernetes {}", found.path.display(), found.client)),
            Self::RabbitMq => rabbitmq::find(&cache).map(|found| found.rabbitmq.display().to_string()),
            Self::Provider => provider::find(&cache).map(|found| format!("tf {}", found.version)),
            Self::GitHubApi => github_api::find(&cache).map(|found| found.display().to_string()),
            Self::Queues => queues::find(&cache).map(|found| format!("moto {}", found.version)),
            Self::Schemathesis => schemathesis::find(&cache).map(|found| found.version),
            Self::Protocols => protocols::find(&cache).map(|found| found.versions),
            Self::GoClients => go_clients::find(&cache).map(|found| found.display().to_string()),
            Self::Helm => {
                helm::find(&cache).map(|found| format!("{} at {}", found.version, found.path.display()))
            }
            Self::Prometheus => {
                prometheus::find(&cache).map(|found| format!("{} at {}", found.version, found.path.display()))
            }
        }
    }

    /// Gets it, unless it is there. Waits while another process does the same.
    ///
    /// # Errors
    /// With what is missing on this machine to get it.
    pub fn install(self, progress: &mut Progress<'_>) -> anyhow::Result<()> {
        let cache = Cache::of_user();
        let _lock = cache.lock(self.name())?;
        match self {
            Self::Kubernetes => kubernetes::install(&cache, progress),
            Self::Kubectl => kubectl::install(&cache, progress),
            Self::Postgres => postgres::install(&cache, progress),
            Self::Nginx => nginx::install(&cache, progress),
            Self::Python => python::install(&cache, progress),
            Self::Schemathesis => schemathesis::install(&cache, progress),
            Self::RabbitMq => rabbitmq::install(&cache, progress),
            Self::Queues => queues::install(&cache, progress),
            Self::Provider => provider::install(&cache, progress),
            Self::GitHubApi => github_api::install(&cache, progress),
            Self::Protocols => protocols::install(&cache, progress),
            Self::Prometheus => prometheus::install(&cache, progress),
            Self::GoClients => go_clients::install(&cache, progress),
            Self::Helm => helm::install(&cache, progress),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_found_by_its_name() {
        for part in Part::ALL {
            assert_eq!(Part::from_name(part.name()).ok(), Some(part));
        }
        let error = Part::from_name("docker").expect_err("no such part").to_string();
        assert!(error.contains("postgres"), "{error}");
    }
}
