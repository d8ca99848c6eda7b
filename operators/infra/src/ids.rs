//! The numbers by which the REST face knows objects.
//!
//! They come in blocks from a counter that all processes share, moved by compare-and-swap. A
//! block that is not used up at the end of a process leaves a gap; no number is given twice.

use std::collections::BTreeMap;
use std::ops::Range;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, Resource as _};
use tokio::sync::Mutex;

/// The ConfigMap that holds the counters.
pub const COUNTERS: &str = "infra-ids";
/// How many numbers are taken at once.
const BLOCK: i64 = 32;
/// How often a lost race is run again.
const ATTEMPTS: usize = 20;

/// What is numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbered {
    /// ResourceTypes.
    Types,
    /// Resources.
    Resources,
}

/// Gives out numbers.
#[derive(Debug)]
pub struct Ids {
    counters: Api<ConfigMap>,
    blocks: Mutex<[Range<i64>; 2]>,
}

/// Why there is no number.
#[derive(Debug, thiserror::Error)]
pub enum IdError {
    /// The server did not answer as it should.
    #[error("the counter of ids cannot be moved: {0}")]
    Server(#[from] kube::Error),
    /// Somebody has written something else into the counter.
    #[error(
        "ConfigMap {COUNTERS} holds {0:?} where a number should be; correct it to one above all ids in use"
    )]
    Counter(String),
    /// Too many others want numbers at the same time.
    #[error("the counter of ids was moved by others {ATTEMPTS} times in a row; try again")]
    Contended,
}

impl Ids {
    /// Numbers from the counters in a namespace.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { counters: Api::namespaced(client, namespace), blocks: Mutex::new([0..0, 0..0]) }
    }

    /// A number that nobody else has got or will get.
    ///
    /// # Errors
    /// When the counter cannot be moved.
    pub async fn next(&self, what: Numbered) -> Result<i64, IdError> {
        // Held over the request on purpose: others wait for the same block instead of taking
        // one each.
        let mut blocks = self.blocks.lock().await;
        let block = &mut blocks[what as usize];
        if let Some(id) = block.next() {
            return Ok(id);
        }
        *block = self.take(what).await?;
        block.next().ok_or(IdError::Contended)
    }

    async fn take(&self, what: Numbered) -> Result<Range<i64>, IdError> {
        let key = match what {
            Numbered::Types => "resource-types",
            Numbered::Resources => "resources",
        };
        for _ in 0..ATTEMPTS {
            let found = self.counters.get_opt(COUNTERS).await?;
            let text = found.as_ref().and_then(|found| found.data.as_ref()?.get(key));
            let first = match text {
                None => 1,
                Some(text) => text.parse().map_err(|_| IdError::Counter(text.clone()))?,
            };
            let next = (key.to_owned(), (first + BLOCK).to_string());
            let written = match found {
                None => {
                    let counters = ConfigMap {
                        metadata: ObjectMeta { name: Some(COUNTERS.to_owned()), ..ObjectMeta::default() },
                        data: Some(BTreeMap::from([next])),
                        ..ConfigMap::default()
                    };
                    self.counters.create(&PostParams::default(), &counters).await
                }
                Some(mut counters) => {
                    counters.data.get_or_insert_default().extend([next]);
                    counters.meta_mut().managed_fields = None;
                    self.counters.replace(COUNTERS, &PostParams::default(), &counters).await
                }
            };
            match written {
                Ok(_) => return Ok(first..first + BLOCK),
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(IdError::Contended)
    }
}
