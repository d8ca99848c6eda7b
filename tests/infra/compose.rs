//! `docker-compose.yml` against the Dockerfile, the command line and the settings that there are:
//! no container engine is needed to see that they fit.

use std::{fs, process::Command};

use serde_json::Value;

use crate::support::{repository, steer};

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn texts(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items.map(|it| it.as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn the_compose_file_fits_the_image_the_command_line_and_the_settings() {
    let compose: Value = serde_saphyr::from_str(&read("docker-compose.yml")).unwrap();
    let dockerfile = read("Dockerfile");
    let (controller, database) = (&compose["services"]["controller-api"], &compose["services"]["postgres"]);
    assert!(database["image"].as_str().is_some_and(|image| image.starts_with("postgres:16")));

    // Only this machine reaches what is published, and nothing but the controller is.
    for port in texts(&controller["ports"]) {
        assert!(port.starts_with("127.0.0.1:"), "{port}");
    }
    assert!(texts(&controller["ports"]).contains(&"127.0.0.1:8000:8000".to_owned()));
    assert!(database["ports"].is_null());

    // The arguments are ones that the image's program takes.
    assert!(dockerfile.contains("ENTRYPOINT [\"/usr/local/bin/steer\"]"));
    let mut arguments = texts(&controller["command"]);
    assert_eq!(arguments.first().map(String::as_str), Some("up"));
    arguments.push("--help".into());
    let tried = Command::new(steer()).args(&arguments).output().unwrap();
    assert!(tried.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&tried.stderr));

    // The data folder belongs to the image's user, also as a fresh volume.
    let folder =
        arguments.iter().position(|it| it == "--data-dir").map(|at| arguments[at + 1].clone()).unwrap();
    let volumes = texts(&controller["volumes"]);
    assert!(volumes.iter().any(|it| it.ends_with(&format!(":{folder}"))), "{volumes:?}");
    assert!(dockerfile.contains("USER 65532:65532"));
    assert!(dockerfile.contains(&format!("--chown=65532:65532 {folder} {folder}")), "{dockerfile}");

    // Both sides agree on the database.
    let (ours, theirs) = (&controller["environment"], &database["environment"]);
    assert_eq!(ours["DB_HOST"], "postgres");
    for (our, their) in
        [("DB_NAME", "POSTGRES_DB"), ("DB_USER", "POSTGRES_USER"), ("DB_PASSWORD", "POSTGRES_PASSWORD")]
    {
        assert_eq!(ours[our], theirs[their], "{our}");
        assert!(ours[our].is_string(), "{our}");
    }
    let known = read("operators/infra/src/environment.rs");
    for name in ours.as_object().unwrap().keys() {
        assert!(known.contains(&format!("`{name}`")), "{name} is no setting");
    }
    for volume in texts(&controller["volumes"]).iter().chain(&texts(&database["volumes"])) {
        let name = volume.split(':').next().unwrap();
        assert!(compose["volumes"].get(name).is_some(), "the volume {name} is declared");
    }
}
