//! Several servers on one store.
//!
//! Each server has the catalog in memory and a writer for each partition, as if it were alone. What makes them one database:
//!
//! - **Every request asks the store first** ([`Db::refresh`]): one small read, shared by all requests that come at the same time, gives the
//!   number of the catalog's last change and the store's time. If the catalog has changed, it is read again before the request goes
//!   on. So a change that one server has acknowledged is obeyed by every server from the next request on. A point read asks this and for its
//!   item in one go, and begins again if the catalog that it went by is not the store's ([`Db::read_at_once`]).
//! - **`now` is the store's time** as last heard ([`model::clock::StoreClock`]), never a server's: servers whose clocks differ agree on what has expired.
//! - **A round checks the partition's head, and its epoch.** A commit of another server changes the head; a changed rule changes the epoch; either makes
//!   the round fail as a whole, and its writes are decided again on what there is. A writer reads the epoch first and the catalog then, so that
//!   it never has an epoch of a rule that it does not know.
//! - **A container is changed in three steps.** First the change is announced in the row that every request reads: from then on all servers wait
//!   for it. Then the epochs of its partitions are changed: from then on no other server's round is committed. Then the time is taken, at which the
//!   old rule ends, and the new rule is written. So nobody can have seen an item expire by the old rule that lives on by the new (R13), and what is
//!   settled in between stays so. A server that dies on the way is not waited for longer than [`PENDING_SECS_MAX`].
//! - **A partition that is being split has an epoch that nobody can use** ([`Epoch::until`]): writers wait, and go on with the children.
//! - **The purge of a partition is leased** to one server at a time ([`Db::lease`]). Two would be harmless, because rounds check the head.
//!
//! On a store of its own a server does none of this: there is no pulse ([`storage::Engine::pulse`]), and a request begins with what it has.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use model::clock::Timestamp;
use model::resource::ContainerRid;
use storage::{Batch, Family, Pulse, Snapshot};
use tokio::sync::{MutexGuard, oneshot};

use crate::catalog::Numbers;
use crate::keys::PartitionId;
use crate::keys::{Key, Meta};
use crate::partition::{Head, Partition};
use crate::writer::{Op, Outcome, Transaction};
use crate::{Container, Db, Error, Result};

/// How long an announced change is waited for.
const PENDING_SECS_MAX: u64 = 10;

/// Between two looks at whether it has come.
const PENDING_WAIT: Duration = Duration::from_millis(3);

/// How long a server may purge a partition before another may.
const LEASE_SECS: u64 = 15;

/// Which catalog a request goes by that has not asked the store yet.
#[derive(Clone, Copy, Debug)]
pub struct Seen(Numbers);

/// A database as its writers know it: they must not keep it alive.
#[derive(Clone)]
pub(crate) struct WeakDb {
    db: Db,
    catalog: std::sync::Weak<arc_swap::ArcSwap<crate::catalog::Catalog>>,
}

impl WeakDb {
    /// The database, while somebody has it.
    fn upgrade(&self) -> Option<Db> {
        let catalog = self.catalog.upgrade()?;
        Some(Db { catalog, ..self.db.clone() })
    }

    /// The number of this server.
    pub fn server(&self) -> u64 {
        self.db.server
    }

    /// Catches up with the catalog, for a writer, and says whether it could. One that is being changed by this very server is left alone: its
    /// change may be waiting for the writer.
    async fn refresh(&self) -> Result<bool> {
        let Some(db) = self.upgrade() else { return Ok(true) };
        match db.catalog_lock.try_lock() {
            Ok(guard) => db.catch_up(&guard).await.map(|()| true),
            Err(_) => Ok(db.pulse().await? == db.catalog.load().numbers),
        }
    }

    /// Has a writer know by which rule it may make a round. To be asked when a round has failed, or was never made.
    pub async fn learn(&self, rid: ContainerRid, partition: &Arc<Partition>) -> Result<Learned> {
        let key = Key::Epoch(partition.id).encode();
        let stored = Epoch::decode(self.db.engine.get(Family::Catalog, &key).await?);
        if partition.epoch().as_ref() == Some(&stored) {
            return Ok(Learned::Ready);
        }
        partition.set_epoch(None);
        let caught_up = self.refresh().await?;
        let Some(db) = self.upgrade() else { return Ok(Learned::Gone) };
        let current = db.container_with(rid);
        let mut all = current.iter().flat_map(|container| &container.partitions.all);
        if caught_up && !all.any(|current| Arc::ptr_eq(current, partition)) {
            return Ok(Learned::Gone);
        }
        match stored.until {
            Some(until) if until < db.now() => {
                db.lift_fence(partition.id, &stored).await?;
                Ok(Learned::Fenced)
            }
            Some(_) => Ok(Learned::Fenced),
            None if caught_up => {
                partition.set_epoch(Some(stored));
                Ok(Learned::Ready)
            }
            None => Ok(Learned::Later),
        }
    }

    /// Hands writes on whose partition is not there any more: to its children, if it was split.
    pub fn redirect(&self, rid: ContainerRid, writes: Vec<(Transaction, Answer)>) {
        let Some(db) = self.upgrade() else { return };
        let tasks = db.tasks.clone();
        tasks.spawn(async move {
            for (transaction, reply) in writes {
                // One that finds no place is told that its container is gone, as it is.
                if let Some(container) = db.container_with(rid) {
                    drop(db.submit_again(&container, Op::Write(transaction, reply)).await);
                }
            }
        });
    }
}

/// Who waits for a transaction.
type Answer = oneshot::Sender<Vec<Outcome>>;

/// What a writer has learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Learned {
    /// It may make rounds.
    Ready,
    /// Not yet: a change is on its way.
    Later,
    /// Not yet: its partition is being split.
    Fenced,
    /// Its partition is not there any more.
    Gone,
}

/// What a round checks beside the head: by which rule it is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Epoch {
    /// The change of the catalog that last touched the rule; nothing in data that came from elsewhere.
    change: Option<u64>,
    /// While the partition is being split: until when this is waited for. No round is made by such an epoch.
    pub until: Option<Timestamp>,
}

impl Epoch {
    pub fn of(change: u64) -> Self {
        Self { change: Some(change), until: None }
    }

    /// The same while the partition is split.
    pub fn fenced(&self, until: Timestamp) -> Self {
        Self { change: Some(self.change.unwrap_or_default()), until: Some(until) }
    }

    /// The row; nothing where there is none.
    pub fn stored(&self) -> Option<Bytes> {
        self.change.map(|_| self.encode())
    }

    pub fn encode(&self) -> Bytes {
        let until = self.until.map(|until| until.0.to_le_bytes());
        let change = self.change.unwrap_or_default().to_le_bytes();
        [&change[..], until.as_ref().map_or(&[], |until| &until[..])].concat().into()
    }

    pub fn decode(row: Option<Bytes>) -> Self {
        let field = |i: usize| {
            let bytes = row.as_deref()?.get(i * 8..i * 8 + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        Self { change: field(0), until: field(1).map(Timestamp) }
    }
}

impl Db {
    /// Whether other servers may use the store.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    pub(crate) fn downgrade(&self) -> Option<WeakDb> {
        let catalog = Arc::downgrade(&self.catalog);
        let nothing = crate::catalog::Catalog::default();
        let catalog_of_none = Arc::new(arc_swap::ArcSwap::from_pointee(nothing));
        let alone = Db { catalog: catalog_of_none, ..self.clone() };
        self.shared.then_some(WeakDb { db: alone, catalog })
    }

    /// Has this server know all that any server has acknowledged, and the store's time. To be called at the beginning of every request where
    /// [`Db::is_shared`].
    pub async fn refresh(&self) -> Result<()> {
        if !self.shared {
            return Ok(());
        }
        if self.settled().await? == self.catalog.load().numbers {
            return Ok(());
        }
        let guard = self.catalog_lock.lock().await;
        self.catch_up(&guard).await
    }

    /// The catalog that this server has, for a request that will ask later whether it is the store's ([`Db::read_at_once`]). To be called
    /// before anything is looked up in it.
    pub fn seen(&self) -> Seen {
        Seen(self.catalog.load().numbers)
    }

    /// The store's time, and a value of that moment or a later one; `None` if the catalog is not the one that was seen.
    pub(crate) async fn get_if_current(
        &self,
        seen: Seen,
        family: Family,
        key: &[u8],
    ) -> Result<Option<(Timestamp, Option<Bytes>)>> {
        // Not what others have heard while this request waits: the value may be older than that.
        let heard = self.now();
        let numbers = Key::Meta(Meta::Numbers).encode();
        let asked = self.engine.pulse_and_get((Family::Catalog, &numbers), (family, key));
        let (pulse, value) = asked.ok_or(Error::Stopping)?.await?;
        let now = heard.max(Timestamp(pulse.now_secs));
        Ok((self.hear(pulse)? == seen.0).then_some((now, value)))
    }

    /// The numbers in the store, and the store's time.
    pub(crate) async fn pulse(&self) -> Result<Numbers> {
        let key = Key::Meta(Meta::Numbers).encode();
        self.hear(self.engine.pulse(Family::Catalog, &key).ok_or(Error::Stopping)?.await?)
    }

    fn hear(&self, pulse: Pulse) -> Result<Numbers> {
        self.clock.raise_to(Timestamp(pulse.now_secs));
        let missing = || storage::Error::Corrupt("the catalog's numbers are missing".into());
        Ok(Numbers::decode(&pulse.value.ok_or_else(missing)?)?)
    }

    /// The same, when no change is announced any more.
    async fn settled(&self) -> Result<Numbers> {
        loop {
            let numbers = self.pulse().await?;
            match numbers.pending {
                0 => return Ok(numbers),
                since if self.now().since(Timestamp(since)) > PENDING_SECS_MAX => {
                    self.withdraw(numbers).await;
                }
                _ => tokio::time::sleep(PENDING_WAIT).await,
            }
        }
    }

    /// Takes back the announcement of a change that did not come. If it has come after all, or somebody was faster, nothing happens.
    pub(crate) async fn withdraw(&self, announced: Numbers) {
        let key = Key::Meta(Meta::Numbers).encode();
        let without = Numbers { pending: 0, lsn: announced.lsn + 1, ..announced };
        let mut batch = Batch::default();
        batch.check(Family::Catalog, key.clone(), Some(announced.encode().into()));
        batch.put(Family::Catalog, key, without.encode());
        // Whoever waits will try it again.
        drop(self.engine.commit(batch).await);
    }

    /// Reads the catalog again if it is not the store's. The lock keeps our own changes away meanwhile.
    pub(crate) async fn catch_up(&self, _guard: &MutexGuard<'_, ()>) -> Result<()> {
        if self.settled().await? == self.catalog.load().numbers {
            return Ok(());
        }
        let old = self.catalog.load_full();
        let new = loop {
            let snapshot = self.engine.snapshot();
            match self.load_catalog(&*snapshot, &old).await {
                // Read half before and half after a change: parts of a store are read one after the other.
                Err(Error::Storage(_)) if self.catalog_changed(&*snapshot).await? => {}
                loaded => break Arc::new(loaded?),
            }
        };
        if new.numbers.pending > 0 {
            // Announced since: what it ends is still in force. The next request waits.
            let numbers = Numbers { pending: 0, lsn: 0, ..new.numbers };
            let unfinished = crate::catalog::Catalog { numbers, ..(*new).clone() };
            self.catalog.store(Arc::new(unfinished));
        } else {
            self.catalog.store(new.clone());
        }
        for (number, offer) in &new.offers {
            if old.offers.get(number).is_none_or(|before| before.etag != offer.etag) {
                self.apply_offer(offer);
            }
        }
        for container in new.containers() {
            let before = old.containers().find(|before| before.rid == container.rid);
            let version = |container: &Arc<Container>| container.partitions.version;
            if before.is_some_and(|before| version(before) != version(container)) {
                self.spread_offer(container);
            }
        }
        let kept: Vec<_> =
            new.containers().flat_map(|container| &container.partitions.all).collect();
        for partition in old.containers().flat_map(|container| &container.partitions.all) {
            if !kept.iter().any(|kept| Arc::ptr_eq(kept, partition)) {
                self.close_writer(partition.clone());
            }
        }
        self.alarm.wake();
        Ok(())
    }

    /// Whether the catalog is another than that of a snapshot.
    async fn catalog_changed(&self, snapshot: &dyn Snapshot) -> Result<bool> {
        let key = Key::Meta(Meta::Numbers).encode();
        let read = snapshot.get(Family::Catalog, &key).await?;
        Ok(read != self.engine.get(Family::Catalog, &key).await?)
    }

    /// A container by its number.
    pub(crate) fn container_with(&self, rid: ContainerRid) -> Option<Arc<Container>> {
        self.catalog.load().containers().find(|container| container.rid == rid).cloned()
    }

    /// Gives a partition back to its writers that nobody splits any more. Whoever is about to put its children in its place after all is refused, because he
    /// checks the fence.
    pub(crate) async fn lift_fence(&self, partition: PartitionId, fence: &Epoch) -> Result<()> {
        let key = Key::Epoch(partition).encode();
        let without = Epoch { until: None, ..fence.clone() };
        let mut batch = Batch::default();
        batch.check(Family::Catalog, key.clone(), fence.stored());
        batch.put(Family::Catalog, key, without.encode());
        match self.engine.commit(batch).await {
            Ok(()) | Err(storage::Error::Conflict) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Stops the writer of a partition that another server has removed. What waits for it goes to its children, if it has any.
    fn close_writer(&self, partition: Arc<Partition>) {
        self.tasks.spawn(async move {
            let (reply, closed) = oneshot::channel();
            // A writer that is already closed needs no closing.
            if partition.submit_later(Op::Close(reply)).await.is_ok() {
                drop(closed.await);
            }
        });
    }

    /// Takes the heads that other servers have made, for requests that go by them.
    pub(crate) async fn look_at_heads(
        &self,
        partitions: impl Iterator<Item = Arc<Partition>>,
    ) -> Result<()> {
        if !self.shared {
            return Ok(());
        }
        let partitions: Vec<_> = partitions.collect();
        let key = |partition: &Arc<Partition>| Key::Head(partition.id).encode();
        let keys = partitions.iter().map(key).collect();
        let heads = self.engine.latest();
        for (partition, head) in partitions.iter().zip(heads.get_many(Family::Catalog, keys).await?)
        {
            if let Some(head) = head {
                partition.take_head(Head::decode(&head)?);
            }
        }
        Ok(())
    }

    /// Whether this server may purge a partition: it holds the lease, or could take it.
    pub(crate) async fn lease(&self, partition: &Partition) -> Result<bool> {
        if !self.shared {
            return Ok(true);
        }
        let (key, now) = (Key::Lease(partition.id).encode(), self.now());
        let row = self.engine.get(Family::Catalog, &key).await?;
        let held = row.as_deref().and_then(Lease::decode);
        let held = held.unwrap_or_default();
        if held.until > now.0 && held.server != self.server {
            return Ok(false);
        }
        // Renewed in good time, not with every round.
        if held.server == self.server && held.until > now.0 + LEASE_SECS / 2 {
            return Ok(true);
        }
        let lease = Lease { server: self.server, epoch: held.epoch + 1, until: now.0 + LEASE_SECS };
        let mut batch = Batch::default();
        batch.check(Family::Catalog, key.clone(), row);
        batch.put(Family::Catalog, key, lease.encode());
        match self.engine.commit(batch).await {
            Ok(()) => Ok(true),
            Err(storage::Error::Conflict) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Who may purge a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lease {
    server: u64,
    /// Counts how often it was taken or renewed.
    epoch: u64,
    until: u64,
}

impl Lease {
    fn encode(&self) -> Bytes {
        let fields = [self.server, self.epoch, self.until];
        fields.iter().flat_map(|field| field.to_le_bytes()).collect::<Vec<_>>().into()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let field = |i: usize| {
            let bytes = bytes.get(i * 8..i * 8 + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        Some(Self { server: field(0)?, epoch: field(1)?, until: field(2)? })
    }
}
