//! The writer of a partition: the only one that changes its items, one batch after the other.
//!
//! It takes what has queued, in order; decides each operation against the store and against the earlier ones of the same
//! round; gives each its `_ts`, lsn and ordinal; and commits one batch, checked against the partition's head, so that two
//! servers on one store never interleave. What queued meanwhile is the next round. The purge is an operation like any other, so it
//! cannot race with a client's write (R23).

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io::Write as _;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use model::clock::{Clock, Timestamp};
use model::resource::{ChildRid, ContainerRid};
use model::ttl::{Horizon, Ttl};
use serde_json::Value;
use storage::{Batch, Engine, Family, Snapshot};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinHandle};

use crate::charge::{self, RequestCharge};
use crate::container::Runtime;
use crate::delete_key::{KeyDeletion, KeyDeletionDone};
use crate::documents::{Edited, Upkeep, UpkeepDone};
use crate::history::Change;
use crate::items::{Content, Item, Prepared, PreparedBody, PreparedPatch, Verb, Written};
use crate::keys::{Key, ordinal_of};
use crate::partition::{Head, Partition};
use crate::purge::{Alarm, Purged, ROUND_ITEMS_MAX};
use crate::record::Record;
use crate::reindex::Reindexed;
use crate::servers::{Learned, WeakDb};
use crate::settings::Beside;
use crate::timeline::{Beginning, Step};
use crate::{Db, Error, Result};

/// The most operations in a round.
const ROUND_OPS_MAX: usize = 512;

/// The most bytes of bodies in a round.
const ROUND_BYTES_MAX: usize = 8 << 20;

/// Something for the writer to do.
#[derive(Debug)]
pub(crate) enum Op {
    /// A client's writes: all are made or none.
    Write(Transaction, oneshot::Sender<Vec<Outcome>>),
    /// Remove up to so many expired items.
    Purge(usize, oneshot::Sender<Result<Purged>>),
    /// Bring the index entries of up to so many items in line with the policy.
    Reindex(usize, oneshot::Sender<Result<Reindexed>>),
    /// A step of the upkeep of documents.
    Upkeep(Upkeep, UpkeepDone),
    /// Count from now on what expires when; answers with the state that the counting begins at, unless it is on already.
    Count(oneshot::Sender<Option<Beginning>>),
    /// Remove items of a partition key.
    DeleteKey(KeyDeletion, KeyDeletionDone),
    /// Remove all that is expired, and then make no change before the other end is dropped.
    Settle(oneshot::Sender<Result<()>>, oneshot::Receiver<()>),
    /// Stop for good, and give back what has queued: the partition is being split.
    Retire(oneshot::Sender<Vec<Op>>),
    /// Refuse everything from now on: the container is being dropped, or the server stops.
    Close(oneshot::Sender<()>),
}

/// Writes that were handed in together.
#[derive(Debug)]
pub(crate) struct Transaction {
    pub ops: Vec<Prepared>,
    pub mode: Mode,
}

/// How the writes of a transaction hang together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// All are made, as one change, or none.
    Atomic,
    /// Each is a change of its own; none is tried after one that was refused.
    Ordered,
    /// Each is a change of its own.
    Unordered,
}

/// What a write came to.
#[derive(Debug)]
pub struct Outcome {
    /// The result itself.
    pub result: Result<Written>,
    /// What it cost.
    pub charge: RequestCharge,
}

impl Outcome {
    /// The outcome of a write that was not tried.
    pub(crate) fn refused(error: Error) -> Self {
        Self { result: Err(error), charge: charge::MISS }
    }

    /// The outcomes of a transaction of which one write was refused.
    pub(crate) fn all_refused(
        count: usize,
        refused: usize,
        error: Error,
        charge: RequestCharge,
    ) -> Vec<Self> {
        let mut outcomes: Vec<_> =
            (0..count).map(|_| Self::refused(Error::FailedDependency)).collect();
        outcomes[refused] = Self { result: Err(error), charge };
        outcomes
    }
}

/// A partition's writer.
pub(crate) struct Writer {
    pub engine: Arc<dyn Engine>,
    pub clock: Arc<dyn Clock>,
    pub alarm: Arc<Alarm>,
    pub runtime: Arc<Runtime>,
    pub partition: Arc<Partition>,
    /// Where other servers may use the store: how to learn what they have changed.
    shared: Option<WeakDb>,
    /// Rounds in a row that another server was faster than.
    conflicts: u32,
    pub queue: mpsc::Receiver<Op>,
    /// The head as the rounds in flight will leave it.
    pub head: Head,
    /// Rounds that are being committed, the oldest first.
    flights: VecDeque<Flight>,
    /// Says that the last batch has been handed to the engine.
    last_sent: Option<oneshot::Receiver<()>>,
}

/// Rounds that may be in flight at a time: one is being synced while the next is made.
const FLIGHTS_MAX: usize = 2;

/// A round on its way to the disk.
struct Flight {
    commit: JoinHandle<storage::Result<()>>,
    /// Whether it writes nothing: it then stands or falls with the rounds before it.
    empty: bool,
    writes: Vec<Submitted>,
    outcomes: Vec<Vec<Outcome>>,
    head: Head,
    names: HashMap<Bytes, Option<Stored>>,
    uniques: HashMap<Vec<u8>, Option<u64>>,
    steps: Option<Vec<Step>>,
}

/// A transaction and who waits for it.
type Submitted = (Transaction, oneshot::Sender<Vec<Outcome>>);

impl Writer {
    pub fn new(
        db: &Db,
        runtime: Arc<Runtime>,
        partition: Arc<Partition>,
        queue: mpsc::Receiver<Op>,
    ) -> Self {
        Self {
            engine: db.engine.clone(),
            clock: db.clock.clone(),
            alarm: db.alarm.clone(),
            runtime,
            shared: db.downgrade(),
            conflicts: 0,
            head: partition.head(),
            partition,
            queue,
            flights: VecDeque::new(),
            last_sent: None,
        }
    }

    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// What this server's heads are known by; nothing where it is the only one.
    fn maker(&self) -> u64 {
        self.shared.as_ref().map_or(0, WeakDb::server)
    }

    /// Whether a round of our own has failed because another server was faster, and is to be made again.
    async fn is_overtaken<T>(&mut self, result: &mut Result<T>) -> bool {
        let Some(shared) = &self.shared else { return false };
        if !matches!(result, Err(Error::Contention)) || self.conflicts >= CONFLICTS_MAX {
            self.conflicts = 0;
            return false;
        }
        self.conflicts += 1;
        match shared.learn(self.runtime.rid, &self.partition).await {
            Ok(Learned::Ready) => matches!(self.reload_head().await, Ok(true)),
            Ok(Learned::Later | Learned::Fenced) => {
                tokio::time::sleep(LATER).await;
                true
            }
            Ok(Learned::Gone) => {
                *result = Err(Error::PartitionGone);
                false
            }
            Err(error) => {
                *result = Err(error);
                false
            }
        }
    }

    /// Waits until this writer may make rounds, if other servers use the store.
    async fn learn(&mut self) -> Result<Learned> {
        let Some(shared) = &self.shared else { return Ok(Learned::Ready) };
        loop {
            match shared.learn(self.runtime.rid, &self.partition).await? {
                // A change of this server may be waiting for this very writer: it is not waited for in turn.
                Learned::Later if self.conflicts < CONFLICTS_MAX => {
                    self.conflicts += 1;
                    tokio::time::sleep(LATER).await;
                }
                Learned::Later => return Err(Error::Contention),
                Learned::Fenced => tokio::time::sleep(LATER).await,
                learned => return Ok(learned),
            }
        }
    }

    /// Runs until the queue is closed.
    pub async fn run(mut self) {
        let mut held_back = None;
        loop {
            let next = match held_back.take() {
                Some(op) => Some(op),
                None => self.next().await,
            };
            match next {
                None => return,
                Some(Op::Write(transaction, reply)) => {
                    if self.head.log_bytes > 0 {
                        self.bound_log().await;
                    }
                    let mut writes = vec![(transaction, reply)];
                    held_back = self.gather(&mut writes);
                    if self.shared.is_some() && held_back.is_none() {
                        // A round on a shared store is a transaction on another machine: fewer and larger ones are cheaper.
                        self.land_all().await;
                        held_back = self.gather(&mut writes);
                    }
                    self.launch(writes).await;
                }
                Some(Op::Purge(items_max, reply)) => {
                    self.land_all().await;
                    self.renew_head().await;
                    // A receiver that has gone away has no use for the answer.
                    drop(reply.send(self.purge_round(items_max).await));
                }
                Some(Op::Reindex(items_max, reply)) => {
                    self.land_all().await;
                    self.renew_head().await;
                    let mut done = self.reindex_round(items_max).await;
                    while self.is_overtaken(&mut done).await {
                        done = self.reindex_round(items_max).await;
                    }
                    drop(reply.send(done));
                }
                Some(Op::Upkeep(step, reply)) => {
                    self.land_all().await;
                    self.renew_head().await;
                    let mut done = self.upkeep_round(&step).await;
                    while self.is_overtaken(&mut done).await {
                        done = self.upkeep_round(&step).await;
                    }
                    drop(reply.send(done));
                }
                Some(Op::Count(reply)) => {
                    self.land_all().await;
                    self.renew_head().await;
                    let begun = self.partition.counts.begin(&*self.engine, self.head);
                    if let Some(begun) = &begun {
                        begun.pin().await;
                    }
                    drop(reply.send(begun));
                }
                Some(Op::DeleteKey(deletion, reply)) => {
                    self.land_all().await;
                    self.renew_head().await;
                    let mut done = self.delete_key_round(deletion.clone()).await;
                    while self.is_overtaken(&mut done).await {
                        done = self.delete_key_round(deletion.clone()).await;
                    }
                    drop(reply.send(done));
                }
                Some(Op::Settle(reply, resume)) => {
                    self.land_all().await;
                    self.renew_head().await;
                    drop(reply.send(self.purge_rounds().await));
                    // It is never sent anything.
                    resume.await.unwrap_or_default();
                }
                Some(Op::Retire(reply)) => {
                    self.land_all().await;
                    self.queue.close();
                    let mut waiting = Vec::new();
                    while let Some(op) = self.queue.recv().await {
                        waiting.push(op);
                    }
                    drop(reply.send(waiting));
                    return;
                }
                Some(Op::Close(reply)) => {
                    self.land_all().await;
                    self.queue.close();
                    reply.send(()).unwrap_or_default();
                }
            }
        }
    }

    /// The next operation; meanwhile rounds land. `None` when the queue is closed and all have landed.
    async fn next(&mut self) -> Option<Op> {
        loop {
            let Some(first) = self.flights.front_mut() else { return self.queue.recv().await };
            tokio::select! {
                biased;
                committed = &mut first.commit => self.landed(committed).await,
                op = self.queue.recv() => match op {
                    Some(op) => return Some(op),
                    None => self.land_all().await,
                },
            }
        }
    }

    /// Takes the writes that have queued up to the first other operation, which is held back for the next round.
    fn gather(&mut self, writes: &mut Vec<Submitted>) -> Option<Op> {
        let size = |transaction: &Transaction| {
            transaction.ops.iter().map(Prepared::body_bytes).sum::<usize>()
        };
        let mut ops: usize = writes.iter().map(|(transaction, _)| transaction.ops.len()).sum();
        let mut bytes: usize = writes.iter().map(|(transaction, _)| size(transaction)).sum();
        while ops < ROUND_OPS_MAX && bytes < ROUND_BYTES_MAX {
            match self.queue.try_recv() {
                Ok(Op::Write(transaction, reply)) => {
                    ops += transaction.ops.len();
                    bytes += size(&transaction);
                    writes.push((transaction, reply));
                }
                Ok(other) => return Some(other),
                Err(_) => return None,
            }
        }
        None
    }

    /// Decides a round of writes on what the rounds in flight will leave, and sends it after them.
    async fn launch(&mut self, writes: Vec<Submitted>) {
        if self.shared.is_some() && self.partition.epoch().is_none() {
            match self.learn().await {
                Ok(Learned::Gone) => return self.redirect(writes),
                Ok(_) => self.conflicts = 0,
                Err(error) => return refuse(writes, &error),
            }
        }
        let mut round = Round::new(self);
        if self.shared.is_some() {
            round.look_ahead(&writes).await;
        }
        let mut outcomes = Vec::with_capacity(writes.len());
        for (transaction, _) in &writes {
            outcomes.push(round.transact(transaction).await);
        }
        let Round { old_head, head, batch, names, uniques, steps, .. } = round;
        let is_torn = |outcome: &Outcome| matches!(outcome.result, Err(Error::Storage(_)));
        if outcomes.iter().flatten().any(is_torn) && self.was_overtaken().await {
            return Box::pin(self.launch(writes)).await;
        }
        let batch = self.checked(old_head, head, batch);
        let head = if batch.is_some() { head } else { old_head };
        let empty = batch.is_none();
        let commit = self.send(batch);
        self.head = head;
        self.flights.push_back(Flight {
            commit,
            empty,
            writes,
            outcomes,
            head,
            names,
            uniques,
            steps,
        });
        while self.flights.len() >= FLIGHTS_MAX {
            self.land().await;
        }
    }

    /// Has a batch committed by a task of its own, after the one before it has been handed to the engine.
    fn send(&mut self, batch: Option<Batch>) -> JoinHandle<storage::Result<()>> {
        let (sent, is_sent) = oneshot::channel();
        let before = self.last_sent.replace(is_sent);
        let engine = self.engine.clone();
        tokio::spawn(async move {
            if let Some(before) = before {
                // An error means that the task before has ended, which is as good.
                before.await.unwrap_or_default();
            }
            let Some(batch) = batch else { return Ok(()) };
            let mut commit = engine.commit(batch);
            // Polled once, the batch is on its way.
            let first = poll_fn(|context| Poll::Ready(commit.as_mut().poll(context))).await;
            sent.send(()).unwrap_or_default();
            match first {
                Poll::Ready(result) => result,
                Poll::Pending => commit.await,
            }
        })
    }

    /// The batch with a check and a put of the head; nothing if it has nothing to write.
    fn checked(&self, old: Head, head: Head, mut batch: Batch) -> Option<Batch> {
        // `now` alone is no reason for a commit.
        if batch.writes.is_empty() && head == (Head { now: head.now, maker: head.maker, ..old }) {
            return None;
        }
        let key = Key::Head(self.partition.id).encode();
        batch.check(Family::Catalog, key.clone(), Some(old.encode()));
        batch.put(Family::Catalog, key, head.encode());
        if self.shared.is_some() {
            let key = Key::Epoch(self.partition.id).encode();
            // Nobody has the empty one, so a round whose rule is not known fails.
            let epoch = self.partition.epoch().map_or(Some(Bytes::new()), |epoch| epoch.stored());
            batch.check(Family::Catalog, key, epoch);
        }
        Some(batch)
    }

    async fn land_all(&mut self) {
        while !self.flights.is_empty() {
            self.land().await;
        }
    }

    /// Waits for the oldest round in flight.
    async fn land(&mut self) {
        if let Some(first) = self.flights.front_mut() {
            let committed = (&mut first.commit).await;
            self.landed(committed).await;
        }
    }

    /// The oldest round has been committed, or not.
    async fn landed(&mut self, committed: std::result::Result<storage::Result<()>, JoinError>) {
        let Some(mut flight) = self.flights.pop_front() else { return };
        match committed.unwrap_or(Err(storage::Error::Closed)) {
            Ok(()) => {
                self.conflicts = 0;
                self.partition.set_head(flight.head);
                self.count(flight.steps.take());
                answer(flight);
            }
            Err(error) => self.crashed(flight, error).await,
        }
    }

    /// A round was not committed, and so neither is any behind it, whose check of the head fails. Writes that only met a conflict, because
    /// another server was faster or a round before them failed, are decided again on what there is.
    async fn crashed(&mut self, flight: Flight, error: storage::Error) {
        let mut again = Vec::new();
        let mut failed = vec![(flight, error)];
        while let Some(mut flight) = self.flights.pop_front() {
            let committed = (&mut flight.commit).await.unwrap_or(Err(storage::Error::Closed));
            let error = match committed {
                Ok(()) if flight.empty => storage::Error::Conflict,
                // It has checked what the one before has made of the head: so that was made, too.
                Ok(()) if matches!(failed[..], [(_, storage::Error::Unknown(_))]) => {
                    let (before, _) = failed.remove(0);
                    self.partition.counts.drop_all();
                    answer(before);
                    answer(flight);
                    continue;
                }
                Ok(()) => storage::Error::Corrupt(
                    "a round was committed though the one before it was not".into(),
                ),
                Err(error) => error,
            };
            failed.push((flight, error));
        }
        self.conflicts += 1;
        let learned = self.learn().await;
        let reloaded = self.reload_head().await;
        for (flight, error) in failed {
            match (error, &learned, &reloaded) {
                (storage::Error::Conflict, Ok(Learned::Gone), _) => self.redirect(flight.writes),
                (storage::Error::Conflict, Err(why), _) => refuse(flight.writes, why),
                (storage::Error::Conflict, _, Err(why)) => {
                    refuse(flight.writes, &why.clone().into());
                }
                (storage::Error::Conflict, _, Ok(true)) if self.conflicts < CONFLICTS_MAX => {
                    again.extend(flight.writes);
                }
                (error, ..) => refuse(flight.writes, &error.into()),
            }
        }
        if self.conflicts >= CONFLICTS_MAX {
            self.conflicts = 0;
        }
        if !again.is_empty() {
            Box::pin(self.launch(again)).await;
        }
    }

    /// Takes the head that is in the store, for a round that may come to nothing and then is not checked, and the rule. An error comes again with
    /// its commit.
    async fn renew_head(&mut self) {
        let Some(shared) = &self.shared else { return };
        let learned = shared.learn(self.runtime.rid, &self.partition).await;
        let key = Key::Head(self.partition.id).encode();
        let stored = self.engine.get(Family::Catalog, &key).await;
        let head = stored.ok().flatten().and_then(|bytes| Head::decode(&bytes).ok());
        if let Some(head) = head.filter(|head| learned.is_ok() && *head != self.head) {
            self.partition.set_head(head);
            self.head = head;
            self.partition.counts.drop_all();
        }
    }

    /// Hands writes on whose partition is not there any more.
    fn redirect(&self, writes: Vec<Submitted>) {
        if let Some(shared) = &self.shared {
            shared.redirect(self.runtime.rid, writes);
        }
    }

    /// Takes the head that is in the store; whether there is one.
    async fn reload_head(&mut self) -> storage::Result<bool> {
        let key = Key::Head(self.partition.id).encode();
        let stored = self.engine.get(Family::Catalog, &key).await;
        self.partition.counts.drop_all();
        let head = stored?.and_then(|bytes| Head::decode(&bytes).ok());
        if let Some(head) = head {
            self.clock.raise_to(head.now);
            self.partition.set_head(head);
            self.head = head;
        }
        Ok(head.is_some())
    }

    /// Whether another server has changed the partition while a round was reading it: what looked corrupt was then read half before and half after.
    /// Takes its head.
    async fn was_overtaken(&mut self) -> bool {
        if self.shared.is_none() {
            return false;
        }
        self.land_all().await;
        let before = self.head;
        self.reload_head().await.is_ok_and(|there| there && self.head != before)
    }

    async fn purge_round(&mut self, items_max: usize) -> Result<Purged> {
        let mut round = Round::new(self);
        let purged = round.purge(items_max).await;
        let charge = std::mem::take(&mut round.charge);
        let Round { old_head, head, batch, steps, .. } = round;
        let purged = match purged {
            Err(Error::Storage(_)) if self.was_overtaken().await => return Err(Error::Contention),
            purged => purged?,
        };
        self.commit(old_head, head, batch, steps).await?;
        self.partition.book_purge(purged.items, charge);
        Ok(purged)
    }

    /// Removes all that is expired.
    async fn purge_rounds(&mut self) -> Result<()> {
        loop {
            let mut purged = self.purge_round(ROUND_ITEMS_MAX).await;
            while self.is_overtaken(&mut purged).await {
                purged = self.purge_round(ROUND_ITEMS_MAX).await;
            }
            if !purged?.more {
                return Ok(());
            }
        }
    }

    /// Makes room in a log of versions that has reached its size, before there is more of it. If that fails, so will what comes next.
    async fn bound_log(&mut self) {
        let Some(policy) = self.runtime.settings().history else { return };
        while self.head.log_bytes > policy.bytes_max {
            self.land_all().await;
            match self.shorten_round(policy.bytes_max).await {
                Ok(cut) if cut > 0 => {}
                _ => return,
            }
        }
    }

    async fn shorten_round(&mut self, bytes_max: u64) -> Result<usize> {
        let mut round = Round::new(self);
        let cut = round.shorten_history(bytes_max).await?;
        let Round { old_head, head, batch, steps, .. } = round;
        self.commit(old_head, head, batch, steps).await?;
        Ok(cut)
    }

    async fn reindex_round(&mut self, items_max: usize) -> Result<Reindexed> {
        let mut round = Round::new(self);
        let reindexed = round.reindex(items_max).await?;
        let charge = std::mem::take(&mut round.charge);
        let Round { old_head, head, batch, steps, .. } = round;
        self.commit(old_head, head, batch, steps).await?;
        self.partition.book_reindex(&reindexed, charge);
        Ok(reindexed)
    }

    async fn upkeep_round(&mut self, step: &Upkeep) -> Result<Option<u64>> {
        let mut round = Round::new(self);
        let next = round.upkeep(step).await?;
        let Round { old_head, head, batch, steps, .. } = round;
        self.commit(old_head, head, batch, steps).await?;
        Ok(next)
    }

    async fn delete_key_round(
        &mut self,
        deletion: KeyDeletion,
    ) -> Result<(Option<KeyDeletion>, RequestCharge)> {
        let mut round = Round::new(self);
        let rest = round.delete_key(deletion).await?;
        let charge = std::mem::take(&mut round.charge);
        let Round { old_head, head, batch, steps, .. } = round;
        self.commit(old_head, head, batch, steps).await?;
        Ok((rest, charge))
    }

    /// Commits a round of our own, which nobody's round waits for.
    async fn commit(
        &mut self,
        old_head: Head,
        head: Head,
        batch: Batch,
        steps: Option<Vec<Step>>,
    ) -> Result<()> {
        if let Some(batch) = self.checked(old_head, head, batch) {
            if let Err(error) = self.engine.commit(batch).await {
                // If it cannot be read either, the next round's check will tell.
                drop(self.reload_head().await);
                return Err(error.into());
            }
            self.head = head;
            self.partition.set_head(head);
            self.count(steps);
        }
        Ok(())
    }

    /// Adds what a committed round has changed to the counts of expiries, where these are kept.
    fn count(&self, steps: Option<Vec<Step>>) {
        if let Some(steps) = steps {
            self.partition.counts.add(&steps, self.head.now);
        }
    }
}

/// How often in a row another server may be faster before clients are told.
const CONFLICTS_MAX: u32 = 100;

/// How long a writer waits for a change that is on its way before it looks again.
const LATER: Duration = Duration::from_millis(20);

/// Tells the clients of a round that it was made.
fn answer(flight: Flight) {
    for ((_, reply), outcomes) in flight.writes.into_iter().zip(flight.outcomes) {
        drop(reply.send(outcomes));
    }
}

fn refuse(writes: Vec<Submitted>, error: &Error) {
    for (transaction, reply) in writes {
        let refused = transaction.ops.iter().map(|_| Outcome::refused(error.clone()));
        drop(reply.send(refused.collect()));
    }
}

/// One batch in the making.
pub(crate) struct Round<'w> {
    pub writer: &'w Writer,
    pub snapshot: Ahead,
    pub horizon: Horizon,
    old_head: Head,
    pub head: Head,
    pub batch: Batch,
    pub charge: RequestCharge,
    /// What earlier operations of this round have made of names: an item, or nothing.
    names: HashMap<Bytes, Option<Stored>>,
    /// The same for unique key entries.
    uniques: HashMap<Vec<u8>, Option<u64>>,
    /// What names and unique key entries were before, since the transaction began.
    undo: Vec<Undo>,
    /// Which write of its change comes next.
    seq: u16,
    /// Whether the change that is being made has one write.
    alone: bool,
    /// The change that is being logged, and which of its entries comes next.
    logged: (u64, u32),
    /// What comes and goes in the orders of expiry, where that is counted.
    steps: Option<Vec<Step>>,
}

/// A snapshot of which some was read ahead.
pub(crate) struct Ahead {
    snapshot: Box<dyn Snapshot>,
    known: HashMap<(Family, Bytes), Option<Bytes>>,
}

impl Ahead {
    fn new(snapshot: Box<dyn Snapshot>) -> Self {
        Self { snapshot, known: HashMap::new() }
    }

    /// Reads and remembers.
    pub async fn read(
        &mut self,
        family: Family,
        keys: Vec<Bytes>,
    ) -> storage::Result<Vec<Option<Bytes>>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let values = self.snapshot.get_many(family, keys.clone()).await?;
        for (key, value) in keys.into_iter().zip(&values) {
            self.known.insert((family, key), value.clone());
        }
        Ok(values)
    }
}

impl std::ops::Deref for Ahead {
    type Target = dyn Snapshot;

    fn deref(&self) -> &Self::Target {
        self
    }
}

impl Snapshot for Ahead {
    fn get(&self, family: Family, key: &[u8]) -> storage::Answer<'_, Option<Bytes>> {
        if !self.known.is_empty()
            && let Some(known) = self.known.get(&(family, Bytes::copy_from_slice(key)))
        {
            return Box::pin(std::future::ready(Ok(known.clone())));
        }
        self.snapshot.get(family, key)
    }

    fn scan(
        &self,
        family: Family,
        range: std::ops::Range<Bytes>,
        direction: storage::Direction,
        limit: usize,
    ) -> storage::Answer<'_, Vec<storage::Pair>> {
        self.snapshot.scan(family, range, direction, limit)
    }
}

/// An entry of a round as it was: `None` where there was none.
enum Undo {
    Name(Bytes, Option<Option<Stored>>),
    Unique(Vec<u8>, Option<Option<u64>>),
}

/// An item in storage.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub ordinal: u64,
    pub record: Record,
}

impl<'w> Round<'w> {
    fn new(writer: &'w Writer) -> Self {
        let old_head = writer.head;
        // `_ts` never decreases along the feed: that is what makes the feed the expiry order of the default.
        let now = writer.clock.now().max(old_head.now);
        Self {
            writer,
            horizon: writer.runtime.ttl.horizon(now),
            snapshot: Ahead::new(writer.engine.latest()),
            old_head,
            head: Head { now, maker: writer.maker(), ..old_head },
            batch: Batch::default(),
            charge: RequestCharge::default(),
            names: HashMap::new(),
            uniques: HashMap::new(),
            undo: Vec::new(),
            seq: 0,
            alone: false,
            logged: (0, 0),
            steps: writer.partition.counts.is_on().then(Vec::new),
        }
    }

    /// Reads at once what the writes will look at one by one: a store on another machine answers many questions as fast as one. What fails
    /// here fails again when it is needed.
    async fn look_ahead(&mut self, writes: &[Submitted]) {
        let partition = self.writer.partition.id;
        let ops = || writes.iter().flat_map(|(transaction, _)| &transaction.ops);
        let ids = ops().map(|op| Key::Id { partition, name: &op.name }.encode()).collect();
        let Ok(ordinals) = self.snapshot.read(Family::Id, ids).await else { return };
        let ordinals = ordinals.iter().flatten().filter_map(|bytes| ordinal_of_value(bytes).ok());
        let items = ordinals.map(|ordinal| Key::Item { partition, ordinal }.encode()).collect();
        let bodies = ops().filter_map(|op| match &op.content {
            Content::Body(body) => Some(&body.unique),
            _ => None,
        });
        let uniques =
            bodies.flatten().map(|suffix| Key::Unique { partition, suffix }.encode()).collect();
        if self.snapshot.read(Family::Item, items).await.is_ok() {
            drop(self.snapshot.read(Family::Index, uniques).await);
        }
    }

    pub fn now(&self) -> Timestamp {
        self.head.now
    }

    /// Makes what follows a change of its own, if nothing of this round is one yet.
    pub fn begin_change(&mut self) {
        if self.head.lsn == self.old_head.lsn {
            self.head.lsn += 1;
        }
    }

    /// Which entry of the log the change makes next.
    pub fn next_in_log(&mut self) -> u32 {
        let next = if self.logged.0 == self.head.lsn { self.logged.1 + 1 } else { 0 };
        self.logged = (self.head.lsn, next);
        next
    }

    /// Makes a transaction's writes, as its mode says.
    async fn transact(&mut self, transaction: &Transaction) -> Vec<Outcome> {
        let Transaction { ops, mode } = transaction;
        if *mode == Mode::Atomic {
            return self.transact_all(ops).await;
        }
        let mut outcomes = Vec::with_capacity(ops.len());
        let mut stopped = false;
        for op in ops {
            if stopped {
                outcomes.push(Outcome::refused(Error::FailedDependency));
                continue;
            }
            let outcome = self.transact_all(std::slice::from_ref(op)).await;
            stopped = *mode == Mode::Ordered && outcome.iter().any(|one| one.result.is_err());
            outcomes.extend(outcome);
        }
        outcomes
    }

    /// Makes all writes, as one change with one lsn, or none.
    async fn transact_all(&mut self, transaction: &[Prepared]) -> Vec<Outcome> {
        let (head, written) = (self.head, self.batch.writes.len());
        let counted = self.steps.as_ref().map_or(0, Vec::len);
        self.undo.clear();
        self.seq = 0;
        self.alone = transaction.len() == 1;
        self.head.lsn += 1;
        let mut outcomes = Vec::with_capacity(transaction.len());
        for (number, op) in transaction.iter().enumerate() {
            let result = self.write(op).await;
            let charge = std::mem::take(&mut self.charge);
            match result {
                Ok(_) => outcomes.push(Outcome { result, charge }),
                Err(error) => {
                    self.roll_back(head, written);
                    self.steps.iter_mut().for_each(|steps| steps.truncate(counted));
                    return Outcome::all_refused(transaction.len(), number, error, charge);
                }
            }
        }
        if self.batch.writes.len() == written {
            self.head = head;
        }
        outcomes
    }

    fn roll_back(&mut self, head: Head, written: usize) {
        self.head = head;
        self.batch.writes.truncate(written);
        while let Some(undo) = self.undo.pop() {
            match undo {
                Undo::Name(name, Some(before)) => drop(self.names.insert(name, before)),
                Undo::Name(name, None) => drop(self.names.remove(&name)),
                Undo::Unique(suffix, Some(before)) => drop(self.uniques.insert(suffix, before)),
                Undo::Unique(suffix, None) => drop(self.uniques.remove(&suffix)),
            }
        }
    }

    async fn write(&mut self, op: &Prepared) -> Result<Written> {
        let found = self.find(&op.name).await?;
        let live = found.as_ref().filter(|stored| self.is_live(&stored.record)).cloned();
        self.charge = charge::MISS;
        match (&op.verb, &live) {
            (Verb::Create, Some(_)) => return Err(Error::Exists),
            (Verb::Create | Verb::Upsert, None) => {}
            (_, None) => return Err(Error::NotFound),
            (_, Some(stored)) => check_preconditions(op, &stored.record)?,
        }
        match (&op.content, live) {
            (Content::Body(body), old) => {
                let dead = found.filter(|_| old.is_none());
                match self.described_again(op, &body.text)? {
                    Some(body) => self.store(op, &body, old, dead).await,
                    None => self.store(op, body, old, dead).await,
                }
            }
            (Content::Refused(error), _) => Err(error.clone()),
            (Content::Edit(edit), old) => {
                match edit.edit(old.as_ref().map(|old| &old.record.body), self.now())? {
                    Edited::Keep => {
                        self.charge = old
                            .as_ref()
                            .map_or(charge::MISS, |old| charge::read(old.record.body.len()));
                        Ok(Written { created: false, item: None })
                    }
                    Edited::Put(text) => {
                        let dead = found.filter(|_| old.is_none());
                        let body = self.described(&text)?;
                        self.store(op, &body, old, dead).await
                    }
                    Edited::Remove => match old {
                        Some(old) => self.delete(op, &old),
                        None => Ok(Written { created: false, item: None }),
                    },
                }
            }
            (Content::Patch(patch), Some(old)) => {
                let body = self.patched(patch, &old.record)?;
                self.store(op, &body, Some(old), None).await
            }
            (Content::Nothing, Some(old)) if matches!(op.verb, Verb::Delete(_)) => {
                self.delete(op, &old)
            }
            (Content::Nothing, Some(old)) => {
                self.charge = charge::read(old.record.body.len());
                Ok(Written { created: false, item: Some(Item::of(&old.record)) })
            }
            (Content::Patch(_) | Content::Nothing, None) => Err(Error::NotFound),
        }
    }

    fn delete(&mut self, op: &Prepared, old: &Stored) -> Result<Written> {
        self.charge = charge::write(old.record.body.len(), self.remove(old)?);
        self.remember(Change::Delete, &op.name, None, Some(old));
        self.change(&op.name, None);
        Ok(Written { created: false, item: None })
    }

    /// What is stored beside a document that an edit has made.
    fn described(&self, text: &Bytes) -> Result<PreparedBody> {
        let settings = self.writer.runtime.settings();
        let layout = settings.layout.as_ref().ok_or(Error::FailedDependency)?;
        Ok(PreparedBody::document(text.clone(), layout.describe(text)?))
    }

    /// The same for one that was prepared by a layout which has changed since; `None` if it has not.
    fn described_again(&self, op: &Prepared, text: &Bytes) -> Result<Option<PreparedBody>> {
        let Some(layout) = &op.layout else { return Ok(None) };
        let settings = self.writer.runtime.settings();
        match &settings.layout {
            Some(current) if !Arc::ptr_eq(current, layout) => self.described(text).map(Some),
            _ => Ok(None),
        }
    }

    /// Writes a body after what stands in its way has gone: expired items under the same name or with the same
    /// unique keys (R09).
    async fn store(
        &mut self,
        op: &Prepared,
        body: &PreparedBody,
        old: Option<Stored>,
        dead: Option<Stored>,
    ) -> Result<Written> {
        let mut dead: Vec<Stored> = dead.into_iter().collect();
        if let Some(name) = &op.renamed
            && let Some(holder) = self.find(name).await?
        {
            if self.is_live(&holder.record) {
                return Err(Error::Exists);
            }
            dead.push(holder);
        }
        dead.extend(self.expired_holders(body, old.as_ref().map(|old| old.ordinal)).await?);
        dead.sort_by_key(|dead| dead.ordinal);
        dead.dedup_by_key(|dead| dead.ordinal);
        for dead in &dead {
            self.remove_expired(dead)?;
            self.change(&dead.record.name, None);
        }
        self.put(op, body, old)
    }

    /// What a patch makes of an item.
    fn patched(&self, patch: &PreparedPatch, record: &Record) -> Result<PreparedBody> {
        if let Some(condition) = &patch.condition
            && !condition.matches(&record.body, &query::Context::default())?
        {
            return Err(Error::PatchConditionFailed);
        }
        let mut value = parse_stored(record)?;
        patch.patch.apply(&mut value)?;
        let runtime = &self.writer.runtime;
        PreparedBody::new(&runtime.settings(), runtime.ttl.state(), &value)
    }

    /// Writes a new item, or a new version of `old`.
    fn put(&mut self, op: &Prepared, body: &PreparedBody, old: Option<Stored>) -> Result<Written> {
        let partition = self.writer.partition.id;
        let created = old.is_none();
        let ordinal = match &old {
            Some(old) => old.ordinal,
            None => {
                self.head.ordinal += 1;
                self.head.ordinal
            }
        };
        let mut record = Record {
            lsn: self.head.lsn,
            seq: self.seq,
            alone: self.alone,
            ts: self.now(),
            own_ttl: body.own_ttl,
            name: op.renamed.as_ref().unwrap_or(&op.name).clone(),
            body: Bytes::new(),
        };
        let settings = self.writer.runtime.settings();
        record.body = match settings.layout {
            Some(_) => body.text.clone(),
            None => {
                let number = (self.writer.partition.span.birthplace(ordinal), ordinal);
                complete(&body.text, self.writer.runtime.rid, number, &record)
            }
        };

        let ts_term = settings.indexing.ts_term(record.ts);
        // The policy may have changed since the body was prepared.
        let renewed = match body.indexing_epoch == settings.indexing_epoch {
            true => None,
            false => Some(settings.indexing.terms(&parse_stored(&record)?)),
        };
        let body_terms = renewed.as_ref().unwrap_or(&body.terms);
        let mut terms: Vec<&Vec<u8>> = body_terms.iter().chain(&ts_term).collect();
        terms.sort_unstable();
        match &old {
            None => {
                let key = Key::Id { partition, name: &op.name }.encode();
                self.batch.put(Family::Id, key, ordinal.to_le_bytes().to_vec());
                if settings.layout.is_none() {
                    let key = Key::Member { partition, key: &op.key, ordinal }.encode();
                    self.batch.put(Family::Index, key, Bytes::new());
                }
                for term in terms {
                    let key = Key::Term { partition, term, ordinal }.encode();
                    self.batch.put(Family::Index, key, Bytes::new());
                }
            }
            Some(old) => {
                let Beside { terms: old_terms, unique: old_unique, .. } =
                    settings.beside(&old.record)?;
                for term in old_terms.iter().filter(|term| terms.binary_search(term).is_err()) {
                    self.batch
                        .delete(Family::Index, Key::Term { partition, term, ordinal }.encode());
                }
                // While the index is rebuilt, nobody knows which terms the old version has.
                let has = |term: &&&Vec<u8>| {
                    settings.is_indexed() && old_terms.binary_search(term).is_ok()
                };
                for term in terms.iter().filter(|term| !has(term)) {
                    let key = Key::Term { partition, term, ordinal }.encode();
                    self.batch.put(Family::Index, key, Bytes::new());
                }
                self.remove_order_entries(old);
                self.remove_unique_keys(old_unique, &body.unique);
                self.head.items = self.head.items.saturating_sub(1);
                self.head.bytes = self.head.bytes.saturating_sub(old.record.body.len() as u64);
            }
        }
        if let Some(name) = &op.renamed {
            self.batch.delete(Family::Id, Key::Id { partition, name: &op.name }.encode());
            let key = Key::Id { partition, name }.encode();
            self.batch.put(Family::Id, key, ordinal.to_le_bytes().to_vec());
            self.change(&op.name, None);
        }
        self.put_unique(&body.unique, ordinal);
        self.put_order_entries(&record, ordinal);
        if let Some(due) = self.writer.runtime.ttl.state().expires_at(record.ts, record.own_ttl) {
            self.writer.alarm.due(due);
        }
        self.batch.put(Family::Item, Key::Item { partition, ordinal }.encode(), record.encode());
        self.head.items += 1;
        self.head.bytes += record.body.len() as u64;
        self.charge = charge::write(record.body.len(), body.terms.len());
        if let Some(old) = &old {
            self.charge += charge::write(old.record.body.len(), body.terms.len());
        }
        let change = match &op.content {
            _ if created => Change::Create,
            Content::Edit(edit) if edit.is_partial() => Change::Update,
            _ => Change::Replace,
        };
        self.remember(change, &record.name, Some(&record.body), old.as_ref());
        let item = Item::of(&record);
        self.seq += 1;
        self.change(&record.name.clone(), Some(Stored { ordinal, record }));
        Ok(Written { created, item: Some(item) })
    }

    pub fn put_unique(&mut self, unique: &[Vec<u8>], ordinal: u64) {
        let partition = self.writer.partition.id;
        for suffix in unique {
            let key = Key::Unique { partition, suffix }.encode();
            self.batch.put(Family::Index, key, ordinal.to_le_bytes().to_vec());
            self.change_unique(suffix.clone(), Some(ordinal));
        }
    }

    /// The entries in the feed and, with an own ttl, in the expiry order.
    pub fn put_order_entries(&mut self, record: &Record, ordinal: u64) {
        let partition = self.writer.partition.id;
        if let Some(steps) = &mut self.steps {
            steps.extend(Step::coming(record));
        }
        let length = (record.body.len() as u32).to_le_bytes();
        let mut value = Vec::with_capacity(13);
        value.extend_from_slice(&record.ts.0.to_le_bytes());
        value.push(u8::from(record.own_ttl != Ttl::Absent));
        value.extend_from_slice(&length);
        self.batch.put(
            Family::Feed,
            Key::Feed { partition, lsn: record.lsn, ordinal }.encode(),
            value,
        );
        if let Some(at) = record.own_ttl.instant(record.ts) {
            // A date may lie long before its item was written.
            self.expect_expiry(at);
            let key = Key::Expiry { partition, at, ordinal }.encode();
            let value = [&record.lsn.to_le_bytes()[..], &length].concat();
            self.batch.put(Family::Expiry, key, value);
        }
    }

    pub fn remove_order_entries(&mut self, old: &Stored) {
        if let Some(steps) = &mut self.steps {
            steps.extend(Step::going(&old.record));
        }
        let partition = self.writer.partition.id;
        let ordinal = old.ordinal;
        self.batch
            .delete(Family::Feed, Key::Feed { partition, lsn: old.record.lsn, ordinal }.encode());
        if let Some(at) = old.record.own_ttl.instant(old.record.ts) {
            self.batch.delete(Family::Expiry, Key::Expiry { partition, at, ordinal }.encode());
        }
    }

    /// Removes an item with everything that points to it; gives the number of its index terms.
    pub fn remove(&mut self, old: &Stored) -> Result<usize> {
        let partition = self.writer.partition.id;
        let (ordinal, name) = (old.ordinal, &old.record.name);
        let Beside { key, terms, unique } = self.writer.runtime.settings().beside(&old.record)?;
        for term in &terms {
            self.batch.delete(Family::Index, Key::Term { partition, term, ordinal }.encode());
        }
        if let Some(key) = key {
            let key = Key::Member { partition, key: &key, ordinal }.encode();
            self.batch.delete(Family::Index, key);
        }
        self.batch.delete(Family::Id, Key::Id { partition, name }.encode());
        self.batch.delete(Family::Item, Key::Item { partition, ordinal }.encode());
        self.remove_order_entries(old);
        self.remove_unique_keys(unique, &[]);
        self.head.items = self.head.items.saturating_sub(1);
        self.head.bytes = self.head.bytes.saturating_sub(old.record.body.len() as u64);
        Ok(terms.len())
    }

    fn remove_unique_keys(&mut self, old: Vec<Vec<u8>>, kept: &[Vec<u8>]) {
        let partition = self.writer.partition.id;
        for suffix in old {
            if !kept.contains(&suffix) {
                let key = Key::Unique { partition, suffix: &suffix }.encode();
                self.batch.delete(Family::Index, key);
                self.change_unique(suffix, None);
            }
        }
    }

    /// The expired items that hold unique keys of `body`; a live one is a violation.
    pub async fn expired_holders(
        &mut self,
        body: &PreparedBody,
        own: Option<u64>,
    ) -> Result<Vec<Stored>> {
        let partition = self.writer.partition.id;
        let mut dead = Vec::new();
        for suffix in &body.unique {
            let flights = self.writer.flights.iter().rev().map(|flight| &flight.uniques);
            let known =
                std::iter::once(&self.uniques).chain(flights).find_map(|all| all.get(suffix));
            let holder = match known {
                Some(holder) => *holder,
                None => {
                    let key = Key::Unique { partition, suffix }.encode();
                    let stored = self.snapshot.get(Family::Index, &key).await?;
                    stored.map(|bytes| ordinal_of_value(&bytes)).transpose()?
                }
            };
            let Some(ordinal) = holder.filter(|holder| Some(*holder) != own) else { continue };
            let key = Key::Item { partition, ordinal }.encode();
            let Some(bytes) = self.snapshot.get(Family::Item, &key).await? else {
                // Written earlier in this very round, or in one that is in flight, so it is live.
                return Err(Error::UniqueKeyViolation { entry: suffix.clone() });
            };
            let record = Record::decode(&key, bytes)?;
            if self.is_live(&record)
                || self.find(&record.name).await?.is_some_and(|now| now.record.lsn != record.lsn)
            {
                return Err(Error::UniqueKeyViolation { entry: suffix.clone() });
            }
            dead.push(Stored { ordinal, record });
        }
        Ok(dead)
    }

    /// The item under a name, dead or alive, as earlier operations of this round have left it.
    async fn find(&self, name: &Bytes) -> Result<Option<Stored>> {
        let flights = self.writer.flights.iter().rev().map(|flight| &flight.names);
        if let Some(known) =
            std::iter::once(&self.names).chain(flights).find_map(|names| names.get(name))
        {
            return Ok(known.clone());
        }
        let partition = self.writer.partition.id;
        let Some(ordinal) =
            self.snapshot.get(Family::Id, &Key::Id { partition, name }.encode()).await?
        else {
            return Ok(None);
        };
        let ordinal = ordinal_of_value(&ordinal)?;
        self.stored(ordinal).await.map(Some)
    }

    /// The item with a number, which must be there.
    async fn stored(&self, ordinal: u64) -> Result<Stored> {
        let key = Key::Item { partition: self.writer.partition.id, ordinal }.encode();
        let bytes = self.snapshot.get(Family::Item, &key).await?;
        let bytes = bytes.ok_or_else(|| {
            storage::Error::Corrupt(format!(
                "an id or feed entry names item {ordinal}, which is missing"
            ))
        })?;
        Ok(Stored { ordinal, record: Record::decode(&key, bytes)? })
    }

    /// The dead item that an expiry or feed key ends with, if it is still what the entry says.
    pub async fn dead(&self, key: &[u8]) -> Result<Stored> {
        self.stored(ordinal_of(key)?).await
    }

    pub fn is_live(&self, record: &Record) -> bool {
        self.horizon.is_live(record.ts, record.own_ttl)
    }

    fn change(&mut self, name: &Bytes, to: Option<Stored>) {
        let before = self.names.insert(name.clone(), to);
        self.undo.push(Undo::Name(name.clone(), before));
    }

    fn change_unique(&mut self, suffix: Vec<u8>, to: Option<u64>) {
        let before = self.uniques.insert(suffix.clone(), to);
        self.undo.push(Undo::Unique(suffix, before));
    }
}

fn check_preconditions(op: &Prepared, record: &Record) -> Result<()> {
    let etag = || record.etag().to_string();
    match (&op.if_match, &op.if_none_match) {
        (Some(wanted), _) if wanted != "*" && *wanted != etag() => Err(Error::PreconditionFailed),
        (_, Some(unwanted)) if unwanted == "*" || *unwanted == etag() => {
            Err(Error::PreconditionFailed)
        }
        _ => Ok(()),
    }
}

/// Appends the system properties to an item's text. Every write passes here, so nothing is formatted that can be copied.
pub(crate) fn complete(
    text: &[u8],
    container: ContainerRid,
    (partition, ordinal): (u32, u64),
    record: &Record,
) -> Bytes {
    let rid = ChildRid::item(container, partition, ordinal);
    let etag = record.etag().text();
    let mut body = Vec::with_capacity(text.len() + 256);
    body.extend_from_slice(text);
    body.extend_from_slice(b",\"_rid\":\"");
    rid.push_to(&mut body);
    write!(body, "\",\"_self\":\"dbs/{}/colls/{container}/docs/", container.database)
        .expect("writing to a vector cannot fail");
    rid.push_to(&mut body);
    body.extend_from_slice(b"/\",\"_etag\":\"\\\"");
    body.extend_from_slice(&etag[1..etag.len() - 1]);
    write!(body, "\\\"\",\"_attachments\":\"attachments/\",\"_ts\":{}}}", record.ts)
        .expect("writing to a vector cannot fail");
    body.into()
}

/// A stored body as a tree.
pub(crate) fn parse_stored(record: &Record) -> Result<Value> {
    serde_json::from_slice(&record.body).map_err(|error| {
        Error::Storage(format!("corrupt data: a stored item is not JSON: {error}"))
    })
}

/// The ordinal that an `id` or unique entry holds.
pub(crate) fn ordinal_of_value(bytes: &[u8]) -> storage::Result<u64> {
    let array = bytes.try_into();
    array.map(u64::from_le_bytes).map_err(|_| {
        storage::Error::Corrupt(format!(
            "an id entry of {} bytes where 8 are expected",
            bytes.len()
        ))
    })
}
