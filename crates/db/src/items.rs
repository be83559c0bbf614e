//! Items: create, read, replace, upsert, delete, list.

use bytes::Bytes;
use model::partition_key::PartitionKey;
use model::resource::{Etag, SessionToken};

use crate::{Container, Db, Reply};

/// An item as it goes to the client.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its JSON, system properties included.
    pub body: Bytes,
    /// Its version.
    pub etag: Etag,
    /// The change that wrote it.
    pub lsn: u64,
}

/// What a read may ask for beyond the item.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOptions<'a> {
    /// What the client has already seen: [`crate::Error::SessionNotAvailable`] if this server has not.
    pub session: &'a [SessionToken],
}

/// What a write does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// The id must be free.
    Create,
    /// Creates or replaces.
    Upsert,
    /// The item with this id must exist (addressed by id or rid).
    Replace(String),
    /// The item with this id must exist (addressed by id or rid).
    Delete(String),
}

/// A write of one item.
#[derive(Clone, Debug)]
pub struct Write {
    /// What to do.
    pub verb: Verb,
    /// The partition key the client gave; read from the body where it gave none (needed for delete).
    pub partition_key: Option<PartitionKey>,
    /// The item's JSON text; empty for delete.
    pub body: Bytes,
    /// The version that must be there, quotes included, or `*`. An upsert checks it only where the item exists.
    pub if_match: Option<String>,
    /// `*`: the item must not be there.
    pub if_none_match: Option<String>,
}

/// A write that happened.
#[derive(Clone, Debug)]
pub struct Written {
    /// Whether a new item was made (201) or an old one replaced (200) or removed (204).
    pub created: bool,
    /// The item as it now is; `None` after a delete.
    pub item: Option<Item>,
}

/// Which items of a container.
#[derive(Clone, Debug)]
pub enum Scope {
    /// All.
    Container,
    /// Those of one partition key, or of a prefix of a hierarchical one.
    Key(PartitionKey),
    /// Those of one partition key range, by its id.
    Partition(u32),
    /// Those whose hash is at least `min` and below `max` (upper-case hex).
    Hashes {
        /// The first hash.
        min: String,
        /// The first hash beyond.
        max: String,
    },
}

/// How much to answer, and where to go on.
#[derive(Clone, Debug)]
pub struct PageRequest {
    /// The most items in a page.
    pub items_max: usize,
    /// The token of the page before.
    pub continuation: Option<String>,
}

/// A page of rows.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Each row's JSON.
    pub rows: Vec<Bytes>,
    /// Where to go on, if there may be more.
    pub continuation: Option<String>,
}

impl Db {
    /// Reads one item by id (or rid).
    pub async fn read(
        &self,
        container: &Container,
        key: &PartitionKey,
        id: &str,
        options: ReadOptions<'_>,
    ) -> Reply<Item> {
        todo!()
    }

    /// Creates, upserts, replaces or deletes one item. Durable when it returns.
    pub async fn write(&self, container: &Container, write: Write) -> Reply<Written> {
        todo!()
    }

    /// The items of a scope, in the order of their creation.
    pub async fn list(
        &self,
        container: &Container,
        scope: &Scope,
        page: &PageRequest,
        options: ReadOptions<'_>,
    ) -> Reply<Page> {
        todo!()
    }
}
