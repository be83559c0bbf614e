//! An engine that tells the process when it has failed, and that can be told to change nothing any more.
//!
//! After a write or sync has failed, the state of the disk is unknown and the engine refuses all work. Nothing can be done in this
//! process: it ends, and whoever supervises it starts another, which recovers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use storage::{Answer, Batch, Engine, Error, Family, Pulse, Snapshot, Stats};
use tokio::sync::watch;

/// Passes everything on to the engine it guards.
pub struct Guarded {
    engine: Arc<dyn Engine>,
    failure: watch::Sender<Option<String>>,
    frozen: AtomicBool,
    /// Commits that are under way.
    commits: AtomicUsize,
}

/// Why a frozen store refuses a write.
const FROZEN: &str = "it is being copied, and takes no writes meanwhile; reads go on";

impl Guarded {
    /// Guards `engine`. The receiver is told why it failed.
    pub fn new(engine: Arc<dyn Engine>) -> (Self, watch::Receiver<Option<String>>) {
        let (failure, failed) = watch::channel(None);
        let (frozen, commits) = (AtomicBool::new(false), AtomicUsize::new(0));
        (Self { engine, failure, frozen, commits }, failed)
    }
}

impl Engine for Guarded {
    fn snapshot(&self) -> Box<dyn Snapshot> {
        self.engine.snapshot()
    }

    fn get(&self, family: Family, key: &[u8]) -> Answer<'_, Option<Bytes>> {
        self.engine.get(family, key)
    }

    fn latest(&self) -> Box<dyn Snapshot> {
        self.engine.latest()
    }

    fn pulse(&self, family: Family, key: &[u8]) -> Option<Answer<'_, Pulse>> {
        self.engine.pulse(family, key)
    }

    fn pulse_and_get(
        &self,
        pulse: (Family, &[u8]),
        get: (Family, &[u8]),
    ) -> Option<Answer<'_, (Pulse, Option<Bytes>)>> {
        self.engine.pulse_and_get(pulse, get)
    }

    fn freeze(&self, frozen: bool) -> Answer<'_, ()> {
        Box::pin(async move {
            self.frozen.store(frozen, Ordering::SeqCst);
            // What has begun ends before this does.
            while frozen && self.commits.load(Ordering::SeqCst) > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            self.engine.freeze(frozen).await
        })
    }

    fn commit(&self, batch: Batch) -> Answer<'_, ()> {
        let underway = Underway::new(&self.commits);
        if self.frozen.load(Ordering::SeqCst) {
            return Box::pin(std::future::ready(Err(Error::Unavailable(FROZEN.into()))));
        }
        let committed = self.engine.commit(batch);
        Box::pin(async move {
            let result = committed.await;
            drop(underway);
            if let Err(error @ Error::Failed(_)) = &result {
                self.failure.send_replace(Some(error.to_string()));
            }
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

/// Counts a commit while it lives.
struct Underway<'a>(&'a AtomicUsize);

impl<'a> Underway<'a> {
    fn new(commits: &'a AtomicUsize) -> Self {
        commits.fetch_add(1, Ordering::SeqCst);
        Self(commits)
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
