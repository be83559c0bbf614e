//! Opening and closing an embedded store, when all is well and when it is not; group commit.

use std::sync::Arc;

use super::{put, refusal};
use crate::embedded::{Embedded, Options};
use crate::testing::block_on;
use crate::{Batch, Engine, Error, Family};

fn open(path: &std::path::Path) -> crate::Result<Embedded> {
    Embedded::open(path, Options::default())
}

#[test]
fn a_directory_has_one_user() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path()).unwrap();
    let text = refusal(open(directory.path()));
    assert!(text.contains("in use by another process"), "{text}");
    drop(first);
    open(directory.path()).unwrap();
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()).unwrap());
    let file = directory.path().join("format");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "sidereal store, format 1\n");

    std::fs::write(&file, "sidereal store, format 2\n").unwrap();
    let text = refusal(open(directory.path()));
    assert!(text.contains("newer version of Sidereal (format 2; this version knows 1)"), "{text}");

    std::fs::write(&file, "shopping list\n").unwrap();
    let text = refusal(open(directory.path()));
    assert!(text.contains("does not hold data of Sidereal"), "{text}");
}

#[test]
fn a_path_that_cannot_be_a_directory_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = refusal(open(file.path()));
    assert!(text.starts_with("cannot create the data directory"), "{text}");
    let text = refusal(open("/proc/nowhere".as_ref()));
    assert!(text.starts_with("cannot create the data directory"), "{text}");
}

#[test]
fn a_store_that_was_never_finished_is_begun_again() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()).unwrap());
    // The marker is what fjall writes last.
    std::fs::remove_file(directory.path().join("version")).unwrap();
    std::fs::remove_dir_all(directory.path().join("keyspaces")).unwrap();
    let engine = open(directory.path()).unwrap();
    block_on(engine.commit(put("a", "1"))).unwrap();
}

#[test]
fn a_full_disk_refuses_writes_and_answers_reads() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path()).unwrap();
    block_on(engine.commit(put("a", "1"))).unwrap();
    drop(engine);

    let options = Options { reserve_bytes: u64::MAX / 2, ..Options::default() };
    let engine = Embedded::open(directory.path(), options).unwrap();
    let error = block_on(engine.commit(put("a", "2"))).unwrap_err();
    assert!(matches!(error, Error::Full(_)), "{error:?}");
    let value = block_on(engine.snapshot().get(Family::Item, b"a")).unwrap();
    assert_eq!(value.as_deref(), Some(&b"1"[..]));
    // Nothing was written, so nothing has failed.
    let mut check = Batch::default();
    check.check(Family::Item, "a", Some("1".into()));
    block_on(engine.commit(check)).unwrap();
    assert_eq!(engine.stats().syncs, 0);
}

#[test]
fn a_clean_end_leaves_no_journal_and_a_crash_does() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path()).unwrap();
    block_on(engine.commit(put("a", &"x".repeat(100_000)))).unwrap();
    drop(engine);
    let engine = open(directory.path()).unwrap();
    assert!(engine.stats().journal_bytes >= 100_000, "{:?}", engine.stats());
    block_on(engine.close()).unwrap();
    drop(engine);

    let engine = open(directory.path()).unwrap();
    assert_eq!(engine.stats().journal_bytes, 0);
    assert!(block_on(engine.snapshot().get(Family::Item, b"a")).unwrap().is_some());
    // The sequence numbers have gone on too: a new value hides the old one.
    block_on(engine.commit(put("a", "new"))).unwrap();
    let value = block_on(engine.snapshot().get(Family::Item, b"a")).unwrap();
    assert_eq!(value.as_deref(), Some(&b"new"[..]));
}

#[test]
fn a_snapshot_outlives_its_engine() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path()).unwrap();
    block_on(engine.commit(put("a", "1"))).unwrap();
    let snapshot = engine.snapshot();
    drop(engine);
    assert!(block_on(snapshot.get(Family::Item, b"a")).unwrap().is_some());
    assert!(refusal(open(directory.path())).contains("in use"));
    drop(snapshot);
    open(directory.path()).unwrap();
}

#[test]
fn a_dropped_future_still_commits() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path()).unwrap();
    drop(engine.commit(put("a", "1")));
    // The queue keeps its order, so this one comes after.
    block_on(engine.commit(put("b", "1"))).unwrap();
    assert!(block_on(engine.snapshot().get(Family::Item, b"a")).unwrap().is_some());
}

/// Many writers count up one number; each addition must be there, and fewer syncs than commits show that they met.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_that_meet_share_a_sync_and_lose_nothing() {
    const WRITERS: u64 = 16;
    const EACH: u64 = 20;
    let directory = tempfile::tempdir().unwrap();
    let engine = Arc::new(open(directory.path()).unwrap());
    let tasks: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let engine = engine.clone();
            tokio::spawn(async move {
                let mut added = 0;
                while added < EACH {
                    let old = engine.snapshot().get(Family::Catalog, b"count").await.unwrap();
                    let number =
                        old.as_deref().map_or(0, |old| u64::from_be_bytes(old.try_into().unwrap()));
                    let mut batch = Batch::default();
                    batch.check(Family::Catalog, "count", old);
                    batch.put(Family::Catalog, "count", (number + 1).to_be_bytes().to_vec());
                    batch.put(Family::Feed, number.to_be_bytes().to_vec(), "");
                    match engine.commit(batch).await {
                        Ok(()) => added += 1,
                        Err(Error::Conflict) => {}
                        Err(error) => panic!("{error}"),
                    }
                    // Without a check: these always succeed, and meet.
                    engine.commit(put(&format!("{writer}"), "x")).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let count = engine.snapshot().get(Family::Catalog, b"count").await.unwrap().unwrap();
    assert_eq!(*count, (WRITERS * EACH).to_be_bytes());
    let all = bytes::Bytes::new()..crate::keycode::prefix_end(b"");
    let entries = engine
        .snapshot()
        .scan(Family::Feed, all, crate::Direction::Forward, usize::MAX)
        .await
        .unwrap();
    assert_eq!(entries.len() as u64, WRITERS * EACH);
    let stats = engine.stats();
    assert!(stats.syncs < stats.commits, "{stats:?}");
}
