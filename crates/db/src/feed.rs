//! The change feed, latest version: each living item once, at its last change.
//!
//! A page holds the items' stored bytes themselves; whoever writes the answer adds what the wire wants to see with them.

use std::ops::Range;

use bytes::Bytes;
use model::clock::Timestamp;
use storage::{Direction, Family, Pair, Snapshot};

use crate::charge::{self, RequestCharge};
use crate::fan;
use crate::items::{PAGE_BYTES_MAX, Scope};
use crate::keys::{Key, PartitionId, ordinal_of, partition_range, position_of};
use crate::ranges::Target;
use crate::record::Record;
use crate::scan::{ScopeFilter, View, successor};
use crate::{Container, Db, Error, Reply, Result};

/// Where a reading of the change feed begins.
#[derive(Clone, Debug)]
pub enum ChangesRequest {
    /// With the first change.
    Beginning,
    /// With the next change after now.
    Now,
    /// With the changes at or after an instant.
    Since(Timestamp),
    /// After the etag of an earlier answer.
    After(String),
}

/// What of its changes a container shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangesMode {
    /// Each living item once, at its last change.
    Latest,
    /// Every version of every item, and that it went ([`crate::history`]).
    All,
}

/// A page of changes.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// In the order in which they happened in each partition.
    pub rows: Vec<Change>,
    /// Where to go on, quotes included; it is always there.
    pub etag: String,
}

/// A change that the feed shows.
#[derive(Clone, Debug)]
pub struct Change {
    /// Its number in its partition.
    pub lsn: u64,
    /// When it happened.
    pub ts: Timestamp,
    /// The item's JSON; of all versions the whole entry, as the wire shows it.
    pub json: Bytes,
}

/// How many changes are read at a time, at first and at most.
const CHUNK_MIN: usize = 64;
const CHUNK_MAX: usize = 512;

/// A chunk whose items have more bytes than this does not grow.
const CHUNK_BYTES: usize = 512 << 10;

/// What a feed entry says besides its key.
pub(crate) struct FeedEntry {
    pub lsn: u64,
    pub ordinal: u64,
    pub ts: Timestamp,
    /// Whether the item has an own ttl, and so does not follow the default.
    pub has_own_ttl: bool,
}

impl FeedEntry {
    pub fn decode(key: &[u8], value: &[u8]) -> storage::Result<Self> {
        let (ts, own) = value.split_first_chunk::<8>().ok_or_else(|| {
            storage::Error::Corrupt(format!(
                "a feed entry of {} bytes where 9 are expected",
                value.len()
            ))
        })?;
        Ok(Self {
            lsn: position_of(key)?,
            ordinal: ordinal_of(key)?,
            ts: Timestamp(u64::from_le_bytes(*ts)),
            has_own_ttl: own.first() != Some(&0),
        })
    }
}

impl Db {
    /// Changed items in the order of their last change in each partition; an empty page means "no changes" (304).
    pub async fn changes(
        &self,
        container: &Container,
        scope: &Scope,
        (mode, from): (ChangesMode, &ChangesRequest),
        items_max: usize,
    ) -> Reply<Changes> {
        let mut charge = charge::MISS;
        let (mut session, mut other_sessions) = (None, Vec::new());
        let result = async {
            if mode == ChangesMode::All {
                check_all_versions(container, from)?;
            }
            let targets = container.targets(scope)?;
            (session, other_sessions) = fan::sessions(&targets);
            self.admit_all(&targets)?;
            let heads = targets.iter().map(|target| target.partition.clone());
            self.look_at_heads(heads).await?;
            // Taken before the snapshot: they must not promise more than the snapshot shows.
            let bounds = |target: Target| {
                (target.partition.first_change.get()..target.partition.session().lsn, target)
            };
            let mut targets: Vec<(Range<u64>, Target)> = targets.into_iter().map(bounds).collect();
            let filter = ScopeFilter::new(container, scope)?;
            let read = FeedRead { view: View::new(self, container), filter, container };
            let known = match from {
                ChangesRequest::After(etag) => Some(FeedEtag::parse(etag)?),
                _ => None,
            };
            if let Some(etag) = &known {
                targets.sort_by_key(|(_, target)| etag.turn_of(target));
            }
            let mut page = FeedPage { items_max, ..FeedPage::default() };
            let (mut read_up_to, mut waiting) = (Vec::new(), Vec::new());
            for (bounds, target) in &targets {
                let (last, id) = (bounds.end, target.partition.id);
                let next = match (from, &known) {
                    (ChangesRequest::Now, _) => last + 1,
                    (ChangesRequest::Since(ts), _) => {
                        first_at(&*read.view.snapshot, id, *ts, last).await?
                    }
                    (_, Some(etag)) => etag.lsn_of(target).map_or(0, |lsn| lsn + 1),
                    // What the purge has passed holds only items with another fate, and dead keys: a reader that starts at the
                    // beginning still wants the former.
                    _ => 0,
                };
                if page.is_full() {
                    waiting.push((id.partition, next.saturating_sub(1)));
                    continue;
                }
                let cost = page.cost();
                let next = match mode {
                    ChangesMode::Latest => read.partition(target, next, bounds, &mut page).await?,
                    ChangesMode::All => {
                        read.check_retention(target, next)?;
                        read.versions(target, next, last, &mut page).await?
                    }
                };
                self.settle(&target.partition, RequestCharge(page.cost() - cost));
                read_up_to.push((id.partition, next.saturating_sub(1)));
            }
            charge.0 = charge.0.max(page.cost());
            // The next page begins with those that had to wait.
            waiting.append(&mut read_up_to);
            Ok(Changes { rows: page.rows, etag: FeedEtag(waiting).to_string() })
        }
        .await;
        Reply { result, charge, session, other_sessions }
    }
}

/// What a reading of the feed sees, and which of it it wants.
pub(crate) struct FeedRead<'a> {
    pub view: View,
    pub filter: ScopeFilter,
    pub container: &'a Container,
}

/// A page of the feed in the making.
#[derive(Default)]
pub(crate) struct FeedPage {
    rows: Vec<Change>,
    bytes: usize,
    looked: usize,
    items_max: usize,
}

impl FeedPage {
    pub fn is_full(&self) -> bool {
        self.rows.len() >= self.items_max || self.bytes > PAGE_BYTES_MAX
    }

    pub fn push(&mut self, change: Change) {
        self.bytes += change.json.len();
        self.rows.push(change);
    }

    /// How many more rows it takes.
    fn room(&self) -> usize {
        self.items_max.saturating_sub(self.rows.len())
    }

    /// One more change was looked at, shown or not.
    pub fn look(&mut self) {
        self.looked += 1;
    }

    fn cost(&self) -> f64 {
        charge::feed(self.looked, self.bytes).0
    }
}

impl FeedRead<'_> {
    /// Adds a partition's changes from `next` on; gives the change to go on with. Changes that share an lsn are never parted.
    async fn partition(
        &self,
        target: &Target,
        next: u64,
        bounds: &Range<u64>,
        page: &mut FeedPage,
    ) -> Result<u64> {
        let partition = target.partition.id;
        let mut from_the_start = next <= bounds.start;
        let mut next = next.max(bounds.start);
        let mut range = feed_from(partition, next);
        let mut chunk = CHUNK_MIN;
        loop {
            let snapshot = &self.view.snapshot;
            let pairs =
                snapshot.scan(Family::Feed, range.clone(), Direction::Forward, chunk).await?;
            let decode = |(key, value): &Pair| FeedEntry::decode(key, value);
            let entries: Vec<FeedEntry> =
                pairs.iter().map(decode).collect::<storage::Result<_>>()?;
            let mut bytes = 0;
            for (entry, item) in entries.iter().zip(self.items(partition, &entries).await?) {
                if page.is_full() && entry.lsn >= next {
                    return Ok(next);
                }
                next = entry.lsn + 1;
                page.look();
                if from_the_start {
                    target.partition.first_change.advance(entry.lsn);
                }
                let Some((key, value)) = item else { continue };
                bytes += value.len();
                from_the_start &= !self.show(target, Record::decode(&key, value)?, page);
            }
            match pairs.last() {
                Some((last, _)) if pairs.len() == chunk => range.start = successor(last),
                _ => return Ok(next.max(bounds.end + 1)),
            }
            if bytes < CHUNK_BYTES {
                chunk = (2 * chunk).min(CHUNK_MAX);
            }
            tokio::task::yield_now().await;
            // Behind dead items there is no haste.
            let calm = !from_the_start && in_step(&entries);
            if let Some(last) = entries.last().filter(|_| calm) {
                let passed = self.along_items(target, last.ordinal + 1, next, page).await?;
                if passed > next {
                    (next, range.start) = (passed, feed_from(partition, passed).start);
                }
                if page.is_full() {
                    return Ok(next);
                }
            }
        }
    }

    /// Adds the items from `ordinal` on, as long as each is all there is of the very next change: where items were only ever created,
    /// their order is the feed's, and the feed itself need not be read. Gives the change to go on with.
    async fn along_items(
        &self,
        target: &Target,
        ordinal: u64,
        mut next: u64,
        page: &mut FeedPage,
    ) -> Result<u64> {
        let partition = target.partition.id;
        let mut range = Key::Item { partition, ordinal }.encode()..partition_range(partition).end;
        let mut chunk = CHUNK_MIN;
        while !page.is_full() {
            let limit = chunk.min(page.room());
            let pairs = self
                .view
                .snapshot
                .scan(Family::Item, range.clone(), Direction::Forward, limit)
                .await?;
            match pairs.last() {
                Some((last, _)) => range.start = successor(last),
                None => break,
            }
            let (read, mut bytes) = (pairs.len(), 0);
            for (key, value) in pairs {
                bytes += value.len();
                let record = Record::decode(&key, value)?;
                if record.lsn != next || !record.alone || page.is_full() {
                    return Ok(next);
                }
                next += 1;
                page.look();
                self.show(target, record, page);
            }
            if read < limit {
                break;
            }
            if bytes < CHUNK_BYTES {
                chunk = (2 * chunk).min(CHUNK_MAX);
            }
            tokio::task::yield_now().await;
        }
        Ok(next)
    }

    /// Adds a changed item to the page, if it lives and is asked for; whether it lives.
    fn show(&self, target: &Target, record: Record, page: &mut FeedPage) -> bool {
        let Record { lsn, ts, own_ttl, name, body, .. } = record;
        let live = self.view.horizon.is_live(ts, own_ttl);
        if live && (target.whole || self.filter.admits_name(&name)) {
            page.push(Change { lsn, ts, json: body });
        }
        live
    }

    /// The stored items of these changes. Those that were written one after the other lie side by side and are read in one go.
    async fn items(
        &self,
        partition: PartitionId,
        entries: &[FeedEntry],
    ) -> Result<Vec<Option<Pair>>> {
        let snapshot = &self.view.snapshot;
        let key = |ordinal| Key::Item { partition, ordinal }.encode();
        let ordinals = || entries.iter().map(|entry| entry.ordinal);
        let (first, last) = (ordinals().min().unwrap_or(0), ordinals().max().unwrap_or(0));
        let mut found = Vec::with_capacity(entries.len());
        if last - first < 2 * entries.len() as u64 {
            let side_by_side = key(first)..key(last + 1);
            let mut pairs = snapshot
                .scan(Family::Item, side_by_side, Direction::Forward, 2 * entries.len())
                .await?;
            let stored: Vec<u64> =
                pairs.iter().map(|(key, _)| position_of(key)).collect::<storage::Result<_>>()?;
            let mut at = 0;
            for ordinal in ordinals() {
                // It is the next one, unless something between was changed or removed.
                if stored.get(at) != Some(&ordinal) {
                    at = stored.binary_search(&ordinal).unwrap_or(stored.len());
                }
                // An item has one place in the feed, so nobody else wants it.
                found.push(pairs.get_mut(at).map(std::mem::take));
                at += 1;
            }
        } else {
            for key in ordinals().map(key) {
                let value = snapshot.get(Family::Item, &key).await?;
                found.push(value.map(|value| (key, value)));
            }
        }
        Ok(found)
    }
}

/// Whether these changes are those of items that were made one after the other.
fn in_step(entries: &[FeedEntry]) -> bool {
    let follows = |pair: &[FeedEntry]| {
        pair[0].lsn + 1 == pair[1].lsn && pair[0].ordinal + 1 == pair[1].ordinal
    };
    entries.windows(2).all(follows)
}

/// Whether all versions can be read from there.
fn check_all_versions(container: &Container, from: &ChangesRequest) -> Result<()> {
    if container.settings.history.is_none() {
        return Err(Error::Invalid(
            "The change feed mode All Versions and Deletes must be enabled for this container: set its \
             changeFeedPolicy.retentionDuration to the minutes that changes are to be kept for."
                .into(),
        ));
    }
    match from {
        ChangesRequest::Now | ChangesRequest::After(_) => Ok(()),
        ChangesRequest::Beginning | ChangesRequest::Since(_) => Err(Error::Invalid(
            "You must read the change feed from within the retention period. The mode All Versions and Deletes begins now \
             (If-None-Match: *), or at the etag of an earlier answer."
                .into(),
        )),
    }
}

/// How far a client has read the feed: one lsn, or one for each partition in the order in which it is their turn.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FeedEtag(Vec<(u32, u64)>);

/// Stands for all partitions: what a client that reads one of them is told.
const ANY: u32 = u32::MAX;

impl FeedEtag {
    fn parse(etag: &str) -> Result<Self> {
        let text = etag.trim_matches('"');
        let entry = |entry: &str| match entry.split_once(':') {
            Some((partition, lsn)) => Some((partition.parse().ok()?, lsn.parse().ok()?)),
            None => Some((ANY, entry.parse().ok()?)),
        };
        let entries: Option<Vec<(u32, u64)>> = text.split(',').map(entry).collect();
        entries
            .map(Self)
            .ok_or_else(|| Error::Invalid(format!("The change feed's etag {etag} is invalid.")))
    }

    /// How far a partition has been read; a child goes on where its parent stopped.
    fn lsn_of(&self, target: &Target) -> Option<u64> {
        let span = &target.partition.span;
        let own = self.0.iter().find(|(partition, _)| *partition == span.number);
        let ancestor = || self.0.iter().rfind(|(partition, _)| span.comes_from(*partition));
        let any = || self.0.iter().find(|(partition, _)| *partition == ANY);
        own.or_else(ancestor).or_else(any).map(|(_, lsn)| *lsn)
    }

    /// When it is a partition's turn.
    fn turn_of(&self, target: &Target) -> Option<usize> {
        self.0.iter().position(|(partition, _)| target.partition.span.comes_from(*partition))
    }
}

impl std::fmt::Display for FeedEtag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0[..] {
            [(_, lsn)] => write!(f, "\"{lsn}\""),
            all => {
                let text = all.iter().map(|(partition, lsn)| format!("{partition}:{lsn}"));
                write!(f, "\"{}\"", text.collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// The feed from a change on.
pub(crate) fn feed_from(partition: PartitionId, lsn: u64) -> Range<Bytes> {
    Key::Feed { partition, lsn, ordinal: 0 }.encode()..partition_range(partition).end
}

/// The first change at or after an instant: `_ts` never decreases along the feed, so halving finds it.
async fn first_at(
    snapshot: &dyn Snapshot,
    partition: PartitionId,
    ts: Timestamp,
    last: u64,
) -> Result<u64> {
    let (mut low, mut high) = (0, last + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        let found = snapshot
            .scan(Family::Feed, feed_from(partition, middle), Direction::Forward, 1)
            .await?;
        match found.first().map(|(key, value)| FeedEntry::decode(key, value)).transpose()? {
            Some(entry) if entry.ts < ts => low = entry.lsn + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}
