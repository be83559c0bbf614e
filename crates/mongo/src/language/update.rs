//! Updates: replacing a document, changing its fields with operators, or putting it through a pipeline.
//!
//! [`Update::parse`] checks everything that can be checked without a document, conflicts between paths included. [`Update::apply`]
//! gives the document's next state, or none if nothing changes. [`Update::insert`] gives what an upsert inserts. Fields are changed
//! in the order of their names, so what is new is appended in that order, as MongoDB does it.

mod array;
mod field;
mod parse;
mod target;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use bson::oid::ObjectId;
use bson::{Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf};

use super::aggregate::Transform;
use super::compare;
use super::failure::{Failure, Result};
use super::filter::Filter;
use super::value::{owned, owned_document, raw_document, shown};
use super::vars::Vars;
use array::ArrayChange;
use field::FieldChange;
use target::{Identifiers, Part};

/// A checked update.
#[derive(Debug)]
pub struct Update {
    kind: Kind,
    vars: Vars,
}

#[derive(Debug)]
enum Kind {
    Replacement(Document),
    Operators { changes: Vec<PathChange>, filters: BTreeMap<String, ElementCondition> },
    Pipeline(Transform),
}

/// What happens at one path.
#[derive(Debug)]
struct PathChange {
    operator: &'static str,
    /// As written, for messages.
    path: String,
    parts: Vec<Part>,
    change: Change,
}

#[derive(Debug)]
enum Change {
    Field(FieldChange),
    Array(ArrayChange),
    /// Where the field goes.
    Rename(Vec<Part>, String),
    SetOnInsert(Bson),
    Unset,
}

/// The condition of an array filter: its identifier stands for the element.
#[derive(Debug)]
struct ElementCondition {
    filter: Filter,
}

impl Update {
    /// Reads an update: a document of operators, a replacement, or an array of stages.
    pub fn parse(
        update: RawBsonRef<'_>,
        array_filters: &[&RawDocument],
        vars: &Vars,
    ) -> Result<Self> {
        let kind = match update {
            RawBsonRef::Array(stages) => {
                if !array_filters.is_empty() {
                    return Err(Failure::failed_to_parse(
                        "Cannot specify arrayFilters and a pipeline update",
                    ));
                }
                let mut specs = Vec::new();
                for stage in stages {
                    specs.push(stage?);
                }
                Kind::Pipeline(Transform::parse_update(&specs, vars)?)
            }
            RawBsonRef::Document(document) => {
                let first = document.iter().next().transpose()?;
                match first {
                    Some((name, _)) if name.as_str().starts_with('$') => {
                        parse::operators(document, array_filters, vars)?
                    }
                    _ => {
                        if !array_filters.is_empty() {
                            return Err(Failure::failed_to_parse(
                                "Cannot specify arrayFilters with a replacement-style update",
                            ));
                        }
                        Kind::Replacement(parse::replacement(document)?)
                    }
                }
            }
            _ => {
                return Err(Failure::failed_to_parse(
                    "Update argument must be either an object or an array",
                ));
            }
        };
        Ok(Self { kind, vars: vars.clone() })
    }

    /// Whether it replaces whole documents, and so can change only one.
    pub fn is_replacement(&self) -> bool {
        matches!(self.kind, Kind::Replacement(_))
    }

    /// The document after the update; none if it stays as it is. `position` is what `$` stands for: the element that the filter
    /// matched ([`Filter::matches_at`]).
    pub fn apply(
        &self,
        document: &RawDocument,
        position: Option<usize>,
    ) -> Result<Option<RawDocumentBuf>> {
        let before = owned_document(document)?;
        let after = self.change(before.clone(), position, false)?;
        check_id(&before, &after, self.is_replacement())?;
        let after = raw_document(&after)?;
        Ok((after.as_bytes() != document.as_bytes()).then_some(after))
    }

    /// What an upsert inserts when nothing matched: the filter's equalities, changed by the update. Without an `_id` in either,
    /// it gets `id`.
    pub fn insert(&self, filter: &Filter, id: ObjectId) -> Result<RawDocumentBuf> {
        let seed = self.seed(filter)?;
        let mut after = self.change(seed.clone(), None, true)?;
        if seed.contains_key("_id") {
            check_id(&seed, &after, self.is_replacement())?;
        }
        let id = after.remove("_id").unwrap_or(Bson::ObjectId(id));
        match id {
            Bson::Array(_) => {
                return Err(Failure::coded(53, "The '_id' value cannot be of type array"));
            }
            Bson::RegularExpression(_) => {
                return Err(Failure::coded(53, "The '_id' value cannot be of type regex"));
            }
            Bson::Undefined => {
                return Err(Failure::coded(53, "The '_id' value cannot be of type undefined"));
            }
            _ => {}
        }
        let mut ordered = Document::new();
        ordered.insert("_id", id);
        ordered.extend(after);
        raw_document(&ordered)
    }

    /// A document of what the filter's matches must equal.
    fn seed(&self, filter: &Filter) -> Result<Document> {
        let mut seed = Document::new();
        let mut paths: Vec<&str> = Vec::new();
        for (path, value) in filter.equalities() {
            if self.is_replacement() && path != "_id" {
                continue;
            }
            for other in &paths {
                let within = |inner: &str, outer: &str| {
                    inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.'))
                };
                let related = path == *other || within(path, other) || within(other, path);
                if related && path == *other {
                    return Err(Failure::coded(
                        54,
                        format!("cannot infer query fields to set, path '{path}' is matched twice"),
                    ));
                }
                if related {
                    return Err(Failure::coded(
                        54,
                        format!(
                            "cannot infer query fields to set, both paths '{other}' and '{path}' are matched"
                        ),
                    ));
                }
            }
            paths.push(path);
            let parts: Vec<Part> =
                path.split('.').map(|part| Part::Name(part.to_owned())).collect();
            target::set(&mut seed, &parts, owned(value.as_raw_bson_ref())?)?;
        }
        Ok(seed)
    }

    fn change(
        &self,
        before: Document,
        position: Option<usize>,
        inserting: bool,
    ) -> Result<Document> {
        match &self.kind {
            Kind::Replacement(replacement) => Ok(replaced(&before, replacement)),
            Kind::Pipeline(transform) => {
                let id = before.get("_id").cloned();
                let mut after = transform.apply_document(before)?;
                // A pipeline that drops the id leaves it as it was.
                if let (Some(id), false) = (id, after.contains_key("_id")) {
                    let mut ordered = Document::new();
                    ordered.insert("_id", id);
                    ordered.extend(after);
                    after = ordered;
                }
                Ok(after)
            }
            Kind::Operators { changes, filters } => {
                let identifiers = Identifiers { position, filters };
                let mut document = before;
                let mut touched: Vec<Vec<Part>> = Vec::new();
                for change in changes {
                    if matches!(change.change, Change::SetOnInsert(_)) && !inserting {
                        continue;
                    }
                    for path in target::expand(&document, change, &identifiers)? {
                        conflict(&touched, &path)?;
                        change.apply(&mut document, &path, &self.vars)?;
                        touched.push(path);
                    }
                }
                Ok(document)
            }
        }
    }
}

impl PathChange {
    /// Carries the change out at one concrete path.
    fn apply(&self, document: &mut Document, path: &[Part], vars: &Vars) -> Result<()> {
        match &self.change {
            Change::SetOnInsert(value) => target::set(document, path, value.clone()),
            Change::Unset => {
                target::unset(document, path);
                Ok(())
            }
            Change::Rename(to, to_text) => {
                target::refuse_arrays(document, path, &self.path, "source")?;
                target::refuse_arrays(document, to, to_text, "destination")?;
                match target::unset(document, path) {
                    Some(value) => target::set(document, to, value),
                    None => Ok(()),
                }
            }
            Change::Field(change) => {
                let current = target::get(document, path);
                let at = field::Place { path, operator: self.operator, id: document.get("_id") };
                match change.next(current, &at, vars)? {
                    Some(next) => target::set(document, path, next),
                    None => Ok(()),
                }
            }
            Change::Array(change) => {
                let current = target::get(document, path);
                let id = document.get("_id").cloned();
                let at = field::Place { path, operator: self.operator, id: id.as_ref() };
                match change.next(current, &at)? {
                    Some(next) => target::set(document, path, next),
                    None => {
                        // Even what changes nothing needs a path that could be there.
                        target::viable(document, path)
                    }
                }
            }
        }
    }
}

/// Two changes of one command must not touch the same place.
fn conflict(touched: &[Vec<Part>], path: &[Part]) -> Result<()> {
    for other in touched {
        let shared = other.len().min(path.len());
        if other[..shared] == path[..shared] {
            let place = target::written(&path[..shared]);
            return Err(Failure::coded(40, format!("Update created a conflict at '{place}'")));
        }
    }
    Ok(())
}

/// The replacement with the id of what it replaces, which comes first.
fn replaced(before: &Document, replacement: &Document) -> Document {
    let mut after = Document::new();
    if let Some(id) = replacement.get("_id").or_else(|| before.get("_id")) {
        after.insert("_id", id.clone());
    }
    after.extend(
        replacement.iter().filter(|(name, _)| *name != "_id").map(|(k, v)| (k.clone(), v.clone())),
    );
    after
}

fn check_id(before: &Document, after: &Document, replacement: bool) -> Result<()> {
    let (Some(old), new) = (before.get("_id"), after.get("_id")) else { return Ok(()) };
    let same = new.is_some_and(|new| compare::order_values(old, new, None) == Ordering::Equal);
    if same {
        return Ok(());
    }
    let message = match new {
        Some(new) if replacement => format!(
            "After applying the update, the (immutable) field '_id' was found to have been altered to _id: {}",
            shown(new)
        ),
        _ => "Performing an update on the path '_id' would modify the immutable field '_id'"
            .to_owned(),
    };
    Err(Failure::coded(66, message))
}
