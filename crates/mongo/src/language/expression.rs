//! Expressions.

use bson::{RawBsonRef, RawDocument};

use super::failure::{Failure, Result};
use super::vars::Vars;

/// An expression.
#[derive(Clone, Debug)]
pub struct Expression {}

impl Expression {
    /// Reads an expression.
    pub fn parse_raw(_value: RawBsonRef<'_>, _vars: &Vars) -> Result<Self> {
        Err(Failure::coded(238, "expressions are not there yet"))
    }

    /// Whether it is true of a document.
    pub fn is_true(&self, _document: &RawDocument) -> Result<bool> {
        Ok(false)
    }
}
