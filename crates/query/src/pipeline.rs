//! Runs a query over items that the caller pushes, one at a time.
//!
//! ```text
//! push(item) ─ FROM, JOIN ─ WHERE ─┬─ SELECT ─ DISTINCT ─ OFFSET, LIMIT ─→ take_rows()
//!                                  └─ held: GROUP BY, ORDER BY, RANK ─ … ─→ finish()
//! ```
//! A streaming query gives rows as it goes, and says [`Flow::Done`] once it wants no more items. The
//! others give theirs when the caller says that there are no more.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::compile::Compiled;
use crate::error::Result;
use crate::eval::Env;
use crate::functions::Host;
use crate::gather::{Gather, Position, Progress, Rows, append_sort_key};
use crate::item::Item;
use crate::value::Value;

/// What a run of a query depends on besides the items.
#[derive(Clone)]
pub struct Context {
    /// The query's one `now`, in milliseconds since 1970.
    pub now_millis: i64,
    /// Where RAND starts.
    pub seed: u64,
    /// User-defined functions, if there are any.
    pub udfs: Option<Arc<dyn Udfs>>,
    /// Items come in the order that ORDER BY asks for, from an index.
    pub sorted_input: bool,
    /// How many rows the caller will take from [`Pipeline::finish`]; a sort holds no more.
    pub page_rows_max: Option<usize>,
    /// Where earlier pages stopped: their last row, if the query sorts, and the counts.
    pub resume: Option<(Progress, Option<Position>)>,
    /// The most bytes that may be held for sorting, grouping and finding duplicates.
    pub held_bytes_max: usize,
    /// The most steps (rows of JOINs and subqueries) that one item may take.
    pub steps_max: u64,
}

impl Default for Context {
    fn default() -> Self {
        Self {
            now_millis: 0,
            seed: 0,
            udfs: None,
            sorted_input: false,
            page_rows_max: None,
            resume: None,
            held_bytes_max: 64 << 20,
            steps_max: 10_000_000,
        }
    }
}

/// User-defined functions.
pub trait Udfs: Send + Sync {
    /// Calls one; `None` stands for undefined. The error is a text for the client.
    fn call(&self, name: &str, args: &[Option<Json>]) -> std::result::Result<Option<Json>, String>;
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Push the next item.
    More,
    /// No further item can change the result.
    Done,
}

/// A query on its way through the items.
pub struct Pipeline {
    /// For `FROM (SELECT …)`: the query whose rows are the items of this one.
    inner: Option<Box<Pipeline>>,
    /// How many rows of the inner query came so far: their ordinals.
    inner_rows: u64,
    query: Arc<Compiled>,
    gather: Gather,
    host: Host,
    udfs: Option<Arc<dyn Udfs>>,
}

impl Pipeline {
    /// Starts a query.
    pub fn new(query: Arc<Compiled>, context: &Context) -> Self {
        let inner = query.inner.as_ref().map(|inner| {
            let context = Context { resume: None, page_rows_max: None, ..context.clone() };
            Box::new(Self::new(inner.clone(), &context))
        });
        let mut gather = Gather::new(&query.block, context.held_bytes_max);
        if context.sorted_input {
            gather = gather.sorted_input();
        }
        if let Some((progress, after)) = &context.resume {
            gather = gather.resume(*progress, after.clone());
        }
        if let Some(rows_max) = context.page_rows_max {
            gather = gather.page(rows_max);
        }
        let host = Host::new(context.now_millis, context.seed, context.steps_max);
        Self { inner, inner_rows: 0, query, gather, host, udfs: context.udfs.clone() }
    }

    /// Takes in an item: its compact JSON text, and its ordinal, which orders rows that are
    /// otherwise equal.
    pub fn push(&mut self, item: &[u8], ordinal: u64) -> Result<Flow> {
        if self.gather.is_done() || !self.query.reads_items() {
            return Ok(Flow::Done);
        }
        let Some(inner) = &mut self.inner else { return self.row_by_row(item, ordinal) };
        let flow = inner.push(item, ordinal)?;
        let rows = inner.take_rows();
        match self.outer(&rows)? {
            Flow::Done => Ok(Flow::Done),
            Flow::More => Ok(flow),
        }
    }

    /// Takes in rows of the inner query.
    fn outer(&mut self, rows: &Rows) -> Result<Flow> {
        for row in rows.iter() {
            self.inner_rows += 1;
            if self.row_by_row(row, self.inner_rows)? == Flow::Done {
                return Ok(Flow::Done);
            }
        }
        Ok(Flow::More)
    }

    fn row_by_row(&mut self, item: &[u8], ordinal: u64) -> Result<Flow> {
        let Self { query, gather, host, udfs, .. } = self;
        host.refill();
        let block = &query.block;
        let mut env = Env::new(Item::new(item, &query.fields), query.slots, host);
        env.udfs = udfs.as_deref();
        gather.item(block, &mut env)?;
        let mut row = 0;
        let more = env.for_each_row(block, &mut |env| {
            row += 1;
            gather.row(block, env, (ordinal, row - 1))
        })?;
        Ok(if more { Flow::More } else { Flow::Done })
    }

    /// The rows that are ready.
    pub fn take_rows(&mut self) -> Rows {
        self.gather.take_rows()
    }

    /// There are no more items: the remaining rows.
    pub fn finish(&mut self) -> Result<Rows> {
        if !self.query.reads_items() {
            self.row_by_row(b"{}", 0)?;
        }
        if let Some(inner) = &mut self.inner {
            let rows = inner.finish()?;
            self.outer(&rows)?;
        }
        let Self { query, gather, host, udfs, .. } = self;
        host.refill();
        let mut env = Env::new(Item::new(b"{}", &query.fields), query.slots, host);
        env.udfs = udfs.as_deref();
        gather.finish(&query.block, &mut env)?;
        Ok(gather.take_rows())
    }

    /// How far the query has come with the rows it has given.
    pub fn progress(&self) -> Progress {
        self.gather.progress()
    }
}

impl Compiled {
    /// Whether the query has a FROM; without one it gives its only row whatever items there are.
    pub fn reads_items(&self) -> bool {
        !self.block.sources.is_empty()
    }

    /// Whether the item meets the query's WHERE (for a patch: its condition).
    pub fn matches(&self, item: &[u8], context: &Context) -> Result<bool> {
        let host = Host::new(context.now_millis, context.seed, context.steps_max);
        let mut env = Env::new(Item::new(item, &self.fields), self.slots, &host);
        env.udfs = context.udfs.as_deref();
        let none_met = env.for_each_row(&self.block, &mut |_| Ok(false))?;
        Ok(!none_met)
    }

    /// The sortable form of ORDER BY keys that a client sent, to resume at them; missing keys
    /// are undefined.
    pub fn sort_key(&self, values: &[Option<Json>]) -> Vec<u8> {
        let mut out = Vec::new();
        for (i, key) in self.block.order.iter().enumerate() {
            let value = values.get(i).and_then(Option::as_ref);
            let value = value.map_or(Value::Undefined, Value::literal);
            append_sort_key(&value, key.descending, &mut out);
        }
        out
    }
}
