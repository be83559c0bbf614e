//! DISTINCT and ORDER BY together: among equal rows, the first in order counts.
//!
//! No more than a page is held, beside the values that earlier pages have given: which they are shows as they come again.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::sort::{Row, Wanted};
use super::{Held, Position, ROW_BYTES};
use crate::error::Result;

/// The first rows in order, of all that differ.
#[derive(Debug, Default)]
pub struct FirstOfEach {
    /// By place: the key of the row's value, and its JSON.
    rows: BTreeMap<Position, (Vec<u8>, Vec<u8>)>,
    /// Where each value is among them.
    places: HashMap<Vec<u8>, Position>,
    /// The values of earlier pages.
    given: HashSet<Vec<u8>>,
    /// The JSON of all rows.
    bytes: usize,
    pub wanted: Wanted,
}

impl FirstOfEach {
    /// Takes in a row by the key of its value, unless an equal one comes earlier in order; drops the last ones if that makes too many.
    pub fn add(&mut self, value: Vec<u8>, row: Row, held: &mut Held) -> Result<()> {
        if self.given.contains(&value)
            || self.places.get(&value).is_some_and(|p| *p <= row.position)
        {
            return Ok(());
        }
        self.forget(&value, held);
        held.add("sort", cost(&value, &row.text))?;
        self.bytes += row.text.len();
        self.places.insert(value.clone(), row.position.clone());
        self.rows.insert(row.position, (value, row.text));
        while let Some((_, (last, text))) = self.rows.last_key_value()
            && self.wanted.is_exceeded(self.rows.len(), self.bytes - text.len())
        {
            let last = last.clone();
            self.forget(&last, held);
        }
        Ok(())
    }

    /// Earlier pages have given this value.
    pub fn leave_out(&mut self, value: Vec<u8>, held: &mut Held) -> Result<()> {
        self.forget(&value, held);
        if !self.given.contains(&value) {
            held.add("find duplicates", value.len() + ROW_BYTES)?;
            self.given.insert(value);
        }
        Ok(())
    }

    /// Whether a row here would be dropped at once.
    pub fn is_beyond(&self, position: &Position) -> bool {
        self.wanted.is_met(self.rows.len(), self.bytes)
            && self.rows.last_key_value().is_none_or(|(last, _)| position > last)
    }

    /// The rows, first to last, which are then no longer held.
    pub fn take(&mut self) -> Vec<Row> {
        let rows = std::mem::take(&mut self.rows).into_iter();
        rows.map(|(position, (_, text))| Row { position, text }).collect()
    }

    fn forget(&mut self, value: &[u8], held: &mut Held) {
        let place = self.places.remove(value);
        if let Some((value, text)) = place.and_then(|place| self.rows.remove(&place)) {
            self.bytes -= text.len();
            held.release(cost(&value, &text));
        }
    }
}

fn cost(value: &[u8], text: &[u8]) -> usize {
    2 * value.len() + text.len() + 2 * ROW_BYTES
}
