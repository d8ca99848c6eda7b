//! Candidates as processes, and the gates before the API server.

mod candidate;
mod gate;

pub(crate) use self::candidate::{Candidate, DURATION, client_of, lead_if_asked};
pub(crate) use self::gate::{Gate, Written};
