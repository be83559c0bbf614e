//! Deleting all items of a partition key, or of all keys that begin with a prefix.
//!
//! A round of the writer removes up to [`ROUND_ITEMS_MAX`] items. A key with no more than that goes as a whole, in one batch. For more, the first
//! round also leaves a note of what is to be done, and the last one removes it: a process that dies in between finds the note when it
//! opens the store, and finishes before it serves. What is written to the key meanwhile stays.

use model::partition_key::PartitionKey;
use storage::{Batch, Direction, Family};
use tokio::sync::oneshot;

use crate::charge::{self, RequestCharge};
use crate::history::Change;
use crate::items::Scope;
use crate::keys::{
    Key, PartitionId, catalog_range, encode_partition_key, member_range, ordinal_of,
};
use crate::partition::Partition;
use crate::scan::{fetch, successor};
use crate::writer::{Op, Round};
use crate::{Container, Db, Error, Reply, Result, fan};

/// The most items that go in one batch.
const ROUND_ITEMS_MAX: usize = 4_000;

/// A deletion on its way.
#[derive(Clone, Debug)]
pub(crate) struct KeyDeletion {
    /// What the names of the items begin with.
    key: Vec<u8>,
    /// Where to go on.
    from: Option<bytes::Bytes>,
    /// The last change that it is about; later ones stay.
    bound: Option<u64>,
}

/// How far a round has come: where to go on, if there is more, and what it has cost.
pub(crate) type KeyDeletionDone = oneshot::Sender<Result<(Option<KeyDeletion>, RequestCharge)>>;

impl Db {
    /// Deletes all items of a partition key, or of all that begin with a prefix. None of them is there when it returns.
    pub async fn delete_key(&self, container: &Container, key: &PartitionKey) -> Reply<()> {
        let mut sum = RequestCharge::default();
        let (mut session, mut other_sessions) = (None, Vec::new());
        let result = async {
            let defined = container.settings.partition_key.paths.len();
            if key.0.is_empty() || key.0.len() > defined {
                return Err(Error::BadPartitionKey(
                    "PartitionKey has more components than defined the collection resource.",
                ));
            }
            let scope = Scope::Key(key.clone());
            let mut targets = container.targets(&scope)?;
            self.admit_all(&targets)?;
            let asked = targets.clone();
            while let Some(target) = targets.pop() {
                let deletion =
                    KeyDeletion { key: encode_partition_key(key), from: None, bound: None };
                match self.finish_deletion(&target.partition, deletion).await {
                    Ok(charge) => {
                        self.settle(&target.partition, charge);
                        sum += charge;
                    }
                    // It was split: its children have the rest.
                    Err(Error::PartitionGone) => {
                        drop(self.catalog_lock.lock().await);
                        let current = self.current(container).ok_or(Error::OwnerNotFound)?;
                        current
                            .check_partition(target.partition.id.partition)
                            .map_or(Ok(()), |()| Err(Error::Stopping))?;
                        targets = current.targets(&scope)?;
                    }
                    Err(error) => return Err(error),
                }
            }
            (session, other_sessions) = fan::sessions(&asked);
            Ok(())
        }
        .await;
        sum.0 = sum.0.max(charge::MISS.0);
        Reply { result, charge: sum, session, other_sessions }
    }

    async fn finish_deletion(
        &self,
        partition: &Partition,
        deletion: KeyDeletion,
    ) -> Result<RequestCharge> {
        let (mut next, mut sum) = (Some(deletion), RequestCharge::default());
        while let Some(deletion) = next {
            let (reply, done) = oneshot::channel();
            let queued = partition.submit_later(Op::DeleteKey(deletion, reply)).await;
            queued.map_err(|_| Error::PartitionGone)?;
            let (rest, charge) = done.await.map_err(|_| Error::PartitionGone)??;
            next = rest;
            sum += charge;
        }
        Ok(sum)
    }

    /// Finishes what an earlier process has left noted.
    pub(crate) async fn finish_deletions(&self) -> Result<()> {
        let notes = self
            .engine
            .snapshot()
            .scan(Family::Catalog, catalog_range(8), Direction::Forward, usize::MAX)
            .await?;
        for (row, bound) in notes {
            let number = |at: usize| row.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
            let bound = bound[..].try_into().map(u64::from_le_bytes).ok();
            let (Some(container), Some(number), Some(bound)) = (number(1), number(5), bound) else {
                return Err(Error::Storage("corrupt data: a note of a deletion".into()));
            };
            let catalog = self.catalog.load_full();
            let owner = catalog.containers().find(|owner| owner.rid.number == container);
            let key = row.slice(9..).to_vec();
            let heirs = owner.into_iter().flat_map(|owner| &owner.partitions.all);
            for heir in heirs.filter(|partition| partition.span.comes_from(number)) {
                let deletion = KeyDeletion { key: key.clone(), from: None, bound: Some(bound) };
                self.finish_deletion(heir, deletion).await?;
            }
            let mut batch = Batch::default();
            batch.delete(Family::Catalog, row);
            self.engine.commit(batch).await?;
        }
        Ok(())
    }
}

/// The note of a deletion that takes more than one round.
fn note(partition: PartitionId, key: &[u8]) -> Key<'_> {
    Key::Deletion { partition, key }
}

impl Round<'_> {
    /// Removes some of the items of a deletion; gives what is left of it.
    pub async fn delete_key(&mut self, deletion: KeyDeletion) -> Result<Option<KeyDeletion>> {
        let KeyDeletion { key, from, bound } = deletion;
        let partition = self.writer.partition.id;
        let (first, bound) = (bound.is_none(), bound.unwrap_or(self.head.lsn));
        let mut range = member_range(partition, &key);
        if let Some(from) = from {
            range.start = from;
        }
        let pairs =
            self.snapshot.scan(Family::Index, range, Direction::Forward, ROUND_ITEMS_MAX).await?;
        let more = pairs.len() == ROUND_ITEMS_MAX;
        for (entry, _) in &pairs {
            let stored = fetch(&*self.snapshot, partition, ordinal_of(entry)?).await?;
            if stored.record.lsn > bound {
                continue;
            }
            self.begin_change();
            let live = self.is_live(&stored.record);
            let terms = if live { self.remove(&stored)? } else { self.remove_expired(&stored)? };
            if live {
                self.remember(Change::Delete, &stored.record.name, None, Some(&stored));
                self.charge += charge::write(stored.record.body.len(), terms);
            }
        }
        let row = note(partition, &key);
        if more {
            self.batch.put(row.family(), row.encode(), bound.to_le_bytes().to_vec());
        } else if !first {
            self.batch.delete(row.family(), row.encode());
        }
        let from = pairs.last().filter(|_| more).map(|(last, _)| successor(last));
        Ok(from.map(|from| KeyDeletion { key, from: Some(from), bound: Some(bound) }))
    }
}
