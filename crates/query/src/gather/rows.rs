//! Rows on their way to the client, and places among them.

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

    /// Where each row stands, to resume after it. Rows of ranks have no lasting place: there one
    /// resumes by [`Progress`] alone.
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
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The row's ORDER BY keys in their sortable form, and after them what tells a group or, with
    /// DISTINCT, a value. Empty where rows come as their items do.
    pub key: Vec<u8>,
    /// The ordinal of its item.
    pub ordinal: u64,
    /// Which of the item's rows it is (JOINs give several).
    pub row: u32,
}

/// How far earlier pages of the same query have come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Rows passed over for OFFSET.
    pub skipped: u64,
    /// Rows given.
    pub given: u64,
}
