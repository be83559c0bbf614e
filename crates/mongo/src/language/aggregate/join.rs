//! Stages that need other collections: `$lookup`, `$graphLookup`, `$unionWith`.

use std::collections::{HashMap, HashSet};
use std::vec;

use bson::{Bson, Document, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, doc};

use super::flow::{exceeded, with_array, with_field};
use super::{Foreign, Stage, Step, Up};
use crate::language::expression::Expression;
use crate::language::failure::Result;
use crate::language::keycode;
use crate::language::path::{Leaf, Path, field};
use crate::language::value::{owned, raw_document};
use crate::language::vars::Vars;

/// Where other documents come from.
#[derive(Clone, Debug)]
pub struct From {
    pub database: Option<String>,
    pub collection: Option<String>,
}

impl From {
    fn ask(&self, stages: Vec<RawDocumentBuf>, vars: Vars) -> Step {
        Step::Foreign(Foreign {
            database: self.database.clone(),
            collection: self.collection.clone(),
            stages,
            vars,
        })
    }
}

/// How much the results of earlier look-ups may take, to be used again.
const REMEMBERED_BYTES_MAX: usize = 16 << 20;

/// `$lookup`, by equal fields, by a pipeline, or both.
#[derive(Debug)]
pub struct Lookup {
    pub from: From,
    /// The field here and the field there.
    pub fields: Option<(Path, String)>,
    pub variables: Vec<(String, Expression)>,
    pub stages: Vec<RawDocumentBuf>,
    pub name: String,
    pub vars: Vars,
    pub state: LookupState,
}

#[derive(Debug, Default)]
pub struct LookupState {
    /// The document that waits for its others, and under which key they can be remembered.
    waiting: Option<(RawDocumentBuf, Option<Vec<u8>>)>,
    found: Option<Vec<RawDocumentBuf>>,
    remembered: HashMap<Vec<u8>, Vec<RawDocumentBuf>>,
    remembered_bytes: usize,
}

impl Lookup {
    /// The stages that find a document's others, and a key of what they depend on.
    fn question(
        &self,
        document: &RawDocument,
    ) -> Result<(Vec<RawDocumentBuf>, Vars, Option<Vec<u8>>)> {
        let mut stages = Vec::new();
        let mut key = Vec::new();
        if let Some((local, there)) = &self.fields {
            let values = local_values(local, document)?;
            for value in &values {
                key.extend(keycode::key_of(value, None));
            }
            let condition = match &values[..] {
                [one] => doc! { "$eq": one.clone() },
                many => doc! { "$in": many.to_vec() },
            };
            stages.push(raw_document(&doc! { "$match": { there: condition } })?);
        }
        stages.extend(self.stages.iter().cloned());
        let mut vars = self.vars.clone();
        for (name, expression) in &self.variables {
            let value = expression.value(document)?;
            vars.variables.insert(name, value);
        }
        let key = self.variables.is_empty().then_some(key);
        Ok((stages, vars, key))
    }
}

/// What a document is joined by: a value, or each element of an array; null if there is nothing.
fn local_values(path: &Path, document: &RawDocument) -> Result<Vec<Bson>> {
    let mut values: Vec<Bson> = Vec::new();
    let mut failure = None;
    path.each(document, Leaf::Keep, |found| {
        let mut add = |value: RawBsonRef<'_>| match owned(value) {
            Ok(value) => values.push(value),
            Err(error) => failure = Some(error),
        };
        match found.value {
            Some(RawBsonRef::Array(array)) => {
                array.into_iter().flatten().for_each(&mut add);
            }
            Some(value) => add(value),
            None => add(RawBsonRef::Null),
        }
    });
    match failure {
        Some(failure) => Err(failure),
        None if values.is_empty() => Ok(vec![Bson::Null]),
        None => Ok(values),
    }
}

impl Stage for Lookup {
    fn next(&mut self, up: &mut Up<'_>) -> Result<Step> {
        if let Some((document, key)) = self.state.waiting.take() {
            let Some(found) = self.state.found.take() else {
                self.state.waiting = Some((document, key));
                return Ok(Step::Input);
            };
            let out = with_array(&document, &self.name, &found)?;
            if let Some(key) = key {
                let bytes: usize = found.iter().map(|each| each.as_bytes().len()).sum();
                if self.state.remembered_bytes + bytes < REMEMBERED_BYTES_MAX {
                    self.state.remembered_bytes += bytes;
                    self.state.remembered.insert(key, found);
                }
            }
            return Ok(Step::Document(out));
        }
        match up()? {
            Step::Document(document) => {
                let (stages, vars, key) = self.question(&document)?;
                if let Some(known) = key.as_ref().and_then(|key| self.state.remembered.get(key)) {
                    return Ok(Step::Document(with_array(&document, &self.name, known)?));
                }
                self.state.waiting = Some((document, key));
                Ok(self.from.ask(stages, vars))
            }
            other => Ok(other),
        }
    }

    fn supply(&mut self, documents: Vec<RawDocumentBuf>) -> Option<Vec<RawDocumentBuf>> {
        if self.state.waiting.is_none() || self.state.found.is_some() {
            return Some(documents);
        }
        self.state.found = Some(documents);
        None
    }
}

/// `$graphLookup`: from a value on, what it leads to, and what that leads to.
#[derive(Debug)]
pub struct Graph {
    pub from: From,
    pub start: Expression,
    pub connect_from: Path,
    pub connect_to: String,
    pub name: String,
    pub depth_max: Option<i64>,
    pub depth_field: Option<String>,
    pub restrict: Option<Document>,
    pub vars: Vars,
    pub search: Option<Search>,
}

/// A search under way.
#[derive(Debug)]
pub struct Search {
    document: RawDocumentBuf,
    frontier: Vec<Bson>,
    asked: HashSet<Vec<u8>>,
    seen: HashSet<Vec<u8>>,
    found: Vec<RawDocumentBuf>,
    depth: i64,
    bytes: usize,
    supplied: Option<Vec<RawDocumentBuf>>,
}

impl Graph {
    /// The next question of a search, or the document with all that was found.
    fn advance(&mut self) -> Result<Step> {
        let Some(mut search) = self.search.take() else { return Ok(Step::Done) };
        if let Some(supplied) = search.supplied.take() {
            for each in supplied {
                let id = field(&each, "_id").unwrap_or(RawBsonRef::Null);
                if !search.seen.insert(keycode::key(id)) {
                    continue;
                }
                search.bytes += each.as_bytes().len() + 128;
                if search.bytes > self.vars.memory_bytes_max {
                    return Err(exceeded("$graphLookup"));
                }
                search.frontier.extend(local_values(&self.connect_from, &each)?);
                search.found.push(match &self.depth_field {
                    Some(name) => with_field(&each, name, Some(RawBsonRef::Int64(search.depth)))?,
                    None => each,
                });
            }
            search.depth += 1;
        }
        let asked = &mut search.asked;
        let mut next = std::mem::take(&mut search.frontier);
        next.retain(|value| *value != Bson::Null && asked.insert(keycode::key_of(value, None)));
        if next.is_empty() || self.depth_max.is_some_and(|max| search.depth > max) {
            let out = with_array(&search.document, &self.name, &search.found)?;
            return Ok(Step::Document(out));
        }
        let mut condition = doc! { &self.connect_to: { "$in": next } };
        if let Some(restrict) = &self.restrict {
            condition = doc! { "$and": [condition, restrict.clone()] };
        }
        let stage = raw_document(&doc! { "$match": condition })?;
        self.search = Some(search);
        Ok(self.from.ask(vec![stage], self.vars.clone()))
    }
}

impl Stage for Graph {
    fn next(&mut self, up: &mut Up<'_>) -> Result<Step> {
        if self.search.is_some() {
            return self.advance();
        }
        match up()? {
            Step::Document(document) => {
                let frontier = match self.start.value(&document)? {
                    Bson::Array(items) => items,
                    Bson::Undefined => Vec::new(),
                    value => vec![value],
                };
                self.search = Some(Search {
                    document,
                    frontier,
                    asked: HashSet::new(),
                    seen: HashSet::new(),
                    found: Vec::new(),
                    depth: 0,
                    bytes: 0,
                    supplied: None,
                });
                self.advance()
            }
            other => Ok(other),
        }
    }

    fn supply(&mut self, documents: Vec<RawDocumentBuf>) -> Option<Vec<RawDocumentBuf>> {
        match &mut self.search {
            Some(search) if search.supplied.is_none() => {
                search.supplied = Some(documents);
                None
            }
            _ => Some(documents),
        }
    }
}

/// `$unionWith`: all documents, then those of another pipeline.
#[derive(Debug)]
pub struct Union {
    pub from: From,
    pub stages: Vec<RawDocumentBuf>,
    pub vars: Vars,
    pub state: UnionState,
}

#[derive(Debug, Default)]
pub enum UnionState {
    #[default]
    Own,
    Asked,
    Others(vec::IntoIter<RawDocumentBuf>),
}

impl Stage for Union {
    fn next(&mut self, up: &mut Up<'_>) -> Result<Step> {
        match &mut self.state {
            UnionState::Own => match up()? {
                Step::Done => {
                    self.state = UnionState::Asked;
                    Ok(self.from.ask(self.stages.clone(), self.vars.clone()))
                }
                other => Ok(other),
            },
            UnionState::Asked => Ok(Step::Done),
            UnionState::Others(others) => Ok(others.next().map_or(Step::Done, Step::Document)),
        }
    }

    fn supply(&mut self, documents: Vec<RawDocumentBuf>) -> Option<Vec<RawDocumentBuf>> {
        match self.state {
            UnionState::Asked => {
                self.state = UnionState::Others(documents.into_iter());
                None
            }
            _ => Some(documents),
        }
    }
}

/// The stages of an inner pipeline, kept as they are.
pub fn kept(stages: &[RawBsonRef<'_>]) -> Vec<RawDocumentBuf> {
    stages
        .iter()
        .filter_map(|stage| match RawBson::from(*stage) {
            RawBson::Document(document) => Some(document),
            _ => None,
        })
        .collect()
}
