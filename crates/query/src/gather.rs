//! What happens to rows after WHERE: group, shape, drop duplicates, sort, count off.
//!
//! Rows leave as JSON text. Where the order allows, each leaves at once; otherwise they are held,
//! in as little memory as the query needs (a sort with TOP holds only that many), and never in more
//! than the given bytes.
//!
//! Each row has a place that outlives the page: later pages give what lies behind the last one, whatever has come or gone meanwhile. It is
//! the item's own for a stream, the keys for a sort or a group, the value for DISTINCT. Only ranks, which depend on all items, are counted off.

mod aggregate;
mod distinct;
mod first_of_each;
mod group;
mod rank;
mod rows;
mod sort;

use std::collections::HashSet;

use distinct::Distinct;
use first_of_each::FirstOfEach;
use group::Groups;
use rank::Ranker;
pub use rows::{Position, Progress, Rows};
use sort::{Row, Sorter, Wanted};
pub use sort::{append_sort_key, write_sort_key};

use crate::error::{Error, Result};
use crate::eval::Env;
use crate::expr::Block;
use crate::value::Value;

/// The rows of one query on their way out.
#[derive(Debug)]
pub struct Gather {
    stage: Stage,
    seen: Option<HashSet<Vec<u8>>>,
    after: Option<Position>,
    /// The first row of the item at hand that has not been given.
    begin: u32,
    rows: Rows,
    page: Page,
    progress: Progress,
    /// Rows that earlier pages have counted and that come again.
    replayed: u64,
    offset: u64,
    limit: Option<u64>,
    held: Held,
}

#[derive(Debug)]
enum Stage {
    /// Rows leave as they come.
    Stream,
    /// So they do, and they come in the order that ORDER BY asks for.
    Sorted,
    Sort(Sorter),
    /// A sort of rows that differ.
    First(FirstOfEach),
    Group(Groups),
    Rank(Ranker),
    /// A page of rows that differ.
    Distinct(Distinct),
}

impl Stage {
    /// For ORDER BY.
    fn sort(block: &Block) -> Self {
        let rows = block.limit.map(|limit| block.offset + limit);
        let mut stage = match block.distinct {
            true => Self::First(FirstOfEach::default()),
            false => Self::Sort(Sorter::default()),
        };
        if let Some(wanted) = stage.wanted() {
            wanted.rows = rows;
        }
        stage
    }

    /// How many rows a sort holds.
    fn wanted(&mut self) -> Option<&mut Wanted> {
        match self {
            Self::Sort(sorter) => Some(&mut sorter.wanted),
            Self::First(first) => Some(&mut first.wanted),
            _ => None,
        }
    }
}

impl Gather {
    /// For a query from its first row, within this much memory.
    pub fn new(block: &Block, bytes_max: usize) -> Self {
        let stage = if block.group.is_some() {
            Stage::Group(Groups::default())
        } else if block.rank.is_some() {
            Stage::Rank(Ranker::default())
        } else if block.order.is_empty() {
            Stage::Stream
        } else {
            Stage::sort(block)
        };
        Self {
            seen: (block.distinct && !matches!(stage, Stage::First(_))).then(HashSet::new),
            stage,
            after: None,
            begin: 0,
            rows: Rows::default(),
            page: Page { rows_max: usize::MAX, bytes_max: usize::MAX },
            progress: Progress::default(),
            replayed: 0,
            offset: block.offset,
            limit: block.limit,
            held: Held { bytes: 0, bytes_max },
        }
    }

    /// Rows come in the order that ORDER BY asks for, so there is nothing to sort.
    pub fn sorted_input(mut self) -> Self {
        if matches!(self.stage, Stage::Sort(_)) {
            self.stage = Stage::Sorted;
        }
        self
    }

    /// Goes on where earlier pages stopped: what was skipped and given counts. Rows up to the position are dropped; without one, as many
    /// as there were. A stream is resumed by pushing the items from that of the position on; all others need all items again.
    pub fn resume(mut self, progress: Progress, after: Option<Position>) -> Self {
        self.progress = progress;
        if after.is_none() {
            self.replayed = progress.skipped + progress.given;
        }
        self.after = after;
        if let (Some(wanted), 0) = (self.stage.wanted(), self.replayed) {
            let skip = self.offset.saturating_sub(progress.skipped);
            wanted.rows = self.limit.map(|limit| skip + limit.saturating_sub(progress.given));
        }
        self
    }

    /// Stops when the rows at hand fill a page; a sort holds no more rows than that.
    pub fn page(mut self, page: Page) -> Self {
        self.page = page;
        let skip = self.replayed + self.offset.saturating_sub(self.progress.skipped);
        let rows_max = skip.saturating_add(page.rows_max as u64);
        // What is passed over must be held as well, until the page begins.
        let bytes_max = if skip == 0 { page.bytes_max } else { usize::MAX };
        if let Some(wanted) = self.stage.wanted() {
            let rows = wanted.rows.map_or(rows_max, |rows| rows.min(rows_max));
            *wanted = Wanted { rows: Some(rows), bytes: bytes_max };
        }
        match &mut self.stage {
            Stage::Stream if self.seen.is_some() && page.rows_max < usize::MAX => {
                let given = self.progress.given;
                let enough = self.limit.map(|limit| skip + limit.saturating_sub(given));
                let begun = self.after.is_some();
                self.stage = Stage::Distinct(Distinct::new(rows_max, bytes_max, enough, begun));
                self.seen = None;
            }
            _ => {}
        }
        self
    }

    /// Whether the rows at hand fill a page.
    pub fn is_full(&self) -> bool {
        self.rows.len() >= self.page.rows_max || self.rows.bytes_len() >= self.page.bytes_max
    }

    /// Whether no further row can change the result.
    pub fn is_done(&self) -> bool {
        let enough = matches!(&self.stage, Stage::Distinct(distinct) if distinct.has_enough());
        enough || self.has_given_all()
    }

    fn has_given_all(&self) -> bool {
        self.limit.is_some_and(|limit| self.progress.given >= limit)
    }

    /// How far the query has come with the rows given so far.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Of the next item, so many rows have been given.
    pub fn begin_at(&mut self, row: u32) {
        self.begin = row;
    }

    /// Looks at an item before any of its rows.
    pub fn item<'a>(&mut self, block: &'a Block, env: &mut Env<'a>) -> Result<()> {
        match (&mut self.stage, &block.rank) {
            (Stage::Rank(ranker), Some(rank)) => ranker.observe(rank, env),
            _ => Ok(()),
        }
    }

    /// Takes in the row that `env` shows; false once no more are wanted, at all or for now.
    pub fn row<'a>(
        &mut self,
        block: &'a Block,
        env: &mut Env<'a>,
        place: (u64, u32),
    ) -> Result<bool> {
        if self.is_done() {
            return Ok(false);
        }
        match (&mut self.stage, &block.group) {
            (Stage::Group(groups), Some(group)) => groups.add(group, env, &mut self.held)?,
            _ => self.shape(block, env, Place::Item(place.0, place.1))?,
        }
        Ok(!self.is_done() && !self.is_full())
    }

    /// Takes in rows of which only the number matters.
    pub fn count(&mut self, block: &Block, rows: u64) {
        if let (Stage::Group(groups), Some(group)) = (&mut self.stage, &block.group) {
            groups.count(group, rows);
        }
    }

    /// There are no more rows: gives what was held back.
    pub fn finish<'a>(&mut self, block: &'a Block, env: &mut Env<'a>) -> Result<()> {
        if let (Stage::Group(groups), Some(group)) = (&mut self.stage, &block.group) {
            let groups = std::mem::take(groups);
            self.stage = if block.order.is_empty() { Stage::Stream } else { Stage::sort(block) };
            self.seen.take_if(|_| matches!(self.stage, Stage::First(_)));
            let outer = (std::mem::take(&mut env.keys), std::mem::take(&mut env.aggregates));
            for (place, keys, aggregates) in groups.finish(group) {
                (env.keys, env.aggregates) = (keys, aggregates);
                self.shape(block, env, Place::Key(place))?;
            }
            (env.keys, env.aggregates) = outer;
        }
        let rows = match (&mut self.stage, &block.rank) {
            (Stage::Sort(sorter), _) => sorter.take(),
            (Stage::First(first), _) => first.take(),
            (Stage::Rank(ranker), Some(rank)) => ranker.take(rank),
            (Stage::Distinct(distinct), _) => distinct.take(),
            _ => Vec::new(),
        };
        for row in rows {
            self.give(&row.text, row.position);
        }
        Ok(())
    }

    /// The rows that are ready, which are then no longer held here.
    pub fn take_rows(&mut self) -> Rows {
        std::mem::take(&mut self.rows)
    }

    /// Turns a row or group into text and passes it on, now or when all are sorted.
    fn shape<'a>(&mut self, block: &'a Block, env: &mut Env<'a>, place: Place) -> Result<()> {
        let mut position = Position::default();
        if matches!(self.stage, Stage::Sort(_) | Stage::First(_) | Stage::Sorted) {
            write_sort_key(&block.order, env, &mut position.key)?;
        }
        match &place {
            Place::Key(key) => position.key.extend_from_slice(key),
            Place::Item(ordinal, row) => (position.ordinal, position.row) = (*ordinal, *row),
        }
        let differ =
            self.seen.is_some() || matches!(self.stage, Stage::Distinct(_) | Stage::First(_));
        if !differ && (self.was_given(&position) || self.is_beyond(&position)) {
            return Ok(());
        }
        let mut text = Vec::new();
        if !env.write(&block.projection, &mut text)? {
            return Ok(());
        }
        let mut value = Vec::new();
        if differ {
            Value::read(&text).write_key(&mut value);
            if let Some(seen) = &mut self.seen {
                self.held.add("find duplicates", value.len() + ROW_BYTES)?;
                if !seen.insert(value.clone()) {
                    return Ok(());
                }
            }
            if matches!(place, Place::Item(..)) && !matches!(self.stage, Stage::Rank(_)) {
                // Which of the items with this value comes first may be another one by the next page.
                position.key.extend(short(value.clone()));
                (position.ordinal, position.row) = (0, 0);
            }
            let given = self.was_given(&position);
            if let (Stage::First(first), true) = (&mut self.stage, given) {
                return first.leave_out(value, &mut self.held);
            }
            if given || self.is_beyond(&position) {
                return Ok(());
            }
        }
        match &mut self.stage {
            Stage::Sort(sorter) => sorter.add(Row { position, text }, &mut self.held)?,
            Stage::First(first) => first.add(value, Row { position, text }, &mut self.held)?,
            Stage::Rank(ranker) => ranker.add(Row { position, text }, &mut self.held)?,
            Stage::Distinct(distinct) => distinct.add(position.key, text, &mut self.held)?,
            _ => self.give(&text, position),
        }
        Ok(())
    }

    /// Whether a row here would be dropped at once.
    fn is_beyond(&self, position: &Position) -> bool {
        match &self.stage {
            Stage::Sort(sorter) => sorter.is_beyond(position),
            Stage::First(first) => first.is_beyond(position),
            Stage::Distinct(distinct) => distinct.is_beyond(&position.key),
            _ => false,
        }
    }

    /// Whether an earlier page has given the row at this place.
    fn was_given(&self, position: &Position) -> bool {
        let Some(after) = &self.after else { return false };
        match self.stage {
            Stage::Stream if position.key.is_empty() => {
                let same_item = position.ordinal == after.ordinal;
                position.row < self.begin || (same_item && position.row <= after.row)
            }
            _ => position <= after,
        }
    }

    /// Counts a row off against OFFSET and LIMIT.
    fn give(&mut self, text: &[u8], position: Position) {
        if self.has_given_all() {
            return;
        }
        if self.replayed > 0 {
            self.replayed -= 1;
            return;
        }
        if self.progress.skipped < self.offset {
            self.progress.skipped += 1;
            return;
        }
        self.progress.given += 1;
        self.rows.push(text, position);
    }
}

/// Where a row comes from.
enum Place {
    /// An item, and which of its rows it is.
    Item(u64, u32),
    /// A group with this key.
    Key(Vec<u8>),
}

/// A key that fits into a continuation token, and is as good as unique. What is cut is no longer in the order of values, but in one.
fn short(mut key: Vec<u8>) -> Vec<u8> {
    const KEPT: usize = 96;
    if key.len() > KEPT + size_of::<u128>() {
        // FNV-1a of 128 bits.
        let hash = key.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
            (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        });
        key.truncate(KEPT);
        key.extend(hash.to_be_bytes());
    }
    key
}

/// How much a page takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Rows at most.
    pub rows_max: usize,
    /// Bytes at most; the row that passes them is the last.
    pub bytes_max: usize,
}

/// What a held row costs besides its bytes.
const ROW_BYTES: usize = 96;

/// Counts the bytes held against their limit.
#[derive(Debug)]
struct Held {
    bytes: usize,
    bytes_max: usize,
}

impl Held {
    fn add(&mut self, what: &'static str, bytes: usize) -> Result<()> {
        self.bytes += bytes;
        if self.bytes > self.bytes_max {
            return Err(Error::Memory { what, max: self.bytes_max });
        }
        Ok(())
    }

    fn release(&mut self, bytes: usize) {
        self.bytes -= bytes;
    }
}
