//! The rebuild of the index after a change of policy: in the background, a few items at a time, while everything goes on.
//!
//! Writes follow the new policy at once. The rebuild walks the items of each partition by ordinal, as an operation of its writer, and
//! keeps how far it has come in the batch that does the work, so that a restart goes on there. Until it is through, queries read items
//! instead of the index, and a removal removes the terms of all policies that an item may have been written under.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use storage::{Direction, Family};
use tokio::sync::oneshot;

use crate::catalog::encode_container;
use crate::charge;
use crate::keys::{Key, ordinal_of, partition_range};
use crate::record::Record;
use crate::writer::{Op, Round, parse_stored};
use crate::{Container, Db, Error, Result};

/// The most items of one step: small enough that a client's write behind it hardly waits.
const STEP_ITEMS_MAX: usize = 128;

/// The most bytes of items of one step.
const STEP_BYTES_MAX: usize = 1 << 20;

/// Items that are read from the store at a time.
const PAGE: usize = 16;

/// What the terms of an item are taken to cost before they are known.
const ITEM_CHARGE: f64 = 3.0;

/// What one step has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reindexed {
    /// All items before this one are done.
    pub to: u64,
    /// Of this policy.
    pub epoch: u64,
}

impl Reindexed {
    /// Where a partition stands that has no items left to do.
    const END: u64 = u64::MAX;

    fn encode(self) -> Bytes {
        [self.epoch.to_le_bytes(), self.to.to_le_bytes()].concat().into()
    }

    fn decode(bytes: &[u8]) -> storage::Result<Self> {
        let field = |i: usize| bytes.get(i * 8..i * 8 + 8).and_then(|field| field.try_into().ok());
        match (field(0), field(1), bytes.len()) {
            (Some(epoch), Some(to), 16) => {
                Ok(Self { to: u64::from_le_bytes(to), epoch: u64::from_le_bytes(epoch) })
            }
            _ => Err(storage::Error::Corrupt("how far an index is rebuilt cannot be read".into())),
        }
    }
}

/// What a call of the rebuild left to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReindexReport {
    pub more: bool,
    pub throttled: bool,
}

impl Db {
    /// A step of every rebuild that is under way, within the request units that clients have left over.
    pub(crate) async fn reindex(&self) -> Result<ReindexReport> {
        let mut report = ReindexReport::default();
        let unfinished = |container: &&Arc<Container>| !container.settings.is_indexed();
        let containers: Vec<_> =
            self.catalog.load().containers().filter(unfinished).cloned().collect();
        for container in containers {
            let mut finished = true;
            for partition in &container.partitions.all {
                let spare = partition.bucket().spare(self.clock.elapsed());
                let affordable = spare.map_or(usize::MAX, |spare| (spare / ITEM_CHARGE) as usize);
                if affordable == 0 {
                    finished = false;
                    report.throttled = true;
                    continue;
                }
                let (reply, reindexed) = oneshot::channel();
                let op = Op::Reindex(affordable.min(STEP_ITEMS_MAX), reply);
                match partition.submit_later(op).await {
                    // A container that is being dropped needs no index; the children of a split do.
                    Err(Error::OwnerNotFound) => {
                        finished = false;
                        continue;
                    }
                    Err(error) => return Err(error),
                    Ok(()) => {}
                }
                match reindexed.await {
                    Ok(reindexed) => {
                        let Reindexed { to, epoch } = reindexed?;
                        finished &=
                            to == Reindexed::END && epoch == container.settings.indexing_epoch;
                    }
                    Err(_) => finished = false,
                }
            }
            match finished {
                true => self.finish_reindex(&container).await?,
                false => report.more = true,
            }
        }
        Ok(report)
    }

    /// The index of a container is whole again, unless its policy has changed meanwhile.
    async fn finish_reindex(&self, container: &Container) -> Result<()> {
        let mut change = self.change_catalog().await?;
        let current =
            self.catalog.load().containers().find(|now| now.rid == container.rid).cloned();
        let Some(current) = current else { return Ok(()) };
        let same_partitions = current.partitions.version == container.partitions.version;
        if current.settings.indexing_epoch != container.settings.indexing_epoch || !same_partitions
        {
            return Ok(());
        }
        let settings = Arc::new(current.settings.rebuilt());
        let (stamp, runtime) = ((current.etag, current.ts), current.runtime.clone());
        let (owner, parts) = (&current.database_id, current.partitions.clone());
        let new = Container::new(owner, settings.clone(), stamp, runtime, parts);
        change.put(Key::Container(new.rid.number), &encode_container(&new, current.ttl()));
        for partition in &current.partitions.all {
            change.delete(Key::Reindex(partition.id));
        }
        if let Some(entry) = change.catalog.databases.get_mut(&current.database_id) {
            entry.containers.insert(settings.id.clone(), Arc::new(new));
        }
        change.commit().await?;
        current.runtime.set_settings(settings);
        Ok(())
    }
}

impl Container {
    /// How much of the index follows the policy in force, in percent.
    pub fn index_progress(&self) -> u8 {
        let settings = self.runtime.settings();
        if settings.is_indexed() {
            return 100;
        }
        let progress = |partition: &Arc<crate::partition::Partition>| {
            let (to, last) =
                (partition.reindexed_to.load(Ordering::Relaxed), partition.head().ordinal);
            (to.saturating_sub(1).min(last) as f64 * 99.0 / last.max(1) as f64) as u8
        };
        self.partitions.all.iter().map(progress).min().unwrap_or_default()
    }
}

impl Round<'_> {
    /// Brings the terms of up to `items_max` items in line with the policy.
    pub async fn reindex(&mut self, items_max: usize) -> Result<Reindexed> {
        let settings = self.writer.runtime.settings();
        let (partition, epoch) = (self.writer.partition.id, settings.indexing_epoch);
        let cursor = Key::Reindex(partition).encode();
        let stored = self.snapshot.get(Family::Catalog, &cursor).await?;
        let stored = stored.map(|bytes| Reindexed::decode(&bytes)).transpose()?;
        let mut to = stored.filter(|stored| stored.epoch == epoch).map_or(0, |stored| stored.to);
        if to == Reindexed::END || settings.is_indexed() {
            return Ok(Reindexed { to: Reindexed::END, epoch });
        }
        let (mut items, mut bytes) = (0, 0);
        while items < items_max && bytes < STEP_BYTES_MAX && to != Reindexed::END {
            let range =
                Key::Item { partition, ordinal: to }.encode()..partition_range(partition).end;
            let limit = PAGE.min(items_max - items);
            let page = self.snapshot.scan(Family::Item, range, Direction::Forward, limit).await?;
            for (key, value) in &page {
                let ordinal = ordinal_of(key)?;
                let record = Record::decode(key, value.clone())?;
                let item = parse_stored(&record)?;
                let terms = settings.terms(&item, record.ts);
                for term in settings.terms_ever(&item, record.ts) {
                    let key = Key::Term { partition, term: &term, ordinal }.encode();
                    match terms.binary_search(&term) {
                        Ok(_) => self.batch.put(Family::Index, key, Bytes::new()),
                        Err(_) => self.batch.delete(Family::Index, key),
                    }
                }
                items += 1;
                bytes += record.body.len();
                self.charge += charge::write(0, terms.len());
                to = ordinal + 1;
            }
            if page.len() < limit {
                to = Reindexed::END;
            }
        }
        let reindexed = Reindexed { to, epoch };
        self.batch.put(Family::Catalog, cursor, reindexed.encode());
        Ok(reindexed)
    }
}
