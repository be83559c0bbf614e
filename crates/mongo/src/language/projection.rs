//! Projections: which fields of a document a client gets.

use bson::{RawDocument, RawDocumentBuf};

use super::failure::{Failure, Result};
use super::vars::Vars;

/// A projection.
#[derive(Debug)]
pub struct Projection {}

impl Projection {
    /// Reads a projection.
    pub fn parse(_spec: &RawDocument, _vars: &Vars) -> Result<Self> {
        Err(Failure::coded(238, "projections are not there yet"))
    }

    /// The document as the client gets it. `position` is what `$` stands for.
    pub fn apply(
        &self,
        document: &RawDocument,
        _position: Option<usize>,
    ) -> Result<RawDocumentBuf> {
        Ok(document.to_owned())
    }
}
