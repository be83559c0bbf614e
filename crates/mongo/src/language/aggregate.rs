//! Pipelines: stages that are fed documents and give documents.
//!
//! A pipeline does no I/O. [`Pipeline::step`] says what it needs or gives what it has ([`Step`]); whoever runs it answers with
//! [`Pipeline::feed`], [`Pipeline::end`] or [`Pipeline::supply`] and asks again.

use bson::{Document, RawBsonRef, RawDocumentBuf};

use super::failure::{Failure, Result};
use super::filter::Filter;
use super::vars::Vars;

/// Stages, ready to run.
#[derive(Debug)]
pub struct Pipeline {}

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
    pub fn parse(_stages: &[RawBsonRef<'_>], _vars: &Vars) -> Result<Self> {
        Err(Failure::coded(238, "pipelines are not there yet"))
    }

    /// What the documents fed must match: they may come from an index.
    pub fn source_filter(&self) -> Option<&Filter> {
        None
    }

    /// Whether it wants documents of its collection at all; `$documents` and the like do not.
    pub fn takes_input(&self) -> bool {
        true
    }

    /// Where the results go, if not to the client.
    pub fn output(&self) -> Option<&Output> {
        None
    }

    /// A result, or what is needed for one.
    pub fn step(&mut self) -> Result<Step> {
        Ok(Step::Done)
    }

    /// The next document of the collection.
    pub fn feed(&mut self, _document: RawDocumentBuf) {}

    /// The collection has no more documents.
    pub fn end(&mut self) {}

    /// The results of the pipeline that was asked for.
    pub fn supply(&mut self, _documents: Vec<RawDocumentBuf>) {}
}

/// Stages that change one document, as updates use them.
#[derive(Debug)]
pub struct Transform {}

impl Transform {
    /// Reads the stages of an update.
    pub fn parse_update(_stages: &[RawBsonRef<'_>], _vars: &Vars) -> Result<Self> {
        Err(Failure::coded(238, "pipelines are not there yet"))
    }

    /// The document after the stages.
    pub fn apply_document(&self, document: Document) -> Result<Document> {
        Ok(document)
    }
}
