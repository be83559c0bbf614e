//! A scan over all partitions of a scope, one after the other in the order of their hashes, at one snapshot and one `now`.

use std::sync::Arc;

use model::resource::SessionToken;
use query::plan::Condition;

use crate::access::Access;
use crate::charge::RequestCharge;
use crate::items::Scope;
use crate::partition::Partition;
use crate::ranges::{Left, Partitions, Places, Target};
use crate::scan::{ItemScan, ScopeFilter, View};
use crate::writer::Stored;
use crate::{Container, Db, Result};

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
    scan: Option<ItemScan>,
}

/// A partition on the way.
struct Stop {
    target: Target,
    left: Left,
    charge: Option<RequestCharge>,
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
            Ok(Stop { target: target.clone(), left, charge: None })
        };
        Ok(Self {
            view: View::new(db, container),
            container,
            scope,
            condition: None,
            stops: targets.iter().map(stop).collect::<Result<_>>()?,
            current: 0,
            scan: None,
        })
    }

    /// Goes by the index where one serves.
    pub fn by_index(mut self, condition: Condition) -> Self {
        self.condition = Some(condition);
        self
    }

    /// The next living items, all of one partition; none means that there are no more.
    pub async fn next(&mut self) -> Result<Vec<Stored>> {
        while self.current < self.stops.len() {
            if self.scan.is_none() {
                self.scan = self.open().await?;
            }
            if let Some(scan) = &mut self.scan {
                let items = scan.next().await?;
                self.stops[self.current].charge = Some(scan.charge());
                if !items.is_empty() {
                    return Ok(items);
                }
            }
            self.scan = None;
            self.current += 1;
        }
        Ok(Vec::new())
    }

    async fn open(&self) -> Result<Option<ItemScan>> {
        let stop = &self.stops[self.current];
        let after = match stop.left {
            Left::Nothing => return Ok(None),
            Left::All => None,
            Left::After(ordinal) => Some(ordinal),
        };
        let scope = if stop.target.whole { &Scope::Container } else { self.scope };
        let filter = ScopeFilter::new(self.container, scope)?;
        let partition = stop.target.partition.id;
        let mut scan = ItemScan::new(&self.view, partition, filter, after);
        let settings = self.container.runtime.settings();
        let access = self.condition.as_ref();
        if let Some(access) = access.and_then(|c| Access::choose(partition, &settings, c)) {
            scan.go_by(&access, after).await?;
        }
        Ok(Some(scan))
    }

    /// The partition that the last items came from, by its place on the way.
    pub fn stop(&self) -> usize {
        self.current.min(self.stops.len().saturating_sub(1))
    }

    /// The partition at a place on the way.
    pub fn partition(&self, stop: usize) -> &Arc<Partition> {
        &self.stops[stop].target.partition
    }

    /// What earlier pages have left of the partition at a place on the way.
    pub fn left(&self, places: &Places, stop: usize) -> Result<Left> {
        places.left(&self.container.partitions, &self.partition(stop).span)
    }

    /// How far the reading has come if all up to an item of a stop has been taken.
    pub fn places(&self, stop: usize, ordinal: u64) -> Places {
        let mut places = vec![(self.partition(stop).id.partition, ordinal)];
        for stop in &self.stops[stop + 1..] {
            match stop.left {
                Left::After(ordinal) => places.push((stop.target.partition.id.partition, ordinal)),
                Left::All | Left::Nothing => break,
            }
        }
        Places(places)
    }

    /// What the scan has cost so far, partition by partition.
    pub fn charges(&self) -> impl Iterator<Item = (&Arc<Partition>, RequestCharge)> {
        self.stops.iter().filter_map(|stop| Some((&stop.target.partition, stop.charge?)))
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
