//! What the database promises: the scripts in `testscripts`, one a contract rule, and random histories.

mod concurrency;
mod crash;
mod feed;
mod histories;
mod procedures;
mod queries;
mod reindex;
mod scripts;
mod spatial;
mod version_log;

use std::sync::Arc;

use model::clock::{Clock, Timestamp, VirtualClock};
use model::partition_key::{Component, PartitionKey};
use storage::Engine;
use storage::memory::Memory;

use crate::{Container, Db, Options};

/// A database on an engine of its own, under a clock that stands still, with one container.
struct World {
    engine: Arc<dyn Engine>,
    clock: Arc<VirtualClock>,
    options: Options,
    db: Db,
}

/// The partition key with one string.
fn key(text: &str) -> PartitionKey {
    PartitionKey(vec![Component::String(text.to_owned())])
}

const START: Timestamp = Timestamp(1_000_000);

/// The contract read aloud: whether an item last written at `ts` is dead at `now` (R07).
fn is_dead(default: Option<i64>, own: Option<i64>, ts: u64, now: u64) -> bool {
    let effective = match (default, own) {
        (None, _) | (_, Some(-1)) | (Some(-1), None) => return false,
        (_, Some(own)) => own,
        (Some(default), None) => default,
    };
    ts + effective.cast_unsigned() <= now
}

/// So many seeds, or as many as `SIDEREAL_TEST_SEEDS` says; `SIDEREAL_TEST_SEED` runs one again.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    match number("SIDEREAL_TEST_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIDEREAL_TEST_SEEDS").unwrap_or(count),
    }
}

impl World {
    async fn new(engine: Arc<dyn Engine>, options: Options) -> Self {
        let clock = Arc::new(VirtualClock::frozen(START));
        let db = Db::open(engine.clone(), clock.clone(), options).await.unwrap();
        db.create_database(&serde_json::json!({"id": "d"}), None).await.unwrap();
        Self { engine, clock, options, db }
    }

    async fn in_memory(options: Options) -> Self {
        Self::new(Arc::new(Memory::new()), options).await
    }

    /// Another process on the same store, whose machine's clock says `time`.
    async fn restart(&mut self, time: Timestamp) {
        self.db.keep_clock().await.unwrap();
        self.clock = Arc::new(VirtualClock::frozen(time));
        self.db = Db::open(self.engine.clone(), self.clock.clone(), self.options).await.unwrap();
    }

    fn container(&self) -> Arc<Container> {
        self.db.container("d", "c").unwrap()
    }

    fn secs(&self) -> u64 {
        self.clock.now().since(START)
    }
}
