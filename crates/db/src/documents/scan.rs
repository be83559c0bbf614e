//! Scans of documents: the living ones that a route leads to, a page of the store at a time.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use model::clock::Timestamp;
use model::ttl::Ttl;
use storage::{Direction, Family, Snapshot};

use crate::charge::{self, RequestCharge};
use crate::container::Runtime;
use crate::feed::FeedEntry;
use crate::keys::{Key, PartitionId, ordinal_of, partition_range, term_range};
use crate::record::Record;
use crate::scan::{ItemScan, ScopeFilter, View, fetch, successor};
use crate::writer::{Stored, ordinal_of_value};
use crate::{Container, Db, Reply, Result};

/// How many are read at a time, at first and at most.
const CHUNK_MIN: usize = 16;
const CHUNK_MAX: usize = 512;

/// Which documents, and in which order.
#[derive(Clone, Debug)]
pub enum Route {
    /// All, in the order of their creation.
    All,
    /// Those made after the one with this number, in the same order.
    After(u64),
    /// Those with these names, in this order.
    Names(Vec<Bytes>),
    /// Those whose name lies in a range, in the order of names.
    Named {
        /// The first name and the first beyond.
        range: Range<Vec<u8>>,
        /// Last one first.
        backward: bool,
    },
    /// Those that have a term within the ranges, in the order of the terms.
    Terms {
        /// Beginnings of terms: from the first that begins with `start` up to those below `end`.
        ranges: Vec<Range<Vec<u8>>>,
        /// Last one first.
        backward: bool,
    },
}

/// A document that was alive when it was read, and what decides whether it still is.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its bytes.
    pub body: Bytes,
    /// Its name.
    pub name: Bytes,
    /// The change that wrote it.
    pub lsn: u64,
    /// Its number in the order of creation.
    pub(crate) ordinal: u64,
    pub(crate) ts: Timestamp,
    pub(crate) own_ttl: Ttl,
}

/// A scan at one snapshot.
pub struct DocumentScan {
    snapshot: Box<dyn Snapshot>,
    runtime: Arc<Runtime>,
    partition: PartitionId,
    stretches: VecDeque<Stretch>,
    names: VecDeque<Bytes>,
    backward: bool,
    /// Documents already given: one may have several terms.
    seen: Option<HashSet<u64>>,
    chunk: usize,
    items: usize,
    bytes: usize,
    entries: usize,
}

/// Keys that are still to be read.
struct Stretch {
    family: Family,
    rest: Range<Bytes>,
}

impl Db {
    /// Begins a scan.
    pub fn scan_documents(&self, container: &Container, route: Route) -> DocumentScan {
        let partition = container.partition().id;
        let stretch = |family, rest| VecDeque::from([Stretch { family, rest }]);
        let (mut names, mut seen) = (VecDeque::new(), None);
        let (stretches, backward) = match route {
            Route::All => (stretch(Family::Item, partition_range(partition)), false),
            Route::After(ordinal) => {
                let start = Key::Item { partition, ordinal: ordinal + 1 }.encode();
                (stretch(Family::Item, start..partition_range(partition).end), false)
            }
            Route::Names(wanted) => {
                names = wanted.into();
                (VecDeque::new(), false)
            }
            Route::Named { range, backward } => {
                let key = |name: &[u8]| Key::Id { partition, name }.encode();
                (stretch(Family::Id, key(&range.start)..key(&range.end)), backward)
            }
            Route::Terms { ranges, backward } => {
                seen = Some(HashSet::new());
                let key = |term: &[u8]| term_range(partition, term).start;
                let one = |range: Range<Vec<u8>>| Stretch {
                    family: Family::Index,
                    rest: key(&range.start)..key(&range.end),
                };
                (ranges.into_iter().map(one).collect(), backward)
            }
        };
        DocumentScan {
            snapshot: self.engine.snapshot(),
            runtime: container.runtime.clone(),
            partition,
            stretches,
            names,
            backward,
            seen,
            chunk: CHUNK_MIN,
            items: 0,
            bytes: 0,
            entries: 0,
        }
    }

    /// How many documents are alive. They are not read, unless there are very many dead ones among them.
    pub async fn count_documents(&self, container: &Container) -> Reply<u64> {
        let partition = container.partition();
        let session = Some(partition.session());
        let view = View::new(self, container);
        let mut scan = ItemScan::new(&view, partition.id, ScopeFilter::everything(container), None);
        let result = async {
            self.admit(partition)?;
            if let Some(count) = scan.count(None).await? {
                return Ok(count);
            }
            let mut count = 0;
            loop {
                match scan.next().await?.len() {
                    0 => return Ok(count),
                    found => count += found as u64,
                }
            }
        }
        .await;
        let charge = scan.tally().charge();
        self.settle(partition, charge);
        Reply { result, charge, session, other_sessions: Vec::new() }
    }

    /// Whether a document that was read earlier is still alive: a cursor asks before it gives it.
    pub fn is_alive(&self, container: &Container, document: &Document) -> bool {
        let horizon = container.runtime.ttl.horizon(self.now());
        horizon.is_live(document.ts, document.own_ttl)
    }

    /// Lets a scan begin or go on, or says when to come again.
    pub fn admit_scan(&self, container: &Container) -> Result<()> {
        self.admit(container.partition())
    }

    /// Books what a scan has cost.
    pub fn settle_scan(&self, container: &Container, charge: RequestCharge) {
        self.settle(container.partition(), charge);
    }
}

/// Where a reader of a collection's changes stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangePosition {
    /// The last change that was read.
    pub lsn: u64,
    /// The document of that change that was read last.
    pub ordinal: u64,
    /// The newest document that was known: one beyond it is new.
    pub newest: u64,
}

/// A living document at its last change.
#[derive(Clone, Debug)]
pub struct DocumentChange {
    /// The document.
    pub document: Document,
    /// Where a reader stands that has read it.
    pub position: ChangePosition,
    /// Whether the reader had not seen it before.
    pub is_new: bool,
}

impl DocumentChange {
    /// When it was changed.
    pub fn ts(&self) -> Timestamp {
        self.document.ts
    }
}

impl Db {
    /// Where a reader stands that wants only what comes from now on.
    pub fn change_position(&self, container: &Container) -> ChangePosition {
        let head = container.partition().head();
        ChangePosition { lsn: head.lsn, ordinal: u64::MAX - 1, newest: head.ordinal }
    }

    /// The next changes after a position, at most so many: each living document once, at its last change.
    pub async fn document_changes(
        &self,
        container: &Container,
        after: ChangePosition,
        changes_max: usize,
    ) -> Result<Vec<DocumentChange>> {
        let partition = container.partition().id;
        let horizon = container.runtime.ttl.horizon(self.now());
        let snapshot = self.engine.snapshot();
        let start = Key::Feed { partition, lsn: after.lsn, ordinal: after.ordinal + 1 }.encode();
        let range = start..partition_range(partition).end;
        let pairs = snapshot.scan(Family::Feed, range, Direction::Forward, changes_max).await?;
        let (mut changes, mut position) = (Vec::with_capacity(pairs.len()), after);
        for (key, value) in &pairs {
            let entry = FeedEntry::decode(key, value)?;
            let stored = fetch(&*snapshot, partition, entry.ordinal).await?;
            let is_new = entry.ordinal > position.newest;
            position.lsn = entry.lsn;
            position.ordinal = entry.ordinal;
            position.newest = position.newest.max(entry.ordinal);
            if horizon.is_live(stored.record.ts, stored.record.own_ttl) {
                changes.push(DocumentChange { document: Document::of(stored), position, is_new });
            }
        }
        Ok(changes)
    }
}

impl DocumentScan {
    /// The next living documents, as of `now`; none means that there are no more.
    pub async fn next(&mut self, now: Timestamp) -> Result<Vec<Document>> {
        let horizon = self.runtime.ttl.horizon(now);
        loop {
            let Some(found) = self.next_stored().await? else { return Ok(Vec::new()) };
            self.items += found.len();
            self.bytes += found.iter().map(|stored| stored.record.body.len()).sum::<usize>();
            self.chunk = (self.chunk * 2).min(CHUNK_MAX);
            let living: Vec<Document> = found
                .into_iter()
                .filter(|Stored { record, .. }| horizon.is_live(record.ts, record.own_ttl))
                .map(Document::of)
                .collect();
            if !living.is_empty() {
                return Ok(living);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Whether the first so many ranges hold nothing at all; they are passed over then.
    pub async fn skip_empty(&mut self, ranges: usize) -> Result<bool> {
        for Stretch { family, rest } in self.stretches.iter().take(ranges) {
            let found = match rest.start < rest.end {
                true => self.snapshot.scan(*family, rest.clone(), Direction::Forward, 1).await?,
                false => Vec::new(),
            };
            if !found.is_empty() {
                return Ok(false);
            }
        }
        drop(self.stretches.drain(..ranges.min(self.stretches.len())));
        Ok(true)
    }

    /// What the scan has cost so far.
    pub fn charge(&self) -> RequestCharge {
        charge::scan(self.items, self.bytes, self.entries)
    }

    /// Documents and index entries looked at so far.
    pub fn looked_at(&self) -> (usize, usize) {
        (self.items, self.entries)
    }

    async fn next_stored(&mut self) -> Result<Option<Vec<Stored>>> {
        if !self.names.is_empty() {
            return self.next_named().await.map(Some);
        }
        let chunk = self.chunk;
        let Some(stretch) = self.stretches.front_mut() else { return Ok(None) };
        let direction = if self.backward { Direction::Backward } else { Direction::Forward };
        let family = stretch.family;
        let pairs = match stretch.rest.start < stretch.rest.end {
            true => self.snapshot.scan(family, stretch.rest.clone(), direction, chunk).await?,
            false => Vec::new(),
        };
        match pairs.last() {
            Some((last, _)) if pairs.len() == chunk && self.backward => {
                stretch.rest.end = last.clone();
            }
            Some((last, _)) if pairs.len() == chunk => stretch.rest.start = successor(last),
            _ => drop(self.stretches.pop_front()),
        }
        let mut found = Vec::with_capacity(pairs.len());
        for (key, value) in pairs {
            let ordinal = match family {
                Family::Id => ordinal_of_value(&value)?,
                _ => ordinal_of(&key)?,
            };
            if let Some(seen) = &mut self.seen {
                self.entries += 1;
                if !seen.insert(ordinal) {
                    continue;
                }
            }
            found.push(match family {
                Family::Item => Stored { ordinal, record: Record::decode(&key, value)? },
                _ => fetch(&*self.snapshot, self.partition, ordinal).await?,
            });
        }
        Ok(Some(found))
    }

    async fn next_named(&mut self) -> Result<Vec<Stored>> {
        let mut found = Vec::new();
        for _ in 0..self.chunk {
            let Some(name) = self.names.pop_front() else { break };
            let key = Key::Id { partition: self.partition, name: &name }.encode();
            if let Some(ordinal) = self.snapshot.get(Family::Id, &key).await? {
                let ordinal = ordinal_of_value(&ordinal)?;
                found.push(fetch(&*self.snapshot, self.partition, ordinal).await?);
            }
        }
        Ok(found)
    }
}

impl Document {
    /// One that is not stored yet: nothing can have expired it.
    pub fn new(name: Bytes, body: Bytes) -> Self {
        let ts = Timestamp(u64::MAX / 2);
        Self { body, name, lsn: 0, ordinal: 0, ts, own_ttl: Ttl::Never }
    }

    fn of(Stored { ordinal, record }: Stored) -> Self {
        let Record { lsn, ts, own_ttl, name, body, .. } = record;
        Self { body, name, lsn, ordinal, ts, own_ttl }
    }
}
