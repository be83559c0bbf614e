//! MongoDB's languages: filters, updates, expressions, projections, sorts and stages, over raw BSON.
//!
//! Text in, documents out: no I/O, no clock, no knowledge of where documents come from.

/// Why a client does not get what it asked for, with the code that drivers look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code of MongoDB's table.
    pub code: i32,
    /// Its name in that table.
    pub name: &'static str,
    /// For people: what is wrong and what to do.
    pub message: String,
    /// Labels that tell drivers whether to try again.
    pub labels: Vec<&'static str>,
}

impl Failure {
    /// A failure without labels.
    pub fn new(code: i32, name: &'static str, message: impl Into<String>) -> Self {
        Self { code, name, message: message.into(), labels: Vec::new() }
    }

    /// Code 2: a value that is not allowed.
    pub fn bad_value(message: impl Into<String>) -> Self {
        Self::new(2, "BadValue", message)
    }

    /// Code 9: a command that cannot be read.
    pub fn failed_to_parse(message: impl Into<String>) -> Self {
        Self::new(9, "FailedToParse", message)
    }

    /// Code 14: a value of the wrong type.
    pub fn type_mismatch(message: impl Into<String>) -> Self {
        Self::new(14, "TypeMismatch", message)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}): {}", self.name, self.code, self.message)
    }
}

impl std::error::Error for Failure {}
