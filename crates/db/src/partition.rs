//! A partition at run time: its head, its queue, its request units. The store's side is in [`crate::keys`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use bytes::Bytes;
use model::clock::Timestamp;
use model::resource::SessionToken;
use model::ttl::{Horizon, TtlState};
use tokio::sync::mpsc;

use crate::charge::{Bucket, RequestCharge};
use crate::keys::PartitionId;
use crate::ranges::Span;
use crate::reindex::Reindexed;
use crate::servers::Epoch;
use crate::timeline::CountsCell;
use crate::writer::Op;
use crate::{Error, Result};

/// What a partition remembers between writes: one row, compared and updated in every commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// The last change.
    pub lsn: u64,
    /// The last item number given out.
    pub ordinal: u64,
    /// The largest `now` of any change.
    pub now: Timestamp,
    /// The purge has passed all changes before this one.
    pub feed_cursor: u64,
    /// The purge has removed all own expiries before this instant.
    pub expiry_cursor: Timestamp,
    /// Items in storage, expired ones included until they are purged.
    pub items: u64,
    /// Bytes of their records.
    pub bytes: u64,
    /// The log of versions is complete from this change on; 0 if nothing has been logged since it last had a hole.
    pub log_from: u64,
    /// The log's first entry is of this change or a later one; 0 if there is none.
    pub log_begin: u64,
    /// Bytes of its entries.
    pub log_bytes: u64,
    /// Which server has made it, where several may: two that change the same in the same way must not take each other's head for their own.
    pub maker: u64,
}

impl Head {
    /// Of a head without a log, of one that does not know its log's bytes, of one that does, and of one that has a maker.
    const LENGTHS: [usize; 4] = [56, 72, 80, 88];

    pub fn encode(&self) -> Bytes {
        let fields = [
            self.lsn,
            self.ordinal,
            self.now.0,
            self.feed_cursor,
            self.expiry_cursor.0,
            self.items,
            self.bytes,
            self.log_from,
            self.log_begin,
            self.log_bytes,
            self.maker,
        ];
        // Few partitions have a log, and few servers share a store.
        let count = match (self.log_from, self.log_begin, self.maker) {
            (0, 0, 0) => 7,
            (_, _, 0) => 10,
            _ => 11,
        };
        fields[..count].iter().flat_map(|field| field.to_le_bytes()).collect::<Vec<_>>().into()
    }

    pub fn decode(bytes: &[u8]) -> storage::Result<Self> {
        if !Self::LENGTHS.contains(&bytes.len()) {
            return Err(storage::Error::Corrupt(format!(
                "a partition head of {} bytes",
                bytes.len()
            )));
        }
        let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
        let field = |i: usize| u64::from_le_bytes(std::array::from_fn(|at| byte(i * 8 + at)));
        Ok(Self {
            lsn: field(0),
            ordinal: field(1),
            now: Timestamp(field(2)),
            feed_cursor: field(3),
            expiry_cursor: Timestamp(field(4)),
            items: field(5),
            bytes: field(6),
            log_from: field(7),
            log_begin: field(8),
            log_bytes: field(9),
            maker: field(10),
        })
    }
}

/// The most writes that may wait for a partition's writer; beyond that clients are told to retry.
pub(crate) const QUEUE_MAX: usize = 4_096;

/// A partition as requests see it.
#[derive(Debug)]
pub(crate) struct Partition {
    pub id: PartitionId,
    /// The hashes it holds.
    pub span: Span,
    queue: mpsc::Sender<Op>,
    head: Mutex<Head>,
    /// Read on every request, so that reads need not take the lock.
    lsn: AtomicU64,
    bucket: Arc<Mutex<Bucket>>,
    pub purged: AtomicU64,
    /// What clients have used since the start, in thousandths of a request unit.
    pub spent_millis: AtomicU64,
    /// Requests refused for want of request units since the start.
    pub throttled: AtomicU64,
    /// What expires when, if somebody has asked.
    pub counts: CountsCell,
    purge_charge: Mutex<f64>,
    /// The rebuild of the index has passed all items before this one.
    pub reindexed_to: AtomicU64,
    /// Where servers share the store: the row that every round checks beside the head, if it was read under the rule in force.
    epoch: Mutex<Option<Epoch>>,
    /// The first item.
    pub first_item: Beginning,
    /// The first change whose item is alive.
    pub first_change: Beginning,
}

impl Partition {
    /// The partition, and the queue that its writer reads.
    pub fn new(
        container: u32,
        span: Span,
        head: Head,
        bucket: Arc<Mutex<Bucket>>,
    ) -> (Self, mpsc::Receiver<Op>) {
        let (queue, receiver) = mpsc::channel(QUEUE_MAX);
        let partition = Self {
            id: PartitionId { container, partition: span.number },
            span,
            queue,
            head: Mutex::new(head),
            lsn: AtomicU64::new(head.lsn),
            bucket,
            purged: AtomicU64::new(0),
            spent_millis: AtomicU64::new(0),
            throttled: AtomicU64::new(0),
            counts: CountsCell::default(),
            purge_charge: Mutex::new(0.0),
            reindexed_to: AtomicU64::new(0),
            epoch: Mutex::default(),
            first_item: Beginning::default(),
            first_change: Beginning::default(),
        };
        (partition, receiver)
    }

    /// Hands an operation to the writer without waiting for room. Gives it back if there is no writer any more.
    pub fn submit(&self, op: Op) -> Result<Option<Op>> {
        match self.queue.try_send(op) {
            Ok(()) => Ok(None),
            Err(mpsc::error::TrySendError::Full(_)) => Err(Error::Overloaded),
            Err(mpsc::error::TrySendError::Closed(op)) => Ok(Some(op)),
        }
    }

    /// Whether its writer has stopped.
    pub fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    pub fn shared_bucket(&self) -> Arc<Mutex<Bucket>> {
        self.bucket.clone()
    }

    /// Hands an operation of our own to the writer, waiting for room.
    pub async fn submit_later(&self, op: Op) -> Result<()> {
        self.queue.send(op).await.map_err(|_| Error::OwnerNotFound)
    }

    /// How far a client has seen after an answer from here.
    pub fn session(&self) -> SessionToken {
        SessionToken { partition: self.id.partition, lsn: self.lsn.load(Ordering::Acquire) }
    }

    /// The head as of the last commit.
    pub fn head(&self) -> Head {
        *lock(&self.head)
    }

    pub fn set_head(&self, head: Head) {
        *lock(&self.head) = head;
        self.lsn.fetch_max(head.lsn, Ordering::AcqRel);
    }

    /// Takes a head that another server may have made, unless ours is newer.
    pub fn take_head(&self, head: Head) {
        let mut known = lock(&self.head);
        if *known != head && known.lsn <= head.lsn {
            *known = head;
            self.lsn.fetch_max(head.lsn, Ordering::AcqRel);
            self.counts.drop_all();
        }
    }

    /// A client has seen this change, from another server.
    pub fn saw(&self, lsn: u64) {
        self.lsn.fetch_max(lsn, Ordering::AcqRel);
    }

    pub fn epoch(&self) -> Option<Epoch> {
        lock(&self.epoch).clone()
    }

    pub fn set_epoch(&self, epoch: Option<Epoch>) {
        *lock(&self.epoch) = epoch;
    }

    pub fn bucket(&self) -> std::sync::MutexGuard<'_, Bucket> {
        lock(&self.bucket)
    }

    /// Lets a client's request begin, or says when to come again.
    pub fn admit(&self, at: Duration) -> Result<()> {
        self.bucket().admit(at).map_err(|retry_after_ms| {
            self.throttled.fetch_add(1, Ordering::Relaxed);
            Error::Throttled { retry_after_ms }
        })
    }

    /// Books what the purge has done.
    pub fn book_purge(&self, items: u64, charge: RequestCharge) {
        self.purged.fetch_add(items, Ordering::Relaxed);
        *lock(&self.purge_charge) += charge.0;
        self.bucket().spend_spare(charge);
    }

    /// Books what the rebuild of the index has done.
    pub fn book_reindex(&self, reindexed: &Reindexed, charge: RequestCharge) {
        self.reindexed_to.store(reindexed.to, Ordering::Relaxed);
        self.bucket().spend_spare(charge);
    }

    pub fn purge_charge(&self) -> f64 {
        *lock(&self.purge_charge)
    }
}

/// Where to begin reading: all before is gone or dead, and stays so, for whoever takes a snapshot and `now` after asking. It spares readers the
/// way over what has expired, and over what the store still remembers of it.
#[derive(Debug, Default)]
pub(crate) struct Beginning(AtomicU64);

impl Beginning {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// One who began reading here has met nothing alive before `position`.
    pub fn advance(&self, position: u64) {
        self.0.fetch_max(position, Ordering::AcqRel);
    }
}

/// A container's TTL rule, shared by all that decide about its items.
///
/// While a change of the default is being made durable, the old rule is held at the instant of the change: nobody
/// sees an item expire under a rule that has already ended (R13).
#[derive(Debug)]
pub(crate) struct TtlCell(RwLock<(TtlState, Option<Timestamp>)>);

impl TtlCell {
    pub fn new(state: TtlState) -> Self {
        Self(RwLock::new((state, None)))
    }

    /// What is dead at `now`. `now` must have been taken before this call.
    pub fn horizon(&self, now: Timestamp) -> Horizon {
        let (state, held_at) = *self.0.read().expect("no panic under this lock");
        state.horizon(held_at.map_or(now, |held_at| held_at.min(now)))
    }

    pub fn state(&self) -> TtlState {
        self.0.read().expect("no panic under this lock").0
    }

    /// Holds the rule at an instant while its successor is made durable; `now` is taken under the lock.
    pub fn hold(&self, now: impl FnOnce() -> Timestamp) -> Timestamp {
        let mut cell = self.0.write().expect("no panic under this lock");
        let now = now();
        cell.1 = Some(now);
        now
    }

    /// Ends the hold with the rule that is now in force.
    pub fn set(&self, state: TtlState) {
        *self.0.write().expect("no panic under this lock") = (state, None);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics while it holds a partition's lock")
}
