//! A memory of which number an item with some name had: a guess that spares a point read the look into the `id` family.
//!
//! A guess is never believed: the record under the number must have the very name. A number is given out once, and a name has one number at a
//! time, so a record that agrees is the item, whatever has happened since; and one that does not costs a second look. So nothing here
//! has to be invalidated, on this server or any other.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::keys::PartitionId;

/// Places for guesses: 8 MB, taken from the system page by page as they are used.
const PLACES: usize = 1 << 20;

/// Bits of a place that hold the number; the rest tell names apart that share the place.
const NUMBER_BITS: u32 = 40;

/// Numbers of items by name.
#[derive(Debug)]
pub(crate) struct Names(Box<[AtomicU64]>);

/// Where the guess for a name stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    at: usize,
    tag: u64,
}

impl Names {
    pub fn new() -> Self {
        Self(std::iter::repeat_with(AtomicU64::default).take(PLACES).collect())
    }

    pub fn place(&self, partition: PartitionId, name: &[u8]) -> Place {
        let mut hasher = DefaultHasher::new();
        (partition, name).hash(&mut hasher);
        let hash = hasher.finish();
        Place { at: hash as usize % PLACES, tag: hash >> NUMBER_BITS << NUMBER_BITS }
    }

    /// The number that was last remembered for a name like this.
    pub fn guess(&self, place: Place) -> Option<u64> {
        let held = self.0[place.at].load(Ordering::Relaxed);
        let number = held & ((1 << NUMBER_BITS) - 1);
        (held - number == place.tag && number != 0).then_some(number)
    }

    pub fn remember(&self, place: Place, number: u64) {
        self.0[place.at].store(place.tag | number, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guess_is_what_was_last_remembered() {
        let names = Names::new();
        let partition = PartitionId { container: 1, partition: 0 };
        let (a, b) = (names.place(partition, b"a"), names.place(partition, b"b"));
        assert_eq!(names.guess(a), None);
        names.remember(a, 7);
        assert_eq!((names.guess(a), names.guess(b)), (Some(7), None));
        names.remember(a, (1 << NUMBER_BITS) - 1);
        assert_eq!(names.guess(a), Some((1 << NUMBER_BITS) - 1));
    }
}
