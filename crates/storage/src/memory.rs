//! The engine in memory: the reference for the others, and what `--in-memory` runs on.
//!
//! ```text
//! key ── current ── version 7, value          a snapshot at 5 reads the newest version that is
//!     └─ older ──── version 3, value          not above 5: here version 3
//! ```
//!
//! Each commit is one version. A snapshot is the number of the last one, and keeps what it may still read from being
//! forgotten. A key that is written or deleted is put on a list; once no snapshot is older than that write, the next commits
//! forget what it replaced, some for each write of their own, so that a commit costs O(log n) for each of its writes however much
//! there is to forget.
//!
//! Nothing is durable here, so nothing is ever synced, full or failed.

use std::collections::{BTreeMap, VecDeque};
use std::future::ready;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;

use crate::{
    Answer, Batch, Direction, Engine, Error, Family, Pair, Result, Snapshot, Stats, Write,
};

/// How many replaced values a commit forgets, for each write of its own and at least.
const FORGET_PER_WRITE: usize = 2;
const FORGET_MIN: usize = 64;

/// An engine that forgets everything when it is dropped.
#[derive(Default)]
pub struct Memory {
    shared: Arc<Shared>,
}

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn apply(&self, batch: Batch) -> Result<()> {
        batch.validate()?;
        let mut state = self.shared.state.write().unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return Err(Error::Closed);
        }
        for check in &batch.checks {
            if state.value(check.family, &check.key, state.version) != check.value.as_ref() {
                return Err(Error::Conflict);
            }
        }
        let oldest = self.shared.snapshots().keys().next().copied().unwrap_or(state.version);
        state.forget(oldest, FORGET_MIN + FORGET_PER_WRITE * batch.writes.len());
        state.version += 1;
        state.commits += 1;
        for write in batch.writes {
            state.write(write);
        }
        Ok(())
    }
}

impl Engine for Memory {
    fn snapshot(&self) -> Box<dyn Snapshot> {
        // The lock is held until the snapshot is known, or a commit could forget what it needs.
        let state = self.shared.read();
        *self.shared.snapshots().entry(state.version).or_default() += 1;
        Box::new(MemorySnapshot { shared: self.shared.clone(), version: state.version })
    }

    fn commit(&self, batch: Batch) -> Answer<'_, ()> {
        Box::pin(ready(self.apply(batch)))
    }

    /// Does nothing: what is deleted is forgotten anyway.
    fn reclaim_below(&self, _family: Family, _prefix: &[u8], _key: &[u8]) {}

    fn stats(&self) -> Stats {
        Stats { engine: "memory", commits: self.shared.read().commits, ..Stats::default() }
    }

    fn close(&self) -> Answer<'_, ()> {
        let mut state = self.shared.state.write().unwrap_or_else(PoisonError::into_inner);
        let was_closed = std::mem::replace(&mut state.closed, true);
        Box::pin(ready(if was_closed { Err(Error::Closed) } else { Ok(()) }))
    }
}

/// A version, counted among the open ones until it is dropped.
struct MemorySnapshot {
    shared: Arc<Shared>,
    version: u64,
}

impl MemorySnapshot {
    fn get_now(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>> {
        let state = self.shared.open()?;
        Ok(state.value(family, key, self.version).cloned())
    }

    fn scan_now(
        &self,
        family: Family,
        range: Range<Bytes>,
        direction: Direction,
        limit: usize,
    ) -> Result<Vec<Pair>> {
        let state = self.shared.open()?;
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let seen = state.families[family as usize].range(range).filter_map(|(key, versions)| {
            let value = versions.at(self.version)?;
            Some((key.clone(), value.clone()))
        });
        Ok(match direction {
            Direction::Forward => seen.take(limit).collect(),
            Direction::Backward => seen.rev().take(limit).collect(),
        })
    }
}

impl Snapshot for MemorySnapshot {
    fn get(&self, family: Family, key: &[u8]) -> Answer<'_, Option<Bytes>> {
        Box::pin(ready(self.get_now(family, key)))
    }

    fn scan(
        &self,
        family: Family,
        range: Range<Bytes>,
        direction: Direction,
        limit: usize,
    ) -> Answer<'_, Vec<Pair>> {
        Box::pin(ready(self.scan_now(family, range, direction, limit)))
    }
}

impl Drop for MemorySnapshot {
    fn drop(&mut self) {
        let mut snapshots = self.shared.snapshots();
        if let Some(count) = snapshots.get_mut(&self.version) {
            *count -= 1;
            if *count == 0 {
                snapshots.remove(&self.version);
            }
        }
    }
}

/// What the engine and its snapshots share. A panic while a lock is held is a bug that may have left half a batch, but
/// nothing in here panics between the first write of a batch and the last, so a poisoned lock is simply taken.
#[derive(Default)]
struct Shared {
    state: RwLock<State>,
    /// How many snapshots are open at which version. Taken while `state` is locked, never the other way round.
    snapshots: Mutex<BTreeMap<u64, usize>>,
}

impl Shared {
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Result<RwLockReadGuard<'_, State>> {
        let state = self.read();
        if state.closed { Err(Error::Closed) } else { Ok(state) }
    }

    fn snapshots(&self) -> MutexGuard<'_, BTreeMap<u64, usize>> {
        self.snapshots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct State {
    families: [BTreeMap<Bytes, Versions>; Family::ALL.len()],
    /// The last commit.
    version: u64,
    /// Keys with something to forget, once no snapshot is older than the version beside them; in order of version.
    replaced: VecDeque<(u64, Family, Bytes)>,
    commits: u64,
    closed: bool,
}

impl State {
    fn value(&self, family: Family, key: &[u8], version: u64) -> Option<&Bytes> {
        self.families[family as usize].get(key)?.at(version)
    }

    /// Writes at the current version.
    fn write(&mut self, write: Write) {
        let Write { family, key, value } = write;
        let is_delete = value.is_none();
        let new = Version { version: self.version, value };
        match self.families[family as usize].get_mut(&key) {
            Some(versions) => {
                versions.push(new);
                self.replaced.push_back((self.version, family, key));
            }
            None if is_delete => {}
            None => {
                let versions = Versions { current: new, older: Vec::new() };
                self.families[family as usize].insert(key, versions);
            }
        }
    }

    /// Forgets up to `count` values that no snapshot at `oldest` or later can see.
    fn forget(&mut self, oldest: u64, count: usize) {
        for _ in 0..count {
            let Some((_, family, key)) = self.replaced.pop_front_if(|(at, ..)| *at <= oldest)
            else {
                return;
            };
            let family = &mut self.families[family as usize];
            if let Some(versions) = family.get_mut(&key)
                && versions.forget(oldest)
            {
                family.remove(&key);
            }
        }
    }
}

/// All that is remembered of a key. Most keys have nothing older, and then need no second allocation.
struct Versions {
    current: Version,
    /// In ascending order, all below `current`.
    older: Vec<Version>,
}

/// A value as of a version; none if it was deleted then.
struct Version {
    version: u64,
    value: Option<Bytes>,
}

impl Versions {
    fn at(&self, version: u64) -> Option<&Bytes> {
        if self.current.version <= version {
            return self.current.value.as_ref();
        }
        let newest = self.older.iter().rev().find(|older| older.version <= version)?;
        newest.value.as_ref()
    }

    fn push(&mut self, new: Version) {
        if self.current.version == new.version {
            self.current = new;
        } else {
            self.older.push(std::mem::replace(&mut self.current, new));
        }
    }

    /// Drops what no snapshot at `oldest` or later can see. Says whether that is everything.
    fn forget(&mut self, oldest: u64) -> bool {
        if self.current.version <= oldest {
            self.older = Vec::new();
            return self.current.value.is_none();
        }
        // The newest that `oldest` can see, and all above it, stay.
        let keep = self.older.iter().rposition(|older| older.version <= oldest).unwrap_or(0);
        self.older.drain(..keep);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_no_snapshot_can_see_is_forgotten() {
        let engine = Memory::new();
        let put = async |value: &str| {
            let mut batch = Batch::default();
            batch.put(Family::Item, "k", value.to_string());
            engine.commit(batch).await.unwrap();
        };
        let remembered = || {
            let state = engine.shared.read();
            state.families[Family::Item as usize].values().map(|v| 1 + v.older.len()).sum::<usize>()
        };
        put("1").await;
        let snapshot = engine.snapshot();
        for i in 2..100 {
            put(&i.to_string()).await;
        }
        assert_eq!(snapshot.get(Family::Item, b"k").await.unwrap(), Some("1".into()));
        assert_eq!(remembered(), 99);
        drop(snapshot);

        let mut batch = Batch::default();
        batch.delete(Family::Item, "k");
        engine.commit(batch).await.unwrap();
        for _ in 0..3 {
            engine.commit(Batch::default()).await.unwrap();
        }
        assert_eq!(remembered(), 0);
        assert!(engine.shared.snapshots().is_empty());
        assert!(engine.shared.read().replaced.is_empty());
    }
}
