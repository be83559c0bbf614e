//! Containers of items: what both protocols mean.
//!
//! [`Db`] is the handle. Everything that a client can be told about an item is decided here: front ends translate.

pub mod catalog;
pub mod charge;
pub mod error;
pub mod feed;
pub mod items;
pub mod purge;
pub mod query;
pub mod settings;

use std::sync::Arc;

use model::clock::{Clock, Timestamp};
use model::resource::SessionToken;
use storage::Engine;

pub use catalog::{Container, Database, Offer, Throughput};
pub use charge::RequestCharge;
pub use error::{Error, Result};
pub use feed::ChangesRequest;
pub use items::{Item, Page, PageRequest, ReadOptions, Scope, Verb, Write, Written};
pub use purge::{PurgeReport, TtlLag};
pub use query::QueryRequest;
pub use settings::Settings;

/// How a database behaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Refuse requests over the provisioned request units with [`Error::Throttled`].
    pub throttle: bool,
}

/// A database on an engine. Cheap to clone; all clones are the same database.
#[derive(Clone)]
pub struct Db {}

/// What an item operation answers: its result, what it cost, and how far the client has now seen.
#[derive(Debug)]
pub struct Reply<T> {
    /// The result itself.
    pub result: Result<T>,
    /// Request units used, on errors too.
    pub charge: RequestCharge,
    /// The partition and its last change, where one partition answered.
    pub session: Option<SessionToken>,
}

impl Db {
    /// Opens the database that `engine` holds, or begins a new one. Checks that heads, feed and items agree.
    pub async fn open(engine: Arc<dyn Engine>, clock: Arc<dyn Clock>, options: Options) -> Result<Self> {
        todo!()
    }

    /// The second it is. Never decreases.
    pub fn now(&self) -> Timestamp {
        todo!()
    }

    /// The clock, for latencies and the virtual clock's controls.
    pub fn clock(&self) -> &dyn Clock {
        todo!()
    }

    /// The engine, for its numbers.
    pub fn engine_stats(&self) -> storage::Stats {
        todo!()
    }

    /// Finishes what is queued, stores the clock, flushes, and refuses everything from then on.
    pub async fn close(&self) -> Result<()> {
        todo!()
    }
}
