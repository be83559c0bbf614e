//! Which index entries a query needs: from the conditions of its plan to ranges of keys.
//!
//! What is chosen is always a superset: the pipeline asks WHERE again. Where no index serves, the scan reads the whole scope.

use std::ops::Range;

use bytes::Bytes;
use model::path;
use query::plan::{Bound, Condition};
use serde_json::Value;
use storage::keycode::Writer;

use crate::Settings;
use crate::index::{STRING_BYTES_MAX, push_segment, push_value};
use crate::keys::{PartitionId, term_range};

/// Ranges of index terms that hold all items of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub ranges: Vec<Range<Bytes>>,
    /// Whether each range is one value: its entries then come in the order of creation.
    pub points: bool,
}

impl Access {
    /// The best way to a condition's items by index; `None` if there is none.
    pub fn choose(
        partition: PartitionId,
        settings: &Settings,
        condition: &Condition,
    ) -> Option<Self> {
        // After a change of policy old items may lack terms.
        if settings.indexing_changed {
            return None;
        }
        match condition {
            Condition::All | Condition::Defined(_) => None,
            Condition::Nothing => Some(Self { ranges: Vec::new(), points: true }),
            Condition::Path(text, ranges) => {
                let path = index_path(settings, text)?;
                let key = |range: &query::plan::Range| {
                    let start = start_key(partition, &path, &range.low);
                    start..end_key(partition, &path, &range.high)
                };
                let points = ranges.iter().all(|range| range.as_point().is_some());
                Some(Self { ranges: ranges.iter().map(key).collect(), points })
            }
            Condition::And(all) => {
                let ways = all.iter().filter_map(|part| Self::choose(partition, settings, part));
                ways.min_by_key(|way| (!way.points, way.ranges.len()))
            }
            Condition::Or(any) => {
                let ways = any.iter().map(|part| Self::choose(partition, settings, part));
                let ways: Vec<Self> = ways.collect::<Option<_>>()?;
                let points = ways.iter().all(|way| way.points);
                Some(Self { ranges: ways.into_iter().flat_map(|way| way.ranges).collect(), points })
            }
        }
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

/// Of the server's own properties only `_ts` has terms.
fn has_terms(segments: &[&str]) -> bool {
    match segments.first() {
        Some(&"_ts") => true,
        Some(first) => !crate::index::is_system_property(first),
        None => false,
    }
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
    let mut writer = Writer::append_to(Vec::with_capacity(path.len() + 16));
    writer.bytes(path.as_bytes());
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
    }
}
