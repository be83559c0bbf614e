//! Scans: the living items of a scope in the order of their creation, a page of the store at a time.
//!
//! Lists, queries and everything else that yields more than one item goes through [`ItemScan`] (documents: [`crate::documents::DocumentScan`]),
//! and so through the horizon. There is no other way.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use model::partition_key::PartitionKeyDefinition;
use model::ttl::Horizon;
use storage::{Direction, Family, Snapshot};

use crate::access::Access;
use crate::charge::{self, RequestCharge};
use crate::documents::not_json;
use crate::items::Scope;
use crate::keys::{
    Key, PartitionId, decode_partition_key, encode_partition_key, member_range, ordinal_of,
    partition_range,
};
use crate::record::Record;
use crate::writer::Stored;
use crate::{Container, Db, Result};

/// How many items are read from the store at a time, at first and at most.
const CHUNK_MIN: usize = 16;
const CHUNK_MAX: usize = 256;

/// A chunk of more bytes than this does not grow.
const CHUNK_BYTES: usize = 256 << 10;

/// What a request sees: one snapshot, and what is dead at its one `now`.
#[derive(Clone)]
pub(crate) struct View {
    pub snapshot: Arc<dyn Snapshot>,
    pub horizon: Horizon,
}

impl View {
    pub fn new(db: &Db, container: &Container) -> Self {
        // The rule is asked for after `now` was taken.
        let horizon = container.runtime.ttl.horizon(db.now());
        Self { snapshot: db.engine.snapshot().into(), horizon }
    }
}

/// The items of a scope that are in one partition, at one snapshot and one `now`.
pub(crate) struct ItemScan {
    snapshot: Arc<dyn Snapshot>,
    partition: PartitionId,
    horizon: Horizon,
    filter: ScopeFilter,
    source: Source,
    /// What is still to be read.
    rest: Range<Bytes>,
    chunk: usize,
    items: usize,
    bytes: usize,
    entries: usize,
}

/// Which keys lead to the items.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    /// The items themselves.
    Items,
    /// Index entries that end with the ordinals of the items.
    Entries,
    /// A list of ordinals, the next one last.
    Ordinals(Vec<u64>),
}

/// Index entries that are gathered for a query; with more of them, the whole scope is read.
const GATHERED_MAX: usize = 50_000;

/// Which items belong to a scope.
pub(crate) struct ScopeFilter {
    definition: PartitionKeyDefinition,
    /// What the names of a partition key's items begin with.
    key: Option<Vec<u8>>,
    /// The hashes from and up to.
    hashes: Option<(String, String)>,
}

impl ScopeFilter {
    pub fn new(container: &Container, scope: &Scope) -> Result<Self> {
        if container.settings.layout.is_some() {
            return Err(not_json());
        }
        let definition = container.settings.partition_key.clone();
        let (key, hashes) = match scope {
            Scope::Container | Scope::Partition(_) => (None, None),
            Scope::Key(key) => (Some(encode_partition_key(key)), None),
            Scope::Hashes { min, max } => (None, Some((min.clone(), max.clone()))),
        };
        Ok(Self { definition, key, hashes })
    }

    pub fn admits(&self, record: &Record) -> bool {
        let hash_fits = |(min, max): &(String, String)| {
            let key = decode_partition_key(&record.name, self.definition.paths.len());
            key.is_ok_and(|key| {
                let hash = self.definition.hash(&key);
                *min <= hash && hash < *max
            })
        };
        self.key.as_ref().is_none_or(|key| record.name.starts_with(key))
            && self.hashes.as_ref().is_none_or(hash_fits)
    }
}

impl ItemScan {
    /// Begins a scan of a partition after an item, or at the beginning.
    pub fn new(
        view: &View,
        partition: PartitionId,
        filter: ScopeFilter,
        after: Option<u64>,
    ) -> Self {
        let (source, mut rest) = match &filter.key {
            Some(key) => (Source::Entries, member_range(partition, key)),
            None => (Source::Items, partition_range(partition)),
        };
        if let Some(ordinal) = after.map(|ordinal| ordinal + 1) {
            rest.start = match &filter.key {
                Some(key) => Key::Member { partition, key, ordinal }.encode(),
                None => Key::Item { partition, ordinal }.encode(),
            };
        }
        Self {
            snapshot: view.snapshot.clone(),
            partition,
            horizon: view.horizon,
            filter,
            source,
            rest,
            chunk: CHUNK_MIN,
            items: 0,
            bytes: 0,
            entries: 0,
        }
    }

    /// Goes by the index instead of reading the whole scope, if that is less.
    pub async fn go_by(&mut self, access: &Access, after: Option<u64>) -> Result<()> {
        let after = after.map_or(0, |ordinal| ordinal + 1);
        if let ([range], true, None) = (&access.ranges[..], access.points, &self.filter.key) {
            let start = [&range.start[..], &after.to_be_bytes()].concat();
            self.rest = start.into()..range.end.clone();
            self.source = Source::Entries;
            return Ok(());
        }
        let mut ordinals = Vec::new();
        for range in &access.ranges {
            let mut rest = range.clone();
            while rest.start < rest.end {
                let limit = CHUNK_MAX * 4;
                let pairs = self
                    .snapshot
                    .scan(Family::Index, rest.clone(), Direction::Forward, limit)
                    .await?;
                for (key, _) in &pairs {
                    ordinals.push(ordinal_of(key)?);
                }
                if ordinals.len() > GATHERED_MAX {
                    return Ok(());
                }
                rest.start = match pairs.last() {
                    Some((last, _)) if pairs.len() == limit => successor(last),
                    _ => rest.end.clone(),
                };
            }
        }
        self.entries += ordinals.len();
        ordinals.retain(|ordinal| *ordinal >= after);
        ordinals.sort_unstable_by(|a, b| b.cmp(a));
        ordinals.dedup();
        self.source = Source::Ordinals(ordinals);
        Ok(())
    }

    /// The next living items; none means that there are no more.
    pub async fn next(&mut self) -> Result<Vec<Stored>> {
        loop {
            let found = match &mut self.source {
                Source::Ordinals(ordinals) => {
                    if ordinals.is_empty() {
                        return Ok(Vec::new());
                    }
                    let left = ordinals.len() - self.chunk.min(ordinals.len());
                    let mut next = ordinals.split_off(left);
                    next.reverse();
                    self.fetch(next).await?
                }
                _ if self.rest.start >= self.rest.end => return Ok(Vec::new()),
                Source::Items => self.next_items().await?,
                Source::Entries => self.next_entries().await?,
            };
            self.items += found.len();
            let bytes: usize = found.iter().map(|stored| stored.record.body.len()).sum();
            self.bytes += bytes;
            if bytes < CHUNK_BYTES {
                self.chunk = (self.chunk * 2).min(CHUNK_MAX);
            }
            let living: Vec<Stored> =
                found.into_iter().filter(|stored| self.is_wanted(stored)).collect();
            if !living.is_empty() {
                return Ok(living);
            }
            // A long stretch without anything to show must not keep others waiting.
            tokio::task::yield_now().await;
        }
    }

    async fn next_items(&mut self) -> Result<Vec<Stored>> {
        let pairs = self.next_pairs(Family::Item).await?;
        pairs
            .into_iter()
            .map(|(key, value)| {
                Ok(Stored { ordinal: ordinal_of(&key)?, record: Record::decode(&key, value)? })
            })
            .collect()
    }

    async fn next_entries(&mut self) -> Result<Vec<Stored>> {
        let pairs = self.next_pairs(Family::Index).await?;
        self.entries += pairs.len();
        let ordinals =
            pairs.iter().map(|(key, _)| ordinal_of(key)).collect::<storage::Result<_>>()?;
        self.fetch(ordinals).await
    }

    async fn fetch(&self, ordinals: Vec<u64>) -> Result<Vec<Stored>> {
        let mut found = Vec::with_capacity(ordinals.len());
        for ordinal in ordinals {
            found.push(fetch(&*self.snapshot, self.partition, ordinal).await?);
        }
        Ok(found)
    }

    async fn next_pairs(&mut self, family: Family) -> Result<Vec<storage::Pair>> {
        let pairs =
            self.snapshot.scan(family, self.rest.clone(), Direction::Forward, self.chunk).await?;
        self.rest.start = match pairs.last() {
            Some((last, _)) if pairs.len() == self.chunk => successor(last),
            _ => self.rest.end.clone(),
        };
        Ok(pairs)
    }

    fn is_wanted(&self, stored: &Stored) -> bool {
        let record = &stored.record;
        self.horizon.is_live(record.ts, record.own_ttl) && self.filter.admits(record)
    }

    /// What the scan has cost so far.
    pub fn charge(&self) -> RequestCharge {
        charge::scan(self.items, self.bytes, self.entries)
    }
}

/// The item that an index entry names, dead or alive.
pub(crate) async fn fetch(
    snapshot: &dyn Snapshot,
    partition: PartitionId,
    ordinal: u64,
) -> Result<Stored> {
    let key = Key::Item { partition, ordinal }.encode();
    let value = snapshot.get(Family::Item, &key).await?.ok_or_else(|| {
        storage::Error::Corrupt(format!("an index entry names item {ordinal}, which is missing"))
    })?;
    Ok(Stored { ordinal, record: Record::decode(&key, value)? })
}

/// The smallest key after `key`.
pub(crate) fn successor(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}
