//! Two processes and one lease: whatever becomes of the leader, the other one takes over, and
//! the first writes nothing in between.
//!
//! The candidates are processes of their own: this test starts itself again. Between each and
//! the API server stands a gate that notes what comes through and can be shut.
#![allow(clippy::print_stdout, reason = "figures for whoever looks")]

mod support;

use std::time::Instant;

use nix::sys::signal::Signal;
use steersman_test::Cluster;

use self::support::{Candidate, DURATION, Gate, Written};

/// Not a test: what a candidate does, when this program is started as one.
#[test]
fn a_candidate_leads_when_it_is_told_to() {
    support::lead_if_asked();
}

#[tokio::test(flavor = "multi_thread")]
async fn on_our_server_a_leader_is_replaced_and_fenced_off() {
    let cluster = Cluster::start_in_real_time().await;
    let gates = [Gate::open(cluster.client()).await, Gate::open(cluster.client()).await];
    killed(&gates, "ours-killed").await;
    released(&gates, "ours-released").await;
    cut_off(&gates, "ours-cut").await;
    let late = paused(&gates, "ours-paused").await;
    // Whatever the first one had begun before it was stopped carries an old epoch.
    for write in &late {
        assert_eq!(write.status, Some(409), "a write of a deposed leader was not refused: {write:?}");
    }
    println!("writes of a deposed leader that our server refused: {}", late.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_real_server_a_leader_is_replaced_and_stops_by_itself() {
    use xtask::parts::{Kubernetes, KubernetesOptions, or_skip};
    let options =
        KubernetesOptions { controller_manager: false, scheduler: false, ..KubernetesOptions::default() };
    let started = tokio::task::spawn_blocking(move || Kubernetes::start(&options));
    let Some(kubernetes) = or_skip(started.await.expect("not cancelled")) else {
        return;
    };
    let client = support::client_of(&kubernetes).await;
    let gates = [Gate::open(client.clone()).await, Gate::open(client).await];
    killed(&gates, "real-killed").await;
    released(&gates, "real-released").await;
    cut_off(&gates, "real-cut").await;
    let late = paused(&gates, "real-paused").await;
    // One write at a time: only one that had been admitted before the stop can still come.
    assert!(late.len() <= 1, "writes were begun after the deadline: {late:?}");
}

/// A leader, and another one that waits.
async fn pair(gates: &[Gate; 2], lease: &str) -> (Candidate, Candidate) {
    let first = Candidate::start("first", lease, &gates[0]);
    gates[0].wait_for_write("first").await;
    let second = Candidate::start("second", lease, &gates[1]);
    gates[1].wait_for_requests().await;
    gates[0].wait_for_renewals().await;
    (first, second)
}

async fn killed(gates: &[Gate; 2], lease: &str) {
    let (mut first, mut second) = pair(gates, lease).await;
    first.signal(Signal::SIGKILL);
    let died = Instant::now();
    gates[1].wait_for_write("second").await;
    println!("{lease}: taken over {:?} after the leader was killed, of {DURATION:?}", died.elapsed());
    first.wait().await;
    second.stop().await;
    gates.iter().for_each(Gate::forget);
}

async fn released(gates: &[Gate; 2], lease: &str) {
    let (mut first, mut second) = pair(gates, lease).await;
    first.signal(Signal::SIGTERM);
    let released = gates[0].wait_for_release().await;
    let leading = gates[1].wait_for_write("second").await;
    println!("{lease}: the next leader wrote {:?} after the lease was released", leading.at - released);
    assert_eq!(first.wait().await, Some(0));
    second.stop().await;
    gates.iter().for_each(Gate::forget);
}

async fn cut_off(gates: &[Gate; 2], lease: &str) {
    let (mut first, mut second) = pair(gates, lease).await;
    gates[0].shut();
    let cut = Instant::now();
    gates[1].wait_for_write("second").await;
    println!("{lease}: taken over {:?} after the leader was cut off", cut.elapsed());
    assert_eq!(first.wait().await, Some(4), "a leader that cannot renew ends by itself");
    gates[0].reopen();
    second.stop().await;
    gates.iter().for_each(Gate::forget);
}

/// What the first leader still sends after it was stopped, replaced and let go on.
async fn paused(gates: &[Gate; 2], lease: &str) -> Vec<Written> {
    let (mut first, mut second) = pair(gates, lease).await;
    first.signal(Signal::SIGSTOP);
    let replaced = gates[1].wait_for_write("second").await;
    first.signal(Signal::SIGCONT);
    assert_eq!(first.wait().await, Some(4), "it sees that it was replaced");
    let late = gates[0].writes().into_iter().filter(|write| write.at > replaced.at).collect();
    second.stop().await;
    gates.iter().for_each(Gate::forget);
    late
}
