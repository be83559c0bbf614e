//! Index terms: which paths of an item are indexed, and what is written for each value.
//!
//! A term is `path, value`; with the ordinal behind it, it is a key of the index family. Values sort as Cosmos sorts them:
//! null, false, true, numbers, strings. Paths are text like `/a/b` or `/tags/[]`. Long strings are cut: a query that meets a cut
//! term checks the item itself.
//!
//! Three more kinds of term begin with a text that is no path. Every item has one for its *shape* (`#`): which properties it has, two levels
//! deep, and whether each is a scalar, an array or an object. Items of one shape lack the same properties, and nothing else in
//! the index says who lacks what. And an item has one for each *composite index* (`+/a-/b`), which holds the values at all its paths, also
//! where there are none. A *spatial index* (`@/place`) has one for each cell of the world that a shape is kept under.

use model::path;
use model::path::Path;
use serde_json::{Map, Value};
use storage::keycode::Writer;

/// The most bytes of a string that a term holds.
pub(crate) const STRING_BYTES_MAX: usize = 1_024;

/// The same for each string in a composite term, which may hold several.
pub(crate) const COMPOSITE_STRING_BYTES_MAX: usize = 256;

/// What a container's indexing policy says, as a tree of path segments.
#[derive(Clone, Debug)]
pub(crate) struct IndexingPolicy {
    /// False for `indexingMode: none`: no terms at all.
    enabled: bool,
    root: Node,
    pub composites: Vec<Composite>,
    pub spatial: Vec<Spatial>,
}

/// A spatial index: the shapes at one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spatial {
    pub path: Path,
    /// Whether its shapes lie on a plane, not on the earth.
    flat: bool,
    /// What its terms begin with: `@/place`.
    name: String,
}

/// A composite index: paths in the order of their weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Composite {
    pub paths: Vec<CompositePath>,
    /// What its terms begin with: `+/a-/b`.
    pub name: String,
    /// Whether it has terms. With a path that is the server's to set it has none, and what it promises is done by sorting.
    pub kept: bool,
}

/// One path of a composite index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CompositePath {
    pub path: Path,
    pub descending: bool,
}

/// The rules at one path. `subtree` is `/…/*`; `scalar` is `/…/?` and wins over it.
#[derive(Clone, Debug, Default)]
struct Node {
    subtree: Option<bool>,
    scalar: Option<bool>,
    children: Vec<(String, Node)>,
}

impl IndexingPolicy {
    /// No terms are written.
    pub fn none() -> Self {
        Self { enabled: false, root: Node::default(), composites: Vec::new(), spatial: Vec::new() }
    }

    /// From the paths of the policy. Where both lists name a path, including it wins.
    pub fn new<'a>(
        included: impl Iterator<Item = &'a str>,
        excluded: impl Iterator<Item = &'a str>,
    ) -> Result<Self, String> {
        let mut root = Node::default();
        for path in excluded {
            root.add(path, false)?;
        }
        for path in included {
            root.add(path, true)?;
        }
        Ok(Self { enabled: true, root, composites: Vec::new(), spatial: Vec::new() })
    }

    /// The terms of an item, sorted, each once. Server-set properties other than `_ts` have none.
    pub fn terms(&self, item: &Value) -> Vec<Vec<u8>> {
        let mut terms = Vec::new();
        if let (true, Value::Object(members)) = (self.enabled, item) {
            let included = self.root.subtree.unwrap_or(false);
            let mut path = String::new();
            for (name, value) in members {
                if !is_system_property(name) {
                    self.root.descend(
                        name,
                        value,
                        &mut Walk { path: &mut path, included, terms: &mut terms },
                    );
                }
            }
            let kept = self.composites.iter().filter(|composite| composite.kept);
            terms.extend(kept.map(|composite| composite.term(item)));
            terms.extend(self.spatial.iter().flat_map(|spatial| spatial.terms(item)));
            if self.root.includes_any() {
                terms.push(shape_term(shape_of(members)));
            }
            terms.sort_unstable();
            terms.dedup();
        }
        terms
    }

    /// Whether any path is indexed; if not, items have no shape terms either.
    pub fn includes_any(&self) -> bool {
        self.enabled && self.root.includes_any()
    }

    /// The term of `_ts`, which the writer sets; `None` if that path is not indexed.
    pub fn ts_term(&self, ts: model::clock::Timestamp) -> Option<Vec<u8>> {
        self.covers(&["_ts"]).then(|| term("/_ts", &Value::from(ts.0)))
    }

    /// Whether scalars at this path are indexed.
    pub fn covers(&self, segments: &[&str]) -> bool {
        let mut included = self.root.subtree.unwrap_or(false);
        let mut node = Some(&self.root);
        for segment in segments {
            node = node.and_then(|node| node.child(segment));
            included = node.and_then(|node| node.subtree).unwrap_or(included);
        }
        self.enabled && node.and_then(|node| node.scalar).unwrap_or(included)
    }
}

/// Where a walk over an item stands.
struct Walk<'a> {
    path: &'a mut String,
    included: bool,
    terms: &'a mut Vec<Vec<u8>>,
}

impl Node {
    fn add(&mut self, text: &str, include: bool) -> Result<(), String> {
        let segments = path::split(text)?;
        let (last, parents) =
            segments.split_last().ok_or_else(|| format!("The path '{text}' is empty."))?;
        let node = parents.iter().fold(self, |node, segment| node.child_mut(segment));
        match last.as_str() {
            "*" => node.subtree = Some(include),
            "?" => node.scalar = Some(include),
            // Without a wildcard the service reads a path as the scalar at it.
            other => node.child_mut(other).scalar = Some(include),
        }
        Ok(())
    }

    fn includes_any(&self) -> bool {
        self.subtree == Some(true)
            || self.scalar == Some(true)
            || self.children.iter().any(|(_, node)| node.includes_any())
    }

    fn child(&self, segment: &str) -> Option<&Node> {
        self.children.iter().find(|(name, _)| name == segment).map(|(_, node)| node)
    }

    fn child_mut(&mut self, segment: &str) -> &mut Node {
        let at = self.children.iter().position(|(name, _)| name == segment).unwrap_or_else(|| {
            self.children.push((segment.to_owned(), Node::default()));
            self.children.len() - 1
        });
        &mut self.children[at].1
    }

    /// Visits `value` under `segment` of this node.
    fn descend(&self, segment: &str, value: &Value, walk: &mut Walk<'_>) {
        let length = walk.path.len();
        push_segment(walk.path, segment);
        match self.child(segment) {
            Some(node) => {
                let included = node.subtree.unwrap_or(walk.included);
                node.visit(value, &mut Walk { path: walk.path, included, terms: walk.terms });
            }
            None if walk.included => LEAF.visit(value, walk),
            None => {}
        }
        walk.path.truncate(length);
    }

    fn visit(&self, value: &Value, walk: &mut Walk<'_>) {
        match value {
            Value::Object(members) => {
                members.iter().for_each(|(name, value)| self.descend(name, value, walk));
            }
            Value::Array(values) => values.iter().for_each(|value| self.descend("[]", value, walk)),
            scalar if self.scalar.unwrap_or(walk.included) => {
                walk.terms.push(term(walk.path, scalar))
            }
            _ => {}
        }
    }
}

/// What lies below the policy's own paths.
static LEAF: Node = Node { subtree: None, scalar: None, children: Vec::new() };

/// Set by the server in every item.
pub(crate) fn is_system_property(name: &str) -> bool {
    matches!(name, "_rid" | "_self" | "_etag" | "_ts" | "_attachments")
}

/// Appends a segment to a path text; what could be mistaken for two segments is quoted.
pub(crate) fn push_segment(path: &mut String, segment: &str) {
    path.push('/');
    if segment.contains(['/', '"']) {
        path.push_str(&Value::from(segment).to_string());
    } else {
        path.push_str(segment);
    }
}

/// A term with room for the rest of its key.
pub(crate) fn term(path: &str, value: &Value) -> Vec<u8> {
    let mut writer = Writer::append_to(Vec::with_capacity(path.len() + 32));
    writer.bytes(path.as_bytes());
    push_value(&mut writer, value);
    writer.into_inner()
}

impl Composite {
    /// A composite index of these paths.
    pub fn new(paths: Vec<CompositePath>) -> Self {
        let (mut name, mut kept) = (String::new(), true);
        for CompositePath { path, descending } in &paths {
            kept &= !path.segments().first().is_some_and(|first| is_system_property(first));
            name.push(if *descending { '-' } else { '+' });
            path.segments().iter().for_each(|segment| push_segment(&mut name, segment));
        }
        Self { paths, name, kept }
    }

    /// An item's only term of this index.
    fn term(&self, item: &Value) -> Vec<u8> {
        let mut writer = Writer::append_to(Vec::with_capacity(self.name.len() + 32));
        writer.bytes(self.name.as_bytes());
        let mut term = writer.into_inner();
        for CompositePath { path, descending } in &self.paths {
            push_component(&mut term, path.find(item), *descending, COMPOSITE_STRING_BYTES_MAX);
        }
        term
    }
}

impl Spatial {
    /// The index on a path; `None` if it goes through arrays, for which shapes are not kept.
    pub fn new(path: Path, flat: bool) -> Option<Self> {
        let mut name = "@".to_owned();
        path.segments().iter().for_each(|segment| push_segment(&mut name, segment));
        let plain = path.segments().iter().all(|segment| segment != "[]" && segment != "*");
        plain.then_some(Self { path, flat, name })
    }

    fn terms(&self, item: &Value) -> impl Iterator<Item = Vec<u8>> {
        let cells = self.path.find(item).map(|shape| query::cells::of_shape(shape, self.flat));
        cells.unwrap_or_default().into_iter().map(|cell| self.term(&cell))
    }

    /// What the terms of all shapes begin with that are kept under a cell.
    fn term(&self, cell: &[u8]) -> Vec<u8> {
        let mut term = self.inside(cell);
        term.push(0);
        term
    }

    /// What the terms of all shapes begin with that are kept under a cell, or one inside it.
    fn inside(&self, cell: &[u8]) -> Vec<u8> {
        let mut writer = Writer::append_to(Vec::with_capacity(self.name.len() + cell.len() + 32));
        writer.bytes(self.name.as_bytes());
        let mut term = writer.into_inner();
        term.extend(cell.iter().map(|quarter| quarter + 1));
        term
    }

    /// What the terms of all shapes begin with that may come into one of these cells: kept under it, inside it, or under one that it is in.
    pub fn near(&self, cells: &[model::cells::Cell]) -> Vec<Vec<u8>> {
        let mut around: Vec<&[u8]> =
            cells.iter().flat_map(|cell| (0..cell.len()).map(|depth| &cell[..depth])).collect();
        around.sort_unstable();
        around.dedup();
        let around = around.into_iter().map(|cell| self.term(cell));
        around.chain(cells.iter().map(|cell| self.inside(cell))).collect()
    }
}

/// Kinds of components that are not scalars.
const UNDEFINED: u8 = 0x08;
const ARRAY: u8 = 0x50;
const OBJECT: u8 = 0x60;

/// Appends a value in the order of all values, or in the opposite one. Of arrays and objects only that they are such is kept.
pub(crate) fn push_component(
    term: &mut Vec<u8>,
    value: Option<&Value>,
    descending: bool,
    string_bytes_max: usize,
) {
    let start = term.len();
    match value {
        None => term.push(UNDEFINED),
        Some(Value::Array(_)) => term.push(ARRAY),
        Some(Value::Object(_)) => term.push(OBJECT),
        Some(scalar) => {
            let mut writer = Writer::append_to(std::mem::take(term));
            push_scalar(&mut writer, scalar, string_bytes_max);
            *term = writer.into_inner();
        }
    }
    if descending {
        term[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// The length of the component that `bytes` begin with, and whether it tells its value; cut strings, arrays and objects do not. `None` if
/// the bytes are no component.
pub(crate) fn read_component(
    bytes: &[u8],
    descending: bool,
    string_bytes_max: usize,
) -> Option<(usize, bool)> {
    let at = |i: usize| bytes.get(i).map(|byte| if descending { !byte } else { *byte });
    match at(0)? {
        UNDEFINED | 0x10 | 0x20 | 0x21 => Some((1, true)),
        0x30 => (bytes.len() >= 9).then_some((9, true)),
        0x40 => {
            let (mut i, mut length) = (1, 0);
            loop {
                match (at(i)?, at(i + 1)) {
                    (0, Some(0)) => return Some((i + 2, length < string_bytes_max)),
                    (0, _) => i += 2,
                    _ => i += 1,
                }
                length += 1;
            }
        }
        ARRAY | OBJECT => Some((1, false)),
        _ => None,
    }
}

/// Which properties an item has, and of which kind, as a number: the sum of what each of them comes to, so that their order does not matter.
fn shape_of(members: &Map<String, Value>) -> u64 {
    let mut shape = 0_u64;
    for (name, value) in members.iter().filter(|(name, _)| !is_system_property(name)) {
        let outer = hash(OFFSET, name.as_bytes());
        shape = shape.wrapping_add(mix(hash(outer, &[kind_of(value)])));
        for (name, value) in value.as_object().into_iter().flatten() {
            let inner = hash(hash(outer, b"\xFF"), name.as_bytes());
            shape = shape.wrapping_add(mix(hash(inner, &[kind_of(value)])));
        }
    }
    shape
}

/// How deep shapes look.
pub(crate) const SHAPE_DEPTH: usize = 2;

/// A byte that no name contains, for each kind that shapes tell apart.
fn kind_of(value: &Value) -> u8 {
    match value {
        Value::Array(_) => 0xFD,
        Value::Object(_) => 0xFE,
        _ => 0xFC,
    }
}

/// What FNV-1a hashes begin with.
const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

fn hash(start: u64, bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(start, step)
}

/// Spreads a hash over all bits, so that sums of them hardly ever meet (the finalizer of splitmix64).
fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// The term of a shape.
pub(crate) fn shape_term(shape: u64) -> Vec<u8> {
    let mut term = shape_prefix();
    term.extend_from_slice(&shape.to_be_bytes());
    term
}

/// What the terms of all shapes begin with.
pub(crate) fn shape_prefix() -> Vec<u8> {
    let mut writer = Writer::append_to(Vec::with_capacity(16));
    writer.bytes(b"#");
    writer.into_inner()
}

/// Appends a scalar in the order of values. Objects and arrays are not scalars and add nothing.
pub(crate) fn push_value(writer: &mut Writer<Vec<u8>>, value: &Value) {
    push_scalar(writer, value, STRING_BYTES_MAX);
}

fn push_scalar(writer: &mut Writer<Vec<u8>>, value: &Value, string_bytes_max: usize) {
    match value {
        Value::Null => {
            writer.u8(0x10);
        }
        Value::Bool(value) => {
            writer.u8(0x20 + u8::from(*value));
        }
        Value::Number(number) => {
            writer.u8(0x30).f64(number.as_f64().unwrap_or_default());
        }
        Value::String(text) => {
            let cut = &text.as_bytes()[..text.len().min(string_bytes_max)];
            writer.u8(0x40).bytes(cut);
        }
        Value::Array(_) | Value::Object(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn paths(included: &[&str], excluded: &[&str], item: Value) -> Vec<String> {
        let policy =
            IndexingPolicy::new(included.iter().copied(), excluded.iter().copied()).unwrap();
        let text = |term: Vec<u8>| {
            String::from_utf8(storage::keycode::Reader::new(&term).bytes().unwrap()).unwrap()
        };
        let paths = policy.terms(&item).into_iter().map(text);
        paths.filter(|path| path != "#").collect()
    }

    #[test]
    fn the_default_policy_indexes_every_scalar() {
        let item = json!({"id": "1", "a": {"b": [1, 1, {"c": null}]}, "_etag": "x", "empty": {}});
        assert_eq!(paths(&["/*"], &["/\"_etag\"/?"], item), ["/a/b/[]", "/a/b/[]/c", "/id"]);
    }

    #[test]
    fn the_more_precise_path_wins() {
        let item = json!({"a": {"b": 1, "c": 2}, "d": 3});
        assert_eq!(paths(&["/*"], &["/a/*"], item.clone()), ["/d"]);
        assert_eq!(paths(&["/*", "/a/b/?"], &["/a/*"], item.clone()), ["/a/b", "/d"]);
        assert_eq!(paths(&["/a/c/?"], &["/*"], item.clone()), ["/a/c"]);
        assert_eq!(paths(&[], &["/*"], item), Vec::<String>::new());
    }

    #[test]
    fn a_shape_is_what_properties_there_are() {
        let shape = |item: Value| shape_of(item.as_object().unwrap());
        let same = shape(json!({"a": 1, "b": {"c": "x", "d": [1]}}));
        assert_eq!(shape(json!({"b": {"d": [], "c": null}, "a": "y", "_ts": 5})), same);
        for other in [
            json!({"a": 1}),
            json!({"a": [], "b": {"c": 1, "d": []}}),
            json!({"a": 1, "b": {"c": 1, "d": {}}}),
            json!({"a": 1, "b": {"c": 1, "e": []}}),
            json!({"b": 1, "a": {"c": 1, "d": []}}),
        ] {
            assert_ne!(shape(other.clone()), same, "{other}");
        }
    }

    #[test]
    fn components_sort_as_values_do_and_end_where_they_end() {
        let values = [
            None,
            Some(json!(null)),
            Some(json!(false)),
            Some(json!(-5)),
            Some(json!(1.5)),
            Some(json!("")),
            Some(json!("a")),
            Some(json!("a\0b")),
            Some(json!("abcdefgh")),
            Some(json!([])),
            Some(json!({})),
        ];
        for descending in [false, true] {
            let component = |value: &Option<Value>| {
                let mut term = Vec::new();
                push_component(&mut term, value.as_ref(), descending, 8);
                let (length, plain) =
                    read_component(&[&term[..], &[7; 9]].concat(), descending, 8).unwrap();
                assert_eq!(length, term.len(), "{value:?}");
                let cut = matches!(value, Some(Value::Array(_) | Value::Object(_)))
                    || value.as_ref().and_then(Value::as_str).is_some_and(|text| text.len() >= 8);
                assert_eq!(plain, !cut, "{value:?}");
                term
            };
            let mut terms: Vec<_> = values.iter().map(component).collect();
            if descending {
                terms.reverse();
            }
            assert!(terms.is_sorted());
        }
    }

    #[test]
    fn terms_sort_as_values_do() {
        let values = [
            json!(null),
            json!(false),
            json!(true),
            json!(-5),
            json!(0),
            json!(1.5),
            json!(""),
            json!("a"),
            json!("a\0"),
        ];
        let terms: Vec<_> = values.iter().map(|value| term("/p", value)).collect();
        assert!(terms.is_sorted());
    }
}
