//! The `terraform` plugin with the real program and its built-in provider.

mod support;

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use steersman_infra::action::Registry;
use steersman_infra::action::terraform::{Terraform, TerraformOptions};
use steersman_infra::types::State;
use steersman_infra::{History, OperatorController, Resource};
use support::{box_type, cluster, operate_with};
use xtask::parts::{Unavailable, or_skip, postgres, provider_python, skip};

const MODULE: &str = r#"
variable "size" { type = number }
resource "terraform_data" "box" { input = var.size }
output "size" { value = terraform_data.box.output }
output "password" {
  value     = "hidden-${var.size}"
  sensitive = true
}
"#;

fn options(folder: &Path) -> TerraformOptions {
    let module = folder.join("modules/box");
    std::fs::create_dir_all(&module).expect("a folder");
    std::fs::write(module.join("main.tf"), MODULE).expect("a module");
    std::fs::write(folder.join("empty.rc"), "").expect("a file");
    let mut options = TerraformOptions::new(folder.join("modules"), folder.join("workspaces"));
    options.environment = vec![("TF_CLI_CONFIG_FILE".into(), folder.join("empty.rc").display().to_string())];
    options
}

async fn is_installed() -> bool {
    let found = tokio::process::Command::new("terraform").arg("version").output().await.is_ok();
    if !found {
        skip(&Unavailable::Missing {
            part: "terraform",
            what: "no terraform is in the path".into(),
            remedy: "install it from its makers' site".into(),
        });
    }
    found
}

async fn create(cluster: &steersman_test::Cluster, name: &str) {
    cluster
        .create_json::<Resource>(json!({"apiVersion": "infra.steersman.io/v1", "kind": "Resource",
            "metadata": {"name": format!("box.{name}"), "namespace": "default"},
            "spec": {"type": "Box", "typeVersion": "v1", "actionPlugin": "terraform", "parameters": {"size": 3}}}))
        .await;
}

fn is_ready_at(generation: i64) -> impl Fn(&Resource) -> bool {
    move |it| {
        let reached = it.status.as_ref().and_then(|status| status.last_reconciled_generation);
        it.state() == State::Ready && reached == Some(generation)
    }
}

#[tokio::test]
async fn terraform_plans_applies_changes_and_destroys() {
    if !is_installed().await {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (cluster, history) = (cluster().await, History::memory().expect("a history"));
    box_type(&cluster).await;
    let plugins = Registry::new().with(Terraform::new(options(folder.path())));
    let pace =
        OperatorController { back_off_first: Duration::from_millis(100), ..OperatorController::default() };
    let _operator = operate_with(&cluster, plugins, &history, pace);
    create(&cluster, "one").await;
    let ready = cluster.wait_until::<Resource>("box.one", is_ready_at(1)).await;
    let outputs = ready.status.as_ref().and_then(|status| status.outputs.clone()).expect("outputs");
    assert_eq!((&outputs["size"], &outputs["password"]), (&json!(3), &json!("***")));
    cluster.patch::<Resource>("box.one", json!({"spec": {"parameters": {"size": 5}}})).await;
    cluster.wait_until::<Resource>("box.one", is_ready_at(2)).await;
    let entries = history.of(ready.id().expect("an id"), 10, None).await.expect("entries");
    let counted: Vec<(u32, u32)> = entries.iter().map(|(_, it)| (it.created, it.updated)).collect();
    assert_eq!(counted, [(0, 1), (1, 0)]);
    assert!(entries[1].1.plan.as_deref().is_some_and(|plan| plan.contains("1 to add")));
    assert!(!format!("{entries:?}").contains("hidden-"), "secrets stay out of the history");
    cluster.delete::<Resource>("box.one").await;
    cluster.wait_until_gone::<Resource>("box.one").await;
    assert_eq!(std::fs::read_dir(folder.path().join("workspaces")).expect("a folder").count(), 0);
    let entries = history.of(ready.id().expect("an id"), 1, None).await.expect("entries");
    assert_eq!((entries[0].1.success, entries[0].1.deleted), (true, 1));
}

#[tokio::test]
async fn a_module_that_fails_says_what_terraform_said_and_is_repaired_by_a_retry() {
    if !is_installed().await {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let options = options(folder.path());
    let module = folder.path().join("modules/box/main.tf");
    std::fs::write(&module, "resource \"terraform_data\" \"box\" {").expect("a broken module");
    let (cluster, history) = (cluster().await, History::memory().expect("a history"));
    box_type(&cluster).await;
    let pace =
        OperatorController { back_off_first: Duration::from_millis(100), ..OperatorController::default() };
    let _operator = operate_with(&cluster, Registry::new().with(Terraform::new(options)), &history, pace);
    create(&cluster, "one").await;
    let failed = cluster.wait_until::<Resource>("box.one", |it| it.state() == State::Failed).await;
    let message = failed.status.and_then(|status| status.message).expect("a message");
    assert!(message.starts_with("terraform init ended with code 1: Error: "), "{message}");
    std::fs::write(&module, MODULE).expect("a module");
    cluster.wait_until::<Resource>("box.one", is_ready_at(1)).await;
}

#[tokio::test]
async fn deleting_while_terraform_is_at_work_interrupts_it_once_and_then_destroys() {
    if !is_installed().await {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let options = options(folder.path());
    let began = folder.path().join("began");
    let slow = format!(
        "variable \"size\" {{ type = number }}\nresource \"terraform_data\" \"box\" {{\n  provisioner \"local-exec\" {{ command = \"touch {}; sleep 600\" }}\n}}\n",
        began.display()
    );
    std::fs::write(folder.path().join("modules/box/main.tf"), slow).expect("a module");
    let (cluster, history) = (cluster().await, History::memory().expect("a history"));
    box_type(&cluster).await;
    let _operator = operate_with(
        &cluster,
        Registry::new().with(Terraform::new(options)),
        &history,
        OperatorController::default(),
    );
    create(&cluster, "one").await;
    cluster.wait_for("terraform to begin", || async { began.exists().then_some(()) }).await;
    let start = std::time::Instant::now();
    cluster.delete::<Resource>("box.one").await;
    cluster.wait_until_gone::<Resource>("box.one").await;
    assert!(start.elapsed() < Duration::from_secs(300), "it was not waited for to the end");
    assert_eq!(std::fs::read_dir(folder.path().join("workspaces")).expect("a folder").count(), 0);
}

/// A provider of our own, whose resources are files, where Terraform finds it.
fn provide(folder: &Path, python: &Path) -> TerraformOptions {
    let mut options = options(folder);
    let mirror = folder.join("mirror/example.test/test/file/1.0.0/linux_amd64");
    std::fs::create_dir_all(&mirror).expect("a folder");
    let program = mirror.join("terraform-provider-file_v1.0.0");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/provider/file.py");
    let text = format!("#!/bin/sh\nexec {} {} \"$@\"\n", python.display(), script.display());
    std::fs::write(&program, text).expect("a program");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, executable).expect("executable");
    let mirror = folder.join("mirror");
    let settings = format!(
        "provider_installation {{\n  filesystem_mirror {{\n    path = {:?}\n    include = [\"example.test/*/*\"]\n  }}\n}}\n",
        mirror.display()
    );
    std::fs::write(folder.join("mirror.rc"), settings).expect("a file");
    let module = format!(
        r#"
terraform {{
  required_providers {{
    file = {{ source = "example.test/test/file", version = "1.0.0" }}
  }}
}}
variable "size" {{ type = number }}
resource "file_text" "box" {{
  path    = "{}/box.txt"
  content = "size ${{var.size}}"
}}
output "path" {{ value = file_text.box.path }}
"#,
        folder.display()
    );
    std::fs::write(folder.join("modules/box/main.tf"), module).expect("a module");
    let settings = folder.join("mirror.rc").display().to_string();
    options.environment =
        vec![("TF_CLI_CONFIG_FILE".into(), settings), ("HOME".into(), folder.display().to_string())];
    options
}

#[tokio::test]
async fn what_somebody_changed_behind_terraforms_back_is_found_and_repaired() {
    let Some(python) = or_skip(provider_python()) else {
        return;
    };
    if !is_installed().await {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let plugin = Terraform::new(provide(folder.path(), &python.python));
    let (cluster, history) = (cluster().await, History::memory().expect("a history"));
    box_type(&cluster).await;
    let pace = OperatorController {
        drift_interval: Duration::from_millis(200),
        // Whatever comes next must come by itself, not because everything is looked at again.
        reconcile_interval: Duration::from_secs(86_400),
        ..OperatorController::default()
    };
    let _operator = operate_with(&cluster, Registry::new().with(plugin), &history, pace);
    create(&cluster, "one").await;
    let ready = cluster.wait_until::<Resource>("box.one", is_ready_at(1)).await;
    let file = folder.path().join("box.txt");
    let says = |text: &str| std::fs::read_to_string(&file).is_ok_and(|found| found == text);
    assert!(says("size 3"));
    for tampered in [Some("size 4"), None] {
        match tampered {
            Some(text) => std::fs::write(&file, text).expect("written"),
            None => std::fs::remove_file(&file).expect("removed"),
        }
        cluster.wait_for("the repair", || async { says("size 3").then_some(()) }).await;
    }
    let id = ready.id().expect("an id");
    let entries = cluster
        .wait_for("both repairs in the history", || async {
            let entries = history.of(id, 10, None).await.ok()?;
            (entries.len() >= 3).then_some(entries)
        })
        .await;
    assert_eq!(entries.len(), 3, "acts only on real drift");
    let told: Vec<(bool, u32, u32)> =
        entries.iter().map(|(_, it)| (it.drift, it.created, it.updated)).collect();
    assert_eq!(told, [(true, 1, 0), (true, 0, 1), (false, 1, 0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_can_be_in_postgresql_in_a_schema_per_resource() {
    let Some(database) = or_skip(tokio::task::spawn_blocking(postgres).await.expect("not cancelled")) else {
        return;
    };
    if !is_installed().await {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let options = options(folder.path());
    let module = format!("terraform {{\n  backend \"pg\" {{}}\n}}\n{MODULE}");
    std::fs::write(folder.path().join("modules/box/main.tf"), module).expect("a module");
    let backend = json!({"backend": {"conn_str": format!("{}?sslmode=disable", database.url()),
        "schema_name": "state_{{ name }}"}});
    let (cluster, history) = (cluster().await, History::memory().expect("a history"));
    box_type(&cluster).await;
    let settings = backend.as_object().cloned().expect("an object");
    let plugins = Registry::new().with(Terraform::new(options)).configured("terraform", settings);
    let _operator = operate_with(&cluster, plugins, &history, OperatorController::default());
    for name in ["one", "two"] {
        create(&cluster, name).await;
    }
    for name in ["one", "two"] {
        cluster.wait_until::<Resource>(&format!("box.{name}"), is_ready_at(1)).await;
        let states = database.query(&format!("SELECT count(*) FROM state_{name}.states")).expect("a count");
        assert_eq!(states, "1");
    }
    // The folder is gone with a machine; the state is not.
    std::fs::remove_dir_all(folder.path().join("workspaces")).expect("removed");
    cluster.patch::<Resource>("box.one", json!({"spec": {"parameters": {"size": 5}}})).await;
    let changed = cluster.wait_until::<Resource>("box.one", is_ready_at(2)).await;
    let entries = history.of(changed.id().expect("an id"), 1, None).await.expect("entries");
    assert_eq!((entries[0].1.created, entries[0].1.updated), (0, 1), "it knew what was there");
    for name in ["box.one", "box.two"] {
        cluster.delete::<Resource>(name).await;
        cluster.wait_until_gone::<Resource>(name).await;
    }
}
