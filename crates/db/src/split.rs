//! Splitting a partition: two in the place of one, and nothing lost or repeated.
//!
//! ```text
//!  1 the children's numbers are noted as abandoned       a crash from here on: the parent is all there is, the purge clears the rest
//!  2 the parent's writer stops; what was queued waits    reads go on
//!  3 everything is copied, each key to its child
//!  4 one batch: the children are the container's, the parent is abandoned
//!  5 what has waited goes to the children                a crash from here on: the purge clears the parent
//! ```
//!
//! Items keep their numbers, changes keep theirs, and the children go on counting where the parent stopped. So a rid, an etag, a session
//! token, a continuation of a query or of the feed that the parent has given is good for its children ([`crate::ranges`]). Requests that began
//! before the split read the parent to their end: its data goes when nobody holds it any more.
//!
//! **Where servers share the store** there is no one writer to be stopped. The parent's epoch is fenced instead ([`crate::servers::Epoch`]), by which all servers'
//! rounds fail until the children are there; then their writers hand on what they hold. Whoever splits renews the fence, and the notes of the
//! children, as long as it lives. When it does not, the writers lift the fence, and the purge clears what it has left. The parent's data is kept
//! for [`KEPT_SECS`], longer than any request takes.

use std::sync::Arc;

use bytes::Bytes;
use model::clock::Timestamp;
use serde_json::Value;
use storage::{Batch, Direction, Engine, Family, Pair, Snapshot};
use tokio::sync::oneshot;

use crate::catalog::encode_container;
use crate::history::{Version, entry_bytes};
use crate::keys::{
    Key, PartitionId, catalog_range, decode_partition_key, history_from, is_unique, log_of,
    ordinal_of, partition_range,
};
use crate::partition::{Head, Partition};
use crate::ranges::{Partitions, Span};
use crate::record::Record;
use crate::scan::successor;
use crate::servers::Epoch;
use crate::writer::{Op, ordinal_of_value};
use crate::{Container, Db, Error, Result, Settings};

/// How long a fence stands unless it is renewed.
const FENCE_SECS: u64 = 15;

/// How long the data of a parent is kept where servers share the store: none of them knows who still reads it.
const KEPT_SECS: u64 = 300;

/// How often the catalog may be changed by others before a split gives up.
const COMMITS_MAX: u32 = 20;

/// Keys that are copied, or removed, in one batch.
const BATCH_KEYS_MAX: usize = 2_000;

/// Records are large: fewer at a time.
const BATCH_RECORDS_MAX: usize = 256;

impl Db {
    /// Puts two partitions in the place of one; gives their numbers.
    pub async fn split(&self, database: &str, container: &str, number: u32) -> Result<[u32; 2]> {
        let mut change = self.change_catalog().await?;
        let old = self.container(database, container)?;
        let plan = self.plan_split(&old, number).await?;
        if self.is_shared() {
            drop(change);
            return self.split_shared(&old, plan).await;
        }
        let Plan { parent, ids, .. } = &plan;
        let (parent, ids) = (parent.clone(), *ids);
        self.abandon(&ids, Bytes::new()).await?;

        let (reply, stopped) = oneshot::channel();
        parent.submit_later(Op::Retire(reply)).await?;
        let waiting = stopped.await.map_err(|_| Error::Stopping)?;
        let head = parent.head();
        let spans = plan.spans(&old, head);
        let copy = plan.copy(self, &old);
        let made = async {
            let heads = copy.run(head, None).await?;
            let (new, children) = self.with_children(&old, &parent, spans, heads);
            for (id, head) in ids.iter().zip(heads) {
                change.put_bytes(Key::Head(*id), head.encode().to_vec());
                change.delete(Key::Abandoned(*id));
            }
            change.delete(Key::Head(parent.id));
            // The children's index is rebuilt from their first item on, if it has to be.
            change.delete(Key::Reindex(parent.id));
            change.put_bytes(Key::Abandoned(parent.id), Vec::new());
            change.put(Key::Container(old.rid.number), &encode_container(&new, old.ttl()));
            change.show(&new)?;
            change.commit().await?;
            Ok(children)
        }
        .await;
        match made {
            Ok(children) => {
                self.retired
                    .lock()
                    .expect("no panic under this lock")
                    .push(Arc::downgrade(&parent));
                for op in waiting {
                    let place = place_of(&old.settings, &op, &children);
                    // A queue that is full by now is one that its client would have met as well.
                    drop(children[place].submit_later(op).await);
                }
                self.spread_offer(&old);
                self.alarm.wake();
                Ok(ids.map(|id| id.partition))
            }
            Err(error) => {
                self.reinstate(&old, &parent, waiting).await;
                Err(error)
            }
        }
    }

    /// What a split is to make, if it can be made.
    async fn plan_split(&self, old: &Container, number: u32) -> Result<Plan> {
        let parent = old.partitions.numbered(number)?.clone();
        if old.settings.layout.is_some() {
            return Err(Error::Invalid("A MongoDB collection has one partition.".into()));
        }
        let Span { min, max, .. } = &parent.span;
        let middle = old.settings.partition_key.middle(min, max).ok_or_else(|| {
            Error::Invalid(
                "The partition is too small to be split: it has no hash in its middle.".into(),
            )
        })?;
        // What a split has left that came to nothing may be on its way out: its numbers are not used again.
        let left = self.abandoned().await?.into_iter().map(|(id, _)| id);
        let left = left.filter(|id| id.container == parent.id.container);
        let next = left.map(|id| id.partition + 1).max().unwrap_or_default();
        let next = next.max(old.partitions.next_number());
        let ids = [next, next + 1].map(|partition| PartitionId { partition, ..parent.id });
        Ok(Plan { parent, ids, middle })
    }

    /// The same where servers share the store.
    async fn split_shared(&self, old: &Arc<Container>, plan: Plan) -> Result<[u32; 2]> {
        let mut fence = Fence::put(self, &plan).await?;
        let made = self.split_fenced(old, &plan, &mut fence).await;
        if made.is_err() {
            fence.lift().await;
        }
        made
    }

    async fn split_fenced(
        &self,
        old: &Arc<Container>,
        plan: &Plan,
        fence: &mut Fence<'_>,
    ) -> Result<[u32; 2]> {
        let (parent, ids) = (plan.parent.id, plan.ids);
        let head = Key::Head(parent);
        let head = self.engine.get(head.family(), &head.encode()).await?;
        let head = Head::decode(&head.ok_or(Error::PartitionGone)?)?;
        let heads = plan.copy(self, old).run(head, Some(fence)).await?;
        fence.renew().await?;
        for _ in 0..COMMITS_MAX {
            let mut change = self.change_catalog().await?;
            let current = self.current(old).ok_or(Error::OwnerNotFound)?;
            let unchanged =
                current.etag == old.etag && current.partitions.numbered(parent.partition).is_ok();
            if !unchanged {
                return Err(Error::Contention);
            }
            let epoch = Epoch::of(change.catalog.numbers.lsn + 1);
            for (id, head) in ids.iter().zip(heads) {
                change.put_bytes(Key::Head(*id), head.encode().to_vec());
                change.put_bytes(Key::Epoch(*id), epoch.encode().to_vec());
                change.check(Key::Abandoned(*id), Some(fence.note()));
                change.delete(Key::Abandoned(*id));
            }
            change.check(Key::Epoch(parent), fence.epoch.stored());
            let kept = self.now().plus(KEPT_SECS);
            change.put_bytes(Key::Abandoned(parent), kept.0.to_le_bytes().to_vec());
            let mut row = encode_container(&current, current.ttl());
            plan.write(&mut row, &current, head);
            change.put(Key::Container(current.rid.number), &row);
            match change.commit_and_load().await {
                // Another server has changed something else.
                Err(Error::Contention) => {}
                Err(error) => return Err(error),
                Ok(()) => return Ok(ids.map(|id| id.partition)),
            }
        }
        Err(Error::Contention)
    }

    /// Partitions whose data is to be removed, and the notes of it.
    async fn abandoned(&self) -> Result<Vec<(PartitionId, Pair)>> {
        let snapshot = self.engine.snapshot();
        let rows = snapshot.scan(Family::Catalog, catalog_range(9), Direction::Forward, usize::MAX);
        let mut all = Vec::new();
        for (row, note) in rows.await? {
            let number = |at: usize| row.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
            let (Some(container), Some(partition)) = (number(1), number(5)) else {
                return Err(Error::Storage(
                    "corrupt data: the key of an abandoned partition".into(),
                ));
            };
            all.push((PartitionId { container, partition }, (row, note)));
        }
        Ok(all)
    }

    /// The container with the children in the parent's place.
    fn with_children(
        &self,
        old: &Container,
        parent: &Arc<Partition>,
        spans: [Span; 2],
        heads: [Head; 2],
    ) -> (Arc<Container>, [Arc<Partition>; 2]) {
        let parts = old.partitions.all.len() + 1;
        let children = [0, 1].map(|half: usize| {
            let bucket = self.bucket_of(old, parts);
            old.runtime.start(self, spans[half].clone(), heads[half], bucket)
        });
        let mut all = Vec::with_capacity(parts);
        for partition in &old.partitions.all {
            match Arc::ptr_eq(partition, parent) {
                true => all.extend(children.iter().cloned()),
                false => all.push(partition.clone()),
            }
        }
        let gone = [&old.partitions.gone[..], std::slice::from_ref(&parent.span)].concat();
        let version = old.partitions.version + 1;
        let partitions = Arc::new(Partitions { all, gone, version });
        (Arc::new(old.with_partitions(partitions)), children)
    }

    /// After a split that failed: a new writer for the parent, and what has waited goes to it.
    async fn reinstate(&self, old: &Container, parent: &Arc<Partition>, waiting: Vec<Op>) {
        let bucket = parent.shared_bucket();
        let again = old.runtime.start(self, parent.span.clone(), parent.head(), bucket);
        let place = |partition: &Arc<Partition>| match Arc::ptr_eq(partition, parent) {
            true => again.clone(),
            false => partition.clone(),
        };
        let all = old.partitions.all.iter().map(place).collect();
        let (gone, version) = (old.partitions.gone.clone(), old.partitions.version);
        let new = Arc::new(old.with_partitions(Arc::new(Partitions { all, gone, version })));
        let mut catalog = crate::catalog::Catalog::clone(&self.catalog.load());
        if let Some(entry) = catalog.databases.get_mut(&old.database_id) {
            entry.containers.insert(old.id().to_owned(), new);
        }
        self.catalog.store(Arc::new(catalog));
        for op in waiting {
            drop(again.submit_later(op).await);
        }
    }

    /// Notes that what these partitions hold is to be removed, unless something is made of them; at once, or not before the instant in `note`.
    async fn abandon(&self, ids: &[PartitionId], note: Bytes) -> Result<()> {
        let mut batch = Batch::default();
        for id in ids {
            let key = Key::Abandoned(*id);
            batch.check(key.family(), key.encode(), None);
            batch.put(key.family(), key.encode(), note.clone());
        }
        Ok(self.engine.commit(batch).await?)
    }

    /// Removes a slice of what abandoned partitions hold, and says whether there is more.
    pub(crate) async fn purge_abandoned(&self) -> Result<bool> {
        // A split in progress has its children noted as abandoned.
        let Ok(_no_split) = self.catalog_lock.try_lock() else { return Ok(false) };
        for (id, (row, note)) in self.abandoned().await? {
            if self.is_read(id) || !self.is_due(&row, &note).await? {
                continue;
            }
            match self.purge_left(id, row).await {
                // The part of the store that has it is away; the others' are not.
                Err(Error::Unavailable(_)) => continue,
                purged => return purged.map(|()| true),
            }
        }
        Ok(false)
    }

    /// Whether the data of an abandoned partition may go. Where servers share the store, its note says when; from then on it is there for nobody.
    async fn is_due(&self, row: &Bytes, note: &Bytes) -> Result<bool> {
        let kept =
            note[..].try_into().map_or(Timestamp(0), |secs| Timestamp(u64::from_le_bytes(secs)));
        if kept > self.now() {
            return Ok(false);
        }
        if note.is_empty() {
            return Ok(true);
        }
        let mut batch = Batch::default();
        batch.check(Family::Catalog, row.clone(), Some(note.clone()));
        batch.put(Family::Catalog, row.clone(), Bytes::new());
        match self.engine.commit(batch).await {
            Ok(()) => Ok(true),
            // Whoever splits has renewed it, or another server has begun.
            Err(storage::Error::Conflict) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn purge_left(&self, id: PartitionId, row: Bytes) -> Result<()> {
        let snapshot = self.engine.snapshot();
        let mut batch = Batch::default();
        for family in [Family::Item, Family::Id, Family::Index, Family::Expiry, Family::Feed] {
            for range in [partition_range(id), partition_range(log_of(id))] {
                let room = BATCH_KEYS_MAX.saturating_sub(batch.writes.len());
                if room > 0 {
                    let pairs = snapshot.scan(family, range, Direction::Forward, room).await?;
                    pairs.into_iter().for_each(|(key, _)| batch.delete(family, key));
                }
            }
        }
        if batch.writes.is_empty() {
            batch.delete(Family::Catalog, row);
            if self.is_shared() {
                for key in [Key::Head(id), Key::Reindex(id), Key::Epoch(id), Key::Lease(id)] {
                    batch.delete(key.family(), key.encode());
                }
            }
        }
        Ok(self.engine.commit(batch).await?)
    }

    /// Whether a request that began before a split still reads the parent.
    fn is_read(&self, id: PartitionId) -> bool {
        let mut retired = self.retired.lock().expect("no panic under this lock");
        retired.retain(|partition| partition.strong_count() > 0);
        retired.iter().any(|partition| partition.upgrade().is_some_and(|held| held.id == id))
    }
}

/// Which child an operation goes to.
fn place_of(settings: &Settings, op: &Op, children: &[Arc<Partition>; 2]) -> usize {
    let key = match op {
        Op::Write(transaction, _) => transaction.ops.first().map(|op| &op.key),
        _ => None,
    };
    let definition = &settings.partition_key;
    let key = key.and_then(|key| decode_partition_key(key, definition.paths.len()).ok());
    let hash = key.map(|key| definition.hash_bytes(&key)).unwrap_or_default();
    usize::from(hash >= children[1].span.min)
}

/// What a split is to make.
struct Plan {
    parent: Arc<Partition>,
    ids: [PartitionId; 2],
    /// The first hash of the second.
    middle: Vec<u8>,
}

impl Plan {
    /// The hashes of the children.
    fn spans(&self, old: &Container, head: Head) -> [Span; 2] {
        let Span { number, min, max, lineage, .. } = &self.parent.span;
        let lineage = [&lineage[..], &[(*number, head.ordinal)]].concat();
        let since = old.partitions.version + 1;
        let span = |half: usize, min: &[u8], max: &[u8]| Span {
            number: self.ids[half].partition,
            min: min.to_vec(),
            max: max.to_vec(),
            lineage: lineage.clone(),
            since,
        };
        [span(0, min, &self.middle), span(1, &self.middle, max)]
    }

    /// Puts the children in the parent's place in the row of their container.
    fn write(&self, row: &mut Value, old: &Container, head: Head) {
        let mut all = Vec::new();
        for partition in &old.partitions.all {
            match partition.id == self.parent.id {
                true => all.extend(self.spans(old, head).iter().map(Span::encode)),
                false => all.push(partition.span.encode()),
            }
        }
        let gone = old.partitions.gone.iter().chain([&self.parent.span]);
        row["partitions"] = all.into();
        row["partitionsGone"] = gone.map(Span::encode).collect();
        row["partitionsVersion"] = (old.partitions.version + 1).into();
    }

    fn copy<'a>(&self, db: &'a Db, old: &'a Container) -> Copy<'a> {
        let (parent, ids, middle) = (self.parent.id, self.ids, self.middle.clone());
        Copy { engine: &*db.engine, settings: &old.settings, parent, ids, middle }
    }
}

/// A fence around a partition, on a store that servers share: no round of any server is committed while it stands.
struct Fence<'a> {
    db: &'a Db,
    parent: PartitionId,
    ids: [PartitionId; 2],
    /// What it was before.
    before: Epoch,
    epoch: Epoch,
}

impl<'a> Fence<'a> {
    async fn put(db: &'a Db, plan: &Plan) -> Result<Self> {
        let (parent, ids) = (plan.parent.id, plan.ids);
        let key = Key::Epoch(parent);
        let before = Epoch::decode(db.engine.get(key.family(), &key.encode()).await?);
        if before.until.is_some() {
            // Another server splits it, or was about to.
            return Err(Error::Contention);
        }
        let until = db.now().plus(FENCE_SECS);
        let epoch = before.fenced(until);
        let fence = Self { db, parent, ids, before, epoch };
        db.abandon(&ids, fence.note()).await?;
        let mut batch = Batch::default();
        batch.check(key.family(), key.encode(), fence.before.stored());
        batch.put(key.family(), key.encode(), fence.epoch.encode());
        match db.engine.commit(batch).await {
            Ok(()) => Ok(fence),
            Err(error) => {
                fence.lift().await;
                Err(error.into())
            }
        }
    }

    /// The note of the children.
    fn note(&self) -> Bytes {
        let until = self.epoch.until.unwrap_or_default();
        Bytes::copy_from_slice(&until.0.to_le_bytes())
    }

    /// Has the fence stand longer. An error if somebody has lifted it.
    async fn renew(&mut self) -> Result<()> {
        self.db.pulse().await?;
        let (note, old) = (self.note(), self.epoch.clone());
        let until = self.db.now().plus(FENCE_SECS);
        if self.epoch.until == Some(until) {
            return Ok(());
        }
        self.epoch = self.before.fenced(until);
        let mut batch = Batch::default();
        for id in self.ids {
            let key = Key::Abandoned(id);
            batch.check(key.family(), key.encode(), Some(note.clone()));
            batch.put(key.family(), key.encode(), self.note());
        }
        let key = Key::Epoch(self.parent);
        batch.check(key.family(), key.encode(), old.stored());
        batch.put(key.family(), key.encode(), self.epoch.encode());
        Ok(self.db.engine.commit(batch).await?)
    }

    /// Renews it in good time. To be called after each batch.
    async fn keep(&mut self) -> Result<()> {
        self.db.pulse().await?;
        let until = self.epoch.until.unwrap_or_default();
        match until.since(self.db.now()) < FENCE_SECS / 2 {
            true => self.renew().await,
            false => Ok(()),
        }
    }

    /// Gives the parent back to its writers. What is left is lifted by these, or cleared by the purge, when its time is over.
    async fn lift(&self) {
        drop(self.db.lift_fence(self.parent, &self.epoch).await);
        let mut batch = Batch::default();
        for id in self.ids {
            let key = Key::Abandoned(id);
            batch.check(key.family(), key.encode(), Some(self.note()));
            batch.put(key.family(), key.encode(), Bytes::new());
        }
        drop(self.db.engine.commit(batch).await);
    }
}

/// The copying of a partition into two.
struct Copy<'a> {
    engine: &'a dyn Engine,
    settings: &'a Settings,
    parent: PartitionId,
    ids: [PartitionId; 2],
    /// The first hash of the second.
    middle: Vec<u8>,
}

/// Which items go to the second child: a bit for each number.
#[derive(Default)]
struct Halves(Vec<u64>);

impl Halves {
    fn set(&mut self, ordinal: u64) {
        let word = (ordinal / 64) as usize;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (ordinal % 64);
    }

    fn of(&self, ordinal: u64) -> usize {
        let word = self.0.get((ordinal / 64) as usize).copied().unwrap_or(0);
        usize::from(word >> (ordinal % 64) & 1 == 1)
    }
}

impl Copy<'_> {
    /// Copies all, and gives the heads of the children.
    async fn run(&self, head: Head, mut fence: Option<&mut Fence<'_>>) -> Result<[Head; 2]> {
        let snapshot = self.engine.snapshot();
        let mut heads = [Head { items: 0, bytes: 0, log_bytes: 0, ..head }; 2];
        let mut halves = Halves::default();
        let items = partition_range(self.parent);
        self.each(&*snapshot, &mut fence, (Family::Item, items), &mut |(key, value)| {
            let (ordinal, record) = (ordinal_of(key)?, Record::decode(key, value.clone())?);
            let half = self.half_of(&record.name)?;
            if half == 1 {
                halves.set(ordinal);
            }
            heads[half].items += 1;
            heads[half].bytes += record.body.len() as u64;
            Ok(self.ids[half])
        })
        .await?;
        for family in [Family::Id, Family::Index, Family::Expiry, Family::Feed] {
            let all = (family, partition_range(self.parent));
            self.each(&*snapshot, &mut fence, all, &mut |(key, value)| {
                let by_value = family == Family::Id || family == Family::Index && is_unique(key);
                let ordinal = if by_value { ordinal_of_value(value)? } else { ordinal_of(key)? };
                Ok(self.ids[halves.of(ordinal)])
            })
            .await?;
        }
        let log = history_from(self.parent, 0);
        self.each(&*snapshot, &mut fence, (Family::Feed, log), &mut |(key, value)| {
            let half = self.half_of(&Version::decode(key, value)?.name)?;
            heads[half].log_bytes += entry_bytes(key, value);
            Ok(log_of(self.ids[half]))
        })
        .await?;
        Ok(heads)
    }

    /// Writes every pair of a range again, under the partition that `place` says.
    async fn each(
        &self,
        snapshot: &dyn Snapshot,
        fence: &mut Option<&mut Fence<'_>>,
        (family, mut range): (Family, std::ops::Range<Bytes>),
        place: &mut (dyn FnMut(&Pair) -> storage::Result<PartitionId> + Send),
    ) -> Result<()> {
        let limit = match family {
            Family::Item | Family::Feed => BATCH_RECORDS_MAX,
            _ => BATCH_KEYS_MAX,
        };
        loop {
            let pairs = snapshot.scan(family, range.clone(), Direction::Forward, limit).await?;
            let mut batch = Batch::default();
            for pair in &pairs {
                let (key, value) = pair;
                let PartitionId { container, partition } = place(pair)?;
                let mut moved = Vec::with_capacity(key.len());
                moved.extend_from_slice(&container.to_be_bytes());
                moved.extend_from_slice(&partition.to_be_bytes());
                moved.extend_from_slice(&key[8..]);
                batch.put(family, Bytes::from(moved), value.clone());
            }
            if !batch.writes.is_empty() {
                self.engine.commit(batch).await?;
            }
            if let Some(fence) = fence {
                fence.keep().await?;
            }
            match pairs.last() {
                Some((last, _)) if pairs.len() == limit => range.start = successor(last),
                _ => return Ok(()),
            }
        }
    }

    fn half_of(&self, name: &[u8]) -> storage::Result<usize> {
        let definition = &self.settings.partition_key;
        let key = decode_partition_key(name, definition.paths.len())?;
        Ok(usize::from(definition.hash_bytes(&key) >= self.middle))
    }
}

#[cfg(test)]
impl Db {
    /// The beginning of a split on a shared store, by a server that then dies, or sleeps.
    pub(crate) async fn begin_split(
        &self,
        database: &str,
        container: &str,
        number: u32,
    ) -> Result<Asleep> {
        let old = self.container(database, container)?;
        let plan = self.plan_split(&old, number).await?;
        let fence = Fence::put(self, &plan).await?;
        let (before, epoch) = (fence.before.clone(), fence.epoch.clone());
        Ok(Asleep { old, plan, before, epoch })
    }
}

/// A split that was stopped after its fence was put.
#[cfg(test)]
pub(crate) struct Asleep {
    old: Arc<Container>,
    plan: Plan,
    before: Epoch,
    epoch: Epoch,
}

#[cfg(test)]
impl Asleep {
    pub(crate) async fn finish(self, db: &Db) -> Result<[u32; 2]> {
        let Self { old, plan, before, epoch } = self;
        let mut fence = Fence { db, parent: plan.parent.id, ids: plan.ids, before, epoch };
        db.split_fenced(&old, &plan, &mut fence).await
    }
}
