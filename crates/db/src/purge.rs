//! The purge: expired items leave storage, in the order of their expiry, within what clients have left over.
//!
//! Dead items lie between a partition's cursors and its horizon, in the feed (those that follow the default) and in the expiry order
//! (those with an own ttl). A round removes some of them and moves the cursors, in one batch; it never begins at the head,
//! so it never crosses what it has already removed, and its work is proportional to what has expired (R22).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use model::clock::Timestamp;
use model::ttl::{DefaultTtl, TtlState};
use storage::{Batch, Direction, Family};
use tokio::sync::{Notify, oneshot};

use crate::charge;
use crate::container::Container;
use crate::feed::{FeedEntry, feed_from};
use crate::keys::{
    Key, catalog_range, container_range, partition_range, partitions_range, position_of,
};
use crate::partition::Partition;
use crate::writer::{Op, Round};
use crate::{Db, Error, Result};

/// The most items that one round removes: small enough that a client's write behind it hardly waits.
pub(crate) const ROUND_ITEMS_MAX: usize = 128;

/// The same while the purge keeps up: smaller rounds are felt less by clients, but more of them are needed.
const ROUND_ITEMS_IN_TIME: usize = 64;

/// An item that has been dead for longer is purged late.
const LATE_SECS: u64 = 1;

/// What removing an item is taken to cost before it is known.
const ITEM_CHARGE: f64 = 6.0;

/// Keys of a dropped container that are removed in one batch.
const DROP_KEYS_MAX: usize = 1_000;

/// How far the lag is counted.
const LAG_ITEMS_MAX: u64 = 100_000;

/// What one call of the purge did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PurgeReport {
    /// Items removed.
    pub purged: u64,
    /// Whether dead items are left, because there were no request units for them or because a round is short.
    pub more: bool,
    /// Whether what is left has to wait for request units.
    pub throttled: bool,
    /// When the next item is due, if nothing changes.
    pub next_due: Option<Timestamp>,
}

impl PurgeReport {
    /// Something was left that cannot be reached: it is tried again in a while.
    fn wait(&mut self) {
        self.more = true;
        self.throttled = true;
    }
}

/// How far the purge is behind, for one container.
#[derive(Clone, Debug)]
pub struct TtlLag {
    /// The database's name.
    pub database: String,
    /// The container's name.
    pub container: String,
    /// Dead items still in storage (counted up to 100,000).
    pub items: u64,
    /// Seconds since the oldest of them died.
    pub secs: u64,
    /// Items purged since the start.
    pub purged: u64,
    /// Request units the purge has used since the start.
    pub charge: f64,
}

/// What a round removed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Purged {
    pub items: u64,
    pub more: bool,
}

/// Wakes the purge when something falls due before it meant to look again.
#[derive(Debug)]
pub(crate) struct Alarm {
    /// When the purge means to look next; 0 while it is at work.
    planned: AtomicU64,
    /// The earliest instant reported since the purge last began to look.
    earliest: AtomicU64,
    wake: Notify,
}

impl Default for Alarm {
    fn default() -> Self {
        Self { planned: AtomicU64::new(0), earliest: AtomicU64::new(u64::MAX), wake: Notify::new() }
    }
}

impl Alarm {
    /// Something will be due at `at`.
    pub fn due(&self, at: Timestamp) {
        self.earliest.fetch_min(at.0, Ordering::SeqCst);
        if at.0 < self.planned.load(Ordering::SeqCst) {
            self.wake.notify_one();
        }
    }

    /// The purge should look at once.
    pub fn wake(&self) {
        self.due(Timestamp(0));
    }

    /// The purge begins to look: what is reported from now on, it may have missed.
    fn begin(&self) {
        self.planned.store(0, Ordering::SeqCst);
        self.earliest.store(u64::MAX, Ordering::SeqCst);
    }
}

impl Db {
    /// Removes expired items within the request units that clients have left over: one round a partition.
    pub async fn purge(&self) -> Result<PurgeReport> {
        self.alarm.begin();
        self.refresh().await?;
        self.keep_clock().await?;
        let mut report = PurgeReport::default();
        match self.look_at_all_heads().await {
            // Those that are known are good enough to begin with.
            Err(Error::Unavailable(_)) => {}
            looked => looked?,
        }
        match self.purge_dropped().await {
            Err(Error::Unavailable(_)) => report.wait(),
            more => report.more = more?,
        }
        for container in self.containers_to_purge() {
            for partition in &container.partitions.all {
                match self.purge_some(&container, partition, &mut report).await {
                    // The part of the store that has it is away; the others' are not.
                    Err(Error::Unavailable(_)) => report.wait(),
                    purged => purged?,
                }
            }
        }
        match self.reindex().await {
            Err(Error::Unavailable(_)) => report.wait(),
            reindex => {
                let reindex = reindex?;
                report.more |= reindex.more;
                report.throttled |= reindex.throttled;
            }
        }
        report.next_due = self.next_due().await?;
        Ok(report)
    }

    /// A round of one partition.
    async fn purge_some(
        &self,
        container: &Container,
        partition: &Partition,
        report: &mut PurgeReport,
    ) -> Result<()> {
        let spare = partition.bucket().spare(self.clock.elapsed());
        let affordable = spare.map_or(usize::MAX, |spare| (spare / ITEM_CHARGE) as usize);
        let first_dead = self.first_dead(container, partition).await?;
        let is_late = first_dead.is_some_and(|died| self.now().since(died) > LATE_SECS);
        let round = if is_late { ROUND_ITEMS_MAX } else { ROUND_ITEMS_IN_TIME };
        let items_max = affordable.min(round);
        if self.is_shared() && (first_dead.is_none() || !self.lease(partition).await?) {
            // Nothing to do, or another server does it.
        } else if items_max == 0 {
            report.more |= first_dead.is_some();
            report.throttled |= first_dead.is_some();
        } else {
            let purged = self.purge_partition(partition, items_max).await?;
            report.purged += purged.items;
            report.more |= purged.more;
        }
        Ok(())
    }

    /// Removes all that is expired now, whatever it costs: "purge now", and after the virtual clock has moved.
    pub async fn purge_all(&self) -> Result<PurgeReport> {
        self.refresh().await?;
        self.keep_clock().await?;
        self.look_at_all_heads().await?;
        let mut report = PurgeReport::default();
        while self.purge_dropped().await? {}
        for container in self.containers_to_purge() {
            for partition in &container.partitions.all {
                loop {
                    let purged = self.purge_partition(partition, ROUND_ITEMS_MAX).await?;
                    report.purged += purged.items;
                    if !purged.more {
                        break;
                    }
                }
            }
        }
        report.next_due = self.next_due().await?;
        Ok(report)
    }

    /// Items purged since the start, in all containers that there are.
    pub fn purged(&self) -> u64 {
        let catalog = self.catalog.load();
        let partitions = catalog.containers().flat_map(|container| &container.partitions.all);
        partitions.map(|partition| partition.purged.load(Ordering::Relaxed)).sum()
    }

    /// How far the purge is behind, container by container.
    pub async fn lag(&self) -> Result<Vec<TtlLag>> {
        let mut all = Vec::new();
        for container in self.containers_with_ttl() {
            let mut lag = self.lag_of(&container).await?;
            if lag.secs > 0 || lag.items > 0 {
                lag.items = 0;
                for partition in &container.partitions.all {
                    lag.items += self.count_dead(&container, partition).await?;
                }
            }
            all.push(lag);
        }
        all.sort_by(|a, b| (&a.database, &a.container).cmp(&(&b.database, &b.container)));
        Ok(all)
    }

    /// How far the purge is behind in one container. Its items are not counted: 1 stands for some.
    pub async fn lag_of(&self, container: &Container) -> Result<TtlLag> {
        let now = self.now();
        let mut lag = TtlLag {
            database: container.database_id.clone(),
            container: container.id().to_owned(),
            items: 0,
            secs: 0,
            purged: 0,
            charge: 0.0,
        };
        for partition in &container.partitions.all {
            lag.purged += partition.purged.load(Ordering::Relaxed);
            lag.charge += partition.purge_charge();
            if let Some(died) = self.first_dead(container, partition).await? {
                lag.secs = lag.secs.max(now.since(died));
                lag.items = 1;
            }
        }
        Ok(lag)
    }

    /// Seconds since the oldest dead item of any container died.
    pub async fn seconds_behind(&self) -> Result<u64> {
        let mut secs = 0;
        for container in self.containers_with_ttl() {
            secs = secs.max(self.lag_of(&container).await?.secs);
        }
        Ok(secs)
    }

    /// Waits until a write, a changed default or a moved clock may have made something due before `planned`.
    pub async fn purge_wanted(&self, planned: Option<Timestamp>) {
        let planned = planned.map_or(u64::MAX, |at| at.0);
        self.alarm.planned.store(planned, Ordering::SeqCst);
        if self.alarm.earliest.load(Ordering::SeqCst) >= planned {
            self.alarm.wake.notified().await;
        }
        self.alarm.planned.store(0, Ordering::SeqCst);
    }

    /// Tells the purge to look again: the virtual clock has moved.
    pub fn wake_purge(&self) {
        self.alarm.wake();
    }

    /// Those, and the containers that remember all versions.
    fn containers_to_purge(&self) -> Vec<Arc<Container>> {
        let has_log = |container: &&Arc<Container>| {
            container.partitions.all.iter().any(|partition| partition.head().log_begin > 0)
        };
        let mut all = self.containers_with_ttl();
        let known: Vec<_> = all.iter().map(|container| container.rid).collect();
        let catalog = self.catalog.load();
        let others = catalog.containers().filter(|container| !known.contains(&container.rid));
        all.extend(others.filter(has_log).cloned());
        all
    }

    /// Containers in which anything can be dead, now or from a former rule.
    fn containers_with_ttl(&self) -> Vec<Arc<Container>> {
        let has_ttl = |container: &&Arc<Container>| {
            let state = container.ttl();
            state.default.is_on() || state.inherited_mark.is_some() || state.own_mark.is_some()
        };
        self.catalog.load().containers().filter(has_ttl).cloned().collect()
    }

    async fn look_at_all_heads(&self) -> Result<()> {
        let all = self.containers_to_purge();
        let partitions = all.iter().flat_map(|container| container.partitions.all.iter().cloned());
        self.look_at_heads(partitions).await
    }

    async fn purge_partition(&self, partition: &Partition, items_max: usize) -> Result<Purged> {
        let (reply, purged) = oneshot::channel();
        match partition.submit_later(Op::Purge(items_max, reply)).await {
            // A container that is being dropped needs no purge.
            Err(Error::OwnerNotFound) => Ok(Purged::default()),
            Err(error) => Err(error),
            Ok(()) => match purged.await.unwrap_or_else(|_| Ok(Purged::default())) {
                // Another server has changed the partition meanwhile.
                Err(Error::Contention | Error::PartitionGone) if self.is_shared() => {
                    Ok(Purged { items: 0, more: true })
                }
                purged => purged,
            },
        }
    }

    /// When the oldest dead item of a partition died, if there is one.
    async fn first_dead(
        &self,
        container: &Container,
        partition: &Partition,
    ) -> Result<Option<Timestamp>> {
        let now = self.now();
        let horizon = container.runtime.ttl.horizon(now);
        let own =
            self.first_own(partition).await?.filter(|at| horizon.own.is_some_and(|own| *at <= own));
        let inherited = match horizon.inherited {
            None => None,
            Some(inherited) => self.first_inherited(partition).await?.filter(|ts| *ts <= inherited),
        };
        let state = container.ttl();
        let own = own.map(|at| state.due(at).unwrap_or(at).min(now));
        // An item that a former default has killed died no later than now: its exact second is forgotten.
        let died = inherited.map(|ts| match state.default {
            DefaultTtl::Secs(secs) => ts.plus(secs.into()).min(now),
            DefaultTtl::Off | DefaultTtl::NoDefault | DefaultTtl::AfterDate(_) => ts,
        });
        Ok([own, died].into_iter().flatten().min())
    }

    /// The first own expiry that is still stored.
    async fn first_own(&self, partition: &Partition) -> Result<Option<Timestamp>> {
        let start =
            Key::Expiry { partition: partition.id, at: partition.head().expiry_cursor, ordinal: 0 };
        let range = start.encode()..partition_range(partition.id).end;
        let first =
            self.engine.snapshot().scan(Family::Expiry, range, Direction::Forward, 1).await?;
        Ok(first.first().map(|(key, _)| position_of(key)).transpose()?.map(Timestamp))
    }

    /// When the oldest item behind the feed cursor was written that follows the default.
    async fn first_inherited(&self, partition: &Partition) -> Result<Option<Timestamp>> {
        let snapshot = self.engine.snapshot();
        let mut range = feed_from(partition.id, partition.head().feed_cursor);
        loop {
            let pairs = snapshot
                .scan(Family::Feed, range.clone(), Direction::Forward, ROUND_ITEMS_MAX)
                .await?;
            for (key, value) in &pairs {
                let entry = FeedEntry::decode(key, value)?;
                if !entry.has_own_ttl {
                    return Ok(Some(entry.ts));
                }
            }
            match pairs.last() {
                Some((last, _)) if pairs.len() == ROUND_ITEMS_MAX => {
                    range.start = crate::scan::successor(last)
                }
                _ => return Ok(None),
            }
        }
    }

    async fn count_dead(&self, container: &Container, partition: &Partition) -> Result<u64> {
        let horizon = container.runtime.ttl.horizon(self.now());
        let (snapshot, head) = (self.engine.snapshot(), partition.head());
        let mut count = 0;
        if let Some(own) = horizon.own {
            let key = |at| Key::Expiry { partition: partition.id, at, ordinal: 0 }.encode();
            let mut range = key(head.expiry_cursor)..key(own.plus(1));
            while count < LAG_ITEMS_MAX && range.start < range.end {
                let pairs =
                    snapshot.scan(Family::Expiry, range.clone(), Direction::Forward, 1_000).await?;
                count += pairs.len() as u64;
                tokio::task::yield_now().await;
                match pairs.last() {
                    Some((last, _)) if pairs.len() == 1_000 => {
                        range.start = crate::scan::successor(last)
                    }
                    _ => break,
                }
            }
        }
        if let Some(inherited) = horizon.inherited {
            let mut range = feed_from(partition.id, head.feed_cursor);
            'feed: while count < LAG_ITEMS_MAX {
                let pairs =
                    snapshot.scan(Family::Feed, range.clone(), Direction::Forward, 1_000).await?;
                for (key, value) in &pairs {
                    let entry = FeedEntry::decode(key, value)?;
                    if entry.ts > inherited {
                        break 'feed;
                    }
                    count += u64::from(!entry.has_own_ttl);
                }
                match pairs.last() {
                    Some((last, _)) if pairs.len() == 1_000 => {
                        range.start = crate::scan::successor(last)
                    }
                    _ => break,
                }
                tokio::task::yield_now().await;
            }
        }
        Ok(count)
    }

    /// When the next item will expire, over all containers.
    async fn next_due(&self) -> Result<Option<Timestamp>> {
        let mut due: Option<Timestamp> = None;
        for container in self.containers_to_purge() {
            let state = container.ttl();
            for partition in &container.partitions.all {
                let next = match self.next_due_in(&container, partition, state).await {
                    Err(Error::Unavailable(_)) => None,
                    next => next?,
                };
                due = [due, next].into_iter().flatten().min();
            }
        }
        Ok(due)
    }

    async fn next_due_in(
        &self,
        container: &Container,
        partition: &Partition,
        state: TtlState,
    ) -> Result<Option<Timestamp>> {
        let history = self.history_due(container, partition).await?;
        let own = match state.default.is_on() {
            true => self.first_own(partition).await?.and_then(|at| state.due(at)),
            false => None,
        };
        let inherited = match state.default {
            DefaultTtl::Secs(secs) => {
                self.first_inherited(partition).await?.map(|ts| ts.plus(secs.into()))
            }
            DefaultTtl::Off | DefaultTtl::NoDefault | DefaultTtl::AfterDate(_) => None,
        };
        Ok([own, inherited, history].into_iter().flatten().min())
    }

    /// Removes a slice of what dropped containers have left behind, and says whether there is more.
    async fn purge_dropped(&self) -> Result<bool> {
        if self.purge_abandoned().await? {
            return Ok(true);
        }
        let snapshot = self.engine.snapshot();
        let dropped =
            snapshot.scan(Family::Catalog, catalog_range(4), Direction::Forward, 1).await?;
        let Some((row, _)) = dropped.first() else { return Ok(false) };
        let number =
            row.last_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes)).ok_or_else(|| {
                storage::Error::Corrupt("the key of a dropped container is cut short".to_owned())
            })?;
        let mut batch = Batch::default();
        for family in [Family::Item, Family::Id, Family::Index, Family::Expiry, Family::Feed] {
            let room = DROP_KEYS_MAX.saturating_sub(batch.writes.len());
            if room > 0 {
                let pairs = snapshot
                    .scan(family, container_range(number), Direction::Forward, room)
                    .await?;
                pairs.into_iter().for_each(|(key, _)| batch.delete(family, key));
            }
        }
        if batch.writes.is_empty() {
            batch.delete(Family::Catalog, row.clone());
            if self.is_shared() {
                // Heads and what is kept beside them: while there were items, other servers' rounds had to fail on them.
                for kind in [5, 7, 8, 10, 11] {
                    let range = partitions_range(kind, number);
                    let pairs =
                        snapshot.scan(Family::Catalog, range, Direction::Forward, usize::MAX);
                    pairs
                        .await?
                        .into_iter()
                        .for_each(|(key, _)| batch.delete(Family::Catalog, key));
                }
            }
        }
        self.engine.commit(batch).await?;
        Ok(true)
    }
}

/// The writers of a container's partitions, standing still until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    _resume: Vec<oneshot::Sender<()>>,
}

impl Container {
    /// Removes all that is expired, and has the writers wait: until the answer is dropped, no item comes or changes.
    pub(crate) async fn settle(&self) -> Result<Settled> {
        let mut settled = Settled::default();
        for partition in &self.partitions.all {
            let (reply, done) = oneshot::channel();
            let (resume, is_dropped) = oneshot::channel();
            partition.submit_later(Op::Settle(reply, is_dropped)).await?;
            done.await.map_err(|_| Error::OwnerNotFound)??;
            settled._resume.push(resume);
        }
        Ok(settled)
    }
}

impl Round<'_> {
    /// Removes up to `items_max` dead items and moves the cursors past them.
    pub async fn purge(&mut self, items_max: usize) -> Result<Purged> {
        let mut purged = self.purge_own(items_max).await?;
        if (purged.items as usize) < items_max {
            let inherited = self.purge_inherited(items_max - purged.items as usize).await?;
            purged.items += inherited.items;
            purged.more |= inherited.more;
        }
        purged.more |= self.cut_history(items_max).await?.more;
        Ok(purged)
    }

    /// Items whose own ttl has ended: all of the expiry order up to the horizon.
    async fn purge_own(&mut self, items_max: usize) -> Result<Purged> {
        let Some(horizon) = self.horizon.own else { return Ok(Purged::default()) };
        let partition = self.writer.partition.id;
        let key = |at| Key::Expiry { partition, at, ordinal: 0 }.encode();
        let (start, end) = (key(self.head.expiry_cursor), key(horizon.plus(1)));
        if start >= end {
            return Ok(Purged::default());
        }
        let pairs =
            self.snapshot.scan(Family::Expiry, start..end, Direction::Forward, items_max).await?;
        self.read_dead(pairs.iter().map(|(key, _)| key)).await?;
        for (key, _) in &pairs {
            self.remove_dead(key).await?;
        }
        let more = pairs.len() == items_max;
        self.head.expiry_cursor = match pairs.last() {
            Some((last, _)) if more => Timestamp(position_of(last)?),
            // A cursor that moves over nothing is not worth a commit.
            None => self.head.expiry_cursor,
            _ => horizon.plus(1),
        };
        Ok(Purged { items: pairs.len() as u64, more })
    }

    /// Items that follow the default and were written too long ago: the beginning of the feed, less those with an own ttl, which are
    /// passed once and never looked at again, because any later write moves them behind the cursor.
    async fn purge_inherited(&mut self, items_max: usize) -> Result<Purged> {
        let Some(horizon) = self.horizon.inherited else { return Ok(Purged::default()) };
        let range = feed_from(self.writer.partition.id, self.head.feed_cursor);
        let pairs = self.snapshot.scan(Family::Feed, range, Direction::Forward, items_max).await?;
        let mut items = 0;
        let mut dead = Vec::new();
        for (key, value) in &pairs {
            let entry = FeedEntry::decode(key, value)?;
            if entry.ts <= horizon && !entry.has_own_ttl {
                dead.push(key);
            }
        }
        self.read_dead(dead.into_iter()).await?;
        for (key, value) in &pairs {
            let entry = FeedEntry::decode(key, value)?;
            if entry.ts > horizon {
                return Ok(Purged { items, more: false });
            }
            if !entry.has_own_ttl {
                self.remove_dead(key).await?;
                items += 1;
            }
            // The other items of the same change may still be on the next page.
            self.head.feed_cursor = entry.lsn;
        }
        let more = pairs.len() == items_max;
        if !more && !pairs.is_empty() {
            self.head.feed_cursor += 1;
        }
        Ok(Purged { items, more })
    }

    /// Reads the items that are to be removed, at once where the store is on another machine.
    async fn read_dead(&mut self, keys: impl Iterator<Item = &bytes::Bytes>) -> Result<()> {
        if self.writer.is_shared() {
            let partition = self.writer.partition.id;
            let ordinals = keys.map(|key| crate::keys::ordinal_of(key));
            let item = |ordinal| Key::Item { partition, ordinal }.encode();
            let items = ordinals.map(|ordinal| ordinal.map(item));
            let items = items.collect::<storage::Result<_>>()?;
            self.snapshot.read(Family::Item, items).await?;
        }
        Ok(())
    }

    async fn remove_dead(&mut self, key: &[u8]) -> Result<()> {
        let dead = self.dead(key).await?;
        if self.is_live(&dead.record) {
            return Err(Error::Storage(format!(
                "corrupt data: the expiry order and item {} disagree about its expiry",
                dead.ordinal
            )));
        }
        if self.writer.runtime.settings().history.is_some() {
            self.begin_change();
        }
        let terms = self.remove_expired(&dead)?;
        self.charge += charge::write(dead.record.body.len(), terms);
        Ok(())
    }
}
