//! What a command brings to its filters and expressions besides their text: the moment, `let`, the collation.

use bson::{Bson, DateTime, Document};

use super::collation::Collation;

/// Surroundings of a filter, an update or a pipeline. One command has one, so `$$NOW` is the same throughout.
#[derive(Clone, Debug)]
pub struct Vars {
    /// `$$NOW`.
    pub now: DateTime,
    /// The values of the command's `let`, already evaluated, by name without `$$`.
    pub variables: Document,
    /// How strings are compared; none is by their bytes.
    pub collation: Option<Collation>,
    /// Memory that one blocking stage may hold.
    pub memory_bytes_max: usize,
}

impl Vars {
    /// Surroundings without variables and collation.
    pub fn new(now: DateTime) -> Self {
        Self {
            now,
            variables: Document::new(),
            collation: None,
            memory_bytes_max: 100 * 1024 * 1024,
        }
    }

    /// A variable of `let`.
    pub fn variable(&self, name: &str) -> Option<&Bson> {
        self.variables.get(name)
    }
}
