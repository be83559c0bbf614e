//! Arrays as sets: order and repetition do not count.

use std::collections::BTreeMap;

use bson::Bson;

use super::eval::{Scope, is_nullish, kind, truth};
use super::{Function, MANY};
use crate::language::failure::{Failure, Result};
use crate::language::keycode::key_of;

pub(super) const FUNCTIONS: &[Function] = &[
    Function { name: "$setEquals", min: 2, max: MANY, call: equals },
    Function { name: "$setIntersection", min: 0, max: MANY, call: intersection },
    Function { name: "$setUnion", min: 0, max: MANY, call: union },
    Function { name: "$setDifference", min: 2, max: 2, call: difference },
    Function { name: "$setIsSubset", min: 2, max: 2, call: is_subset },
    Function {
        name: "$anyElementTrue",
        min: 1,
        max: 1,
        call: |v, _| elements("$anyElementTrue", 17041, v, true),
    },
    Function {
        name: "$allElementsTrue",
        min: 1,
        max: 1,
        call: |v, _| elements("$allElementsTrue", 17040, v, false),
    },
];

type Set = BTreeMap<Vec<u8>, Bson>;

fn set(values: &[Bson], scope: &Scope<'_>) -> Set {
    let by = scope.vars.collation.as_ref();
    values.iter().map(|value| (key_of(value, by), value.clone())).collect()
}

fn array(value: &Bson, refuse: impl Fn(&'static str) -> Failure) -> Result<&[Bson]> {
    match value {
        Bson::Array(items) => Ok(items),
        other => Err(refuse(kind(other))),
    }
}

fn equals(values: &[Bson], scope: &Scope<'_>) -> Result<Bson> {
    let mut first: Option<Set> = None;
    for value in values {
        let items = array(value, |kind| {
            Failure::coded(
                17044,
                format!(
                    "All operands of $setEquals must be arrays. One argument is of type: {kind}"
                ),
            )
        })?;
        let next = set(items, scope);
        match &first {
            None => first = Some(next),
            Some(first) if first.keys().eq(next.keys()) => {}
            Some(_) => return Ok(Bson::Boolean(false)),
        }
    }
    Ok(Bson::Boolean(true))
}

fn intersection(values: &[Bson], scope: &Scope<'_>) -> Result<Bson> {
    let mut found: Option<Set> = None;
    for value in values {
        if is_nullish(value) {
            return Ok(Bson::Null);
        }
        let items = array(value, |kind| {
            Failure::coded(
                17047,
                format!(
                    "All operands of $setIntersection must be arrays. One argument is of type: {kind}"
                ),
            )
        })?;
        let next = set(items, scope);
        found = Some(match found {
            None => next,
            Some(found) => found.into_iter().filter(|(key, _)| next.contains_key(key)).collect(),
        });
    }
    Ok(Bson::Array(found.unwrap_or_default().into_values().collect()))
}

fn union(values: &[Bson], scope: &Scope<'_>) -> Result<Bson> {
    let mut found = Set::new();
    for value in values {
        if is_nullish(value) {
            return Ok(Bson::Null);
        }
        let items = array(value, |kind| {
            Failure::coded(
                17043,
                format!(
                    "All operands of $setUnion must be arrays. One argument is of type: {kind}"
                ),
            )
        })?;
        for (key, value) in set(items, scope) {
            found.entry(key).or_insert(value);
        }
    }
    Ok(Bson::Array(found.into_values().collect()))
}

fn difference(values: &[Bson], scope: &Scope<'_>) -> Result<Bson> {
    if values.iter().any(is_nullish) {
        return Ok(Bson::Null);
    }
    let refuse = |code: i32, which: &'static str| {
        move |kind: &'static str| {
            Failure::coded(
                code,
                format!(
                    "both operands of $setDifference must be arrays. {which} argument is of type: {kind}"
                ),
            )
        }
    };
    let from = array(&values[0], refuse(17048, "First"))?;
    let without = set(array(&values[1], refuse(17049, "Second"))?, scope);
    // In the order of the first, each once.
    let mut seen = Set::new();
    let by = scope.vars.collation.as_ref();
    let mut out = Vec::new();
    for value in from {
        let key = key_of(value, by);
        if !without.contains_key(&key) && seen.insert(key, Bson::Null).is_none() {
            out.push(value.clone());
        }
    }
    Ok(Bson::Array(out))
}

fn is_subset(values: &[Bson], scope: &Scope<'_>) -> Result<Bson> {
    let refuse = |code: i32, which: &'static str| {
        move |kind: &'static str| {
            Failure::coded(
                code,
                format!(
                    "both operands of $setIsSubset must be arrays. {which} argument is of type: {kind}"
                ),
            )
        }
    };
    let small = set(array(&values[0], refuse(17046, "First"))?, scope);
    let large = set(array(&values[1], refuse(17042, "Second"))?, scope);
    Ok(Bson::Boolean(small.keys().all(|key| large.contains_key(key))))
}

fn elements(name: &str, code: i32, values: &[Bson], any: bool) -> Result<Bson> {
    let items = array(&values[0], |kind| {
        Failure::coded(code, format!("{name}'s argument must be an array, but is {kind}"))
    })?;
    Ok(Bson::Boolean(if any { items.iter().any(truth) } else { items.iter().all(truth) }))
}
