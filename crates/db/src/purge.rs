//! The purge: expired items leave storage.

use model::clock::Timestamp;

use crate::{Db, Result};

/// What one round of the purge did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PurgeReport {
    /// Items removed.
    pub purged: u64,
    /// Whether dead items are left (the budget ended the round).
    pub more: bool,
    /// When the next item is due, if nothing changes.
    pub next_due: Option<Timestamp>,
}

/// How far the purge is behind, for one container.
#[derive(Clone, Debug)]
pub struct TtlLag {
    /// The database's name.
    pub database: String,
    /// The container's name.
    pub container: String,
    /// Dead items still in storage (counted up to a cap).
    pub items: u64,
    /// Seconds since the oldest of them died.
    pub secs: u64,
    /// Items purged since the start.
    pub purged: u64,
    /// Request units the purge has used since the start.
    pub charge: f64,
}

impl Db {
    /// Removes expired items within the request units that clients have left over.
    pub async fn purge(&self) -> Result<PurgeReport> {
        todo!()
    }

    /// Removes all that is expired now, whatever it costs ("purge now", and for the virtual clock).
    pub async fn purge_all(&self) -> Result<PurgeReport> {
        todo!()
    }

    /// How far the purge is behind, container by container.
    pub async fn lag(&self) -> Result<Vec<TtlLag>> {
        todo!()
    }

    /// Waits until a write, a changed default or a moved clock may have made something due sooner.
    pub async fn purge_wanted(&self) {
        todo!()
    }
}
