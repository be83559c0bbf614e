//! Everything that can go wrong with a query.
//!
//! A text that cannot run carries the list of complaints that Cosmos clients know: a code `SCxxxx`,
//! a message, and where in the text it is. What happens later, while items are read, is one of the
//! other variants.

use std::fmt;

use serde_json::json;

/// What this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a query was refused or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not a query that can run; the client is told where and why.
    #[error("{}", .0.to_json())]
    Text(Diagnostics),
    /// More rows had to be held than the limit allows.
    #[error("the query needs more than {max} bytes of memory to {what}; narrow it or use TOP")]
    Memory {
        /// What the memory was for: "sort", "group", and so on.
        what: &'static str,
        /// The limit that was passed.
        max: usize,
    },
    /// One item made the query work more than the limit allows (a product of JOINs, usually).
    #[error("the query does more than {max} steps for one item; reduce its JOINs and subqueries")]
    Work {
        /// The limit that was passed.
        max: u64,
    },
    /// A scalar subquery gave more than one row.
    #[error("The cardinality of a scalar subquery result set cannot be greater than one.")]
    Cardinality,
    /// A user-defined function is missing or failed.
    #[error("{0}")]
    Udf(String),
    /// The bytes of an item are not JSON.
    #[error("the item is not valid JSON")]
    Item,
}

/// A stretch of the query text, in bytes while parsing and in UTF-16 units once in a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Where it begins.
    pub start: u32,
    /// One past its end.
    pub end: u32,
}

impl Span {
    /// The stretch from the start of this one to the end of the other.
    pub fn to(self, other: Span) -> Span {
        Span { start: self.start, end: other.end.max(self.end) }
    }
}

/// One complaint about the text of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The Cosmos code, such as `SC1001`.
    pub code: &'static str,
    /// The text for people.
    pub message: String,
    /// Where in the query, if a place can be named.
    pub span: Option<Span>,
}

impl Diagnostic {
    /// A complaint about a place in the text.
    pub fn at(span: Span, code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), span: Some(span) }
    }
}

impl From<Diagnostic> for Error {
    fn from(diagnostic: Diagnostic) -> Self {
        Error::Text(Diagnostics(vec![diagnostic]))
    }
}

/// The complaints about one text, in the order they were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostics {
    /// The JSON text that clients match on: `{"errors":[{…}]}`.
    pub fn to_json(&self) -> String {
        let error = |d: &Diagnostic| match d.span {
            Some(Span { start, end }) => json!({
                "severity": "Error",
                "location": {"start": start, "end": end},
                "code": d.code,
                "message": d.message,
            }),
            None => json!({"severity": "Error", "code": d.code, "message": d.message}),
        };
        let composition = self.0.iter().find(|d| d.code.is_empty());
        match composition {
            // One complaint has no code and, unlike the rest, a capital letter.
            Some(d) => json!({"Errors": [d.message]}).to_string(),
            None => json!({"errors": self.0.iter().map(error).collect::<Vec<_>>()}).to_string(),
        }
    }

    /// Turns byte offsets into the UTF-16 offsets that clients count in.
    pub(crate) fn locate(mut self, text: &str) -> Self {
        let units = |at: u32| {
            let before = text.char_indices().take_while(|(byte, _)| *byte < at as usize);
            before.map(|(_, c)| c.len_utf16() as u32).sum()
        };
        for span in self.0.iter_mut().filter_map(|d| d.span.as_mut()) {
            *span = Span { start: units(span.start), end: units(span.end) };
        }
        self
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_json())
    }
}
