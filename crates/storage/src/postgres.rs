//! The engine for more than one machine: a PostgreSQL cluster used as an ordered key-value store.
//!
//! ```text
//!  sidereal   sidereal   sidereal         any number of servers, any may die
//!       \        |        /
//!        one leader, standbys             one table: sidereal_kv (b, k, v), primary key (b, k)
//! ```
//!
//! Or several such stores, each with some of the buckets ([`Buckets`]); the first has the catalog. They know each other: a store is opened only with
//! all its parts, in their order ([`shard`]).
//!
//! - **A commit is one transaction and one round trip**, and what it checks is locked in it ([`writing`]). Commits of a bucket keep their order. An
//!   outcome that was lost is found out before it is answered; if that takes too long the answer is [`Error::Unknown`].
//! - **Gets that come at the same time share a statement** ([`reading`]). A snapshot is a transaction that sees one state; it begins with its first read.
//! - **The leader is found by asking all nodes at once** ([`address`]). After a failover, sessions with the former leader are given up, and a node
//!   that does not yet know that it was replaced is refused, by its timeline. What is read counts only while the leader was heard of a moment ago
//!   ([`shard::OFFICE`]): one that was frozen, was replaced and woke up answers what is old.
//! - Keys that a btree cannot hold are cut and hashed ([`rows`]).
//! - The tables are made at first use and have a version ([`shard`]).
//!
//! Statements keep to what every database with this protocol has: no advisory locks, notifications, sequences, triggers or jsonb.
//! Only PostgreSQL itself has been tried.

mod address;
mod reading;
mod rows;
mod shard;
mod tls;
mod writing;

use std::collections::BTreeMap;
use std::future::ready;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

pub use self::rows::Buckets;

use self::address::Address;
use self::reading::{Ask, Latest, PostgresSnapshot, Reach, ReadLane, listen, on};
use self::rows::{Rows, Spot};
#[cfg(test)]
pub(crate) use self::shard::OFFICE;
use self::shard::Shard;
use self::writing::{Job, Lane};
use crate::{Answer, Batch, Direction, Engine, Error, Family, Pulse, Result, Snapshot, Stats};

/// How many connections a [`Postgres`] engine holds to each store.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Sessions that commit. Buckets are spread over them.
    pub writers: usize,
    /// Sessions that answer single gets, many at a time.
    pub readers: usize,
    /// The most sessions for snapshots and scans; made as they are needed.
    pub snapshots_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { writers: 8, readers: 4, snapshots_max: 16 }
    }
}

/// An engine on a PostgreSQL cluster, or several.
///
/// Needs the runtime that it was opened on, but not to be called from it.
pub struct Postgres {
    inner: Arc<Inner>,
}

/// What the engine and its snapshots share.
struct Inner {
    shards: Vec<Lanes>,
    buckets: Buckets,
    tasks: tokio::runtime::Handle,
    /// Which lane reads next.
    turn: AtomicUsize,
}

/// A store and who works on it.
struct Lanes {
    store: Arc<Shard>,
    writers: Vec<mpsc::UnboundedSender<Job>>,
    /// The first is for pulses.
    readers: Vec<mpsc::UnboundedSender<Ask>>,
}

impl Postgres {
    /// Opens the store at `urls` (`postgres://user:password@host1,host2/database`), and makes its tables if need be. Several are the parts of
    /// one store, always the same in the same order.
    pub async fn open(
        urls: &[impl AsRef<str>],
        buckets: Buckets,
        options: Options,
    ) -> Result<Self> {
        let tasks = tokio::runtime::Handle::current();
        let addresses = urls.iter().map(|url| Address::parse(url.as_ref()));
        let stores = addresses
            .map(|address| Ok(Arc::new(Shard::new(address?, options.snapshots_max.max(1)))))
            .collect::<Result<Vec<_>>>()?;
        shard::prepare(&stores).await?;
        let mut shards = Vec::with_capacity(stores.len());
        for (place, store) in stores.iter().enumerate() {
            store.measure().await;
            let writers = (0..options.writers.max(1)).map(|_| Lane::start(place, &stores, &tasks));
            let readers = 0..=options.readers.max(1);
            let readers = readers.map(|_| ReadLane::start(store.clone(), &tasks));
            let (writers, readers): (_, Vec<_>) = (writers.collect(), readers.collect());
            listen(store, &readers[0], &tasks);
            shards.push(Lanes { writers, readers, store: store.clone() });
        }
        let inner = Inner { shards, buckets, tasks, turn: AtomicUsize::new(0) };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Where the store is, for people: without the password.
    pub fn shown(&self) -> String {
        let shown: Vec<_> = self.inner.shards.iter().map(|lanes| lanes.store.shown()).collect();
        shown.join(", ")
    }
}

impl Inner {
    /// The store that a bucket is in.
    fn shard_of(&self, bucket: i64) -> usize {
        self.shard_at((self.buckets.home)(bucket as u64))
    }

    fn shard_at(&self, home: u64) -> usize {
        (home % self.shards.len() as u64) as usize
    }

    /// A batch as the rows of each store that it touches, in the order of the stores.
    fn rows(&self, batch: &Batch) -> Vec<(usize, Rows)> {
        let shard = |family, key: &[u8]| self.shard_at(self.buckets.home(family, key));
        let mut parts: BTreeMap<usize, Batch> = BTreeMap::new();
        if self.shards.len() > 1 {
            for check in &batch.checks {
                let part = parts.entry(shard(check.family, &check.key)).or_default();
                part.checks.push(check.clone());
            }
            for write in &batch.writes {
                let part = parts.entry(shard(write.family, &write.key)).or_default();
                part.writes.push(write.clone());
            }
        }
        match parts.len() {
            0 => vec![(0, Rows::of(batch, self.buckets))],
            _ => parts.iter().map(|(shard, part)| (*shard, Rows::of(part, self.buckets))).collect(),
        }
    }

    /// Reads keys of one store.
    fn ask(&self, shard: usize, spots: Vec<Spot>) -> Answer<'static, Vec<Option<Bytes>>> {
        let (reply, values) = oneshot::channel();
        if let Err(error) = self.send(shard, Ask::Get(spots, reply)) {
            return Box::pin(ready(Err(error)));
        }
        Box::pin(async move { values.await.unwrap_or(Err(Error::Closed)) })
    }

    /// Hands something to read to one of a store's lanes.
    fn send(&self, shard: usize, ask: Ask) -> Result<()> {
        let lanes = &self.shards[shard];
        lanes.store.check_open()?;
        let others = &lanes.readers[1..];
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % others.len();
        others[turn].send(ask).map_err(|_| Error::Closed)
    }

    fn get(&self, family: Family, key: &[u8]) -> Answer<'static, Option<Bytes>> {
        let spot = self.buckets.spot(family, key);
        let values = self.ask(self.shard_of(spot.bucket), vec![spot]);
        Box::pin(async move { Ok(values.await?.pop().flatten()) })
    }

    /// Keys by their stores, and where each has gone.
    fn parted(&self, family: Family, keys: &[Bytes]) -> (Vec<Vec<Spot>>, Vec<(usize, usize)>) {
        let mut parts: Vec<Vec<Spot>> = self.shards.iter().map(|_| Vec::new()).collect();
        let place = |key: &Bytes| {
            let spot = self.buckets.spot(family, key);
            let shard = self.shard_of(spot.bucket);
            parts[shard].push(spot);
            (shard, parts[shard].len() - 1)
        };
        let places = keys.iter().map(place).collect();
        (parts, places)
    }

    /// What a scan has to read, and in which stores; `None` if it can find nothing.
    fn reach(
        &self,
        family: Family,
        range: Range<Bytes>,
        direction: Direction,
        limit: usize,
    ) -> Option<(Reach, Range<usize>)> {
        if range.is_empty() || limit == 0 {
            return None;
        }
        let buckets = self.buckets.span(family, &range);
        let shards = match buckets {
            Some((first, last)) if first == last => {
                let shard = self.shard_of(first);
                shard..shard + 1
            }
            _ => 0..self.shards.len(),
        };
        Some((Reach { family, range, buckets, direction, limit }, shards))
    }
}

impl Engine for Postgres {
    fn snapshot(&self) -> Box<dyn Snapshot> {
        Box::new(PostgresSnapshot::new(self.inner.clone()))
    }

    fn latest(&self) -> Box<dyn Snapshot> {
        Box::new(Latest(self.inner.clone()))
    }

    fn get(&self, family: Family, key: &[u8]) -> Answer<'_, Option<Bytes>> {
        self.inner.get(family, key)
    }

    fn pulse(&self, family: Family, key: &[u8]) -> Option<Answer<'_, Pulse>> {
        let spot = self.inner.buckets.spot(family, key);
        let lanes = &self.inner.shards[self.inner.shard_of(spot.bucket)];
        let (reply, pulse) = oneshot::channel();
        let sent = lanes.store.check_open().is_ok()
            && lanes.readers[0].send(Ask::Pulse(spot, reply)).is_ok();
        Some(Box::pin(async move {
            if !sent {
                return Err(Error::Closed);
            }
            pulse.await.unwrap_or(Err(Error::Closed))
        }))
    }

    fn pulse_and_get(
        &self,
        pulse: (Family, &[u8]),
        get: (Family, &[u8]),
    ) -> Option<Answer<'_, (Pulse, Option<Bytes>)>> {
        let inner = &self.inner;
        let (beat, spot) = (inner.buckets.spot(pulse.0, pulse.1), inner.buckets.spot(get.0, get.1));
        let shard = inner.shard_of(spot.bucket);
        if shard != inner.shard_of(beat.bucket) {
            // One store must have answered before the other is asked.
            let (pulse, key) = (self.pulse(pulse.0, pulse.1)?, Bytes::copy_from_slice(get.1));
            return Some(Box::pin(async move {
                let pulse = pulse.await?;
                Ok((pulse, inner.get(get.0, &key).await?))
            }));
        }
        let (reply, both) = oneshot::channel();
        let sent = inner.send(shard, Ask::Both(beat, spot, reply));
        Some(Box::pin(async move {
            sent?;
            both.await.unwrap_or(Err(Error::Closed))
        }))
    }

    fn commit(&self, batch: Batch) -> Answer<'_, ()> {
        if let Err(error) = batch.validate() {
            return Box::pin(ready(Err(error)));
        }
        let inner = &self.inner;
        let first = batch.checks.first().map(|check| (check.family, &check.key));
        let first = first.or(batch.writes.first().map(|write| (write.family, &write.key)));
        let home = first.map_or(0, |(family, key)| inner.buckets.home(family, key));
        let lanes = &inner.shards[inner.shard_at(home)];
        if let Err(error) = lanes.store.check_open() {
            return Box::pin(ready(Err(error)));
        }
        // Sent at once, not when first polled: the work goes on even if the future is dropped.
        let turn = home / inner.shards.len() as u64;
        let writer = (turn % lanes.writers.len() as u64) as usize;
        let (reply, made) = oneshot::channel();
        let job = Job::Commit(inner.rows(&batch), reply);
        if lanes.writers[writer].send(job).is_err() {
            return Box::pin(ready(Err(Error::Closed)));
        }
        Box::pin(async move { made.await.unwrap_or(Err(Error::Closed)) })
    }

    fn freeze(&self, frozen: bool) -> Answer<'_, ()> {
        let inner = self.inner.clone();
        on(&self.inner.tasks, async move {
            for lanes in &inner.shards {
                lanes.store.freeze(frozen).await?;
            }
            Ok(())
        })
    }

    /// Does nothing: the store's own vacuum sees to it.
    fn reclaim_below(&self, _family: Family, _prefix: &[u8], _key: &[u8]) {}

    /// The size is that of a moment ago: it is asked for again each time.
    fn stats(&self) -> Stats {
        let mut stats = Stats { engine: "postgres", ..Stats::default() };
        for lanes in &self.inner.shards {
            stats.disk_bytes += lanes.store.disk_bytes.load(Ordering::Relaxed);
            stats.commits += lanes.store.commits.load(Ordering::Relaxed);
            stats.keys += lanes.store.keys.load(Ordering::Relaxed);
            let store = lanes.store.clone();
            self.inner.tasks.spawn(async move { store.measure().await });
        }
        stats.syncs = stats.commits;
        stats
    }

    fn close(&self) -> Answer<'_, ()> {
        let inner = self.inner.clone();
        on(&self.inner.tasks, async move {
            inner.shards[0].store.check_open()?;
            for lanes in &inner.shards {
                for writer in &lanes.writers {
                    let (reply, done) = oneshot::channel();
                    if writer.send(Job::Close(reply)).is_ok() {
                        // A lane that has ended has nothing left to do.
                        drop(done.await);
                    }
                }
                lanes.store.close();
            }
            Ok(())
        })
    }
}
