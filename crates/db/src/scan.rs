//! Scans: the living items of a scope in the order of their creation, or of an index, a page of the store at a time.
//!
//! Lists, queries and everything else that yields more than one item goes through [`ItemScan`] (documents: [`crate::documents::DocumentScan`]),
//! and so through the horizon. There is no other way.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use model::clock::Timestamp;
use model::partition_key::PartitionKeyDefinition;
use model::ttl::{Horizon, Ttl};
use query::Compiled;
use storage::{Direction, Family, Snapshot};

use crate::access::Access;
use crate::charge::{self, RequestCharge};
use crate::documents::not_json;
use crate::feed::{FeedEntry, feed_from};
use crate::index::shape_term;
use crate::items::Scope;
use crate::keys::{
    Key, PartitionId, decode_partition_key, encode_partition_key, member_range, ordinal_of,
    partition_range, position_of, term_range,
};
use crate::order::{self, Order, Shape, Step, Walk};
use crate::partition::Head;
use crate::record::Record;
use crate::writer::Stored;
use crate::{Container, Db, Result, Settings};

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
    /// The settings in force at the snapshot, if the index can be relied on there.
    pub indexed: Option<Arc<Settings>>,
}

impl View {
    pub fn new(db: &Db, container: &Container) -> Self {
        // The rule is asked for after `now` was taken.
        let horizon = container.runtime.ttl.horizon(db.now());
        // Settings that are the same before and after are those of the snapshot between.
        let settings = container.runtime.settings();
        let snapshot = db.engine.snapshot().into();
        let same = Arc::ptr_eq(&settings, &container.runtime.settings());
        let indexed = Some(settings).filter(|settings| same && settings.is_indexed());
        Self { snapshot, horizon, indexed }
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
    /// The first living item, or how far the scan has come without meeting one.
    first_item: Option<u64>,
    met_living: bool,
    chunk: usize,
    items: usize,
    bytes: usize,
    entries: usize,
    by_index: bool,
}

/// Which keys lead to the items.
enum Source {
    /// The items themselves.
    Items,
    /// Index entries that end with the ordinals of the items.
    Entries,
    /// A list of ordinals, the next one last.
    Ordinals(Vec<u64>),
    /// An index in the order that the query asks for.
    Ordered(Box<Walk>),
}

/// Index entries that are gathered for a query; with more of them, the whole scope is read.
const GATHERED_MAX: usize = 50_000;

/// With more entries of one value, what else is asked of the items is asked as they come.
const STREAMED_MIN: usize = 4_096;

/// So few items are rather read than looked for in one more index.
const FEW: usize = 64;

/// Index entries that may be read to save reading an item.
const ENTRIES_PER_ITEM: usize = 8;

/// A partition key with fewer items is read as a whole.
const SMALL_SCOPE: usize = 1_000;

/// Dead items that a count holds in memory.
const DEAD_MAX: usize = 1_000_000;

/// The most bytes of keys held to sort items that an index does not tell apart.
const SORT_BYTES_MAX: usize = 64 << 20;

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

    /// All items, whatever they are made of.
    pub fn everything(container: &Container) -> Self {
        Self { definition: container.settings.partition_key.clone(), key: None, hashes: None }
    }

    pub fn admits(&self, record: &Record) -> bool {
        self.admits_name(&record.name)
    }

    /// Whether the item with a name belongs to the scope.
    pub fn admits_name(&self, name: &[u8]) -> bool {
        let hash_fits = |(min, max): &(String, String)| {
            let key = decode_partition_key(name, self.definition.paths.len());
            key.is_ok_and(|key| {
                let hash = self.definition.hash(&key);
                *min <= hash && hash < *max
            })
        };
        self.key.as_ref().is_none_or(|key| name.starts_with(key))
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
            first_item: None,
            met_living: false,
            chunk: CHUNK_MIN,
            items: 0,
            bytes: 0,
            entries: 0,
            by_index: false,
        }
    }

    /// Goes by the index instead of reading the whole scope, if that is less; whether it does. If it must be `few` items, even the only way
    /// is not taken to more than are gathered.
    pub async fn go_by(&mut self, access: &Access, after: Option<u64>, few: bool) -> Result<bool> {
        let after = after.map_or(0, |ordinal| ordinal + 1);
        // The entries of one value come in the order of creation, so they need not be gathered.
        let stream = match (&access.ranges[..], access.points && !few, &self.filter.key) {
            ([range], true, None) => Some(range),
            _ => None,
        };
        let entries_max = match (stream, &access.also[..]) {
            (Some(_), []) => 0,
            (Some(_), _) => STREAMED_MIN,
            (None, _) => GATHERED_MAX,
        };
        let mut ways = std::iter::once(access).chain(&access.also);
        let mut found = None;
        while let (None, Some(way)) = (&found, ways.next().filter(|_| entries_max > 0)) {
            found = self.gather(way, after, entries_max).await?;
        }
        let Some(mut ordinals) = found else {
            if let Some(range) = stream {
                let start = [&range.start[..], &after.to_be_bytes()].concat();
                self.rest = start.into()..range.end.clone();
                self.source = Source::Entries;
                self.by_index = true;
            }
            return Ok(stream.is_some());
        };
        let members = self.filter.key.as_ref().map(|key| Access {
            ranges: vec![member_range(self.partition, key)],
            ..Access::default()
        });
        for way in ways.chain(&members) {
            // Reading entries pays while it is much cheaper than reading the items.
            let budget = ordinals.len() * ENTRIES_PER_ITEM;
            if ordinals.len() > FEW
                && let Some(also) = self.gather(way, after, budget).await?
            {
                ordinals.retain(|ordinal| also.binary_search(ordinal).is_ok());
            }
        }
        ordinals.reverse();
        self.source = Source::Ordinals(ordinals);
        Ok(true)
    }

    /// The ordinals that a way leads to from `after` on, in order; `None` if it has more entries than that.
    async fn gather(&mut self, way: &Access, after: u64, max: usize) -> Result<Option<Vec<u64>>> {
        let mut ranges = way.ranges.clone();
        if !way.defined.is_empty() {
            let Some(shapes) = order::shapes(&*self.snapshot, self.partition).await? else {
                return Ok(None);
            };
            let has =
                |shape: &&Shape| way.defined.iter().any(|path| path.find(&shape.sample).is_some());
            let shapes = shapes.iter().filter(has).map(|shape| shape_term(shape.number));
            ranges.extend(shapes.map(|term| term_range(self.partition, &term)));
        }
        let mut ordinals = Vec::new();
        let mut entries = 0;
        for mut rest in ranges {
            while rest.start < rest.end {
                let pairs = self.page(Family::Index, &mut rest).await?;
                entries += pairs.len();
                for (key, _) in &pairs {
                    ordinals.push(ordinal_of(key)?);
                }
                if entries > max {
                    return Ok(None);
                }
            }
        }
        ordinals.retain(|ordinal| *ordinal >= after);
        ordinals.sort_unstable();
        ordinals.dedup();
        Ok(Some(ordinals))
    }

    /// Whether the scope is so small that its items are best read by themselves.
    pub async fn is_small(&self) -> Result<bool> {
        let Some(key) = &self.filter.key else { return Ok(false) };
        let range = member_range(self.partition, key);
        let members =
            self.snapshot.scan(Family::Index, range, Direction::Forward, SMALL_SCOPE).await?;
        Ok(members.len() < SMALL_SCOPE)
    }

    /// Goes through the items in an order that an index holds; whether it can.
    pub async fn go_in_order(
        &mut self,
        mut order: Order,
        query: &Arc<Compiled>,
        after: Option<&query::Position>,
    ) -> Result<bool> {
        let can = order.prepare(&*self.snapshot).await?;
        if can {
            self.source = Source::Ordered(Box::new(order.walk(query.clone(), after)));
        }
        Ok(can)
    }

    /// The ORDER BY keys of an item, where the scan goes in order.
    pub fn sort_key(&self, stored: &Stored) -> Result<Vec<u8>> {
        match &self.source {
            Source::Ordered(walk) => walk.sort_key(&stored.record.body),
            _ => Ok(Vec::new()),
        }
    }

    /// Items read so far, dead ones included.
    pub fn items(&self) -> usize {
        self.items
    }

    /// How many living items there are in all of the scope, or in ranges of the index that hold each item once. No item is read; `None` if
    /// that cannot be said, or not cheaply.
    pub async fn count(&mut self, ranges: Option<Vec<Range<Bytes>>>) -> Result<Option<u64>> {
        if self.filter.hashes.is_some() || (ranges.is_some() && self.filter.key.is_some()) {
            return Ok(None);
        }
        let head = self.snapshot.get(Family::Catalog, &Key::Head(self.partition).encode()).await?;
        let Some(head) = head else { return Ok(None) };
        let head = Head::decode(&head)?;
        let Some(dead) = self.dead(&head).await? else { return Ok(None) };
        let ranges = match (ranges, &self.filter.key) {
            (Some(ranges), _) => ranges,
            (None, Some(key)) => vec![member_range(self.partition, key)],
            (None, None) => return Ok(Some(head.items.saturating_sub(dead.len() as u64))),
        };
        let mut count = 0;
        for mut rest in ranges {
            while rest.start < rest.end {
                for (key, _) in self.page(Family::Index, &mut rest).await? {
                    let is_dead = !dead.is_empty() && dead.contains(&ordinal_of(&key)?);
                    count += u64::from(!is_dead);
                }
            }
        }
        Ok(Some(count))
    }

    /// The items that are dead and not yet purged: they lie between the purge's cursors and the horizon. `None` if they are too many.
    async fn dead(&mut self, head: &Head) -> Result<Option<HashSet<u64>>> {
        let (partition, end) = (self.partition, partition_range(self.partition).end);
        let mut dead = HashSet::new();
        if self.horizon.own.is_some() {
            let start = Key::Expiry { partition, at: head.expiry_cursor, ordinal: 0 }.encode();
            let mut rest = start..end.clone();
            'own: while rest.start < rest.end {
                for (key, _) in self.page(Family::Expiry, &mut rest).await? {
                    if self.horizon.is_live_with(Timestamp(position_of(&key)?)) {
                        break 'own;
                    }
                    dead.insert(ordinal_of(&key)?);
                }
                if dead.len() > DEAD_MAX {
                    return Ok(None);
                }
            }
        }
        if self.horizon.inherited.is_some() {
            let mut rest = feed_from(partition, head.feed_cursor);
            'inherited: while rest.start < rest.end {
                for (key, value) in self.page(Family::Feed, &mut rest).await? {
                    let entry = FeedEntry::decode(&key, &value)?;
                    // Along the feed items are ever younger.
                    if self.horizon.is_live(entry.ts, Ttl::Absent) {
                        break 'inherited;
                    }
                    if !entry.has_own_ttl {
                        dead.insert(entry.ordinal);
                    }
                }
                if dead.len() > DEAD_MAX {
                    return Ok(None);
                }
            }
        }
        Ok(Some(dead))
    }

    /// The next entries of a range, which is then shorter by them.
    async fn page(
        &mut self,
        family: Family,
        rest: &mut Range<Bytes>,
    ) -> Result<Vec<storage::Pair>> {
        let limit = CHUNK_MAX * 4;
        let pairs = self.snapshot.scan(family, rest.clone(), Direction::Forward, limit).await?;
        self.entries += pairs.len();
        rest.start = match pairs.last() {
            Some((last, _)) if pairs.len() == limit => {
                tokio::task::yield_now().await;
                successor(last)
            }
            _ => rest.end.clone(),
        };
        Ok(pairs)
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
                Source::Ordered(walk) => match walk.next(&*self.snapshot, self.chunk).await? {
                    Step::End => return Ok(Vec::new()),
                    Step::Sorted(ordinals) => self.fetch(ordinals).await?,
                    Step::Unsorted(ordinals) => {
                        self.sort(ordinals).await?;
                        continue;
                    }
                },
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
            self.look_for_the_first(&found);
            let living: Vec<Stored> =
                found.into_iter().filter(|stored| self.is_wanted(stored)).collect();
            if !living.is_empty() {
                return Ok(living);
            }
            // A long stretch without anything to show must not keep others waiting.
            tokio::task::yield_now().await;
        }
    }

    /// Notes the first item that is alive, if a scan of all items has met none before.
    fn look_for_the_first(&mut self, found: &[Stored]) {
        if self.met_living || !matches!(self.source, Source::Items) {
            return;
        }
        let is_live =
            |stored: &&Stored| self.horizon.is_live(stored.record.ts, stored.record.own_ttl);
        let first = found.iter().find(is_live);
        self.met_living = first.is_some();
        let dead = || found.last().map(|last| last.ordinal + 1);
        self.first_item = first.map(|first| first.ordinal).or_else(dead).or(self.first_item);
    }

    /// Between where the scan began and this item all are gone or dead, if the scan can tell.
    pub fn first_item(&self) -> Option<u64> {
        self.first_item
    }

    /// Sorts items that an index does not tell apart, and hands them back to the walk.
    async fn sort(&mut self, ordinals: Vec<u64>) -> Result<()> {
        let (mut keys, mut bytes) = (Vec::with_capacity(ordinals.len()), 0);
        for ordinals in ordinals.chunks(CHUNK_MAX) {
            let found = self.fetch(ordinals.to_vec()).await?;
            self.items += found.len();
            for stored in found.iter().filter(|stored| self.is_wanted(stored)) {
                let Source::Ordered(walk) = &self.source else { return Ok(()) };
                let key = walk.sort_key(&stored.record.body)?;
                bytes += key.len() + size_of::<(Vec<u8>, u64)>();
                if bytes > SORT_BYTES_MAX {
                    return Err(query::Error::Memory { what: "sort", max: SORT_BYTES_MAX }.into());
                }
                keys.push((key, stored.ordinal));
            }
            tokio::task::yield_now().await;
        }
        keys.sort_unstable();
        if let Source::Ordered(walk) = &mut self.source {
            walk.put_back(keys.into_iter().map(|(_, ordinal)| ordinal).collect());
        }
        Ok(())
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

    /// What the scan has read so far.
    pub fn tally(&self) -> Read {
        let walked = if let Source::Ordered(walk) = &self.source { walk.entries } else { 0 };
        Read { items: self.items, bytes: self.bytes, entries: self.entries + walked }
    }

    /// Whether an index on what the query asks for leads to the items.
    pub fn is_by_index(&self) -> bool {
        match &self.source {
            Source::Items => false,
            Source::Entries => self.by_index,
            Source::Ordinals(_) | Source::Ordered(_) => true,
        }
    }
}

/// What a scan has read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Read {
    /// Items, dead ones included.
    pub items: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Index entries.
    pub entries: usize,
}

impl Read {
    /// What it costs.
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
