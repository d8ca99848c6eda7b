//! The shape of a workflow.

use std::collections::HashMap;

use crate::types::TaskSpec;

/// Who depends on whom, by index into the list of tasks.
///
/// Both directions are kept as one flat list with offsets, so that a graph of ten thousand tasks
/// is a handful of allocations.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    names: HashMap<String, u32>,
    priorities: Vec<i32>,
    dependencies: Edges,
    dependents: Edges,
    ranks: Vec<u32>,
    order: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
struct Edges {
    /// Where the targets of a node begin; one longer than there are nodes.
    starts: Vec<u32>,
    targets: Vec<u32>,
}

impl Edges {
    fn of(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.targets[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    fn collect(lists: impl Iterator<Item = Vec<u32>>) -> Self {
        let mut edges = Self { starts: vec![0], targets: Vec::new() };
        for list in lists {
            edges.targets.extend(list);
            edges.starts.push(u32::try_from(edges.targets.len()).unwrap_or(u32::MAX));
        }
        edges
    }

    fn reversed(&self, nodes: usize) -> Self {
        let mut starts = vec![0u32; nodes + 1];
        for &target in &self.targets {
            starts[target as usize + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let mut next = starts.clone();
        let mut targets = vec![0; self.targets.len()];
        for node in 0..u32::try_from(nodes).unwrap_or(u32::MAX) {
            for &target in self.of(node) {
                let slot = &mut next[target as usize];
                targets[*slot as usize] = node;
                *slot += 1;
            }
        }
        Self { starts, targets }
    }
}

impl Graph {
    /// The graph of these tasks. References that [`check`](super::check()) complains about are
    /// left out: unknown and repeated ones, those of a task to itself, and the second task of a
    /// name.
    pub fn new(tasks: &[TaskSpec]) -> Self {
        let mut names = HashMap::with_capacity(tasks.len());
        for (index, task) in tasks.iter().enumerate() {
            names.entry(task.name.clone()).or_insert(u32::try_from(index).unwrap_or(u32::MAX));
        }
        let lists = tasks.iter().enumerate().map(|(index, task)| {
            let known = task.dependencies.iter().filter_map(|name| names.get(name).copied());
            let mut list: Vec<u32> = known.filter(|&other| other as usize != index).collect();
            list.sort_unstable();
            list.dedup();
            list
        });
        let dependencies = Edges::collect(lists);
        let dependents = dependencies.reversed(tasks.len());
        let mut graph = Self {
            names,
            priorities: tasks.iter().map(|task| task.priority.unwrap_or(0)).collect(),
            dependencies,
            dependents,
            ranks: vec![0; tasks.len()],
            order: Vec::new(),
        };
        graph.order = graph.topological_order();
        for position in (0..graph.order.len()).rev() {
            let task = graph.order[position];
            let below = graph.dependents(task).iter().map(|&other| graph.ranks[other as usize] + 1);
            graph.ranks[task as usize] = below.max().unwrap_or(0);
        }
        graph
    }

    /// Number of tasks.
    pub fn len(&self) -> usize {
        self.ranks.len()
    }

    /// Whether there are no tasks.
    pub fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    /// The task of this name.
    pub fn index(&self, name: &str) -> Option<u32> {
        self.names.get(name).copied()
    }

    /// The tasks that a task waits for.
    pub fn dependencies(&self, task: u32) -> &[u32] {
        self.dependencies.of(task)
    }

    /// The tasks that wait for a task.
    pub fn dependents(&self, task: u32) -> &[u32] {
        self.dependents.of(task)
    }

    /// How many tasks the longest way from this one to an end has still to go.
    pub fn rank(&self, task: u32) -> u32 {
        self.ranks[task as usize]
    }

    /// The priority that the user gave to a task.
    pub fn priority(&self, task: u32) -> i32 {
        self.priorities[task as usize]
    }

    /// All tasks, each after those that it depends on. Tasks of a cycle, and those behind one,
    /// are missing.
    pub fn order(&self) -> &[u32] {
        &self.order
    }

    /// All tasks by number.
    pub fn tasks(&self) -> std::ops::Range<u32> {
        0..u32::try_from(self.len()).unwrap_or(u32::MAX)
    }

    fn topological_order(&self) -> Vec<u32> {
        let mut left: Vec<u32> = self
            .tasks()
            .map(|task| u32::try_from(self.dependencies(task).len()).unwrap_or(u32::MAX))
            .collect();
        let mut order: Vec<u32> = self.tasks().filter(|&task| left[task as usize] == 0).collect();
        let mut done = 0;
        while let Some(&task) = order.get(done) {
            done += 1;
            for &other in self.dependents(task) {
                left[other as usize] -= 1;
                if left[other as usize] == 0 {
                    order.push(other);
                }
            }
        }
        order
    }
}
