//! Scripts: stored procedures, triggers and user-defined functions in JavaScript.
//!
//! Source in, calls out: what a script asks of its container goes through [`Host`], and nothing else leaves the engine. There is no I/O, no
//! module loader and no clock in it; the time and the end of the script's time are handed in. Each run has an engine of its own, with limits
//! on memory, stack and output, so that a script can harm only itself.
//!
//! The API that scripts see (`getContext()`, `__`, `console`) is written in JavaScript, in `prelude.js`, on three native functions.

mod engine;
mod run;
#[cfg(test)]
mod tests;

pub use run::{Functions, Output, run};

/// What a script is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A stored procedure: arguments in, a response body out.
    Procedure,
    /// Runs before a write, whose body it may change.
    PreTrigger,
    /// Runs after a write, of which it sees the result.
    PostTrigger,
}

/// A script and what it is run with.
#[derive(Clone, Debug)]
pub struct Script {
    /// What it is.
    pub kind: Kind,
    /// Its source: a function.
    pub source: String,
    /// Of a procedure: the arguments, a JSON array.
    pub arguments: String,
    /// The body of the request, JSON.
    pub request: Option<String>,
    /// Of a post-trigger: the body of the response, JSON.
    pub response: Option<String>,
    /// Of a trigger: the operation, `Create` and so on.
    pub operation: &'static str,
    /// The container's links, by rid and by name.
    pub self_link: String,
    /// The link by name.
    pub alt_link: String,
    /// The size of the container.
    pub size_mb: u64,
    /// The time, in milliseconds since 1970.
    pub now_millis: i64,
}

/// What a script asks of its container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// A new document.
    Create,
    /// A new document, or a new version of one.
    Upsert,
    /// One document.
    Read,
    /// A new version of a document.
    Replace,
    /// Changes to a document.
    Patch,
    /// No document.
    Delete,
    /// The rows of a query: the body is `{"query": …, "parameters": […]}`.
    Query,
    /// All documents.
    Feed,
}

/// One question of a script.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// What to do.
    pub verb: Verb,
    /// The link of the document, or of the container.
    pub link: &'a str,
    /// The document, patch or query, JSON; empty if there is none.
    pub body: &'a str,
    /// Further wishes, a JSON object.
    pub options: &'a str,
}

/// What a container answers.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The document, or an array of them, JSON; empty if there is none.
    pub resource: String,
    /// Where a list goes on.
    pub continuation: Option<String>,
    /// The script has the newest version already.
    pub not_modified: bool,
}

/// Why a container does not do what a script asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status, as a client would get it.
    pub number: u16,
    /// The text.
    pub text: String,
}

/// Where a script runs: its container.
pub trait Host: Send + 'static {
    /// Answers a question.
    fn call(&mut self, call: Call<'_>) -> std::result::Result<Answer, Refusal>;

    /// Whether there is time for another question; if not, the script is told, and should come to an end.
    fn accepts(&self) -> bool;
}

/// Says that a script's time is up; asked now and then while it runs.
pub type Deadline = Box<dyn Fn() -> bool + Send + Sync>;

/// Limits of a run.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most bytes that a script may hold.
    pub memory_bytes: usize,
    /// The most bytes of its response body.
    pub output_bytes: usize,
    /// The most bytes of its log; what is beyond is cut.
    pub log_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory_bytes: 64 << 20, output_bytes: 4 << 20, log_bytes: 4 << 10 }
    }
}

/// Why a script did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The source is not a function.
    #[error("Encountered exception while compiling Javascript. Exception = {text}")]
    Compile {
        /// What the compiler says.
        text: String,
    },
    /// The script has thrown.
    #[error(
        "Encountered exception while executing function. Exception = {text}\r\nStack trace: {stack}"
    )]
    Thrown {
        /// What was thrown.
        text: String,
        /// Where.
        stack: String,
        /// The number that it had, such as 409; 0 if none.
        number: u16,
    },
    /// Its time was up.
    #[error("The script exceeded the time that it may run.")]
    Time,
    /// Its response is too large.
    #[error("The response of the script is too large: the most is {bytes_max} bytes.")]
    Output {
        /// The limit.
        bytes_max: usize,
    },
    /// There is no engine to be had.
    #[error("The script cannot be run: {0}")]
    Engine(String),
}
