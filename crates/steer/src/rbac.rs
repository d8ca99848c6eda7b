//! `steer rbac`: the accounts and roles of the operators as files, from what their code declares.

use std::{fmt::Write as _, path::Path};

use anyhow::Context as _;
use kube::{Client, Config};
use steersman::{LeaseOptions, Manager, Options, Place, Rights, Rule};
use steersman_infra::{History, OperatorController, action::Registry};

use crate::{
    cli::{Operator, RbacArgs},
    webhooks,
};

/// An operator as `config/` packages it.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) operator: Operator,
    /// Its folder in `config/`.
    folder: &'static str,
    pub(crate) namespace: &'static str,
    /// The service account that its pods run as.
    account: &'static str,
    /// What the names of its roles begin with.
    role: &'static str,
    leader_election: &'static str,
}

/// Every package; WebApp's folder has the name that kubebuilder gives it.
pub(crate) const PACKAGES: [Package; 4] = [
    Package {
        operator: Operator::Webapp,
        folder: "rbac",
        namespace: "webapp-system",
        account: "webapp-manager",
        role: "webapp-manager",
        leader_election: "webapp-leader-election",
    },
    Package {
        operator: Operator::Observatory,
        folder: "observatory",
        namespace: "observatory-operator-system",
        account: "observatory-operator-manager",
        role: "observatory-operator-manager",
        leader_election: "observatory-operator-leader-election",
    },
    Package {
        operator: Operator::Infra,
        folder: "infra",
        namespace: "infra-system",
        account: "infra-manager",
        role: "infra-manager",
        leader_election: "infra-leader-election",
    },
    Package {
        operator: Operator::Elasti,
        folder: "elasti",
        namespace: "elasti",
        account: "elasti-operator",
        role: "elasti-operator",
        leader_election: "elasti-operator-leader-election",
    },
];

const HEADING: &str = "# Written by `cargo xtask generate` from what the operator declares.\n";

/// Prints the files, or writes them below a folder.
pub(crate) async fn write(args: &RbacArgs) -> anyhow::Result<()> {
    for (path, text) in files().await? {
        let Some(dir) = &args.dir else {
            print!("---\n{text}");
            continue;
        };
        let file = dir.join(path);
        let folder = file.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// Every file with its path below `config/`.
async fn files() -> anyhow::Result<Vec<(String, String)>> {
    // Nobody is asked anything: only declarations are read.
    let client = Client::try_from(Config::new(http::Uri::from_static("http://127.0.0.1:1")))?;
    let mut files = Vec::new();
    for package in PACKAGES {
        let rights = rights(&package, &client)?;
        files.extend(
            package
                .files(&rights)
                .map(|(name, text)| (format!("{}/{name}", package.folder), format!("{HEADING}{text}"))),
        );
    }
    let resolver = steersman_elasti::resolver_rights(client);
    let role = role("ClusterRole", "elasti-resolver-role", None, resolver.in_place(Place::Everywhere));
    files.push(("elasti/resolver_role.yaml".to_owned(), format!("{HEADING}{role}")));
    Ok(files)
}

/// What an operator declares when it is put together as its package runs it.
fn rights(package: &Package, client: &Client) -> anyhow::Result<Rights> {
    let operator = package.operator;
    let options = Options {
        lease: Some(LeaseOptions::new(package.namespace, operator.lease())),
        ..Options::named(operator.name())
    };
    let manager = Manager::new(client.clone(), options);
    let manager = match operator {
        Operator::Observatory => steersman_observatory::controllers(manager),
        Operator::Infra => steersman_infra::controllers(
            manager,
            steersman_infra::Options {
                controller: OperatorController::default(),
                plugins: Registry::new(),
                history: History::memory()?,
                namespace: package.namespace.to_owned(),
            },
        ),
        Operator::Elasti => {
            steersman_elasti::controllers(manager, steersman_elasti::ElastiOptions::default())
        }
        Operator::Webapp | Operator::All => manager.controller(steersman_webapp::controller()),
    };
    Ok(webhooks::packaged(manager, operator, client, package.namespace).rights())
}

impl Package {
    fn files(&self, rights: &Rights) -> [(&'static str, String); 5] {
        let Self { namespace, account, .. } = self;
        let (manager, election) = (format!("{}-role", self.role), format!("{}-role", self.leader_election));
        let everywhere = role("ClusterRole", &manager, None, rights.in_place(Place::Everywhere));
        let (leases, own): (Vec<&Rule>, Vec<&Rule>) =
            rights.in_place(Place::OwnNamespace).partition(|rule| rule.is_about("leases"));
        let (mut roles, mut bindings) = (everywhere, self.binding("ClusterRole", self.role));
        if !own.is_empty() {
            let _ = write!(roles, "---\n{}", role("Role", &manager, Some(namespace), own.into_iter()));
            let _ = write!(bindings, "---\n{}", self.binding("Role", self.role));
        }
        [
            (
                "service_account.yaml",
                format!(
                    "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {account}\n  namespace: {namespace}\n"
                ),
            ),
            ("role.yaml", roles),
            ("role_binding.yaml", bindings),
            ("leader_election_role.yaml", role("Role", &election, Some(namespace), leases.into_iter())),
            ("leader_election_role_binding.yaml", self.binding("Role", self.leader_election)),
        ]
    }

    /// Gives the role that begins with this name to the account.
    fn binding(&self, kind: &str, name: &str) -> String {
        let Self { namespace, account, .. } = self;
        let at = if kind == "Role" { format!("  namespace: {namespace}\n") } else { String::new() };
        format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}Binding\nmetadata:\n  name: {name}-rolebinding\n{at}\
             roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: {kind}\n  name: {name}-role\n\
             subjects:\n  - kind: ServiceAccount\n    name: {account}\n    namespace: {namespace}\n"
        )
    }
}

/// A Role or ClusterRole, each rule with what it is for.
fn role<'a>(
    kind: &str,
    name: &str,
    namespace: Option<&str>,
    rules: impl Iterator<Item = &'a Rule>,
) -> String {
    let at = namespace.map(|namespace| format!("  namespace: {namespace}\n")).unwrap_or_default();
    let mut text = format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {name}\n{at}rules:\n"
    );
    for rule in rules {
        let policy = rule.to_policy();
        if let Some(why) = rule.why() {
            let _ = writeln!(text, "  # {why}");
        }
        let _ = writeln!(text, "  - apiGroups: {}", list(policy.api_groups.as_deref()));
        let _ = writeln!(text, "    resources: {}", list(policy.resources.as_deref()));
        if policy.resource_names.is_some() {
            let _ = writeln!(text, "    resourceNames: {}", list(policy.resource_names.as_deref()));
        }
        let _ = writeln!(text, "    verbs: {}", list(Some(&policy.verbs)));
    }
    text
}

/// A list of names on one line; the core group's is empty and must be quoted.
fn list(items: Option<&[String]>) -> String {
    let shown = |item: &String| if item.is_empty() { "\"\"".to_owned() } else { item.clone() };
    let items: Vec<String> = items.unwrap_or_default().iter().map(shown).collect();
    format!("[{}]", items.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_roles_in_the_tree_are_what_the_operators_declare() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config");
        for (path, text) in files().await.expect("the roles") {
            let found = std::fs::read_to_string(config.join(&path)).unwrap_or_default();
            assert_eq!(found, text, "{path} is out of date: run `cargo xtask generate`");
        }
    }
}
