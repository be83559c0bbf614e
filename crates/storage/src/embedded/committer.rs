//! The one thread that writes: it makes one fjall batch of all batches that wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use bytes::Bytes;
use fjall::{AbstractTree, OwnedWriteBatch, PersistMode};
use tokio::sync::oneshot;

use crate::embedded::{Options, Store};
use crate::{Batch, Check, Error, Family, Result};

/// A group is closed at this size, so that its first writers do not wait for ever.
const GROUP_BYTES_MAX: u64 = 16 << 20;

/// What an entry and a batch take in the journal beside keys and values.
const ENTRY_BYTES: u64 = 21;
const BATCH_BYTES: u64 = 26;

/// How often a committer that waits for flushes looks whether they are done.
const FLUSH_POLL: Duration = Duration::from_millis(2);

/// Memtables of a family that may wait for their flush. With one more fjall would make writers sleep for a tenth of a second at a time.
const SEALED_MAX: usize = 3;

/// What callers ask of the committer.
pub(super) enum Request {
    /// Apply a valid batch.
    Commit { batch: Batch, reply: Reply },
    /// Flush everything and end.
    Close { reply: Reply },
}

type Reply = oneshot::Sender<Result<()>>;

/// The state of the thread.
pub(super) struct Committer {
    store: Arc<Store>,
    journal: Journal,
    memtable_bytes: u64,
    reserve_bytes: u64,
    /// Why nothing more is written, once a write has failed.
    failure: Option<String>,
}

impl Committer {
    pub(super) fn new(store: Arc<Store>, options: &Options, is_new: bool) -> Result<Self> {
        let journal = Journal::new(&store, options.journal_bytes_max, is_new)?;
        let Options { memtable_bytes, reserve_bytes, .. } = *options;
        Ok(Self { store, journal, memtable_bytes, reserve_bytes, failure: None })
    }

    /// Serves until asked to close, or until no engine is left to ask.
    pub(super) fn run(mut self, queue: &Receiver<Request>) {
        while let Ok(first) = queue.recv() {
            let mut group = Group::default();
            let mut next = Some(first);
            let mut close = None;
            while let Some(request) = next {
                match request {
                    Request::Commit { batch, reply } => group.add(&self.store, batch, reply),
                    Request::Close { reply } => {
                        close = Some(reply);
                        break;
                    }
                }
                next = if group.bytes < GROUP_BYTES_MAX { queue.try_recv().ok() } else { None };
            }
            self.commit(group);
            if let Some(reply) = close {
                let result = self.close();
                drop(self);
                send(reply, result);
                return;
            }
        }
    }

    /// Writes the group and answers everyone in it.
    fn commit(&mut self, group: Group) {
        let Group { writes, waiting, bytes } = group;
        let result = if writes.is_empty() { self.check() } else { self.write(writes, bytes) };
        if result.is_ok() {
            let applied = waiting.iter().filter(|(_, verdict)| verdict.is_ok()).count();
            self.store.commits.fetch_add(applied as u64, Ordering::Relaxed);
        }
        for (reply, verdict) in waiting {
            send(reply, result.clone().and(verdict));
        }
    }

    fn write(&mut self, writes: Writes, bytes: u64) -> Result<()> {
        self.check()?;
        self.check_room(bytes)?;
        let mut batch = OwnedWriteBatch::with_capacity(self.store.database.clone(), writes.len())
            .durability(Some(PersistMode::SyncData));
        for (family, writes) in Family::ALL.into_iter().zip(writes.in_order()) {
            let keyspace = self.store.keyspace(family);
            for (key, value) in writes {
                match value {
                    Some(value) => batch.insert(keyspace, key, value),
                    None => batch.remove(keyspace, key),
                }
            }
        }
        batch.commit().map_err(|error| self.fail(&error))?;
        self.store.syncs.fetch_add(1, Ordering::Relaxed);
        self.maintain(bytes).map_err(|error| self.fail(&error))
    }

    /// Has full memtables flushed, or all of them when the journal has become too long.
    fn maintain(&mut self, group_bytes: u64) -> fjall::Result<()> {
        if self.journal.grow(&self.store, group_bytes) {
            self.flush_soon()?;
            return self.wait_for_journal();
        }
        for (family, keyspace) in Family::ALL.into_iter().zip(&self.store.keyspaces) {
            if keyspace.sealed_memtable_count() < SEALED_MAX
                && keyspace.tree.active_memtable().size()
                    > memtable_bytes_max(family, self.memtable_bytes)
            {
                keyspace.rotate_memtable()?;
            }
        }
        Ok(())
    }

    /// Has all memtables written to tables, soon.
    fn flush_soon(&self) -> fjall::Result<()> {
        for keyspace in &self.store.keyspaces {
            while keyspace.sealed_memtable_count() >= SEALED_MAX {
                self.wait_for_workers()?;
            }
            keyspace.rotate_memtable()?;
        }
        Ok(())
    }

    /// Waits, when a journal is full, until the one before it is gone, so that writers cannot outrun the flushes.
    fn wait_for_journal(&self) -> fjall::Result<()> {
        let Some(before) = self.journal.number.checked_sub(1) else { return Ok(()) };
        while self.journal.is_full() && self.store.directory.journal_exists(before) {
            self.wait_for_workers()?;
        }
        Ok(())
    }

    /// Gives fjall's workers a moment; fails if they have.
    fn wait_for_workers(&self) -> fjall::Result<()> {
        self.store.database.persist(PersistMode::Buffer)?;
        std::thread::sleep(FLUSH_POLL);
        Ok(())
    }

    fn check(&self) -> Result<()> {
        match &self.failure {
            Some(why) => Err(Error::Failed(why.clone())),
            None => Ok(()),
        }
    }

    /// Stops all further writing: what is on disk is no longer known.
    fn fail(&mut self, error: &fjall::Error) -> Error {
        let why = self.failure.get_or_insert_with(|| error.to_string());
        Error::Failed(why.clone())
    }

    /// Refuses a group for which there is no room, in the journal now and in tables later.
    fn check_room(&self, group_bytes: u64) -> Result<()> {
        let buffered_bytes = self.store.database.write_buffer_size();
        let needed = self.reserve_bytes.saturating_add(2 * (group_bytes + buffered_bytes));
        let free = self.store.directory.free_bytes()?;
        if free < needed {
            let (free, needed) = (free >> 20, needed >> 20);
            return Err(Error::Full(format!("{free} MiB are free, {needed} MiB are needed")));
        }
        Ok(())
    }

    /// Brings everything into tables, so that no journal is needed.
    fn close(&mut self) -> Result<()> {
        self.store.closed.store(true, Ordering::Release);
        self.check()?;
        self.flush().map_err(|error| self.fail(&error))?;
        self.store.directory.drop_journal();
        Ok(())
    }

    fn flush(&self) -> fjall::Result<()> {
        self.flush_soon()?;
        while self.store.keyspaces.iter().any(|keyspace| keyspace.sealed_memtable_count() > 0) {
            self.wait_for_workers()?;
        }
        self.store.database.persist(PersistMode::SyncAll)
    }
}

/// When a family's memtable is flushed.
fn memtable_bytes_max(family: Family, memtable_bytes: u64) -> u64 {
    match family {
        // A few hot keys, written again and again: most of a memtable is old versions, and a flush forgets them.
        Family::Catalog => memtable_bytes.min(2 << 20),
        Family::Item | Family::Index => memtable_bytes,
        Family::Id | Family::Expiry | Family::Feed => memtable_bytes / 2,
    }
}

/// Answers; a caller that has gone does not want to know.
fn send(reply: Reply, result: Result<()>) {
    drop(reply.send(result));
}

/// The writes of a group, by family, in the order in which they came.
#[derive(Default)]
struct Writes([Vec<(Bytes, Option<Bytes>)>; Family::ALL.len()]);

impl Writes {
    fn len(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(Vec::is_empty)
    }

    /// The last write to a key. Only few families are ever checked, and those have few writes.
    fn last(&self, family: Family, key: &Bytes) -> Option<&Option<Bytes>> {
        self.0[family as usize]
            .iter()
            .rev()
            .find(|(written, _)| written == key)
            .map(|(_, value)| value)
    }

    /// The last write to each key, in the order of keys: all writes of a fjall batch have one sequence number, so a key must come
    /// once; and memtables take neighbours more cheaply than strangers.
    fn in_order(self) -> [Vec<(Bytes, Option<Bytes>)>; Family::ALL.len()] {
        self.0.map(|mut writes| {
            writes.reverse();
            writes.sort_by(|(a, _), (b, _)| a.cmp(b));
            writes.dedup_by(|(later, _), (kept, _)| later == kept);
            writes
        })
    }
}

/// Batches that become durable together.
#[derive(Default)]
struct Group {
    writes: Writes,
    /// Who waits, and whether their batch is in the group or its checks have failed.
    waiting: Vec<(Reply, Result<()>)>,
    /// What the writes take in the journal, at most.
    bytes: u64,
}

impl Group {
    /// Takes the batch in if its checks hold, given all batches before it.
    fn add(&mut self, store: &Store, batch: Batch, reply: Reply) {
        let verdict = batch.checks.iter().try_for_each(|check| self.check(store, check));
        if verdict.is_ok() {
            self.bytes += BATCH_BYTES;
            for write in batch.writes {
                let value_bytes = write.value.as_ref().map_or(0, Bytes::len);
                self.bytes += ENTRY_BYTES + (write.key.len() + value_bytes) as u64;
                self.writes.0[write.family as usize].push((write.key, write.value));
            }
        }
        self.waiting.push((reply, verdict));
    }

    fn check(&self, store: &Store, check: &Check) -> Result<()> {
        let stored;
        let actual = match self.writes.last(check.family, &check.key) {
            Some(value) => value.as_deref(),
            None => {
                stored = store
                    .keyspace(check.family)
                    .get(&check.key)
                    .map_err(|error| super::cannot_read(check.family, &check.key, &error))?;
                stored.as_deref()
            }
        };
        if actual == check.value.as_deref() { Ok(()) } else { Err(Error::Conflict) }
    }
}

/// How long fjall's journal is, and when to have it replaced.
///
/// fjall starts a new journal only while it flushes a memtable, and only if the journal has more than 64 MB; it
/// deletes the old one when all that it holds is in tables. Left alone it would first wait for some memtable to fill up.
struct Journal {
    /// The number in the name of the journal that is written.
    number: u64,
    /// Its length; never less than the true one.
    bytes: u64,
    bytes_max: u64,
    /// The length at which all memtables were or will be flushed, and what has been written since the last time.
    flush_at: u64,
    since_flush: u64,
}

impl Journal {
    fn new(store: &Store, bytes_max: u64, is_new: bool) -> Result<Self> {
        let (number, file_bytes) = store.directory.newest_journal()?;
        // A new journal is a hole; an old one was cut to what it holds.
        let bytes = if is_new { 0 } else { file_bytes };
        let bytes_max = bytes_max.max(Options::JOURNAL_BYTES_MIN);
        Ok(Self { number, bytes, bytes_max, flush_at: bytes_max, since_flush: 0 })
    }

    fn is_full(&self) -> bool {
        self.bytes >= self.bytes_max
    }

    /// Counts what was written, and says whether all memtables must be flushed now.
    fn grow(&mut self, store: &Store, group_bytes: u64) -> bool {
        /// fjall may not have come to it yet, or not be over its own limit: ask again after so much.
        const ASK_AGAIN_BYTES: u64 = 4 << 20;

        self.bytes += group_bytes;
        self.since_flush += group_bytes;
        if self.bytes < self.flush_at {
            return false;
        }
        if store.directory.journal_exists(self.number + 1) {
            self.number += 1;
            self.bytes = self.since_flush;
            self.flush_at = self.bytes_max;
        } else {
            self.flush_at = self.bytes + ASK_AGAIN_BYTES;
        }
        // In both cases: what came after the last flush may still be in the old journal, and pin it.
        self.since_flush = 0;
        true
    }
}
