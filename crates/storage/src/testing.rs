//! Engines for tests: some that wrap other engines, and one that can lose its power.
//!
//! - [`Mirror`] runs two engines side by side and panics when they disagree.
//! - [`Trace`] writes down every batch.
//! - [`Shared`] lets several databases use one engine, as servers on one store do.
//! - [`Failing`] fails as it is told to, as a store on other machines does.
//! - [`postgres`] starts a PostgreSQL server for as long as the tests run.
//! - [`Forgetful`] keeps apart what is in memory and what was synced, and can be stopped at any sync.

pub mod postgres;

use std::fmt::Write as _;
use std::future::ready;
use std::ops::Range;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use bytes::Bytes;

use crate::memory::Memory;
use crate::{
    Answer, Batch, Direction, Engine, Error, Family, Pair, Pulse, Result, Snapshot, Stats, Write,
};

/// Runs a future to its end on this thread. Engine calls need no runtime.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    // On a thread of a runtime nobody would wake one that has used up its turn.
    let mut future = pin!(tokio::task::unconstrained(future));
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Two engines that must always answer the same. Calls run to their end one after the other, on the caller's thread.
pub struct Mirror {
    engines: [Arc<dyn Engine>; 2],
    /// Keeps the two in step: held while both do the same thing.
    turn: Mutex<()>,
}

impl Mirror {
    /// Two engines with the same content.
    pub fn new(a: Arc<dyn Engine>, b: Arc<dyn Engine>) -> Self {
        Self { engines: [a, b], turn: Mutex::new(()) }
    }

    fn both<T: PartialEq + std::fmt::Debug>(
        &self,
        what: &str,
        call: impl Fn(&dyn Engine) -> Result<T>,
    ) -> Result<T> {
        let _turn = lock(&self.turn);
        let [a, b] = &self.engines;
        agree(what, call(&**a), call(&**b))
    }
}

impl Engine for Mirror {
    fn snapshot(&self) -> Box<dyn Snapshot> {
        let _turn = lock(&self.turn);
        let [a, b] = &self.engines;
        Box::new(MirrorSnapshot { snapshots: [a.snapshot(), b.snapshot()] })
    }

    fn commit(&self, batch: Batch) -> Answer<'_, ()> {
        let result = self.both("commit", |engine| block_on(engine.commit(batch.clone())));
        Box::pin(ready(result))
    }

    fn reclaim_below(&self, family: Family, prefix: &[u8], key: &[u8]) {
        let _turn = lock(&self.turn);
        self.engines.iter().for_each(|engine| engine.reclaim_below(family, prefix, key));
    }

    /// Of the first engine.
    fn stats(&self) -> Stats {
        self.engines[0].stats()
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(ready(self.both("close", |engine| block_on(engine.close()))))
    }
}

struct MirrorSnapshot {
    snapshots: [Box<dyn Snapshot>; 2],
}

impl Snapshot for MirrorSnapshot {
    fn get(&self, family: Family, key: &[u8]) -> Answer<'_, Option<Bytes>> {
        let [a, b] = &self.snapshots;
        let (a, b) = (block_on(a.get(family, key)), block_on(b.get(family, key)));
        Box::pin(ready(agree("get", a, b)))
    }

    fn scan(
        &self,
        family: Family,
        range: Range<Bytes>,
        direction: Direction,
        limit: usize,
    ) -> Answer<'_, Vec<Pair>> {
        let [a, b] = &self.snapshots;
        let a = block_on(a.scan(family, range.clone(), direction, limit));
        let b = block_on(b.scan(family, range, direction, limit));
        Box::pin(ready(agree("scan", a, b)))
    }
}

/// Panics unless both succeeded alike or failed for the same reason; the texts may differ.
fn agree<T: PartialEq + std::fmt::Debug>(what: &str, a: Result<T>, b: Result<T>) -> Result<T> {
    let same = match (&a, &b) {
        (Ok(a), Ok(b)) => a == b,
        (Err(a), Err(b)) => std::mem::discriminant(a) == std::mem::discriminant(b),
        _ => false,
    };
    assert!(same, "{what}: the engines differ\nfirst:  {a:?}\nsecond: {b:?}");
    a
}

/// Writes down each batch that goes to another engine, and what became of it.
pub struct Trace {
    engine: Arc<dyn Engine>,
    lines: Mutex<String>,
}

impl Trace {
    /// Listens to what is committed to `engine`.
    pub fn new(engine: Arc<dyn Engine>) -> Self {
        Self { engine, lines: Mutex::default() }
    }

    /// What was committed since the last call: a line for each check, put and delete, and one for the outcome.
    pub fn take(&self) -> String {
        std::mem::take(&mut lock(&self.lines))
    }
}

impl Engine for Trace {
    fn snapshot(&self) -> Box<dyn Snapshot> {
        self.engine.snapshot()
    }

    fn commit(&self, batch: Batch) -> Answer<'_, ()> {
        let mut lines = describe(&batch);
        let answer = self.engine.commit(batch);
        Box::pin(async move {
            let result = answer.await;
            lines.push_str(&match &result {
                Ok(()) => "committed\n".to_string(),
                Err(error) => format!("refused: {error}\n"),
            });
            lock(&self.lines).push_str(&lines);
            result
        })
    }

    fn reclaim_below(&self, family: Family, prefix: &[u8], key: &[u8]) {
        self.engine.reclaim_below(family, prefix, key);
    }

    fn stats(&self) -> Stats {
        self.engine.stats()
    }

    fn close(&self) -> Answer<'_, ()> {
        self.engine.close()
    }
}

/// A batch as lines of text, keys and values as ASCII with escapes.
pub fn describe(batch: &Batch) -> String {
    let mut lines = String::new();
    let mut line = |verb: &str, family: Family, key: &Bytes, value: Option<&Bytes>| {
        let value =
            value.map(|value| format!(" = \"{}\"", value.escape_ascii())).unwrap_or_default();
        writeln!(lines, "{verb} {family:?} \"{}\"{value}", key.escape_ascii())
            .expect("a string takes all");
    };
    for check in &batch.checks {
        let verb = if check.value.is_some() { "check" } else { "check absent" };
        line(verb, check.family, &check.key, check.value.as_ref());
    }
    for write in &batch.writes {
        let verb = if write.value.is_some() { "put" } else { "delete" };
        line(verb, write.family, &write.key, write.value.as_ref());
    }
    lines
}

/// An engine as one of several servers sees it, with a time of the store's own.
pub struct Shared {
    engine: Arc<dyn Engine>,
    now_secs: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl Shared {
    /// The same content for whoever has the same `engine`.
    pub fn new(engine: Arc<dyn Engine>, now_secs: Arc<dyn Fn() -> u64 + Send + Sync>) -> Self {
        Self { engine, now_secs }
    }
}

impl Engine for Shared {
    fn snapshot(&self) -> Box<dyn Snapshot> {
        self.engine.snapshot()
    }

    fn pulse(&self, family: Family, key: &[u8]) -> Option<Answer<'_, Pulse>> {
        let value = self.engine.get(family, key);
        Some(Box::pin(
            async move { Ok(Pulse { value: value.await?, now_secs: (self.now_secs)() }) },
        ))
    }

    fn commit(&self, batch: Batch) -> Answer<'_, ()> {
        self.engine.commit(batch)
    }

    fn reclaim_below(&self, family: Family, prefix: &[u8], key: &[u8]) {
        self.engine.reclaim_below(family, prefix, key);
    }

    fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// The others go on.
    fn close(&self) -> Answer<'_, ()> {
        Box::pin(ready(Ok(())))
    }
}

/// How a store on other machines fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Not at all.
    #[default]
    None,
    /// It cannot be reached.
    Unreachable,
    /// Others change whatever is about to be changed.
    Contended,
    /// The next commit is lost, and whether it was made cannot be found out. It was made.
    LostMade,
    /// The same; it was not made.
    LostUnmade,
}

impl std::str::FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        Ok(match text {
            "well" => Self::None,
            "unreachable" => Self::Unreachable,
            "contended" => Self::Contended,
            "loses-made" => Self::LostMade,
            "loses-unmade" => Self::LostUnmade,
            _ => return Err(format!("a store is not '{text}'")),
        })
    }
}

/// An engine that fails as it is told to.
pub struct Failing {
    engine: Arc<dyn Engine>,
    fault: Arc<Mutex<Fault>>,
}

impl Failing {
    /// As `engine`, until it is told otherwise.
    pub fn new(engine: Arc<dyn Engine>) -> Self {
        Self { engine, fault: Arc::default() }
    }

    /// Fails like this from now on.
    pub fn fail(&self, fault: Fault) {
        *lock(&self.fault) = fault;
    }
}

fn reachable(fault: &Mutex<Fault>) -> Result<()> {
    match *lock(fault) {
        Fault::Unreachable => Err(Error::Unavailable("it does not answer".into())),
        _ => Ok(()),
    }
}

impl Engine for Failing {
    fn snapshot(&self) -> Box<dyn Snapshot> {
        Box::new(FailingSnapshot { snapshot: self.engine.snapshot(), fault: self.fault.clone() })
    }

    fn commit(&self, batch: Batch) -> Answer<'_, ()> {
        let lost = Err(Error::Unknown("it does not answer".into()));
        let fault = *lock(&self.fault);
        let result = match fault {
            Fault::None => return self.engine.commit(batch),
            Fault::Unreachable => reachable(&self.fault),
            Fault::Contended => Err(Error::Conflict),
            Fault::LostMade => block_on(self.engine.commit(batch)).and(lost),
            Fault::LostUnmade => lost,
        };
        if matches!(fault, Fault::LostMade | Fault::LostUnmade) {
            self.fail(Fault::None);
        }
        Box::pin(ready(result))
    }

    fn reclaim_below(&self, family: Family, prefix: &[u8], key: &[u8]) {
        self.engine.reclaim_below(family, prefix, key);
    }

    fn stats(&self) -> Stats {
        self.engine.stats()
    }

    fn close(&self) -> Answer<'_, ()> {
        self.engine.close()
    }
}

struct FailingSnapshot {
    snapshot: Box<dyn Snapshot>,
    fault: Arc<Mutex<Fault>>,
}

impl Snapshot for FailingSnapshot {
    fn get(&self, family: Family, key: &[u8]) -> Answer<'_, Option<Bytes>> {
        match reachable(&self.fault) {
            Ok(()) => self.snapshot.get(family, key),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn scan(
        &self,
        family: Family,
        range: Range<Bytes>,
        direction: Direction,
        limit: usize,
    ) -> Answer<'_, Vec<Pair>> {
        match reachable(&self.fault) {
            Ok(()) => self.snapshot.scan(family, range, direction, limit),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }
}

/// What a disk has of a batch whose sync failed. Nobody can know, so a test tries both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It got there before the failure.
    Kept,
    /// It did not.
    Lost,
}

/// An engine in memory over a simulated disk. It fails at the sync it is told to, and [`Forgetful::crash`] gives what
/// the next process would find.
///
/// To stop a program at every sync in turn: run it once to see how many [`Stats::syncs`] there are, then once for each,
/// with [`Forgetful::fail_sync`], and check what the crashed store holds.
#[derive(Default)]
pub struct Forgetful {
    memory: Memory,
    disk: Mutex<Disk>,
}

#[derive(Default)]
struct Disk {
    /// The writes of each synced batch.
    synced: Vec<Vec<Write>>,
    /// Syncs of this engine, not counting those of its life before a crash.
    syncs: u64,
    failing: Option<(u64, Fate)>,
    failed: bool,
}

impl Forgetful {
    /// An empty store on an empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the sync with this number, counted from 1, fail, and with it everything after.
    pub fn fail_sync(&self, number: u64, fate: Fate) {
        lock(&self.disk).failing = Some((number, fate));
    }

    /// The store as the next process finds it: all that was synced, and nothing else.
    pub fn crash(&self) -> Self {
        let synced = lock(&self.disk).synced.clone();
        let memory = Memory::new();
        for writes in &synced {
            let batch = Batch { checks: Vec::new(), writes: writes.clone() };
            block_on(memory.commit(batch)).expect("a batch without checks always applies");
        }
        Self { memory, disk: Mutex::new(Disk { synced, ..Disk::default() }) }
    }

    fn apply(&self, batch: Batch) -> Result<()> {
        let mut disk = lock(&self.disk);
        if disk.failed {
            return Err(Error::Failed("an earlier sync failed".into()));
        }
        // Only the checks yet: nothing may be visible before it is synced.
        let checks = Batch { checks: batch.checks.clone(), writes: Vec::new() };
        batch.validate()?;
        block_on(self.memory.commit(checks))?;
        if batch.writes.is_empty() {
            return Ok(());
        }
        disk.syncs += 1;
        match disk.failing {
            Some((number, fate)) if number == disk.syncs => {
                disk.failed = true;
                if fate == Fate::Kept {
                    disk.synced.push(batch.writes);
                }
                Err(Error::Failed(format!("sync {number} failed")))
            }
            _ => {
                disk.synced.push(batch.writes.clone());
                block_on(self.memory.commit(batch))
            }
        }
    }
}

impl Engine for Forgetful {
    fn snapshot(&self) -> Box<dyn Snapshot> {
        self.memory.snapshot()
    }

    fn commit(&self, batch: Batch) -> Answer<'_, ()> {
        Box::pin(ready(self.apply(batch)))
    }

    fn reclaim_below(&self, family: Family, prefix: &[u8], key: &[u8]) {
        self.memory.reclaim_below(family, prefix, key);
    }

    fn stats(&self) -> Stats {
        let syncs = lock(&self.disk).syncs;
        Stats { engine: "forgetful", syncs, ..self.memory.stats() }
    }

    fn close(&self) -> Answer<'_, ()> {
        self.memory.close()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The seed of a random test: `SIDEREAL_TEST_SEED` to repeat a run, else a new one each time.
#[cfg(test)]
pub(crate) fn random_seed() -> u64 {
    let seed = std::env::var("SIDEREAL_TEST_SEED").ok();
    seed.map_or_else(
        || fastrand::u64(..),
        |seed| seed.parse().expect("SIDEREAL_TEST_SEED is a number"),
    )
}
