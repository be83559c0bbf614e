//! Index terms: which paths of an item are indexed, and what is written for each value.
//!
//! A term is `path, value`; with the ordinal behind it, it is a key of the index family. Values sort as Cosmos sorts them:
//! null, false, true, numbers, strings. Paths are text like `/a/b` or `/tags/[]`. Long strings are cut: a query that meets a cut
//! term checks the item itself.

use model::path;
use serde_json::Value;
use storage::keycode::Writer;

/// The most bytes of a string that a term holds.
pub(crate) const STRING_BYTES_MAX: usize = 1_024;

/// What a container's indexing policy says, as a tree of path segments.
#[derive(Clone, Debug)]
pub(crate) struct IndexingPolicy {
    /// False for `indexingMode: none`: no terms at all.
    enabled: bool,
    root: Node,
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
        Self { enabled: false, root: Node::default() }
    }

    /// Every scalar of every item.
    pub fn everything() -> Self {
        Self { enabled: true, root: Node { subtree: Some(true), ..Node::default() } }
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
        Ok(Self { enabled: true, root })
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
            terms.sort_unstable();
            terms.dedup();
        }
        terms
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

/// Appends a scalar in the order of values. Objects and arrays are not scalars and add nothing.
pub(crate) fn push_value(writer: &mut Writer<Vec<u8>>, value: &Value) {
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
            let cut = &text.as_bytes()[..text.len().min(STRING_BYTES_MAX)];
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
        policy.terms(&item).into_iter().map(text).collect()
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
