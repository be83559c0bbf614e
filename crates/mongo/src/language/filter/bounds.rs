//! Where on an index the matches of a filter lie.

use bson::spec::ElementType;
use bson::{RawBson, RawBsonRef};

use super::operators::Comparison;
use super::{Node, Test};
use crate::language::collation::Collation;
use crate::language::compare::rank_of;
use crate::language::keycode;

/// The keys that one condition allows at a path.
///
/// In an index over arrays each element has its key, and two conditions may be met by two elements: then two bounds of one path
/// must not be narrowed to what they share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The dotted path.
    pub path: String,
    /// The keys, in ascending intervals that do not touch.
    pub intervals: Vec<Interval>,
    /// Whether the condition is that the value equals one of a few: each interval is then one value.
    pub points: bool,
}

/// Keys from `from` on and below `to`, by [`keycode`]. Whatever follows a key in an index belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval {
    /// The first key.
    pub from: Vec<u8>,
    /// The first key beyond.
    pub to: Vec<u8>,
}

impl Bounds {
    /// What both allow, where one and the same value must meet them.
    pub fn and(&self, other: &Self) -> Self {
        let mut intervals = Vec::new();
        for one in &self.intervals {
            for two in &other.intervals {
                let from = (&one.from).max(&two.from).clone();
                let to = match (one.to.is_empty(), two.to.is_empty()) {
                    (true, _) => two.to.clone(),
                    (_, true) => one.to.clone(),
                    _ => (&one.to).min(&two.to).clone(),
                };
                if to.is_empty() || from < to {
                    intervals.push(Interval { from, to });
                }
            }
        }
        Self { path: self.path.clone(), intervals, points: self.points || other.points }
    }
}

impl Interval {
    /// All keys that are, or begin with, this one.
    pub fn point(key: Vec<u8>) -> Self {
        let to = after(&key);
        Self { from: key, to }
    }
}

/// The first key that does not begin with this one; empty if there is none.
pub(crate) fn after(key: &[u8]) -> Vec<u8> {
    let mut next = key.to_vec();
    while let Some(last) = next.pop() {
        if last < 0xFF {
            next.push(last + 1);
            break;
        }
    }
    next
}

/// The bounds of everything that must hold.
pub fn of(node: &Node, collation: Option<&Collation>) -> Vec<Bounds> {
    let mut out = Vec::new();
    collect(node, "", collation, &mut out);
    out
}

fn collect(node: &Node, prefix: &str, collation: Option<&Collation>, out: &mut Vec<Bounds>) {
    match node {
        Node::All(nodes) => {
            for node in nodes {
                collect(node, prefix, collation, out);
            }
        }
        Node::Any(nodes) if nodes.len() == 1 => collect(&nodes[0], prefix, collation, out),
        Node::Path(path, test) => at(&join(prefix, path.as_str()), test, collation, out),
        _ => {}
    }
}

fn join(prefix: &str, path: &str) -> String {
    match (prefix, path) {
        ("", path) => path.to_owned(),
        (prefix, path) => format!("{prefix}.{path}"),
    }
}

fn at(path: &str, test: &Test, collation: Option<&Collation>, out: &mut Vec<Bounds>) {
    let (intervals, points) = match test {
        Test::Compare(comparison, value) => {
            let Some(intervals) = compared(*comparison, value.as_raw_bson_ref(), collation) else {
                return;
            };
            (intervals, *comparison == Comparison::Equal)
        }
        Test::In { values, patterns } if patterns.is_empty() => {
            let mut intervals = Vec::new();
            for value in values {
                match compared(Comparison::Equal, value.as_raw_bson_ref(), collation) {
                    Some(found) => intervals.extend(found),
                    None => return,
                }
            }
            intervals.sort();
            intervals.dedup();
            (intervals, true)
        }
        Test::Pattern(pattern) if collation.is_none() => {
            let Some(prefix) = pattern.prefix() else { return };
            let mut key = keycode::key(RawBsonRef::String(prefix));
            // Without the string's end it is the beginning of all strings that begin so.
            key.truncate(key.len() - 2);
            let expressions = vec![rank_of(ElementType::RegularExpression)];
            (vec![Interval::point(key), Interval::point(expressions)], false)
        }
        Test::ElementMatches(inner) => return collect(inner, path, collation, out),
        Test::ElementPasses(tests) | Test::Together(tests) => {
            for (wanted, test) in tests {
                if *wanted {
                    at(path, test, collation, out);
                }
            }
            return;
        }
        _ => return,
    };
    out.push(Bounds { path: path.to_owned(), intervals, points });
}

fn compared(
    comparison: Comparison,
    value: RawBsonRef<'_>,
    collation: Option<&Collation>,
) -> Option<Vec<Interval>> {
    match value {
        // An index over arrays holds elements, not arrays.
        RawBsonRef::Array(_) | RawBsonRef::MinKey | RawBsonRef::MaxKey => return None,
        RawBsonRef::String(_) | RawBsonRef::Symbol(_) | RawBsonRef::Document(_)
            if collation.is_some() =>
        {
            return None;
        }
        // What is missing stands in the index as null.
        RawBsonRef::Null | RawBsonRef::Undefined => {
            return comparison.takes_equal().then(|| {
                vec![
                    Interval::point(vec![rank_of(ElementType::Undefined)]),
                    Interval::point(vec![rank_of(ElementType::Null)]),
                ]
            });
        }
        _ => {}
    }
    let key = keycode::key(value);
    let kind = Interval::point(vec![key[0]]);
    let interval = match comparison {
        Comparison::Equal => Interval::point(key),
        Comparison::Less => Interval { from: kind.from, to: key },
        Comparison::AtMost => Interval { from: kind.from, to: after(&key) },
        Comparison::Greater => Interval { from: after(&key), to: kind.to },
        Comparison::AtLeast => Interval { from: key, to: kind.to },
    };
    Some(vec![interval])
}

/// The equalities that must hold, outermost first.
pub fn equalities<'f>(node: &'f Node, out: &mut Vec<(&'f str, &'f RawBson)>) {
    match node {
        Node::All(nodes) => nodes.iter().for_each(|node| equalities(node, out)),
        Node::Any(nodes) if nodes.len() == 1 => equalities(&nodes[0], out),
        Node::Path(path, Test::Compare(Comparison::Equal, value)) => {
            out.push((path.as_str(), value));
        }
        Node::Path(path, Test::In { values, patterns }) => {
            if let ([value], []) = (&values[..], &patterns[..]) {
                out.push((path.as_str(), value));
            }
        }
        _ => {}
    }
}
