//! Items in the order that ORDER BY asks for, from the index.
//!
//! The terms of one path hold scalars only, so a sort by a path goes in three parts:
//!
//! ```text
//! undefined           the shapes without that property, merged by ordinal
//! null … strings      the terms of the path
//! arrays, objects     the shapes that have one there: few, hopefully; sorted by looking at them
//! ```
//! A composite index has a term for every item, so there one part does. Where a term does not tell its value (a string was cut, an array or
//! object stands in a composite), the items that share it are sorted by looking at them. Ties come by ordinal, also in
//! descending order. What comes from here may have come before, after a continuation: the pipeline drops what it has given.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use model::path::Path;
use query::plan::{Condition, OrderPath};
use query::{Compiled, KeyValue, Position};
use storage::{Direction, Family, Snapshot};

use crate::access::{self, index_path};
use crate::index::{
    COMPOSITE_STRING_BYTES_MAX, Composite, SHAPE_DEPTH, STRING_BYTES_MAX, is_system_property,
    push_component, read_component, shape_prefix, shape_term,
};
use crate::keys::{Key, PartitionId, ordinal_of, term_range};
use crate::record::Record;
use crate::scan::successor;
use crate::writer::parse_stored;
use crate::{Error, Result, Settings};

/// More shapes than this are not worth looking at one by one.
const SHAPES_MAX: usize = 512;

/// Entries that are read at a time where all of a run are needed.
const GATHER_PAGE: usize = 1_024;

/// The order of a query as an index holds it.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    partition: PartitionId,
    /// What keys of the index begin with.
    prefix: Bytes,
    /// Of each value in a term, whether it is stored in the opposite order.
    components: Vec<bool>,
    string_bytes_max: usize,
    /// Whether the index is read from its end.
    backward: bool,
    /// The property, where its terms alone are not all items.
    path: Option<Path>,
    /// The shapes of items and what each has at that property.
    shapes: Vec<(u64, Part)>,
    /// Ranges of keys, in the order of values.
    ranges: Vec<Range<Bytes>>,
    /// Whether items without the property come at all.
    undefined: bool,
    /// Whether WHERE leaves only a part of the index to be read.
    pub restricted: bool,
}

impl Order {
    /// The order of a plan, if an index holds it.
    pub fn choose(
        partition: PartitionId,
        settings: &Settings,
        order: &[OrderPath],
        condition: &Condition,
    ) -> Option<Self> {
        match order {
            [] => None,
            [key] => Self::by_path(partition, settings, key, condition),
            keys => {
                let fits =
                    |composite: &&Composite| composite.kept && fit(composite, keys).is_some();
                let composite = settings.indexing.composites.iter().find(fits)?;
                Some(Self::by_composite(partition, composite, fit(composite, keys)?))
            }
        }
    }

    fn by_path(
        partition: PartitionId,
        settings: &Settings,
        key: &OrderPath,
        condition: &Condition,
    ) -> Option<Self> {
        let name = index_path(settings, &key.path)?;
        let path = Path::parse(key.path.strip_suffix("/?").unwrap_or(&key.path)).ok()?;
        let prefix = term_range(partition, &access::path_term(&name));
        let ranges = condition.ranges_of(&key.path);
        // Every item has these two.
        let always = matches!(path.segments(), [only] if only == "_ts" || only == "id");
        let whole = always || ranges.is_some();
        if !whole && path.segments().len() > SHAPE_DEPTH {
            return None;
        }
        let restricted = ranges.is_some();
        let ranges = match ranges {
            None => vec![prefix.clone()],
            Some(ranges) => {
                ranges.iter().map(|range| access::key_range(partition, &name, range)).collect()
            }
        };
        Some(Self {
            partition,
            prefix: prefix.start,
            components: vec![false],
            string_bytes_max: STRING_BYTES_MAX,
            backward: key.descending,
            path: (!whole).then_some(path),
            shapes: Vec::new(),
            ranges,
            undefined: !condition.requires(&key.path),
            restricted,
        })
    }

    fn by_composite(partition: PartitionId, composite: &Composite, backward: bool) -> Self {
        let prefix = term_range(partition, &access::path_term(&composite.name));
        Self {
            partition,
            prefix: prefix.start.clone(),
            components: composite.paths.iter().map(|path| path.descending).collect(),
            string_bytes_max: COMPOSITE_STRING_BYTES_MAX,
            backward,
            path: None,
            shapes: Vec::new(),
            ranges: vec![prefix],
            undefined: true,
            restricted: false,
        }
    }

    /// The items from a position on, or all, once it is prepared.
    pub fn walk(self, query: Arc<Compiled>, after: Option<&Position>) -> Walk {
        let values = after.map(|after| query.sort_values(after)).unwrap_or_default();
        let mut parts = vec![Part::Terms];
        if self.path.is_some() {
            parts = vec![Part::Undefined, Part::Terms, Part::Compound];
            if self.backward {
                parts.reverse();
            }
            let first = match values.first() {
                None => parts[0],
                Some(KeyValue::Undefined) => Part::Undefined,
                Some(KeyValue::Scalar(_)) => Part::Terms,
                Some(KeyValue::Compound) => Part::Compound,
            };
            parts.retain({
                let mut begun = false;
                move |part| {
                    begun |= *part == first;
                    begun
                }
            });
            if !self.undefined {
                parts.retain(|part| *part != Part::Undefined);
            }
        }
        parts.reverse();
        let mut ranges = self.ranges.clone();
        if !self.backward {
            ranges.reverse();
        }
        let lists = self.shapes_with(Part::Undefined);
        let lists = lists.map(|shape| List::new(self.partition, shape, 0)).collect();
        let mut walk = Walk {
            order: self,
            query,
            parts,
            ranges,
            rest: None,
            run: None,
            lists,
            pending: VecDeque::new(),
            entries: 0,
        };
        if let Some(after) = after {
            walk.begin_at(&values, after.ordinal);
        }
        walk
    }

    /// Looks at which shapes have the property; `false` if there are too many of them to go by the index.
    pub async fn prepare(&mut self, snapshot: &dyn Snapshot) -> Result<bool> {
        let Some(path) = &self.path else { return Ok(true) };
        let Some(shapes) = shapes(snapshot, self.partition).await? else { return Ok(false) };
        let part = |shape: &Shape| match path.find(&shape.sample) {
            None => Part::Undefined,
            Some(value) if value.is_array() || value.is_object() => Part::Compound,
            Some(_) => Part::Terms,
        };
        self.shapes = shapes.iter().map(|shape| (shape.number, part(shape))).collect();
        Ok(true)
    }

    fn shapes_with(&self, part: Part) -> impl Iterator<Item = u64> {
        self.shapes.iter().filter(move |(_, has)| *has == part).map(|(shape, _)| *shape)
    }

    /// The part of a key that decides its place, and whether that tells its value.
    fn run_of(&self, key: &[u8]) -> storage::Result<(usize, bool)> {
        let mut at = self.prefix.len();
        for descending in &self.components {
            let rest = key.get(at..).unwrap_or_default();
            let read = read_component(rest, *descending, self.string_bytes_max);
            let (length, plain) = read.ok_or_else(|| {
                storage::Error::Corrupt(format!(
                    "the index key {key:02x?} does not hold its values"
                ))
            })?;
            at += length;
            if !plain {
                return Ok((at, false));
            }
        }
        Ok((at, true))
    }
}

/// Refuses an order that no index of the policy holds, as the service does. Every item is indexed by its id and its server-set properties.
pub(crate) fn check(settings: &Settings, order: &[OrderPath]) -> Result<()> {
    let refuse = |why: &str| Err(Error::Invalid(why.into()));
    match order {
        [] => Ok(()),
        [key] => {
            let name = key.path.trim_start_matches('/').trim_end_matches("/?");
            let always = name == "id" || is_system_property(name);
            match always || index_path(settings, &key.path).is_some() {
                true => Ok(()),
                false => refuse(
                    "The index path corresponding to the specified order-by item is excluded.",
                ),
            }
        }
        keys => match settings.indexing.composites.iter().any(|c| fit(c, keys).is_some()) {
            true => Ok(()),
            false => refuse(
                "The order by query does not have a corresponding composite index that it can be served from.",
            ),
        },
    }
}

/// Whether a composite index serves an order: forward (`false`), backward (`true`), or not at all.
pub(crate) fn fit(composite: &Composite, keys: &[OrderPath]) -> Option<bool> {
    let path = |path: &Path| query::plan::scalar_path(path.segments());
    let paths = composite.paths.iter().zip(keys);
    let same = composite.paths.len() == keys.len()
        && paths.clone().all(|(own, key)| path(&own.path) == key.path);
    let mut backward = paths.map(|(own, key)| own.descending != key.descending);
    let first = backward.next().filter(|_| same)?;
    backward.all(|other| other == first).then_some(first)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Undefined,
    Terms,
    Compound,
}

/// The next items of a walk.
pub(crate) enum Step {
    /// These, in this order.
    Sorted(Vec<u64>),
    /// These, to be sorted by looking at them and handed back with [`Walk::put_back`].
    Unsorted(Vec<u64>),
    /// There are no more.
    End,
}

/// A walk through an order.
pub(crate) struct Walk {
    order: Order,
    query: Arc<Compiled>,
    /// What is still to come, the next last.
    parts: Vec<Part>,
    /// Ranges of terms still to come, the next last.
    ranges: Vec<Range<Bytes>>,
    /// What is left of the range at hand.
    rest: Option<Range<Bytes>>,
    /// While the index is read backward: the items of one value, which come forward.
    run: Option<Range<Bytes>>,
    /// Of the items without the property: what is left of each of their shapes.
    lists: Vec<List>,
    /// Sorted by looking at them.
    pending: VecDeque<u64>,
    /// Entries read so far.
    pub entries: usize,
}

impl Walk {
    /// Goes to where the items of these values begin.
    fn begin_at(&mut self, values: &[KeyValue], ordinal: u64) {
        match values.first() {
            Some(KeyValue::Undefined) if self.order.path.is_some() => {
                let (partition, shapes) =
                    (self.order.partition, self.order.shapes_with(Part::Undefined));
                self.lists = shapes.map(|shape| List::new(partition, shape, ordinal)).collect();
                return;
            }
            Some(KeyValue::Compound) if self.order.path.is_some() => return,
            _ => {}
        }
        let order = &self.order;
        let mut prefix = order.prefix.to_vec();
        let mut plain = values.len() == order.components.len();
        for (value, descending) in values.iter().zip(&order.components) {
            let start = prefix.len();
            match value {
                KeyValue::Compound => {
                    plain = false;
                    break;
                }
                KeyValue::Undefined => push_component(&mut prefix, None, *descending, 0),
                KeyValue::Scalar(value) => {
                    push_component(&mut prefix, Some(value), *descending, order.string_bytes_max);
                }
            }
            let read = read_component(&prefix[start..], *descending, order.string_bytes_max);
            if !read.is_some_and(|(_, plain)| plain) {
                plain = false;
                break;
            }
        }
        let end = storage::keycode::prefix_end(&prefix);
        let first: Bytes = match plain {
            true => [&prefix[..], &ordinal.to_be_bytes()].concat().into(),
            false => prefix.clone().into(),
        };
        if order.backward {
            // Of what is not told apart all come again, and what was given is dropped.
            let below = if plain { Bytes::from(prefix) } else { end.clone() };
            self.ranges.retain_mut(|range| {
                range.end = range.end.clone().min(below.clone());
                range.start < range.end
            });
            self.run = plain.then_some(first..end);
        } else {
            self.ranges.retain_mut(|range| {
                range.start = range.start.clone().max(first.clone());
                range.start < range.end
            });
        }
    }

    /// The next items, about `limit` of them.
    pub async fn next(&mut self, snapshot: &dyn Snapshot, limit: usize) -> Result<Step> {
        loop {
            if !self.pending.is_empty() {
                let count = limit.min(self.pending.len());
                return Ok(Step::Sorted(self.pending.drain(..count).collect()));
            }
            let Some(part) = self.parts.last().copied() else { return Ok(Step::End) };
            let step = match part {
                Part::Undefined => self.next_undefined(snapshot, limit).await?,
                Part::Terms => self.next_terms(snapshot, limit).await?,
                Part::Compound => {
                    let compound = self.all_of(snapshot, Part::Compound).await?;
                    self.parts.pop();
                    Some(Step::Unsorted(compound))
                }
            };
            match step {
                None => {
                    self.parts.pop();
                }
                Some(Step::Sorted(ordinals) | Step::Unsorted(ordinals)) if ordinals.is_empty() => {}
                Some(step) => return Ok(step),
            }
        }
    }

    /// The ORDER BY keys of an item.
    pub fn sort_key(&self, body: &[u8]) -> Result<Vec<u8>> {
        Ok(self.query.sort_key(body, &query::Context::default())?)
    }

    /// Takes back what [`Step::Unsorted`] gave, sorted.
    pub fn put_back(&mut self, sorted: Vec<u64>) {
        self.pending = sorted.into();
    }

    async fn next_terms(&mut self, snapshot: &dyn Snapshot, limit: usize) -> Result<Option<Step>> {
        if let Some(run) = self.run.take() {
            let page = self.scan(snapshot, &run, Direction::Forward, limit).await?;
            if let (Some((last, _)), true) = (page.last(), page.len() == limit) {
                self.run = Some(successor(last)..run.end);
            }
            return Ok(Some(Step::Sorted(ordinals(&page)?)));
        }
        let Some(rest) = self.rest.take().or_else(|| self.ranges.pop()) else { return Ok(None) };
        match self.order.backward {
            false => self.forward(snapshot, rest, limit).await.map(Some),
            true => self.backward(snapshot, rest, limit).await.map(Some),
        }
    }

    async fn forward(
        &mut self,
        snapshot: &dyn Snapshot,
        rest: Range<Bytes>,
        limit: usize,
    ) -> Result<Step> {
        let page = self.scan(snapshot, &rest, Direction::Forward, limit).await?;
        let mut sorted = Vec::with_capacity(page.len());
        for (key, _) in &page {
            let (end, plain) = self.order.run_of(key)?;
            if plain {
                sorted.push(ordinal_of(key)?);
                continue;
            }
            if !sorted.is_empty() {
                self.rest = Some(key.clone()..rest.end);
                return Ok(Step::Sorted(sorted));
            }
            let run = prefix_range(key.slice(..end));
            self.rest = Some(run.end.clone()..rest.end).filter(|rest| rest.start < rest.end);
            return Ok(Step::Unsorted(self.gather(snapshot, run).await?));
        }
        if let (Some((last, _)), true) = (page.last(), page.len() == limit) {
            self.rest = Some(successor(last)..rest.end);
        }
        Ok(Step::Sorted(sorted))
    }

    async fn backward(
        &mut self,
        snapshot: &dyn Snapshot,
        rest: Range<Bytes>,
        limit: usize,
    ) -> Result<Step> {
        let page = self.scan(snapshot, &rest, Direction::Backward, limit).await?;
        let below = |run: &[u8]| {
            let end = Bytes::copy_from_slice(run);
            Some(rest.start.clone()..end).filter(|rest| rest.start < rest.end)
        };
        let mut sorted: Vec<u64> = Vec::with_capacity(page.len());
        // Where the run at hand begins in `sorted`, and its part of the key.
        let (mut begin, mut run) = (0, &[][..]);
        for (key, _) in &page {
            let (end, plain) = self.order.run_of(key)?;
            if key[..end] != *run {
                sorted[begin..].reverse();
                begin = sorted.len();
                run = &key[..end];
                if !plain {
                    if !sorted.is_empty() {
                        self.rest = Some(rest.start.clone()..prefix_range(key.slice(..end)).end);
                        return Ok(Step::Sorted(sorted));
                    }
                    self.rest = below(run);
                    let all = prefix_range(key.slice(..end));
                    return Ok(Step::Unsorted(self.gather(snapshot, all).await?));
                }
            }
            sorted.push(ordinal_of(key)?);
        }
        if page.len() < limit {
            sorted[begin..].reverse();
            return Ok(Step::Sorted(sorted));
        }
        // The last run may go on below this page.
        let all = prefix_range(Bytes::copy_from_slice(run));
        if begin == 0 {
            sorted.clear();
            self.rest = below(run);
            self.run = Some(all);
        } else {
            sorted.truncate(begin);
            self.rest = Some(rest.start.clone()..all.end);
        }
        Ok(Step::Sorted(sorted))
    }

    async fn next_undefined(
        &mut self,
        snapshot: &dyn Snapshot,
        limit: usize,
    ) -> Result<Option<Step>> {
        for list in self.lists.iter_mut().filter(|list| list.page.is_empty()) {
            list.read(snapshot, limit).await?;
            self.entries += list.page.len();
        }
        let mut merged = Vec::with_capacity(limit);
        while merged.len() < limit {
            let first = self.lists.iter_mut().filter(|list| !list.page.is_empty());
            let Some(first) = first.min_by_key(|list| list.page[0]) else { break };
            merged.extend(first.page.pop_front());
            if first.page.is_empty() && first.rest.is_some() {
                break;
            }
        }
        Ok((!merged.is_empty()).then_some(Step::Sorted(merged)))
    }

    /// All items whose shape has this at the path.
    async fn all_of(&mut self, snapshot: &dyn Snapshot, part: Part) -> Result<Vec<u64>> {
        let mut all = Vec::new();
        for shape in self.order.shapes_with(part).collect::<Vec<_>>() {
            let range = term_range(self.order.partition, &shape_term(shape));
            all.extend(self.gather(snapshot, range).await?);
        }
        Ok(all)
    }

    async fn gather(&mut self, snapshot: &dyn Snapshot, range: Range<Bytes>) -> Result<Vec<u64>> {
        let mut all = Vec::new();
        let mut rest = Some(range);
        while let Some(range) = rest.take() {
            let page = self.scan(snapshot, &range, Direction::Forward, GATHER_PAGE).await?;
            all.extend(ordinals(&page)?);
            if let (Some((last, _)), true) = (page.last(), page.len() == GATHER_PAGE) {
                rest = Some(successor(last)..range.end);
            }
        }
        Ok(all)
    }

    async fn scan(
        &mut self,
        snapshot: &dyn Snapshot,
        range: &Range<Bytes>,
        direction: Direction,
        limit: usize,
    ) -> Result<Vec<storage::Pair>> {
        let page = snapshot.scan(Family::Index, range.clone(), direction, limit).await?;
        self.entries += page.len();
        Ok(page)
    }
}

/// The items of one shape, in order.
struct List {
    page: VecDeque<u64>,
    rest: Option<Range<Bytes>>,
}

impl List {
    fn new(partition: PartitionId, shape: u64, from: u64) -> Self {
        let term = shape_term(shape);
        let start = Key::Term { partition, term: &term, ordinal: from }.encode();
        Self { page: VecDeque::new(), rest: Some(start..term_range(partition, &term).end) }
    }

    async fn read(&mut self, snapshot: &dyn Snapshot, limit: usize) -> Result<()> {
        let Some(rest) = self.rest.take() else { return Ok(()) };
        let page = snapshot.scan(Family::Index, rest.clone(), Direction::Forward, limit).await?;
        if let (Some((last, _)), true) = (page.last(), page.len() == limit) {
            self.rest = Some(successor(last)..rest.end);
        }
        self.page = ordinals(&page)?.into();
        Ok(())
    }
}

/// A shape that items have, and one of them.
pub(crate) struct Shape {
    pub number: u64,
    pub sample: serde_json::Value,
}

/// The shapes of a partition's items, dead ones included; `None` if there are too many. Read from the end, where items have not yet been purged.
pub(crate) async fn shapes(
    snapshot: &dyn Snapshot,
    partition: PartitionId,
) -> Result<Option<Vec<Shape>>> {
    let mut rest = term_range(partition, &shape_prefix());
    let mut shapes = Vec::new();
    loop {
        let last = snapshot.scan(Family::Index, rest.clone(), Direction::Backward, 1).await?;
        let Some((key, _)) = last.first() else { return Ok(Some(shapes)) };
        if shapes.len() == SHAPES_MAX {
            return Ok(None);
        }
        let (term, ordinal) = (&key[..key.len().saturating_sub(8)], ordinal_of(key)?);
        let number = ordinal_of(term)?;
        let key = Key::Item { partition, ordinal }.encode();
        let value = snapshot.get(Family::Item, &key).await?.ok_or_else(|| {
            storage::Error::Corrupt(format!(
                "an index entry names item {ordinal}, which is missing"
            ))
        })?;
        shapes.push(Shape { number, sample: parse_stored(&Record::decode(&key, value)?)? });
        rest.end = Bytes::copy_from_slice(term);
    }
}

fn ordinals(page: &[storage::Pair]) -> storage::Result<Vec<u64>> {
    page.iter().map(|(key, _)| ordinal_of(key)).collect()
}

fn prefix_range(prefix: Bytes) -> Range<Bytes> {
    let end = storage::keycode::prefix_end(&prefix);
    prefix..end
}
