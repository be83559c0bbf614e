//! Testing documents with a filter.

use std::ops::ControlFlow;

use bson::{RawArray, RawBson, RawBsonRef, RawDocument};

use super::operators::Comparison;
use super::{Node, Test};
use crate::language::collation::Collation;
use crate::language::compare::{order_by, rank};
use crate::language::failure::{Failure, Result};
use crate::language::number::Number;
use crate::language::path::{Leaf, Path};

/// What goes along a test of one document.
pub struct Seen<'c> {
    collation: Option<&'c Collation>,
    /// The element of an array that matched last.
    pub position: Option<usize>,
}

impl<'c> Seen<'c> {
    pub fn new(collation: Option<&'c Collation>) -> Self {
        Self { collation, position: None }
    }
}

/// Whether a document matches.
pub fn node(node: &Node, document: &RawDocument, seen: &mut Seen<'_>) -> Result<bool> {
    match node {
        Node::All(nodes) => {
            for each in nodes {
                if !self::node(each, document, seen)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Node::Any(nodes) => any(nodes, document, seen),
        Node::None(nodes) => apart(seen, |seen| Ok(!any(nodes, document, seen)?)),
        Node::Not(inner) => apart(seen, |seen| Ok(!self::node(inner, document, seen)?)),
        Node::Path(path, test) => at_path(path, test, document, seen),
        Node::Expression(expression) => expression.is_true(document),
        Node::Schema(schema) => schema.matches(document),
        Node::Constant(constant) => Ok(*constant),
        Node::Sample(rate) => Ok(fastrand::f64() < *rate),
        Node::Near(path, near) => Ok(near.distance_at(path, document).is_some()),
    }
}

fn any(nodes: &[Node], document: &RawDocument, seen: &mut Seen<'_>) -> Result<bool> {
    for each in nodes {
        if node(each, document, seen)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A test whose matches inside say nothing about a position.
fn apart(seen: &mut Seen<'_>, test: impl FnOnce(&mut Seen<'_>) -> Result<bool>) -> Result<bool> {
    test(&mut Seen::new(seen.collation))
}

fn at_path(path: &Path, test: &Test, document: &RawDocument, seen: &mut Seen<'_>) -> Result<bool> {
    let leaf = match test {
        Test::Exists | Test::Size(_) | Test::ElementMatches(_) | Test::ElementPasses(_) => {
            Leaf::Keep
        }
        // A geometry may be written as an array of two numbers.
        Test::Geo(_) => Leaf::Keep,
        _ => Leaf::Expand,
    };
    let found = path.walk(document, leaf, &mut |found| {
        let mut inner = Seen::new(seen.collation);
        match value(test, found.value, &mut inner) {
            Ok(false) => ControlFlow::Continue(()),
            Ok(true) => {
                if let Some(position) = found.position.or(inner.position) {
                    seen.position = Some(position);
                }
                ControlFlow::Break(Ok(true))
            }
            Err(failure) => ControlFlow::Break(Err(failure)),
        }
    });
    match found {
        ControlFlow::Break(result) => result,
        ControlFlow::Continue(()) => Ok(false),
    }
}

/// Whether one value passes.
pub fn value(test: &Test, value: Option<RawBsonRef<'_>>, seen: &mut Seen<'_>) -> Result<bool> {
    match test {
        Test::Compare(comparison, wanted) => {
            return Ok(compare(*comparison, value, wanted.as_raw_bson_ref(), seen.collation));
        }
        Test::In { values, patterns } => return contained(value, values, patterns, seen),
        _ => {}
    }
    let Some(value) = value else {
        return Ok(match test {
            Test::Together(tests) => together(tests, None, seen)?,
            _ => false,
        });
    };
    Ok(match test {
        Test::Exists => true,
        Test::Pattern(pattern) => match value {
            RawBsonRef::String(text) | RawBsonRef::Symbol(text) => pattern.is_match(text)?,
            RawBsonRef::RegularExpression(regex) => {
                regex.pattern.as_str() == pattern.source
                    && regex.options.as_str() == pattern.options
            }
            _ => false,
        },
        Test::Type(kinds) => kinds.contains(value.element_type()),
        Test::Mod { divisor, remainder } => match Number::of(value) {
            Some(number) if number.to_f64().is_finite() && number.to_f64().abs() < 9.3e18 => {
                number.to_i64_clamped().wrapping_rem(*divisor) == *remainder
            }
            _ => false,
        },
        Test::Bits(bits, mask) => mask.test(*bits, value),
        Test::Size(size) => match value {
            RawBsonRef::Array(array) => array.into_iter().count() as i64 == *size,
            _ => false,
        },
        Test::ElementMatches(inner) => match value {
            RawBsonRef::Array(array) => first_element(array, seen, |value, seen| match value {
                RawBsonRef::Document(document) => node(inner, document, seen),
                // An array is a document whose names are its places.
                RawBsonRef::Array(array) => {
                    let document = RawDocument::from_bytes(array.as_bytes())
                        .map_err(|error| Failure::coded(22, error.to_string()))?;
                    node(inner, document, seen)
                }
                _ => Ok(false),
            })?,
            _ => false,
        },
        Test::ElementPasses(tests) => match value {
            RawBsonRef::Array(array) => {
                first_element(array, seen, |value, seen| together(tests, Some(value), seen))?
            }
            _ => false,
        },
        Test::Together(tests) => together(tests, Some(value), seen)?,
        Test::Geo(region) => region.holds(value),
        Test::Compare(..) | Test::In { .. } => false,
    })
}

fn together(
    tests: &[(bool, Test)],
    found: Option<RawBsonRef<'_>>,
    seen: &mut Seen<'_>,
) -> Result<bool> {
    for (wanted, test) in tests {
        if value(test, found, seen)? != *wanted {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether an element passes; the first that does is the position.
fn first_element<'a>(
    array: &'a RawArray,
    seen: &mut Seen<'_>,
    mut passes: impl FnMut(RawBsonRef<'a>, &mut Seen<'_>) -> Result<bool>,
) -> Result<bool> {
    for (at, value) in array.into_iter().flatten().enumerate() {
        let mut inner = Seen::new(seen.collation);
        if passes(value, &mut inner)? {
            seen.position = Some(at);
            return Ok(true);
        }
    }
    Ok(false)
}

/// A comparison as filters make it: only with values of the same kind, but null is also what is missing.
fn compare(
    comparison: Comparison,
    value: Option<RawBsonRef<'_>>,
    wanted: RawBsonRef<'_>,
    collation: Option<&Collation>,
) -> bool {
    let value = value.filter(|value| !matches!(value, RawBsonRef::Undefined));
    match (value, wanted) {
        (None, RawBsonRef::Null) => comparison.takes_equal(),
        (Some(value), wanted) if rank(value) == rank(wanted) => {
            if let (Some(a), Some(b)) = (Number::of(value), Number::of(wanted)) {
                if a.is_nan() || b.is_nan() {
                    return a.is_nan() && b.is_nan() && comparison.takes_equal();
                }
                return comparison.holds(a.order(b));
            }
            comparison.holds(order_by(value, wanted, collation))
        }
        (_, RawBsonRef::MaxKey) => matches!(comparison, Comparison::Less | Comparison::AtMost),
        (_, RawBsonRef::MinKey) => matches!(comparison, Comparison::Greater | Comparison::AtLeast),
        _ => false,
    }
}

fn contained(
    value: Option<RawBsonRef<'_>>,
    values: &[RawBson],
    patterns: &[crate::language::pattern::Pattern],
    seen: &Seen<'_>,
) -> Result<bool> {
    let wanted = match value {
        None | Some(RawBsonRef::Undefined) => RawBsonRef::Null,
        Some(value) => value,
    };
    let collation = seen.collation;
    // Sorted when the filter was read, by bytes; with a collation they must be looked at one by one.
    let found = match collation {
        None => {
            values.binary_search_by(|each| order_by(each.as_raw_bson_ref(), wanted, None)).is_ok()
        }
        Some(_) => {
            values.iter().any(|each| order_by(each.as_raw_bson_ref(), wanted, collation).is_eq())
        }
    };
    if found {
        return Ok(true);
    }
    for pattern in patterns {
        if let RawBsonRef::String(text) | RawBsonRef::Symbol(text) = wanted
            && pattern.is_match(text)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}
