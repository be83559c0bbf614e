//! Measures durable commits of the embedded engine with few and many writers, and how fast it starts after a crash.
//!
//! `group_commit [DIRECTORY] [SECONDS]`: a table of commits, each of one item with what belongs to it.
//! `group_commit DIRECTORY fill ITEMS`: writes items and dies without closing, as `kill -9` would.
//! `group_commit DIRECTORY open`: opens what is there, and says how long it took.
#![expect(clippy::disallowed_methods, reason = "measuring time is the purpose of this program")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use storage::embedded::{Embedded, Options};
use storage::keycode::{Writer, prefix_end};
use storage::{Batch, Direction, Engine, Family};

#[tokio::main]
async fn main() -> storage::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [directory, "fill", items] => fill(directory.as_ref(), number(items)).await,
        [directory, "open"] => open(directory.as_ref()).await,
        [] => table("group-commit-data".as_ref(), 3).await,
        [directory] => table(directory.as_ref(), 3).await,
        [directory, seconds, ..] => table(directory.as_ref(), number(seconds)).await,
    }
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

/// The defaults, with `WORKERS` threads if that is set.
fn options() -> Options {
    let workers = std::env::var("WORKERS").ok().map(|workers| number(&workers) as usize);
    let defaults = Options::default();
    Options { worker_threads: workers.unwrap_or(defaults.worker_threads), ..defaults }
}

/// One item of 1,100 bytes: record, id, feed, twelve index terms, and the head of its partition with a check.
fn batch(partition: u64, lsn: u64) -> Batch {
    let key = |kind: u8, number: u64| {
        let mut writer = Writer::new();
        writer.u8(kind).u64(partition).u64(number);
        writer.finish()
    };
    // Not all the same byte, or compression would make the tables much too small.
    let mut noise = fastrand::Rng::with_seed(lsn);
    let record: Vec<u8> = (0..1_100).map(|_| noise.alphanumeric() as u8).collect();
    let mut batch = Batch::default();
    batch.put(Family::Item, key(1, lsn), record);
    batch.put(Family::Id, key(2, lsn ^ 0x5555_5555), lsn.to_be_bytes().to_vec());
    batch.put(Family::Feed, key(3, lsn), [0; 24].to_vec());
    for path in 0..12_u32 {
        let mut writer = Writer::new();
        writer.u8(4).u64(partition).u32(path).u32(noise.u32(..)).u64(lsn);
        batch.put(Family::Index, writer.finish(), "");
    }
    let head = key(0, 0);
    batch.check(
        Family::Catalog,
        head.clone(),
        (lsn > 1).then(|| (lsn - 1).to_be_bytes().to_vec().into()),
    );
    batch.put(Family::Catalog, head, lsn.to_be_bytes().to_vec());
    batch
}

async fn table(directory: &Path, seconds: u64) -> storage::Result<()> {
    println!("| writers | commits/s | commits/sync | median ms | p99 ms | journal MB | disk MB |");
    println!("|---|---|---|---|---|---|---|");
    for writers in [1, 16, 64] {
        let path = directory.join(format!("{writers}-writers"));
        let engine = Arc::new(Embedded::open(&path, options())?);
        let start = Instant::now();
        let tasks: Vec<_> = (0..writers)
            .map(|partition| {
                let engine = engine.clone();
                tokio::spawn(async move {
                    let mut latencies = Vec::new();
                    while start.elapsed() < Duration::from_secs(seconds) {
                        let batch = batch(partition, latencies.len() as u64 + 1);
                        let begun = Instant::now();
                        engine.commit(batch).await.expect("a commit");
                        latencies.push(begun.elapsed());
                    }
                    latencies
                })
            })
            .collect();
        let mut latencies = Vec::new();
        for task in tasks {
            latencies.extend(task.await.expect("a writer"));
        }
        let elapsed = start.elapsed().as_secs_f64();
        latencies.sort();
        let millis = |part: f64| {
            let index = (latencies.len() as f64 * part) as usize;
            latencies[index.min(latencies.len() - 1)].as_secs_f64() * 1e3
        };
        let stats = engine.stats();
        println!(
            "| {writers} | {:.0} | {:.1} | {:.2} | {:.2} | {} | {} |",
            latencies.len() as f64 / elapsed,
            stats.commits as f64 / stats.syncs as f64,
            millis(0.5),
            millis(0.99),
            stats.journal_bytes >> 20,
            stats.disk_bytes >> 20,
        );
        engine.close().await?;
        drop(engine);
        std::fs::remove_dir_all(&path).expect("removing what was measured");
    }
    Ok(())
}

async fn fill(directory: &Path, items: u64) -> storage::Result<()> {
    const WRITERS: u64 = 64;
    let engine = Arc::new(Embedded::open(directory, options())?);
    let most_journal = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let tasks: Vec<_> = (0..WRITERS)
        .map(|partition| {
            let (engine, most_journal) = (engine.clone(), most_journal.clone());
            tokio::spawn(async move {
                for lsn in 1..=items / WRITERS {
                    engine.commit(batch(partition, lsn)).await.expect("a commit");
                    if lsn.is_multiple_of(64) {
                        most_journal.fetch_max(engine.stats().journal_bytes, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a writer");
    }
    let stats = engine.stats();
    println!(
        "{items} items in {:.1} s, {:.1} commits per sync; disk {} MB, journal {} MB (at most {} MB)",
        start.elapsed().as_secs_f64(),
        stats.commits as f64 / stats.syncs as f64,
        stats.disk_bytes >> 20,
        stats.journal_bytes >> 20,
        most_journal.load(Ordering::Relaxed) >> 20,
    );
    std::process::exit(0)
}

async fn open(directory: &Path) -> storage::Result<()> {
    let start = Instant::now();
    let engine = Embedded::open(directory, options())?;
    let opened = start.elapsed();
    let snapshot = engine.snapshot();
    let all = bytes::Bytes::new()..prefix_end(b"");
    let last = snapshot.scan(Family::Item, all, Direction::Backward, 1).await?;
    let (key, _) = last.first().expect("an item");
    let begun = Instant::now();
    const READS: u32 = 100_000;
    for _ in 0..READS {
        let snapshot = engine.snapshot();
        snapshot.get(Family::Item, key).await?.expect("the item");
    }
    println!(
        "opened in {:.2} s; a point read takes {:.2} µs; {:?}",
        opened.as_secs_f64(),
        begun.elapsed().as_secs_f64() * 1e6 / f64::from(READS),
        engine.stats(),
    );
    Ok(())
}
