//! What kube-controller-manager and the scheduler do, for a machine without a cluster.
//!
//! Each controller is a pair: a plan, which is a plain function from what is there to what should
//! be done and is tested by tables and properties, and a thin reconciler that reads the cache,
//! asks for a plan and carries it out. All of them are written with [`steersman`] and speak to any
//! API server, ours or a real one.
//!
//! ```text
//! Namespace ─▶ default ServiceAccount, kube-root-ca.crt        (namespace::furnish)
//! Deployment ─▶ ReplicaSet ─▶ Pod ─▶ bound to a Node           (deployment, replicaset, scheduler)
//! StatefulSet ─▶ Pod, one place after the other                (statefulset)
//! Job ─▶ Pod, until enough have succeeded                      (job)
//! Service ─▶ EndpointSlice, Endpoints ◀─ Pod                   (endpointslice)
//! node not ready ─▶ tainted                                    (node_taints)
//! owner gone ─▶ its dependents go                              (garbage)
//! node gone ─▶ its pods go                                     (pod_cleanup)
//! Namespace deleted ─▶ everything in it goes, then it does     (namespace::content)
//! ```

mod deployment;
mod endpointslice;
mod fleet;
mod garbage;
mod job;
mod kinds;
mod namespace;
mod node_taints;
mod owner;
mod pod_cleanup;
mod pods;
mod quantity;
mod replicaset;
mod scheduler;
mod statefulset;
mod status;

use steersman::Manager;

/// What the controllers need to know.
#[derive(Clone, Debug, Default)]
pub struct ControllerOptions {
    /// The certificate of the API server's authority, in PEM, published to every namespace as
    /// ConfigMap `kube-root-ca.crt`. None: nothing is published.
    pub root_ca: Option<String>,
    /// Who gives pods their nodes; the scheduler of these controllers by default.
    pub scheduling: Scheduling,
}

/// Who gives pods their nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduling {
    /// These controllers.
    #[default]
    Own,
    /// Other programs, which bind pods themselves.
    Others,
}

/// Adds all controllers to a manager.
///
/// # Example
/// ```no_run
/// # async fn start(client: kube::Client, ca: String) -> Result<(), steersman::ManagerError> {
/// use steersman::{CancellationToken, Manager, Options};
/// use steersman_controllers::{ControllerOptions, controllers};
///
/// let manager = Manager::new(client, Options::named("steer-controllers"));
/// let options = ControllerOptions { root_ca: Some(ca), ..ControllerOptions::default() };
/// controllers(manager, options).run(CancellationToken::new()).await
/// # }
/// ```
#[must_use]
pub fn controllers(manager: Manager, options: ControllerOptions) -> Manager {
    let (client, cache) = (manager.client(), manager.cache());
    let manager = match options.scheduling {
        Scheduling::Own => manager.controller(scheduler::controller()),
        Scheduling::Others => manager,
    };
    manager
        .controller(namespace::furnish::controller(options.root_ca))
        .controller(replicaset::controller())
        .controller(deployment::controller())
        .controller(statefulset::controller())
        .controller(job::controller())
        .controller(endpointslice::controller())
        .controller(endpointslice::classic::controller())
        .controller(node_taints::controller())
        .controller(pod_cleanup::controller())
        .controller(namespace::content::controller())
        .runnable("garbage-collector", move |stop| garbage::run(client, cache, stop))
}
