//! Ordered bytes: the whole contract between the database and what keeps its data.
//!
//! An [`Engine`] holds a few fixed [`Family`]s of key-value pairs in byte order. It is read through a
//! [`Snapshot`], which never changes, and written by [`Engine::commit`], which applies a [`Batch`] of
//! checks and writes as a whole, or not at all. That is everything: this crate has never heard of an
//! item, and nothing above it may assume that it is the only process on the store.
//!
//! Calls are asynchronous because an engine may be on another machine; the local engines answer
//! without ever yielding.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;

use bytes::Bytes;

pub mod embedded;
pub mod keycode;
pub mod memory;
pub mod postgres;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

/// What an engine call gives back: a future that can be held behind `dyn`.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// The result of an engine call.
pub type Result<T> = std::result::Result<T, Error>;

/// One of the fixed sets of keys. Keys of different families never meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Small and hot: definitions, partition heads, cursors. Flushed often.
    Catalog,
    /// The records themselves; the only family with large values.
    Item,
    /// Names to ordinals.
    Id,
    /// Index terms; values are empty.
    Index,
    /// Instants of expiry.
    Expiry,
    /// Changes in their order.
    Feed,
}

impl Family {
    /// All families, in the order of their discriminants.
    pub const ALL: [Family; 6] =
        [Self::Catalog, Self::Item, Self::Id, Self::Index, Self::Expiry, Self::Feed];
}

/// Ordered, durable bytes.
pub trait Engine: Send + Sync {
    /// The state of some moment between this call and the first read: it has all commits that had returned before the call. Of a store that keeps
    /// keys in several places, each is as of its own first read.
    fn snapshot(&self) -> Box<dyn Snapshot>;

    /// Reads of which each sees a state of its own, not before the call. For one who commits with a check that fails if
    /// anything was changed meanwhile: what he has read was then of one state after all. Cheaper than a snapshot where the
    /// store is on another machine.
    fn latest(&self) -> Box<dyn Snapshot> {
        self.snapshot()
    }

    /// The value at `key` as of the last commit that has returned, or a later one: a snapshot for a single look.
    fn get(&self, family: Family, key: &[u8]) -> Answer<'_, Option<Bytes>> {
        let (snapshot, key) = (self.snapshot(), Bytes::copy_from_slice(key));
        Box::pin(async move { snapshot.get(family, &key).await })
    }

    /// Where several processes may use the store: the value at `key` and the store's own time, both of a moment after the call. `None` where this
    /// process is the only one, and its own clock as good as any.
    fn pulse(&self, family: Family, key: &[u8]) -> Option<Answer<'_, Pulse>> {
        let (_, _) = (family, key);
        None
    }

    /// A [`Engine::pulse`], and the value at another key, which is of the same moment or a later one: in one question where that can be.
    fn pulse_and_get(
        &self,
        pulse: (Family, &[u8]),
        get: (Family, &[u8]),
    ) -> Option<Answer<'_, (Pulse, Option<Bytes>)>> {
        let pulse = self.pulse(pulse.0, pulse.1)?;
        let (family, key) = (get.0, Bytes::copy_from_slice(get.1));
        Some(Box::pin(async move {
            let pulse = pulse.await?;
            Ok((pulse, self.get(family, &key).await?))
        }))
    }

    /// Applies the writes if every check holds. Durable when it returns; visible to snapshots taken after
    /// it returns, and to none before it is durable.
    ///
    /// A store may keep keys in several places ([`postgres::Buckets::home`]). If one of them is lost in the middle of a commit, what lies elsewhere
    /// than the first check (without checks: the first write) may be written without the rest, though the answer is an error; never the other way round.
    ///
    /// The work goes on to its end even if the future is dropped. Once polled, it is ahead of every commit that is made later and has
    /// its first check on the same key.
    fn commit(&self, batch: Batch) -> Answer<'_, ()>;

    /// Refuses all commits of all processes on the store with [`Error::Unavailable`] from when this returns, until it is told otherwise; reads go on. A
    /// store that only one process can have leaves it to that process, and does nothing.
    fn freeze(&self, frozen: bool) -> Answer<'_, ()> {
        let _ = frozen;
        Box::pin(std::future::ready(Ok(())))
    }

    /// A hint that nothing in `family` between `prefix` and `key` will be read again, for engines that can drop dead
    /// prefixes cheaply. May do nothing.
    fn reclaim_below(&self, family: Family, prefix: &[u8], key: &[u8]);

    /// Sizes and counters, for people and metrics.
    fn stats(&self) -> Stats;

    /// Flushes everything and stops. Later calls answer [`Error::Closed`].
    fn close(&self) -> Answer<'_, ()>;
}

/// A state of the store that never changes.
pub trait Snapshot: Send + Sync {
    /// The value at `key`.
    fn get(&self, family: Family, key: &[u8]) -> Answer<'_, Option<Bytes>>;

    /// The values at several keys, in their order.
    fn get_many(&self, family: Family, keys: Vec<Bytes>) -> Answer<'_, Vec<Option<Bytes>>> {
        Box::pin(async move {
            let mut values = Vec::with_capacity(keys.len());
            for key in &keys {
                values.push(self.get(family, key).await?);
            }
            Ok(values)
        })
    }

    /// Up to `limit` pairs within `range` (start included, end not), in the given direction. Fewer than `limit` means
    /// that the range ends there.
    fn scan(
        &self,
        family: Family,
        range: Range<Bytes>,
        direction: Direction,
        limit: usize,
    ) -> Answer<'_, Vec<Pair>>;
}

/// A sign of life of a store that several processes share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulse {
    /// The value that was asked for.
    pub value: Option<Bytes>,
    /// The store's time, in whole seconds since 1970.
    pub now_secs: u64,
}

/// The longest key, in bytes. The shortest has one.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = u32::MAX as usize;

/// A key and its value.
pub type Pair = (Bytes, Bytes);

/// Which end of a range a scan begins at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the smallest key up.
    Forward,
    /// From the largest key down.
    Backward,
}

/// What [`Engine::commit`] applies: all of it or nothing.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Conditions on the state just before this batch.
    pub checks: Vec<Check>,
    /// Applied in order: a later write to the same key wins.
    pub writes: Vec<Write>,
}

impl Batch {
    /// Sets `key` to `value`.
    pub fn put(&mut self, family: Family, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.writes.push(Write { family, key: key.into(), value: Some(value.into()) });
    }

    /// Removes `key`, whether it is there or not.
    pub fn delete(&mut self, family: Family, key: impl Into<Bytes>) {
        self.writes.push(Write { family, key: key.into(), value: None });
    }

    /// Requires that `key` has `value` (`None`: is absent).
    pub fn check(&mut self, family: Family, key: impl Into<Bytes>, value: Option<Bytes>) {
        self.checks.push(Check { family, key: key.into(), value });
    }

    /// Refuses keys and values of a length that an engine cannot hold. Every engine calls it before anything else.
    pub fn validate(&self) -> Result<()> {
        let keys = self.checks.iter().map(|check| &check.key);
        let mut keys = keys.chain(self.writes.iter().map(|write| &write.key));
        if keys.any(|key| key.is_empty() || key.len() > KEY_BYTES_MAX) {
            return Err(Error::Invalid("a key must have 1 to 65,535 bytes"));
        }
        let mut values = self.writes.iter().filter_map(|write| write.value.as_ref());
        if values.any(|value| value.len() > VALUE_BYTES_MAX) {
            return Err(Error::Invalid("a value must have less than 4 GiB"));
        }
        Ok(())
    }
}

/// A condition: `key` has exactly `value`; `None` means that it is absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Where to look.
    pub family: Family,
    /// What to look at.
    pub key: Bytes,
    /// What must be there.
    pub value: Option<Bytes>,
}

/// A put, or a delete where there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Where to write.
    pub family: Family,
    /// The key.
    pub key: Bytes,
    /// The value, or `None` to delete.
    pub value: Option<Bytes>,
}

/// Sizes and counters of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The engine's name, as in the ready line and metrics.
    pub engine: &'static str,
    /// Bytes on disk, journals included.
    pub disk_bytes: u64,
    /// Bytes of `disk_bytes` that are journals.
    pub journal_bytes: u64,
    /// Batches committed since the start.
    pub commits: u64,
    /// Syncs that made them durable; `commits / syncs` is what group commit gains.
    pub syncs: u64,
    /// About how many keys there are; some that were overwritten or deleted may be counted, too.
    pub keys: u64,
}

/// What can go wrong in an engine. The variants are the cases in which a caller would do something different.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A check failed; nothing was written. Read again and decide again.
    #[error("the store changed meanwhile")]
    Conflict,
    /// A key or value of a length that cannot be stored; nothing was written.
    #[error("{0}")]
    Invalid(&'static str),
    /// Bytes that do not decode. Never guessed at.
    #[error("corrupt data: {0}")]
    Corrupt(String),
    /// The disk has no room for this write; nothing was written, and reads go on.
    #[error("the disk is full: {0}")]
    Full(String),
    /// A write or sync failed, so the state of the disk is unknown: the engine refuses all further work.
    #[error("the store has failed and stopped: {0}")]
    Failed(String),
    /// The store cannot be reached for now. Nothing was written; later it may work.
    #[error("the store cannot be reached: {0}")]
    Unavailable(String),
    /// The store was lost while it was committing, and does not say what became of it: the batch was applied as a whole or not at all.
    #[error("the store was lost during a commit, which was made or not: {0}")]
    Unknown(String),
    /// The engine was closed.
    #[error("the store is closed")]
    Closed,
    /// Cannot be opened: wrong version, locked by another process, no rights. The text says what to do.
    #[error("{0}")]
    Open(String),
}

impl Error {
    /// Whether doing the whole operation again may succeed.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Conflict | Self::Unavailable(_))
    }
}
