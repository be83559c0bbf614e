//! Containers of items: what both protocols mean.
//!
//! [`Db`] is the handle. Everything that a client can be told about an item is decided here: front ends translate.
//!
//! # A point read
//!
//! 1. [`Db::read`] takes one `now` and, after it, the container's [`model::ttl::Horizon`] from its [`partition::TtlCell`].
//! 2. [`names::Names`] guesses the item's ordinal, or the `id` family tells it ([`keys::Key::Id`]).
//! 3. [`record::Record::decode`] checks the record's sum; a record that is dead under the horizon is [`Error::NotFound`].
//!
//! # A write
//!
//! 1. [`Db::transact`] prepares it in the request's own task: parsed, validated, its index terms computed ([`items::Write`],
//!    [`index::IndexingPolicy::terms`]).
//! 2. It queues for the partition's [`writer::Writer`], which takes what has queued, decides each in turn in a [`writer::Round`], and commits one
//!    batch with a check on the partition's [`partition::Head`].
//! 3. All are answered when the batch is durable.
//!
//! # A query
//!
//! 1. [`Db::query`] compiles the text; [`access::Access::choose`] turns the plan's conditions into ranges of index terms, and
//!    [`order::Order::choose`] finds an index that holds the order it asks for.
//! 2. [`fan::Fan`] goes from partition to partition of the scope; in each, [`scan::ItemScan`] reads pages of one snapshot and drops the
//!    dead. The pipeline takes the living until the page is full.
//! 3. The continuation names the last row, not a count.
//!
//! # The purge
//!
//! 1. [`Db::purge`] asks each partition's bucket what clients have left over ([`charge`]).
//! 2. The writer's round removes what lies between the cursors and the horizon ([`writer::Round::purge`]), and moves the cursors in the same batch.

mod access;
pub mod account;
pub mod catalog;
pub mod charge;
pub mod check;
pub mod container;
pub mod copy;
pub mod delete_key;
pub mod documents;
pub mod error;
pub mod explain;
mod fan;
pub mod feed;
pub mod history;
mod index;
pub mod items;
mod keys;
mod names;
mod open;
mod order;
mod partition;
pub mod patch;
mod policies;
pub mod purge;
pub mod query;
mod ranges;
mod record;
mod reindex;
pub mod resources;
mod scan;
pub mod scripting;
pub mod servers;
pub mod settings;
pub mod split;
#[cfg(test)]
mod tests;
pub mod throughput;
pub mod timeline;
pub mod traffic;
pub mod turns;
mod writer;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, Weak};

use arc_swap::ArcSwap;
use model::clock::Clock;
use model::resource::SessionToken;
use storage::Engine;

pub use account::{Account, How, IndexUse};
pub use catalog::Database;
pub use charge::RequestCharge;
pub use container::Container;
pub use error::{Error, Result};
pub use explain::{ExplainedPage, Explanation};
pub use feed::{Change, Changes, ChangesMode, ChangesRequest};
pub use items::{Item, Page, PageRequest, ReadOptions, Scope, Verb, Write, Written};
pub use keys::BUCKETS;
pub use purge::{PurgeReport, TtlLag};
pub use query::{QueryRequest, ResumeFilter};
pub use resources::{Grant, Kind, Parent, Place, Resource};
pub use scripting::{Executed, Triggers};
pub use servers::Seen;
pub use settings::Settings;
pub use throughput::{Migration, Offer, Throughput, Usage};
pub use timeline::{Due, Forecast, Tally, Timeline};
pub use writer::Outcome;

/// How a database behaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// How many partitions a new container has; as many as its throughput needs where none is named.
    pub partitions: Option<u32>,
    /// Refuse requests over the provisioned request units with [`Error::Throttled`].
    pub throttle: bool,
    /// How containers of documents are read, if there is a front end for them.
    pub layouts: Option<documents::Layouts>,
}

/// A database on an engine. Cheap to clone; all clones are the same database.
#[derive(Clone)]
pub struct Db {
    engine: Arc<dyn Engine>,
    clock: Arc<dyn Clock>,
    options: Options,
    /// Whether other servers may use the store.
    shared: bool,
    /// A number that no other server has.
    server: u64,
    catalog: Arc<ArcSwap<catalog::Catalog>>,
    names: Arc<names::Names>,
    catalog_lock: Arc<tokio::sync::Mutex<()>>,
    /// Partitions that were split, while a request still reads them.
    retired: Arc<Mutex<Vec<Weak<partition::Partition>>>>,
    alarm: Arc<purge::Alarm>,
    /// Where the writers run: requests may come from other runtimes, and these may end first.
    tasks: tokio::runtime::Handle,
    /// How many more scripts may run now.
    script_permits: Arc<tokio::sync::Semaphore>,
    /// The user-defined functions that queries through this handle may call.
    functions: Option<Arc<dyn ::query::Udfs>>,
    /// The last `now` handed out, and the last one that is stored.
    now_seen: Arc<AtomicU64>,
    now_stored: Arc<AtomicU64>,
    traffic: Arc<traffic::Traffic>,
}

/// What an item operation answers: its result, what it cost, and how far the client has now seen.
#[derive(Debug)]
pub struct Reply<T> {
    /// The result itself.
    pub result: Result<T>,
    /// Request units used, on errors too.
    pub charge: RequestCharge,
    /// The partition and its last change, where one partition answered.
    pub session: Option<SessionToken>,
    /// The others, where several partitions answered.
    pub other_sessions: Vec<SessionToken>,
}
