//! What the database promises: the scripts in `testscripts`, one a contract rule, and random histories.

mod cancel;
mod concurrency;
mod crash;
mod feed;
mod histories;
mod procedures;
mod queries;
mod reindex;
mod scripts;
mod servers;
mod spatial;
mod version_log;

use std::sync::Arc;

use model::clock::{Clock, StoreClock, Timestamp, VirtualClock};
use model::partition_key::{Component, PartitionKey};
use storage::Engine;
use storage::memory::Memory;
use storage::testing::Shared;

use crate::{Container, Db, Options};

/// A database on an engine of its own, under a clock that stands still, with one container.
struct World {
    engine: Arc<dyn Engine>,
    clock: Arc<VirtualClock>,
    options: Options,
    db: Db,
    /// Other servers on the same store, where it is shared.
    others: Vec<Db>,
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

/// A server on a shared store.
async fn server(engine: &Arc<dyn Engine>, options: Options) -> Db {
    Db::open(engine.clone(), Arc::new(StoreClock::new()), options).await.unwrap()
}

impl World {
    async fn new(engine: Arc<dyn Engine>, options: Options) -> Self {
        let clock = Arc::new(VirtualClock::frozen(START));
        let db = Db::open(engine.clone(), clock.clone(), options).await.unwrap();
        db.create_database(&serde_json::json!({"id": "d"}), None).await.unwrap();
        Self { engine, clock, options, db, others: Vec::new() }
    }

    /// Several servers on one store. Time is the store's.
    async fn shared(engine: Arc<dyn Engine>, servers: usize, options: Options) -> Self {
        let clock = Arc::new(VirtualClock::frozen(START));
        let time = clock.clone();
        let engine: Arc<dyn Engine> = Arc::new(Shared::new(engine, Arc::new(move || time.now().0)));
        let mut others = Vec::new();
        for _ in 0..servers {
            others.push(server(&engine, options).await);
        }
        let db = others.pop().unwrap();
        db.create_database(&serde_json::json!({"id": "d"}), None).await.unwrap();
        Self { engine, clock, options, db, others }
    }

    /// Goes on with another of the servers, as a request to it begins.
    async fn change_server(&mut self, random: &mut fastrand::Rng) {
        if let Some(other) = random.choice(&mut self.others) {
            std::mem::swap(&mut self.db, other);
        }
        self.db.refresh().await.unwrap();
    }

    async fn in_memory(options: Options) -> Self {
        Self::new(Arc::new(Memory::new()), options).await
    }

    /// Another process on the same store, whose machine's clock says `time`.
    async fn restart(&mut self, time: Timestamp) {
        if self.db.is_shared() {
            self.db = server(&self.engine, self.options).await;
            return;
        }
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
