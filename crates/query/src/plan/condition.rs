//! Conditions on single paths, which an index can answer, and how they combine.

use std::fmt;

use model::value::equal;
use serde_json::Value as Json;

use super::range::{Range, intersect, normalize};

/// What an item must meet to be in the result.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// Nothing: every item may be in the result.
    All,
    /// No item can be in the result.
    Nothing,
    /// A path (`/a/b/?`, or `/tags/[]/?` for some element of an array) has a primitive value in one
    /// of these ranges, which are in order and apart.
    Path(String, Vec<Range>),
    /// A path (`/a/b`) has a value of any type.
    Defined(String),
    /// All of these.
    And(Vec<Condition>),
    /// One of these.
    Or(Vec<Condition>),
}

/// How many combinations of pinned values are worth looking up.
const PINNED_MAX: usize = 1000;

impl Condition {
    /// See [`Plan::pinned`](super::Plan::pinned).
    pub fn pinned(&self, paths: &[&str]) -> Option<Vec<Vec<Json>>> {
        match self {
            Condition::Nothing => Some(Vec::new()),
            Condition::Or(any) => {
                let mut all = Vec::new();
                for condition in any {
                    all.extend(condition.pinned(paths)?);
                }
                (all.len() <= PINNED_MAX).then_some(all)
            }
            _ => {
                let mut rows = vec![Vec::new()];
                for path in paths {
                    let values = self.points(path)?;
                    if rows.len() * values.len() > PINNED_MAX {
                        return None;
                    }
                    let extend = |row: &Vec<Json>, value: &Json| {
                        let mut row = row.clone();
                        row.push(value.clone());
                        row
                    };
                    rows = rows
                        .iter()
                        .flat_map(|row| values.iter().map(move |value| extend(row, value)))
                        .collect();
                }
                Some(rows)
            }
        }
    }

    /// The only values that a path can have.
    fn points(&self, path: &str) -> Option<Vec<Json>> {
        match self {
            Condition::Nothing => Some(Vec::new()),
            Condition::Path(known, ranges) if known == path => {
                ranges.iter().map(|range| range.as_point().cloned()).collect()
            }
            Condition::And(all) => all.iter().find_map(|condition| condition.points(path)),
            Condition::Or(any) => {
                let mut values: Vec<Json> = Vec::new();
                for condition in any {
                    for value in condition.points(path)? {
                        if !values.iter().any(|known| equal(known, &value)) {
                            values.push(value);
                        }
                    }
                }
                Some(values)
            }
            _ => None,
        }
    }

    /// All of these, as one.
    pub fn and(all: Vec<Condition>) -> Condition {
        let mut flat: Vec<Condition> = Vec::new();
        for condition in all {
            match condition {
                Condition::All => {}
                Condition::Nothing => return Condition::Nothing,
                Condition::And(inner) => inner.into_iter().for_each(|c| narrow(&mut flat, c)),
                other => narrow(&mut flat, other),
            }
        }
        let empty = |c: &Condition| matches!(c, Condition::Path(_, ranges) if ranges.is_empty());
        if flat.iter().any(empty) {
            return Condition::Nothing;
        }
        match flat.len() {
            0 => Condition::All,
            1 => flat.remove(0),
            _ => Condition::And(flat),
        }
    }

    /// One of these, as one.
    pub fn or(any: Vec<Condition>) -> Condition {
        let mut flat: Vec<Condition> = Vec::new();
        for condition in any {
            match condition {
                Condition::All => return Condition::All,
                Condition::Nothing => {}
                Condition::Or(inner) => inner.into_iter().for_each(|c| widen(&mut flat, c)),
                other => widen(&mut flat, other),
            }
        }
        match flat.len() {
            0 => Condition::Nothing,
            1 => flat.remove(0),
            _ => Condition::Or(flat),
        }
    }
}

/// Adds a condition to several that must all hold. Two on one path become one, unless it goes
/// through an array: there different elements may meet them.
fn narrow(all: &mut Vec<Condition>, condition: Condition) {
    if let Condition::Path(path, ranges) = &condition
        && !path.contains("/[]")
    {
        for known in all.iter_mut() {
            if let Condition::Path(same, others) = known
                && same == path
            {
                *others = intersect(others, ranges);
                return;
            }
        }
    }
    all.push(condition);
}

/// Adds a condition to several of which one must hold; two on one path become one.
fn widen(any: &mut Vec<Condition>, condition: Condition) {
    if let Condition::Path(path, ranges) = &condition {
        for known in any.iter_mut() {
            if let Condition::Path(same, others) = known
                && same == path
            {
                others.extend(ranges.iter().cloned());
                *others = normalize(std::mem::take(others));
                return;
            }
        }
    }
    any.push(condition);
}

/// Such as `(/a/? in 1 | (5, 7] and /b defined)`.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |f: &mut fmt::Formatter<'_>, all: &[Condition], word: &str| {
            let parts: Vec<String> = all.iter().map(Condition::to_string).collect();
            write!(f, "({})", parts.join(word))
        };
        match self {
            Condition::All => f.write_str("all"),
            Condition::Nothing => f.write_str("nothing"),
            Condition::Defined(path) => write!(f, "{path} defined"),
            Condition::And(all) => join(f, all, " and "),
            Condition::Or(any) => join(f, any, " or "),
            Condition::Path(path, ranges) => {
                let ranges: Vec<String> = ranges.iter().map(Range::to_string).collect();
                write!(f, "{path} in {}", ranges.join(" | "))
            }
        }
    }
}
