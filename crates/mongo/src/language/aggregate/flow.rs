//! Stages that let documents pass or not, multiply them, or bring their own.

use std::vec;

use bson::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use super::{Stage, Step, Up};
use crate::language::failure::{Failure, Result};
use crate::language::filter::Filter;
use crate::language::path::Path;
use crate::language::projection::field_name;

/// `$match`.
#[derive(Debug)]
pub struct Match {
    pub filter: Option<Filter>,
}

impl Stage for Match {
    fn next(&mut self, up: &mut Up<'_>) -> Result<Step> {
        loop {
            match up()? {
                Step::Document(document) => {
                    let passes = match &self.filter {
                        Some(filter) => filter.matches(&document)?,
                        None => true,
                    };
                    if passes {
                        return Ok(Step::Document(document));
                    }
                }
                other => return Ok(other),
            }
        }
    }

    fn take_filter(&mut self) -> Option<Filter> {
        self.filter.take()
    }
}

/// `$limit`.
#[derive(Debug)]
pub struct Limit {
    pub left: i64,
}

impl Stage for Limit {
    fn next(&mut self, up: &mut Up<'_>) -> Result<Step> {
        if self.left == 0 {
            return Ok(Step::Done);
        }
        let step = up()?;
        if matches!(step, Step::Document(_)) {
            self.left -= 1;
        }
        Ok(step)
    }
}

/// `$skip`.
#[derive(Debug)]
pub struct Skip {
    pub left: i64,
}

impl Stage for Skip {
    fn next(&mut self, up: &mut Up<'_>) -> Result<Step> {
        loop {
            match up()? {
                Step::Document(_) if self.left > 0 => self.left -= 1,
                other => return Ok(other),
            }
        }
    }
}

/// `$unwind`.
#[derive(Debug)]
pub struct Unwind {
    pub path: Path,
    pub index: Option<String>,
    pub preserve: bool,
    pub pending: vec::IntoIter<RawDocumentBuf>,
}

impl Unwind {
    fn unwound(&self, document: RawDocumentBuf) -> Result<Vec<RawDocumentBuf>> {
        let index = |out: RawDocumentBuf, at: Option<i64>| match &self.index {
            None => Ok(out),
            Some(path) => {
                let value = at.map_or(RawBsonRef::Null, RawBsonRef::Int64);
                with_field(&out, path, Some(value))
            }
        };
        let mut out = Vec::new();
        match self.path.plain(&document) {
            Some(RawBsonRef::Array(array)) if !array.is_empty() => {
                for (at, value) in array.into_iter().enumerate() {
                    let next = with_field(&document, self.path.as_str(), Some(value?))?;
                    out.push(index(next, Some(at as i64))?);
                }
            }
            Some(RawBsonRef::Array(_)) => {
                if self.preserve {
                    out.push(index(with_field(&document, self.path.as_str(), None)?, None)?);
                }
            }
            None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => {
                if self.preserve {
                    out.push(index(document, None)?);
                }
            }
            Some(_) => out.push(index(document, None)?),
        }
        Ok(out)
    }
}

impl Stage for Unwind {
    fn next(&mut self, up: &mut Up<'_>) -> Result<Step> {
        loop {
            if let Some(next) = self.pending.next() {
                return Ok(Step::Document(next));
            }
            match up()? {
                Step::Document(document) => self.pending = self.unwound(document)?.into_iter(),
                other => return Ok(other),
            }
        }
    }
}

/// The document with a value at a dotted path, or without one there. What stands in the way is replaced.
pub fn with_field(
    document: &RawDocument,
    path: &str,
    value: Option<RawBsonRef<'_>>,
) -> Result<RawDocumentBuf> {
    let (first, rest) = match path.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (path, None),
    };
    let mut out = RawDocumentBuf::new();
    let mut done = false;
    let put = |out: &mut RawDocumentBuf, old: Option<RawBsonRef<'_>>| -> Result<()> {
        match (rest, value) {
            (None, Some(value)) => out.append(field_name(first)?, value),
            (None, None) => {}
            (Some(rest), _) => {
                let empty = RawDocumentBuf::new();
                let inner = match old {
                    Some(RawBsonRef::Document(inner)) => inner,
                    _ => &*empty,
                };
                out.append(field_name(first)?, &*with_field(inner, rest, value)?);
            }
        }
        Ok(())
    };
    for element in document.iter_elements() {
        let element = element?;
        if element.key().as_str() == first {
            put(&mut out, Some(element.value()?))?;
            done = true;
        } else {
            out.append(element.key(), element.value()?);
        }
    }
    if !done && value.is_some() {
        put(&mut out, None)?;
    }
    Ok(out)
}

/// The document with an array of documents at a path.
pub fn with_array(
    document: &RawDocument,
    path: &str,
    items: &[RawDocumentBuf],
) -> Result<RawDocumentBuf> {
    let mut array = RawArrayBuf::new();
    for item in items {
        array.push(&**item);
    }
    with_field(document, path, Some(RawBsonRef::Array(&array)))
}

/// Documents that a stage brings itself.
#[derive(Debug)]
pub struct Brought {
    pub documents: vec::IntoIter<RawDocumentBuf>,
}

impl Stage for Brought {
    fn next(&mut self, _: &mut Up<'_>) -> Result<Step> {
        Ok(self.documents.next().map_or(Step::Done, Step::Document))
    }
}

/// `$count`.
#[derive(Debug)]
pub struct Count {
    pub name: String,
    pub seen: i64,
    pub done: bool,
}

impl Stage for Count {
    fn next(&mut self, up: &mut Up<'_>) -> Result<Step> {
        if self.done {
            return Ok(Step::Done);
        }
        loop {
            match up()? {
                Step::Document(_) => self.seen += 1,
                Step::Done if self.seen == 0 => return Ok(Step::Done),
                Step::Done => {
                    self.done = true;
                    let mut out = RawDocumentBuf::new();
                    let name = field_name(&self.name)?;
                    match i32::try_from(self.seen) {
                        Ok(count) => out.append(name, count),
                        Err(_) => out.append(name, self.seen),
                    }
                    return Ok(Step::Document(out));
                }
                other => return Ok(other),
            }
        }
    }
}

/// What happens to all documents of a [`Blocking`] stage together.
pub type Together = Box<dyn FnMut(Vec<RawDocumentBuf>) -> Result<Vec<RawDocumentBuf>> + Send>;

/// A stage that must see all documents first.
pub struct Blocking {
    name: &'static str,
    held: Vec<RawDocumentBuf>,
    bytes: usize,
    bytes_max: usize,
    together: Together,
    /// What documents must be to be of any use.
    condition: Option<Filter>,
    results: Option<vec::IntoIter<RawDocumentBuf>>,
}

impl Blocking {
    pub fn new(name: &'static str, bytes_max: usize, together: Together) -> Self {
        let (held, condition, results) = (Vec::new(), None, None);
        Self { name, held, bytes: 0, bytes_max, together, condition, results }
    }

    /// The same, of documents that are so.
    pub fn with_condition(mut self, condition: Filter) -> Self {
        self.condition = Some(condition);
        self
    }
}

impl std::fmt::Debug for Blocking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} holding {} documents", self.name, self.held.len())
    }
}

impl Stage for Blocking {
    fn condition(&self) -> Option<&Filter> {
        self.condition.as_ref()
    }

    fn next(&mut self, up: &mut Up<'_>) -> Result<Step> {
        loop {
            if let Some(results) = &mut self.results {
                return Ok(results.next().map_or(Step::Done, Step::Document));
            }
            match up()? {
                Step::Document(document) => {
                    self.bytes += document.as_bytes().len() + 64;
                    if self.bytes > self.bytes_max {
                        return Err(exceeded(self.name));
                    }
                    self.held.push(document);
                }
                Step::Done => {
                    let held = std::mem::take(&mut self.held);
                    self.results = Some((self.together)(held)?.into_iter());
                }
                other => return Ok(other),
            }
        }
    }
}

/// The refusal of a stage that would hold too much.
pub fn exceeded(stage: &str) -> Failure {
    Failure::coded(
        146,
        format!(
            "Exceeded memory limit for {stage}, but didn't allow external sort. Narrow the input with $match, $project or $limit before it."
        ),
    )
}
