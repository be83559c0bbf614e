//! A container at one moment, and what lives as long as it does.

use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use bytes::Bytes;
use model::clock::Timestamp;
use model::partition_key::to_hex;
use model::resource::{ChildKind, ChildRid, ContainerRid, Etag};
use model::ttl::TtlState;
use serde_json::{Value, json};

use crate::catalog::with_system_properties;
use crate::charge::Bucket;
use crate::partition::{Head, Partition, TtlCell};
use crate::ranges::{Partitions, Span};
use crate::writer::Writer;
use crate::{Db, Settings};

/// A container, as of one moment: a replace makes a new one. Holds what a request needs to reach its items.
#[derive(Clone, Debug)]
pub struct Container {
    /// Its numbers.
    pub rid: ContainerRid,
    /// Its database's name.
    pub database_id: String,
    /// What its owner has set.
    pub settings: Arc<Settings>,
    /// Its version.
    pub etag: Etag,
    /// When it was last changed.
    pub ts: Timestamp,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) partitions: Arc<Partitions>,
    labels: Labels,
}

/// What every answer about a container's items repeats.
#[derive(Clone, Debug)]
struct Labels {
    rid: Bytes,
    path: Bytes,
}

impl Container {
    pub(crate) fn new(
        database_id: &str,
        settings: Arc<Settings>,
        (etag, ts): (Etag, Timestamp),
        runtime: Arc<Runtime>,
        partitions: Arc<Partitions>,
    ) -> Self {
        let rid = runtime.rid;
        let path = format!("dbs/{database_id}/colls/{}", settings.id).into();
        let labels = Labels { rid: rid.to_string().into(), path };
        let database_id = database_id.to_owned();
        Self { rid, database_id, settings, etag, ts, runtime, partitions, labels }
    }

    /// The same container with other partitions.
    pub(crate) fn with_partitions(&self, partitions: Arc<Partitions>) -> Self {
        Self { partitions, ..self.clone() }
    }

    /// Its rid as text.
    pub fn rid_text(&self) -> &Bytes {
        &self.labels.rid
    }

    /// Its path by names: `dbs/d/colls/c`.
    pub fn path(&self) -> &Bytes {
        &self.labels.path
    }

    /// Its name.
    pub fn id(&self) -> &str {
        &self.settings.id
    }

    /// How its documents are read; `None` if its items are JSON.
    pub fn layout(&self) -> Option<&dyn crate::documents::Layout> {
        self.settings.layout.as_deref()
    }

    /// Its `_self` link.
    pub fn self_link(&self) -> String {
        format!("dbs/{}/colls/{}/", self.rid.database, self.rid)
    }

    /// The TTL rule in force, with the marks that former rules left.
    pub fn ttl(&self) -> TtlState {
        self.runtime.ttl.state()
    }

    /// As the wire shows it, system properties included.
    pub fn to_json(&self) -> Value {
        let links = ["docs", "sprocs", "triggers", "udfs", "conflicts"];
        let rid = self.rid.to_string();
        let mut json = with_system_properties(
            self.settings.json.clone(),
            (&rid, &self.self_link()),
            self.etag,
            self.ts,
        );
        for link in links {
            json[format!("_{link}")] = format!("{link}/").into();
        }
        json
    }

    /// Its partition key ranges, as the wire shows them, and the etag of that list, with quotes. Whoever has the list of an
    /// earlier etag needs only those that came since.
    pub fn partition_key_ranges(&self, known: Option<&str>) -> (Vec<Value>, String) {
        let version = self.partitions.version;
        let seen = (0..=version).rfind(|version| known == Some(&self.ranges_etag(*version)));
        let range = |partition: &Arc<Partition>| {
            let Span { number, min, max, lineage, since } = &partition.span;
            let number = *number;
            let parents: Vec<String> = lineage.iter().map(|(id, _)| id.to_string()).collect();
            let rid = ChildRid {
                container: self.rid,
                kind: ChildKind::PartitionKeyRange,
                number: u64::from(number) + 1,
            };
            json!({
                "_rid": rid.to_string(),
                "id": number.to_string(),
                "_etag": self.ranges_etag(*since),
                "minInclusive": to_hex(min),
                "maxExclusive": to_hex(max),
                "ridPrefix": number,
                "_self": format!("{}pkranges/{rid}/", self.self_link()),
                "throughputFraction": 1.0 / self.partitions.all.len() as f64,
                "status": "online",
                "parents": parents,
                "ownedArchivalPKRangeIds": [],
                "_ts": self.runtime.created.0,
                "_lsn": 1,
            })
        };
        let all = self.partitions.all.iter();
        let new = all.filter(|partition| seen.is_none_or(|seen| partition.span.since > seen));
        (new.map(range).collect(), self.ranges_etag(version))
    }

    fn ranges_etag(&self, version: u32) -> String {
        let lsn = u64::from(self.rid.number) + (u64::from(version) << 32);
        Etag { lsn, seq: 0, ts: self.runtime.created }.to_string()
    }

    /// What each partition holds, as the wire shows it.
    pub fn statistics(&self) -> Value {
        let statistics = |partition: &Arc<Partition>| {
            let head = partition.head();
            json!({
                "id": partition.id.partition.to_string(),
                "sizeInKB": head.bytes.div_ceil(1_024),
                "documentCount": head.items,
                "partitionKeys": [],
            })
        };
        self.partitions.all.iter().map(statistics).collect()
    }

    /// Items in storage and bytes of their bodies; expired ones count until they are purged.
    pub fn usage(&self) -> (u64, u64) {
        let heads = self.partitions.all.iter().map(|partition| partition.head());
        heads.fold((0, 0), |(items, bytes), head| (items + head.items, bytes + head.bytes))
    }
}

/// What all versions of a container share: its TTL rule and its current settings.
#[derive(Debug)]
pub(crate) struct Runtime {
    pub rid: ContainerRid,
    pub created: Timestamp,
    pub ttl: TtlCell,
    settings: ArcSwap<Settings>,
    /// The bucket that it shares with the others of its database, if it does.
    pub shared: Option<Arc<Mutex<Bucket>>>,
}

impl Runtime {
    pub fn new(
        rid: ContainerRid,
        created: Timestamp,
        ttl: TtlState,
        settings: Arc<Settings>,
        shared: Option<Arc<Mutex<Bucket>>>,
    ) -> Self {
        let settings = ArcSwap::new(settings);
        Self { rid, created, ttl: TtlCell::new(ttl), settings, shared }
    }

    /// Starts a partition with its writer.
    pub fn start(
        self: &Arc<Self>,
        db: &Db,
        span: Span,
        head: Head,
        bucket: Arc<Mutex<Bucket>>,
    ) -> Arc<Partition> {
        let (partition, queue) = Partition::new(self.rid.number, span, head, bucket);
        let partition = Arc::new(partition);
        db.tasks.spawn(Writer::new(db, self.clone(), partition.clone(), queue).run());
        partition
    }

    /// The settings in force now.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    pub fn set_settings(&self, settings: Arc<Settings>) {
        self.settings.store(settings);
    }
}
