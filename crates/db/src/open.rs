//! Opening a database, keeping its clock, closing it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use model::clock::{Clock, Timestamp};
use model::resource::{ContainerRid, DatabaseRid, Etag};
use model::ttl::TtlState;
use serde_json::Value;
use storage::{Batch, Direction, Engine, Family, Snapshot};
use tokio::sync::oneshot;

use crate::catalog::{Catalog, Database, Entry, Numbers, encode_container};
use crate::container::{Container, Runtime};
use crate::feed::FeedEntry;
use crate::keys::{Key, Meta, PartitionId, catalog_range, ordinal_of, partition_range};
use crate::names::Names;
use crate::partition::Head;
use crate::purge::Alarm;
use crate::ranges::{Partitions, Span};
use crate::resources::Resource;
use crate::throughput::Offer;
use crate::writer::Op;
use crate::{Db, Error, Options, Result, Settings};

/// The version of what [`crate::keys`] and [`crate::record`] describe.
const FORMAT: u64 = 1;

impl Db {
    /// Opens the database that `engine` holds, or begins a new one. Checks that heads, feed and items agree.
    pub async fn open(
        engine: Arc<dyn Engine>,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Result<Self> {
        let shared = match engine.pulse(Family::Catalog, &Key::Meta(Meta::Clock).encode()) {
            Some(pulse) => {
                clock.raise_to(Timestamp(pulse.await?.now_secs));
                true
            }
            None => false,
        };
        let snapshot = engine.snapshot();
        crate::copy::check_finished(&*snapshot).await?;
        match number_at(&*snapshot, Meta::Format).await? {
            None => match begin(&*engine, &*clock).await {
                // Another server was faster.
                Err(Error::Contention) if shared => {}
                begun => begun?,
            },
            Some(FORMAT) => {}
            Some(other) => {
                return Err(Error::Storage(format!(
                    "this data was written by a newer version of Sidereal (format {other}; this one knows {FORMAT}): \
                     use that version, or another data directory"
                )));
            }
        }
        let snapshot = engine.snapshot();
        let stored = number_at(&*snapshot, Meta::Clock).await?.unwrap_or_default();
        clock.raise_to(Timestamp(stored));
        let db = Self {
            engine,
            clock,
            options,
            shared,
            server: random_number().max(1),
            catalog: Arc::new(ArcSwap::from_pointee(Catalog::default())),
            names: Arc::new(Names::new()),
            catalog_lock: Arc::default(),
            retired: Arc::default(),
            alarm: Arc::new(Alarm::default()),
            tasks: tokio::runtime::Handle::current(),
            script_permits: Arc::new(tokio::sync::Semaphore::new(crate::scripting::running_max())),
            functions: None,
            now_seen: Arc::new(AtomicU64::new(stored)),
            now_stored: Arc::new(AtomicU64::new(stored)),
            traffic: Arc::default(),
        };
        let catalog = db.load_catalog(&*snapshot, &Catalog::default()).await?;
        db.catalog.store(Arc::new(catalog));
        db.finish_deletions().await?;
        Ok(db)
    }

    /// The second it is. Never decreases.
    pub fn now(&self) -> Timestamp {
        let now = self.clock.now();
        if self.now_seen.load(Ordering::Relaxed) < now.0 {
            self.now_seen.fetch_max(now.0, Ordering::AcqRel);
        }
        now
    }

    /// The clock, for latencies and the virtual clock's controls.
    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Counters of what clients have asked, through any API.
    pub fn traffic(&self) -> &crate::traffic::Traffic {
        &self.traffic
    }

    /// The engine's numbers.
    pub fn engine_stats(&self) -> storage::Stats {
        self.engine.stats()
    }

    /// Stores the last `now` that was handed out, so that a later process never hands out less (R13).
    pub async fn keep_clock(&self) -> Result<()> {
        let seen = self.now_seen.load(Ordering::Acquire);
        if seen > self.now_stored.load(Ordering::Acquire) {
            let mut batch = Batch::default();
            let key = Key::Meta(Meta::Clock);
            if self.shared {
                let stored = self.engine.get(key.family(), &key.encode()).await?;
                let secs = stored.as_deref().and_then(|bytes| bytes.try_into().ok());
                if secs.map_or(0, u64::from_le_bytes) >= seen {
                    return Ok(());
                }
                batch.check(key.family(), key.encode(), stored);
            }
            batch.put(key.family(), key.encode(), seen.to_le_bytes().to_vec());
            match self.engine.commit(batch).await {
                // Another server has stored its own, which is as good.
                Err(storage::Error::Conflict) if self.shared => return Ok(()),
                committed => committed?,
            }
            self.now_stored.fetch_max(seen, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Finishes what is queued, stores the clock, flushes, and refuses everything from then on.
    pub async fn close(&self) -> Result<()> {
        let catalog = self.catalog.load_full();
        for partition in catalog.containers().flat_map(|container| &container.partitions.all) {
            let (reply, closed) = oneshot::channel();
            // A writer that is already closed needs no closing.
            if partition.submit_later(Op::Close(reply)).await.is_ok() {
                closed.await.map_err(|_| Error::Stopping)?;
            }
        }
        match self.keep_clock().await {
            // It is frozen, or gone: that is no reason not to stop. Heads have the time, too.
            Err(Error::Unavailable(_)) => {}
            kept => kept?,
        }
        Ok(self.engine.close().await?)
    }

    /// What the store holds. Containers of `known` that are still there keep their writers, and are the same if nothing about them has changed.
    pub(crate) async fn load_catalog(
        &self,
        snapshot: &dyn Snapshot,
        known: &Catalog,
    ) -> Result<Catalog> {
        let numbers = snapshot.get(Family::Catalog, &Key::Meta(Meta::Numbers).encode()).await?;
        let numbers =
            numbers.ok_or_else(|| corrupt("the catalog's numbers", "they are missing"))?;
        let mut catalog = Catalog { numbers: Numbers::decode(&numbers)?, ..Catalog::default() };
        for (number, row) in rows(snapshot, 1).await? {
            let database = decode_database(number, &row)
                .ok_or_else(|| corrupt("a database", "it cannot be read"))?;
            let entry = Entry { database: Arc::new(database), containers: HashMap::new() };
            catalog.databases.insert(entry.database.id.clone(), entry);
        }
        for (number, row) in rows(snapshot, 3).await? {
            let offer = Offer::decode(number, &row)
                .ok_or_else(|| corrupt("an offer", "it cannot be read"))?;
            catalog.offers.insert(number, Arc::new(offer));
        }
        for (number, row) in rows(snapshot, 6).await? {
            let resource = Resource::decode(number, &row)
                .ok_or_else(|| corrupt("a user, permission, key or script", "it cannot be read"))?;
            let place = catalog.resources.entry((resource.owner, resource.kind)).or_default();
            place.insert(resource.id.clone(), Arc::new(resource));
        }
        for (number, row) in rows(snapshot, 2).await? {
            let known = known.containers().find(|container| container.rid.number == number);
            let container = match known {
                Some(known) if encode_container(known, known.ttl()) == row => known.clone(),
                _ => {
                    let loaded = self.load_container(snapshot, &catalog, (number, &row), known);
                    Arc::new(loaded.await?)
                }
            };
            let entry = catalog.databases.get_mut(&container.database_id);
            let entry = entry.ok_or_else(|| corrupt("a container", "its database is missing"))?;
            entry.containers.insert(container.id().to_owned(), container);
        }
        Ok(catalog)
    }

    async fn load_container(
        &self,
        snapshot: &dyn Snapshot,
        catalog: &Catalog,
        (number, row): (u32, &Value),
        known: Option<&Arc<Container>>,
    ) -> Result<Container> {
        let unreadable = || corrupt("a container", "its definition cannot be read");
        let field = |name: &str| row[name].as_u64().ok_or_else(unreadable);
        let database = DatabaseRid(field("database")? as u32);
        let owner = catalog.databases.values().find(|entry| entry.database.rid == database);
        let owner = owner.ok_or_else(|| corrupt("a container", "its database is missing"))?;
        let mut settings = Settings::stored(&row["settings"], self.options.layouts)?;
        settings.resume_rebuild(&row["indexing"])?;
        let settings = Arc::new(settings);
        let ts = Timestamp(field("ts")?);
        let ttl = TtlState {
            default: settings.default_ttl,
            inherited_mark: row["inheritedMark"].as_u64().map(Timestamp),
            own_mark: row["ownMark"].as_u64().map(Timestamp),
        };
        let rid = ContainerRid { database, number };
        let offer = catalog.offer_of(&rid.to_string());
        let (runtime, shared) = match known {
            Some(known) => {
                known.runtime.ttl.set(ttl);
                known.runtime.set_settings(settings.clone());
                (known.runtime.clone(), known.runtime.shared.clone())
            }
            None => {
                let shared = offer.is_none().then(|| self.shared_bucket(catalog, database));
                let created = Timestamp(field("created")?);
                let runtime = Runtime::new(rid, created, ttl, settings.clone(), shared.clone());
                (Arc::new(runtime), shared)
            }
        };
        let spans = Span::decode_all(&row["partitions"]).ok_or_else(unreadable)?;
        let (parts, mut all) = (spans.len(), Vec::new());
        for span in spans {
            let id = PartitionId { container: number, partition: span.number };
            let running = known.into_iter().flat_map(|known| &known.partitions.all);
            let mut running = running.filter(|partition| !partition.is_closed());
            if let Some(partition) = running.find(|partition| partition.id == id) {
                all.push(partition.clone());
                continue;
            }
            let head = match load_head(snapshot, id).await {
                // Its writer reads it as soon as the part of the store is there that has it.
                Err(Error::Unavailable(_)) if self.shared => Head::default(),
                head => head?,
            };
            self.clock.raise_to(head.now);
            let bucket = shared.clone();
            let bucket =
                bucket.unwrap_or_else(|| self.new_bucket(offer.map(|offer| &**offer), parts));
            all.push(runtime.start(self, span, head, bucket));
        }
        let gone = match &row["partitionsGone"] {
            Value::Null => Vec::new(),
            gone => Span::decode_all(gone).ok_or_else(unreadable)?,
        };
        let version = row["partitionsVersion"].as_u64().unwrap_or_default() as u32;
        let partitions = Arc::new(Partitions { all, gone, version });
        let stamp = (Etag { lsn: field("lsn")?, seq: 0, ts }, ts);
        Ok(Container::new(&owner.database.id, settings, stamp, runtime, partitions))
    }
}

/// Writes the first rows of a new store. Numbers begin at the time, so that a store made anew does not give out the rids of the one
/// before, which clients may still remember.
async fn begin(engine: &dyn Engine, clock: &dyn Clock) -> Result<()> {
    let first = clock.now().0 as u32 & 0x3FFF_FFFF;
    let numbers = Numbers { database: first, container: first, offer: 0, lsn: 0, pending: 0 };
    let mut batch = Batch::default();
    for (meta, value) in
        [(Meta::Format, FORMAT.to_le_bytes().to_vec()), (Meta::Numbers, numbers.encode())]
    {
        let key = Key::Meta(meta);
        batch.check(key.family(), key.encode(), None);
        batch.put(key.family(), key.encode(), value);
    }
    Ok(engine.commit(batch).await?)
}

/// A partition's head, after a look at whether the store holds what it says: a journal that was cut or corrupted must not pass
/// for a smaller database.
async fn load_head(snapshot: &dyn Snapshot, id: PartitionId) -> Result<Head> {
    let head = snapshot.get(Family::Catalog, &Key::Head(id).encode()).await?;
    let head = Head::decode(&head.ok_or_else(|| corrupt("a partition", "its head is missing"))?)?;
    let last = |family| snapshot.scan(family, partition_range(id), Direction::Backward, 1);
    if let Some((key, value)) = last(Family::Feed).await?.first() {
        let entry = FeedEntry::decode(key, value)?;
        let item = Key::Item { partition: id, ordinal: entry.ordinal }.encode();
        if entry.lsn > head.lsn || snapshot.get(Family::Item, &item).await?.is_none() {
            return Err(corrupt(
                "a partition",
                "its head, feed and items disagree; run `sidereal check`",
            ));
        }
    }
    if let Some((key, _)) = last(Family::Item).await?.first()
        && ordinal_of(key)? > head.ordinal
    {
        return Err(corrupt(
            "a partition",
            "it holds items that its head does not know; run `sidereal check`",
        ));
    }
    Ok(head)
}

/// The catalog's rows of one kind, with their numbers.
async fn rows(snapshot: &dyn Snapshot, kind: u8) -> Result<Vec<(u32, Value)>> {
    const PAGE: usize = 1_000;
    let (mut all, mut range) = (Vec::new(), catalog_range(kind));
    loop {
        let pairs = snapshot.scan(Family::Catalog, range.clone(), Direction::Forward, PAGE).await?;
        for (key, value) in &pairs {
            let number = key.last_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes));
            let number = number.ok_or_else(|| corrupt("the catalog", "a key is cut short"))?;
            let value = serde_json::from_slice(value)
                .map_err(|_| corrupt("the catalog", "a row is not JSON"))?;
            all.push((number, value));
        }
        match pairs.last() {
            Some((last, _)) if pairs.len() == PAGE => range.start = crate::scan::successor(last),
            _ => return Ok(all),
        }
    }
}

fn random_number() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

async fn number_at(snapshot: &dyn Snapshot, meta: Meta) -> Result<Option<u64>> {
    let value: Option<Bytes> = snapshot.get(Family::Catalog, &Key::Meta(meta).encode()).await?;
    let read = |bytes: Bytes| bytes[..].try_into().map(u64::from_le_bytes);
    value
        .map(read)
        .transpose()
        .map_err(|_| corrupt("the store's first rows", "a number has another length"))
}

fn decode_database(number: u32, row: &Value) -> Option<Database> {
    let ts = Timestamp(row["ts"].as_u64()?);
    let etag = Etag { lsn: row["lsn"].as_u64()?, seq: 0, ts };
    Some(Database { rid: DatabaseRid(number), id: row["id"].as_str()?.to_owned(), etag, ts })
}

fn corrupt(what: &str, why: &str) -> Error {
    Error::Storage(format!("corrupt data: {what}: {why}"))
}
