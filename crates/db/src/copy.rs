//! Moving a database from one store to another, byte by byte.
//!
//! Everything of a snapshot of the source is written to the target, family by family, and with each batch how far it has come; so a copy
//! that was stopped goes on where it was. Items, `_ts`, TTL rules and marks, numbers and changes are the same afterwards, because they are the
//! same bytes. At the end both are read again and compared, and only then does the target get the row that makes it a database: until
//! then nobody can open it.

use bytes::Bytes;
use storage::{Batch, Direction, Engine, Family, Pair, Snapshot};

use crate::keys::{Key, Meta, catalog_range};
use crate::scan::successor;
use crate::{Error, Result};

/// The catalog last: it says what there is.
const ORDER: [Family; 6] =
    [Family::Item, Family::Id, Family::Index, Family::Expiry, Family::Feed, Family::Catalog];

/// How far a copy is, in a target that is not finished.
const MARK: [u8; 1] = [0xFE];

/// Entries of one batch: some are items of two megabytes.
const BATCH_KEYS_MAX: usize = 500;

/// How far a copy has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Entries written by this run.
    pub entries: u64,
    /// Entries compared.
    pub compared: u64,
}

/// Refuses a store that a copy has not finished.
pub(crate) async fn check_finished(snapshot: &dyn Snapshot) -> Result<()> {
    match snapshot.get(Family::Catalog, &MARK).await? {
        None => Ok(()),
        Some(_) => Err(Error::Storage(
            "the data was not copied here to its end: run the same `sidereal copy` again".into(),
        )),
    }
}

/// Copies all that `from` holds into `to`, which must be empty or hold a part of the same copy; then compares the two.
pub async fn run(
    from: &dyn Engine,
    to: &dyn Engine,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Progress> {
    let source = from.snapshot();
    let format = Key::Meta(Meta::Format).encode();
    let Some(version) = source.get(Family::Catalog, &format).await? else {
        return Err(Error::Invalid(
            "there is no database to be copied: the source is empty".into(),
        ));
    };
    check_finished(&*source).await?;
    let mut done = Progress::default();
    let (first, mut start) = begin(to).await?;
    for family in ORDER.into_iter().skip(first) {
        let mut range = std::mem::take(&mut start)..all().end;
        loop {
            let pairs =
                source.scan(family, range.clone(), Direction::Forward, BATCH_KEYS_MAX).await?;
            let Some((last, _)) = pairs.last() else { break };
            range.start = successor(last);
            let is_last = pairs.len() < BATCH_KEYS_MAX;
            let mut batch = Batch::default();
            batch.put(Family::Catalog, &MARK[..], mark(family, &range.start));
            for (key, value) in pairs.into_iter().filter(|(key, _)| is_copied(family, key)) {
                done.entries += 1;
                batch.put(family, key, value);
            }
            to.commit(batch).await?;
            progress(done);
            if is_last {
                break;
            }
        }
    }
    let target = to.snapshot();
    for family in ORDER {
        compare(&*source, &*target, family, &mut |count| {
            done.compared += count;
            progress(done);
        })
        .await?;
    }
    let mut batch = Batch::default();
    batch.put(Family::Catalog, format, version);
    batch.delete(Family::Catalog, &MARK[..]);
    to.commit(batch).await?;
    Ok(done)
}

/// Where to begin: the family's place in the order, and its first key.
async fn begin(to: &dyn Engine) -> Result<(usize, Bytes)> {
    let target = to.snapshot();
    if let Some(mark) = target.get(Family::Catalog, &MARK).await? {
        let place = mark.first().map_or(0, |place| usize::from(*place));
        return Ok((place, mark.slice(mark.len().min(1)..)));
    }
    for family in ORDER {
        if !target.scan(family, all(), Direction::Forward, 1).await?.is_empty() {
            return Err(Error::Invalid(
                "the target is not empty: give a new directory, or an empty database".into(),
            ));
        }
    }
    Ok((0, Bytes::new()))
}

fn all() -> std::ops::Range<Bytes> {
    Bytes::new()..storage::keycode::prefix_end(&[])
}

fn mark(family: Family, next: &[u8]) -> Vec<u8> {
    let place = ORDER.iter().position(|other| *other == family).unwrap_or(0);
    [&[place as u8][..], next].concat()
}

/// Leases and epochs are of the servers that share a store, not of the data; the format comes last.
fn is_copied(family: Family, key: &Bytes) -> bool {
    let is = |kind| catalog_range(kind).contains(key);
    family != Family::Catalog
        || !(is(10) || is(11) || key[..] == MARK || *key == Key::Meta(Meta::Format).encode())
}

/// Refuses a target that is not what the source is.
async fn compare(
    source: &dyn Snapshot,
    target: &dyn Snapshot,
    family: Family,
    compared: &mut (dyn FnMut(u64) + Send),
) -> Result<()> {
    let mut start = Bytes::new();
    loop {
        let page = async |snapshot: &dyn Snapshot| -> Result<(Vec<Pair>, Option<Bytes>)> {
            let range = start.clone()..all().end;
            let mut pairs =
                snapshot.scan(family, range, Direction::Forward, BATCH_KEYS_MAX).await?;
            let next = (pairs.len() == BATCH_KEYS_MAX)
                .then(|| pairs.last().map(|(last, _)| successor(last)))
                .flatten();
            pairs.retain(|(key, _)| is_copied(family, key));
            Ok((pairs, next))
        };
        let (ours, next) = page(source).await?;
        let (mut theirs, their_next) = page(target).await?;
        // Rows that are not copied may have made the pages end at different keys.
        let end = [&next, &their_next].into_iter().flatten().min().cloned();
        let within = |key: &Bytes| end.as_ref().is_none_or(|end| key < end);
        theirs.retain(|(key, _)| within(key));
        let ours: Vec<_> = ours.into_iter().filter(|(key, _)| within(key)).collect();
        if ours != theirs {
            return Err(Error::Storage(
                "the copy is not like its source, which was changed meanwhile: begin again with an empty target, and let nobody \
                 write meanwhile"
                    .into(),
            ));
        }
        compared(ours.len() as u64);
        match end {
            Some(end) => start = end,
            None => return Ok(()),
        }
    }
}
