//! Drawing a workflow.

use std::fmt::Write;

use crate::dag::Graph;
use crate::types::{Observatory, Phase, TaskStatus};

/// The tasks in layers: each stands below all that it depends on.
struct Layers {
    graph: Graph,
    layers: Vec<Vec<u32>>,
}

impl Layers {
    fn new(workflow: &Observatory) -> Self {
        let graph = Graph::new(&workflow.spec.tasks);
        let mut depth = vec![0usize; graph.len()];
        for &task in graph.order() {
            let above = graph.dependencies(task).iter().map(|&other| depth[other as usize] + 1);
            depth[task as usize] = above.max().unwrap_or(0);
        }
        let mut layers: Vec<Vec<u32>> = Vec::new();
        // Tasks of a cycle have no place among the others, but are shown all the same.
        for task in graph.tasks() {
            let depth = depth[task as usize];
            if layers.len() <= depth {
                layers.resize(depth + 1, Vec::new());
            }
            layers[depth].push(task);
        }
        let mut position = vec![0f64; graph.len()];
        for layer in &mut layers {
            let mut order: Vec<(f64, u32)> = layer
                .iter()
                .map(|&task| {
                    let above = graph.dependencies(task);
                    let sum: f64 = above.iter().map(|&other| position[other as usize]).sum();
                    (if above.is_empty() { 0.0 } else { sum / above.len() as f64 }, task)
                })
                .collect();
            order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            *layer = order.iter().map(|(_, task)| *task).collect();
            for (index, &task) in layer.iter().enumerate() {
                position[task as usize] = index as f64;
            }
        }
        Self { graph, layers }
    }
}

fn status_of<'a>(workflow: &'a Observatory, name: &str) -> Option<&'a TaskStatus> {
    workflow.status.as_ref()?.tasks.iter().find(|task| task.name == name)
}

fn phase_of(workflow: &Observatory, name: &str) -> Option<Phase> {
    status_of(workflow, name).map(|status| status.phase)
}

/// A sign for a phase.
pub(super) fn sign(phase: Option<Phase>) -> char {
    match phase {
        Some(Phase::Succeeded) => '✔',
        Some(Phase::Failed) => '✖',
        Some(Phase::Running) => '●',
        Some(Phase::Pending) | None => '○',
    }
}

/// The workflow as lines of text: one block for each layer.
pub fn text(workflow: &Observatory) -> String {
    let layers = Layers::new(workflow);
    let tasks = &workflow.spec.tasks;
    let widest = tasks.iter().map(|task| task.name.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for (depth, layer) in layers.layers.iter().enumerate() {
        for (index, &task) in layer.iter().enumerate() {
            let name = &tasks[task as usize].name;
            let number = if index == 0 { depth.to_string() } else { String::new() };
            let above: Vec<&str> = layers
                .graph
                .dependencies(task)
                .iter()
                .map(|&other| tasks[other as usize].name.as_str())
                .collect();
            let arrow = if above.is_empty() { "" } else { "  ← " };
            let sign = sign(phase_of(workflow, name));
            let pad = if above.is_empty() { 0 } else { widest };
            let _ = writeln!(out, "{number:>3} {sign} {name:<pad$}{arrow}{}", above.join(", "));
        }
    }
    out
}

/// The workflow as a Mermaid flowchart.
pub fn mermaid(workflow: &Observatory) -> String {
    let graph = Graph::new(&workflow.spec.tasks);
    let mut out = String::from("flowchart LR\n");
    for (index, task) in workflow.spec.tasks.iter().enumerate() {
        let name = task.name.replace('"', "#quot;");
        let class = match phase_of(workflow, &task.name) {
            Some(phase) => format!(":::{}", phase.as_str().to_lowercase()),
            None => String::new(),
        };
        let _ = writeln!(out, "  t{index}[\"{name}\"]{class}");
    }
    for task in graph.tasks() {
        for &other in graph.dependencies(task) {
            let _ = writeln!(out, "  t{other} --> t{task}");
        }
    }
    if workflow.status.is_some() {
        for (phase, fill) in COLOURS {
            let _ = writeln!(out, "  classDef {} fill:{fill}", phase.as_str().to_lowercase());
        }
    }
    out
}

const COLOURS: [(Phase, &str); 4] = [
    (Phase::Pending, "#e5e7eb"),
    (Phase::Running, "#bfdbfe"),
    (Phase::Succeeded, "#bbf7d0"),
    (Phase::Failed, "#fecaca"),
];

/// The workflow as an SVG picture.
pub fn svg(workflow: &Observatory) -> String {
    const WIDTH: usize = 160;
    const HEIGHT: usize = 36;
    const GAP_X: usize = 60;
    const GAP_Y: usize = 18;
    const MARGIN: usize = 20;
    let layers = Layers::new(workflow);
    let mut place = vec![(0usize, 0usize); layers.graph.len()];
    for (column, layer) in layers.layers.iter().enumerate() {
        for (row, &task) in layer.iter().enumerate() {
            place[task as usize] = (MARGIN + column * (WIDTH + GAP_X), MARGIN + row * (HEIGHT + GAP_Y));
        }
    }
    let rows = layers.layers.iter().map(Vec::len).max().unwrap_or(0);
    let width = 2 * MARGIN + layers.layers.len() * (WIDTH + GAP_X);
    let height = 2 * MARGIN + rows * (HEIGHT + GAP_Y);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n"
    );
    for task in layers.graph.tasks() {
        let (x, y) = place[task as usize];
        for &other in layers.graph.dependencies(task) {
            let (from_x, from_y) = place[other as usize];
            let (from_x, from_y, y) = (from_x + WIDTH, from_y + HEIGHT / 2, y + HEIGHT / 2);
            let (bend_a, bend_b) = (from_x + GAP_X / 2, x.saturating_sub(GAP_X / 2));
            let _ = writeln!(
                out,
                "  <path d=\"M{from_x} {from_y} C{bend_a} {from_y} {bend_b} {y} {x} {y}\" fill=\"none\" stroke=\"#9ca3af\"/>"
            );
        }
    }
    for (task, spec) in layers.graph.tasks().zip(&workflow.spec.tasks) {
        let (x, y) = place[task as usize];
        let phase = phase_of(workflow, &spec.name).unwrap_or_default();
        let fill = COLOURS.iter().find(|(known, _)| *known == phase).map_or("#ffffff", |(_, fill)| fill);
        let label: String = match spec.name.chars().count() > 22 {
            true => spec.name.chars().take(21).chain(['…']).collect(),
            false => spec.name.clone(),
        };
        let (text_x, text_y) = (x + WIDTH / 2, y + HEIGHT / 2 + 4);
        let _ = writeln!(
            out,
            "  <g><title>{}: {phase}</title><rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\" fill=\"{fill}\" stroke=\"#6b7280\"/><text x=\"{text_x}\" y=\"{text_y}\" text-anchor=\"middle\">{}</text></g>",
            escape(&spec.name),
            escape(&label)
        );
    }
    out.push_str("</svg>\n");
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample() -> Observatory {
        serde_json::from_value(json!({
            "apiVersion": "workflow.seventh-horizon.io/v1alpha1", "kind": "Observatory",
            "metadata": {"name": "w"},
            "spec": {"tasks": [
                {"name": "task-1", "image": "i"},
                {"name": "task-2", "image": "i", "dependencies": ["task-1"]},
                {"name": "<3>", "image": "i", "dependencies": ["task-1", "task-2"]},
            ]},
            "status": {"tasks": [{"name": "task-1", "phase": "Succeeded"}, {"name": "task-2", "phase": "Running"}]},
        }))
        .expect("an Observatory")
    }

    #[test]
    fn text_shows_layers_phases_and_dependencies() {
        assert_eq!(text(&sample()), "  0 ✔ task-1\n  1 ● task-2  ← task-1\n  2 ○ <3>     ← task-1, task-2\n");
    }

    #[test]
    fn mermaid_has_every_task_and_dependency() {
        let drawn = mermaid(&sample());
        assert!(drawn.starts_with("flowchart LR\n  t0[\"task-1\"]:::succeeded\n"), "{drawn}");
        assert_eq!(drawn.matches("-->").count(), 3);
    }

    #[test]
    fn svg_has_every_task_and_is_escaped() {
        let drawn = svg(&sample());
        assert_eq!(drawn.matches("<rect").count(), 3);
        assert_eq!(drawn.matches("<path").count(), 3);
        assert!(drawn.contains("&lt;3&gt;"));
        assert!(drawn.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn a_workflow_with_a_cycle_can_still_be_drawn() {
        let mut workflow = sample();
        workflow.spec.tasks[0].dependencies = vec!["<3>".to_owned()];
        assert_eq!(text(&workflow).lines().count(), 3);
        assert_eq!(svg(&workflow).matches("<rect").count(), 3);
    }
}
