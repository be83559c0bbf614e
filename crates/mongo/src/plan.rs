//! Which way to the documents of a filter: by `_id`, by an index, or through the whole collection.
//!
//! What is chosen leads to all matches and maybe to more: the filter is asked again of each document.

use std::ops::Range;

use bson::{Bson, RawBsonRef, RawDocument, RawDocumentBuf};
use db::documents::Route;

use crate::language::filter::{Bounds, Filter, Interval, after};
use crate::language::keycode;
use crate::language::sort::Sort;
use crate::language::vars::Vars;
use crate::layout::{self, Collection, Index, KEY_BYTES_MAX, Kind, PLAIN, SEVERAL};

/// Ranges of an index that one query reads at most.
const RANGES_MAX: usize = 1_000;

/// A way to the documents.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub route: Route,
    /// The index that it goes by.
    pub index: Option<String>,
    /// Whether it is one document, by its `_id`.
    pub point: bool,
    /// Whether the documents come in the order that was asked for.
    pub sorted: bool,
    /// But only if the first so many ranges of the route hold nothing.
    pub unless: usize,
}

/// What is to be found.
pub(crate) struct Question<'a> {
    pub collection: &'a Collection,
    pub filter: &'a Filter,
    pub sort: Option<&'a Sort>,
    /// The name of the index that must be used.
    pub hint: Option<&'a str>,
    /// Strings are not compared by their bytes: no index has them in that order.
    pub collated: bool,
}

impl Plan {
    fn all() -> Self {
        Self { route: Route::All, index: None, point: false, sorted: false, unless: 0 }
    }

    /// By ranges of an index, in no order.
    fn by_terms(index: &str, ranges: Vec<Range<Vec<u8>>>) -> Self {
        let route = Route::Terms { ranges, backward: false };
        Self { route, index: Some(index.to_owned()), point: false, sorted: false, unless: 0 }
    }

    /// Whether its index is read from the end.
    pub fn is_backward(&self) -> bool {
        matches!(
            self.route,
            Route::Terms { backward: true, .. } | Route::Named { backward: true, .. }
        )
    }

    /// The best way.
    pub fn choose(question: &Question<'_>) -> Self {
        if question.hint == Some("$natural") {
            return Self::all();
        }
        if question.hint.is_none_or(|hint| hint == "_id_")
            && let Some(plan) = by_id(question)
        {
            return plan;
        }
        let bounds = question.filter.bounds();
        let mut ways: Vec<(usize, Self)> = Vec::new();
        for index in &question.collection.indexes {
            if question.hint.is_some_and(|hint| hint != index.name) || !is_usable(index, question) {
                continue;
            }
            ways.extend(by_index(index, question, &bounds));
        }
        if question.hint.is_none() && bounds.iter().any(|bounds| bounds.path == "_id") {
            // A part of the collection is less to read than all of it in order.
            ways.retain(|(score, _)| *score > 0);
        }
        let best = ways.into_iter().max_by_key(|(score, plan)| (*score, plan.sorted));
        let best = best.map(|(_, plan)| plan);
        best.or_else(|| by_name_range(question, &bounds)).unwrap_or_else(Self::all)
    }
}

/// The way by an index, and how good it is; none if it is no better than reading everything.
fn by_index(index: &Index, question: &Question<'_>, bounds: &[Bounds]) -> Option<(usize, Plan)> {
    if let Kind::Wildcard(root) = &index.kind {
        let (score, ranges) = wildcard_ranges(index, root, bounds)?;
        return Some((score, Plan::by_terms(&index.name, ranges)));
    }
    if let Kind::Cells(path) = &index.kind {
        let ranges = cell_ranges(index, path.as_str(), question.filter)?;
        return Some((2, Plan::by_terms(&index.name, ranges)));
    }
    if index.kind != Kind::Fields {
        return None;
    }
    // Two conditions on one path may be met by two elements of an array, but not by one value.
    let several = ranges(index, SEVERAL, bounds)?;
    let mut narrow: Vec<Bounds> = Vec::new();
    for bounds in bounds {
        match narrow.iter_mut().find(|other| other.path == bounds.path) {
            Some(other) => *other = other.and(bounds),
            None => narrow.push(bounds.clone()),
        }
    }
    let plain = match index.sectioned {
        true => ranges(index, PLAIN, &narrow)?,
        false => Ranges { list: Vec::new(), ..several.clone() },
    };
    let direction = question
        .sort
        .filter(|_| index.sectioned && !question.collated && plain.list.len() <= 1)
        .and_then(|sort| direction(index, plain.equal, sort, &narrow));
    if plain.score == 0 && direction.is_none() && question.hint.is_none() {
        return None;
    }
    let unless = several.list.len();
    let ranges = [several.list, plain.list].concat();
    let mut plan = Plan::by_terms(&index.name, ranges);
    if let Some(backward) = direction {
        (plan.sorted, plan.unless) = (true, unless);
        if let Route::Terms { backward: way, .. } = &mut plan.route {
            *way = backward;
        }
    }
    Some((plain.score, plan))
}

/// Whether an index, read backwards or not, has documents in an order: after the fields that are equal to one value, its fields must be
/// those of the order.
fn direction(index: &Index, equal: usize, sort: &Sort, bounds: &[Bounds]) -> Option<bool> {
    let fixed = &index.fields[..equal];
    let is_fixed = |path: &str| fixed.iter().any(|(other, _)| other.as_str() == path);
    debug_assert!(fixed.iter().all(|(path, _)| bounds.iter().any(|b| b.path == path.as_str())));
    let mut rest = index.fields[equal..].iter();
    let mut backward = None;
    for field in sort.fields().iter().filter(|field| !is_fixed(field.path.as_str())) {
        let (path, ascends) = rest.next()?;
        let opposite = field.ascending != *ascends;
        if !field.is_by_value()
            || path.as_str() != field.path.as_str()
            || backward.is_some_and(|backward| backward != opposite)
        {
            return None;
        }
        backward = Some(opposite);
    }
    Some(backward.unwrap_or(false))
}

/// `_id` equal to one value, or to one of several.
fn by_id(question: &Question<'_>) -> Option<Plan> {
    let id = question.filter.id()?;
    let id = id.as_raw_bson_ref();
    let text =
        matches!(id, RawBsonRef::String(_) | RawBsonRef::Symbol(_) | RawBsonRef::Document(_));
    if question.collated && text || matches!(id, RawBsonRef::RegularExpression(_)) {
        return None;
    }
    let route = Route::Names(vec![layout::name_of(id).into()]);
    let index = Some("_id_".into());
    Some(Plan { route, index, point: true, sorted: true, unless: 0 })
}

/// Names are keys of `_id` in order: ranges of it, and sorts by it.
fn by_name_range(question: &Question<'_>, bounds: &[Bounds]) -> Option<Plan> {
    let sort = question.sort.filter(|_| !question.collated).map(Sort::fields).unwrap_or_default();
    let by_id = matches!(sort, [field] if field.path.as_str() == "_id");
    let backward = by_id && !sort[0].ascending;
    let all = layout::names();
    // No `_id` is an array: all conditions are about one value.
    let bound = bounds.iter().filter(|bounds| bounds.path == "_id").cloned();
    let bound = bound.reduce(|one, two| one.and(&two));
    let sorted = by_id || sort.is_empty();
    let plan = |range, backward| {
        let route = Route::Named { range, backward };
        Plan { route, index: Some("_id_".into()), point: false, sorted, unless: 0 }
    };
    match &bound {
        Some(Bounds { intervals, .. }) if intervals.len() == 1 => {
            let Interval { from, to } = &intervals[0];
            let start = [&all.start[..], from].concat();
            let end = if to.is_empty() { all.end } else { [&all.start[..], to].concat() };
            Some(plan(start..end, backward))
        }
        _ if by_id || question.hint == Some("_id_") => Some(plan(all, backward)),
        _ => None,
    }
}

fn is_usable(index: &Index, question: &Question<'_>) -> bool {
    let hidden = index.spec.get_bool("hidden").unwrap_or(false);
    let collated = question.collated || index.spec.contains_key("collation");
    index.ready && !hidden && !collated && (index.partial.is_none() || is_implied(index, question))
}

/// Whether every match of the filter has an entry in a partial index: each of its conditions must hold for all that the filter
/// allows at the same path.
fn is_implied(index: &Index, question: &Question<'_>) -> bool {
    let Ok(partial) = index.spec.get_document("partialFilterExpression") else { return false };
    let asked = question.filter.bounds();
    partial.iter().all(|(path, condition)| {
        let at_path = || asked.iter().filter(|bounds| bounds.path == *path);
        if let Bson::Document(condition) = condition
            && condition.len() == 1
            && condition.get_bool("$exists").unwrap_or(false)
        {
            return at_path().any(|bounds| !bounds.intervals.iter().any(covers_missing));
        }
        let mut alone = bson::Document::new();
        alone.insert(path, condition.clone());
        let Ok(alone) = RawDocumentBuf::try_from(&alone) else { return false };
        let vars = Vars::new(bson::DateTime::from_millis(0));
        let Ok(alone) = Filter::parse(&alone, &vars) else { return false };
        let wanted = alone.bounds();
        let holds = |wanted: &Bounds| {
            at_path().any(|asked| {
                asked.intervals.iter().all(|inner| {
                    wanted.intervals.iter().any(|outer| {
                        outer.from <= inner.from
                            && (outer.to.is_empty() || !inner.to.is_empty() && inner.to <= outer.to)
                    })
                })
            })
        };
        !wanted.is_empty() && wanted.iter().all(holds)
    })
}

/// The way between two keys of an index, in its order: what `min` and `max` ask for.
pub(crate) fn between(
    collection: &Collection,
    index: &str,
    min: Option<&RawDocument>,
    max: Option<&RawDocument>,
) -> Option<Plan> {
    let plan = |route| Plan {
        route,
        index: Some(index.to_owned()),
        point: false,
        sorted: false,
        unless: 0,
    };
    let values = |keys: &RawDocument, wanted: &[&str]| {
        let mut out = Vec::new();
        for (element, wanted) in keys.iter().zip(wanted) {
            let (name, value) = element.ok()?;
            (name.as_str() == *wanted).then_some(())?;
            out.push(keycode::key(value));
        }
        (out.len() == wanted.len()).then_some(out)
    };
    if index == "_id_" {
        let all = layout::names();
        let name =
            |keys: &RawDocument| Some([&all.start[..], &values(keys, &["_id"])?[0]].concat());
        let start = min.map_or(Some(all.start.clone()), name)?;
        let end = max.map_or(Some(all.end.clone()), name)?;
        return Some(plan(Route::Named { range: start..end, backward: false }));
    }
    let found = collection.index(index)?;
    let names: Vec<&str> = found.fields.iter().map(|(path, _)| path.as_str()).collect();
    let range = |section: u8| {
        let prefix = found.section(section);
        let key = |keys: &RawDocument| {
            let mut term = prefix.clone();
            for (key, (_, ascends)) in values(keys, &names)?.iter().zip(&found.fields) {
                layout::push_key(&mut term, key, *ascends);
            }
            Some(term)
        };
        Some(min.map_or(Some(prefix.clone()), key)?..max.map_or(Some(after(&prefix)), key)?)
    };
    let mut ranges = vec![range(SEVERAL)?];
    if found.sectioned {
        ranges.push(range(PLAIN)?);
    }
    Some(plan(Route::Terms { ranges, backward: false }))
}

/// The ranges of an index of cells that hold all matches: what is inside the cells of the region, and what is kept under larger ones around them.
fn cell_ranges(index: &Index, path: &str, filter: &Filter) -> Option<Vec<Range<Vec<u8>>>> {
    let (_, cells) = filter.cells().into_iter().find(|(found, _)| *found == path)?;
    let mut ranges = std::collections::BTreeSet::new();
    for cell in &cells {
        let inside = index.in_cell(cell);
        ranges.insert((inside.clone(), after(&inside)));
        for length in 0..cell.len() {
            let around = index.cell(&cell[..length]);
            ranges.insert((around.clone(), after(&around)));
        }
    }
    Some(ranges.into_iter().map(|(from, to)| from..to).collect())
}

/// The ranges of a wildcard index that hold all matches, and how good they are.
fn wildcard_ranges(
    index: &Index,
    root: &str,
    bounds: &[Bounds],
) -> Option<(usize, Vec<Range<Vec<u8>>>)> {
    let inside = |path: &str| {
        let rest = path.strip_prefix(root);
        rest.is_some_and(|rest| root.is_empty() || rest.is_empty() || rest.starts_with('.'))
    };
    let found = bounds
        .iter()
        .filter(|bounds| inside(&bounds.path) && !bounds.intervals.iter().any(covers_missing));
    let found = found.min_by_key(|bounds| (!bounds.points, bounds.intervals.len()))?;
    let prefix = index.wildcard_prefix(&found.path);
    let ranges = found.intervals.iter().map(|interval| range(&prefix, interval, true));
    Some((1 + usize::from(found.points), ranges.collect()))
}

/// Ranges of a section of an index that hold all matches in it.
#[derive(Clone)]
struct Ranges {
    list: Vec<Range<Vec<u8>>>,
    /// How good they are: 0 is all of it.
    score: usize,
    /// How many of the index's first fields are equal to one value.
    equal: usize,
}

/// The ranges of a section; none if the index does not have all matches.
fn ranges(index: &Index, section: u8, bounds: &[Bounds]) -> Option<Ranges> {
    let best = |path: &str| {
        let at = bounds.iter().filter(|bounds| bounds.path == path);
        at.min_by_key(|bounds| (!bounds.points, bounds.intervals.len()))
    };
    let mut prefixes = vec![index.section(section)];
    let (mut score, mut equal) = (0, 0);
    for (number, (path, ascends)) in index.fields.iter().enumerate() {
        let found = best(path.as_str());
        let found = found.filter(|found| prefixes.len() * found.intervals.len() <= RANGES_MAX);
        let missing = found.is_none_or(|found| found.intervals.iter().any(covers_missing));
        if index.sparse && number == 0 && missing {
            return None;
        }
        let Some(found) = found else { break };
        let is_point = |interval: &Interval| interval.to == after(&interval.from);
        let exact = found.points
            && found
                .intervals
                .iter()
                .all(|interval| is_point(interval) && interval.from.len() <= KEY_BYTES_MAX);
        if !exact {
            let ranges = prefixes.iter().flat_map(|prefix| {
                found.intervals.iter().map(|interval| range(prefix, interval, *ascends))
            });
            return Some(Ranges { list: ranges.collect(), score: score + 1, equal });
        }
        score += 4;
        equal += usize::from(equal == number && found.intervals.len() == 1);
        prefixes = prefixes
            .iter()
            .flat_map(|prefix| {
                found.intervals.iter().map(|interval| {
                    let mut longer = prefix.clone();
                    layout::push_key(&mut longer, &interval.from, *ascends);
                    longer
                })
            })
            .collect();
    }
    let list = prefixes.into_iter().map(|prefix| {
        let end = after(&prefix);
        prefix..end
    });
    Some(Ranges { list: list.collect(), score, equal })
}

/// Whether documents without the field are among the matches.
fn covers_missing(interval: &Interval) -> bool {
    let null = keycode::key(RawBsonRef::Null);
    interval.from <= null && (interval.to.is_empty() || null < interval.to)
}

fn range(prefix: &[u8], interval: &Interval, ascends: bool) -> Range<Vec<u8>> {
    let cut = |key: &[u8]| key[..key.len().min(KEY_BYTES_MAX)].to_vec();
    let (from, to) = (cut(&interval.from), cut(&interval.to));
    // A key that was cut stands for all that begin so.
    let to = if interval.to.len() > KEY_BYTES_MAX { after(&to) } else { to };
    let whole_end = after(prefix);
    let joined = |key: &[u8]| [prefix, key].concat();
    match ascends {
        true => joined(&from)..if to.is_empty() { whole_end } else { joined(&to) },
        false => {
            let inverted = |key: &[u8]| key.iter().map(|byte| !byte).collect::<Vec<u8>>();
            let start = joined(&inverted(&to));
            let end = after(&joined(&inverted(&from)));
            start..if end.is_empty() { whole_end } else { end }
        }
    }
}
