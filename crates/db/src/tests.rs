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

/// A store on PostgreSQL with nothing in it.
fn empty_postgres(runtime: &tokio::runtime::Runtime, urls: &[String]) -> Arc<dyn Engine> {
    for url in urls {
        let drop = "DROP TABLE IF EXISTS sidereal_kv, sidereal_writer, sidereal_store";
        storage::testing::postgres::sql(url, drop);
    }
    let options = storage::postgres::Options { writers: 2, readers: 2, snapshots_max: 32 };
    let opened = storage::postgres::Postgres::open(urls, crate::BUCKETS, options);
    Arc::new(runtime.block_on(opened).unwrap())
}

/// Removes all that a store has.
async fn empty(engine: &dyn Engine) {
    let (snapshot, mut batch) = (engine.snapshot(), storage::Batch::default());
    for family in storage::Family::ALL {
        let all = bytes::Bytes::new()..storage::keycode::prefix_end(&[]);
        let pairs = snapshot.scan(family, all, storage::Direction::Forward, usize::MAX);
        pairs.await.unwrap().into_iter().for_each(|(key, _)| batch.delete(family, key));
    }
    engine.commit(batch).await.unwrap();
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
        let world = Self::over(engine, servers, options, &clock).await;
        world.db.create_database(&serde_json::json!({"id": "d"}), None).await.unwrap();
        world
    }

    /// The same on a store that has a database.
    async fn over(
        engine: Arc<dyn Engine>,
        servers: usize,
        options: Options,
        clock: &Arc<VirtualClock>,
    ) -> Self {
        let (clock, time) = (clock.clone(), clock.clone());
        let engine: Arc<dyn Engine> = Arc::new(Shared::new(engine, Arc::new(move || time.now().0)));
        let mut others = Vec::new();
        for _ in 0..servers {
            others.push(server(&engine, options).await);
        }
        let db = others.pop().unwrap();
        Self { engine, clock, options, db, others }
    }

    /// Goes on with another of the servers, as a request to it begins.
    async fn change_server(&mut self, random: &mut fastrand::Rng) {
        if let Some(other) = random.choice(&mut self.others) {
            std::mem::swap(&mut self.db, other);
        }
        self.db.refresh().await.unwrap();
    }

    /// Goes on with the next of the servers.
    async fn take_turns(&mut self) {
        if let Some(next) = self.others.pop() {
            self.others.insert(0, std::mem::replace(&mut self.db, next));
        }
        self.db.refresh().await.unwrap();
    }

    /// An empty store with as many servers, which have other options.
    async fn begin_again(&mut self, options: Options) {
        if !self.db.is_shared() {
            *self = Self::in_memory(options).await;
            return;
        }
        empty(&*self.engine).await;
        self.options = options;
        for db in self.others.iter_mut().chain([&mut self.db]) {
            *db = server(&self.engine, options).await;
        }
        self.db.create_database(&serde_json::json!({"id": "d"}), None).await.unwrap();
    }

    async fn in_memory(options: Options) -> Self {
        Self::new(Arc::new(Memory::new()), options).await
    }

    /// Another process on the same store, whose machine's clock says `time`.
    async fn restart(&mut self, time: Timestamp) {
        if self.db.is_shared() {
            // Time is the store's, and does not go back.
            self.clock.advance(time.since(self.clock.now()));
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
