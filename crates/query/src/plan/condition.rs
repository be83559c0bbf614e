//! Conditions on single paths, which an index can answer, and how they combine.

use std::collections::HashMap;
use std::fmt;

use model::cells::Cell;
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
    /// A path (`/a/b`) has a shape that comes into one of these cells.
    Cells(String, Vec<Cell>),
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
                    if values.len() > PINNED_MAX {
                        return None;
                    }
                }
                Some(values)
            }
            _ => None,
        }
    }

    /// The ranges that every item's value at this path (`/a/?`) lies in; `None` if nothing says so.
    pub fn ranges_of(&self, path: &str) -> Option<&[Range]> {
        match self {
            Condition::Path(known, ranges) if known == path && !path.contains("/[]") => {
                Some(ranges)
            }
            Condition::And(all) => all.iter().find_map(|condition| condition.ranges_of(path)),
            _ => None,
        }
    }

    /// Whether every item has some value at this path (`/a/?`).
    pub fn requires(&self, path: &str) -> bool {
        match self {
            Condition::Defined(known) => path.strip_suffix("/?") == Some(known),
            Condition::And(all) => all.iter().any(|condition| condition.requires(path)),
            _ => self.ranges_of(path).is_some(),
        }
    }

    /// All of these, as one. Two on one path become one, unless it goes through an array: there
    /// different elements may meet them.
    pub fn and(all: Vec<Condition>) -> Condition {
        let mut parts = Parts::default();
        for condition in
            flat(all, |c| if let Condition::And(inner) = c { Ok(inner) } else { Err(c) })
        {
            match condition {
                Condition::All => {}
                Condition::Nothing => return Condition::Nothing,
                Condition::Path(path, ranges) if !path.contains("/[]") => {
                    parts.merge(path, ranges, |known, more| *known = intersect(known, &more));
                }
                other => parts.all.push(other),
            }
        }
        let empty = |c: &Condition| matches!(c, Condition::Path(_, ranges) if ranges.is_empty());
        if parts.all.iter().any(empty) {
            return Condition::Nothing;
        }
        parts.join(Condition::All, Condition::And)
    }

    /// One of these, as one. Two on one path become one.
    pub fn or(any: Vec<Condition>) -> Condition {
        let mut parts = Parts::default();
        for condition in
            flat(any, |c| if let Condition::Or(inner) = c { Ok(inner) } else { Err(c) })
        {
            match condition {
                Condition::All => return Condition::All,
                Condition::Nothing => {}
                Condition::Path(path, ranges) => parts.merge(path, ranges, Vec::extend),
                other => parts.all.push(other),
            }
        }
        for part in &mut parts.all {
            if let Condition::Path(_, ranges) = part {
                *ranges = normalize(std::mem::take(ranges));
            }
        }
        parts.join(Condition::Nothing, Condition::Or)
    }
}

/// The conditions with those inside others of the same kind laid open.
fn flat(
    conditions: Vec<Condition>,
    inner: fn(Condition) -> Result<Vec<Condition>, Condition>,
) -> impl Iterator<Item = Condition> {
    conditions.into_iter().flat_map(move |c| inner(c).unwrap_or_else(|c| vec![c]))
}

/// Conditions to be joined, each path once.
#[derive(Default)]
struct Parts {
    all: Vec<Condition>,
    paths: HashMap<String, usize>,
}

impl Parts {
    /// Adds ranges of a path to those that are known, or as they are.
    fn merge(&mut self, path: String, ranges: Vec<Range>, add: fn(&mut Vec<Range>, Vec<Range>)) {
        match self.paths.get(&path).map(|place| &mut self.all[*place]) {
            Some(Condition::Path(_, known)) => add(known, ranges),
            _ => {
                self.paths.insert(path.clone(), self.all.len());
                self.all.push(Condition::Path(path, ranges));
            }
        }
    }

    fn join(mut self, none: Condition, many: fn(Vec<Condition>) -> Condition) -> Condition {
        match self.all.len() {
            0 => none,
            1 => self.all.remove(0),
            _ => many(self.all),
        }
    }
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
            Condition::Cells(path, cells) => write!(f, "{path} in {} cells", cells.len()),
            Condition::And(all) => join(f, all, " and "),
            Condition::Or(any) => join(f, any, " or "),
            Condition::Path(path, ranges) => {
                let ranges: Vec<String> = ranges.iter().map(Range::to_string).collect();
                write!(f, "{path} in {}", ranges.join(" | "))
            }
        }
    }
}
