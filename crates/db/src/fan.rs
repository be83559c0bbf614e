//! A scan over all partitions of a scope, one after the other in the order of their hashes, or merged in the order that a query asks for, at
//! one snapshot and one `now`.

use std::collections::VecDeque;
use std::sync::Arc;

use model::resource::{ChildRid, SessionToken};
use query::plan::Condition;
use query::{Compiled, Plan, Position};

use crate::access::Access;
use crate::account::{Account, How};
use crate::charge::RequestCharge;
use crate::items::Scope;
use crate::order::Order;
use crate::partition::Partition;
use crate::ranges::{Left, Partitions, Place, Places, Target};
use crate::scan::{ItemScan, Read, ScopeFilter, View};
use crate::writer::Stored;
use crate::{Container, Db, Result, Settings};

/// The living items of a scope.
pub(crate) struct Fan<'a> {
    view: View,
    container: &'a Container,
    scope: &'a Scope,
    /// What an index may be asked for, if anything.
    condition: Option<Condition>,
    stops: Vec<Stop>,
    /// Which of them is being read.
    current: usize,
    way: Way,
    /// Whether an index has counted items.
    counted: bool,
}

/// How the items come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Partition by partition, by their age: all of the scope, or those that an index names.
    ByAge,
    /// In the order that the query asks for, merged over the partitions.
    InOrder,
}

/// A partition on the way.
struct Stop {
    target: Target,
    left: Left,
    /// The partition's first item, asked for before the snapshot was taken.
    first_item: u64,
    read: Option<Read>,
    scan: Option<ItemScan>,
    /// Items that wait for those of other partitions to come first, with their ORDER BY keys and numbers.
    waiting: VecDeque<(Vec<u8>, u64, Stored)>,
    /// Whether the partition has nothing more to give.
    ended: bool,
}

/// What a query asks of the indexes.
pub(crate) struct Wish<'q> {
    pub query: &'q Arc<Compiled>,
    pub plan: &'q Plan,
    /// The last row of the page before.
    pub last: Option<&'q Position>,
    /// Whether items may come in order.
    pub may_order: bool,
}

impl<'a> Fan<'a> {
    /// Begins where `places` says, or at the beginning.
    pub fn new(
        db: &Db,
        container: &'a Container,
        targets: &[Target],
        scope: &'a Scope,
        places: &Places,
    ) -> Result<Self> {
        let stop = |target: &Target| {
            let left = places.left(&container.partitions, &target.partition.span)?;
            Ok(Stop {
                target: target.clone(),
                left,
                first_item: target.partition.first_item.get(),
                read: None,
                scan: None,
                waiting: VecDeque::new(),
                ended: false,
            })
        };
        let stops = targets.iter().map(stop).collect::<Result<_>>()?;
        Ok(Self {
            view: View::new(db, container),
            container,
            scope,
            condition: None,
            stops,
            current: 0,
            way: Way::ByAge,
            counted: false,
        })
    }

    /// Finds the best way to the items of a query, and sets out on it.
    pub async fn choose(&mut self, wish: &Wish<'_>) -> Result<Way> {
        self.condition = Some(wish.plan.condition.clone());
        let Some(settings) = self.view.indexed.clone() else { return Ok(Way::ByAge) };
        if wish.may_order && !wish.plan.order.is_empty() {
            self.set_in_order(&settings, wish).await?;
        }
        Ok(self.way)
    }

    /// Counts the living items of a query that asks for nothing else, where the index tells; the others are left to be read.
    pub async fn count(&mut self, plan: &Plan) -> Result<u64> {
        let Some(settings) = self.view.indexed.clone().filter(|_| plan.exact) else { return Ok(0) };
        let mut count = 0;
        for at in 0..self.stops.len() {
            let ranges = Access::exact(self.partition(at).id, &settings, &plan.condition);
            if ranges.is_none() && plan.condition != Condition::All {
                break;
            }
            let Some(mut scan) = self.scan_of(at)? else { continue };
            let counted = scan.count(ranges).await?;
            let stop = &mut self.stops[at];
            stop.read = Some(scan.tally());
            if let Some(counted) = counted {
                count += counted;
                stop.ended = true;
                self.counted = true;
            }
        }
        Ok(count)
    }

    /// Sets all partitions on an index that holds the order, unless the items are so few that they are quickly sorted.
    async fn set_in_order(&mut self, settings: &Settings, wish: &Wish<'_>) -> Result<()> {
        let condition = &wish.plan.condition;
        let mut few = Vec::with_capacity(self.stops.len());
        for at in 0..self.stops.len() {
            let id = self.partition(at).id;
            let order = Order::choose(id, settings, &wish.plan.order, condition);
            let (Some(order), Some(mut scan)) = (order, self.scan_of(at)?) else { return Ok(()) };
            if scan.is_small().await? {
                return Ok(());
            }
            // What a condition on other paths leaves is tried first, if it may be little.
            let access = Access::choose(id, settings, condition);
            let access = access.filter(|access| !order.restricted || access.points);
            match access {
                Some(access) if scan.go_by(&access, None, true).await? => few.push(scan),
                _ => break,
            }
        }
        if few.len() == self.stops.len() {
            let scans = few.into_iter().map(Some);
            self.stops.iter_mut().zip(scans).for_each(|(stop, scan)| stop.scan = scan);
            return Ok(());
        }
        let mut scans = Vec::with_capacity(self.stops.len());
        for at in 0..self.stops.len() {
            let partition = self.partition(at);
            let order = Order::choose(partition.id, settings, &wish.plan.order, condition);
            let (Some(order), Some(mut scan)) = (order, self.scan_of(at)?) else { return Ok(()) };
            let after = wish.last.map(|last| {
                let ordinal = ChildRid::ordinal(last.ordinal);
                // Within a partition numbers and ordinals have one order.
                let number = ChildRid::number(partition.span.birthplace(ordinal), ordinal);
                let ordinal = if number == last.ordinal { ordinal } else { 0 };
                Position { ordinal, ..last.clone() }
            });
            if !scan.go_in_order(order, wish.query, after.as_ref()).await? {
                return Ok(());
            }
            scans.push(Some(scan));
        }
        self.stops.iter_mut().zip(scans).for_each(|(stop, scan)| stop.scan = scan);
        self.way = Way::InOrder;
        Ok(())
    }

    /// The next living items, all of one partition; none means that there are no more.
    pub async fn next(&mut self) -> Result<Vec<Stored>> {
        if self.way == Way::InOrder && self.stops.len() > 1 {
            return self.next_merged().await;
        }
        while self.current < self.stops.len() {
            if self.stops[self.current].scan.is_none() && !self.stops[self.current].ended {
                self.stops[self.current].scan = self.open().await?;
            }
            let items = self.stops[self.current].read().await?;
            if !items.is_empty() {
                return Ok(items);
            }
            self.current += 1;
        }
        Ok(Vec::new())
    }

    /// The next items in order, as long as they are of one partition.
    async fn next_merged(&mut self) -> Result<Vec<Stored>> {
        for stop in &mut self.stops {
            stop.fill().await?;
        }
        let mut items = Vec::new();
        while let Some(at) = first(&self.stops) {
            if !items.is_empty() && at != self.current {
                break;
            }
            self.current = at;
            items.extend(self.stops[at].waiting.pop_front().map(|(_, _, stored)| stored));
            if self.stops[at].waiting.is_empty() {
                break;
            }
        }
        Ok(items)
    }

    /// A scan of a partition that goes by no index yet; `None` if nothing is left of the partition.
    fn scan_of(&self, at: usize) -> Result<Option<ItemScan>> {
        let stop = &self.stops[at];
        if let Left::Nothing = stop.left {
            return Ok(None);
        }
        let scope = if stop.target.whole { &Scope::Container } else { self.scope };
        let filter = ScopeFilter::new(self.container, scope)?;
        Ok(Some(ItemScan::new(&self.view, stop.target.partition.id, filter, stop.after())))
    }

    async fn open(&self) -> Result<Option<ItemScan>> {
        let Some(mut scan) = self.scan_of(self.current)? else { return Ok(None) };
        let stop = &self.stops[self.current];
        if let (Some(settings), Some(condition)) = (&self.view.indexed, &self.condition)
            && let Some(access) = Access::choose(stop.target.partition.id, settings, condition)
        {
            scan.go_by(&access, stop.after(), false).await?;
        }
        Ok(Some(scan))
    }

    /// What was read so far.
    pub fn account(&self) -> Account {
        let mut account = Account { how: self.how(), ..Account::default() };
        for read in self.stops.iter().filter_map(|stop| stop.read) {
            account.items += read.items;
            account.item_bytes += read.bytes;
            account.entries += read.entries;
        }
        account
    }

    fn how(&self) -> How {
        let by_index = |stop: &Stop| stop.scan.as_ref().is_some_and(ItemScan::is_by_index);
        match self.way {
            Way::InOrder => How::InOrder,
            Way::ByAge if self.counted => How::Counted,
            Way::ByAge if self.stops.iter().any(by_index) => How::ByIndex,
            Way::ByAge => How::Scanned,
        }
    }

    /// Items read so far, dead ones included.
    pub fn items(&self) -> usize {
        self.stops.iter().filter_map(|stop| stop.scan.as_ref()).map(ItemScan::items).sum()
    }

    /// The partition that the last items came from, by its place on the way.
    pub fn stop(&self) -> usize {
        self.current.min(self.stops.len().saturating_sub(1))
    }

    /// The partition at a place on the way.
    pub fn partition(&self, stop: usize) -> &Arc<Partition> {
        &self.stops[stop].target.partition
    }

    /// How many rows of an item, of the partition that the last items came from, earlier pages have given.
    pub fn rows_given(&self, ordinal: u64) -> u32 {
        match self.stops[self.stop()].left {
            Left::After(place) => place.rows_of(ordinal),
            Left::All | Left::Nothing => 0,
        }
    }

    /// How far the reading has come if all up to a place of a stop has been taken.
    pub fn places(&self, stop: usize, place: Place) -> Places {
        let mut places = vec![(self.partition(stop).id.partition, place)];
        for stop in &self.stops[stop + 1..] {
            match stop.left {
                Left::After(place) => places.push((stop.target.partition.id.partition, place)),
                Left::All | Left::Nothing => break,
            }
        }
        Places(places)
    }

    /// What the scan has cost so far, partition by partition.
    pub fn charges(&self) -> impl Iterator<Item = (&Arc<Partition>, RequestCharge)> {
        self.stops.iter().filter_map(|stop| Some((&stop.target.partition, stop.read?.charge())))
    }
}

/// The partition whose next item comes first, of those that have some waiting.
fn first(stops: &[Stop]) -> Option<usize> {
    let waiting = |stop: &Stop| stop.waiting.front().is_some();
    let heads = (0..stops.len()).filter(|at| waiting(&stops[*at]));
    heads.min_by(|a, b| {
        let head = |at: &usize| stops[*at].waiting.front().map(|(key, number, _)| (key, number));
        head(a).cmp(&head(b))
    })
}

impl Stop {
    /// The next living items.
    async fn read(&mut self) -> Result<Vec<Stored>> {
        let Some(scan) = self.scan.as_mut().filter(|_| !self.ended) else { return Ok(Vec::new()) };
        let items = scan.next().await?;
        self.read = Some(scan.tally());
        self.ended = items.is_empty();
        let first = scan.first_item();
        if let Some(first) = first.filter(|_| self.after() == self.first_item.checked_sub(1)) {
            self.target.partition.first_item.advance(first);
        }
        Ok(items)
    }

    /// The item behind which to begin.
    fn after(&self) -> Option<u64> {
        let taken = if let Left::After(place) = self.left { Some(place.ordinal) } else { None };
        taken.max(self.first_item.checked_sub(1))
    }

    /// Sees to it that items wait, if there are any.
    async fn fill(&mut self) -> Result<()> {
        if self.waiting.is_empty() && !self.ended {
            let items = self.read().await?;
            let (Some(scan), span) = (&self.scan, &self.target.partition.span) else {
                return Ok(());
            };
            for stored in items {
                let number = ChildRid::number(span.birthplace(stored.ordinal), stored.ordinal);
                self.waiting.push_back((scan.sort_key(&stored)?, number, stored));
            }
        }
        Ok(())
    }
}

impl Db {
    /// Lets a request to several partitions begin, or says when to come again.
    pub(crate) fn admit_all(&self, targets: &[Target]) -> Result<()> {
        targets.iter().try_for_each(|target| self.admit(&target.partition))
    }

    /// Books what a scan has cost, and says how much that is in all.
    pub(crate) fn settle_all(&self, fan: &Fan<'_>) -> RequestCharge {
        let mut sum = RequestCharge::default();
        for (partition, charge) in fan.charges() {
            self.settle(partition, charge);
            sum += charge;
        }
        sum
    }
}

/// The sessions of an answer from several partitions: the first, and the others.
pub(crate) fn sessions(targets: &[Target]) -> (Option<SessionToken>, Vec<SessionToken>) {
    let mut all = Partitions::sessions(targets);
    match all.is_empty() {
        true => (None, all),
        false => (Some(all.remove(0)), all),
    }
}
