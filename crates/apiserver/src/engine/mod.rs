//! What the verbs do, for every resource alike.
//!
//! ```text
//!   create ┐
//!   update ┼─ admit (decode, default, webhooks, prepare, validate, webhooks) ─ commit ─ the store
//!   patch  ┘
//!   delete ── finalizers, grace periods, propagation ───── commit ─ the store
//!   get, list ────────────────────────────── views over ── the store
//! ```

mod admission;
mod call;
mod commit;
pub(crate) mod convert;
mod create;
mod delete;
mod expire;
pub(crate) mod list;
pub(crate) mod meta;
mod patch;
mod pods;
mod scale;
mod update;
pub(crate) mod view;

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;

pub(crate) use call::{Call, DryRun, FieldValidation};
pub(crate) use commit::key;
pub(crate) use create::suffix;
pub(crate) use delete::DeleteOptions;
pub(crate) use expire::LastSweep;
pub(crate) use list::{Filter, Listed, Rendering};
pub(crate) use patch::Patch;
pub(crate) use patch::PatchKind;
pub(crate) use pods::log_target;
pub(crate) use update::Side;

use crate::{
    admit::{addresses::Addresses, webhook::Webhooks},
    conversion::Kept,
    definitions::Served,
    object::Stored,
    server::Options,
    store::Store,
    types::Resource,
};

/// All that one API server knows and has.
pub(crate) struct Engine {
    pub(crate) store: Store,
    /// What is served now; swapped when definitions come and go.
    pub(crate) served: ArcSwap<Served>,
    pub(crate) options: Options,
    /// Addresses and node ports of Services.
    pub(crate) addresses: Addresses,
    /// Webhooks that are asked about writes.
    pub(crate) webhooks: Webhooks,
    /// Custom resources that webhooks converted.
    pub(crate) conversions: Kept,
    /// When old events were last looked for.
    pub(crate) last_sweep: LastSweep,
    /// Ends what runs beside requests.
    pub(crate) closing: CancellationToken,
}

/// What a verb answers with.
#[derive(Debug)]
pub(crate) enum Answer {
    /// An object as it is stored.
    Stored(Arc<Stored>),
    /// An object that was made for the answer, in the version of the request.
    Value(serde_json::Value),
    /// A `Status` or a body of another kind; never shown as a table.
    Plain(serde_json::Value),
}

/// An answer and its HTTP code.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// HTTP status code.
    pub(crate) code: u16,
    /// The body.
    pub(crate) answer: Answer,
}

impl Outcome {
    fn stored(code: u16, stored: Arc<Stored>) -> Self {
        Self { code, answer: Answer::Stored(stored) }
    }

    /// A review with its answer filled in.
    pub(crate) fn review(value: serde_json::Value) -> Self {
        Self::plain(201, value)
    }

    fn plain(code: u16, value: serde_json::Value) -> Self {
        Self { code, answer: Answer::Plain(value) }
    }
}

/// `group/version`, or `version` for the core group.
pub(crate) fn api_version(resource: &Resource) -> String {
    resource.api_version()
}
