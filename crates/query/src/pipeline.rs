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
use crate::gather::{
    Gather, InnerProgress, Origin, Page, Position, Progress, Resume, Rows, append_sort_key,
    write_sort_key,
};
use crate::item::Item;
use crate::value::{KeyValue, Value};

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
    /// How many rows a page takes: a stream stops there, and a sort holds no more.
    pub page_rows_max: Option<usize>,
    /// How many bytes a page takes, after which a stream stops.
    pub page_bytes_max: usize,
    /// Where earlier pages stopped.
    pub resume: Option<Resume>,
    /// The most bytes that may be held for sorting, grouping and finding duplicates.
    pub held_bytes_max: usize,
    /// The most steps (rows of JOINs and subqueries, parts of expressions) that one item may take.
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
            page_bytes_max: 16 << 20,
            resume: None,
            held_bytes_max: 64 << 20,
            steps_max: 50_000_000,
        }
    }
}

impl Context {
    /// For the query within `FROM (…)`, whose rows make no pages. If the outer one passes them on, it goes on after the last of them;
    /// otherwise that needs all of them again.
    fn for_inner(&self, outer: &Compiled, inner: &Compiled) -> Self {
        let resume = self.resume.as_ref().filter(|_| outer.passes_on());
        let resume = resume.and_then(|resume| resume.of_inner(inner.comes_by_item()));
        Self { resume, page_rows_max: None, page_bytes_max: usize::MAX, ..self.clone() }
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
    /// The rows at hand fill a page, and the item may have more: take them, and resume after the
    /// position of the last of them, from the same item on.
    Full,
    /// No further item can change the result.
    Done,
}

/// A query on its way through the items.
pub struct Pipeline {
    /// For `FROM (SELECT …)`: the query whose rows are the items of this one.
    inner: Option<Box<Pipeline>>,
    /// For an inner query: what of the counts is for the item of the last row, which is to come once more.
    of_item: Option<Progress>,
    /// Whether the last rows filled a page before all that was held back had come.
    full: bool,
    query: Arc<Compiled>,
    gather: Gather,
    host: Host,
    udfs: Option<Arc<dyn Udfs>>,
}

impl Pipeline {
    /// Starts a query.
    pub fn new(query: Arc<Compiled>, context: &Context) -> Self {
        let inner = query.inner.as_ref().map(|inner| {
            let mut pipeline = Self::new(inner.clone(), &context.for_inner(&query, inner));
            if query.passes_on() && context.page_rows_max.is_some() {
                pipeline.gather = pipeline.gather.in_lasting_order();
            }
            Box::new(pipeline)
        });
        let mut gather = Gather::new(&query.block, context.held_bytes_max);
        if context.sorted_input {
            gather = gather.sorted_input();
        }
        if let Some(resume) = &context.resume {
            gather = gather.resume(&query.block, resume);
        }
        let rows_max = context.page_rows_max.unwrap_or(usize::MAX);
        let gather = gather.page(Page { rows_max, bytes_max: context.page_bytes_max });
        let host = Host::new(context.now_millis, context.seed, context.steps_max);
        let of_item = context.resume.as_ref().and_then(|resume| resume.of_item);
        Self { inner, of_item, full: false, query, gather, host, udfs: context.udfs.clone() }
    }

    /// Takes in an item: its compact JSON text, and its ordinal, which orders rows that are
    /// otherwise equal.
    pub fn push(&mut self, item: &[u8], ordinal: u64) -> Result<Flow> {
        self.push_from(item, ordinal, 0)
    }

    /// Takes in an item of which earlier pages have given the first rows.
    pub fn push_from(&mut self, item: &[u8], ordinal: u64, rows: u32) -> Result<Flow> {
        self.gather.begin_at(rows);
        if self.gather.is_done() || !self.query.reads_items() {
            return Ok(Flow::Done);
        }
        let Some(inner) = &mut self.inner else {
            let origin = Origin { ordinal, ..Origin::default() };
            return self.row_by_row(item, &origin, &mut 0);
        };
        if rows > 0 {
            inner.read_once_more();
        }
        let before = inner.progress();
        let flow = inner.push(item, ordinal)?;
        let rows = inner.take_rows();
        let awaits_item = inner.awaits_item();
        match self.outer(&rows, ordinal, before)? {
            Flow::More if awaits_item => Ok(Flow::More),
            Flow::More => Ok(flow),
            ended => Ok(ended),
        }
    }

    /// The next item is that of the last row.
    fn read_once_more(&mut self) {
        if let Some(progress) = self.of_item.take() {
            self.gather.uncount(progress);
        }
        if let Some(inner) = &mut self.inner {
            inner.read_once_more();
        }
    }

    /// Takes in so many items that meet WHERE, of a query that only counts them ([`crate::Plan::counts_only`]).
    pub fn push_count(&mut self, items: u64) {
        self.gather.count(&self.query.block, items);
    }

    /// Whether the item of the last row has yet to come, which after a split may be after others.
    fn awaits_item(&self) -> bool {
        self.of_item.is_some() || self.inner.as_ref().is_some_and(|inner| inner.awaits_item())
    }

    /// Takes in rows of the inner query, which had come so far before them. Those of an item are numbered on; others have places.
    fn outer(&mut self, rows: &Rows, ordinal: u64, before: Progress) -> Result<Flow> {
        let Some(inner) = &self.inner else { return Ok(Flow::More) };
        let (by_item, now) = (inner.query.comes_by_item(), inner.progress());
        let counts = self.query.passes_on() && !inner.query.is_item_by_item();
        let mut of_item = 0;
        for (n, (row, position)) in rows.iter().zip(rows.positions()).enumerate() {
            if counts {
                let to_come = (rows.len() - 1 - n) as u64;
                let with = Progress { given: now.given.saturating_sub(to_come), ..now };
                let inner = [InnerProgress { before, with }];
                self.gather.made_of([&inner[..], &position.inner].concat());
            }
            let flow = match by_item {
                true => {
                    let origin = Origin { ordinal, ..Origin::default() };
                    self.row_by_row(row, &origin, &mut of_item)?
                }
                false => {
                    let origin = Origin { row: position.to_key(), ordinal: 0 };
                    self.row_by_row(row, &origin, &mut 0)?
                }
            };
            if flow != Flow::More {
                return Ok(flow);
            }
        }
        Ok(Flow::More)
    }

    /// Takes in the rows of an item, and numbers them on.
    fn row_by_row(&mut self, item: &[u8], origin: &Origin, row: &mut u32) -> Result<Flow> {
        let Self { query, gather, host, udfs, .. } = self;
        host.refill();
        let block = &query.block;
        let mut env = Env::new(Item::new(item, &query.fields), query.slots, host);
        env.udfs = udfs.as_deref();
        gather.item(block, &mut env)?;
        // Numbered before the filter, which a client that resumes may narrow.
        let more = env.for_each_source(&block.sources, &mut |env| {
            *row += 1;
            let passes = env.passes(block.filter.as_ref())?;
            if passes { gather.row(block, env, origin, *row - 1) } else { Ok(true) }
        })?;
        Ok(match more {
            true => Flow::More,
            false if gather.is_done() => Flow::Done,
            false => Flow::Full,
        })
    }

    /// The rows that are ready.
    pub fn take_rows(&mut self) -> Rows {
        self.gather.take_rows()
    }

    /// There are no more items: the remaining rows.
    pub fn finish(&mut self) -> Result<Rows> {
        if !self.query.reads_items() {
            self.row_by_row(b"{}", &Origin::default(), &mut 0)?;
        }
        if let Some(inner) = &mut self.inner {
            let before = inner.progress();
            let rows = inner.finish()?;
            self.full = self.outer(&rows, 0, before)? == Flow::Full;
        }
        let Self { query, gather, host, udfs, .. } = self;
        host.refill();
        let mut env = Env::new(Item::new(b"{}", &query.fields), query.slots, host);
        env.udfs = udfs.as_deref();
        gather.finish(&query.block, &mut env)?;
        Ok(gather.take_rows())
    }

    /// Whether a finished query has rows left for another page.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// What a finished query has measured ranks by, so that later pages give them the same order; empty where nothing is ranked.
    pub fn measure(&self) -> Vec<u8> {
        self.gather.measure()
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

    /// The ORDER BY keys of an item in their sortable form, for queries that sort items and not rows of them.
    pub fn sort_key(&self, item: &[u8], context: &Context) -> Result<Vec<u8>> {
        let host = Host::new(context.now_millis, context.seed, context.steps_max);
        let mut env = Env::new(Item::new(item, &self.fields), self.slots, &host);
        let mut key = Vec::new();
        write_sort_key(&self.block.order, &mut env, &mut key)?;
        Ok(key)
    }

    /// The ORDER BY keys that stand in a position, as far as they can be read: up to the first array or object.
    pub fn sort_values(&self, position: &Position) -> Vec<KeyValue> {
        let (mut bytes, mut values) = (position.key.clone(), Vec::new());
        let mut inverted = false;
        for sort in &self.block.order {
            if sort.descending != inverted {
                bytes.iter_mut().for_each(|byte| *byte = !*byte);
                inverted = sort.descending;
            }
            let Some((value, rest)) = KeyValue::read(&bytes) else { break };
            bytes = rest.to_vec();
            values.push(value);
        }
        values
    }

    /// The place in the order of rows at which a client asks to resume: right before all rows with
    /// these ORDER BY keys, or right after them. Missing keys are undefined. Ordinals count from 1.
    pub fn position(&self, keys: &[Option<Json>], after_them: bool) -> Position {
        let mut key = Vec::new();
        for (i, sort) in self.block.order.iter().enumerate() {
            let value = keys.get(i).and_then(Option::as_ref);
            let value = value.map_or(Value::Undefined, Value::literal);
            append_sort_key(&value, sort.descending, &mut key);
        }
        let ordinal = if after_them { u64::MAX } else { 0 };
        Position { key, ordinal, row: u32::MAX, inner: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Options;

    #[test]
    fn a_pipeline_can_move_between_threads() {
        fn is_send<T: Send>() {}
        is_send::<Pipeline>();
        is_send::<Compiled>();
    }

    #[test]
    fn a_sort_resumes_at_keys_that_a_client_sends() {
        let text = "SELECT VALUE c.id FROM c ORDER BY c.k DESC";
        let query = Arc::new(Compiled::new(text, &[], &Options::default()).unwrap());
        let resumed = |after_them| {
            let position = query.position(&[Some(json!(2))], after_them);
            let resume = Some(Resume::new(Progress::default(), position, Vec::new()));
            let mut pipeline =
                Pipeline::new(query.clone(), &Context { resume, ..Default::default() });
            for (id, k) in [(1, 2), (2, 1), (3, 3), (4, 2)] {
                let item = json!({"id": id, "k": k}).to_string();
                assert_eq!(pipeline.push(item.as_bytes(), id).unwrap(), Flow::More);
            }
            let rows = pipeline.finish().unwrap();
            rows.iter().map(|row| String::from_utf8(row.to_vec()).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(resumed(false), ["1", "4", "2"]);
        assert_eq!(resumed(true), ["2"]);
    }

    #[test]
    fn memory_and_work_are_bounded() {
        let run = |text: &str, context: Context| {
            let query = Arc::new(Compiled::new(text, &[], &Options::default()).unwrap());
            let mut pipeline = Pipeline::new(query, &context);
            for ordinal in 1..1000 {
                let item = json!({"id": ordinal, "l": [1, 2, 3, 4, 5, 6, 7, 8, 9]}).to_string();
                pipeline.push(item.as_bytes(), ordinal)?;
            }
            pipeline.finish().map(|rows| rows.len())
        };
        let small = || Context { held_bytes_max: 10_000, steps_max: 1000, ..Default::default() };
        let blocking = ["SELECT * FROM c ORDER BY c.id", "SELECT DISTINCT c.id FROM c"];
        for text in blocking.into_iter().chain(["SELECT c.id FROM c GROUP BY c.id"]) {
            assert!(matches!(run(text, small()), Err(crate::Error::Memory { .. })), "{text}");
        }
        assert_eq!(run("SELECT TOP 5 * FROM c ORDER BY c.id", small()).unwrap(), 5);
        let joins = "SELECT VALUE 1 FROM c JOIN a IN c.l JOIN b IN c.l JOIN d IN c.l JOIN e IN c.l";
        assert!(matches!(run(joins, small()), Err(crate::Error::Work { .. })));
    }
}
