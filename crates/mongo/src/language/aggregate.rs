//! Pipelines: stages that are fed documents and give documents.
//!
//! A pipeline does no I/O. [`Pipeline::step`] says what it needs or gives what it has ([`Step`]); whoever runs it answers with
//! [`Pipeline::feed`], [`Pipeline::end`] or [`Pipeline::supply`] and asks again. Each stage pulls from the one before it, so that
//! documents flow one by one; those that must see all of them first hold them within [`Vars::memory_bytes_max`].

mod change;
mod facet;
mod fill;
mod flow;
mod group;
mod join;
mod output;
mod parse;
mod sort;
mod window;

use std::fmt;

use bson::{Document, RawBsonRef, RawDocumentBuf};

use super::failure::Result;
use super::filter::Filter;
use super::sort::Sort;
use super::value::{owned_document, raw_document};
use super::vars::Vars;
use change::Change;
pub(crate) use flow::with_field;

/// Stages, ready to run.
#[derive(Debug)]
pub struct Pipeline {
    stages: Vec<Box<dyn Stage>>,
    source: Source,
    output: Option<Output>,
    takes_input: bool,
}

/// A stage at work.
trait Stage: fmt::Debug + Send {
    /// The next result, or what is needed for it. `up` asks the stage before.
    fn next(&mut self, up: &mut Up<'_>) -> Result<Step>;

    /// Takes the results of another pipeline, if it asked for them; else gives them back.
    fn supply(&mut self, documents: Vec<RawDocumentBuf>) -> Option<Vec<RawDocumentBuf>> {
        Some(documents)
    }

    /// The filter, if the stage is nothing else.
    fn take_filter(&mut self) -> Option<Filter> {
        None
    }

    /// What documents must be to be of any use to the stage.
    fn condition(&self) -> Option<&Filter> {
        None
    }

    /// The order, if the stage is nothing else.
    fn sort(&self) -> Option<&Sort> {
        None
    }
}

/// How a stage asks the one before it.
type Up<'a> = dyn FnMut() -> Result<Step> + 'a;

/// Where fed documents wait; there is one at most.
#[derive(Debug, Default)]
struct Source {
    waiting: Option<RawDocumentBuf>,
    ended: bool,
}

impl Source {
    fn next(&mut self) -> Step {
        match self.waiting.take() {
            Some(document) => Step::Document(document),
            None if self.ended => Step::Done,
            None => Step::Input,
        }
    }
}

fn pull(stages: &mut [Box<dyn Stage>], source: &mut Source) -> Result<Step> {
    match stages.split_last_mut() {
        None => Ok(source.next()),
        Some((last, before)) => last.next(&mut || pull(before, source)),
    }
}

/// What a pipeline says when it is asked for a document.
#[derive(Debug)]
pub enum Step {
    /// A result.
    Document(RawDocumentBuf),
    /// It wants the next document of its collection ([`Pipeline::feed`]), or to hear that there is none ([`Pipeline::end`]).
    Input,
    /// It wants the results of another pipeline ([`Pipeline::supply`]).
    Foreign(Foreign),
    /// There is nothing more.
    Done,
}

/// Another pipeline whose results one needs.
#[derive(Clone, Debug)]
pub struct Foreign {
    /// Its database; none for the same.
    pub database: Option<String>,
    /// Its collection; none where the stages bring their documents themselves.
    pub collection: Option<String>,
    /// Its stages.
    pub stages: Vec<RawDocumentBuf>,
    /// The variables that it sees, and the collation.
    pub vars: Vars,
}

/// Where the results of a pipeline are to be written, if its last stage is `$out` or `$merge`.
#[derive(Clone, Debug)]
pub enum Output {
    /// `$out`: the results replace the collection.
    Out {
        /// Its database; none for the same.
        database: Option<String>,
        /// The collection.
        collection: String,
    },
    /// `$merge`: the results are written into the collection one by one.
    Merge {
        /// Its database; none for the same.
        database: Option<String>,
        /// The collection.
        collection: String,
        /// The fields that identify a document.
        on: Vec<String>,
        /// What to do with a document that is there.
        matched: Matched,
        /// What to do with one that is not.
        unmatched: Unmatched,
    },
}

/// `whenMatched`.
#[derive(Clone, Debug)]
pub enum Matched {
    /// The result takes its place.
    Replace,
    /// It stays.
    Keep,
    /// The result's fields are set in it.
    Merge,
    /// It is an error.
    Fail,
    /// It goes through an update pipeline; the result is `$$new`, or what `let` says.
    Pipeline {
        /// The stages.
        stages: Vec<RawDocumentBuf>,
        /// The `let` of the stage, expressions over the result.
        variables: Option<RawDocumentBuf>,
    },
}

/// `whenNotMatched`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmatched {
    /// It is inserted.
    Insert,
    /// It is dropped.
    Discard,
    /// It is an error.
    Fail,
}

impl Pipeline {
    /// Reads the stages.
    pub fn parse(stages: &[RawBsonRef<'_>], vars: &Vars) -> Result<Self> {
        parse::pipeline(stages, vars)
    }

    /// Takes over the condition that the pipeline begins with: documents may then come from an index, and only those that match
    /// are to be fed.
    pub fn take_filter(&mut self) -> Option<Filter> {
        let filter = self.stages.first_mut()?.take_filter()?;
        self.stages.remove(0);
        Some(filter)
    }

    /// What documents must be to be of any use to the pipeline's beginning, which asks again.
    pub fn condition(&self) -> Option<&Filter> {
        self.stages.first()?.condition()
    }

    /// The order that the pipeline begins with.
    pub fn sort(&self) -> Option<&Sort> {
        self.stages.first()?.sort()
    }

    /// Takes that order over: documents are fed in it.
    pub fn take_sort(&mut self) {
        debug_assert!(self.sort().is_some(), "there is an order to take over");
        self.stages.remove(0);
    }

    /// Whether it wants documents of its collection at all; `$documents` does not.
    pub fn takes_input(&self) -> bool {
        self.takes_input
    }

    /// Where the results go, if not to the client.
    pub fn output(&self) -> Option<&Output> {
        self.output.as_ref()
    }

    /// A result, or what is needed for one.
    pub fn step(&mut self) -> Result<Step> {
        pull(&mut self.stages, &mut self.source)
    }

    /// The next document of the collection, after [`Step::Input`].
    pub fn feed(&mut self, document: RawDocumentBuf) {
        debug_assert!(self.source.waiting.is_none(), "fed without being asked");
        self.source.waiting = Some(document);
    }

    /// The collection has no more documents.
    pub fn end(&mut self) {
        self.source.ended = true;
    }

    /// The results of the pipeline that was asked for with [`Step::Foreign`].
    pub fn supply(&mut self, documents: Vec<RawDocumentBuf>) {
        let mut documents = Some(documents);
        for stage in self.stages.iter_mut() {
            match documents.take() {
                Some(found) => documents = stage.supply(found),
                None => break,
            }
        }
        debug_assert!(documents.is_none(), "nobody asked for these");
    }
}

/// Stages that change one document, as updates use them.
#[derive(Debug)]
pub struct Transform {
    changes: Vec<Change>,
}

impl Transform {
    /// Reads the stages of an update.
    pub fn parse_update(stages: &[RawBsonRef<'_>], vars: &Vars) -> Result<Self> {
        Ok(Self { changes: parse::update(stages, vars)? })
    }

    /// The document after the stages.
    pub fn apply_document(&self, document: Document) -> Result<Document> {
        let mut document = raw_document(&document)?;
        for change in &self.changes {
            match change.apply(&document)? {
                Some(next) => document = next,
                None => return Ok(Document::new()),
            }
        }
        owned_document(&document)
    }
}
