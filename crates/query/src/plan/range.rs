//! Sets of values as ranges in the total order of all values ([`model::value::compare`]).
//!
//! Comparisons stay within one type, so the range of `> 5` ends where strings begin: at the bound
//! `""`, excluded.

use std::cmp::Ordering;
use std::fmt;

use model::value::compare_defined;
use serde_json::{Value as Json, json};

/// One end of a range.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// Where it ends.
    pub value: Json,
    /// Whether the value itself belongs to it.
    pub inclusive: bool,
}

/// The values between two bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    /// The smaller end.
    pub low: Bound,
    /// The larger end.
    pub high: Bound,
}

fn including(value: Json) -> Bound {
    Bound { value, inclusive: true }
}

fn excluding(value: Json) -> Bound {
    Bound { value, inclusive: false }
}

impl Range {
    /// One value.
    pub fn point(value: Json) -> Self {
        Self { low: including(value.clone()), high: including(value) }
    }

    /// The only value in it, if there is only one.
    pub fn as_point(&self) -> Option<&Json> {
        let same = compare_defined(&self.low.value, &self.high.value).is_eq();
        (same && self.low.inclusive && self.high.inclusive).then_some(&self.low.value)
    }

    /// All values of the type that this value has; `None` for arrays and objects.
    pub fn same_type(value: &Json) -> Option<Self> {
        match value {
            Json::Null => Some(Self::point(Json::Null)),
            Json::Bool(_) => {
                Some(Self { low: including(json!(false)), high: including(json!(true)) })
            }
            Json::Number(_) => {
                Some(Self { low: excluding(json!(true)), high: excluding(json!("")) })
            }
            Json::String(_) => Some(Self { low: including(json!("")), high: excluding(json!([])) }),
            Json::Array(_) | Json::Object(_) => None,
        }
    }

    /// The values of the same type that come after this one, or also it.
    pub fn above(value: &Json, inclusive: bool) -> Option<Self> {
        let all = Self::same_type(value)?;
        Some(Self { low: Bound { value: value.clone(), inclusive }, high: all.high })
    }

    /// The values of the same type that come before this one, or also it.
    pub fn below(value: &Json, inclusive: bool) -> Option<Self> {
        let all = Self::same_type(value)?;
        Some(Self { low: all.low, high: Bound { value: value.clone(), inclusive } })
    }

    /// The strings that begin so.
    pub fn prefix(prefix: &str) -> Self {
        let high = successor(prefix).map_or(json!([]), Json::String);
        Self { low: including(json!(prefix)), high: excluding(high) }
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        match compare_defined(&self.low.value, &self.high.value) {
            Ordering::Less => false,
            Ordering::Equal => !(self.low.inclusive && self.high.inclusive),
            Ordering::Greater => true,
        }
    }

    /// What is in both.
    fn intersection(&self, other: &Range) -> Option<Range> {
        let low = if compare_low(&self.low, &other.low).is_ge() { &self.low } else { &other.low };
        let high =
            if compare_high(&self.high, &other.high).is_le() { &self.high } else { &other.high };
        let both = Range { low: low.clone(), high: high.clone() };
        (!both.is_empty()).then_some(both)
    }
}

/// A lone value, or bounds in round brackets (excluded) and square ones (included).
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(value) = self.as_point() {
            return write!(f, "{value}");
        }
        let open = if self.low.inclusive { '[' } else { '(' };
        let close = if self.high.inclusive { ']' } else { ')' };
        write!(f, "{open}{}, {}{close}", self.low.value, self.high.value)
    }
}

/// What is in both of two sets, each in order and apart.
pub fn intersect(a: &[Range], b: &[Range]) -> Vec<Range> {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let mut both = Vec::new();
    while let (Some(first), Some(second)) = (a.peek(), b.peek()) {
        both.extend(first.intersection(second));
        // The one that ends sooner meets no more of the other set.
        if compare_high(&first.high, &second.high).is_lt() {
            a.next()
        } else {
            b.next()
        };
    }
    both
}

/// The same set with its ranges in order and apart.
pub fn normalize(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by(|a, b| compare_low(&a.low, &b.low));
    let mut apart: Vec<Range> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match apart.last_mut() {
            Some(last) if touches(&last.high, &range.low) => {
                if compare_high(&range.high, &last.high).is_gt() {
                    last.high = range.high;
                }
            }
            _ => apart.push(range),
        }
    }
    apart
}

/// Whether no value lies between the end of one range and the start of the next.
fn touches(high: &Bound, low: &Bound) -> bool {
    match compare_defined(&low.value, &high.value) {
        Ordering::Less => true,
        Ordering::Equal => low.inclusive || high.inclusive,
        Ordering::Greater => false,
    }
}

fn compare_low(a: &Bound, b: &Bound) -> Ordering {
    compare_defined(&a.value, &b.value).then(b.inclusive.cmp(&a.inclusive))
}

fn compare_high(a: &Bound, b: &Bound) -> Ordering {
    compare_defined(&a.value, &b.value).then(a.inclusive.cmp(&b.inclusive))
}

/// The first string after all that begin with this one; `None` if there is none.
fn successor(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        // Past the surrogates, which are no characters.
        let next = match u32::from(last) + 1 {
            0xd800 => 0xe000,
            next => next,
        };
        if let Some(next) = char::from_u32(next) {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}
