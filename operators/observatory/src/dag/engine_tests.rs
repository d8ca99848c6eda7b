use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::{Engine, Gate, Graph, State};
use crate::types::TaskSpec;

fn graph(tasks: usize, edges: impl IntoIterator<Item = (usize, usize)>) -> Arc<Graph> {
    let mut specs: Vec<TaskSpec> = (0..tasks)
        .map(|task| TaskSpec { name: task.to_string(), image: "i".to_owned(), ..TaskSpec::default() })
        .collect();
    for (from, to) in edges {
        specs[to].dependencies.push(from.to_string());
    }
    Arc::new(Graph::new(&specs))
}

/// Runs everything to its end, always ending the task that runs longest, and returns the work.
fn work(graph: &Arc<Graph>, limit: usize) -> u64 {
    let mut engine = Engine::new(graph, limit);
    let mut running = std::collections::VecDeque::new();
    loop {
        while let Some(task) = engine.start_next() {
            running.push_back(task);
        }
        match running.pop_front() {
            Some(task) => engine.succeeded(task),
            None => break,
        }
    }
    assert_eq!(engine.count(State::Succeeded), graph.len());
    engine.work()
}

#[test]
fn work_grows_with_tasks_and_dependencies_and_no_faster() {
    type Shape = fn(usize) -> (Arc<Graph>, usize);
    let shapes: [(&str, Shape); 4] = [
        ("wide", |n| (graph(n, []), 0)),
        ("deep", |n| (graph(n, (1..n).map(|task| (task - 1, task))), n - 1)),
        ("fan", |n| {
            let edges = (1..n - 1).flat_map(|task| [(0, task), (task, n - 1)]);
            (graph(n, edges), 2 * (n - 2))
        }),
        ("lattice", |n| {
            let side = n.isqrt();
            let edges = (0..side * side).flat_map(move |task| {
                let right = (task % side + 1 < side).then(|| (task, task + 1));
                let below = (task + side < side * side).then(|| (task, task + side));
                right.into_iter().chain(below)
            });
            (graph(side * side, edges), 2 * side * (side - 1))
        }),
    ];
    for (name, shape) in shapes {
        for n in [1_000, 10_000] {
            let (graph, edges) = shape(n);
            for limit in [1, 10, n] {
                let work = work(&graph, limit);
                // Once when set up, once when started, once for each dependency.
                let most = (2 * graph.len() + edges) as u64;
                assert!(work <= most, "{name} of {n} with {limit} at a time: {work} > {most}");
            }
        }
    }
}

#[test]
fn a_failure_in_a_large_graph_is_passed_on_once() {
    let n = 10_000;
    let graph = graph(n, (1..n).map(|task| (task - 1, task)));
    let mut engine = Engine::new(&graph, 1);
    let first = engine.start_next().expect("the first task");
    assert_eq!(engine.failed(first).len(), n - 1);
    assert!(engine.is_over());
    assert!(engine.work() <= 2 * n as u64 + 1);
}

#[test]
fn the_longest_way_goes_first_and_priority_before_it() {
    // 0, and the chain 1 -> 2 -> 3.
    let chain = graph(4, [(1, 2), (2, 3)]);
    assert_eq!(Engine::new(&chain, 1).start_next(), Some(1));
    let mut specs: Vec<TaskSpec> =
        ["a", "b", "c"].map(|name| TaskSpec { name: name.to_owned(), ..TaskSpec::default() }).into();
    specs[2].priority = Some(5);
    specs[1].dependencies.clear();
    assert_eq!(Engine::new(&Arc::new(Graph::new(&specs)), 1).start_next(), Some(2));
}

#[test]
fn a_task_between_attempts_gives_its_slot_to_others() {
    let mut engine = Engine::new(&graph(2, []), 1);
    assert_eq!(engine.start_next(), Some(0));
    assert_eq!(engine.start_next(), None);
    engine.wait(0);
    assert_eq!(engine.start_next(), Some(1));
    engine.resume(0);
    assert_eq!(engine.start_next(), None, "a retry does not go beyond the limit");
    engine.succeeded(1);
    assert_eq!(engine.start_next(), Some(0));
}

#[test]
fn nothing_starts_while_the_gate_is_closed() {
    let mut engine = Engine::new(&graph(2, [(0, 1)]), 1);
    engine.set_gate(Gate::Closed);
    assert_eq!(engine.start_next(), None);
    engine.set_gate(Gate::Open);
    assert_eq!(engine.start_next(), Some(0));
}

/// The same decisions, made by looking at everything every time.
struct Model {
    graph: Arc<Graph>,
    states: Vec<State>,
    limit: usize,
    gate: Gate,
}

impl Model {
    fn refresh(&mut self) {
        loop {
            let mut changed = false;
            for task in self.graph.tasks() {
                if self.states[task as usize] != State::Blocked {
                    continue;
                }
                let states: BTreeSet<u8> = self
                    .graph
                    .dependencies(task)
                    .iter()
                    .map(|&dependency| match self.states[dependency as usize] {
                        State::Succeeded => 0,
                        State::Failed | State::Omitted => 2,
                        _ => 1,
                    })
                    .collect();
                match states.last() {
                    None | Some(0) => self.states[task as usize] = State::Ready,
                    Some(2) => self.states[task as usize] = State::Omitted,
                    Some(_) => continue,
                }
                changed = true;
            }
            if !changed {
                return;
            }
        }
    }

    fn next(&mut self) -> Option<u32> {
        let running = self.states.iter().filter(|state| **state == State::Running).count();
        if self.gate == Gate::Closed || running >= self.limit {
            return None;
        }
        let best = self.graph.tasks().filter(|&task| self.states[task as usize] == State::Ready).max_by_key(
            |&task| (self.graph.priority(task), self.graph.rank(task), std::cmp::Reverse(task)),
        )?;
        self.states[best as usize] = State::Running;
        Some(best)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Next,
    Succeed(usize),
    Fail(usize),
    Wait(usize),
    Resume(usize),
    Limit(usize),
    Gate(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => Just(Step::Next),
        5 => any::<usize>().prop_map(Step::Succeed),
        1 => any::<usize>().prop_map(Step::Fail),
        1 => any::<usize>().prop_map(Step::Wait),
        1 => any::<usize>().prop_map(Step::Resume),
        1 => (1usize..5).prop_map(Step::Limit),
        1 => any::<bool>().prop_map(Step::Gate),
    ];
    prop::collection::vec(step, 0..120)
}

/// Edges only from lower to higher numbers: no cycles.
fn graphs() -> impl Strategy<Value = Arc<Graph>> {
    (1usize..20).prop_flat_map(|n| {
        let edges = prop::collection::btree_set((0..n, 0..n), 0..n * 2);
        let priorities = prop::collection::vec(0i32..3, n);
        (Just(n), edges, priorities).prop_map(|(n, edges, priorities)| {
            let mut specs: Vec<TaskSpec> = priorities
                .iter()
                .enumerate()
                .map(|(task, priority)| TaskSpec {
                    name: task.to_string(),
                    priority: Some(*priority),
                    ..TaskSpec::default()
                })
                .collect();
            for (a, b) in edges.into_iter().filter(|(a, b)| a != b && a.max(b) < &n) {
                specs[a.max(b)].dependencies.push(a.min(b).to_string());
            }
            Arc::new(Graph::new(&specs))
        })
    })
}

proptest! {
    #[test]
    fn the_engine_decides_as_a_model_that_looks_at_everything(graph in graphs(), steps in steps()) {
        let mut engine = Engine::new(&graph, 3);
        let mut model = Model {
            states: vec![State::Blocked; graph.len()],
            graph: Arc::clone(&graph),
            limit: 3,
            gate: Gate::Open,
        };
        model.refresh();
        let pick = |model: &Model, state: State, seed: usize| {
            let all: Vec<u32> =
                model.graph.tasks().filter(|&task| model.states[task as usize] == state).collect();
            (!all.is_empty()).then(|| all[seed % all.len()])
        };
        for step in steps {
            match step {
                Step::Next => prop_assert_eq!(engine.start_next(), model.next()),
                Step::Succeed(seed) => if let Some(task) = pick(&model, State::Running, seed) {
                    engine.succeeded(task);
                    model.states[task as usize] = State::Succeeded;
                },
                Step::Fail(seed) => if let Some(task) = pick(&model, State::Running, seed) {
                    let before = model.states.clone();
                    let omitted: BTreeSet<u32> = engine.failed(task).into_iter().collect();
                    model.states[task as usize] = State::Failed;
                    model.refresh();
                    let expected: BTreeSet<u32> = graph
                        .tasks()
                        .filter(|&task| model.states[task as usize] == State::Omitted)
                        .filter(|&task| before[task as usize] != State::Omitted)
                        .collect();
                    prop_assert_eq!(omitted, expected);
                },
                Step::Wait(seed) => if let Some(task) = pick(&model, State::Running, seed) {
                    engine.wait(task);
                    model.states[task as usize] = State::Waiting;
                },
                Step::Resume(seed) => if let Some(task) = pick(&model, State::Waiting, seed) {
                    engine.resume(task);
                    model.states[task as usize] = State::Ready;
                },
                Step::Limit(limit) => {
                    engine.set_limit(limit);
                    model.limit = limit;
                }
                Step::Gate(open) => {
                    model.gate = if open { Gate::Open } else { Gate::Closed };
                    engine.set_gate(model.gate);
                }
            }
            model.refresh();
            for task in graph.tasks() {
                prop_assert_eq!(engine.state(task), model.states[task as usize]);
            }
            let states: Vec<State> = graph.tasks().map(|task| engine.state(task)).collect();
            prop_assert_eq!(engine.is_over(), states.iter().all(|state| {
                matches!(state, State::Succeeded | State::Failed | State::Omitted)
            }));
        }
    }
}
