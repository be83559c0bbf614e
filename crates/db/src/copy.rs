//! Moving a database from one store to another, byte by byte.
//!
//! **The source is frozen first** ([`Engine::freeze`]): from then on nobody changes it, and everybody can read it. It stays so, because what is written to it
//! after the copy would be missing in the target; [`release`] takes it back. Everything of a snapshot of the source is written to
//! the target, family by family, and with each batch how far it has come; so a copy that was stopped goes on where it was, and two
//! at once get in each other's way. Items, `_ts`, TTL rules and marks, numbers and changes are the same afterwards, because they are
//! the same bytes. At the end both are read again and compared, and only then does the target get the row that makes it a database:
//! until then nobody can open it.

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
    /// Entries written.
    pub entries: u64,
    /// Those of them that are items.
    pub items: u64,
    /// Entries that an earlier run has written.
    pub before: u64,
    /// Entries compared.
    pub compared: u64,
    /// About how many entries there are in all.
    pub all: u64,
}

impl Progress {
    /// How much of the work is done, in per cent; 100 only at the end. What is copied is then compared, which is as much again.
    pub fn percent(&self) -> u64 {
        let done = self.entries + self.compared;
        let all = 2 * if self.compared > 0 { self.entries } else { self.all.max(self.entries) };
        (done * 100 / all.max(1)).min(99)
    }

    /// How long the rest takes, in seconds, if it goes on as in the `secs` since this run began.
    pub fn secs_left(&self, secs: f64) -> u64 {
        let done = (self.entries - self.before + self.compared) as f64;
        let all = 2 * if self.compared > 0 { self.entries } else { self.all.max(self.entries) };
        let left = all.saturating_sub(self.entries + self.compared) as f64;
        (left * secs / done.max(1.0)) as u64
    }
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

/// Freezes `from` and copies all that it holds into `to`, which must be empty or hold a part of the same copy; then compares the two.
pub async fn run(
    from: &dyn Engine,
    to: &dyn Engine,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Progress> {
    from.freeze(true).await?;
    let source = from.snapshot();
    let format = Key::Meta(Meta::Format).encode();
    let Some(version) = source.get(Family::Catalog, &format).await? else {
        from.freeze(false).await?;
        return Err(Error::Invalid(
            "there is no database to be copied: the source is empty".into(),
        ));
    };
    check_finished(&*source).await?;
    let Begun { mut mark, first, mut start, mut done } = begin(to).await?;
    done.all = from.stats().keys;
    for family in ORDER.into_iter().skip(first) {
        let mut range = std::mem::take(&mut start)..all().end;
        loop {
            let pairs =
                source.scan(family, range.clone(), Direction::Forward, BATCH_KEYS_MAX).await?;
            let Some((last, _)) = pairs.last() else { break };
            range.start = successor(last);
            let is_last = pairs.len() < BATCH_KEYS_MAX;
            let mut batch = Batch::default();
            for (key, value) in pairs.into_iter().filter(|(key, _)| is_copied(family, key)) {
                done.entries += 1;
                done.items += u64::from(family == Family::Item);
                batch.put(family, key, value);
            }
            batch.check(Family::Catalog, &MARK[..], mark);
            mark = Some(encode_mark(family, &range.start, done));
            batch.writes.extend(mark.iter().map(|mark| storage::Write {
                family: Family::Catalog,
                key: Bytes::from_static(&MARK),
                value: Some(mark.clone()),
            }));
            to.commit(batch).await.map_err(overtaken)?;
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
    if to.pulse(Family::Catalog, &format).is_some() {
        // Servers that share a store check these with every round, and rows that are there are cheaper to check than rows that are not.
        let heads = catalog_range(5);
        let heads = source.scan(Family::Catalog, heads, Direction::Forward, usize::MAX).await?;
        for (head, _) in heads {
            let epoch = [&[10], &head[1..]].concat();
            batch.put(Family::Catalog, epoch, 0u64.to_le_bytes().to_vec());
        }
    }
    batch.check(Family::Catalog, &MARK[..], mark);
    batch.put(Family::Catalog, format, version);
    batch.delete(Family::Catalog, &MARK[..]);
    to.commit(batch).await.map_err(overtaken)?;
    Ok(done)
}

/// Lets a store be written to again that [`run`] has frozen.
pub async fn release(store: &dyn Engine) -> Result<()> {
    Ok(store.freeze(false).await?)
}

fn overtaken(error: storage::Error) -> Error {
    match error {
        storage::Error::Conflict => {
            Error::Invalid("another copy is writing to the same target: let it end".into())
        }
        error => error.into(),
    }
}

/// What a copy goes on with.
struct Begun {
    /// The mark that is there.
    mark: Option<Bytes>,
    /// The family's place in the order.
    first: usize,
    /// Its first key.
    start: Bytes,
    done: Progress,
}

async fn begin(to: &dyn Engine) -> Result<Begun> {
    let target = to.snapshot();
    if let Some(mark) = target.get(Family::Catalog, &MARK).await? {
        let unreadable = || {
            Error::Invalid(
                "the target holds a part of a copy that this version cannot go on with: give another".into(),
            )
        };
        let (head, start) = mark.split_first_chunk::<17>().ok_or_else(unreadable)?;
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| head[at + byte]));
        let (entries, items) = (number(1), number(9));
        let done = Progress { entries, items, before: entries, ..Progress::default() };
        let (first, start) = (usize::from(head[0]), Bytes::copy_from_slice(start));
        return Ok(Begun { mark: Some(mark), first, start, done });
    }
    for family in ORDER {
        if !target.scan(family, all(), Direction::Forward, 1).await?.is_empty() {
            return Err(Error::Invalid(
                "the target is not empty: give a new directory, or an empty database".into(),
            ));
        }
    }
    Ok(Begun { mark: None, first: 0, start: Bytes::new(), done: Progress::default() })
}

fn all() -> std::ops::Range<Bytes> {
    Bytes::new()..storage::keycode::prefix_end(&[])
}

fn encode_mark(family: Family, next: &[u8], done: Progress) -> Bytes {
    let place = ORDER.iter().position(|other| *other == family).unwrap_or(0) as u8;
    let (entries, items) = (done.entries.to_le_bytes(), done.items.to_le_bytes());
    [&[place][..], &entries, &items, next].concat().into()
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
