//! Operators on arrays: `$push`, `$addToSet`, `$pop`, `$pull`, `$pullAll`.

use bson::Bson;

use super::field::Place;
use crate::language::compare::{order_values, same};
use crate::language::failure::{Failure, Result};
use crate::language::filter::{ElementFilter, Filter};
use crate::language::pattern::Pattern;
use crate::language::sort::Sort;
use crate::language::value::{raw_document, shown, type_name, with_raw};

/// What happens to an array.
#[derive(Debug)]
pub enum ArrayChange {
    Push(Push),
    AddToSet(Vec<Bson>),
    PopFirst,
    PopLast,
    Pull(Pull),
    PullAll(Vec<Bson>),
}

/// `$push` with its modifiers.
#[derive(Debug)]
pub struct Push {
    pub values: Vec<Bson>,
    pub position: Option<i64>,
    pub slice: Option<i64>,
    pub sort: Option<Order>,
}

impl Push {
    /// At the end, and nothing else.
    pub fn of(values: Vec<Bson>) -> Self {
        Self { values, position: None, slice: None, sort: None }
    }
}

/// `$sort` of a `$push`.
#[derive(Debug)]
pub enum Order {
    /// Elements themselves, ascending or descending.
    Whole(bool),
    /// By fields of documents.
    Fields(Sort),
}

/// What `$pull` takes out.
#[derive(Debug)]
pub enum Pull {
    Value(Bson),
    Pattern(Pattern),
    /// Operators on the element.
    Operators(ElementFilter),
    /// A filter on elements that are documents.
    Fields(Filter),
}

impl ArrayChange {
    /// The next array; none if nothing changes.
    pub fn next(&self, current: Option<&Bson>, at: &Place<'_>) -> Result<Option<Bson>> {
        let items = match current {
            None => None,
            Some(Bson::Array(items)) => Some(items),
            Some(other) => return Err(self.not_array(other, at)),
        };
        Ok(match self {
            Self::Push(push) => {
                let mut next = items.cloned().unwrap_or_default();
                push.apply(&mut next);
                Some(Bson::Array(next))
            }
            Self::AddToSet(values) => {
                let mut next = items.cloned().unwrap_or_default();
                for value in values {
                    if !next.iter().any(|known| same(known, value)) {
                        next.push(value.clone());
                    }
                }
                Some(Bson::Array(next))
            }
            Self::PopFirst => {
                items.map(|items| Bson::Array(items.iter().skip(1).cloned().collect()))
            }
            Self::PopLast => {
                items.map(|items| Bson::Array(items[..items.len().saturating_sub(1)].to_vec()))
            }
            Self::Pull(pull) => match items {
                None => None,
                Some(items) => {
                    let mut kept = Vec::with_capacity(items.len());
                    for item in items {
                        if !pull.takes(item)? {
                            kept.push(item.clone());
                        }
                    }
                    (kept.len() < items.len()).then_some(Bson::Array(kept))
                }
            },
            Self::PullAll(values) => items.map(|items| {
                let stays = |item: &&Bson| !values.iter().any(|value| same(value, item));
                Bson::Array(items.iter().filter(stays).cloned().collect())
            }),
        })
    }

    fn not_array(&self, current: &Bson, at: &Place<'_>) -> Failure {
        let kind = type_name(current.element_type());
        match self {
            Self::Push(_) => Failure::bad_value(format!(
                "The field '{}' must be an array but is of type {kind} in document {}",
                at.path(),
                at.document()
            )),
            Self::AddToSet(_) => Failure::bad_value(format!(
                "Cannot apply $addToSet to non-array field. Field named '{}' has non-array type {kind}",
                at.name()
            )),
            Self::PopFirst | Self::PopLast => Failure::type_mismatch(format!(
                "Path '{}' contains an element of non-array type '{kind}'",
                at.path()
            )),
            Self::Pull(_) | Self::PullAll(_) => {
                Failure::bad_value(format!("Cannot apply {} to a non-array value", at.operator))
            }
        }
    }
}

impl Push {
    fn apply(&self, items: &mut Vec<Bson>) {
        let len = items.len() as i64;
        let at = match self.position {
            None => len,
            Some(at) if at < 0 => (len + at).max(0),
            Some(at) => at.min(len),
        } as usize;
        items.splice(at..at, self.values.iter().cloned());
        match &self.sort {
            None => {}
            Some(Order::Whole(ascending)) => items.sort_by(|a, b| {
                let order = order_values(a, b, None);
                if *ascending { order } else { order.reverse() }
            }),
            Some(Order::Fields(sort)) => sort.sort_values(items),
        }
        match self.slice {
            None => {}
            Some(keep) if keep < 0 => {
                let drop = items.len().saturating_sub(keep.unsigned_abs() as usize);
                items.drain(..drop);
            }
            Some(keep) => items.truncate(keep as usize),
        }
    }
}

impl Pull {
    fn takes(&self, item: &Bson) -> Result<bool> {
        match self {
            Self::Value(value) => Ok(same(value, item)),
            Self::Pattern(pattern) => match item {
                Bson::String(text) | Bson::Symbol(text) => pattern.is_match(text),
                Bson::RegularExpression(regex) => Ok(regex.pattern.as_str() == pattern.source
                    && regex.options.as_str() == pattern.options),
                _ => Ok(false),
            },
            Self::Operators(filter) => with_raw(item, |item| filter.passes(item)),
            Self::Fields(filter) => match item {
                Bson::Document(document) => filter.matches(&raw_document(document)?),
                _ => Ok(false),
            },
        }
    }
}

/// The argument of `$each`.
pub fn each(operator: &str, value: &Bson) -> Result<Vec<Bson>> {
    match value {
        Bson::Array(items) => Ok(items.clone()),
        other if operator == "$push" => Err(Failure::bad_value(format!(
            "The argument to $each in $push must be an array but it was of type: {}",
            type_name(other.element_type())
        ))),
        other => Err(Failure::type_mismatch(format!(
            "The argument to $each in $addToSet must be an array but it was of type {}",
            type_name(other.element_type())
        ))),
    }
}

/// The argument of `$sort` in `$push`.
pub fn order(value: &Bson) -> Result<Order> {
    match value {
        Bson::Document(spec) => {
            if spec.is_empty() {
                return Err(Failure::bad_value(
                    "The $sort pattern is empty when it should be a set of fields.",
                ));
            }
            Ok(Order::Fields(Sort::parse_push(spec)?))
        }
        other => {
            match crate::language::number::Number::of_bson(other).and_then(|n| n.to_i64_exact()) {
                Some(1) => Ok(Order::Whole(true)),
                Some(-1) => Ok(Order::Whole(false)),
                _ => Err(Failure::bad_value(format!(
                    "The $sort is invalid: use 1/-1 to sort the whole element, or {{field:1/-1}} to sort embedded fields, found: {}",
                    shown(other)
                ))),
            }
        }
    }
}
