//! Databases, containers, offers: what there is.
//!
//! The whole catalog is in memory, replaced as a whole by each change and read without a lock. A change is first committed,
//! with a check that nobody else has changed the catalog meanwhile, then shown.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use model::clock::Timestamp;
use model::resource::{ContainerRid, DatabaseRid, Etag};
use model::ttl::TtlState;
use serde_json::{Map, Value, json};
use storage::{Batch, Check, Family};
use tokio::sync::oneshot;

use crate::container::{Container, Runtime};
use crate::keys::{Key, Meta, PartitionId};
use crate::partition::Head;
use crate::purge::Settled;
use crate::ranges::{Partitions, Span};
use crate::resources::{Owner, Resources};
use crate::servers::Epoch;
use crate::settings::resource_id;
use crate::throughput::{Offer, PARTITIONS_MAX, Throughput};
use crate::writer::Op;
use crate::{Db, Error, Result, Settings};

/// A database.
#[derive(Debug)]
pub struct Database {
    /// Its number.
    pub rid: DatabaseRid,
    /// Its name.
    pub id: String,
    /// Its version.
    pub etag: Etag,
    /// When it was last changed.
    pub ts: Timestamp,
}

impl Database {
    /// Its `_self` link.
    pub fn self_link(&self) -> String {
        format!("dbs/{}/", self.rid)
    }

    /// As the wire shows it, system properties included.
    pub fn to_json(&self) -> Value {
        let mut json = Map::new();
        json.insert("id".into(), self.id.clone().into());
        let rid = self.rid.to_string();
        let mut json = with_system_properties(json, (&rid, &self.self_link()), self.etag, self.ts);
        json["_colls"] = "colls/".into();
        json["_users"] = "users/".into();
        json
    }
}

/// All that there is, at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalog {
    pub databases: HashMap<String, Entry>,
    pub offers: BTreeMap<u32, Arc<Offer>>,
    pub resources: Resources,
    pub numbers: Numbers,
}

/// A database and its containers.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub database: Arc<Database>,
    pub containers: HashMap<String, Arc<Container>>,
}

/// The last numbers given out. Stored as one row that every change of the catalog checks and updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub database: u32,
    pub container: u32,
    pub offer: u32,
    /// Counts changes; part of every definition's etag.
    pub lsn: u64,
    /// Since when a server is about to change a rule, so that the others wait for it; 0 if none is. See [`crate::servers`].
    pub pending: u64,
}

impl Numbers {
    pub fn encode(&self) -> Vec<u8> {
        let mut all =
            vec![self.database.into(), self.container.into(), self.offer.into(), self.lsn];
        all.extend((self.pending > 0).then_some(self.pending));
        json!(all).to_string().into_bytes()
    }

    pub fn decode(bytes: &[u8]) -> storage::Result<Self> {
        let mut read = serde_json::from_slice::<Vec<u64>>(bytes).unwrap_or_default();
        if read.len() == 4 {
            read.push(0);
        }
        let read: Option<[u64; 5]> = read.try_into().ok();
        let [database, container, offer, lsn, pending] = read.ok_or_else(|| {
            storage::Error::Corrupt("the catalog's numbers cannot be read".into())
        })?;
        Ok(Self {
            database: database as u32,
            container: container as u32,
            offer: offer as u32,
            lsn,
            pending,
        })
    }
}

impl Catalog {
    /// A database by name, or by rid.
    pub(crate) fn entry(&self, database: &str) -> Option<&Entry> {
        self.databases.get(database).or_else(|| {
            let rid = DatabaseRid::parse(database)?;
            self.databases.values().find(|entry| entry.database.rid == rid)
        })
    }

    pub fn containers(&self) -> impl Iterator<Item = &Arc<Container>> {
        self.databases.values().flat_map(|entry| entry.containers.values())
    }
}

impl Entry {
    /// A container by name, or by rid.
    pub(crate) fn container(&self, container: &str) -> Option<&Arc<Container>> {
        self.containers.get(container).or_else(|| {
            let rid = ContainerRid::parse(container)?;
            self.containers.values().find(|container| container.rid == rid)
        })
    }
}

/// Names or rids are accepted wherever a database or container is named.
impl Db {
    /// All databases, oldest first.
    pub fn databases(&self) -> Vec<Arc<Database>> {
        let catalog = self.catalog.load();
        let mut all: Vec<_> =
            catalog.databases.values().map(|entry| entry.database.clone()).collect();
        all.sort_by_key(|database| database.rid);
        all
    }

    /// One database. `NotFound` if there is none.
    pub fn database(&self, database: &str) -> Result<Arc<Database>> {
        Ok(self.catalog.load().entry(database).ok_or(Error::NotFound)?.database.clone())
    }

    /// Creates a database from its JSON (`{"id": …}`).
    pub async fn create_database(
        &self,
        body: &Value,
        throughput: Option<Throughput>,
    ) -> Result<Arc<Database>> {
        let object = body.as_object().ok_or_else(|| {
            Error::Invalid(
                "The input content is invalid: a database is a JSON object with an 'id'.".into(),
            )
        })?;
        let id = resource_id(object)?;
        let mut change = self.change_catalog().await?;
        if change.catalog.databases.contains_key(&id) {
            return Err(Error::Exists);
        }
        let (etag, ts) = change.stamp();
        change.catalog.numbers.database += 1;
        let database =
            Arc::new(Database { rid: DatabaseRid(change.catalog.numbers.database), id, etag, ts });
        change.put(Key::Database(database.rid.0), &encode_database(&database));
        if let Some(throughput) = throughput {
            change.put_offer(None, database.self_link(), database.rid.to_string(), throughput);
        }
        let entry = Entry { database: database.clone(), containers: HashMap::new() };
        change.catalog.databases.insert(database.id.clone(), entry);
        change.commit().await?;
        Ok(database)
    }

    /// Deletes a database with all its containers, at once.
    pub async fn delete_database(&self, database: &str, if_match: Option<&str>) -> Result<()> {
        let mut change = self.change_catalog().await?;
        let entry = change.catalog.entry(database).ok_or(Error::NotFound)?.clone();
        check_version(entry.database.etag, if_match)?;
        change.announce(entry.containers.values()).await?;
        for container in entry.containers.values() {
            change.drop_container(container).await?;
        }
        change.drop_resources(|owner| owner.is_in(entry.database.rid));
        change.drop_offer(&entry.database.rid.to_string());
        change.delete(Key::Database(entry.database.rid.0));
        change.catalog.databases.remove(&entry.database.id);
        change.commit().await
    }

    /// All containers of a database, oldest first. `NotFound` if there is no such database.
    pub fn containers(&self, database: &str) -> Result<Vec<Arc<Container>>> {
        let catalog = self.catalog.load();
        let entry = catalog.entry(database).ok_or(Error::OwnerNotFound)?;
        let mut all: Vec<_> = entry.containers.values().cloned().collect();
        all.sort_by_key(|container| container.rid);
        Ok(all)
    }

    /// One container, addressed itself: `NotFound` if it is not there, `OwnerNotFound` if its database is not.
    pub fn container(&self, database: &str, container: &str) -> Result<Arc<Container>> {
        let catalog = self.catalog.load();
        let entry = catalog.entry(database).ok_or(Error::OwnerNotFound)?;
        entry.container(container).cloned().ok_or(Error::NotFound)
    }

    /// One container as the owner of what is addressed: `OwnerNotFound` if it is not there.
    pub fn owner(&self, database: &str, container: &str) -> Result<Arc<Container>> {
        self.container(database, container).map_err(|_| Error::OwnerNotFound)
    }

    /// Creates a container from its JSON definition.
    pub async fn create_container(
        &self,
        database: &str,
        body: &Value,
        throughput: Option<Throughput>,
    ) -> Result<Arc<Container>> {
        self.create_container_as(database, Settings::parse(body)?, throughput).await
    }

    /// Creates a container of documents; `body` has a part `documents` for the layout.
    pub async fn create_collection(
        &self,
        database: &str,
        body: &Value,
        throughput: Option<Throughput>,
    ) -> Result<Arc<Container>> {
        let layouts = self.options.layouts.ok_or(Error::OwnerNotFound)?;
        let settings = Settings::of_documents(body, layouts)?;
        self.create_container_as(database, settings, throughput).await
    }

    async fn create_container_as(
        &self,
        database: &str,
        settings: Settings,
        throughput: Option<Throughput>,
    ) -> Result<Arc<Container>> {
        let settings = Arc::new(settings);
        let mut change = self.change_catalog().await?;
        let entry = change.catalog.entry(database).ok_or(Error::OwnerNotFound)?;
        let (database, taken) =
            (entry.database.clone(), entry.containers.contains_key(&settings.id));
        if taken {
            return Err(Error::Exists);
        }
        let (etag, ts) = change.stamp();
        change.catalog.numbers.container += 1;
        let rid = ContainerRid { database: database.rid, number: change.catalog.numbers.container };
        let ttl = TtlState::new(settings.default_ttl);
        let shared = change.catalog.offer_of(&database.rid.to_string()).is_some();
        // A container of its own has the service's default throughput; in a database with throughput it shares that.
        let throughput = throughput.or((!shared).then_some(Throughput::DEFAULT));
        let offer = throughput.map(|throughput| {
            let link = format!("dbs/{}/colls/{rid}/", database.rid);
            change.put_offer(None, link, rid.to_string(), throughput)
        });
        let shared = offer.is_none().then(|| self.shared_bucket(&change.catalog, database.rid));
        let parts = match (&settings.layout, self.options.partitions) {
            // Documents are named, not hashed.
            (Some(_), _) => 1,
            (None, Some(parts)) => parts,
            _ => throughput.map_or(1, Throughput::partitions).min(PARTITIONS_MAX),
        };
        let runtime = Arc::new(Runtime::new(rid, ts, ttl, settings.clone(), shared.clone()));
        let head = Head { now: ts, ..Head::default() };
        let mut all = Vec::new();
        for span in Span::tile(&settings.partition_key, parts) {
            let id = PartitionId { container: rid.number, partition: span.number };
            change.put_bytes(Key::Head(id), head.encode().to_vec());
            let epoch = change.put_epoch(id);
            let bucket = shared.clone();
            let bucket =
                bucket.unwrap_or_else(|| self.new_bucket(offer.as_deref(), parts as usize));
            let partition = runtime.start(self, span, head, bucket);
            partition.set_epoch(epoch);
            all.push(partition);
        }
        let partitions = Arc::new(Partitions { all, gone: Vec::new(), version: 0 });
        let stamp = (etag, ts);
        let container = Container::new(&database.id, settings, stamp, runtime, partitions);
        let container = Arc::new(container);
        change.put(Key::Container(rid.number), &encode_container(&container, ttl));
        let entry = change.catalog.databases.get_mut(&database.id).ok_or(Error::OwnerNotFound)?;
        entry.containers.insert(container.settings.id.clone(), container.clone());
        change.commit().await?;
        Ok(container)
    }

    /// Replaces a container's definition; the default ttl counts for every item from then on (R15).
    pub async fn replace_container(
        &self,
        database: &str,
        container: &str,
        body: &Value,
        if_match: Option<&str>,
    ) -> Result<Arc<Container>> {
        let change = self.change_catalog().await?;
        let old = self.container(database, container)?;
        check_version(old.etag, if_match)?;
        let epoch = change.epoch();
        let settings = old.settings.replaced_by(body, self.options.layouts, epoch)?;
        change.replace_container(&old, settings).await
    }

    /// Replaces the definition of a container of documents, by its own front end: `edit` makes the new definition of the one in force.
    pub async fn replace_collection(
        &self,
        database: &str,
        container: &str,
        edit: impl FnOnce(&mut Map<String, Value>),
    ) -> Result<Arc<Container>> {
        let change = self.change_catalog().await?;
        let old = self.container(database, container)?;
        let mut body = old.settings.json.clone();
        edit(&mut body);
        let epoch = change.epoch();
        let body = Value::Object(body);
        let settings = old.settings.replaced_as(body, self.options.layouts, epoch)?;
        change.replace_container(&old, settings).await
    }

    /// Gives a container of documents another name within its database.
    pub async fn rename_collection(
        &self,
        database: &str,
        container: &str,
        to: &str,
    ) -> Result<Arc<Container>> {
        let mut change = self.change_catalog().await?;
        let old = self.container(database, container)?;
        let mut body = old.settings.json.clone();
        body.insert("id".into(), to.into());
        let settings = Settings::stored(&Value::Object(body), self.options.layouts)?;
        let entry = change.catalog.databases.get_mut(&old.database_id).ok_or(Error::NotFound)?;
        if entry.containers.contains_key(to) {
            return Err(Error::Exists);
        }
        entry.containers.remove(container);
        change.replace_container(&old, settings).await
    }

    /// Removes what former rules have expired in a container whose TTL is off, and forgets their marks: another kind of rule
    /// can follow, under which they would say something else.
    pub async fn forget_marks(&self, container: &Container) -> Result<()> {
        let mut change = self.change_catalog().await?;
        let current = self.container(&container.database_id, container.id())?;
        let ttl = TtlState::new(current.ttl().default);
        if ttl.default.is_on() {
            return Ok(());
        }
        change.announce([&current]).await?;
        let _settled = match current.settle().await {
            Ok(settled) => settled,
            Err(error) => return Err(change.withdrawn(error).await),
        };
        change.put(Key::Container(current.rid.number), &encode_container(&current, ttl));
        change.commit().await?;
        current.runtime.ttl.set(ttl);
        Ok(())
    }

    /// Deletes a container with all its items, at once.
    pub async fn delete_container(
        &self,
        database: &str,
        container: &str,
        if_match: Option<&str>,
    ) -> Result<()> {
        let mut change = self.change_catalog().await?;
        let container = self.container(database, container)?;
        check_version(container.etag, if_match)?;
        change.announce([&container]).await?;
        change.drop_container(&container).await?;
        change.commit().await
    }

    /// Begins a change of the catalog; others wait until it is committed or dropped.
    pub(crate) async fn change_catalog(&self) -> Result<Change<'_>> {
        let guard = self.catalog_lock.lock().await;
        if self.is_shared() {
            self.catch_up(&guard).await?;
        }
        let catalog = Catalog::clone(&self.catalog.load());
        Ok(Change { db: self, guard, before: catalog.numbers, catalog, batch: Batch::default() })
    }
}

/// A change of the catalog in the making.
pub(crate) struct Change<'a> {
    db: &'a Db,
    guard: tokio::sync::MutexGuard<'a, ()>,
    before: Numbers,
    pub catalog: Catalog,
    batch: Batch,
}

impl Change<'_> {
    /// The number of this change, once it is stamped.
    fn epoch(&self) -> u64 {
        self.catalog.numbers.lsn + 1
    }

    /// The version and time of what this change makes.
    pub fn stamp(&mut self) -> (Etag, Timestamp) {
        self.catalog.numbers.lsn += 1;
        let ts = self.db.now();
        (Etag { lsn: self.catalog.numbers.lsn, seq: 0, ts }, ts)
    }

    pub fn put(&mut self, key: Key<'_>, value: &Value) {
        self.put_bytes(key, value.to_string().into_bytes());
    }

    pub fn put_bytes(&mut self, key: Key<'_>, value: Vec<u8>) {
        self.batch.put(key.family(), key.encode(), value);
    }

    /// Has the container that is to be seen after the change.
    pub fn show(&mut self, container: &Arc<Container>) -> Result<()> {
        let entry = self.catalog.databases.get_mut(&container.database_id);
        let entry = entry.ok_or(Error::OwnerNotFound)?;
        entry.containers.insert(container.id().to_owned(), container.clone());
        Ok(())
    }

    pub fn delete(&mut self, key: Key<'_>) {
        self.batch.delete(key.family(), key.encode());
    }

    /// Replaces a container's definition.
    async fn replace_container(
        mut self,
        old: &Arc<Container>,
        settings: Settings,
    ) -> Result<Arc<Container>> {
        let db = self.db;
        let settings = Arc::new(settings);
        let (etag, ts) = self.stamp();
        let (owner, runtime) = (&old.database_id, old.runtime.clone());
        let (stamp, parts) = ((etag, ts), old.partitions.clone());
        let new = Arc::new(Container::new(owner, settings.clone(), stamp, runtime, parts));

        let cell = &old.runtime.ttl;
        let before = cell.state();
        self.announce([old]).await?;
        let now = cell.hold(|| db.now());
        let ttl = before.with_default(settings.default_ttl, now);
        let settled = match before.must_settle(settings.default_ttl, now) {
            true => old.settle().await.inspect_err(|_| cell.set(before)),
            false => Ok(Settled::default()),
        };
        let _settled = match settled {
            Ok(settled) => settled,
            Err(error) => return Err(self.withdrawn(error).await),
        };
        self.put(Key::Container(old.rid.number), &encode_container(&new, ttl));
        self.show(&new)?;
        match self.commit().await {
            Ok(()) => {
                cell.set(ttl);
                old.runtime.set_settings(settings);
                db.alarm.wake();
                Ok(new)
            }
            Err(error) => {
                cell.set(before);
                Err(error)
            }
        }
    }

    /// Takes a container out of the catalog. Its data is removed in the background; its name and all its items are
    /// gone when the change is committed.
    async fn drop_container(&mut self, container: &Container) -> Result<()> {
        for partition in &container.partitions.all {
            let (reply, closed) = oneshot::channel();
            // A writer that is already closed needs no closing.
            if partition.submit_later(Op::Close(reply)).await.is_ok() {
                closed.await.map_err(|_| Error::Stopping)?;
            }
            if !self.db.is_shared() {
                self.delete(Key::Head(partition.id));
                self.delete(Key::Reindex(partition.id));
            }
        }
        let number = container.rid.number;
        self.drop_resources(|owner| owner == Owner::Container(container.rid));
        self.drop_offer(&container.rid.to_string());
        self.delete(Key::Container(number));
        self.put_bytes(Key::Dropped(number), Vec::new());
        if let Some(entry) = self.catalog.databases.get_mut(&container.database_id) {
            entry.containers.remove(container.id());
        }
        self.db.alarm.wake();
        Ok(())
    }

    /// Where servers share the store: the row that every round of a new partition checks.
    fn put_epoch(&mut self, partition: PartitionId) -> Option<Epoch> {
        let epoch = Epoch::of(self.catalog.numbers.lsn);
        self.db.is_shared().then(|| {
            self.put_bytes(Key::Epoch(partition), epoch.encode().to_vec());
            epoch
        })
    }

    /// Where servers share the store: has all of them wait for this change before they decide anything by the rules that it ends, and every round
    /// fail that was made by these; from then on only this server's rounds can be committed. Then takes the time: nobody has seen an item expire later
    /// than now by a rule that is about to end (R13).
    async fn announce(&mut self, about: impl IntoIterator<Item = &Arc<Container>>) -> Result<()> {
        if !self.db.is_shared() {
            return Ok(());
        }
        let pending = Numbers { pending: self.db.now().0.max(1), ..self.before };
        let key = Key::Meta(Meta::Numbers).encode();
        let mut batch = Batch::default();
        batch.check(Family::Catalog, key.clone(), Some(self.before.encode().into()));
        batch.put(Family::Catalog, key.clone(), pending.encode());
        self.db.engine.commit(batch).await?;
        self.before = pending;
        let epoch = Epoch::of(self.catalog.numbers.lsn + 1);
        let partitions = about.into_iter().flat_map(|container| &container.partitions.all);
        let partitions: Vec<_> = partitions.cloned().collect();
        let mut batch = Batch::default();
        batch.check(Family::Catalog, key, Some(pending.encode().into()));
        for partition in &partitions {
            batch.put(Family::Catalog, Key::Epoch(partition.id).encode(), epoch.encode());
        }
        if let Err(error) = self.db.engine.commit(batch).await {
            self.db.withdraw(pending).await;
            return Err(error.into());
        }
        partitions.iter().for_each(|partition| partition.set_epoch(Some(epoch.clone())));
        match self.db.pulse().await {
            Ok(_) => Ok(()),
            Err(error) => {
                self.db.withdraw(pending).await;
                Err(error)
            }
        }
    }

    /// Takes the announcement of a change back that will not be made.
    async fn withdrawn(self, why: Error) -> Error {
        if self.before.pending > 0 {
            self.db.withdraw(self.before).await;
        }
        why
    }

    /// Makes the change durable, then shows it.
    pub async fn commit(mut self) -> Result<()> {
        self.write().await?;
        self.db.catalog.store(Arc::new(self.catalog));
        Ok(())
    }

    /// Makes the change durable, and then reads what there is, as every other server does.
    pub async fn commit_and_load(mut self) -> Result<()> {
        self.write().await?;
        self.db.catch_up(&self.guard).await
    }

    async fn write(&mut self) -> Result<()> {
        self.catalog.numbers.lsn += u64::from(self.catalog.numbers.lsn == self.before.lsn);
        let key = Key::Meta(Meta::Numbers).encode();
        let mut batch = std::mem::take(&mut self.batch);
        // First: of a store in several parts, the catalog's is written last.
        let check = Check {
            family: Family::Catalog,
            key: key.clone(),
            value: Some(self.before.encode().into()),
        };
        batch.checks.insert(0, check);
        batch.put(Family::Catalog, key, self.catalog.numbers.encode());
        let committed = self.db.engine.commit(batch).await;
        if committed.is_err() && self.before.pending > 0 {
            self.db.withdraw(self.before).await;
        }
        Ok(committed?)
    }

    /// Has the change fail if a row is not as it was read.
    pub fn check(&mut self, key: Key<'_>, value: Option<Bytes>) {
        self.batch.check(key.family(), key.encode(), value);
    }
}

/// If-Match for definitions.
pub(crate) fn check_version(etag: Etag, if_match: Option<&str>) -> Result<()> {
    match if_match {
        Some(wanted) if wanted != "*" && wanted != etag.to_string() => {
            Err(Error::PreconditionFailed)
        }
        _ => Ok(()),
    }
}

/// A definition with what the server adds to each.
pub(crate) fn with_system_properties(
    mut json: Map<String, Value>,
    (rid, self_link): (&str, &str),
    etag: Etag,
    ts: Timestamp,
) -> Value {
    json.insert("_rid".into(), rid.into());
    json.insert("_ts".into(), ts.0.into());
    json.insert("_self".into(), self_link.into());
    json.insert("_etag".into(), etag.to_string().into());
    Value::Object(json)
}

fn encode_database(database: &Database) -> Value {
    json!({"id": database.id, "lsn": database.etag.lsn, "ts": database.ts.0})
}

pub(crate) fn encode_container(container: &Container, ttl: TtlState) -> Value {
    let (partitions, gone) = container.partitions.encode();
    json!({
        "database": container.rid.database.0,
        "settings": container.settings.json,
        "indexing": container.settings.rebuild_json(),
        "partitions": partitions,
        "partitionsGone": gone,
        "partitionsVersion": container.partitions.version,
        "created": container.runtime.created.0,
        "inheritedMark": ttl.inherited_mark.map(|mark| mark.0),
        "ownMark": ttl.own_mark.map(|mark| mark.0),
        "lsn": container.etag.lsn,
        "ts": container.ts.0,
    })
}
