//! kill -9 at every request of every action plugin, and at every write to the API server ([`written`]):
//! nothing is lost, nothing is done twice.
//!
//! A life of a resource is: created, changed, deleted. A stand-in for the outside world counts
//! what really happened and, at the request that the run is about, kills the operator: before the
//! request takes effect, after it has and before the answer, or right after the answer. The operator is started again and
//! the life goes on. At the end exactly the wished effects have happened, in their order.
//!
//! `cargo test` does some of the runs; `make crash-matrix` all.

#![expect(clippy::print_stdout, reason = "the long version is run for these figures")]

#[path = "../../operators/infra/tests/support/answering.rs"]
mod answering;
mod api_server;
mod operator;
#[path = "../support/mod.rs"]
mod support;
mod world;
mod written;

use std::path::Path;
use std::time::Duration;

use operator::Operator;
use serde_json::{Value, json};
use world::{Kill, When, World};

/// A plugin, how it is configured for the stand-in, and what a life does to the world.
struct Subject {
    plugin: &'static str,
    config: Value,
    effects: &'static [&'static str],
}

fn subjects(url: &str) -> Vec<Subject> {
    let life = &["apply 3", "apply 5", "destroy"];
    vec![
        Subject {
            plugin: "http",
            config: json!({"base_url": format!("{url}/http"), "apply": {"path": "/things/{{ name }}"},
                "destroy": {"path": "/things/{{ name }}"}, "outputs": {"id": "/id"},
                "poll": {"path": "/operations/{{ response.operation }}", "interval_seconds": 0,
                    "done": {"at": "/state", "in": ["done"]}}}),
            effects: life,
        },
        Subject {
            plugin: "github_actions",
            config: json!({"api_url": format!("{url}/github"), "owner": "o", "repo": "r", "workflow": "w.yml",
                "correlation_input": "run", "poll_interval_seconds": 0, "appears_within_seconds": 0}),
            // Only a workflow can take away what a workflow has made.
            effects: &["apply 3", "apply 5"],
        },
        Subject {
            plugin: "gitlab",
            config: json!({"api_url": format!("{url}/gitlab"), "project": 7, "token": "t", "destroy": "pipeline",
                "poll_interval_seconds": 0, "appears_within_seconds": 0}),
            effects: life,
        },
        Subject { plugin: "outside", config: json!({}), effects: life },
        Subject {
            plugin: "terraform",
            config: json!({"module": "thing"}),
            effects: &["create 3", "destroy 3", "create 5", "destroy 5"],
        },
    ]
}

/// Whether all of the runs are done here, or some.
fn is_whole() -> bool {
    std::env::var("STEER_CRASH_MATRIX").is_ok_and(|asked| asked == "all")
}

/// The end of a log.
fn last_lines(log: &Path) -> String {
    let log = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_killed_at_any_request_of_any_plugin_loses_and_doubles_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let world = World::default();
    let url = world.serve().await;
    let environment = environment(folder.path(), &url);
    let mut runs = 0;
    for subject in subjects(&url) {
        if subject.plugin == "terraform" && !has_terraform() {
            continue;
        }
        let dir = folder.path().join(subject.plugin);
        let rounds = tokio::task::block_in_place(|| lives(&dir, &environment, &world, &subject));
        println!("{}: {rounds} kills, 0 lost, 0 doubled", subject.plugin);
        runs += rounds;
    }
    println!("{runs} kills in all");
    assert!(runs > 5, "too few requests were made for this to mean anything");
}

/// One life after the other, each with a kill at a later moment, until a life has no more of them.
fn lives(dir: &Path, environment: &[(String, String)], world: &World, subject: &Subject) -> usize {
    let mut operator = Operator::start(dir, environment);
    operator.create_type();
    let (mut kills, mut number) = (0, 0);
    loop {
        let kill = Kill { request: number / 3, when: When::ALL[number % 3] };
        number += 1;
        // The first request matters most; of the others every eleventh.
        if !is_whole() && !(number - 1).is_multiple_of(11) {
            continue;
        }
        let name = format!("{}-{number}", subject.plugin.replace('_', "-"));
        world.reset(kill, operator.pid());
        let id = live(&mut operator, world, subject, &name);
        world.settle();
        let killed = world.has_killed();
        let effects = world.effects();
        assert_eq!(
            effects,
            subject.effects,
            "{}, {kill:?}, resource {id}:\n{}",
            subject.plugin,
            operator.log()
        );
        if !killed {
            operator.stop();
            return kills;
        }
        kills += 1;
        operator.revive(world);
    }
}

fn live(operator: &mut Operator, world: &World, subject: &Subject, name: &str) -> i64 {
    let resource = json!({"name": name, "resource_type_name": "Thing", "resource_type_version": "v1",
        "action_plugin": subject.plugin, "plugin_config": subject.config, "spec": {"size": 3}});
    let created = operator.ask(world, "POST", "/api/v1/resources", Some(&resource));
    let id = created["id"].as_i64().expect("an id");
    let path = format!("/api/v1/resources/{id}");
    let reach = |operator: &mut Operator, generation: i64| {
        support::eventually(&format!("{name} is ready at generation {generation}"), || {
            let shown = operator.try_ask(world, "GET", &path, None)?.1;
            let there = shown["status"] == "ready" && shown["observed_generation"] == generation;
            there.then_some(())
        });
    };
    reach(operator, 1);
    operator.ask(world, "PUT", &path, Some(&json!({"spec": {"size": 5}})));
    reach(operator, 2);
    operator.ask(world, "DELETE", &path, None);
    support::eventually(&format!("{name} is gone"), || {
        (operator.try_ask(world, "GET", &path, None)?.0 == 404).then_some(())
    });
    id
}

fn has_terraform() -> bool {
    let found = std::process::Command::new("terraform").arg("version").output().is_ok();
    if !found {
        xtask::parts::skip(&xtask::parts::Unavailable::Missing {
            part: "terraform",
            what: "no terraform is in the path".into(),
            remedy: "install it from its makers' site".into(),
        });
    }
    found
}

/// What the operator is told by its environment, with the files that it names.
fn environment(folder: &Path, url: &str) -> Vec<(String, String)> {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let plugin = write("outside.py", include_str!("outside.py"));
    write("modules/thing/main.tf", &include_str!("thing.tf").replace("URL", url));
    let empty = write("empty.rc", "");
    let configs = json!({"outside": {"command": ["python3", plugin], "url": format!("{url}/outside")}});
    [
        ("PLUGIN_CONFIGS", configs.to_string()),
        ("TERRAFORM_MODULES", folder.join("modules").display().to_string()),
        ("TF_CLI_CONFIG_FILE", empty),
        ("BACKOFF_BASE_DELAY", "1".into()),
        ("ACTION_PRIVATE_ADDRESSES", "allow".into()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// How long the operator may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);
