//! Crashes: whatever the disk has, opening it gives the batches up to some point, each whole, none after it.

use std::path::Path;

use bytes::Bytes;

use crate::embedded::{Embedded, Options};
use crate::keycode::prefix_end;
use crate::testing::{Fate, Forgetful, block_on};
use crate::{Batch, Direction, Engine, Error, Family};

/// Batch `number` of the history: it replaces one key in two families and adds one in two others.
fn batch(number: u64) -> Batch {
    let bytes = number.to_be_bytes().to_vec();
    let mut batch = Batch::default();
    batch.put(Family::Catalog, "head", bytes.clone());
    batch.put(Family::Item, "hot", bytes.clone());
    batch.put(Family::Feed, bytes.clone(), vec![b'x'; 10]);
    batch.put(Family::Id, bytes, "");
    if number > 1 {
        batch.delete(Family::Index, (number - 1).to_be_bytes().to_vec());
    }
    batch.put(Family::Index, number.to_be_bytes().to_vec(), "");
    batch
}

/// How many batches the store has. Panics if one is there in part, or one is missing before another.
fn batches(engine: &dyn Engine) -> u64 {
    let snapshot = engine.snapshot();
    let get = |family, key: &str| block_on(snapshot.get(family, key.as_bytes())).unwrap();
    let keys = |family| -> Vec<Bytes> {
        let all = Bytes::new()..prefix_end(b"");
        let pairs = block_on(snapshot.scan(family, all, Direction::Forward, usize::MAX)).unwrap();
        pairs.into_iter().map(|(key, _)| key).collect()
    };
    let head = get(Family::Catalog, "head");
    let last = head.as_deref().map_or(0, |head| u64::from_be_bytes(head.try_into().unwrap()));
    let numbers = |range: std::ops::RangeInclusive<u64>| -> Vec<Bytes> {
        range.map(|number| number.to_be_bytes().to_vec().into()).collect()
    };
    assert_eq!(get(Family::Item, "hot"), head);
    assert_eq!(keys(Family::Feed), numbers(1..=last));
    assert_eq!(keys(Family::Id), numbers(1..=last));
    assert_eq!(keys(Family::Index), numbers(last.max(1)..=last));
    last
}

#[test]
fn forgetful_stopped_at_every_sync_keeps_what_it_acknowledged() {
    const BATCHES: u64 = 10;
    for fail_at in 1..=BATCHES {
        for fate in [Fate::Kept, Fate::Lost] {
            let engine = Forgetful::new();
            engine.fail_sync(fail_at, fate);
            let acknowledged = (1..=BATCHES)
                .take_while(|number| block_on(engine.commit(batch(*number))).is_ok())
                .count() as u64;
            assert_eq!(acknowledged, fail_at - 1);
            assert_eq!(batches(&engine), acknowledged, "the failed one is not visible");
            let error = block_on(engine.commit(batch(99))).unwrap_err();
            assert!(matches!(error, Error::Failed(_)), "{error:?}");

            let engine = engine.crash();
            assert_eq!(batches(&engine), acknowledged + u64::from(fate == Fate::Kept));
            assert_eq!(engine.stats().syncs, 0);
        }
    }
}

/// Copies a directory, but of the journal only what `journal` makes of it.
fn copy(from: &Path, to: &Path, journal: &[u8]) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target, journal);
        } else if entry.path().extension().is_some_and(|extension| extension == "jnl") {
            std::fs::write(&target, journal).unwrap();
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
        }
    }
}

/// What is written of the one journal, without the hole after it.
fn journal(path: &Path) -> Vec<u8> {
    let mut bytes = std::fs::read(path.join("0.jnl")).unwrap();
    // In large steps first: it is a hole of 64 MiB.
    let full = bytes.chunks(4_096).rposition(|chunk| chunk != &[0; 4_096][..chunk.len()]);
    bytes.truncate(full.map_or(0, |last| (last + 1) * 4_096));
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(end);
    bytes
}

#[test]
fn embedded_opens_with_whole_batches_wherever_the_journal_ends() {
    const BATCHES: u64 = 6;
    let directory = tempfile::tempdir().unwrap();
    let (whole, ends) = history(directory.path(), BATCHES);
    let tail = ends[BATCHES as usize - 1]..=whole.len();
    // Cut at each byte of the last batch, and at some of the others; in a short run, at some of all.
    let step = if std::env::var_os("SIDEREAL_TEST_SECONDS").is_some() { 1 } else { 7 };
    let tail = tail.skip(fastrand::usize(..step)).step_by(step);
    let cuts = (0..ends[BATCHES as usize - 1]).step_by(61).chain(tail);
    for cut in cuts {
        // The file may end there, or go on with zeros, as a hole does, or with something else.
        let fill: &[u8] = [&b""[..], &[0; 100], &[0xA5; 100]][cut % 3];
        let journal = [&whole[..cut], fill].concat();
        let crashed = tempfile::tempdir().unwrap();
        copy(directory.path(), crashed.path(), &journal);
        let expected = ends.iter().rposition(|end| *end <= cut).unwrap() as u64;

        let engine = Embedded::open(crashed.path(), Options::default()).unwrap();
        assert_eq!(batches(&engine), expected, "cut at {cut} of {}", whole.len());
        // And it goes on from there, for good.
        block_on(engine.commit(batch(expected + 1))).unwrap();
        drop(engine);
        let engine = Embedded::open(crashed.path(), Options::default()).unwrap();
        assert_eq!(batches(&engine), expected + 1, "cut at {cut} of {}", whole.len());
    }
}

/// A store with some batches, and what its journal holds after each.
fn history(path: &Path, last: u64) -> (Vec<u8>, Vec<usize>) {
    let engine = Embedded::open(path, Options::default()).unwrap();
    let mut ends = vec![0];
    for number in 1..=last {
        block_on(engine.commit(batch(number))).unwrap();
        ends.push(journal(path).len());
    }
    (journal(path), ends)
}

#[test]
fn a_hole_in_the_last_batch_is_cut_off_and_any_other_is_refused() {
    const BATCHES: usize = 5;
    let directory = tempfile::tempdir().unwrap();
    let (whole, ends) = history(directory.path(), BATCHES as u64);
    for (number, range) in ends.windows(2).enumerate() {
        for hole in (range[0]..range[1]).step_by(47) {
            let mut holed = whole.clone();
            let end = range[1].min(hole + 20);
            // Some of it may have been zero anyway.
            if holed[hole..end].iter().all(|byte| *byte == 0) {
                continue;
            }
            holed[hole..end].fill(0);
            let crashed = tempfile::tempdir().unwrap();
            copy(directory.path(), crashed.path(), &holed);
            let opened = Embedded::open(crashed.path(), Options::default());
            // The last but one may have lost the magic by which the last is found.
            match opened {
                Ok(engine) if number + 1 == BATCHES => {
                    assert_eq!(batches(&engine), BATCHES as u64 - 1);
                }
                Ok(_) => assert!(number + 2 == BATCHES && end == range[1], "hole at {hole}"),
                Err(Error::Open(text)) => {
                    assert!(number + 1 < BATCHES, "hole at {hole}: {text}");
                    assert!(text.contains(&format!("is damaged at byte {}", range[0])), "{text}");
                }
                Err(error) => panic!("hole at {hole}: {error:?}"),
            }
        }
    }
}
