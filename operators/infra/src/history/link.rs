//! A connection to PostgreSQL that comes back by itself.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::task::AbortOnDropHandle;

use super::database::{HistoryError, sentence};
use super::tls::Tls;
use crate::percent::encode;

/// How long the server may take, for a connection or for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a server that was not there is not asked again.
const PAUSE: Duration = Duration::from_millis(500);

/// Where a PostgreSQL database is, and how to get in.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresOptions {
    /// The host. `localhost`.
    pub host: String,
    /// The port. 5432.
    pub port: u16,
    /// The database. `operator_controller`.
    pub name: String,
    /// The user. `operator`.
    pub user: String,
    /// The password; none where the server asks for none.
    pub password: Option<String>,
    /// Whether the connection is secured. Not by default.
    pub tls: Tls,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            host: "localhost".into(),
            port: 5432,
            name: "operator_controller".into(),
            user: "operator".into(),
            password: None,
            tls: Tls::Off,
        }
    }
}

impl PostgresOptions {
    /// The same as a URL, with the password in it.
    pub fn url(&self) -> String {
        let password = self.password.as_deref().map(|it| format!(":{}", encode(it))).unwrap_or_default();
        let mode = self.tls.mode();
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { encode(&self.host) };
        let (user, port, name) = (encode(&self.user), self.port, encode(&self.name));
        format!("postgres://{user}{password}@{host}:{port}/{name}?sslmode={mode}")
    }

    fn address(&self) -> String {
        format!("{}:{}/{}", self.host, self.port, self.name)
    }
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresOptions({} as {})", self.address(), self.user)
    }
}

/// The connection, made when it is first needed and again whenever it is gone.
pub(super) struct Link {
    config: Config,
    tls: Option<MakeRustlsConnect>,
    address: String,
    state: Mutex<State>,
}

enum State {
    /// Not connected, and not to be tried before this.
    Down {
        not_before: Instant,
        reason: String,
    },
    Up {
        client: Arc<Client>,
        _driver: AbortOnDropHandle<()>,
    },
}

impl Link {
    pub(super) fn new(options: &PostgresOptions) -> Result<Self, HistoryError> {
        let mut config = Config::new();
        config.host(&options.host).port(options.port).dbname(&options.name).user(&options.user);
        config.application_name("steersman-infra").connect_timeout(PATIENCE);
        if let Some(password) = &options.password {
            config.password(password);
        }
        let tls = options.tls.config()?.map(MakeRustlsConnect::new);
        if tls.is_some() {
            config.ssl_mode(SslMode::Require);
        }
        let state = State::Down { not_before: Instant::now(), reason: String::new() };
        Ok(Self { config, tls, address: options.address(), state: Mutex::new(state) })
    }

    /// A connection on which `prepare` has gone well.
    pub(super) async fn client<F>(
        &self,
        prepare: impl FnOnce(Arc<Client>) -> F,
    ) -> Result<Arc<Client>, HistoryError>
    where
        F: Future<Output = Result<(), HistoryError>>,
    {
        // Held while connecting on purpose: others wait for the same connection.
        let mut state = self.state.lock().await;
        match &*state {
            State::Up { client, .. } if !client.is_closed() => return Ok(Arc::clone(client)),
            State::Down { not_before, reason } if *not_before > Instant::now() => {
                return Err(self.unreachable(reason));
            }
            _ => {}
        }
        let connected = match tokio::time::timeout(PATIENCE, self.connect()).await {
            Ok(connected) => connected,
            Err(_) => Err(self.unreachable("it does not answer")),
        };
        let down = |error: &HistoryError| {
            let reason = match error {
                HistoryError::Unreachable { reason, .. } => reason.clone(),
                other => other.to_string(),
            };
            State::Down { not_before: Instant::now() + PAUSE, reason }
        };
        match connected {
            Err(error) => {
                *state = down(&error);
                Err(error)
            }
            Ok((client, driver)) => {
                let prepared = tokio::time::timeout(PATIENCE * 6, prepare(Arc::clone(&client))).await;
                if let Err(error) = prepared.unwrap_or_else(|_| Err(self.unreachable("it does not answer"))) {
                    *state = down(&error);
                    return Err(error);
                }
                *state = State::Up { client: Arc::clone(&client), _driver: driver };
                Ok(client)
            }
        }
    }

    /// Waits for an answer, but not for ever; a connection that does not answer is given up.
    pub(super) async fn ask<T>(
        &self,
        question: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, HistoryError> {
        match tokio::time::timeout(PATIENCE, question).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) if error.is_closed() => Err(self.unreachable(&sentence(&error))),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => {
                let reason = "it does not answer".to_owned();
                let error = self.unreachable(&reason);
                *self.state.lock().await = State::Down { not_before: Instant::now() + PAUSE, reason };
                Err(error)
            }
        }
    }

    async fn connect(&self) -> Result<(Arc<Client>, AbortOnDropHandle<()>), HistoryError> {
        let failed = |error: &tokio_postgres::Error| self.unreachable(&sentence(error));
        // A connection that ends says so to whoever asks next; there is nothing to do about it here.
        Ok(match &self.tls {
            None => {
                let (client, driver) = self.config.connect(NoTls).await.map_err(|error| failed(&error))?;
                let driver = tokio::spawn(async move { drop(driver.await) });
                (Arc::new(client), AbortOnDropHandle::new(driver))
            }
            Some(tls) => {
                let (client, driver) =
                    self.config.connect(tls.clone()).await.map_err(|error| failed(&error))?;
                let driver = tokio::spawn(async move { drop(driver.await) });
                (Arc::new(client), AbortOnDropHandle::new(driver))
            }
        })
    }

    fn unreachable(&self, reason: &str) -> HistoryError {
        HistoryError::Unreachable { address: self.address.clone(), reason: reason.to_owned() }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({})", self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_password_fits_into_a_url_and_into_no_log() {
        let options = PostgresOptions {
            password: Some("p@ss:/word?".into()),
            tls: Tls::Verified(None),
            ..PostgresOptions::default()
        };
        assert_eq!(
            options.url(),
            "postgres://operator:p%40ss%3A%2Fword%3F@localhost:5432/operator_controller?sslmode=verify-full"
        );
        let plain = PostgresOptions { tls: Tls::Off, ..options.clone() };
        let parsed: Config = plain.url().parse().expect("a URL");
        assert_eq!(parsed.get_password(), Some("p@ss:/word?".as_bytes()));
        assert_eq!(format!("{options:?}"), "PostgresOptions(localhost:5432/operator_controller as operator)");
    }
}
