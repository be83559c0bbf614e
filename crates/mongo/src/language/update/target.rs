//! Places in a document: reading, setting and removing what a path leads to, and finding the paths that `$`, `$[]` and `$[x]` mean.

use std::collections::BTreeMap;

use bson::{Bson, Document};

use super::{ElementCondition, PathChange};
use crate::language::failure::{Failure, Result};
use crate::language::path::is_index;
use crate::language::value::{raw_document, shown};

/// One step of an update's path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A field, or a place in an array.
    Name(String),
    /// `$`: the element that the filter matched.
    Matched,
    /// `$[]`: every element.
    Every,
    /// `$[x]`: the elements that the array filter `x` takes.
    Filtered(String),
}

/// How far an array may be filled up with nulls to reach a place.
const PADDING_MAX: usize = 1_500_000;

impl Part {
    /// The part as it is written.
    pub fn text(&self) -> String {
        match self {
            Self::Name(name) => name.clone(),
            Self::Matched => "$".to_owned(),
            Self::Every => "$[]".to_owned(),
            Self::Filtered(identifier) => format!("$[{identifier}]"),
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Name(name) => name,
            _ => "",
        }
    }
}

/// The path with its dots.
pub fn written(parts: &[Part]) -> String {
    parts.iter().map(Part::text).collect::<Vec<_>>().join(".")
}

/// What the steps that are not names stand for.
pub struct Identifiers<'u> {
    pub position: Option<usize>,
    pub filters: &'u BTreeMap<String, ElementCondition>,
}

/// The concrete paths that a change's path means in a document.
pub fn expand(
    document: &Document,
    change: &PathChange,
    identifiers: &Identifiers<'_>,
) -> Result<Vec<Vec<Part>>> {
    let mut paths: Vec<Vec<Part>> = vec![Vec::with_capacity(change.parts.len())];
    for part in &change.parts {
        match part {
            Part::Name(_) => paths.iter_mut().for_each(|path| path.push(part.clone())),
            Part::Matched => {
                let position = identifiers.position.ok_or_else(|| {
                    Failure::bad_value(
                        "The positional operator did not find the match needed from the query.",
                    )
                })?;
                paths.iter_mut().for_each(|path| path.push(Part::Name(position.to_string())));
            }
            Part::Every | Part::Filtered(_) => {
                let mut next = Vec::new();
                for path in paths {
                    for at in elements(document, &path, part, identifiers)? {
                        let mut longer = path.clone();
                        longer.push(Part::Name(at.to_string()));
                        next.push(longer);
                    }
                }
                paths = next;
            }
        }
    }
    Ok(paths)
}

fn elements(
    document: &Document,
    path: &[Part],
    part: &Part,
    identifiers: &Identifiers<'_>,
) -> Result<Vec<usize>> {
    let place = written(path);
    let items = match get(document, path) {
        Some(Bson::Array(items)) => items,
        Some(other) => {
            let name = path.last().map(Part::text).unwrap_or_default();
            return Err(Failure::bad_value(format!(
                "Cannot apply array updates to non-array element {name}: {}",
                shown(other)
            )));
        }
        None => {
            return Err(Failure::bad_value(format!(
                "The path '{place}' must exist in the document in order to apply array updates."
            )));
        }
    };
    let Part::Filtered(identifier) = part else { return Ok((0..items.len()).collect()) };
    let condition = identifiers.filters.get(identifier).ok_or_else(|| {
        Failure::bad_value(format!(
            "No array filter found for identifier '{identifier}' in path '{place}'"
        ))
    })?;
    let mut found = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let mut wrapped = Document::new();
        wrapped.insert(identifier.clone(), item.clone());
        if condition.filter.matches(&raw_document(&wrapped)?)? {
            found.push(at);
        }
    }
    Ok(found)
}

/// The value at a concrete path.
pub fn get<'d>(document: &'d Document, path: &[Part]) -> Option<&'d Bson> {
    let (first, rest) = path.split_first()?;
    let mut value = document.get(first.name())?;
    for part in rest {
        value = match value {
            Bson::Document(inner) => inner.get(part.name())?,
            Bson::Array(items) => items.get(index(part.name())?)?,
            _ => return None,
        };
    }
    Some(value)
}

fn index(part: &str) -> Option<usize> {
    is_index(part).then(|| part.parse().ok()).flatten()
}

/// Sets the value at a concrete path, making the documents on the way.
pub fn set(document: &mut Document, path: &[Part], value: Bson) -> Result<()> {
    let Some((first, rest)) = path.split_first() else { return Ok(()) };
    let name = first.name();
    let Some((next, _)) = rest.split_first() else {
        document.insert(name, value);
        return Ok(());
    };
    if !document.contains_key(name) {
        document.insert(name, Document::new());
    }
    match document.get_mut(name) {
        Some(inner) => set_in(inner, name, next, rest, value),
        None => Ok(()),
    }
}

fn set_in(
    container: &mut Bson,
    container_name: &str,
    next: &Part,
    rest: &[Part],
    value: Bson,
) -> Result<()> {
    match container {
        Bson::Document(inner) => set(inner, rest, value),
        Bson::Array(items) => {
            let Some(at) = index(next.name()) else {
                return Err(not_viable(next.name(), container_name, container));
            };
            if at >= items.len() && at - items.len() > PADDING_MAX {
                return Err(Failure::bad_value(format!(
                    "can't backfill more than {PADDING_MAX} elements"
                )));
            }
            let below = &rest[1..];
            while items.len() <= at {
                items.push(Bson::Null);
                if items.len() == at + 1 && !below.is_empty() {
                    items[at] = Bson::Document(Document::new());
                }
            }
            match below.split_first() {
                None => {
                    items[at] = value;
                    Ok(())
                }
                Some((after, _)) => set_in(&mut items[at], next.name(), after, below, value),
            }
        }
        other => Err(not_viable(next.name(), container_name, other)),
    }
}

fn not_viable(field: &str, name: &str, container: &Bson) -> Failure {
    Failure::coded(
        28,
        format!("Cannot create field '{field}' in element {{{name}: {}}}", shown(container)),
    )
}

/// Refuses a path that could not be made.
pub fn viable(document: &Document, path: &[Part]) -> Result<()> {
    let Some((first, rest)) = path.split_first() else { return Ok(()) };
    let Some(mut value) = document.get(first.name()) else { return Ok(()) };
    let mut name = first.name();
    for part in rest {
        let next = match value {
            Bson::Document(inner) => inner.get(part.name()),
            Bson::Array(items) => match index(part.name()) {
                Some(at) => items.get(at),
                None => return Err(not_viable(part.name(), name, value)),
            },
            other => return Err(not_viable(part.name(), name, other)),
        };
        let Some(next) = next else { return Ok(()) };
        value = next;
        name = part.name();
    }
    Ok(())
}

/// Removes what is at a concrete path and gives it back; an array's element becomes null.
pub fn unset(document: &mut Document, path: &[Part]) -> Option<Bson> {
    let (first, rest) = path.split_first()?;
    if rest.is_empty() {
        return document.remove(first.name());
    }
    let mut container = document.get_mut(first.name())?;
    let (last, middle) = rest.split_last()?;
    for part in middle {
        container = match container {
            Bson::Document(inner) => inner.get_mut(part.name())?,
            Bson::Array(items) => items.get_mut(index(part.name())?)?,
            _ => return None,
        };
    }
    match container {
        Bson::Document(inner) => inner.remove(last.name()),
        Bson::Array(items) => {
            let item = items.get_mut(index(last.name())?)?;
            Some(std::mem::replace(item, Bson::Null))
        }
        _ => None,
    }
}

/// `$rename` goes through documents only.
pub fn refuse_arrays(document: &Document, path: &[Part], text: &str, which: &str) -> Result<()> {
    for length in 1..path.len() {
        if let Some(Bson::Array(_)) = get(document, &path[..length]) {
            let id = document.get("_id").map_or_else(|| "no id".to_owned(), shown);
            let array = path[length - 1].text();
            return Err(Failure::bad_value(format!(
                "The {which} field cannot be an array element, '{text}' in doc with _id: {id} has an array field called '{array}'"
            )));
        }
    }
    Ok(())
}
