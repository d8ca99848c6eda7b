//! Who may ask.

use steersman_infra::rest::{Access, RestError};

use crate::support::service::{face, face_for};

#[tokio::test]
async fn web_pages_and_other_machines_are_kept_out() {
    let service = face().await;
    let cases = [
        ("-H 'Host: evil.example'", 403),
        ("-H 'Host: localhost.evil.example:8000'", 403),
        ("-X POST -H 'Origin: https://evil.example'", 403),
        ("-X POST -H 'Origin: null'", 403),
        ("-H 'Sec-Fetch-Site: cross-site'", 403),
        ("-H 'Origin: http://localhost:3000'", 200),
        ("", 200),
    ];
    for (arguments, expected) in cases {
        let (code, answer) =
            service.shell(&format!("curl {arguments} http://localhost:8000/api/v1/resources")).await;
        assert_eq!(code, expected, "{arguments}: {answer}");
    }
    let elsewhere = "192.0.2.1:8000".parse().expect("an address");
    assert!(matches!(Access::Local.check(elsewhere), Err(RestError::Unprotected(_))));
    for enough in [Access::Token("s3cret".into()), Access::Published, Access::Everybody] {
        assert!(enough.check(elsewhere).is_ok());
    }
    assert_eq!(Access::default(), Access::Local);
}

#[tokio::test]
async fn with_a_token_nothing_is_told_without_it() {
    let service = face_for(Access::Token("s3cret".into())).await;
    for path in ["/", "/health", "/docs", "/openapi.json", "/api/v1/resources", "/nowhere"] {
        assert_eq!(service.ask("GET", path, None).await.0, 401, "{path}");
    }
    let curl = |token: &str| format!("curl -H 'Authorization: Bearer {token}' http://localhost:8000/health");
    assert_eq!(service.shell(&curl("wrong")).await.0, 401);
    assert_eq!(service.shell(&curl("s3cret")).await.0, 200);
    let headers = service.head("curl -i http://localhost:8000/health").await;
    assert!(headers.to_lowercase().contains("www-authenticate: bearer"), "{headers}");
}

#[tokio::test]
async fn a_published_port_answers_to_local_names_only() {
    let service = face_for(Access::Published).await;
    assert_eq!(service.shell("curl http://localhost:8000/health").await.0, 200);
    assert_eq!(service.shell("curl -H 'Host: evil.example' http://localhost:8000/health").await.0, 403);
}
