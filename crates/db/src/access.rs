//! Which index entries a query needs: from the conditions of its plan to ranges of keys.
//!
//! What is chosen is always a superset: the pipeline asks WHERE again. Where no index serves, the scan reads the whole scope.

use std::ops::Range;

use bytes::Bytes;
use model::path::{self, Path};
use query::plan::{Bound, Condition};
use serde_json::Value;
use storage::keycode::Writer;

use crate::Settings;
use crate::index::{
    SHAPE_DEPTH, STRING_BYTES_MAX, Spatial, is_system_property, push_segment, push_value,
};
use crate::keys::{PartitionId, term_range};

/// Ranges of index terms that hold all items of a result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    pub ranges: Vec<Range<Bytes>>,
    /// Properties that an item must have; the shapes of items say which do.
    pub defined: Vec<Path>,
    /// Whether each range is one value: its entries then come in the order of creation.
    pub points: bool,
    /// Other ways to the same items, of which only those that all ways lead to are in the result.
    pub also: Vec<Access>,
}

impl Access {
    /// The best way to a condition's items by index; `None` if there is none.
    pub fn choose(
        partition: PartitionId,
        settings: &Settings,
        condition: &Condition,
    ) -> Option<Self> {
        match condition {
            Condition::All => None,
            Condition::Nothing => Some(Self { points: true, ..Self::default() }),
            Condition::Defined(text) => {
                let path = Path::parse(text).ok()?;
                let known =
                    settings.indexing.includes_any() && path.segments().len() <= SHAPE_DEPTH;
                let own = path.segments().first().is_some_and(|first| is_system_property(first));
                (known && !own).then(|| Self { defined: vec![path], ..Self::default() })
            }
            Condition::Path(text, ranges) => {
                let path = index_path(settings, text)?;
                let key = |range: &query::plan::Range| key_range(partition, &path, range);
                let points = ranges.iter().all(|range| range.as_point().is_some());
                let ranges = ranges.iter().map(key).collect();
                Some(Self { ranges, points, ..Self::default() })
            }
            Condition::Cells(text, cells) => {
                let terms = spatial_index(settings, text)?.near(cells);
                let ranges = terms.iter().map(|term| term_range(partition, term)).collect();
                Some(Self { ranges, ..Self::default() })
            }
            Condition::And(all) => {
                let ways = all.iter().filter_map(|part| Self::choose(partition, settings, part));
                let mut ways: Vec<Self> = ways.collect();
                let rank = |way: &Self| (!way.defined.is_empty(), !way.points, way.ranges.len());
                ways.sort_by_key(rank);
                let mut ways = ways.into_iter();
                let best = ways.next()?;
                Some(Self { also: ways.collect(), ..best })
            }
            Condition::Or(any) => {
                let ways = any.iter().map(|part| Self::choose(partition, settings, part));
                let mut all = Self { points: true, ..Self::default() };
                for way in ways.collect::<Option<Vec<Self>>>()? {
                    all.points &= way.points && way.defined.is_empty();
                    all.ranges.extend(way.ranges);
                    all.defined.extend(way.defined);
                }
                Some(all)
            }
        }
    }

    /// The keys of the items that meet a condition, each once, if the index tells exactly that.
    pub fn exact(
        partition: PartitionId,
        settings: &Settings,
        condition: &Condition,
    ) -> Option<Vec<Range<Bytes>>> {
        let Condition::Path(text, ranges) = condition else { return None };
        let path = index_path(settings, text)?;
        let bounds = ranges.iter().flat_map(|range| [&range.low.value, &range.high.value]);
        let whole = !path.split('/').any(|segment| segment == "[]") && !bounds.clone().any(is_cut);
        whole.then(|| ranges.iter().map(|range| key_range(partition, &path, range)).collect())
    }
}

/// The index's own text of a plan's path such as `/a/b/?`, if its scalars are indexed.
pub(crate) fn index_path(settings: &Settings, text: &str) -> Option<String> {
    let segments = path::split(text).ok()?;
    let segments: Vec<&str> =
        segments.iter().map(String::as_str).filter(|segment| *segment != "?").collect();
    let indexed = settings.indexing.covers(&segments) && has_terms(&segments);
    let mut path = String::new();
    segments.iter().for_each(|segment| push_segment(&mut path, segment));
    indexed.then_some(path)
}

/// The index on the shapes at a plan's path such as `/a/b`, if there is one.
pub(crate) fn spatial_index<'s>(settings: &'s Settings, text: &str) -> Option<&'s Spatial> {
    let path = Path::parse(text).ok()?;
    settings.indexing.spatial.iter().find(|spatial| spatial.path == path)
}

/// Of the server's own properties only `_ts` has terms.
fn has_terms(segments: &[&str]) -> bool {
    match segments.first() {
        Some(&"_ts") => true,
        Some(first) => !is_system_property(first),
        None => false,
    }
}

/// What the terms of a path begin with.
pub(crate) fn path_term(path: &str) -> Vec<u8> {
    let mut writer = Writer::append_to(Vec::with_capacity(path.len() + 16));
    writer.bytes(path.as_bytes());
    writer.into_inner()
}

/// The keys of a path's values within a range.
pub(crate) fn key_range(
    partition: PartitionId,
    path: &str,
    range: &query::plan::Range,
) -> Range<Bytes> {
    start_key(partition, path, &range.low)..end_key(partition, path, &range.high)
}

fn start_key(partition: PartitionId, path: &str, bound: &Bound) -> Bytes {
    let range = term_range(partition, &bound_term(path, &bound.value));
    if bound.inclusive || is_cut(&bound.value) { range.start } else { range.end }
}

fn end_key(partition: PartitionId, path: &str, bound: &Bound) -> Bytes {
    let range = term_range(partition, &bound_term(path, &bound.value));
    if bound.inclusive || is_cut(&bound.value) { range.end } else { range.start }
}

/// A term of a cut string stands for all strings that begin so.
fn is_cut(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.len() >= STRING_BYTES_MAX)
}

/// A value as a term begins with it. Arrays and objects have no terms; as bounds they lie behind all that have.
fn bound_term(path: &str, value: &Value) -> Vec<u8> {
    let mut writer = Writer::append_to(path_term(path));
    match value {
        Value::Array(_) | Value::Object(_) => {
            writer.u8(0x50);
        }
        scalar => push_value(&mut writer, scalar),
    }
    writer.into_inner()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_become_ranges_where_the_policy_allows() {
        let settings = Settings::parse(&json!({
            "id": "c", "partitionKey": {"paths": ["/pk"], "version": 2},
            "indexingPolicy": {"includedPaths": [{"path": "/*"}], "excludedPaths": [{"path": "/no/?"}]},
        }))
        .unwrap();
        let partition = PartitionId { container: 1, partition: 0 };
        let way = |filter: &str| {
            let text = format!("SELECT * FROM c WHERE {filter}");
            let compiled = query::Compiled::new(&text, &[], &query::Options::default()).unwrap();
            Access::choose(partition, &settings, &compiled.plan().condition)
        };
        let shape = |filter: &str| way(filter).map(|way| (way.ranges.len(), way.points));
        assert_eq!(shape("c.a = 1"), Some((1, true)));
        assert_eq!(shape("c.a IN (1, 'x', null)"), Some((3, true)));
        assert_eq!(shape("c.a > 1"), Some((1, false)));
        assert_eq!(
            shape("c.a > 1 AND c.b = 2"),
            Some((1, true)),
            "the point is better than the range"
        );
        assert_eq!(shape("c.a = 1 OR c.b = 2"), Some((2, true)));
        assert_eq!(shape("c.a = 1 OR c.no = 2"), None);
        assert_eq!(shape("c.no = 1"), None);
        assert_eq!(shape("c.a = 1 AND c.a = 2"), Some((0, true)));
        assert_eq!(shape("c._etag = 'x'"), None);
        assert_eq!(shape("c._ts > 5"), Some((1, false)));
        assert_eq!(shape("true"), None);
        let defined = way("IS_DEFINED(c.a.b)").unwrap();
        assert_eq!(defined.defined, [Path::parse("/a/b").unwrap()]);
        assert_eq!(way("c.a > 1 AND c.b = 2").unwrap().also.len(), 1);
    }
}
