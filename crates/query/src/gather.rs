//! What happens to rows after WHERE: group, shape, drop duplicates, sort, count off.
//!
//! Rows leave as JSON text. Where the order allows, each leaves at once; otherwise they are held,
//! in as little memory as the query needs (a sort with TOP holds only that many), and never in more
//! than the given bytes.
//!
//! Each row has a place that outlives the page: later pages give what lies behind the last one, whatever has come or gone meanwhile. It is
//! the item's own for a stream, the keys for a sort or a group, the value for DISTINCT, the score for a rank (which later pages measure as the
//! first one did), and for what is made of the rows of an inner query the place of that row.

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
pub use rows::{InnerProgress, Position, Progress, Resume, Rows};
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
    /// Whether the row there comes once more, uncounted.
    again: bool,
    /// The first row of the item at hand that has not been given.
    begin: u32,
    rows: Rows,
    page: Page,
    /// Whether the order of rows must outlast the page.
    lasting: bool,
    progress: Progress,
    /// How far inner queries have come with the row at hand.
    inner: Vec<InnerProgress>,
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
    Rank(Box<Ranker>),
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
            Stage::Rank(Box::default())
        } else if block.order.is_empty() {
            Stage::Stream
        } else {
            Stage::sort(block)
        };
        Self {
            seen: (block.distinct && !matches!(stage, Stage::First(_) | Stage::Rank(_)))
                .then(HashSet::new),
            stage,
            after: None,
            again: false,
            begin: 0,
            rows: Rows::default(),
            page: Page { rows_max: usize::MAX, bytes_max: usize::MAX },
            lasting: false,
            progress: Progress::default(),
            inner: Vec::new(),
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

    /// Goes on where earlier pages stopped: what was skipped and given counts, and rows up to the last one are dropped. A stream is
    /// resumed by pushing the items from that of the position on; all others need all items again.
    pub fn resume(mut self, block: &Block, resume: &Resume) -> Self {
        self.progress = resume.progress;
        self.after = resume.after.clone();
        self.again = resume.again;
        if let (Stage::Rank(ranker), Some(rank)) = (&mut self.stage, &block.rank) {
            ranker.measure_by(rank.scores.len(), &resume.measure);
        }
        let left = self.rows_left();
        if let Some(wanted) = self.stage.wanted() {
            wanted.rows = left;
        }
        self
    }

    /// How many rows may still come, those among them that OFFSET passes over; `None` for all.
    fn rows_left(&self) -> Option<u64> {
        let skip = self.offset.saturating_sub(self.progress.skipped) + u64::from(self.again);
        self.limit.map(|limit| skip + limit.saturating_sub(self.progress.given))
    }

    /// Takes something off the counts that will be counted again.
    pub fn uncount(&mut self, progress: Progress) {
        self.progress = self.progress.since(progress);
    }

    /// Stops when the rows at hand fill a page; a sort holds no more rows than that.
    pub fn page(mut self, page: Page) -> Self {
        self.page = page;
        self.lasting = page.rows_max < usize::MAX;
        let skip = self.offset.saturating_sub(self.progress.skipped);
        let rows_max = skip.saturating_add(page.rows_max as u64);
        // What is passed over must be held as well, until the page begins.
        let bytes_max = if skip == 0 { page.bytes_max } else { usize::MAX };
        if let Some(wanted) = self.stage.wanted() {
            let rows = wanted.rows.map_or(rows_max, |rows| rows.min(rows_max));
            *wanted = Wanted { rows: Some(rows), bytes: bytes_max };
        }
        if matches!(self.stage, Stage::Stream) && self.lasting {
            self.find_duplicates(rows_max, bytes_max, self.after.is_some());
        }
        self
    }

    /// Gives rows in an order that lasts, for an outer query that comes back to it page after page.
    pub fn in_lasting_order(mut self) -> Self {
        self.lasting = true;
        if matches!(self.stage, Stage::Stream) {
            self.find_duplicates(self.rows_left().unwrap_or(u64::MAX), usize::MAX, true);
        }
        self
    }

    /// Finds duplicates within so many rows and bytes at a time, if they matter.
    fn find_duplicates(&mut self, rows_max: u64, bytes_max: usize, sorted: bool) {
        if self.seen.take().is_some() {
            let enough = self.rows_left();
            self.stage = Stage::Distinct(Distinct::new(rows_max, bytes_max, enough, sorted));
        }
    }

    /// Whether the rows at hand fill a page.
    pub fn is_full(&self) -> bool {
        self.rows.len() >= self.page.rows_max || self.rows.bytes_len() >= self.page.bytes_max
    }

    /// Whether no further row can change the result.
    pub fn is_done(&self) -> bool {
        let enough = matches!(&self.stage, Stage::Distinct(distinct) if distinct.has_enough());
        enough || (self.has_given_all() && !self.again)
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

    /// The next rows are made of a row with which inner queries have come so far.
    pub fn made_of(&mut self, inner: Vec<InnerProgress>) {
        self.inner = inner;
    }

    /// What ranks are measured by, for later pages; empty where nothing is ranked.
    pub fn measure(&self) -> Vec<u8> {
        match &self.stage {
            Stage::Rank(ranker) => ranker.measure(),
            _ => Vec::new(),
        }
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
        origin: &Origin,
        row: u32,
    ) -> Result<bool> {
        if self.is_done() {
            return Ok(false);
        }
        match (&mut self.stage, &block.group) {
            (Stage::Group(groups), Some(group)) => groups.add(group, env, &mut self.held)?,
            _ => self.shape(block, env, Place::Row(origin, row))?,
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
            match self.stage {
                Stage::First(_) => self.seen = None,
                _ => self.find_duplicates(u64::MAX, usize::MAX, self.lasting),
            }
            let outer = (std::mem::take(&mut env.keys), std::mem::take(&mut env.aggregates));
            for (place, keys, aggregates) in groups.finish(group) {
                (env.keys, env.aggregates) = (keys, aggregates);
                self.shape(block, env, Place::Group(place))?;
            }
            (env.keys, env.aggregates) = outer;
        }
        let rows = match (&mut self.stage, &block.rank) {
            (Stage::Sort(sorter), _) => sorter.take(),
            (Stage::First(first), _) => first.take(),
            (Stage::Rank(ranker), Some(rank)) => {
                let rows = ranker.take(rank);
                self.ranked(rows, block.distinct)?
            }
            (Stage::Distinct(distinct), _) => distinct.take(),
            _ => Vec::new(),
        };
        for row in rows {
            self.give(&row.text, row.position);
        }
        Ok(())
    }

    /// Of ranked rows, the first of equal ones if they are to differ, without those that have been given.
    fn ranked(&mut self, mut rows: Vec<Row>, differ: bool) -> Result<Vec<Row>> {
        rows.sort_unstable();
        if differ {
            let mut seen = HashSet::new();
            for row in &mut rows {
                let mut value = Vec::new();
                Value::read(&row.text).write_key(&mut value);
                self.held.add("find duplicates", value.len() + ROW_BYTES)?;
                if !seen.insert(value) {
                    row.text.clear();
                }
            }
        }
        let after = self.after.as_ref();
        rows.retain(|row| !row.text.is_empty() && after.is_none_or(|after| row.position > *after));
        Ok(rows)
    }

    /// The rows that are ready, which are then no longer held here.
    pub fn take_rows(&mut self) -> Rows {
        std::mem::take(&mut self.rows)
    }

    /// Turns a row or group into text and passes it on, now or when all are sorted.
    fn shape<'a>(&mut self, block: &'a Block, env: &mut Env<'a>, place: Place<'_>) -> Result<()> {
        let mut position = Position::default();
        if matches!(self.stage, Stage::Sort(_) | Stage::First(_) | Stage::Sorted) {
            write_sort_key(&block.order, env, &mut position.key)?;
        }
        let differ =
            self.seen.is_some() || matches!(self.stage, Stage::Distinct(_) | Stage::First(_));
        match &place {
            // Which of the rows with a value comes first may be another one by the next page.
            _ if differ => {}
            Place::Group(key) => position.key.extend_from_slice(key),
            Place::Row(origin, row) => {
                position.key.extend_from_slice(&origin.row);
                (position.ordinal, position.row) = (origin.ordinal, *row);
                position.inner.clone_from(&self.inner);
            }
        }
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
            position.key.extend(short(value.clone()));
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
            // Known only when all are.
            Stage::Rank(_) => false,
            _ if self.again => position < after,
            Stage::Stream if position.key.is_empty() => {
                let same_item = position.ordinal == after.ordinal;
                position.row < self.begin || (same_item && position.row <= after.row)
            }
            _ => position <= after,
        }
    }

    /// Counts a row off against OFFSET and LIMIT.
    fn give(&mut self, text: &[u8], position: Position) {
        if self.again && self.after.as_ref() == Some(&position) {
            return self.rows.push(text, position);
        }
        if self.has_given_all() {
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

/// Where rows come from: an item, or a row of an inner query.
#[derive(Debug, Default)]
pub struct Origin {
    /// The place of the inner query's row, as bytes; empty for an item.
    pub row: Vec<u8>,
    /// The item's ordinal.
    pub ordinal: u64,
}

/// What a row is made of.
enum Place<'a> {
    /// An item or an inner row, and the how manieth it is of that.
    Row(&'a Origin, u32),
    /// A group with this key.
    Group(Vec<u8>),
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
