//! What may start now.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::graph::Graph;

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Waits for tasks that it depends on.
    Blocked,
    /// Could start.
    Ready,
    /// Holds a slot.
    Running,
    /// Between two attempts.
    Waiting,
    /// Ended well.
    Succeeded,
    /// Ended otherwise.
    Failed,
    /// Will never start.
    Omitted,
}

/// Whether tasks may start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gate {
    /// They may.
    #[default]
    Open,
    /// They may not.
    Closed,
}

/// Decides which task starts next.
///
/// Reporting an end costs as many steps as tasks wait for the one that ended, whatever the size
/// of the workflow; all ends together cost as many as there are tasks and dependencies. Among
/// the tasks that could start, those of higher priority go first, then those with the longest
/// way to the end, then those that stand first.
#[derive(Clone, Debug)]
pub struct Engine {
    graph: Arc<Graph>,
    states: Vec<State>,
    /// How many dependencies of a task have not succeeded.
    left: Vec<u32>,
    ready: BinaryHeap<(i32, u32, Reverse<u32>)>,
    limit: usize,
    gate: Gate,
    counts: [usize; 7],
    work: u64,
}

impl Engine {
    /// An engine for a graph of which nothing has run.
    pub fn new(graph: &Arc<Graph>, limit: usize) -> Self {
        let mut engine = Self {
            states: vec![State::Blocked; graph.len()],
            left: graph
                .tasks()
                .map(|task| u32::try_from(graph.dependencies(task).len()).unwrap_or(u32::MAX))
                .collect(),
            ready: BinaryHeap::new(),
            limit,
            gate: Gate::Open,
            counts: [0; 7],
            work: 0,
            graph: Arc::clone(graph),
        };
        engine.counts[State::Blocked as usize] = graph.len();
        for task in graph.tasks() {
            engine.work += 1;
            if engine.left[task as usize] == 0 {
                engine.make_ready(task);
            }
        }
        engine
    }

    /// The graph.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// Where a task stands.
    pub fn state(&self, task: u32) -> State {
        self.states[task as usize]
    }

    /// How many tasks stand there.
    pub fn count(&self, state: State) -> usize {
        self.counts[state as usize]
    }

    /// Sets how many tasks may run at the same time. Those that run go on.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Lets tasks start, or not.
    pub fn set_gate(&mut self, gate: Gate) {
        self.gate = gate;
    }

    /// Whether the next ready task would start.
    pub fn has_room(&self) -> bool {
        self.gate == Gate::Open && self.count(State::Running) < self.limit
    }

    /// How many further tasks may run.
    pub fn room(&self) -> usize {
        match self.gate {
            Gate::Open => self.limit.saturating_sub(self.count(State::Running)),
            Gate::Closed => 0,
        }
    }

    /// Gives a slot to the task that should start next, if there is one and a slot is free.
    pub fn start_next(&mut self) -> Option<u32> {
        if !self.has_room() {
            return None;
        }
        while let Some((_, _, Reverse(task))) = self.ready.pop() {
            self.work += 1;
            // Entries of tasks that were taken over or omitted stay until here.
            if self.state(task) == State::Ready {
                self.set(task, State::Running);
                return Some(task);
            }
        }
        None
    }

    /// Counts a task as running that is known to run already, whatever the limit says.
    pub fn take_over(&mut self, task: u32) {
        if matches!(self.state(task), State::Blocked | State::Ready | State::Waiting) {
            self.set(task, State::Running);
        }
    }

    /// A task ended well: those that waited only for it become ready.
    pub fn succeeded(&mut self, task: u32) {
        if self.state(task) == State::Succeeded {
            return;
        }
        self.set(task, State::Succeeded);
        let graph = Arc::clone(&self.graph);
        for &other in graph.dependents(task) {
            self.work += 1;
            self.left[other as usize] -= 1;
            if self.left[other as usize] == 0 && self.state(other) == State::Blocked {
                self.make_ready(other);
            }
        }
    }

    /// A task ended otherwise, for good. Returns the tasks that can never start because of it.
    pub fn failed(&mut self, task: u32) -> Vec<u32> {
        self.set(task, State::Failed);
        let mut omitted = Vec::new();
        let graph = Arc::clone(&self.graph);
        let mut stack = vec![task];
        while let Some(task) = stack.pop() {
            for &other in graph.dependents(task) {
                self.work += 1;
                if self.state(other) == State::Blocked {
                    self.set(other, State::Omitted);
                    omitted.push(other);
                    stack.push(other);
                }
            }
        }
        omitted
    }

    /// An attempt of a task ended and another will follow: its slot is free meanwhile.
    pub fn wait(&mut self, task: u32) {
        if !matches!(self.state(task), State::Succeeded | State::Failed | State::Omitted) {
            self.set(task, State::Waiting);
        }
    }

    /// The wait of a task is over.
    pub fn resume(&mut self, task: u32) {
        if self.state(task) == State::Waiting {
            self.make_ready(task);
        }
    }

    /// Nothing further starts. Returns the tasks that will therefore never run (again).
    pub fn omit_rest(&mut self) -> Vec<u32> {
        let graph = Arc::clone(&self.graph);
        let mut omitted = Vec::new();
        for task in graph.tasks() {
            self.work += 1;
            if matches!(self.state(task), State::Blocked | State::Ready | State::Waiting) {
                self.set(task, State::Omitted);
                omitted.push(task);
            }
        }
        omitted
    }

    /// Whether nothing runs and nothing ever will.
    pub fn is_over(&self) -> bool {
        let ended = self.count(State::Succeeded) + self.count(State::Failed) + self.count(State::Omitted);
        ended == self.states.len()
    }

    /// How many tasks and dependencies have been looked at so far.
    pub fn work(&self) -> u64 {
        self.work
    }

    fn make_ready(&mut self, task: u32) {
        self.set(task, State::Ready);
        let order = (self.graph.priority(task), self.graph.rank(task), Reverse(task));
        self.ready.push(order);
    }

    fn set(&mut self, task: u32, state: State) {
        let slot = &mut self.states[task as usize];
        self.counts[*slot as usize] -= 1;
        self.counts[state as usize] += 1;
        *slot = state;
    }
}
