//! How pairs become rows: where each key lies, and what of it a row can hold.
//!
//! ```text
//! b   the bucket: rows that change together
//! k   family, key                             keys of up to 1,900 bytes
//!     family, first 1,900 bytes, hash         longer ones: an entry of a btree ends near 2,700 bytes
//! v   value                                   of the former
//!     length of the rest, rest of the key, value
//! ```
//!
//! Long keys with the same beginning lie together, all behind the key that is this beginning, but in the order of their hashes: whoever scans
//! takes them all and puts them in order.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_128;

use crate::{Batch, Error, Family, Pair, Result};

/// Which rows lie together. The engine knows only bytes, so the owner of the keys tells it.
#[derive(Clone, Copy, Debug)]
pub struct Buckets {
    /// The bucket of a key; all from 2^63 on are one. It must not decrease along the keys of a family; in [`Family::Catalog`], along those that
    /// have the same first byte.
    pub of: fn(Family, &[u8]) -> u64,
    /// What decides which of several stores a bucket is in: buckets that are alike here are never parted, neighbours always. 0 is in the first.
    pub home: fn(u64) -> u64,
}

/// The most bytes of a key that are kept as they are.
const KEPT: usize = 1_900;

const HASH: usize = 16;

/// A row's place.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Spot {
    pub bucket: i64,
    pub key: Vec<u8>,
}

impl Buckets {
    pub(super) fn spot(&self, family: Family, key: &[u8]) -> Spot {
        Spot { bucket: self.number(family, key), key: stored_key(family, key) }
    }

    /// The first and last bucket that can hold keys of a range which is not empty; `None` for several of the catalog, whose rows lie in any
    /// bucket and are found by an index of their own.
    pub(super) fn span(&self, family: Family, range: &Range<Bytes>) -> Option<(i64, i64)> {
        let end = before(&range.end);
        let (first, last) = (self.number(family, &range.start), self.number(family, &end));
        let is_one = first == last && range.start.first() == end.first();
        (family != Family::Catalog || is_one).then(|| (first, last.max(first)))
    }

    /// What a key's bucket is alike in with those it must not be parted from.
    pub(super) fn home(&self, family: Family, key: &[u8]) -> u64 {
        (self.home)(self.number(family, key) as u64)
    }

    fn number(&self, family: Family, key: &[u8]) -> i64 {
        i64::try_from((self.of)(family, key)).unwrap_or(i64::MAX)
    }
}

/// Some key at or above all keys below `end`, and below `end` itself.
fn before(end: &[u8]) -> Vec<u8> {
    let mut key = end.to_vec();
    match key.pop() {
        None | Some(0) => {}
        Some(last) => {
            key.push(last - 1);
            key.extend([0xFF; 8]);
        }
    }
    key
}

pub(super) fn stored_key(family: Family, key: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(1 + key.len().min(KEPT + HASH));
    stored.push(family as u8);
    stored.extend_from_slice(&key[..key.len().min(KEPT)]);
    if key.len() > KEPT {
        stored.extend_from_slice(&xxh3_128(key).to_be_bytes());
    }
    stored
}

pub(super) fn stored_value(key: &[u8], value: &Bytes) -> Bytes {
    let Some(rest) = key.get(KEPT..).filter(|rest| !rest.is_empty()) else { return value.clone() };
    [&(rest.len() as u32).to_be_bytes()[..], rest, value].concat().into()
}

/// Whether a stored key is the beginning of a longer one.
pub(super) fn is_cut(stored: &[u8]) -> bool {
    stored.len() == 1 + KEPT + HASH
}

/// The value in a row.
pub(super) fn value_of(stored_key: &[u8], stored_value: &[u8]) -> Result<Bytes> {
    pair_of(stored_key, stored_value).map(|(_, value)| value)
}

/// The pair that a row is.
pub(super) fn pair_of(stored_key: &[u8], stored_value: &[u8]) -> Result<Pair> {
    let key = &stored_key[1..];
    if !is_cut(stored_key) {
        return Ok((Bytes::copy_from_slice(key), Bytes::copy_from_slice(stored_value)));
    }
    let corrupt = || Error::Corrupt("a row with a long key is cut short".into());
    let (length, rest) = stored_value.split_first_chunk::<4>().ok_or_else(corrupt)?;
    let length = u32::from_be_bytes(*length) as usize;
    let (rest, value) = rest.split_at_checked(length).ok_or_else(corrupt)?;
    Ok(([&key[..KEPT], rest].concat().into(), Bytes::copy_from_slice(value)))
}

/// The stored keys between which all keys of `range` lie; some of the rows there may be outside of it.
pub(super) fn stored_range(family: Family, range: &Range<Bytes>) -> Range<Vec<u8>> {
    let kept = |key: &[u8]| {
        let mut stored = vec![family as u8];
        stored.extend_from_slice(&key[..key.len().min(KEPT)]);
        stored
    };
    let mut end = kept(&range.end);
    if range.end.len() > KEPT {
        // All that begin like it.
        end.extend([0xFF; HASH + 1]);
    }
    kept(&range.start)..end
}

/// Where the long keys that begin like `stored` lie.
pub(super) fn alike(stored: &[u8]) -> Range<Vec<u8>> {
    let start = stored[..=KEPT].to_vec();
    let end = [&start[..], &[0xFF; HASH + 1]].concat();
    start..end
}

/// Puts rows in the order of their whole keys; they are in the order of their stored ones.
pub(super) fn put_in_order(pairs: &mut [Pair]) {
    // Nothing to do, as a rule: the sort looks at each pair once.
    pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
}

/// A batch as a transaction makes it: each place once.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub checks: Vec<(Spot, Kept)>,
    pub puts: Puts,
    pub deletes: Vec<Spot>,
}

/// What a check asks for, and what becomes of the row.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// Has this value, and keeps it.
    Same(Bytes),
    /// Has the first value, and gets the second.
    Replaced(Bytes, Bytes),
    /// Is absent, and stays so.
    Absent,
    /// Is absent, and gets this value.
    Made(Bytes),
}

/// Rows to write, as columns.
#[derive(Debug, Default)]
pub(super) struct Puts {
    pub buckets: Vec<i64>,
    pub keys: Vec<Vec<u8>>,
    pub values: Vec<Bytes>,
}

impl Puts {
    fn push(&mut self, spot: Spot, value: Bytes) {
        self.buckets.push(spot.bucket);
        self.keys.push(spot.key);
        self.values.push(value);
    }
}

impl Rows {
    /// The rows of a batch. Of several writes to a key the last counts; a row that is checked and put is written by its check. In the order of
    /// their places, so that no two transactions wait for each other.
    pub fn of(batch: &Batch, buckets: Buckets) -> Self {
        let mut last = HashMap::with_capacity(batch.writes.len());
        for (number, write) in batch.writes.iter().enumerate() {
            last.insert((write.family, &write.key), number);
        }
        let mut rows = Self::default();
        let mut checked: HashMap<_, Option<&Bytes>> = HashMap::new();
        for check in &batch.checks {
            let place = (check.family, &check.key);
            let spot = buckets.spot(check.family, &check.key);
            match checked.insert(place, check.value.as_ref()) {
                None => {}
                Some(same) if same == check.value.as_ref() => continue,
                // Two checks of a key that contradict each other never hold.
                Some(_) => {
                    rows.checks.push((spot.clone(), Kept::Absent));
                    rows.checks.push((spot, Kept::Same(Bytes::new())));
                    continue;
                }
            }
            let put = last.get(&place).and_then(|number| batch.writes[*number].value.as_ref());
            let stored = |value| stored_value(&check.key, value);
            let kept = match (&check.value, put) {
                (Some(old), Some(new)) => {
                    last.remove(&place);
                    Kept::Replaced(stored(old), stored(new))
                }
                (Some(old), None) => Kept::Same(stored(old)),
                (None, Some(new)) => {
                    last.remove(&place);
                    Kept::Made(stored(new))
                }
                (None, None) => Kept::Absent,
            };
            rows.checks.push((spot, kept));
        }
        let mut writes: Vec<_> = last
            .into_values()
            .map(|number| &batch.writes[number])
            .map(|write| (buckets.spot(write.family, &write.key), write))
            .collect();
        writes.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        for (spot, write) in writes {
            match &write.value {
                Some(value) => rows.puts.push(spot, stored_value(&write.key, value)),
                None => rows.deletes.push(spot),
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_keys_come_back_and_short_ones_are_kept() {
        for length in [1, KEPT - 1, KEPT, KEPT + 1, 65_535] {
            let key = vec![b'x'; length];
            let value = Bytes::from_static(b"value");
            let stored = stored_key(Family::Index, &key);
            assert!(stored.len() <= 1 + KEPT + HASH);
            assert_eq!(is_cut(&stored), length > KEPT);
            let pair = pair_of(&stored, &stored_value(&key, &value)).unwrap();
            assert_eq!(pair, (key.into(), value));
        }
    }

    #[test]
    fn the_key_before_an_end_is_in_the_bucket_before() {
        assert_eq!(before(&[0, 0, 0, 1]), [0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
        assert_eq!(before(&[7, 0]), [7]);
        assert!(before(&[1]) < vec![1]);
    }

    #[test]
    fn a_batch_names_each_place_once() {
        let buckets = Buckets { of: |_, _| 7, home: |bucket| bucket };
        let mut batch = Batch::default();
        batch.check(Family::Catalog, "head", Some("1".into()));
        batch.check(Family::Catalog, "new", None);
        batch.put(Family::Item, "a", "old");
        batch.put(Family::Catalog, "head", "2");
        batch.put(Family::Item, "a", "new");
        batch.put(Family::Item, "b", "x");
        batch.delete(Family::Item, "b");
        let rows = Rows::of(&batch, buckets);
        assert_eq!(rows.checks[0].1, Kept::Replaced("1".into(), "2".into()));
        assert_eq!(rows.checks[1].1, Kept::Absent);
        assert_eq!(rows.puts.values, ["new"]);
        assert_eq!(rows.deletes, [buckets.spot(Family::Item, b"b")]);
    }
}
