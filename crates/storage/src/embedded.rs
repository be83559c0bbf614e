//! The default engine: one directory on this machine, kept by fjall, an LSM tree in Rust.
//!
//! ```text
//!  commit ──┐                     ┌─ check each batch in turn, against store and group
//!  commit ──┼─ queue ─ committer ─┼─ one journal write, one fdatasync
//!  commit ──┘                     └─ memtables, visible to new snapshots ─ answer all
//!                                          │ full
//!  snapshot ── get, scan ──────────── tables of each family, sorted, on disk
//! ```
//!
//! Rules, each learned from measuring fjall or reading its source and issues:
//!
//! - **One committer thread syncs.** It takes what has queued while the last sync ran, and makes it one fjall batch: no timer,
//!   no waiting when there is no load, and nothing at all to do when idle. fjall syncs under its journal lock, so many
//!   threads that sync in turn are slower than one.
//! - **Durable before visible.** A fjall batch with `PersistMode::SyncData` is written to the journal, flushed and synced,
//!   then put into the memtables, and only then is its sequence number published. Snapshots read below that number, so
//!   nobody ever sees what a crash could take back. fjall's default durability (the kernel has it) is never used.
//! - **One keyspace for each family, for ever**; containers are key prefixes. An idle keyspace with unflushed
//!   data pins the journals that hold it, so the journal is bounded: as soon as it reaches its limit,
//!   the committer has all memtables flushed, and fjall drops the journal.
//! - **The committer alone decides when a memtable is full.** fjall would ask its workers again with every batch until one has
//!   time, and when their queue is full of that, a worker that wants to add to it waits for itself, for ever.
//! - **No journal after a clean end.** [`Engine::close`] flushes all memtables; when the last snapshot is gone too, the
//!   journal, of which nothing is needed any more, is cut to nothing. Opening then replays nothing.
//! - **After a failed write or sync nothing more is written**: [`Error::Failed`] for every commit from then on. Snapshots still answer: they see
//!   only what was durable before.
//! - **A full disk is seen before it is hit.** Each group is refused with [`Error::Full`] as a whole while there is less room
//!   than it, the memtables and a reserve need. A write that runs out of disk inside fjall would stop the store for good.
//! - No key-value separation, no `clear()`, no FIFO compaction, no dropping of ranges. A batch holds each key once, as
//!   its entries share one sequence number.
//!
//! Measured with `examples/group_commit.rs` on two cores; each commit is one item of 1,100 bytes with 16 entries in all. Durable
//! commits a second: 4,400 with 1 writer, 15,100 with 16 (8.5 to a sync), 22,900 with 64 (38 to a sync). A start after `kill -9` with a
//! million items is in `bench/RESULTS.md`.
//!
//! Not here: [`Engine::reclaim_below`] does nothing. Dropping whole tables below a key is not safe in fjall while snapshots are open,
//! and a compaction filter would have to know that no newer version of a key is below it.

mod committer;
mod directory;
mod journal;

use std::future::ready;
use std::ops::{Bound, Range};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use bytes::Bytes;
use fjall::compaction::Leveled;
use fjall::config::FilterPolicy;
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, Readable};
use tokio::sync::oneshot;

use crate::embedded::committer::{Committer, Request};
use crate::embedded::directory::Directory;
use crate::keycode::hex;
use crate::{
    Answer, Batch, Direction, Engine, Error, Family, KEY_BYTES_MAX, Pair, Result, Snapshot, Stats,
};

/// How an [`Embedded`] engine uses memory and disk.
#[derive(Clone, Debug)]
pub struct Options {
    /// Memory for blocks read from disk. Taken as blocks are read, not at start.
    pub cache_bytes: u64,
    /// When the journal has this size, all memtables are flushed so that it can go. Bounds the time a start takes after a crash.
    /// fjall cannot do with less than [`Options::JOURNAL_BYTES_MIN`].
    pub journal_bytes_max: u64,
    /// Memtables of the large families are flushed at this size. There are up to two or three of each under load.
    pub memtable_bytes: u64,
    /// Free disk space that writes leave alone: fjall's compactions and the rest of the machine need some.
    pub reserve_bytes: u64,
    /// Threads that flush and compact. With one, a flush may wait for a compaction; with more, fjall's first thread spins while
    /// the others compact, which costs more than it gains unless there are cores to spare.
    pub worker_threads: usize,
}

impl Options {
    /// The least that [`Options::journal_bytes_max`] can be.
    pub const JOURNAL_BYTES_MIN: u64 = 64 << 20;
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_bytes: 256 << 20,
            journal_bytes_max: Self::JOURNAL_BYTES_MIN,
            memtable_bytes: 32 << 20,
            reserve_bytes: 64 << 20,
            worker_threads: 1,
        }
    }
}

/// An engine on a directory of this machine.
///
/// Dropping it without [`Engine::close`] loses nothing, but the next start has the journal to replay.
pub struct Embedded {
    store: Arc<Store>,
    requests: Sender<Request>,
    committer: Mutex<Option<JoinHandle<()>>>,
}

impl Embedded {
    /// Opens the store in the directory `path`, and creates both if need be.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let directory = Directory::open(path.as_ref())?;
        let is_new = !directory.has_store();
        let store = Arc::new(Store::open(directory, &options)?);
        let (requests, queue) = channel();
        let committer = Committer::new(store.clone(), &options, is_new)?;
        let committer = std::thread::Builder::new()
            .name("committer".into())
            .spawn(move || committer.run(&queue))
            .map_err(|error| Error::Open(format!("cannot start a thread: {error}")))?;
        Ok(Self { store, requests, committer: Mutex::new(Some(committer)) })
    }

    /// Waits for `answer`; without one, the committer has ended.
    async fn answer(&self, answer: oneshot::Receiver<Result<()>>) -> Result<()> {
        answer.await.unwrap_or_else(|_| Err(self.store.why_stopped()))
    }
}

impl Engine for Embedded {
    fn snapshot(&self) -> Box<dyn Snapshot> {
        let view = self.store.database.snapshot();
        Box::new(EmbeddedSnapshot { view, store: self.store.clone() })
    }

    /// Without the bookkeeping of a snapshot. What it finds is durable: fjall syncs a batch before its memtables have it.
    fn get(&self, family: Family, key: &[u8]) -> Answer<'_, Option<Bytes>> {
        let found = self.store.check_open().and_then(|()| {
            let value = self.store.keyspace(family).get(key);
            value
                .map(|value| value.map(Bytes::from))
                .map_err(|error| cannot_read(family, key, &error))
        });
        Box::pin(ready(found))
    }

    fn commit(&self, batch: Batch) -> Answer<'_, ()> {
        if let Err(error) = batch.validate() {
            return Box::pin(ready(Err(error)));
        }
        // Sent at once, not when first polled: the work goes on even if the future is dropped.
        let (reply, answer) = oneshot::channel();
        if self.requests.send(Request::Commit { batch, reply }).is_err() {
            return Box::pin(ready(Err(self.store.why_stopped())));
        }
        Box::pin(self.answer(answer))
    }

    /// Does nothing; see the module's comment.
    fn reclaim_below(&self, _family: Family, _prefix: &[u8], _key: &[u8]) {}

    fn stats(&self) -> Stats {
        let journal_bytes = self.store.directory.journal_bytes();
        let table_bytes: u64 = self.store.keyspaces.iter().map(Keyspace::disk_space).sum();
        Stats {
            engine: "embedded",
            disk_bytes: journal_bytes + table_bytes,
            journal_bytes,
            commits: self.store.commits.load(Ordering::Relaxed),
            syncs: self.store.syncs.load(Ordering::Relaxed),
            keys: self.store.keyspaces.iter().map(|all| all.approximate_len() as u64).sum(),
        }
    }

    fn close(&self) -> Answer<'_, ()> {
        let (reply, answer) = oneshot::channel();
        if self.requests.send(Request::Close { reply }).is_err() {
            return Box::pin(ready(Err(self.store.why_stopped())));
        }
        Box::pin(self.answer(answer))
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        // The queue ends with its last sender, and the committer with the queue.
        self.requests = channel().0;
        let committer = self.committer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(committer) = committer
            && committer.join().is_err()
        {
            self.store.directory.keep_journal();
        }
    }
}

/// What the engine, its committer and its snapshots share. The fields are dropped in order: the directory, which
/// may cut the journal and then unlocks, must be last.
struct Store {
    /// In the order of [`Family::ALL`].
    keyspaces: Vec<Keyspace>,
    database: Database,
    commits: AtomicU64,
    syncs: AtomicU64,
    closed: AtomicBool,
    directory: Directory,
}

impl Store {
    fn open(directory: Directory, options: &Options) -> Result<Self> {
        let refuse = |error| directory.cannot_open(&error);
        let database = Database::builder(directory.path())
            .cache_size(options.cache_bytes)
            // The committer sees to it.
            .max_journaling_size(u64::MAX)
            // So that the committer knows the journal's size without asking; values are compressed in tables.
            .journal_compression(CompressionType::None)
            .manual_journal_persist(true)
            .worker_threads(options.worker_threads.max(1))
            .open()
            .map_err(refuse)?;
        let keyspaces = Family::ALL
            .iter()
            .map(|family| database.keyspace(keyspace_name(*family), || keyspace_options(*family)))
            .collect::<fjall::Result<_>>()
            .map_err(refuse)?;
        Ok(Self {
            keyspaces,
            database,
            commits: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            directory,
        })
    }

    fn keyspace(&self, family: Family) -> &Keyspace {
        &self.keyspaces[family as usize]
    }

    fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// What to answer when there is no committer.
    fn why_stopped(&self) -> Error {
        self.check_open().err().unwrap_or_else(|| Error::Failed("the committer has stopped".into()))
    }
}

/// Names on disk: never to be changed.
fn keyspace_name(family: Family) -> &'static str {
    match family {
        Family::Catalog => "catalog",
        Family::Item => "item",
        Family::Id => "id",
        Family::Index => "index",
        Family::Expiry => "expiry",
        Family::Feed => "feed",
    }
}

/// So many flushed memtables of a family are merged at a time. Merging is most of what a write costs later: with fjall's 4 the same tables are
/// rewritten so often that durable creates were a fifth slower; with 16 they are no faster than with 8, and reads look into more tables.
const MERGED_TABLES: u8 = 8;

fn keyspace_options(family: Family) -> KeyspaceCreateOptions {
    let options = match family {
        // Hardly ever looked up by whole keys: a filter would only cost.
        Family::Index | Family::Expiry | Family::Feed => {
            KeyspaceCreateOptions::default().filter_policy(FilterPolicy::disabled())
        }
        Family::Catalog | Family::Id | Family::Item => KeyspaceCreateOptions::default(),
    };
    options
        .manual_journal_persist(true)
        .compaction_strategy(Arc::new(Leveled::default().with_l0_threshold(MERGED_TABLES)))
        // Never by fjall itself; see the module's comment.
        .max_memtable_size(u64::MAX)
        // An ordinal is looked up only after its id was found.
        .expect_point_read_hits(family == Family::Item)
}

struct EmbeddedSnapshot {
    view: fjall::Snapshot,
    store: Arc<Store>,
}

impl EmbeddedSnapshot {
    fn get_now(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>> {
        self.store.check_open()?;
        if key.len() > KEY_BYTES_MAX {
            return Ok(None);
        }
        let value = self.view.get(self.store.keyspace(family), key);
        value.map(|value| value.map(Bytes::from)).map_err(|error| cannot_read(family, key, &error))
    }

    fn scan_now(
        &self,
        family: Family,
        range: Range<Bytes>,
        direction: Direction,
        limit: usize,
    ) -> Result<Vec<Pair>> {
        self.store.check_open()?;
        if range.is_empty() || limit == 0 {
            return Ok(Vec::new());
        }
        let start = range.start.clone();
        let mut pairs = self.view.range(self.store.keyspace(family), bounds(range));
        let mut page = Vec::new();
        while page.len() < limit {
            let next = match direction {
                Direction::Forward => pairs.next(),
                Direction::Backward => pairs.next_back(),
            };
            let Some(pair) = next else { break };
            let (key, value) =
                pair.into_inner().map_err(|error| cannot_read(family, &start, &error))?;
            page.push((key.into(), value.into()));
        }
        Ok(page)
    }
}

impl Snapshot for EmbeddedSnapshot {
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

/// The same range for fjall, which panics at bounds that are too long to be keys.
fn bounds(range: Range<Bytes>) -> (Bound<Bytes>, Bound<Bytes>) {
    let Range { start, end } = range;
    let start = match start.len() {
        0..=KEY_BYTES_MAX => Bound::Included(start),
        _ => Bound::Excluded(start.slice(..KEY_BYTES_MAX)),
    };
    let end = match end.len() {
        0..=KEY_BYTES_MAX => Bound::Excluded(end),
        _ => Bound::Included(end.slice(..KEY_BYTES_MAX)),
    };
    (start, end)
}

/// A failed read. Unlike a failed write it says nothing about the rest of the store.
fn cannot_read(family: Family, key: &[u8], error: &fjall::Error) -> Error {
    let text = format!("{family:?} at or after key {}: {error}", hex(key));
    match error {
        fjall::Error::Io(_) | fjall::Error::Storage(fjall::LsmError::Io(_)) => Error::Failed(text),
        _ => Error::Corrupt(text),
    }
}
