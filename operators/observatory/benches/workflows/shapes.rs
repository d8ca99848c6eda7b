//! Workflows of many tasks, as lists of what each task depends on.

use serde_json::{Value, json};

/// Makes a graph of so many tasks.
pub(crate) type Shape = fn(usize) -> Vec<Vec<usize>>;

/// The shapes that are measured.
pub(crate) const SHAPES: [(&str, Shape); 4] =
    [("chain", chain), ("fan", fan), ("lattice", lattice), ("random", random)];

/// Each after the one before.
fn chain(tasks: usize) -> Vec<Vec<usize>> {
    (0..tasks).map(|task| task.checked_sub(1).into_iter().collect()).collect()
}

/// One, then all but one at once, then the last.
fn fan(tasks: usize) -> Vec<Vec<usize>> {
    let last = tasks - 1;
    (0..tasks)
        .map(|task| match task {
            0 => Vec::new(),
            _ if task == last => (1..last).collect(),
            _ => vec![0],
        })
        .collect()
}

/// A square in which each waits for its left and its upper neighbour.
fn lattice(tasks: usize) -> Vec<Vec<usize>> {
    let side = tasks.isqrt();
    (0..side * side)
        .map(|task| {
            let left = (task % side > 0).then(|| task - 1);
            left.into_iter().chain(task.checked_sub(side)).collect()
        })
        .collect()
}

/// Each waits for up to three earlier ones; the same graph every time.
pub(crate) fn random(tasks: usize) -> Vec<Vec<usize>> {
    let mut state = 42u64;
    let mut below = move |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap_or(0) % limit
    };
    (0..tasks)
        .map(|task| {
            let mut above: Vec<usize> = (0..3.min(task)).map(|_| below(task)).collect();
            above.sort_unstable();
            above.dedup();
            above
        })
        .collect()
}

/// How many tasks the longest way through a graph has.
pub(crate) fn depth(graph: &[Vec<usize>]) -> f64 {
    critical_path(graph, &vec![1.0; graph.len()])
}

/// How long the longest way through a graph takes.
pub(crate) fn critical_path(graph: &[Vec<usize>], lengths: &[f64]) -> f64 {
    let mut ends: Vec<f64> = Vec::with_capacity(graph.len());
    for (above, length) in graph.iter().zip(lengths) {
        let before = above.iter().filter_map(|&task| ends.get(task).copied()).fold(0.0, f64::max);
        ends.push(before + length);
    }
    ends.into_iter().fold(0.0, f64::max)
}

/// The workflow of a graph.
pub(crate) fn workflow(name: &str, graph: &[Vec<usize>], max_concurrent: usize) -> Value {
    let tasks: Vec<Value> = graph
        .iter()
        .enumerate()
        .map(|(task, above)| {
            let above: Vec<String> = above.iter().map(|other| format!("t{other}")).collect();
            json!({"name": format!("t{task}"), "image": "i", "dependencies": above})
        })
        .collect();
    json!({
        "apiVersion": "workflow.seventh-horizon.io/v1alpha1", "kind": "Observatory",
        "metadata": {"name": name}, "spec": {"tasks": tasks, "maxConcurrent": max_concurrent},
    })
}
