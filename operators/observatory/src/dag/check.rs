//! Everything that can be wrong with a workflow, found at once.

use std::collections::{HashMap, HashSet};
use std::fmt;

use super::graph::Graph;
use crate::schedule::Cron;
use crate::types::{DurationText, ObservatorySpec, RerunMode, TaskSpec};

/// The longest name of a task, in bytes.
const LONGEST_NAME: usize = 253;

/// Where in a spec something is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A field of the spec.
    Spec(&'static str),
    /// An item of a list of the spec.
    SpecItem(&'static str, usize),
    /// A field of the task with this index.
    Task(usize, &'static str),
    /// An item of a list of the task with this index.
    TaskItem(usize, &'static str, usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spec(field) => write!(f, "spec.{field}"),
            Self::SpecItem(field, item) => write!(f, "spec.{field}[{item}]"),
            Self::Task(task, field) => write!(f, "spec.tasks[{task}].{field}"),
            Self::TaskItem(task, field, item) => write!(f, "spec.tasks[{task}].{field}[{item}]"),
        }
    }
}

/// One thing that is wrong with a workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// What, in one word: the reason of the condition `Valid`.
    pub reason: &'static str,
    /// What, and what to do about it.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// All problems of a spec, in the order in which they stand in it; cycles come last.
pub fn check(spec: &ObservatorySpec) -> Vec<Problem> {
    let mut found = Vec::new();
    check_settings(spec, &mut found);
    if spec.tasks.is_empty() {
        push(
            &mut found,
            Place::Spec("tasks"),
            "NoTasks",
            "there are no tasks; a workflow needs at least one",
        );
    }
    check_tasks(&spec.tasks, &mut found);
    check_cycles(&spec.tasks, &mut found);
    found
}

fn push(found: &mut Vec<Problem>, place: Place, reason: &'static str, message: impl Into<String>) {
    found.push(Problem { place, reason, message: message.into() });
}

fn check_settings(spec: &ObservatorySpec, found: &mut Vec<Problem>) {
    let zone = spec.timezone.as_deref();
    for (text, place) in spec.schedule.iter().map(|text| (text, Place::Spec("schedule"))).chain(
        spec.schedules.iter().enumerate().map(|(index, text)| (text, Place::SpecItem("schedules", index))),
    ) {
        if let Err(error) = Cron::new(text, None) {
            push(found, place, "BadSchedule", error.to_string());
        }
    }
    if let Some(zone) = zone
        && let Err(error) = crate::schedule::time_zone(zone)
    {
        push(found, Place::Spec("timezone"), "BadTimezone", error.to_string());
    }
    if spec.max_concurrent < 1 {
        let message = format!("{} tasks at a time can never start any; the least is 1", spec.max_concurrent);
        push(found, Place::Spec("maxConcurrent"), "BadLimit", message);
    }
    let mut duration = |place: &'static str, text: Option<&DurationText>| {
        if let Some(Err(error)) = text.map(DurationText::parse) {
            push(found, Place::Spec(place), "BadDuration", error.to_string());
        }
    };
    duration("timeouts.workflow", spec.timeouts.as_ref().and_then(|timeouts| timeouts.workflow.as_ref()));
    let ttl = spec.ttl.as_ref();
    duration("ttl.afterCompletion", ttl.and_then(|ttl| ttl.after_completion.as_ref()));
    duration("ttl.afterSuccess", ttl.and_then(|ttl| ttl.after_success.as_ref()));
    duration("ttl.afterFailure", ttl.and_then(|ttl| ttl.after_failure.as_ref()));
    duration("podGC.delay", spec.pod_gc.as_ref().and_then(|gc| gc.delay.as_ref()));
    if let Some(rerun) = &spec.rerun
        && rerun.mode == RerunMode::Tasks
    {
        for (item, name) in rerun.tasks.iter().enumerate() {
            if !spec.tasks.iter().any(|task| task.name == *name) {
                let message = format!("there is no task {name:?} to run again");
                push(found, Place::SpecItem("rerun.tasks", item), "UnknownTask", message);
            }
        }
    }
}

fn check_tasks(tasks: &[TaskSpec], found: &mut Vec<Problem>) {
    let mut first: HashMap<&str, usize> = HashMap::new();
    for (index, task) in tasks.iter().enumerate() {
        first.entry(&task.name).or_insert(index);
    }
    for (index, task) in tasks.iter().enumerate() {
        let name = &task.name;
        if name.is_empty() {
            push(found, Place::Task(index, "name"), "NoName", "a task needs a name");
        } else if name.len() > LONGEST_NAME {
            let message = format!("the name has {} bytes; at most {LONGEST_NAME} are allowed", name.len());
            push(found, Place::Task(index, "name"), "NameTooLong", message);
        }
        if task.image.is_empty() {
            push(found, Place::Task(index, "image"), "NoImage", format!("task {name:?} needs an image"));
        }
        if first[name.as_str()] != index {
            let message = format!(
                "task {name:?} is there twice, first as spec.tasks[{}]; names must be unique",
                first[name.as_str()]
            );
            push(found, Place::Task(index, "name"), "DuplicateTask", message);
        }
        check_dependencies(index, task, &first, found);
        check_durations(index, task, found);
    }
}

fn check_dependencies(index: usize, task: &TaskSpec, known: &HashMap<&str, usize>, found: &mut Vec<Problem>) {
    let mut seen = HashSet::new();
    for (item, dependency) in task.dependencies.iter().enumerate() {
        let place = Place::TaskItem(index, "dependencies", item);
        let name = &task.name;
        if dependency == name {
            push(found, place, "SelfDependency", format!("task {name:?} depends on itself"));
        } else if !known.contains_key(dependency.as_str()) {
            let hint = closest(dependency, known.keys().copied())
                .map_or_else(String::new, |other| format!("; did you mean {other:?}?"));
            let message = format!("task {name:?} depends on {dependency:?}, which does not exist{hint}");
            push(found, place, "UnknownDependency", message);
        } else if !seen.insert(dependency) {
            let message = format!("task {name:?} names its dependency {dependency:?} twice");
            push(found, place, "DuplicateDependency", message);
        }
    }
}

fn check_durations(index: usize, task: &TaskSpec, found: &mut Vec<Problem>) {
    let backoff = task.retry.as_ref().and_then(|retry| retry.backoff.as_ref());
    for (field, text) in [
        ("timeout", task.timeout.as_ref()),
        ("totalTimeout", task.total_timeout.as_ref()),
        ("startTimeout", task.start_timeout.as_ref()),
        ("retry.backoff.duration", backoff.and_then(|backoff| backoff.duration.as_ref())),
        ("retry.backoff.cap", backoff.and_then(|backoff| backoff.cap.as_ref())),
        ("retry.backoff.maxDuration", backoff.and_then(|backoff| backoff.max_duration.as_ref())),
    ] {
        if let Some(Err(error)) = text.map(DurationText::parse) {
            push(found, Place::Task(index, field), "BadDuration", format!("task {:?}: {error}", task.name));
        }
    }
}

/// Finds a way round for each group of tasks that wait for each other.
fn check_cycles(tasks: &[TaskSpec], found: &mut Vec<Problem>) {
    let graph = Graph::new(tasks);
    let mut stuck = vec![true; tasks.len()];
    for &task in graph.order() {
        stuck[task as usize] = false;
    }
    // Every stuck task waits for a stuck one: following them must come round.
    let mut walk = vec![0u32; tasks.len()];
    for start in graph.tasks() {
        if !stuck[start as usize] || walk[start as usize] != 0 {
            continue;
        }
        let mut path = Vec::new();
        let mut at = start;
        while walk[at as usize] == 0 {
            walk[at as usize] = start + 1;
            path.push(at);
            match graph.dependencies(at).iter().find(|&&next| stuck[next as usize]) {
                Some(&next) => at = next,
                None => break,
            }
        }
        if walk[at as usize] != start + 1 {
            continue;
        }
        let Some(from) = path.iter().position(|&task| task == at) else { continue };
        let round = &path[from..];
        let names: Vec<&str> =
            round.iter().chain(&round[..1]).map(|&task| tasks[task as usize].name.as_str()).collect();
        let message =
            format!("tasks wait for each other: {}; remove one of these dependencies", shorten(&names));
        push(found, Place::Task(round[0] as usize, "dependencies"), "Cycle", message);
    }
}

/// A cycle of thousands of tasks is shown by its ends.
fn shorten(names: &[&str]) -> String {
    const SHOWN: usize = 20;
    if names.len() <= SHOWN {
        return names.join(" -> ");
    }
    let (head, tail) = (&names[..SHOWN / 2], &names[names.len() - SHOWN / 2..]);
    format!("{} -> ({} more) -> {}", head.join(" -> "), names.len() - SHOWN, tail.join(" -> "))
}

/// The known name that a misspelt one is closest to, if it is close.
fn closest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let budget = (name.chars().count() / 3).clamp(1, 3);
    known
        .filter(|other| other.len().abs_diff(name.len()) <= budget)
        .map(|other| (distance(name, other), other))
        .filter(|(distance, _)| *distance <= budget)
        .min()
        .map(|(_, other)| other)
}

/// How many letters must be changed, added or left out.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let change = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn task(name: &str, dependencies: &[&str]) -> TaskSpec {
        TaskSpec {
            name: name.to_owned(),
            image: "busybox".to_owned(),
            dependencies: dependencies.iter().map(|&name| name.to_owned()).collect(),
            ..TaskSpec::default()
        }
    }

    fn problems(tasks: Vec<TaskSpec>) -> Vec<String> {
        let spec = ObservatorySpec { tasks, max_concurrent: 10, ..ObservatorySpec::default() };
        check(&spec).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_sound_workflow_has_no_problems() {
        let none: Vec<String> = Vec::new();
        assert_eq!(problems(vec![task("a", &[]), task("b", &["a"]), task("c", &["a", "b"])]), none);
    }

    #[test]
    fn a_cycle_is_shown_with_its_path() {
        assert_eq!(
            problems(vec![task("a", &["c"]), task("b", &["a"]), task("c", &["b"]), task("d", &["c"])]),
            [
                "spec.tasks[0].dependencies: tasks wait for each other: a -> c -> b -> a; remove one of these dependencies"
            ]
        );
    }

    #[test]
    fn two_separate_cycles_are_both_found() {
        let found =
            problems(vec![task("a", &["b"]), task("b", &["a"]), task("x", &["y"]), task("y", &["x"])]);
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn all_problems_are_found_at_once() {
        let mut bad = task("c", &["a"]);
        bad.timeout = Some("10".into());
        assert_eq!(
            problems(vec![
                task("a", &["a"]),
                task("b", &["extrct", "a", "a"]),
                task("a", &[]),
                task("extract", &[]),
                bad
            ]),
            [
                "spec.tasks[0].dependencies[0]: task \"a\" depends on itself",
                "spec.tasks[1].dependencies[0]: task \"b\" depends on \"extrct\", which does not exist; did you mean \"extract\"?",
                "spec.tasks[1].dependencies[2]: task \"b\" names its dependency \"a\" twice",
                "spec.tasks[2].name: task \"a\" is there twice, first as spec.tasks[0]; names must be unique",
                "spec.tasks[4].timeout: task \"c\": \"10\" is not a duration; write numbers with units, such as 90s, 1h30m or 500ms",
            ]
        );
    }

    #[test]
    fn schedules_and_limits_are_checked_too() {
        let spec = ObservatorySpec {
            tasks: vec![task("a", &[])],
            schedule: Some("61 * * * *".to_owned()),
            timezone: Some("Mars/Olympus".to_owned()),
            max_concurrent: 0,
            ..ObservatorySpec::default()
        };
        let reasons: Vec<&str> = check(&spec).iter().map(|problem| problem.reason).collect();
        assert_eq!(reasons, ["BadSchedule", "BadTimezone", "BadLimit"]);
    }

    #[test]
    fn names_of_any_letters_are_welcome_up_to_a_length() {
        let none: Vec<String> = Vec::new();
        assert_eq!(problems(vec![task("Größe_1.A", &[]), task(&"x".repeat(253), &[])]), none);
        assert_eq!(problems(vec![task(&"x".repeat(254), &[]), task("", &[])]).len(), 2);
    }

    #[test]
    fn a_cycle_of_ten_thousand_tasks_neither_overflows_nor_floods() {
        let tasks = (0..10_000).map(|i| task(&i.to_string(), &[&((i + 1) % 10_000).to_string()])).collect();
        let found = problems(tasks);
        assert_eq!(found.len(), 1);
        assert!(found[0].len() < 300, "{}", found[0]);
        assert!(found[0].contains("(9981 more)"), "{}", found[0]);
    }
}
