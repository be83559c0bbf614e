//! Counters of what clients have asked, for metrics and the portal: by operation, how it ended, how long it took.
//!
//! The front ends count; here is only what both have in common.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the latency buckets, in microseconds.
pub const BOUNDS_MICROS: [u64; 12] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 2_000_000];

/// What the NoSQL API's requests are about, as far as metrics tell them apart.
pub const NOSQL: [&str; 9] =
    ["account", "database", "container", "read", "write", "list", "query", "changes", "other"];

/// The commands of the API for MongoDB, as far as metrics tell them apart; the last stands for all others.
pub const MONGODB: [&str; 10] = [
    "mongodb_find",
    "mongodb_insert",
    "mongodb_update",
    "mongodb_getMore",
    "mongodb_aggregate",
    "mongodb_delete",
    "mongodb_findAndModify",
    "mongodb_count",
    "mongodb_distinct",
    "mongodb_other",
];

/// How requests end, as far as metrics tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As the client wished.
    Ok,
    /// Nothing was sent, because the client has it.
    NotModified,
    /// It was the client's fault.
    Refused,
    /// There were no request units left.
    Throttled,
    /// It was our fault.
    Failed,
}

/// Their names, in order.
pub const OUTCOMES: [&str; 5] = ["ok", "not_modified", "refused", "throttled", "failed"];

/// The counters of both APIs since the start.
#[derive(Debug)]
pub struct Traffic {
    /// The NoSQL API.
    pub nosql: Counters,
    /// The API for MongoDB.
    pub mongodb: Counters,
}

impl Default for Traffic {
    fn default() -> Self {
        Self { nosql: Counters::new(&NOSQL), mongodb: Counters::new(&MONGODB) }
    }
}

impl Traffic {
    /// Both, with the names of the APIs.
    pub fn apis(&self) -> [(&'static str, &Counters); 2] {
        [("nosql", &self.nosql), ("mongodb", &self.mongodb)]
    }

    /// Sums over everything.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for (_, counters) in self.apis() {
            counters.add_to(&mut totals);
        }
        totals
    }

    /// Connections now open.
    pub fn connections(&self) -> u64 {
        self.apis().iter().map(|(_, counters)| counters.connections.load(Ordering::Relaxed)).sum()
    }
}

/// The counters of one API.
#[derive(Debug)]
pub struct Counters {
    operations: Vec<Operation>,
    /// Connections now open.
    pub connections: AtomicU64,
}

/// Sums since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Requests answered.
    pub requests: u64,
    /// Of these, for want of request units.
    pub throttled: u64,
    /// Of these, by our fault.
    pub failed: u64,
    /// Microseconds they took together.
    pub micros: u64,
}

/// The counters of one operation.
#[derive(Debug)]
pub struct Operation {
    /// Its name.
    pub name: &'static str,
    outcomes: [AtomicU64; OUTCOMES.len()],
    buckets: [AtomicU64; BOUNDS_MICROS.len() + 1],
    micros: AtomicU64,
}

impl Counters {
    fn new(names: &'static [&'static str]) -> Self {
        let operation = |name: &&'static str| Operation {
            name,
            outcomes: Default::default(),
            buckets: Default::default(),
            micros: AtomicU64::new(0),
        };
        Self { operations: names.iter().map(operation).collect(), connections: AtomicU64::new(0) }
    }

    /// Counts a request that took `time`; `operation` is the place of its name.
    pub fn count(&self, operation: usize, outcome: Outcome, time: Duration) {
        let operation = &self.operations[operation];
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket =
            BOUNDS_MICROS.iter().position(|bound| micros <= *bound).unwrap_or(BOUNDS_MICROS.len());
        operation.outcomes[outcome as usize].fetch_add(1, Ordering::Relaxed);
        operation.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        operation.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Each operation.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    fn add_to(&self, totals: &mut Totals) {
        for operation in &self.operations {
            let [ok, same, refused, throttled, failed] = operation.outcomes();
            totals.requests += ok + same + refused + throttled + failed;
            totals.throttled += throttled;
            totals.failed += failed;
            totals.micros += operation.micros();
        }
    }
}

impl Operation {
    /// How many ended so, in the order of [`OUTCOMES`].
    pub fn outcomes(&self) -> [u64; OUTCOMES.len()] {
        self.outcomes.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// How many took up to each of [`BOUNDS_MICROS`], and how many longer.
    pub fn buckets(&self) -> [u64; BOUNDS_MICROS.len() + 1] {
        self.buckets.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Microseconds they took together.
    pub fn micros(&self) -> u64 {
        self.micros.load(Ordering::Relaxed)
    }
}
