//! What happens to rows after WHERE: group, shape, drop duplicates, sort, count off.
//!
//! Rows leave as JSON text. Where the order allows, each leaves at once; otherwise they are held,
//! in as little memory as the query needs (a sort with TOP holds only that many), and never in more
//! than the given bytes.

mod aggregate;
mod group;
mod rank;
mod rows;
mod sort;

use std::collections::HashSet;

use group::Groups;
use rank::Ranker;
pub use rows::{Position, Progress, Rows};
use sort::{Row, Sorter};
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
    Group(Groups),
    Rank(Ranker),
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
            Stage::Sort(Sorter::new(block.limit.map(|limit| block.offset + limit)))
        };
        Self {
            stage,
            seen: block.distinct.then(HashSet::new),
            after: None,
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

    /// Goes on where earlier pages stopped: what was skipped and given counts. A sort drops rows up
    /// to the position. A stream is resumed by pushing the items that follow, or from the item of the
    /// position on, if that has more rows. Groups, ranks and DISTINCT need all items again, and
    /// drop as many rows as there were.
    pub fn resume(mut self, progress: Progress, after: Option<Position>) -> Self {
        self.progress = progress;
        match &mut self.stage {
            Stage::Stream | Stage::Sorted | Stage::Sort(_) if self.seen.is_none() => {
                self.after = after;
            }
            _ => self.replayed = progress.skipped + progress.given,
        }
        if let (Stage::Sort(sorter), 0) = (&mut self.stage, self.replayed) {
            let skip = self.offset.saturating_sub(progress.skipped);
            sorter.keep = self.limit.map(|limit| skip + limit.saturating_sub(progress.given));
        }
        self
    }

    /// Stops when the rows at hand fill a page; a sort holds no more rows than that.
    pub fn page(mut self, page: Page) -> Self {
        self.page = page;
        if let Stage::Sort(sorter) = &mut self.stage {
            let skip = self.offset.saturating_sub(self.progress.skipped);
            let rows_max = (self.replayed + skip).saturating_add(page.rows_max as u64);
            sorter.keep = Some(sorter.keep.map_or(rows_max, |keep| keep.min(rows_max)));
        }
        self
    }

    /// Whether the rows at hand fill a page.
    pub fn is_full(&self) -> bool {
        self.rows.len() >= self.page.rows_max || self.rows.bytes_len() >= self.page.bytes_max
    }

    /// Whether no further row can change the result.
    pub fn is_done(&self) -> bool {
        self.limit.is_some_and(|limit| self.progress.given >= limit)
    }

    /// How far the query has come with the rows given so far.
    pub fn progress(&self) -> Progress {
        self.progress
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
            _ => self.shape(block, env, place)?,
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
            let keep = block.limit.map(|limit| block.offset + limit);
            self.stage =
                if block.order.is_empty() { Stage::Stream } else { Stage::Sort(Sorter::new(keep)) };
            let outer = (std::mem::take(&mut env.keys), std::mem::take(&mut env.aggregates));
            for (ordinal, (keys, aggregates)) in groups.finish(group).enumerate() {
                (env.keys, env.aggregates) = (keys, aggregates);
                self.shape(block, env, (ordinal as u64, 0))?;
            }
            (env.keys, env.aggregates) = outer;
        }
        let rows = match (&mut self.stage, &block.rank) {
            (Stage::Sort(sorter), _) => sorter.take(),
            (Stage::Rank(ranker), Some(rank)) => ranker.take(rank),
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
    fn shape<'a>(&mut self, block: &'a Block, env: &mut Env<'a>, place: (u64, u32)) -> Result<()> {
        let mut position = Position { key: Vec::new(), ordinal: place.0, row: place.1 };
        if matches!(self.stage, Stage::Sort(_) | Stage::Sorted) {
            write_sort_key(&block.order, env, &mut position.key)?;
        }
        if self.was_given(&position) {
            return Ok(());
        }
        if let Stage::Sort(sorter) = &self.stage
            && sorter.is_beyond(&position)
        {
            return Ok(());
        }
        let mut text = Vec::new();
        if !env.write(&block.projection, &mut text)? {
            return Ok(());
        }
        if let Some(seen) = &mut self.seen {
            let mut key = Vec::new();
            Value::read(&text).write_key(&mut key);
            self.held.add("find duplicates", key.len() + ROW_BYTES)?;
            if !seen.insert(key) {
                return Ok(());
            }
        }
        match &mut self.stage {
            Stage::Sort(sorter) => sorter.add(Row { position, text }, &mut self.held)?,
            Stage::Rank(ranker) => ranker.add(Row { position, text }, &mut self.held)?,
            _ => self.give(&text, position),
        }
        Ok(())
    }

    /// Whether an earlier page has given the row at this place.
    fn was_given(&self, position: &Position) -> bool {
        let Some(after) = &self.after else { return false };
        match self.stage {
            Stage::Sort(_) | Stage::Sorted => position <= after,
            _ => position.ordinal == after.ordinal && position.row <= after.row,
        }
    }

    /// Counts a row off against OFFSET and LIMIT.
    fn give(&mut self, text: &[u8], position: Position) {
        if self.is_done() {
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
