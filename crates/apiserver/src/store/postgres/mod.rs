//! The store in a PostgreSQL database.
//!
//! ```text
//!   commit ──► one statement: fence ► objects ► history      (its end is the commit)
//!                               │
//!      connection lost ─────────┴──► connect ► lock ► take a new epoch ► was it there? ► go on
//! ```
//!
//! One process at a time has the database: it holds an advisory lock as long as it is connected,
//! and every batch names the epoch that it took when it connected, in the same statement that
//! writes the rows. Whoever takes a later epoch thereby ends the writing of everyone before, also
//! of those whose connection still seems to live.
//!
//! A connection that breaks during a commit leaves open whether it happened. The next one reads
//! the revision under its new epoch, after which the old statement can no longer change it, and so
//! knows.

mod compact;
mod database;
mod error;
mod link;
mod load;
mod place;
mod rows;
mod schema;
mod session;
mod tls;

pub(super) use database::Database;
pub use error::DatabaseError;
pub(super) use place::Place;
