//! JSON values as Cosmos sees them: their types, their equality, their one total order.
//!
//! A value may be *undefined* (a property that is not there), which JSON cannot say; here that is
//! `None`. Numbers are IEEE doubles, so `1` equals `1.0`, and integers beyond 2^53 compare as the
//! doubles they round to. Strings compare by code point.
//!
//! Two questions look alike and are not: [`compare`] orders *all* values (ORDER BY, index keys),
//! [`compare_same_type`] answers `<` and `>` in an expression, where different types have no order.

use std::cmp::Ordering;

use serde_json::{Map, Number, Value};

/// The type of a value. The derived order is the order of types in an index and in ORDER BY.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Not there at all.
    Undefined,
    /// `null`.
    Null,
    /// `false`, `true`.
    Boolean,
    /// An IEEE double.
    Number,
    /// Text.
    String,
    /// `[…]`.
    Array,
    /// `{…}`.
    Object,
}

impl Kind {
    /// The kind of a value that may be undefined.
    pub fn of(value: Option<&Value>) -> Self {
        match value {
            None => Kind::Undefined,
            Some(Value::Null) => Kind::Null,
            Some(Value::Bool(_)) => Kind::Boolean,
            Some(Value::Number(_)) => Kind::Number,
            Some(Value::String(_)) => Kind::String,
            Some(Value::Array(_)) => Kind::Array,
            Some(Value::Object(_)) => Kind::Object,
        }
    }

    /// Whether values of this kind have no parts: null, booleans, numbers and strings.
    pub fn is_primitive(self) -> bool {
        matches!(self, Kind::Null | Kind::Boolean | Kind::Number | Kind::String)
    }
}

/// The double that a number stands for.
pub fn to_f64(number: &Number) -> f64 {
    number.as_f64().unwrap_or(f64::NAN)
}

/// The number a computation gives, or `None` where JSON has no such number (NaN, infinities).
///
/// Integral results within ±2^53 become integers, so that `0.5 + 0.5` prints as `1`.
pub fn from_f64(value: f64) -> Option<Number> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.trunc() == value && value.abs() <= EXACT {
        return Some(Number::from(value as i64));
    }
    Number::from_f64(value)
}

/// The total order of all values: undefined < null < false < true < numbers < strings < arrays <
/// objects. Arrays and objects compare part by part, objects by sorted property name.
pub fn compare(a: Option<&Value>, b: Option<&Value>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => compare_defined(a, b),
        _ => a.is_some().cmp(&b.is_some()),
    }
}

/// [`compare`] for values that are there.
pub fn compare_defined(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Number(a), Value::Number(b)) => compare_numbers(to_f64(a), to_f64(b)),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => compare_arrays(a, b),
        (Value::Object(a), Value::Object(b)) => compare_objects(a, b),
        _ => Kind::of(Some(a)).cmp(&Kind::of(Some(b))),
    }
}

/// The order of two doubles, neither of which is NaN; `-0` equals `0`.
pub fn compare_numbers(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or(Ordering::Equal)
}

/// The order of two values in an expression: `None` (undefined) unless both are primitives of one
/// type.
pub fn compare_same_type(a: &Value, b: &Value) -> Option<Ordering> {
    let (kind, other) = (Kind::of(Some(a)), Kind::of(Some(b)));
    (kind == other && kind.is_primitive()).then(|| compare_defined(a, b))
}

/// Whether two values are the same: deep, blind to the order of properties, false across types.
pub fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => to_f64(a) == to_f64(b),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| equal(a, b)))
        }
        _ => a == b,
    }
}

fn compare_arrays(a: &[Value], b: &[Value]) -> Ordering {
    let parts = a.iter().zip(b).map(|(a, b)| compare_defined(a, b));
    parts.into_iter().find(|order| order.is_ne()).unwrap_or_else(|| a.len().cmp(&b.len()))
}

fn compare_objects(a: &Map<String, Value>, b: &Map<String, Value>) -> Ordering {
    let sorted = |object: &Map<String, Value>| {
        let mut names: Vec<String> = object.keys().cloned().collect();
        names.sort_unstable();
        names
    };
    let (names, others) = (sorted(a), sorted(b));
    for (name, other) in names.iter().zip(&others) {
        let order = name.cmp(other).then_with(|| compare(a.get(name), b.get(other)));
        if order.is_ne() {
            return order;
        }
    }
    names.len().cmp(&others.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_come_in_one_order() {
        let ascending = [
            None,
            Some(json!(null)),
            Some(json!(false)),
            Some(json!(true)),
            Some(json!(-1.5)),
            Some(json!(2)),
            Some(json!("")),
            Some(json!("a")),
            Some(json!([])),
            Some(json!([1])),
            Some(json!([1, 0])),
            Some(json!([2])),
            Some(json!({})),
            Some(json!({"a": 1})),
            Some(json!({"b": 0})),
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(compare(a.as_ref(), b.as_ref()), i.cmp(&j), "{a:?} and {b:?}");
            }
        }
    }

    #[test]
    fn numbers_are_doubles() {
        assert!(equal(&json!(1), &json!(1.0)));
        assert!(equal(&json!({"a": 1, "b": [2]}), &json!({"b": [2.0], "a": 1.0})));
        assert!(!equal(&json!(1), &json!("1")));
        assert_eq!(from_f64(1.0).unwrap().to_string(), "1");
        assert_eq!(from_f64(1.5).unwrap().to_string(), "1.5");
        assert!(from_f64(f64::NAN).is_none() && from_f64(f64::INFINITY).is_none());
    }

    #[test]
    fn an_expression_orders_one_type_only() {
        assert_eq!(compare_same_type(&json!(1), &json!(2)), Some(Ordering::Less));
        assert_eq!(compare_same_type(&json!(null), &json!(null)), Some(Ordering::Equal));
        assert_eq!(compare_same_type(&json!(1), &json!("2")), None);
        assert_eq!(compare_same_type(&json!([1]), &json!([2])), None);
    }
}
