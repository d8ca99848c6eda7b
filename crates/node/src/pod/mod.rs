//! Pods from the moment they are bound to this node until they are gone.
//!
//! Each pod has a worker of its own, a task that hears of changes and of its processes and then
//! looks at the whole: [`plan`] says what to do next, [`status`] what to tell. Both are pure.

mod env;
mod events;
mod exec;
mod fields;
mod http_get;
mod keeper;
mod launch;
mod limits;
mod lookup;
mod plan;
mod probe;
mod report;
mod state;
mod status;
mod tokens;
mod volumes;
mod worker;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

pub(crate) use events::Recorder;
pub(crate) use keeper::{Keeper, Known};

use crate::image::ImageMap;
use crate::logs::Logs;
use crate::options::Clock;
use crate::runtime::Runtime;
use crate::service::Directory;

/// What every pod's worker needs of its node.
pub(crate) struct Shared {
    pub(crate) client: kube::Client,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) images: RwLock<ImageMap>,
    pub(crate) logs: Logs,
    pub(crate) events: Recorder,
    pub(crate) services: Directory,
    pub(crate) clock: Clock,
    pub(crate) data_dir: PathBuf,
    pub(crate) host: IpAddr,
    /// Processors and bytes of memory of this machine.
    pub(crate) size: (u64, u64),
}

impl Shared {
    /// The table of images as it is now.
    pub(crate) fn images(&self) -> ImageMap {
        self.images.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
