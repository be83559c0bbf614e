//! What expires when: items and bytes, counted along the two orders of expiry.
//!
//! The first question about a container reads the feed (items that follow the default, by `_ts`) and the expiry order (own ttl, by
//! instant), in their order and never an item, and keeps counts per second. From then on the partition's writer keeps the counts current, so a later
//! question costs the same whatever the number of items. Nobody asks: nothing is kept, and a write pays one look at a flag.
//!
//! ```text
//!  first question ──► Op::Count ──► writer: all rounds landed, counting on, snapshot ──► Reading adds what the snapshot holds
//!  every commit   ──► Steps (+1 at its second, -1 at its former one)               ──► added as they come; sums do not mind the order
//! ```
//!
//! What is exact: every number, to the second, while a partition's items lie in at most [`CELLS_MAX`] different seconds of an order. Beyond that
//! neighbouring seconds with few items share a cell, and a question whose edge falls into one takes its share evenly: an error of less than
//! one item in 15,000 for each edge, and the answer says that it is not exact. Until the first reading is through, the earliest
//! expiries are there already (they come first in both orders), and the answer says how many items are still to be counted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::clock::Timestamp;
use model::ttl::{DefaultTtl, Horizon, Ttl, TtlState};
use storage::{Direction, Engine, Family, Snapshot};
use tokio::sync::oneshot;

use crate::feed::{FeedEntry, feed_from};
use crate::keys::{Key, PartitionId, partition_range, position_of};
use crate::partition::{Head, Partition};
use crate::record::Record;
use crate::writer::Op;
use crate::{Container, Db, Result};

/// The most cells of an order, about 3 MB.
const CELLS_MAX: usize = 65_536;

/// How long a question reads before it answers with what it has; the rest is read behind its back.
const PATIENCE: Duration = Duration::from_millis(50);

/// Counts that nobody has asked for so long are dropped at the next write.
const KEPT_SECS: u64 = 900;

/// Entries read at a time.
const CHUNK: usize = 2_000;

/// So many items, and the bytes of their bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Items.
    pub items: u64,
    /// Bytes of their JSON.
    pub bytes: u64,
}

/// What expires, told apart by why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// By the container's default.
    pub inherited: Tally,
    /// By their own ttl.
    pub own: Tally,
}

impl Due {
    /// Both together.
    pub fn total(&self) -> Tally {
        Tally {
            items: self.inherited.items + self.own.items,
            bytes: self.inherited.bytes + self.own.bytes,
        }
    }

    fn less(self, earlier: Self) -> Self {
        let less = |a: Tally, b: Tally| Tally {
            items: a.items.saturating_sub(b.items),
            bytes: a.bytes.saturating_sub(b.bytes),
        };
        Self {
            inherited: less(self.inherited, earlier.inherited),
            own: less(self.own, earlier.own),
        }
    }
}

/// What a default would do: see [`Timeline::forecast`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// What would expire the moment it is set.
    pub at_once: Due,
    /// Within the hour after.
    pub hour: Due,
    /// Within the day after, that hour included.
    pub day: Due,
    /// After that day.
    pub later: Due,
}

/// A container's expiries as of one moment.
#[derive(Debug)]
pub struct Timeline {
    /// When this is.
    pub now: Timestamp,
    /// The rule in force.
    pub ttl: TtlState,
    /// What is in storage, dead items included.
    pub stored: Tally,
    /// Items that the first reading has yet to count; 0 when all are counted.
    pub uncounted: u64,
    partitions: Vec<[Sums; 2]>,
    inexact: AtomicBool,
}

impl Timeline {
    /// What the rule in force lets expire after `from` and up to `to`.
    pub fn due(&self, from: Timestamp, to: Timestamp) -> Due {
        self.dead(&self.ttl.horizon(to)).less(self.dead(&self.ttl.horizon(from)))
    }

    /// What is expired and not yet purged.
    pub fn expired(&self) -> Due {
        self.dead(&self.ttl.horizon(self.now))
    }

    /// What would happen if the default became `default` now. Nothing is changed.
    pub fn forecast(&self, default: DefaultTtl) -> Forecast {
        let changed = self.ttl.with_default(default, self.now);
        let expired = self.ttl.horizon(self.now);
        let dead = |secs| self.dead(&changed.horizon(self.now.plus(secs)).or(expired));
        let (now, hour, day, ever) = (dead(0), dead(3_600), dead(86_400), dead(u64::MAX / 2));
        Forecast {
            at_once: now.less(self.expired()),
            hour: hour.less(now),
            day: day.less(now),
            later: ever.less(day),
        }
    }

    /// What a horizon makes dead.
    pub fn dead(&self, horizon: &Horizon) -> Due {
        let mut due = Due::default();
        for [inherited, own] in &self.partitions {
            for (sums, edge, tally) in [
                (inherited, horizon.inherited, &mut due.inherited),
                (own, horizon.own, &mut due.own),
            ] {
                let Some(edge) = edge else { continue };
                let (sum, exact) = sums.up_to(edge.0);
                tally.items += sum.items;
                tally.bytes += sum.bytes;
                if !exact {
                    self.inexact.store(true, Ordering::Relaxed);
                }
            }
        }
        due
    }

    /// Whether all that has been asked of this timeline was answered to the item.
    pub fn is_exact(&self) -> bool {
        self.uncounted == 0 && !self.inexact.load(Ordering::Relaxed)
    }
}

impl Db {
    /// Counts of what expires when in a container. The first question reads the orders of expiry; see the module.
    pub async fn timeline(&self, container: &Container) -> Result<Timeline> {
        let now = self.now();
        let begun = self.clock.stopwatch();
        let mut timeline = Timeline {
            now,
            ttl: container.ttl(),
            stored: Tally::default(),
            uncounted: 0,
            partitions: Vec::new(),
            inexact: AtomicBool::new(false),
        };
        self.look_at_heads(container.partitions.all.iter().cloned()).await?;
        for partition in &container.partitions.all {
            if let Some(mut reading) = self.begin_counting(partition).await? {
                let patient = || self.clock.stopwatch().saturating_sub(begun) < PATIENCE;
                if !reading.read_while(patient).await? {
                    self.tasks.spawn(async move {
                        // What fails here fails again at the next question, which is told.
                        if reading.read_while(|| true).await.is_err() {
                            reading.partition.counts.drop_all();
                        }
                    });
                }
            }
            let head = partition.head();
            timeline.stored.items += head.items;
            timeline.stored.bytes += head.bytes;
            partition.counts.look(now, |counts| {
                if !counts.complete {
                    timeline.uncounted += head.items.saturating_sub(counts.read).max(1);
                }
                timeline.partitions.push([counts.inherited.sums(), counts.own.sums()]);
            });
        }
        Ok(timeline)
    }

    /// Turns counting on, unless it is on already; gives what then has to be read.
    async fn begin_counting(&self, partition: &Arc<Partition>) -> Result<Option<Reading>> {
        if partition.counts.is_on() {
            return Ok(None);
        }
        let (reply, begun) = oneshot::channel();
        partition.submit_later(Op::Count(reply)).await?;
        let Ok(Some(beginning)) = begun.await else { return Ok(None) };
        Ok(Some(Reading::new(partition.clone(), beginning)))
    }
}

/// A partition's counts, if somebody has asked for them.
#[derive(Debug, Default)]
pub(crate) struct CountsCell {
    /// Looked at by every round, so that those that need not count take no lock.
    on: AtomicBool,
    /// How often counting has begun: a reading whose counts were dropped must not add to the next.
    begun: AtomicU64,
    counts: Mutex<Option<Counts>>,
}

impl CountsCell {
    /// Whether changes have to be counted.
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }

    /// Begins to count, unless that is on already. Only the writer calls this, between two rounds.
    pub fn begin(&self, engine: &dyn Engine, head: Head) -> Option<Beginning> {
        let mut counts = self.lock();
        if counts.is_some() {
            return None;
        }
        let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        *counts = Some(Counts { number, ..Counts::default() });
        self.on.store(true, Ordering::Release);
        Some(Beginning { snapshot: engine.snapshot(), head, number })
    }

    /// Adds what a round has changed.
    pub fn add(&self, steps: &[Step], now: Timestamp) {
        let mut guard = self.lock();
        let Some(counts) = guard.as_mut() else { return };
        if counts.complete && now.since(counts.asked) > KEPT_SECS {
            *guard = None;
            self.on.store(false, Ordering::Release);
            return;
        }
        steps.iter().for_each(|step| counts.add(*step));
    }

    /// Forgets all: the store has changed behind our back.
    pub fn drop_all(&self) {
        *self.lock() = None;
        self.on.store(false, Ordering::Release);
    }

    /// Changes the counts of one beginning, if they are still there.
    fn change(&self, number: u64, change: impl FnOnce(&mut Counts)) {
        if let Some(counts) = self.lock().as_mut().filter(|counts| counts.number == number) {
            change(counts);
        }
    }

    fn look(&self, now: Timestamp, look: impl FnOnce(&Counts)) {
        if let Some(counts) = self.lock().as_mut() {
            counts.asked = counts.asked.max(now);
            look(counts);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Counts>> {
        self.counts.lock().expect("nothing panics while it holds a partition's counts")
    }
}

/// The counts of one partition.
#[derive(Debug, Default)]
struct Counts {
    /// Which beginning these come from.
    number: u64,
    inherited: Cells,
    own: Cells,
    /// Items that the first reading has met.
    read: u64,
    /// Whether it is through.
    complete: bool,
    /// When somebody last asked.
    asked: Timestamp,
}

impl Counts {
    fn add(&mut self, step: Step) {
        match step.place {
            Place::Inherited(ts) => self.inherited.add(ts.0, step.items, step.bytes),
            Place::Own(at) => self.own.add(at.0, step.items, step.bytes),
        }
    }
}

/// Where an item stands in the orders of expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It follows the default: when it was written.
    Inherited(Timestamp),
    /// It has an own ttl: when that ends.
    Own(Timestamp),
}

/// An item that comes (+1) or goes (-1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    place: Place,
    items: i64,
    bytes: i64,
}

impl Step {
    /// The coming of a record; nothing if it can never expire.
    pub fn coming(record: &Record) -> Option<Self> {
        let place = match record.own_ttl {
            Ttl::Absent => Place::Inherited(record.ts),
            Ttl::Secs(_) | Ttl::At(_) => Place::Own(record.own_ttl.instant(record.ts)?),
            Ttl::Never => return None,
        };
        Some(Self { place, items: 1, bytes: record.body.len() as i64 })
    }

    /// The going of a record.
    pub fn going(record: &Record) -> Option<Self> {
        let step = Self::coming(record)?;
        Some(Self { items: -step.items, bytes: -step.bytes, ..step })
    }
}

/// The state of a partition at which its counting begins.
pub(crate) struct Beginning {
    snapshot: Box<dyn Snapshot>,
    head: Head,
    number: u64,
}

impl Beginning {
    /// Has the snapshot be of this moment: its first read says which state it sees. An error comes again with the next read.
    pub async fn pin(&self) {
        drop(self.snapshot.get(Family::Feed, &[0]).await);
    }
}

impl std::fmt::Debug for Beginning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "beginning {} at {:?}", self.number, self.head)
    }
}

/// Counts by second, in cells of one second or, where many seconds hold few items, of several.
#[derive(Debug, Default)]
struct Cells {
    /// By their first second.
    cells: BTreeMap<u64, Cell>,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    last: u64,
    items: i64,
    bytes: i64,
}

impl Cells {
    fn add(&mut self, second: u64, items: i64, bytes: i64) {
        let cell = self.cells.range_mut(..=second).next_back();
        match cell.filter(|(_, cell)| second <= cell.last) {
            Some((first, cell)) => {
                cell.items += items;
                cell.bytes += bytes;
                if (cell.items, cell.bytes) == (0, 0) {
                    let first = *first;
                    self.cells.remove(&first);
                }
            }
            None => {
                self.cells.insert(second, Cell { last: second, items, bytes });
                if self.cells.len() > CELLS_MAX {
                    self.fold();
                }
            }
        }
    }

    /// Joins neighbours that hold little, so that at least half of the room is free again.
    fn fold(&mut self) {
        let total: i64 = self.cells.values().map(|cell| cell.items.abs()).sum();
        let little = (total * 4).div_euclid(CELLS_MAX as i64).max(4);
        let mut folded: Vec<(u64, Cell)> = Vec::with_capacity(CELLS_MAX / 2);
        for (first, cell) in std::mem::take(&mut self.cells) {
            match folded.last_mut() {
                Some((_, before)) if before.items.abs() + cell.items.abs() <= little => {
                    before.last = cell.last;
                    before.items += cell.items;
                    before.bytes += cell.bytes;
                }
                _ => folded.push((first, cell)),
            }
        }
        self.cells = folded.into_iter().collect();
    }

    fn sums(&self) -> Sums {
        let (mut items, mut bytes) = (0, 0);
        let sum = |(first, cell): (&u64, &Cell)| {
            let before = (items, bytes);
            items += cell.items;
            bytes += cell.bytes;
            Sum { first: *first, last: cell.last, before, after: (items, bytes) }
        };
        Sums(self.cells.iter().map(sum).collect())
    }
}

/// Running sums over cells.
#[derive(Debug)]
struct Sums(Vec<Sum>);

#[derive(Debug)]
struct Sum {
    first: u64,
    last: u64,
    before: (i64, i64),
    after: (i64, i64),
}

impl Sums {
    /// All up to and with a second, and whether that is exact.
    fn up_to(&self, second: u64) -> (Tally, bool) {
        let behind = self.0.partition_point(|sum| sum.first <= second);
        let Some(sum) = behind.checked_sub(1).map(|at| &self.0[at]) else {
            return (Tally::default(), true);
        };
        let tally = |(items, bytes): (i64, i64)| Tally {
            items: u64::try_from(items).unwrap_or_default(),
            bytes: u64::try_from(bytes).unwrap_or_default(),
        };
        if second >= sum.last {
            return (tally(sum.after), true);
        }
        let share = (second - sum.first + 1) as f64 / (sum.last - sum.first + 1) as f64;
        let part = |before: i64, after: i64| before + ((after - before) as f64 * share) as i64;
        let items = part(sum.before.0, sum.after.0);
        (tally((items, part(sum.before.1, sum.after.1))), false)
    }
}

/// The first reading of a partition's orders of expiry.
struct Reading {
    partition: Arc<Partition>,
    snapshot: Box<dyn Snapshot>,
    number: u64,
    own: std::ops::Range<bytes::Bytes>,
    inherited: std::ops::Range<bytes::Bytes>,
}

impl Reading {
    fn new(partition: Arc<Partition>, beginning: Beginning) -> Self {
        let Beginning { snapshot, head, number } = beginning;
        let id: PartitionId = partition.id;
        let first = Key::Expiry { partition: id, at: head.expiry_cursor, ordinal: 0 };
        let own = first.encode()..partition_range(id).end;
        Self { partition, snapshot, number, own, inherited: feed_from(id, head.feed_cursor) }
    }

    /// Reads as long as it may; whether it is through.
    async fn read_while(&mut self, mut may: impl FnMut() -> bool) -> Result<bool> {
        for family in [Family::Expiry, Family::Feed] {
            loop {
                let range = match family {
                    Family::Expiry => &mut self.own,
                    _ => &mut self.inherited,
                };
                if range.start >= range.end {
                    break;
                }
                if !may() {
                    return Ok(false);
                }
                let pairs =
                    self.snapshot.scan(family, range.clone(), Direction::Forward, CHUNK).await?;
                let mut steps = Vec::with_capacity(pairs.len());
                for (key, value) in &pairs {
                    steps.extend(match family {
                        Family::Expiry => Some(expiry_step(key, value)?),
                        _ => feed_step(key, value)?,
                    });
                }
                range.start = match pairs.last() {
                    Some((last, _)) if pairs.len() == CHUNK => crate::scan::successor(last),
                    _ => range.end.clone(),
                };
                let mine = |counts: &mut Counts| {
                    counts.read += steps.len() as u64;
                    steps.iter().for_each(|step| counts.add(*step));
                };
                self.partition.counts.change(self.number, mine);
                tokio::task::yield_now().await;
            }
        }
        self.partition.counts.change(self.number, |counts| counts.complete = true);
        Ok(true)
    }
}

fn expiry_step(key: &[u8], value: &[u8]) -> Result<Step> {
    let place = Place::Own(Timestamp(position_of(key)?));
    Ok(Step { place, items: 1, bytes: length_at(value, 8) })
}

fn feed_step(key: &[u8], value: &[u8]) -> Result<Option<Step>> {
    let entry = FeedEntry::decode(key, value)?;
    let step = Step { place: Place::Inherited(entry.ts), items: 1, bytes: length_at(value, 9) };
    Ok((!entry.has_own_ttl).then_some(step))
}

/// The length of an item's body, which entries of both orders end with.
fn length_at(value: &[u8], at: usize) -> i64 {
    let bytes = value.get(at..).and_then(|rest| rest.first_chunk::<4>());
    bytes.map_or(0, |bytes| i64::from(u32::from_le_bytes(*bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds and counts in any order give the sums of a plain list, exactly, until there are too many seconds.
    #[test]
    fn cells_count_like_a_list() {
        let mut cells = Cells::default();
        let mut list: Vec<u64> = Vec::new();
        let mut random = fastrand::Rng::with_seed(6);
        for _ in 0..20_000 {
            if !list.is_empty() && random.u8(..) < 80 {
                let gone = list.swap_remove(random.usize(..list.len()));
                cells.add(gone, -1, -10);
            } else {
                let second = random.u64(..5_000);
                list.push(second);
                cells.add(second, 1, 10);
            }
        }
        let sums = cells.sums();
        for second in (0..5_000).step_by(7) {
            let items = list.iter().filter(|other| **other <= second).count() as u64;
            assert_eq!(sums.up_to(second), (Tally { items, bytes: items * 10 }, true));
        }
    }

    /// Too many seconds: memory stays bounded, whole sums stay exact, an edge within a cell is off by little.
    #[test]
    fn many_seconds_share_cells() {
        let mut cells = Cells::default();
        let count = 1_000_000;
        for second in 0..count {
            cells.add(second * 3, 1, 100);
        }
        cells.add(500_000, 100_000, 100);
        assert!(cells.cells.len() <= CELLS_MAX);
        let sums = cells.sums();
        assert_eq!(sums.up_to(u64::MAX).0.items, count + 100_000);
        for second in [10, 299_999, 1_500_000, 2_999_990] {
            let expected = second / 3 + 1 + if second >= 500_000 { 100_000 } else { 0 };
            let off = sums.up_to(second).0.items.abs_diff(expected);
            assert!(off <= count / 15_000, "{off} at {second}");
        }
    }
}
