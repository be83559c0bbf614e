//! A container at one moment, and what lives as long as it does.

use std::sync::{Arc, Mutex, OnceLock};

use arc_swap::ArcSwap;
use bytes::Bytes;
use model::clock::Timestamp;
use model::resource::{ChildKind, ChildRid, ContainerRid, Etag};
use model::ttl::TtlState;
use serde_json::{Value, json};

use crate::catalog::with_system_properties;
use crate::charge::Bucket;
use crate::keys::PartitionId;
use crate::partition::{Head, Partition, TtlCell};
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
    ) -> Self {
        let rid = runtime.rid;
        let path = format!("dbs/{database_id}/colls/{}", settings.id).into();
        let labels = Labels { rid: rid.to_string().into(), path };
        Self { rid, database_id: database_id.to_owned(), settings, etag, ts, runtime, labels }
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

    /// Its partition key ranges, as the wire shows them, and the etag of that list, with quotes.
    pub fn partition_key_ranges(&self) -> (Vec<Value>, String) {
        let range = |partition: &Arc<Partition>| {
            let number = partition.id.partition;
            let rid = ChildRid {
                container: self.rid,
                kind: ChildKind::PartitionKeyRange,
                number: u64::from(number) + 1,
            };
            json!({
                "_rid": rid.to_string(),
                "id": number.to_string(),
                "_etag": self.ranges_etag(),
                "minInclusive": "",
                "maxExclusive": "FF",
                "ridPrefix": number,
                "_self": format!("{}pkranges/{rid}/", self.self_link()),
                "throughputFraction": 1,
                "status": "online",
                "parents": [],
                "ownedArchivalPKRangeIds": [],
                "_ts": self.runtime.created.0,
                "_lsn": 1,
            })
        };
        (self.runtime.partitions().iter().map(range).collect(), self.ranges_etag())
    }

    fn ranges_etag(&self) -> String {
        Etag { lsn: u64::from(self.rid.number), seq: 0, ts: self.runtime.created }.to_string()
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
        self.runtime.partitions().iter().map(statistics).collect()
    }

    /// Items in storage and bytes of their bodies; expired ones count until they are purged.
    pub fn usage(&self) -> (u64, u64) {
        let heads = self.runtime.partitions().iter().map(|partition| partition.head());
        heads.fold((0, 0), |(items, bytes), head| (items + head.items, bytes + head.bytes))
    }
}

/// What all versions of a container share: its TTL rule, its current settings, its partitions.
#[derive(Debug)]
pub(crate) struct Runtime {
    pub rid: ContainerRid,
    pub created: Timestamp,
    pub ttl: TtlCell,
    settings: ArcSwap<Settings>,
    partitions: OnceLock<Vec<Arc<Partition>>>,
    pub bucket: Arc<Mutex<Bucket>>,
}

impl Runtime {
    pub fn new(
        rid: ContainerRid,
        created: Timestamp,
        ttl: TtlState,
        settings: Arc<Settings>,
        bucket: Arc<Mutex<Bucket>>,
    ) -> Self {
        let settings = ArcSwap::new(settings);
        Self { rid, created, ttl: TtlCell::new(ttl), settings, partitions: OnceLock::new(), bucket }
    }

    /// Starts the writers of its partitions, whose heads are as given.
    pub fn start(self: &Arc<Self>, db: &Db, heads: Vec<Head>) {
        let mut partitions = Vec::with_capacity(heads.len());
        for (number, head) in heads.into_iter().enumerate() {
            let id = PartitionId { container: self.rid.number, partition: number as u32 };
            let (partition, queue) = Partition::new(id, head, self.bucket.clone());
            let partition = Arc::new(partition);
            let writer = Writer::new(db, self.clone(), partition.clone(), queue);
            db.tasks.spawn(writer.run());
            partitions.push(partition);
        }
        self.partitions.set(partitions).expect("a container is started once");
    }

    pub fn partitions(&self) -> &[Arc<Partition>] {
        self.partitions.get().expect("a container is started before it is seen")
    }

    /// The settings in force now.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    pub fn set_settings(&self, settings: Arc<Settings>) {
        self.settings.store(settings);
    }
}
