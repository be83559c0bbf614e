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

use std::sync::Arc;

use bytes::Bytes;
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
use crate::writer::{Op, ordinal_of_value};
use crate::{Container, Db, Error, Result, Settings};

/// Keys that are copied, or removed, in one batch.
const BATCH_KEYS_MAX: usize = 2_000;

/// Records are large: fewer at a time.
const BATCH_RECORDS_MAX: usize = 256;

impl Db {
    /// Puts two partitions in the place of one; gives their numbers.
    pub async fn split(&self, database: &str, container: &str, number: u32) -> Result<[u32; 2]> {
        if self.is_shared() {
            return Err(Error::Invalid(
                "A partition cannot be split while servers share a store: other servers may be writing to it. Give a container its \
                 partitions when it is made (--partitions, or its throughput)."
                    .into(),
            ));
        }
        let mut change = self.change_catalog().await?;
        let old = self.container(database, container)?;
        let parent = old.partitions.numbered(number)?.clone();
        if old.settings.layout.is_some() {
            return Err(Error::Invalid("A MongoDB collection has one partition.".into()));
        }
        let definition = &old.settings.partition_key;
        let Span { min, max, .. } = parent.span.clone();
        let middle = definition.middle(&min, &max).ok_or_else(|| {
            Error::Invalid(
                "The partition is too small to be split: it has no hash in its middle.".into(),
            )
        })?;
        let next = old.partitions.next_number();
        let ids = [next, next + 1].map(|partition| PartitionId { partition, ..parent.id });
        self.abandon(&ids).await?;

        let (reply, stopped) = oneshot::channel();
        parent.submit_later(Op::Retire(reply)).await?;
        let waiting = stopped.await.map_err(|_| Error::Stopping)?;
        let head = parent.head();
        let lineage = [&parent.span.lineage[..], &[(number, head.ordinal)]].concat();
        let since = old.partitions.version + 1;
        let span = |number, min, max| Span { number, min, max, lineage: lineage.clone(), since };
        let spans = [span(next, min, middle.clone()), span(next + 1, middle.clone(), max)];

        let copy =
            Copy { engine: &*self.engine, settings: &old.settings, parent: parent.id, ids, middle };
        let made = async {
            let heads = copy.run(head).await?;
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
                Ok([next, next + 1])
            }
            Err(error) => {
                self.reinstate(&old, &parent, waiting).await;
                Err(error)
            }
        }
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

    /// Notes that what these partitions hold is to be removed, unless something is made of them.
    async fn abandon(&self, ids: &[PartitionId]) -> Result<()> {
        let mut batch = Batch::default();
        for id in ids {
            let key = Key::Abandoned(*id);
            batch.put(key.family(), key.encode(), Bytes::new());
        }
        Ok(self.engine.commit(batch).await?)
    }

    /// Removes a slice of what abandoned partitions hold, and says whether there is more.
    pub(crate) async fn purge_abandoned(&self) -> Result<bool> {
        // A split in progress has its children noted as abandoned.
        let Ok(_no_split) = self.catalog_lock.try_lock() else { return Ok(false) };
        let snapshot = self.engine.snapshot();
        let rows = snapshot
            .scan(Family::Catalog, catalog_range(9), Direction::Forward, BATCH_RECORDS_MAX)
            .await?;
        for (row, _) in rows {
            let number = |at: usize| row.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
            let (Some(container), Some(partition)) = (number(1), number(5)) else {
                return Err(Error::Storage(
                    "corrupt data: the key of an abandoned partition".into(),
                ));
            };
            let id = PartitionId { container, partition };
            if self.is_read(id) {
                continue;
            }
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
                batch.delete(Family::Catalog, row.clone());
            }
            self.engine.commit(batch).await?;
            return Ok(true);
        }
        Ok(false)
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
    async fn run(&self, head: Head) -> Result<[Head; 2]> {
        let snapshot = self.engine.snapshot();
        let mut heads = [Head { items: 0, bytes: 0, log_bytes: 0, ..head }; 2];
        let mut halves = Halves::default();
        let items = partition_range(self.parent);
        self.each(&*snapshot, Family::Item, items, &mut |(key, value)| {
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
            self.each(&*snapshot, family, partition_range(self.parent), &mut |(key, value)| {
                let by_value = family == Family::Id || family == Family::Index && is_unique(key);
                let ordinal = if by_value { ordinal_of_value(value)? } else { ordinal_of(key)? };
                Ok(self.ids[halves.of(ordinal)])
            })
            .await?;
        }
        let log = history_from(self.parent, 0);
        self.each(&*snapshot, Family::Feed, log, &mut |(key, value)| {
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
        family: Family,
        mut range: std::ops::Range<Bytes>,
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
