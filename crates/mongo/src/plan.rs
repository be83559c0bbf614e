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
use crate::layout::{self, Collection, Index, KEY_BYTES_MAX, Kind};

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
        Self { route: Route::All, index: None, point: false, sorted: false }
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
            if let Some((score, ranges)) = ranges(index, &bounds) {
                let index = Some(index.name.clone());
                let route = Route::Terms { ranges, backward: false };
                ways.push((score, Self { route, index, point: false, sorted: false }));
            } else if question.hint.is_some() && index.kind == Kind::Fields && !index.sparse {
                let prefix = index.prefix().to_vec();
                let ranges = vec![prefix.clone()..after(&prefix)];
                let route = Route::Terms { ranges, backward: false };
                let index = Some(index.name.clone());
                ways.push((0, Self { route, index, point: false, sorted: false }));
            }
        }
        let best = ways.into_iter().max_by_key(|(score, _)| *score).map(|(_, plan)| plan);
        best.or_else(|| by_name_range(question, &bounds)).unwrap_or_else(Self::all)
    }
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
    Some(Plan { route, index: Some("_id_".into()), point: true, sorted: true })
}

/// Names are keys of `_id` in order: ranges of it, and sorts by it.
fn by_name_range(question: &Question<'_>, bounds: &[Bounds]) -> Option<Plan> {
    let sort = question.sort.filter(|_| !question.collated).map(Sort::fields).unwrap_or_default();
    let by_id = matches!(sort, [field] if field.path.as_str() == "_id");
    let backward = by_id && !sort[0].ascending;
    let all = layout::names();
    let bound = bounds.iter().filter(|bounds| bounds.path == "_id");
    let bound = bound.min_by_key(|bounds| (!bounds.points, bounds.intervals.len()));
    let sorted = by_id || sort.is_empty();
    match bound {
        Some(Bounds { intervals, .. }) if intervals.len() == 1 => {
            let Interval { from, to } = &intervals[0];
            let start = [&all.start[..], from].concat();
            let end = if to.is_empty() { all.end } else { [&all.start[..], to].concat() };
            let route = Route::Named { range: start..end, backward };
            Some(Plan { route, index: Some("_id_".into()), point: false, sorted })
        }
        _ if by_id || question.hint == Some("_id_") => {
            let route = Route::Named { range: all, backward };
            Some(Plan { route, index: Some("_id_".into()), point: false, sorted })
        }
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
    let plan = |route| Plan { route, index: Some(index.to_owned()), point: false, sorted: false };
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
    let prefix = found.prefix().to_vec();
    let key = |keys: &RawDocument| {
        let mut term = prefix.clone();
        for (key, (_, ascends)) in values(keys, &names)?.iter().zip(&found.fields) {
            layout::push_key(&mut term, key, *ascends);
        }
        Some(term)
    };
    let start = min.map_or(Some(prefix.clone()), key)?;
    let end = max.map_or(Some(after(&prefix)), key)?;
    Some(plan(Route::Terms { ranges: vec![start..end], backward: false }))
}

/// The ranges of an index that hold all matches, and how good they are.
fn ranges(index: &Index, bounds: &[Bounds]) -> Option<(usize, Vec<Range<Vec<u8>>>)> {
    let best = |path: &str| {
        let at = bounds.iter().filter(|bounds| bounds.path == path && !bounds.intervals.is_empty());
        at.min_by_key(|bounds| (!bounds.points, bounds.intervals.len()))
    };
    if let Kind::Wildcard(root) = &index.kind {
        let inside = |path: &str| {
            let rest = path.strip_prefix(root.as_str());
            rest.is_some_and(|rest| root.is_empty() || rest.is_empty() || rest.starts_with('.'))
        };
        let found = bounds
            .iter()
            .filter(|bounds| inside(&bounds.path) && !bounds.intervals.iter().any(covers_missing));
        let found = found.min_by_key(|bounds| (!bounds.points, bounds.intervals.len()))?;
        let prefix = index.wildcard_prefix(&found.path);
        let ranges = found.intervals.iter().map(|interval| range(&prefix, interval, true));
        return Some((1 + usize::from(found.points), ranges.collect()));
    }
    if index.kind != Kind::Fields {
        return None;
    }
    let mut prefixes = vec![index.prefix().to_vec()];
    let mut score = 0;
    for (number, (path, ascends)) in index.fields.iter().enumerate() {
        let found = best(path.as_str());
        let found = found.filter(|found| prefixes.len() * found.intervals.len() <= RANGES_MAX);
        let Some(found) = found else {
            break;
        };
        if index.sparse && number == 0 && found.intervals.iter().any(covers_missing) {
            return None;
        }
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
            return Some((score + 1, ranges.collect()));
        }
        score += 4;
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
    let ranges = prefixes.into_iter().map(|prefix| {
        let end = after(&prefix);
        prefix..end
    });
    (score > 0).then(|| (score, ranges.collect()))
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
