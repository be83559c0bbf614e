//! The raw engine: how fast the very entries of a create become durable with no database and no HTTP around them.
//!
//! The entries are real. `db` runs here, in memory, behind an engine that keeps what is committed; its creates, one at a
//! time, give one batch each. Those are then committed to an embedded engine in two ways: 64 tasks with one create each, where
//! the engine's group commit does the merging, and one task with 64 creates in a batch, as the writer of a single partition
//! does, had it nothing else to do. The server is measured against the former; the latter is how fast the engine can ever be.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use model::clock::SystemClock;
use model::partition_key::PartitionKey;
use serde_json::json;
use storage::embedded::Embedded;
use storage::memory::Memory;
use storage::{Answer, Batch, Engine, Family, Snapshot, Stats};

use crate::process::{machine_cpu, own_cpu};
use crate::{api, items};

/// An engine that remembers the batches committed to the one under it.
struct Recorder {
    inner: Memory,
    batches: Arc<Mutex<Vec<Batch>>>,
}

impl Engine for Recorder {
    fn snapshot(&self) -> Box<dyn Snapshot> {
        self.inner.snapshot()
    }

    fn commit(&self, batch: Batch) -> Answer<'_, ()> {
        self.batches.lock().expect("nobody panics with it").push(batch.clone());
        self.inner.commit(batch)
    }

    fn reclaim_below(&self, family: Family, prefix: &[u8], key: &[u8]) {
        self.inner.reclaim_below(family, prefix, key);
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }

    fn close(&self) -> Answer<'_, ()> {
        self.inner.close()
    }
}

/// The batches of so many creates, in order, one each, in a container of so many partitions.
pub async fn record(count: u64, partitions: u32) -> Result<Vec<Batch>> {
    let batches = Arc::new(Mutex::new(Vec::new()));
    let engine = Arc::new(Recorder { inner: Memory::new(), batches: batches.clone() });
    let options = db::Options { partitions: Some(partitions), ..db::Options::default() };
    let db = db::Db::open(engine, Arc::new(SystemClock::new()), options).await?;
    db.create_database(&json!({"id": "bench"}), None).await?;
    let container = db.create_container("bench", &api::definition("items", None), None).await?;
    batches.lock().expect("nobody panics with it").clear();
    for number in 0..count {
        let mut body = Vec::new();
        items::write(number, 0, &mut body);
        let write = db::Write {
            verb: db::Verb::Create,
            partition_key: Some(partition_key(number)?),
            body: body.into(),
            if_match: None,
            if_none_match: None,
        };
        db.write(&container, write).await.result?;
    }
    let batches = std::mem::take(&mut *batches.lock().expect("nobody panics with it"));
    anyhow::ensure!(batches.len() as u64 == count, "{} batches of {count} creates", batches.len());
    Ok(batches)
}

fn partition_key(number: u64) -> Result<PartitionKey> {
    PartitionKey::parse(&json!([items::key(number)]).to_string())
        .map_err(|_| anyhow::anyhow!("not a partition key"))
}

/// What a way of committing achieved.
pub struct Rate {
    /// Creates made durable a second.
    pub creates: f64,
    /// Creates in one sync, on average.
    pub per_sync: f64,
    /// Processor time for a create, in microseconds.
    pub cpu_micros: f64,
    /// What part of the machine everything else took, in per cent.
    pub other_percent: f64,
}

/// What a run is measured from.
struct Start {
    time: Instant,
    own: Duration,
    machine: Duration,
}

impl Start {
    fn now() -> Self {
        Self { time: Instant::now(), own: own_cpu(), machine: machine_cpu() }
    }

    fn rate(&self, engine: &dyn Engine, creates: usize) -> Rate {
        let secs = self.time.elapsed().as_secs_f64();
        let own = own_cpu().saturating_sub(self.own);
        let other = machine_cpu().saturating_sub(self.machine).saturating_sub(own);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Rate {
            creates: creates as f64 / secs,
            per_sync: creates as f64 / engine.stats().syncs.max(1) as f64,
            cpu_micros: own.as_secs_f64() * 1e6 / creates as f64,
            other_percent: other.as_secs_f64() * 100.0 / (secs * cores as f64),
        }
    }
}

/// One create a batch, by many tasks: the engine merges them.
pub fn many_committers(directory: &Path, batches: &[Batch], tasks: usize) -> Result<Rate> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let engine = Arc::new(Embedded::open(directory, Default::default())?);
    let rate = runtime.block_on(async {
        let batches: Arc<[Batch]> = batches.into();
        let next = Arc::new(AtomicUsize::new(0));
        let start = Start::now();
        let tasks: Vec<_> = (0..tasks)
            .map(|_| {
                let (batches, next) = (batches.clone(), next.clone());
                let engine = engine.clone();
                tokio::spawn(async move {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(mut batch) = batches.get(index).cloned() else { return Ok(()) };
                        // The checks fix the order of the creates, which is one writer's business.
                        batch.checks.clear();
                        engine.commit(batch).await?;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await?.map_err(|error: storage::Error| error)?;
        }
        anyhow::Ok(start.rate(&*engine, batches.len()))
    })?;
    runtime.block_on(engine.close())?;
    Ok(rate)
}

/// Many creates a batch, one batch after another, as the writer of one partition commits them.
pub fn one_writer(directory: &Path, batches: &[Batch], round: usize) -> Result<Rate> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let engine = Embedded::open(directory, Default::default())?;
    let rounds: Vec<Batch> = batches.chunks(round).map(merge).collect();
    let rate = runtime.block_on(async {
        let start = Start::now();
        for batch in rounds {
            engine.commit(batch).await?;
        }
        anyhow::Ok(start.rate(&engine, batches.len()))
    })?;
    runtime.block_on(engine.close())?;
    Ok(rate)
}

/// One batch of many: no checks, and each key's last write (the partition's head is in all of them).
pub fn merge(batches: &[Batch]) -> Batch {
    let mut seen = HashSet::new();
    let mut writes: Vec<_> = batches.iter().flat_map(|batch| &batch.writes).cloned().collect();
    writes.reverse();
    writes.retain(|write| seen.insert((write.family, write.key.clone())));
    writes.reverse();
    Batch { checks: Vec::new(), writes }
}
