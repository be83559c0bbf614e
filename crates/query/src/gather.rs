//! What happens to rows after WHERE: group, shape, drop duplicates, sort, count off.
//!
//! Rows leave as JSON text. Where the order allows, each leaves at once; otherwise they are held,
//! in as little memory as the query needs (a sort with TOP holds only that many), and never in more
//! than the given bytes.

use std::collections::{BinaryHeap, HashMap, HashSet};

use serde_json::Value as Json;

use crate::aggregate::Accumulator;
use crate::error::{Error, Result};
use crate::eval::Env;
use crate::expr::{Block, Group, SortKey};
use crate::value::Value;

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

    /// Where each row stands, to resume after it. Rows of groups have no place of their own: there
    /// the positions count rows from the start.
    pub fn positions(&self) -> &[Position] {
        &self.positions
    }

    fn push(&mut self, row: &[u8], position: Position) {
        self.bytes.extend_from_slice(row);
        self.ends.push(self.bytes.len());
        self.positions.push(position);
    }
}

/// A place in the order of a query's rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The row's ORDER BY keys in their sortable form; empty without ORDER BY.
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

/// The rows of one query on their way out.
#[derive(Debug)]
pub struct Gather {
    stage: Stage,
    seen: Option<HashSet<Vec<u8>>>,
    after: Option<Position>,
    rows: Rows,
    progress: Progress,
    offset: u64,
    limit: Option<u64>,
    held: Held,
}

#[derive(Debug)]
enum Stage {
    Stream,
    Sort(Sorter),
    Group(Groups),
}

impl Gather {
    /// For a query from its first row, within this much memory.
    pub fn new(block: &Block, bytes_max: usize) -> Self {
        let stage = if block.group.is_some() {
            Stage::Group(Groups::default())
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
            progress: Progress::default(),
            offset: block.offset,
            limit: block.limit,
            held: Held { bytes: 0, bytes_max },
        }
    }

    /// Rows come in the order that ORDER BY asks for, so there is nothing to sort.
    pub fn sorted_input(mut self) -> Self {
        if matches!(self.stage, Stage::Sort(_)) {
            self.stage = Stage::Stream;
        }
        self
    }

    /// Goes on where earlier pages stopped: rows up to the position are not held again, and what
    /// was skipped and given counts.
    pub fn resume(mut self, progress: Progress, after: Option<Position>) -> Self {
        self.progress = progress;
        self.after = after;
        if let Stage::Sort(sorter) = &mut self.stage {
            let skip = self.offset.saturating_sub(progress.skipped);
            sorter.keep = self.limit.map(|limit| skip + limit.saturating_sub(progress.given));
        }
        self
    }

    /// Holds no more sorted rows than one page can take.
    pub fn page(mut self, rows_max: usize) -> Self {
        if let Stage::Sort(sorter) = &mut self.stage {
            let skip = self.offset.saturating_sub(self.progress.skipped);
            let page = skip + rows_max as u64;
            sorter.keep = Some(sorter.keep.map_or(page, |keep| keep.min(page)));
        }
        self
    }

    /// Whether no further row can change the result.
    pub fn is_done(&self) -> bool {
        self.limit.is_some_and(|limit| self.progress.given >= limit)
    }

    /// How far the query has come with the rows given so far.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Takes in the row that `env` shows; false once no more are wanted.
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
        Ok(!self.is_done())
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
        if let Stage::Sort(sorter) = &mut self.stage {
            for row in std::mem::take(&mut sorter.rows).into_sorted_vec() {
                self.give(&row.text, row.position);
            }
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
        if matches!(self.stage, Stage::Sort(_)) {
            write_sort_key(&block.order, env, &mut position.key)?;
        }
        if self.after.as_ref().is_some_and(|after| position <= *after) {
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
            _ => self.give(&text, position),
        }
        Ok(())
    }

    /// Counts a row off against OFFSET and LIMIT.
    fn give(&mut self, text: &[u8], position: Position) {
        if self.is_done() {
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
}

/// Appends the keys of a row so that the bytes sort as ORDER BY asks: a descending key is inverted.
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

/// Appends one key in its sortable form.
pub fn append_sort_key(value: &Value<'_>, descending: bool, out: &mut Vec<u8>) {
    let start = out.len();
    value.write_key(out);
    if descending {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    position: Position,
    text: Vec<u8>,
}

/// Sorts rows; with a number to keep, a heap whose top is the first to go.
#[derive(Debug, Default)]
struct Sorter {
    rows: BinaryHeap<Row>,
    keep: Option<u64>,
}

impl Sorter {
    fn new(keep: Option<u64>) -> Self {
        Self { rows: BinaryHeap::new(), keep }
    }

    fn is_full(&self) -> bool {
        self.keep.is_some_and(|keep| self.rows.len() as u64 >= keep)
    }

    /// Whether a row here would be dropped at once.
    fn is_beyond(&self, position: &Position) -> bool {
        self.is_full() && self.rows.peek().is_none_or(|last| *position > last.position)
    }

    fn add(&mut self, row: Row, held: &mut Held) -> Result<()> {
        held.add("sort", row.bytes())?;
        self.rows.push(row);
        if self.keep.is_some_and(|keep| self.rows.len() as u64 > keep)
            && let Some(dropped) = self.rows.pop()
        {
            held.bytes -= dropped.bytes();
        }
        Ok(())
    }
}

impl Row {
    fn bytes(&self) -> usize {
        self.position.key.len() + self.text.len() + ROW_BYTES
    }
}

/// The groups so far, in the order they were first met.
#[derive(Debug, Default)]
struct Groups {
    numbers: HashMap<Vec<u8>, usize>,
    groups: Vec<(Vec<Option<Json>>, Vec<Accumulator>)>,
}

impl Groups {
    fn add<'a>(&mut self, group: &'a Group, env: &mut Env<'a>, held: &mut Held) -> Result<()> {
        let keys = group.keys.iter().map(|key| env.eval(key)).collect::<Result<Vec<_>>>()?;
        let mut encoded = Vec::new();
        keys.iter().for_each(|key| key.write_key(&mut encoded));
        let number = match self.numbers.get(&encoded) {
            Some(number) => *number,
            None => {
                let size = encoded.len() * 3 + ROW_BYTES * (1 + group.aggregates.len());
                held.add("group", size)?;
                self.numbers.insert(encoded, self.groups.len());
                self.groups.push((keys.iter().map(Value::to_json).collect(), fresh(group)));
                self.groups.len() - 1
            }
        };
        let (_, accumulators) = &mut self.groups[number];
        for (accumulator, aggregate) in accumulators.iter_mut().zip(&group.aggregates) {
            held.add("group", accumulator.add(&env.eval(&aggregate.argument)?))?;
        }
        Ok(())
    }

    /// The keys and aggregates of each group; without GROUP BY there is always one.
    fn finish<'a>(
        mut self,
        group: &Group,
    ) -> impl Iterator<Item = (Vec<Value<'a>>, Vec<Value<'a>>)> + use<'a> {
        if group.keys.is_empty() && self.groups.is_empty() {
            self.groups.push((Vec::new(), fresh(group)));
        }
        self.groups.into_iter().map(|(keys, accumulators)| {
            let keys = keys.into_iter().map(|key| key.map_or(Value::Undefined, Value::built));
            let results = accumulators.into_iter().map(Accumulator::result);
            (keys.collect(), results.collect())
        })
    }
}

fn fresh(group: &Group) -> Vec<Accumulator> {
    group.aggregates.iter().map(|aggregate| Accumulator::new(aggregate.function)).collect()
}
