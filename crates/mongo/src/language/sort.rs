//! Sort orders. A document's place in an order is a key whose bytes compare as the documents do.
//!
//! An array stands for its smallest element where the order ascends and for its largest where it descends; an empty one comes
//! before null, and what is missing counts as null.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bson::{Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf};

use super::collation::Collation;
use super::failure::{Failure, Result};
use super::geo::Near;
use super::keycode;
use super::number::Number;
use super::path::{Leaf, Path};
use super::value::{raw_document, shown_raw};

/// An order of documents by some of their fields.
#[derive(Clone, Debug)]
pub struct Sort {
    fields: Vec<SortField>,
    collation: Option<Collation>,
}

/// One field of an order.
#[derive(Clone, Debug)]
pub struct SortField {
    /// Where the value is.
    pub path: Path,
    /// Whether small values come first.
    pub ascending: bool,
    by: By,
}

/// What of the field counts.
#[derive(Clone, Debug)]
enum By {
    Value,
    /// Nothing: the order is random.
    Random,
    /// When the document came: `$natural`.
    Arrival(Arc<AtomicU64>),
    /// How far it is from a place.
    Distance(Box<Near>),
}

impl SortField {
    /// Whether its values decide, and nothing else.
    pub fn is_by_value(&self) -> bool {
        matches!(self.by, By::Value)
    }
}

impl Sort {
    /// The nearest first: how the matches of `$near` are sorted.
    pub fn by_distance(path: &str, near: &Near) -> Self {
        let by = By::Distance(Box::new(near.clone()));
        let field = SortField { path: Path::new(path), ascending: true, by };
        Self { fields: vec![field], collation: None }
    }

    /// Reads `{a: 1, "b.c": -1}`.
    pub fn parse(spec: &RawDocument, collation: Option<&Collation>) -> Result<Self> {
        let mut fields = Vec::new();
        for element in spec.iter() {
            let (name, value) = element?;
            let name = name.as_str();
            if name.is_empty() || name.split('.').any(str::is_empty) {
                return Err(Failure::coded(
                    40352,
                    "FieldPath cannot be constructed with empty string",
                ));
            }
            if name.starts_with('$') && name != "$natural" {
                return Err(Failure::coded(
                    16410,
                    format!(
                        "FieldPath field names may not start with '$'. Consider using $getField or $setField. Field: {name}"
                    ),
                ));
            }
            let (ascending, by) = match value {
                RawBsonRef::Document(meta) => match meta.get("$meta")? {
                    Some(RawBsonRef::String("randVal")) => (false, By::Random),
                    Some(RawBsonRef::String(_)) => return Err(Failure::no_scores()),
                    _ => {
                        return Err(Failure::coded(
                            17312,
                            "$meta is the only expression supported by $sort right now",
                        ));
                    }
                },
                value => match Number::of(value) {
                    None => {
                        return Err(Failure::coded(
                            15974,
                            format!(
                                "Illegal key in $sort specification: {name}: {}",
                                shown_raw(value)
                            ),
                        ));
                    }
                    Some(number) => match number.to_i64_exact() {
                        Some(1) => (true, By::Value),
                        Some(-1) => (false, By::Value),
                        _ => {
                            return Err(Failure::coded(
                                15975,
                                "$sort key ordering must be 1 (for ascending) or -1 (for descending)",
                            ));
                        }
                    },
                },
            };
            let by = if name == "$natural" { By::Arrival(Arc::default()) } else { by };
            fields.push(SortField { path: Path::new(name), ascending, by });
        }
        Ok(Self { fields, collation: collation.cloned() })
    }

    /// The `$sort` of a `$push`, with its own words for what is wrong.
    pub fn parse_push(spec: &Document) -> Result<Self> {
        let mut fields = Vec::new();
        for (name, value) in spec {
            let ascending = match Number::of_bson(value).and_then(Number::to_i64_exact) {
                Some(1) => true,
                Some(-1) => false,
                _ => {
                    return Err(Failure::bad_value(
                        "The $sort element value must be either 1 or -1",
                    ));
                }
            };
            if name.is_empty() || name.split('.').any(str::is_empty) {
                return Err(Failure::bad_value("The $sort field cannot be empty"));
            }
            fields.push(SortField { path: Path::new(name), ascending, by: By::Value });
        }
        Ok(Self { fields, collation: None })
    }

    /// The fields, the most important first.
    pub fn fields(&self) -> &[SortField] {
        &self.fields
    }

    /// Whether it orders nothing.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The document's place: compare the bytes of two.
    pub fn key(&self, document: &RawDocument) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.fields.len() * 12);
        for field in &self.fields {
            match &field.by {
                By::Value => self.append(&mut out, field, document),
                By::Random => out.extend(fastrand::u64(..).to_be_bytes()),
                By::Arrival(count) => {
                    let place = count.fetch_add(1, Ordering::Relaxed);
                    out.extend((if field.ascending { place } else { !place }).to_be_bytes());
                }
                By::Distance(near) => {
                    let distance = near.distance_at(&field.path, document);
                    let distance = distance.map_or(RawBsonRef::MaxKey, RawBsonRef::Double);
                    keycode::append(&mut out, distance, None);
                }
            }
        }
        out
    }

    fn append(&self, out: &mut Vec<u8>, field: &SortField, document: &RawDocument) {
        let mut best: Option<Vec<u8>> = None;
        let mut scratch = Vec::new();
        let mut take = |value: RawBsonRef<'_>| {
            scratch.clear();
            keycode::append(&mut scratch, value, self.collation.as_ref());
            let better = match &best {
                None => true,
                Some(best) => (scratch < *best) == field.ascending && scratch != *best,
            };
            if better {
                best = Some(scratch.clone());
            }
        };
        field.path.each(document, Leaf::Keep, |found| match found.value {
            None => take(RawBsonRef::Null),
            Some(RawBsonRef::Array(array)) if array.is_empty() => take(RawBsonRef::Undefined),
            Some(RawBsonRef::Array(array)) => array.into_iter().flatten().for_each(&mut take),
            Some(value) => take(value),
        });
        let start = out.len();
        match best {
            Some(best) => out.extend(best),
            None => keycode::append(out, RawBsonRef::Null, None),
        }
        if !field.ascending {
            out[start..].iter_mut().for_each(|byte| *byte = !*byte);
        }
    }

    /// Sorts documents; equal ones stay as they stood.
    pub fn sort(&self, documents: &mut [RawDocumentBuf]) {
        documents.sort_by_cached_key(|document| self.key(document));
    }

    /// Sorts the elements of an array; what is no document has none of the fields.
    pub fn sort_values(&self, values: &mut [Bson]) {
        values.sort_by_cached_key(|value| match value {
            Bson::Document(document) => {
                raw_document(document).map(|document| self.key(&document)).unwrap_or_default()
            }
            _ => self.key(&RawDocumentBuf::new()),
        });
    }
}
