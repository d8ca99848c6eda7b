//! What kube-controller-manager and the scheduler do, for a machine without a cluster.

mod deployment;
mod endpointslice;
mod owner;
mod pods;
mod quantity;
mod replicaset;
mod scheduler;
