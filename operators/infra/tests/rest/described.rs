//! The API's description of itself, and whether it keeps to it.

use std::process::Stdio;

use serde_json::json;
use xtask::parts::{or_skip, schemathesis};

use crate::support::service::{face, plugins, service, simple, simple_type};

#[tokio::test]
async fn the_api_describes_itself() {
    let service = face().await;
    let (code, document) = service.ask("GET", "/openapi.json", None).await;
    assert_eq!((code, &document["openapi"]), (200, &json!("3.1.0")));
    let text = document.to_string();
    for reference in text.split("#/components/schemas/").skip(1) {
        let name: String = reference.chars().take_while(char::is_ascii_alphanumeric).collect();
        assert!(document["components"]["schemas"].get(&name).is_some(), "{name}");
    }
    let page = service.head("curl -i http://localhost:8000/docs").await;
    assert!(page.contains("content-type: text/html; charset=utf-8"), "{page}");
    for path in document["paths"].as_object().expect("paths").keys() {
        assert!(page.contains(&format!("<code>{path}</code>")), "{path}");
    }
    assert!(!page.contains("<script"), "there is nothing to run");
}

#[tokio::test]
async fn what_a_path_does_not_know_is_answered_with_what_it_does() {
    let service = face().await;
    for (method, path, allowed) in [
        ("PATCH", "/api/v1/resources/1", "GET, HEAD, PUT, DELETE"),
        ("DELETE", "/api/v1/resource-types", "GET, HEAD, POST"),
        ("GET", "/api/v1/resources/1/reconcile", "POST"),
        ("TRACE", "/health", "GET, HEAD"),
    ] {
        let head = service.head(&format!("curl -i -X {method} http://localhost:8000{path}")).await;
        assert!(head.starts_with("HTTP/1.1 405"), "{method} {path}: {head}");
        assert!(head.contains(&format!("allow: {allowed}")), "{method} {path}: {head}");
    }
}

/// Real Schemathesis, with requests that it makes up from our description: valid, at the edges and
/// broken ones.
#[tokio::test(flavor = "multi_thread")]
async fn made_up_requests_get_the_answers_that_the_description_promises() {
    let Some(schemathesis) = or_skip(schemathesis()) else { return };
    let service = service(plugins()).await;
    service.ask("POST", "/api/v1/resource-types", Some(&simple_type("Disk"))).await;
    service.ask("POST", "/api/v1/resources", Some(&simple("one"))).await;
    let checks = "not_a_server_error,status_code_conformance,content_type_conformance,\
        response_headers_conformance,response_schema_conformance,unsupported_method";
    let folder = tempfile::tempdir().expect("a folder");
    let output = tokio::process::Command::new(schemathesis.path)
        .arg("run")
        .arg(format!("http://{}/openapi.json", service.address))
        .args(["--checks", checks, "--max-examples", "25", "--seed", "1", "--workers", "1"])
        .args(["--phases", "examples,coverage,fuzzing", "--no-color", "--generation-database", "none"])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .await
        .expect("schemathesis");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(service.ask("GET", "/health", None).await.0, 200);
}
