//! ORDER BY: rows held until all are seen, or only the first so many of them.

use std::collections::BinaryHeap;

use super::{Held, Position, ROW_BYTES};
use crate::error::Result;
use crate::eval::Env;
use crate::expr::SortKey;
use crate::value::Value;

/// A row that waits for its turn.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// Its place.
    pub position: Position,
    /// Its JSON.
    pub text: Vec<u8>,
}

impl Row {
    fn bytes(&self) -> usize {
        self.position.key.len() + self.text.len() + ROW_BYTES
    }
}

/// How many of the first rows are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Rows; `None` for all.
    pub rows: Option<u64>,
    /// Bytes of JSON; the row that passes them is the last.
    pub bytes: usize,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { rows: None, bytes: usize::MAX }
    }
}

impl Wanted {
    /// Whether these are enough.
    pub fn is_met(&self, rows: usize, bytes: usize) -> bool {
        self.rows.is_some_and(|wanted| rows as u64 >= wanted) || bytes > self.bytes
    }

    /// Whether these are too many: `bytes` are those of all but the last.
    pub fn is_exceeded(&self, rows: usize, bytes: usize) -> bool {
        self.rows.is_some_and(|wanted| rows as u64 > wanted) || bytes > self.bytes
    }
}

/// Sorts rows; with a number to keep, a heap whose top is the first to go.
#[derive(Debug, Default)]
pub struct Sorter {
    rows: BinaryHeap<Row>,
    /// The JSON of all of them.
    bytes: usize,
    pub wanted: Wanted,
}

impl Sorter {
    /// Whether a row here would be dropped at once.
    pub fn is_beyond(&self, position: &Position) -> bool {
        self.wanted.is_met(self.rows.len(), self.bytes)
            && self.rows.peek().is_none_or(|last| *position > last.position)
    }

    /// Takes in a row, and drops the last ones if that makes too many.
    pub fn add(&mut self, row: Row, held: &mut Held) -> Result<()> {
        held.add("sort", row.bytes())?;
        self.bytes += row.text.len();
        self.rows.push(row);
        while let Some(last) = self.rows.peek()
            && self.wanted.is_exceeded(self.rows.len(), self.bytes - last.text.len())
            && let Some(dropped) = self.rows.pop()
        {
            self.bytes -= dropped.text.len();
            held.release(dropped.bytes());
        }
        Ok(())
    }

    /// The rows, first to last, which are then no longer held.
    pub fn take(&mut self) -> Vec<Row> {
        std::mem::take(&mut self.rows).into_sorted_vec()
    }
}

/// Appends the keys of a row so that the bytes sort as ORDER BY asks.
pub fn write_sort_key<'a>(
    order: &'a [SortKey],
    env: &mut Env<'a>,
    out: &mut Vec<u8>,
) -> Result<()> {
    for key in order {
        append_sort_key(&env.eval(&key.expr)?, key.descending, out);
    }
    Ok(())
}

/// Appends one key in its sortable form; a descending one is inverted.
pub fn append_sort_key(value: &Value<'_>, descending: bool, out: &mut Vec<u8>) {
    let start = out.len();
    value.write_key(out);
    if descending {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}
