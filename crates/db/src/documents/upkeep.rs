//! Upkeep of what is stored beside documents, when their layout has changed: entries of a new index, ttls of a new rule, and the removal of
//! what an old index has left. Each step is a round of the partition's writer, so it cannot race with clients' writes.

use model::clock::Timestamp;
use storage::{Direction, Family};
use tokio::sync::oneshot;

use crate::items::PreparedBody;
use crate::keys::{Key, ordinal_of, partition_range, term_range, unique_range};
use crate::record::Record;
use crate::writer::{Op, Round, Stored};
use crate::{Container, Db, Error, Result};

/// Documents that one step looks at.
const STEP_ITEMS: usize = 256;

/// Entries that one step removes.
const STEP_ENTRIES: usize = 2_000;

/// A step of upkeep.
#[derive(Clone, Debug)]
pub(crate) enum Upkeep {
    /// Brings documents from this ordinal on up to the layout.
    Describe(u64),
    /// Removes entries whose term or unique entry begins so.
    Clear(Vec<u8>),
}

/// Where to go on; `None` when all is done.
pub(crate) type UpkeepDone = oneshot::Sender<Result<Option<u64>>>;

impl Db {
    /// Writes for every document what the container's layout now says, and removes the expired ones. An error if two documents have
    /// the same unique entry.
    pub async fn describe_again(&self, container: &Container) -> Result<()> {
        let mut next = Some(0);
        while let Some(from) = next {
            next = self.upkeep(container, Upkeep::Describe(from)).await?;
        }
        Ok(())
    }

    /// Removes all index entries that begin with `prefix`, which no layout names any more.
    pub async fn clear_entries(&self, container: &Container, prefix: &[u8]) -> Result<()> {
        while self.upkeep(container, Upkeep::Clear(prefix.to_vec())).await?.is_some() {}
        Ok(())
    }

    async fn upkeep(&self, container: &Container, step: Upkeep) -> Result<Option<u64>> {
        let (reply, done) = oneshot::channel();
        container.partition().submit_later(Op::Upkeep(step, reply)).await?;
        done.await.map_err(|_| Error::OwnerNotFound)?
    }
}

impl Round<'_> {
    /// Makes one step.
    pub async fn upkeep(&mut self, step: &Upkeep) -> Result<Option<u64>> {
        match step {
            Upkeep::Describe(from) => self.describe(*from).await,
            Upkeep::Clear(prefix) => self.clear(prefix).await,
        }
    }

    async fn describe(&mut self, from: u64) -> Result<Option<u64>> {
        let partition = self.writer.partition.id;
        let start = Key::Item { partition, ordinal: from }.encode();
        let range = start..partition_range(partition).end;
        let pairs = self.snapshot.scan(Family::Item, range, Direction::Forward, STEP_ITEMS).await?;
        let mut last = None;
        let settings = self.writer.runtime.settings();
        let layout = settings.layout.clone().ok_or_else(super::not_documents)?;
        for (key, value) in &pairs {
            let ordinal = ordinal_of(key)?;
            last = Some(ordinal);
            let record = Record::decode(key, value.clone())?;
            let stored = Stored { ordinal, record };
            if !self.is_live(&stored.record) {
                self.forget(&stored)?;
                continue;
            }
            let description = layout.describe(&stored.record.body)?;
            let body = PreparedBody::document(bytes::Bytes::new(), description);
            for dead in self.expired_holders(&body, Some(ordinal)).await? {
                self.forget(&dead)?;
            }
            for term in &body.terms {
                let key = Key::Term { partition, term, ordinal }.encode();
                self.batch.put(Family::Index, key, bytes::Bytes::new());
            }
            self.put_unique(&body.unique, ordinal);
            if body.own_ttl != stored.record.own_ttl {
                self.restamp(stored, body.own_ttl);
            }
        }
        Ok(last.filter(|_| pairs.len() == STEP_ITEMS).map(|last| last + 1))
    }

    /// Removes a dead document; the log of changes is told, as by the purge.
    fn forget(&mut self, dead: &Stored) -> Result<()> {
        if self.writer.runtime.settings().history.is_some() {
            self.begin_change();
        }
        self.remove_expired(dead)?;
        Ok(())
    }

    /// Gives a document another own ttl without making it a new version.
    fn restamp(&mut self, old: Stored, own_ttl: model::ttl::Ttl) {
        let partition = self.writer.partition.id;
        let ordinal = old.ordinal;
        self.remove_order_entries(&old);
        let record = Record { own_ttl, ..old.record };
        self.put_order_entries(&record, ordinal);
        // The purge may already have passed the entry that now has another fate.
        self.head.feed_cursor = self.head.feed_cursor.min(record.lsn);
        self.batch.put(Family::Item, Key::Item { partition, ordinal }.encode(), record.encode());
    }

    async fn clear(&mut self, prefix: &[u8]) -> Result<Option<u64>> {
        let partition = self.writer.partition.id;
        for range in [term_range(partition, prefix), unique_range(partition, prefix)] {
            let pairs =
                self.snapshot.scan(Family::Index, range, Direction::Forward, STEP_ENTRIES).await?;
            let full = pairs.len() == STEP_ENTRIES;
            for (key, _) in pairs {
                self.batch.delete(Family::Index, key);
            }
            if full {
                return Ok(Some(0));
            }
        }
        Ok(None)
    }

    /// The purge begins no later than this instant.
    pub fn expect_expiry(&mut self, at: Timestamp) {
        self.head.expiry_cursor = self.head.expiry_cursor.min(at);
    }
}
