//! Plugins in processes of their own: the samples keep the contract, and naughty ones are
//! bounded, reported and leave nothing behind.

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use steersman_infra::action::{Action, ActionError, Capability, Drift, Progress, Task};
use steersman_infra::plugin::conformance::{Sample, Verdict, check};
use steersman_infra::plugin::wire::{Call, Hello, Introduction, Request, Said};
use steersman_infra::plugin::{ProcessOptions, ProcessPlugin};
use steersman_infra::types::{Operation, State};
use steersman_infra::{Environment, History, Resource};
use support::{box_type, cluster, operate};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn task() -> Task {
    let time = Timestamp::from_second(1_800_000_000).expect("a time");
    Task {
        attempt: "attempt-1".into(),
        started_at: time,
        operation: Operation::Apply,
        name: "one".into(),
        namespace: "default".into(),
        uid: "uid-1".into(),
        type_name: "Box".into(),
        type_version: "v1".into(),
        generation: 2,
        parameters: object(&json!({"size": 3})),
        config: object(&json!({"folder": "/somewhere"})),
        last_run: None,
        outputs: Map::new(),
        now: time,
    }
}

#[tokio::test]
async fn the_sample_plugins_keep_the_contract() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = object(&json!({"folder": folder.path()}));
    let python =
        ["python3".to_owned(), repository().join("examples/plugins/textfile.py").display().to_string()];
    let shell = ["sh".to_owned(), repository().join("examples/plugins/marker.sh").display().to_string()];
    for (command, parameters) in [
        (python.clone(), json!({"content": "hello"})),
        (python, json!({"content": "hello", "seconds": 1})),
        (shell, json!({})),
    ] {
        let sample = Sample { settings: settings.clone(), parameters: object(&parameters) };
        let report = check(&ProcessOptions::new(command.clone()), &sample).await;
        assert!(report.passed(), "{command:?}:\n{report}");
        assert_eq!(report.checks.len(), 13);
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "all was destroyed");
}

#[tokio::test]
async fn a_plugin_that_breaks_the_contract_is_told_in_what() {
    // Introduces itself, and says yes to everything.
    let yes = r#"n=0; while read -r line; do n=$((n + 1)); echo "{\"id\":$n,\"result\":{\"contract\":\"1.0\",\"name\":\"yes\",\"version\":\"1\",\"state\":\"done\"}}"; done; sleep 60"#;
    let mut options = ProcessOptions::new(["sh", "-c", yes]);
    options.stop_timeout = Duration::from_millis(300);
    let report = check(&options, &Sample::default()).await;
    let failed: Vec<&str> = report
        .checks
        .iter()
        .filter(|(_, verdict)| matches!(verdict, Verdict::Failed(_)))
        .map(|(check, _)| *check)
        .collect();
    assert_eq!(
        failed,
        [
            "answers unknown methods with an error of kind unsupported",
            "ends when its input is closed, and leaves no process behind"
        ],
        "{report}"
    );
    assert!(report.to_string().ends_with("2 of 13 checks failed"), "{report}");
}

/// A plugin that introduces itself properly, and then does this for the next request.
fn naughty(then: &str) -> ProcessPlugin {
    let script = format!(
        r#"read -r line; echo '{{"id":1,"result":{{"contract":"1.0","name":"x","version":"1","capabilities":["plan"]}}}}'
           read -r line; echo '{{"id":2,"result":{{}}}}'
           read -r line; {then}"#
    );
    let mut options = ProcessOptions::new(["sh", "-c", &script]);
    options.call_timeout = Duration::from_secs(5);
    ProcessPlugin::new("naughty", options, Map::new())
}

fn is_there(pid: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn whatever_a_plugin_does_is_bounded_and_reported_and_its_process_is_gone() {
    for (case, then, why) in [
        ("crash", "echo 'out of luck' >&2; exit 3", "it ended (exit status: 3); its last words: out of luck"),
        ("kill", "kill -9 $$", "it ended (signal: 9"),
        ("garbage", "echo 'hello, world'; sleep 60", "it wrote a line that is no JSON"),
        ("another's answer", r#"echo '{"id":99,"result":{}}'; sleep 60"#, "it answered request 99"),
        ("endless line", "yes | tr -d '\\n'", "it wrote a line longer than 4194304 bytes"),
        (
            "no progress",
            r#"echo '{"id":3,"result":{"state":"odd"}}'; sleep 60"#,
            "an answer to Apply that is none",
        ),
        (
            "huge checkpoint",
            r#"printf '{"id":3,"result":{"state":"running","checkpoint":"'; head -c 70000 /dev/zero | tr '\0' x; echo '"}}'; sleep 60"#,
            "a checkpoint of 70002 bytes; it may have 65536",
        ),
        (
            "noise",
            "yes complaint | head -n 20000 >&2; yes | tr -d '\\n' | head -c 9000000 >&2; exit 4",
            "it ended (exit status: 4); its last words: complaint",
        ),
    ] {
        let plugin = naughty(then);
        plugin.configure().await.expect("introduced");
        let pid = plugin.pid().await.expect("a process");
        let error = plugin.apply(&task()).await.expect_err(case);
        assert!(matches!(error, ActionError::Unknown(_)), "{case}: it may have been done: {error:?}");
        assert!(error.to_string().contains(why), "{case}: {error}");
        plugin.stop().await;
        until(&format!("{case}: the end of the process"), || !is_there(pid)).await;
    }
}

#[tokio::test]
async fn a_plugin_that_hangs_is_ended_with_everything_it_started() {
    let folder = tempfile::tempdir().expect("a folder");
    let note = folder.path().join("child");
    let mut options = ProcessOptions::new([
        "sh".to_owned(),
        "-c".to_owned(),
        format!(
            r#"read -r line; echo '{{"id":1,"result":{{"contract":"1.0","name":"x","version":"1"}}}}'
               read -r line; echo '{{"id":2,"result":{{}}}}'; sleep 600 & echo $! > {}; wait"#,
            note.display()
        ),
    ]);
    options.call_timeout = Duration::from_millis(500);
    let plugin = ProcessPlugin::new("hanging", options, Map::new());
    plugin.configure().await.expect("introduced");
    let pid = plugin.pid().await.expect("a process");
    until("the child", || note.exists() && !std::fs::read_to_string(&note).unwrap_or_default().is_empty())
        .await;
    let child: u32 = std::fs::read_to_string(&note).expect("a note").trim().parse().expect("a pid");
    let error = plugin.validate(&task()).await.expect_err("too late").to_string();
    assert_eq!(error, "the plugin hanging: it did not answer Validate within 0 s, and was ended");
    until("the end of both", || !is_there(pid) && !is_there(child)).await;
}

#[tokio::test]
async fn a_plugin_that_does_not_start_says_why_and_is_not_started_all_the_time() {
    let cases = [
        (vec!["/nowhere/plugin"], "/nowhere/plugin cannot be started"),
        (vec!["sh", "-c", "sleep 60"], "it did not answer Describe within 0 s"),
        (vec!["sh", "-c", "echo 'no module named yaml' >&2; exit 1"], "its last words: no module named yaml"),
        (
            vec![
                "sh",
                "-c",
                r#"read -r line; echo '{"id":1,"result":{"contract":"2.0","name":"x"}}'; sleep 60"#,
            ],
            "it speaks version \"2.0\" of the plugin contract, and this operator 1.0",
        ),
        (
            vec!["sh", "-c", r#"read -r line; echo '{"id":1,"result":"me"}'; sleep 60"#],
            "it does not introduce itself as a plugin",
        ),
    ];
    for (command, why) in cases {
        let mut options = ProcessOptions::new(command);
        options.start_timeout = Duration::from_millis(700);
        let plugin = ProcessPlugin::new("late", options, Map::new());
        for _ in 0..2 {
            let error = plugin.configure().await.expect_err(why).to_string();
            assert!(error.contains(why), "{error}");
        }
        let error = plugin.configure().await.expect_err("not so soon");
        let ActionError::Transient { message, retry_after: Some(wait) } = &error else {
            panic!("{error:?}");
        };
        assert!(message.starts_with("the plugin late: ") && message.contains(why), "{message}");
        assert!(*wait <= Duration::from_secs(2), "{wait:?}");
        assert_eq!(plugin.describe().capabilities, []);
    }
}

#[tokio::test]
async fn after_a_crash_the_next_call_finds_a_new_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = ProcessOptions::new([
        "sh".to_owned(),
        repository().join("examples/plugins/marker.sh").display().to_string(),
    ]);
    let plugin = ProcessPlugin::new("marker", options, object(&json!({"folder": folder.path()})));
    let known = plugin.configure().await.expect("introduced");
    assert_eq!((known.name.as_str(), known.can(Capability::DetectDrift)), ("marker", true));
    let pid = plugin.pid().await.expect("a process");
    let raw = i32::try_from(pid).expect("a pid");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(raw), nix::sys::signal::Signal::SIGKILL)
        .expect("killed");
    until("the end of the process", || !is_there(pid)).await;
    let done = loop {
        // Until the supervisor has heard of it, a call may be lost with the process.
        match plugin.resume(&task(), None).await {
            Ok(progress) => break progress,
            Err(error) => assert!(matches!(error, ActionError::Unknown(_)), "{error:?}"),
        }
    };
    assert!(matches!(done, Progress::Done(_)), "{done:?}");
    assert_eq!(plugin.detect_drift(&task()).await, Ok(Drift::None));
    std::fs::remove_file(folder.path().join("uid-1")).expect("removed");
    assert_eq!(plugin.detect_drift(&task()).await, Ok(Drift::Found("the marker is gone".into())));
    let pid = plugin.pid().await.expect("a process");
    drop(plugin);
    until("the end of the process", || !is_there(pid)).await;
}

#[tokio::test]
async fn a_resource_is_made_by_a_plugin_that_the_settings_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = repository().join("examples/plugins/marker.sh");
    let configs = json!({"marker": {"command": ["sh", program], "folder": folder.path()}}).to_string();
    let get = |name: &str| (name == "PLUGIN_CONFIGS").then(|| configs.clone());
    let plugins = Environment::read(get, folder.path()).expect("settings").plugins;
    let (cluster, history) = (cluster().await, History::memory().expect("a history"));
    box_type(&cluster).await;
    let operator = operate(&cluster, plugins, &history);
    cluster
        .create_json::<Resource>(json!({"apiVersion": "infra.steersman.io/v1", "kind": "Resource",
            "metadata": {"name": "box.one", "namespace": "default"},
            "spec": {"type": "Box", "typeVersion": "v1", "actionPlugin": "marker",
                // A resource cannot name programs.
                "pluginConfig": {"command": ["touch", folder.path().join("bad")]}}}))
        .await;
    let ready = cluster.wait_until::<Resource>("box.one", |it| it.state() == State::Ready).await;
    let uid = ready.metadata.uid.clone().expect("a uid");
    let marker = folder.path().join(&uid);
    assert!(marker.exists() && !folder.path().join("bad").exists());
    let outputs = ready.status.and_then(|status| status.outputs).expect("outputs");
    assert_eq!(outputs["marker"], json!(marker));
    cluster.delete::<Resource>("box.one").await;
    cluster.wait_until_gone::<Resource>("box.one").await;
    assert!(!marker.exists());
    operator.stop().await;
}

#[tokio::test]
async fn a_resource_whose_plugin_cannot_be_asked_says_so_and_is_made_once_it_can() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("late.sh");
    let configs = json!({"late": {"command": ["sh", program], "folder": folder.path()}}).to_string();
    let get = |name: &str| (name == "PLUGIN_CONFIGS").then(|| configs.clone());
    let plugins = Environment::read(get, folder.path()).expect("settings").plugins;
    let (cluster, history) = (cluster().await, History::memory().expect("a history"));
    box_type(&cluster).await;
    let operator = operate(&cluster, plugins, &history);
    cluster
        .create_json::<Resource>(json!({"apiVersion": "infra.steersman.io/v1", "kind": "Resource",
            "metadata": {"name": "box.one", "namespace": "default"},
            "spec": {"type": "Box", "typeVersion": "v1", "actionPlugin": "late"}}))
        .await;
    let waiting = cluster
        .wait_until::<Resource>("box.one", |it| it.status.as_ref().is_some_and(|it| it.message.is_some()))
        .await;
    let status = waiting.status.clone().expect("a status");
    let message = status.message.expect("a message");
    assert!(message.starts_with("the plugin late: it ended (exit status: "), "{message}");
    assert_eq!((waiting.state(), status.attempts, status.failures), (State::Pending, 0, 0));
    let ready = status.conditions.iter().find(|it| it.type_ == "Ready").expect("a condition");
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("Unknown", "PluginUnavailable"));
    assert_eq!(ready.message, message);
    cluster
        .wait_for("an event", || async {
            let events = cluster.list::<k8s_openapi::api::events::v1::Event>().await;
            events.iter().any(|it| it.reason.as_deref() == Some("PluginUnavailable")).then_some(())
        })
        .await;
    std::fs::copy(repository().join("examples/plugins/marker.sh"), &program).expect("the program");
    let made = cluster.wait_until::<Resource>("box.one", |it| it.state() == State::Ready).await;
    let status = made.status.expect("a status");
    assert_eq!((status.message.as_deref(), status.attempts), (Some("Reconciliation successful"), 1));
    let ready = status.conditions.iter().find(|it| it.type_ == "Ready").expect("a condition");
    assert_eq!(ready.reason, "Reconciled");
    operator.stop().await;
}

/// Every line that was ever on the wire in this major version must stay understood, and what the
/// operator sends must stay as it was: files of released versions are never changed.
#[test]
fn the_wire_is_as_it_was_in_1_0() {
    let checkpoint = Some(json!({"run": 7}));
    let sent = [
        Call::Describe(Hello::ours()),
        Call::Configure { settings: object(&json!({"folder": "/somewhere"})) },
        Call::Validate { task: task() },
        Call::Plan { task: task() },
        Call::Apply { task: task() },
        Call::Destroy { task: Task { operation: Operation::Destroy, ..task() } },
        Call::DetectDrift { task: task() },
        Call::Outputs { task: task() },
        Call::Cancel { task: task(), checkpoint: checkpoint.clone() },
        Call::Resume { task: task(), checkpoint },
        Call::Resume { task: task(), checkpoint: None },
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire/1.0");
    let golden = std::fs::read_to_string(folder.join("requests.jsonl")).expect("the requests");
    let lines: Vec<String> = (1..)
        .zip(sent)
        .map(|(id, call)| serde_json::to_string(&Request { id, call }).expect("JSON"))
        .collect();
    assert_eq!(lines.join("\n"), golden.trim_end());
    for line in golden.lines() {
        let read: Request = serde_json::from_str(line).expect("a request");
        assert_eq!(serde_json::to_string(&read).expect("JSON"), line);
    }

    let answers = std::fs::read_to_string(folder.join("answers.jsonl")).expect("the answers");
    let mut understood = String::new();
    for line in answers.lines() {
        let said = Said::read(line.as_bytes()).expect(line);
        let meaning = match said {
            Said::Log(log) => format!("{log:?}"),
            Said::Answer(_, Err(fault)) => format!("{:?}", ActionError::from(fault)),
            Said::Answer(1, Ok(result)) => {
                format!("{:?}", serde_json::from_value::<Introduction>(result).expect(line).understand("x"))
            }
            Said::Answer(2, Ok(result)) => {
                format!("{:?}", serde_json::from_value::<steersman_infra::action::Plan>(result).expect(line))
            }
            Said::Answer(3, Ok(result)) => {
                format!("{:?}", serde_json::from_value::<Progress>(result).expect(line))
            }
            Said::Answer(4, Ok(result)) => {
                format!("{:?}", serde_json::from_value::<Drift>(result).expect(line))
            }
            Said::Answer(_, Ok(result)) => format!("{result:?}"),
        };
        understood.push_str(&meaning);
        understood.push('\n');
    }
    let expected = std::fs::read_to_string(folder.join("understood.txt")).expect("what they mean");
    assert_eq!(understood, expected);
}
