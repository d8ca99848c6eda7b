//! Keeping secrets out of what people read.

use serde_json::{Map, Value};

/// Names whose values are secrets.
const SECRET: [&str; 8] =
    ["token", "password", "secret", "authorization", "api_key", "apikey", "api-key", "private_key"];
/// Shorter values are not taken for secrets: they would blacken half of the text.
const SHORTEST: usize = 6;

/// The text with the secrets among settings and parameters blackened.
pub(crate) fn redact<'a>(text: &str, sources: impl IntoIterator<Item = &'a Map<String, Value>>) -> String {
    let mut secrets = Vec::new();
    for source in sources {
        collect(source, &mut secrets);
    }
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets.into_iter().fold(text.to_owned(), |text, secret| text.replace(secret, "***"))
}

fn collect<'a>(fields: &'a Map<String, Value>, secrets: &mut Vec<&'a str>) {
    for (name, value) in fields {
        let name = name.to_lowercase();
        match value {
            Value::String(value) if SECRET.iter().any(|word| name.contains(word)) => {
                let bare = value.strip_prefix("Bearer ").or_else(|| value.strip_prefix("Basic "));
                secrets.extend(
                    [Some(value.as_str()), bare]
                        .into_iter()
                        .flatten()
                        .filter(|secret| secret.len() >= SHORTEST),
                );
            }
            Value::Object(fields) => collect(fields, secrets),
            Value::Array(items) => {
                items.iter().filter_map(Value::as_object).for_each(|fields| collect(fields, secrets));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_of_settings_and_parameters_are_blackened_wherever_they_appear() {
        let config =
            json!({"headers": {"Authorization": "Bearer abc123xyz"}, "token": "ghp_0123", "name": "visible"});
        let config = config.as_object().cloned().unwrap_or_default();
        let parameters = json!({"users": [{"name": "visible", "password": "hunter22"}]});
        let parameters = parameters.as_object().cloned().unwrap_or_default();
        let text = "visible: refused ghp_0123 and abc123xyz (Bearer abc123xyz) with hunter22";
        assert_eq!(redact(text, [&config, &parameters]), "visible: refused *** and *** (***) with ***");
    }
}
