//! Rows on their way to the client, and places among them.

use std::cmp::Ordering;

/// Rows of JSON text, one after the other in one buffer.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    positions: Vec<Position>,
}

impl Rows {
    /// How many rows.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes of all rows together.
    pub fn bytes_len(&self) -> usize {
        self.bytes.len()
    }

    /// Each row.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[*start..*end])
    }

    /// Where each row stands, to resume after it.
    pub fn positions(&self) -> &[Position] {
        &self.positions
    }

    pub(super) fn push(&mut self, row: &[u8], position: Position) {
        self.bytes.extend_from_slice(row);
        self.ends.push(self.bytes.len());
        self.positions.push(position);
    }
}

/// A place in the order of a query's rows.
#[derive(Clone, Debug, Default)]
pub struct Position {
    /// The row's ORDER BY keys (or its rank) in their sortable form, and after them what tells a group, with DISTINCT a value, or a row of
    /// an inner query. Empty where rows come as their items do.
    pub key: Vec<u8>,
    /// The ordinal of its item.
    pub ordinal: u64,
    /// Which of the item's rows it is (JOINs give several).
    pub row: u32,
    /// How far inner queries that count had come, the outermost first. This is no part of the order.
    pub inner: Vec<InnerProgress>,
}

impl Position {
    fn parts(&self) -> (&[u8], u64, u32) {
        (&self.key, self.ordinal, self.row)
    }

    /// As a part of the keys of those rows that an outer query makes of this one.
    pub(crate) fn to_key(&self) -> Vec<u8> {
        let (key, ordinal, row) = self.parts();
        [key, &ordinal.to_be_bytes(), &row.to_be_bytes()].concat()
    }

    /// The place of the inner query's row that a row with this key was made of.
    fn from_key(key: &[u8]) -> Option<Self> {
        let (key, row) = key.split_last_chunk()?;
        let (key, ordinal) = key.split_last_chunk()?;
        let (ordinal, row) = (u64::from_be_bytes(*ordinal), u32::from_be_bytes(*row));
        Some(Self { key: key.to_vec(), ordinal, row, inner: Vec::new() })
    }
}

impl PartialEq for Position {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for Position {}

impl PartialOrd for Position {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Position {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

/// How far earlier pages of the same query have come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Rows passed over for OFFSET.
    pub skipped: u64,
    /// Rows given.
    pub given: u64,
}

impl Progress {
    pub(super) fn since(self, earlier: Self) -> Self {
        let skipped = self.skipped.saturating_sub(earlier.skipped);
        Self { skipped, given: self.given.saturating_sub(earlier.given) }
    }
}

/// How far an inner query had come when a row was made of one of its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InnerProgress {
    /// Before any row of the same item.
    pub before: Progress,
    /// With that row.
    pub with: Progress,
}

/// Where earlier pages of a query stopped.
#[derive(Clone, Debug, Default)]
pub struct Resume {
    /// What was skipped and given, which still counts.
    pub progress: Progress,
    /// The last row.
    pub after: Option<Position>,
    /// What ranks were measured by ([`crate::Pipeline::measure`]).
    pub measure: Vec<u8>,
    /// Whether the last row comes once more, uncounted: the outer query may not have got all its rows out of it.
    pub(crate) again: bool,
    /// What of the counts is for the last row's item, which is read once more.
    pub(crate) of_item: Option<Progress>,
}

impl Resume {
    /// After a row.
    pub fn new(progress: Progress, after: Position, measure: Vec<u8>) -> Self {
        Self { progress, after: Some(after), measure, ..Self::default() }
    }

    /// For the inner query out of whose rows this one makes its own, one after the other.
    pub(crate) fn of_inner(&self, by_item: bool) -> Option<Self> {
        let after = self.after.as_ref()?;
        let (first, rest) = after.inner.split_first()?;
        let place = match by_item {
            // The item comes whole, so that no row of it is told apart.
            true => Position { ordinal: u64::MAX, ..Position::default() },
            false => Position::from_key(&after.key)?,
        };
        Some(Self {
            progress: first.with,
            after: Some(Position { inner: rest.to_vec(), ..place }),
            measure: Vec::new(),
            again: !by_item,
            of_item: by_item.then(|| first.with.since(first.before)),
        })
    }
}
