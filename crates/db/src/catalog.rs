//! Databases, containers, offers: what there is.

use std::sync::Arc;

use model::clock::Timestamp;
use model::resource::{ContainerRid, DatabaseRid, Etag, OfferRid};
use serde_json::Value;

use crate::{Db, Result, Settings};

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
    /// As the wire shows it, system properties included.
    pub fn to_json(&self) -> Value {
        todo!()
    }
}

/// A container, as of one moment: a replace makes a new one. Holds what a request needs to reach its items.
#[derive(Debug)]
pub struct Container {
    /// Its numbers.
    pub rid: ContainerRid,
    /// Its database's name.
    pub database_id: String,
    /// What its owner has set.
    pub settings: Settings,
    /// Its version.
    pub etag: Etag,
    /// When it was last changed.
    pub ts: Timestamp,
}

impl Container {
    /// As the wire shows it, system properties included.
    pub fn to_json(&self) -> Value {
        todo!()
    }

    /// Its name.
    pub fn id(&self) -> &str {
        &self.settings.id
    }

    /// Its partition key ranges, as the wire shows them (the objects of the `PartitionKeyRanges` array), and the
    /// etag of that list, with quotes.
    pub fn partition_key_ranges(&self) -> (Vec<Value>, String) {
        todo!()
    }
}

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

/// The throughput of one database or container.
#[derive(Debug)]
pub struct Offer {
    /// Its number.
    pub rid: OfferRid,
    /// The throughput.
    pub throughput: Throughput,
}

impl Offer {
    /// As the wire shows it.
    pub fn to_json(&self) -> Value {
        todo!()
    }

    /// The least throughput it can be set to (header `x-ms-cosmos-min-throughput`).
    pub fn minimum(&self) -> u32 {
        todo!()
    }
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

/// Names or rids are accepted wherever a database or container is named.
impl Db {
    /// All databases, oldest first.
    pub fn databases(&self) -> Vec<Arc<Database>> {
        todo!()
    }

    /// One database. `NotFound` if there is none.
    pub fn database(&self, database: &str) -> Result<Arc<Database>> {
        todo!()
    }

    /// Creates a database from its JSON (`{"id": …}`).
    pub async fn create_database(&self, body: &Value, throughput: Option<Throughput>) -> Result<Arc<Database>> {
        todo!()
    }

    /// Deletes a database with all its containers, at once.
    pub async fn delete_database(&self, database: &str, if_match: Option<&str>) -> Result<()> {
        todo!()
    }

    /// All containers of a database, oldest first. `NotFound` if there is no such database.
    pub fn containers(&self, database: &str) -> Result<Vec<Arc<Container>>> {
        todo!()
    }

    /// One container, addressed itself: `NotFound` if it is not there, `OwnerNotFound` if its database is not.
    pub fn container(&self, database: &str, container: &str) -> Result<Arc<Container>> {
        todo!()
    }

    /// One container as the owner of what is addressed: `OwnerNotFound` if it is not there.
    pub fn owner(&self, database: &str, container: &str) -> Result<Arc<Container>> {
        todo!()
    }

    /// Creates a container from its JSON definition.
    pub async fn create_container(
        &self,
        database: &str,
        body: &Value,
        throughput: Option<Throughput>,
    ) -> Result<Arc<Container>> {
        todo!()
    }

    /// Replaces a container's definition; the default ttl counts for every item from then on (R15).
    pub async fn replace_container(
        &self,
        database: &str,
        container: &str,
        body: &Value,
        if_match: Option<&str>,
    ) -> Result<Arc<Container>> {
        todo!()
    }

    /// Deletes a container with all its items, at once.
    pub async fn delete_container(&self, database: &str, container: &str, if_match: Option<&str>) -> Result<()> {
        todo!()
    }

    /// All offers.
    pub fn offers(&self) -> Vec<Arc<Offer>> {
        todo!()
    }

    /// One offer by its rid.
    pub fn offer(&self, rid: &str) -> Result<Arc<Offer>> {
        todo!()
    }

    /// Replaces an offer's throughput by what its JSON says.
    pub async fn replace_offer(&self, rid: &str, body: &Value, migration: Migration) -> Result<Arc<Offer>> {
        todo!()
    }
}
