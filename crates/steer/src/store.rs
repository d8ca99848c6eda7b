//! Where `steer up` keeps its objects.

use std::path::Path;

use anyhow::Context as _;
use steersman_apiserver::store::{Store, StoreOptions};

/// Where objects are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreChoice {
    /// In a file of the data folder.
    Sqlite,
    /// Nowhere; they are gone with the process.
    Memory,
    /// In a PostgreSQL database.
    Postgres(String),
}

impl std::str::FromStr for StoreChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "sqlite" => Ok(Self::Sqlite),
            "memory" => Ok(Self::Memory),
            url if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
                Ok(Self::Postgres(url.to_owned()))
            }
            _ => Err("expected sqlite, memory or postgres://user:password@host:5432/database".to_owned()),
        }
    }
}

impl StoreChoice {
    /// Opens the store; a file is in this folder.
    pub(crate) async fn open(&self, dir: &Path) -> anyhow::Result<Store> {
        let options = StoreOptions::default();
        match self {
            Self::Sqlite => Store::sqlite(&dir.join("state.db"), options),
            Self::Memory => Ok(Store::memory(options)),
            Self::Postgres(url) => Store::postgres(url, options).await,
        }
        .context("cannot open the store")
    }
}
