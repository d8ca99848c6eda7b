//! Where a database is, read from its address.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::DatabaseError;
use super::tls::{Trust, connector};

/// How long a connection may take.
pub(super) const CONNECT: Duration = Duration::from_secs(10);

/// A database and how to reach it.
#[derive(Clone)]
pub(in crate::store) struct Place {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
    /// For messages: without password.
    shown: Arc<str>,
}

impl Place {
    /// Reads an address such as `postgres://user:password@host:5432/database?sslmode=verify-full`.
    ///
    /// `sslmode` means what it means to PostgreSQL's own clients: `disable`, `prefer` (the default),
    /// `require` (encrypted, whoever answers), `verify-ca` and `verify-full` (the server's certificate
    /// must be valid for its name, by `sslrootcert` or the authorities that the system trusts).
    pub(in crate::store) fn parse(url: &str) -> Result<Place, DatabaseError> {
        let address = |why: String| DatabaseError::Address { why };
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(address("it does not begin with postgres://".to_owned()));
        }
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut kept = Vec::new();
        let (mut mode, mut roots) = ("prefer", None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", value)) => mode = value,
                Some(("sslrootcert", value)) => roots = Some(value),
                _ => kept.push(pair),
            }
        }
        let plain = if kept.is_empty() { base.to_owned() } else { format!("{base}?{}", kept.join("&")) };
        let mut config: Config =
            plain.parse().map_err(|error: tokio_postgres::Error| address(super::error::say(&error)))?;
        let trust = match (mode, roots) {
            ("disable" | "allow" | "prefer" | "require", _) => Trust::Anyone,
            ("verify-ca" | "verify-full", None | Some("system")) => Trust::System,
            ("verify-ca" | "verify-full", Some(file)) => Trust::File(file),
            (other, _) => return Err(address(format!("there is no sslmode {other:?}"))),
        };
        let tls = connector(trust).map_err(address)?;
        config.ssl_mode(match mode {
            "disable" => SslMode::Disable,
            "allow" | "prefer" => SslMode::Prefer,
            _ => SslMode::Require,
        });
        config.connect_timeout(CONNECT);
        // A peer that is gone without a word is noticed in half a minute.
        config.keepalives_idle(Duration::from_secs(10));
        config.keepalives_interval(Duration::from_secs(5));
        config.keepalives_retries(3);
        config.tcp_user_timeout(Duration::from_secs(20));
        if config.get_application_name().is_none() {
            config.application_name("steersman");
        }
        let shown = show(&config).into();
        Ok(Place { config, tls, shown })
    }
}

fn show(config: &Config) -> String {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        #[cfg(unix)]
        Some(Host::Unix(path)) => path.display().to_string(),
        None => "localhost".to_owned(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let database = config.get_dbname().or_else(|| config.get_user()).unwrap_or_default();
    format!("postgres://{host}:{port}/{database}")
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Place").field(&self.shown).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        let place =
            Place::parse("postgres://me:secret@db.example:6543/things?sslmode=require").expect("fine");
        assert_eq!(place.to_string(), "postgres://db.example:6543/things");
        assert_eq!(place.config.get_ssl_mode(), SslMode::Require);
        assert!(!format!("{place:?}").contains("secret"));
    }

    #[test]
    fn a_bad_address_is_refused_with_an_example() {
        for (bad, why) in [
            ("mysql://host/db", "it does not begin with postgres://"),
            ("postgres://host/db?sslmode=maybe", "there is no sslmode \"maybe\""),
            ("postgres://host:port/db", "invalid"),
            ("postgres://host/db?sslmode=verify-full&sslrootcert=/does/not/exist", "/does/not/exist"),
        ] {
            let error = Place::parse(bad).expect_err("bad").to_string();
            assert!(error.contains(why), "{error}");
            assert!(error.ends_with("looks like postgres://user:password@host:5432/database"), "{error}");
        }
    }
}
