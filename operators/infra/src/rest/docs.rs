//! `/docs`: the description of the API for people, as one page without scripts.

use bytes::Bytes;
use http::{Response, header};
use http_body_util::Full;
use serde_json::Value;

use super::answer::Answer;
use super::openapi;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
    h2{font-size:1rem;margin:2rem 0 0}code,pre{font:14px/1.5 ui-monospace,monospace}\
    pre{background:#8881;padding:.8rem;overflow:auto}table{border-spacing:1rem 0;margin-left:-1rem}\
    td{vertical-align:top}b{display:inline-block;min-width:4.5rem}@media(prefers-color-scheme:dark){\
    body{background:#111;color:#ddd}}";

/// The page.
pub(super) fn page() -> Answer {
    let document = openapi::document();
    let mut body = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Infrastructure controller</title>\
         <style>{STYLE}</style><h1>Infrastructure controller</h1>\
         <p>The same for programs: <a href=\"openapi.json\">openapi.json</a>. \
         Errors are <code>{{\"detail\": …}}</code>.</p>"
    );
    for (path, operations) in fields(&document["paths"]) {
        for (method, operation) in fields(operations) {
            describe(&mut body, path, method, operation, &document);
        }
    }
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/html; charset=utf-8"));
    // There is nothing to run or to load, so nothing may.
    let policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";
    headers.insert(header::CONTENT_SECURITY_POLICY, header::HeaderValue::from_static(policy));
    answer
}

fn describe(body: &mut String, path: &str, method: &str, operation: &Value, document: &Value) {
    let summary = operation["summary"].as_str().unwrap_or_default();
    body.push_str(&format!(
        "<h2><b>{}</b> <code>{}</code></h2>{}<table>",
        escape(&method.to_uppercase()),
        escape(path),
        escape(summary)
    ));
    let mut row = |what: &str, text: &str| {
        body.push_str(&format!("<tr><td><code>{}</code><td>{}", escape(what), escape(text)));
    };
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let place = parameter["in"].as_str().unwrap_or_default();
        row(parameter["name"].as_str().unwrap_or_default(), &format!("in the {place}"));
    }
    for (code, response) in fields(&operation["responses"]) {
        row(code, response["description"].as_str().unwrap_or_default());
    }
    body.push_str("</table>");
    let reference = operation.pointer("/requestBody/content/application~1json/schema/$ref");
    let schema = reference.and_then(Value::as_str).and_then(|name| document.pointer(name.strip_prefix('#')?));
    if let Some(schema) = schema {
        let text = serde_json::to_string_pretty(schema).unwrap_or_default();
        body.push_str(&format!("<details><summary>body</summary><pre>{}</pre></details>", escape(&text)));
    }
}

fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
