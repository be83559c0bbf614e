//! DISTINCT in pages.
//!
//! If all rows that differ fit one page, they come in the order in which they were met. If not, each page gives the next ones in the order
//! of their keys: then the last of them says which have been given, whichever items have expired or come since, and
//! no more than a page is ever held.

use std::collections::BTreeMap;

use super::sort::Row;
use super::{Held, Position, ROW_BYTES};
use crate::error::Result;

/// The first rows by key, of all that differ.
#[derive(Debug)]
pub struct Distinct {
    /// By key: when a row was met, and its JSON.
    rows: BTreeMap<Vec<u8>, (u64, Vec<u8>)>,
    /// The JSON of all of them.
    bytes: usize,
    /// How many were met.
    met: u64,
    rows_max: u64,
    bytes_max: usize,
    /// How many rows are asked for at all.
    enough: Option<u64>,
    /// Whether they come in the order of their keys.
    sorted: bool,
}

impl Distinct {
    /// For a page of `rows_max` and `bytes_max` (the row that passes them is the last), of `enough` rows in all; `begun` by an earlier page.
    pub fn new(rows_max: u64, bytes_max: usize, enough: Option<u64>, begun: bool) -> Self {
        let rows = BTreeMap::new();
        Self { rows, bytes: 0, met: 0, rows_max, bytes_max, enough, sorted: begun }
    }

    /// Whether no further row is needed.
    pub fn has_enough(&self) -> bool {
        !self.sorted && self.enough.is_some_and(|enough| self.rows.len() as u64 >= enough)
    }

    /// Whether a row with this key would be dropped at once.
    pub fn is_beyond(&self, key: &[u8]) -> bool {
        self.is_over() && self.rows.last_key_value().is_some_and(|(last, _)| key > &last[..])
    }

    /// Takes in a row, unless it is there, and drops the last ones if that makes too many.
    pub fn add(&mut self, key: Vec<u8>, text: Vec<u8>, held: &mut Held) -> Result<()> {
        if self.rows.contains_key(&key) {
            return Ok(());
        }
        held.add("find duplicates", key.len() + text.len() + ROW_BYTES)?;
        self.bytes += text.len();
        self.met += 1;
        self.rows.insert(key, (self.met, text));
        self.sorted |= self.is_over();
        while let Some((_, (_, last))) = self.rows.last_key_value()
            && (self.rows.len() as u64 > self.rows_max || self.bytes - last.len() > self.bytes_max)
            && let Some((key, (_, text))) = self.rows.pop_last()
        {
            self.bytes -= text.len();
            held.release(key.len() + text.len() + ROW_BYTES);
        }
        Ok(())
    }

    /// The rows, first to last, which are then no longer held.
    pub fn take(&mut self) -> Vec<Row> {
        let rows = std::mem::take(&mut self.rows).into_iter();
        let mut rows: Vec<(u64, Row)> = rows
            .map(|(key, (met, text))| {
                (met, Row { position: Position { key, ..Position::default() }, text })
            })
            .collect();
        if !self.sorted {
            rows.sort_unstable_by_key(|(met, _)| *met);
        }
        rows.into_iter().map(|(_, row)| row).collect()
    }

    /// Whether there are as many as fill a page, or more.
    fn is_over(&self) -> bool {
        self.rows.len() as u64 >= self.rows_max || self.bytes > self.bytes_max
    }
}
