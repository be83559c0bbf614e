//! Offers: the throughput that databases and containers are provisioned with.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use model::clock::Timestamp;
use model::resource::{DatabaseRid, Etag, OfferRid};
use serde_json::{Map, Value, json};

use crate::catalog::{Catalog, Change, with_system_properties};
use crate::charge::Bucket;
use crate::keys::Key;
use crate::{Container, Db, Error, Result};

/// Provisioned throughput, in request units a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throughput {
    /// Fixed.
    Manual(u32),
    /// From a tenth of this up to it.
    Autoscale {
        /// The most it scales to.
        max: u32,
        /// By how many per cent the maximum grows with storage, if it does.
        increment_percent: Option<u32>,
    },
}

const THROUGHPUT_MAX: u32 = 1_000_000;
const AUTOSCALE_MIN: u32 = 1_000;

/// The most request units a second that one partition serves.
const PARTITION_RATE_MAX: u32 = 10_000;

/// The most partitions that a container is given; throughput beyond that is spread over these.
pub(crate) const PARTITIONS_MAX: u32 = 100;

impl Throughput {
    /// What a container gets that names none.
    pub const DEFAULT: Self = Self::Manual(400);

    /// How many partitions it needs: one for each 10,000 request units a second.
    pub fn partitions(self) -> u32 {
        self.max().div_ceil(PARTITION_RATE_MAX).max(1)
    }

    /// The most request units a second.
    pub fn max(self) -> u32 {
        match self {
            Self::Manual(max) | Self::Autoscale { max, .. } => max,
        }
    }

    /// Manual throughput, if the number is one that can be provisioned.
    pub fn manual(rate: i64) -> Result<Self> {
        u32::try_from(rate)
            .map(Self::Manual)
            .map_err(|_| Self::Manual(0).out_of_range())?
            .validate()
    }

    /// Autoscale throughput, if the number is one that can be provisioned.
    pub fn autoscale(max: i64, increment_percent: Option<u32>) -> Result<Self> {
        if max < i64::from(AUTOSCALE_MIN) {
            return Err(Error::Invalid(format!(
                "Requested throughput {max} is less than required minimum throughput {AUTOSCALE_MIN}."
            )));
        }
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        Self::Autoscale { max, increment_percent }.validate()
    }

    /// Checks the range and the steps.
    fn validate(self) -> Result<Self> {
        let (least, step) = self.steps();
        let max = self.max();
        match (least..=THROUGHPUT_MAX).contains(&max) && max.is_multiple_of(step) {
            true => Ok(self),
            false => Err(self.out_of_range()),
        }
    }

    /// The least throughput, and what it can be raised by.
    fn steps(self) -> (u32, u32) {
        match self {
            Self::Manual(_) => (400, 100),
            Self::Autoscale { .. } => (AUTOSCALE_MIN, 1_000),
        }
    }

    fn out_of_range(self) -> Error {
        let (least, step) = self.steps();
        Error::Invalid(format!(
            "The value of offer throughput specified is invalid. Please specify a value between {least} and \
             {THROUGHPUT_MAX} inclusive in increments of {step}. Please contact https://azure.microsoft.com/support to \
             request limit increases beyond {THROUGHPUT_MAX} RU/s."
        ))
    }
}

/// The throughput of one database or container.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Its number.
    pub rid: OfferRid,
    /// The throughput.
    pub throughput: Throughput,
    /// The `_self` link of what it belongs to.
    pub resource: String,
    /// The rid of what it belongs to.
    pub resource_rid: String,
    /// The most it has ever been.
    pub highest: u32,
    /// Its version.
    pub etag: Etag,
    /// When it was last changed.
    pub ts: Timestamp,
}

/// What a container holds and has used.
#[derive(Clone, Debug)]
pub struct Usage {
    /// The database's name.
    pub database: String,
    /// The container's name.
    pub container: String,
    /// Items in storage, expired ones included until they are purged.
    pub items: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Request units that clients have used since the start.
    pub charge: f64,
    /// Requests refused for want of request units since the start.
    pub throttled: u64,
    /// Request units that the purge may use now; `None` has no limit.
    pub spare: Option<f64>,
}

/// What an offer replace may change beyond the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migration {
    /// Not asked for.
    None,
    /// From manual to autoscale.
    ToAutoscale,
    /// From autoscale to manual.
    ToManual,
}

impl Offer {
    /// As the wire shows it.
    pub fn to_json(&self) -> Value {
        let mut content = json!({
            "offerThroughput": match self.throughput {
                Throughput::Manual(rate) => rate,
                Throughput::Autoscale { max, .. } => max / 10,
            },
            "offerIsRUPerMinuteThroughputEnabled": false,
            "offerMinimumThroughputParameters": {
                "maxThroughputEverProvisioned": self.highest,
                "maxConsumedStorageEverInKB": 0,
            },
        });
        if let Throughput::Autoscale { max, increment_percent } = self.throughput {
            let mut settings = json!({"maxThroughput": max});
            if let Some(percent) = increment_percent {
                settings["autoUpgradePolicy"] =
                    json!({"throughputPolicy": {"incrementPercent": percent}});
            }
            content["offerAutopilotSettings"] = settings;
        }
        let rid = self.rid.to_string();
        let mut json = Map::new();
        json.insert("resource".into(), self.resource.clone().into());
        json.insert("offerType".into(), "Invalid".into());
        json.insert("offerResourceId".into(), self.resource_rid.clone().into());
        json.insert("offerVersion".into(), "V2".into());
        json.insert("content".into(), content);
        json.insert("id".into(), rid.clone().into());
        with_system_properties(json, (&rid, &format!("offers/{rid}/")), self.etag, self.ts)
    }

    /// The least throughput it can be set to.
    pub fn minimum(&self) -> u32 {
        match self.throughput {
            Throughput::Manual(_) => (self.highest / 100).max(400),
            Throughput::Autoscale { .. } => (self.highest / 10).max(1_000),
        }
    }

    pub(crate) fn encode(&self) -> Value {
        let (max, autoscale, increment) = match self.throughput {
            Throughput::Manual(max) => (max, false, None),
            Throughput::Autoscale { max, increment_percent } => (max, true, increment_percent),
        };
        json!({
            "max": max, "autoscale": autoscale, "increment": increment, "resource": self.resource,
            "resourceRid": self.resource_rid, "highest": self.highest, "lsn": self.etag.lsn, "ts": self.ts.0,
        })
    }

    pub(crate) fn decode(number: u32, value: &Value) -> Option<Self> {
        let ts = Timestamp(value["ts"].as_u64()?);
        let max = value["max"].as_u64()? as u32;
        let increment_percent = value["increment"].as_u64().map(|percent| percent as u32);
        Some(Self {
            rid: OfferRid(number),
            throughput: match value["autoscale"].as_bool()? {
                true => Throughput::Autoscale { max, increment_percent },
                false => Throughput::Manual(max),
            },
            resource: value["resource"].as_str()?.to_owned(),
            resource_rid: value["resourceRid"].as_str()?.to_owned(),
            highest: value["highest"].as_u64()? as u32,
            etag: Etag { lsn: value["lsn"].as_u64()?, seq: 0, ts },
            ts,
        })
    }
}

impl Catalog {
    /// The offer of a database or container, by its rid.
    pub fn offer_of(&self, resource_rid: &str) -> Option<&Arc<Offer>> {
        self.offers.values().find(|offer| offer.resource_rid == resource_rid)
    }
}

impl Change<'_> {
    /// Adds an offer, or a new version of one.
    pub fn put_offer(
        &mut self,
        old: Option<&Offer>,
        resource: String,
        resource_rid: String,
        throughput: Throughput,
    ) -> Arc<Offer> {
        let (etag, ts) = self.stamp();
        let rid = match old {
            Some(old) => old.rid,
            None => {
                self.catalog.numbers.offer += 1;
                OfferRid(self.catalog.numbers.offer)
            }
        };
        let highest = old.map_or(0, |old| old.highest).max(throughput.max());
        let offer = Arc::new(Offer { rid, throughput, resource, resource_rid, highest, etag, ts });
        self.put(Key::Offer(rid.0), &offer.encode());
        self.catalog.offers.insert(rid.0, offer.clone());
        offer
    }

    /// Removes the offer of a database or container, if it has one.
    pub fn drop_offer(&mut self, resource_rid: &str) {
        if let Some(rid) = self.catalog.offer_of(resource_rid).map(|offer| offer.rid) {
            self.catalog.offers.remove(&rid.0);
            self.delete(Key::Offer(rid.0));
        }
    }
}

impl Db {
    /// All offers.
    pub fn offers(&self) -> Vec<Arc<Offer>> {
        self.catalog.load().offers.values().cloned().collect()
    }

    /// What each container holds and has used since the start.
    pub fn usage(&self) -> Vec<Usage> {
        let catalog = self.catalog.load();
        let mut all: Vec<_> =
            catalog.containers().map(|container| self.usage_of(container)).collect();
        all.sort_by(|a, b| (&a.database, &a.container).cmp(&(&b.database, &b.container)));
        all
    }

    /// What one container holds and has used since the start.
    pub fn usage_of(&self, container: &Container) -> Usage {
        let (items, bytes) = container.usage();
        let mut usage = Usage {
            database: container.database_id.clone(),
            container: container.id().to_owned(),
            items,
            bytes,
            charge: 0.0,
            throttled: 0,
            spare: None,
        };
        for partition in &container.partitions.all {
            usage.charge += partition.spent_millis.load(Ordering::Relaxed) as f64 / 1e3;
            usage.throttled += partition.throttled.load(Ordering::Relaxed);
            let spare = partition.bucket().spare(self.clock.elapsed());
            usage.spare = match (usage.spare, spare, &container.runtime.shared) {
                // Each partition has a bucket of its own.
                (Some(others), Some(spare), None) => Some(others + spare),
                (_, spare, _) => spare,
            };
        }
        usage
    }

    /// One offer by its rid.
    pub fn offer(&self, rid: &str) -> Result<Arc<Offer>> {
        let number = OfferRid::parse(rid).ok_or(Error::NotFound)?.0;
        self.catalog.load().offers.get(&number).cloned().ok_or(Error::NotFound)
    }

    /// Replaces an offer's throughput by what its JSON says.
    pub async fn replace_offer(
        &self,
        rid: &str,
        body: &Value,
        migration: Migration,
    ) -> Result<Arc<Offer>> {
        let mut change = self.change_catalog().await?;
        let old = self.offer(rid)?;
        let throughput = wanted(&old, body, migration)?.validate()?;
        if throughput.max() < old.minimum() && migration == Migration::None {
            return Err(Error::Invalid(format!(
                "The offer should have valid throughput values between {} and {THROUGHPUT_MAX} inclusive in \
                 increments of 100.",
                old.minimum()
            )));
        }
        let offer = change.put_offer(
            Some(&old),
            old.resource.clone(),
            old.resource_rid.clone(),
            throughput,
        );
        change.commit().await?;
        self.apply_offer(&offer);
        self.split_up_to(&offer).await?;
        Ok(offer)
    }

    /// Splits the fullest partition of a container until it has as many as its throughput needs.
    async fn split_up_to(&self, offer: &Offer) -> Result<()> {
        // Who has said how many partitions there are to be has said so for ever.
        if self.options.partitions.is_some() {
            return Ok(());
        }
        loop {
            let catalog = self.catalog.load_full();
            let mut containers = catalog.containers();
            let owner = containers.find(|owner| owner.rid.to_string() == offer.resource_rid);
            let Some(owner) = owner.filter(|owner| owner.settings.layout.is_none()) else {
                return Ok(());
            };
            let all = &owner.partitions.all;
            if all.len() >= offer.throughput.partitions().min(PARTITIONS_MAX) as usize {
                return Ok(());
            }
            let fullest = all.iter().max_by_key(|partition| partition.head().bytes);
            let number = fullest.map_or(0, |partition| partition.id.partition);
            self.split(&owner.database_id, owner.id(), number).await?;
        }
    }

    /// Gives the partitions that an offer pays for their new rate.
    pub(crate) fn apply_offer(&self, offer: &Offer) {
        let at = self.clock.elapsed();
        for container in self.catalog.load().containers() {
            let own = container.rid.to_string() == offer.resource_rid;
            let catalog = self.catalog.load();
            let shared = container.rid.database.to_string() == offer.resource_rid
                && catalog.offer_of(&container.rid.to_string()).is_none();
            let parts = if own { container.partitions.all.len() } else { 1 };
            if own || shared {
                for partition in &container.partitions.all {
                    partition.bucket().set_rate(self.rate(Some(offer), parts), at);
                }
            }
        }
    }

    /// Gives all partitions of a container their share again, after it has got more of them.
    pub(crate) fn spread_offer(&self, container: &Container) {
        let offer = self.catalog.load().offer_of(&container.rid.to_string()).cloned();
        if let Some(offer) = offer {
            self.apply_offer(&offer);
        }
    }

    /// A bucket for a new partition of a container that has so many.
    pub(crate) fn bucket_of(&self, container: &Container, parts: usize) -> Arc<Mutex<Bucket>> {
        let catalog = self.catalog.load();
        let offer = catalog.offer_of(&container.rid.to_string()).map(|offer| &**offer);
        let shared = container.runtime.shared.clone();
        shared.unwrap_or_else(|| self.new_bucket(offer, parts))
    }

    /// A bucket for one of so many partitions that an offer is spread over.
    pub(crate) fn new_bucket(&self, offer: Option<&Offer>, parts: usize) -> Arc<Mutex<Bucket>> {
        Arc::new(Mutex::new(Bucket::new(self.rate(offer, parts), self.clock.elapsed())))
    }

    /// The bucket that all containers of a database with throughput share.
    pub(crate) fn shared_bucket(
        &self,
        catalog: &Catalog,
        database: DatabaseRid,
    ) -> Arc<Mutex<Bucket>> {
        let sibling = catalog
            .containers()
            .filter(|container| container.rid.database == database)
            .find(|container| catalog.offer_of(&container.rid.to_string()).is_none());
        let known = sibling.and_then(|sibling| sibling.runtime.shared.clone());
        known.unwrap_or_else(|| {
            self.new_bucket(catalog.offer_of(&database.to_string()).map(|offer| &**offer), 1)
        })
    }

    /// Without throttling nobody is held to a rate, and the purge has no left-over to wait for.
    fn rate(&self, offer: Option<&Offer>, parts: usize) -> Option<f64> {
        let offer = offer.filter(|_| self.options.throttle);
        offer.map(|offer| f64::from(offer.throughput.max()) / parts as f64)
    }
}

/// The throughput that a replace asks for.
fn wanted(old: &Offer, body: &Value, migration: Migration) -> Result<Throughput> {
    let content = &body["content"];
    let autoscale = content.get("offerAutopilotSettings").filter(|settings| !settings.is_null());
    let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
    let missing = || Error::Invalid("The offer's content names no throughput.".into());
    match (old.throughput, migration) {
        (Throughput::Manual(rate), Migration::ToAutoscale) => {
            let max = rate.next_multiple_of(1_000).max(1_000);
            Ok(Throughput::Autoscale { max, increment_percent: None })
        }
        (Throughput::Autoscale { max, .. }, Migration::ToManual) => {
            Ok(Throughput::Manual((max / 10).max(400)))
        }
        (Throughput::Manual(_), _) if autoscale.is_some() => Err(Error::Invalid(
            "Updating offer to autoscale throughput is not allowed. Please invoke migration API to migrate this offer."
                .into(),
        )),
        (Throughput::Autoscale { .. }, _) => {
            let settings = autoscale.ok_or_else(missing)?;
            let max = number(&settings["maxThroughput"]).ok_or_else(missing)?;
            let percent = &settings["autoUpgradePolicy"]["throughputPolicy"]["incrementPercent"];
            Ok(Throughput::Autoscale { max, increment_percent: number(percent) })
        }
        (Throughput::Manual(_), _) => {
            Ok(Throughput::Manual(number(&content["offerThroughput"]).ok_or_else(missing)?))
        }
    }
}
