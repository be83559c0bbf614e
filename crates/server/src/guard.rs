//! An engine that tells the process when it has failed.
//!
//! After a write or sync has failed, the state of the disk is unknown and the engine refuses all work. Nothing can be done in this
//! process: it ends, and whoever supervises it starts another, which recovers.

use std::sync::Arc;

use bytes::Bytes;
use storage::{Answer, Batch, Engine, Error, Family, Pulse, Snapshot, Stats};
use tokio::sync::watch;

/// Passes everything on to the engine it guards.
pub struct Guarded {
    engine: Arc<dyn Engine>,
    failure: watch::Sender<Option<String>>,
}

impl Guarded {
    /// Guards `engine`. The receiver is told why it failed.
    pub fn new(engine: Arc<dyn Engine>) -> (Self, watch::Receiver<Option<String>>) {
        let (failure, failed) = watch::channel(None);
        (Self { engine, failure }, failed)
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

    fn commit(&self, batch: Batch) -> Answer<'_, ()> {
        let committed = self.engine.commit(batch);
        Box::pin(async move {
            let result = committed.await;
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
