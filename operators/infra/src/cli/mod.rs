//! What `steer infra` does: asks the REST face and shows its answers to people.

mod tables;

use std::fmt::Write as _;

use http::{HeaderMap, Method, header};
use serde_json::Value;

pub use self::tables::{details, history_table, resources_table, types_table};
use crate::action::web::{PrivateAddresses, Web, WebOptions};
use crate::percent::encode;

/// How many entries are asked for where nobody says otherwise.
pub const USUAL: u32 = 100;

/// Where the REST face is, and how to be let in.
#[derive(Clone)]
pub struct Server {
    url: String,
    token: Option<String>,
    web: Web,
}

/// Which resources to list.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only those in this state.
    pub status: Option<String>,
    /// Only those of this plugin.
    pub action_plugin: Option<String>,
    /// Only those of this type.
    pub resource_type: Option<String>,
    /// At most so many. [`USUAL`].
    pub limit: Option<u32>,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// Nobody answers there.
    #[error(
        "no answer from {url}: {reason}; is `steer up` or `steer run infra` running? --server names another address"
    )]
    NoAnswer {
        /// Where it was asked.
        url: String,
        /// What went wrong.
        reason: String,
    },
    /// The server refused.
    #[error("{0}")]
    Refused(String),
    /// The address is none.
    #[error("{0:?} is no address; write it as http://localhost:8000")]
    Address(String),
    /// A name that is not one of a resource.
    #[error(
        "{0:?} is neither a number nor TYPE/NAME or TYPE/VERSION/NAME, such as DatabaseCluster/production-pg"
    )]
    Name(String),
    /// No resource of this name.
    #[error("there is no resource {0}; `steer infra list` shows those that there are")]
    Missing(String),
    /// Secure connections cannot be made.
    #[error("no secure connection can be made: {0}")]
    Tls(#[from] rustls::Error),
}

impl Server {
    /// The REST face at an address such as `http://localhost:8000`.
    ///
    /// # Errors
    /// When secure connections cannot be made.
    pub fn new(url: &str, token: Option<String>) -> Result<Self, CliError> {
        let options = WebOptions { private_addresses: PrivateAddresses::Allow, ..WebOptions::default() };
        Ok(Self { url: url.trim_end_matches('/').to_owned(), token, web: Web::new(options)? })
    }

    /// The types that there are.
    ///
    /// # Errors
    /// When the server does not answer, or refuses.
    pub async fn types(&self) -> Result<Value, CliError> {
        self.get("/api/v1/resource-types?limit=1000").await
    }

    /// The resources that there are, newest first.
    ///
    /// # Errors
    /// When the server does not answer, or refuses.
    pub async fn list(&self, filter: &Filter) -> Result<Value, CliError> {
        let mut path = format!("/api/v1/resources?limit={}", filter.limit.unwrap_or(USUAL));
        let chosen = [
            ("status", &filter.status),
            ("action_plugin", &filter.action_plugin),
            ("resource_type_name", &filter.resource_type),
        ];
        for (name, value) in chosen {
            if let Some(value) = value {
                let _ = write!(path, "&{name}={}", encode(value));
            }
        }
        self.get(&path).await
    }

    /// A resource with everything that is known about it, by number or name.
    ///
    /// # Errors
    /// When there is none, the server does not answer, or refuses.
    pub async fn find(&self, name: &str) -> Result<Value, CliError> {
        if name.parse::<i64>().is_ok() {
            return self.get(&format!("/api/v1/resources/{name}?fields=all")).await;
        }
        match name.split('/').collect::<Vec<_>>()[..] {
            [kind, version, name] => {
                let [kind, version, name] = [kind, version, name].map(encode);
                self.get(&format!("/api/v1/resources/by-name/{kind}/{version}/{name}?fields=all")).await
            }
            [kind, short] => {
                let filter =
                    Filter { resource_type: Some(kind.into()), limit: Some(1000), ..Filter::default() };
                let all = self.list(&filter).await?;
                let found = all.as_array().into_iter().flatten().find(|it| it["name"] == short);
                let id = found.map(|it| it["id"].clone()).ok_or_else(|| CliError::Missing(name.into()))?;
                self.get(&format!("/api/v1/resources/{id}?fields=all")).await
            }
            _ => Err(CliError::Name(name.into())),
        }
    }

    /// The attempts for a resource, newest first. Those for one that is gone are found by its
    /// number.
    ///
    /// # Errors
    /// When there is no such resource, the server does not answer, or refuses.
    pub async fn history(&self, name: &str, limit: u32) -> Result<Value, CliError> {
        let id = self.id(name).await?;
        self.get(&format!("/api/v1/resources/{id}/history?fields=all&limit={limit}")).await
    }

    /// What the last successful attempt brought forth.
    ///
    /// # Errors
    /// When there is no such resource, the server does not answer, or refuses.
    pub async fn outputs(&self, name: &str) -> Result<Value, CliError> {
        let id = self.id(name).await?;
        Ok(self.get(&format!("/api/v1/resources/{id}/outputs")).await?["outputs"].clone())
    }

    /// Asks for a reconcile now.
    ///
    /// # Errors
    /// When there is no such resource, the server does not answer, or refuses.
    pub async fn reconcile(&self, name: &str) -> Result<Value, CliError> {
        let id = self.id(name).await?;
        self.send(Method::POST, &format!("/api/v1/resources/{id}/reconcile")).await
    }

    async fn id(&self, name: &str) -> Result<i64, CliError> {
        match name.parse() {
            Ok(id) => Ok(id),
            Err(_) => {
                let found = self.find(name).await?;
                found["id"].as_i64().ok_or_else(|| CliError::Missing(name.into()))
            }
        }
    }

    async fn get(&self, path: &str) -> Result<Value, CliError> {
        self.send(Method::GET, path).await
    }

    async fn send(&self, method: Method, path: &str) -> Result<Value, CliError> {
        let known = self.url.starts_with("http://") || self.url.starts_with("https://");
        if !known || self.url.parse::<http::Uri>().is_err() {
            return Err(CliError::Address(self.url.clone()));
        }
        let mut headers = HeaderMap::new();
        if let Some(token) = &self.token {
            let value = format!("Bearer {token}").parse();
            let value =
                value.map_err(|_| CliError::Refused("the token has characters that none can have".into()))?;
            headers.insert(header::AUTHORIZATION, value);
        }
        let sent = self.web.send(method, &format!("{}{path}", self.url), headers, None).await;
        let answer =
            sent.map_err(|error| CliError::NoAnswer { url: self.url.clone(), reason: error.to_string() })?;
        let body = answer.body;
        match answer.status.is_success() {
            true => Ok(body),
            false => Err(CliError::Refused(match &body["detail"] {
                Value::String(detail) => detail.clone(),
                Value::Null => format!("{} answers {}", self.url, answer.status),
                problems => problems.to_string(),
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_cannot_be_asked_is_said_with_the_remedy() {
        let port =
            std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port();
        let nobody = Server::new(&format!("http://127.0.0.1:{port}/"), None).expect("a server");
        let error = nobody.types().await.expect_err("nobody there").to_string();
        assert!(error.contains("is `steer up` or `steer run infra` running?"), "{error}");
        let error = nobody.find("a/b/c/d").await.expect_err("no name").to_string();
        assert!(error.contains("DatabaseCluster/production-pg"), "{error}");
        let nowhere = Server::new("localhost", None).expect("a server");
        let error = nowhere.types().await.expect_err("no address").to_string();
        assert!(error.contains("http://localhost:8000"), "{error}");
    }
}
