//! Queries: text in, rows out. No I/O, no async, no clock.
//!
//! 1. [`sql::parse`] reads the text into a tree;
//! 2. [`Compiled::new`] binds parameters, resolves names and refuses what cannot run;
//! 3. [`Compiled::plan`] says what to read;
//! 4. the caller feeds items to a [`Pipeline`], which filters, groups, sorts and shapes, and says
//!    when it has seen enough.
//!
//! ```
//! use std::sync::Arc;
//! use query::{Compiled, Context, Options, Pipeline};
//!
//! let text = "SELECT c.name FROM c WHERE c.age > @age ORDER BY c.age";
//! let parameters = [("@age".to_owned(), 30.into())];
//! let query = Compiled::new(text, &parameters, &Options::default())?;
//! assert_eq!(query.plan().to_string(), r#"/age/? in (30, ""), order by /age/?"#);
//!
//! let mut pipeline = Pipeline::new(Arc::new(query), &Context::default());
//! pipeline.push(br#"{"name":"Ada","age":36}"#, 1)?;
//! pipeline.push(br#"{"name":"Bob","age":7}"#, 2)?;
//! let rows = pipeline.finish()?;
//! assert_eq!(rows.iter().collect::<Vec<_>>(), [br#"{"name":"Ada"}"#]);
//! # Ok::<(), query::Error>(())
//! ```
//! Items are compact JSON text and are read in place ([`mod@item`]): a query that names two fields of an
//! item passes over the rest.

mod compile;
pub mod error;
mod eval;
mod expr;
mod functions;
mod gather;
mod item;
mod lazy;
mod pipeline;
pub mod plan;
pub mod sql;
mod value;

/// The names of all functions that a query can call, in capitals: built-in ones, aggregates, and those of ORDER BY RANK.
pub fn function_names() -> impl Iterator<Item = &'static str> {
    let aggregates = expr::AggregateFunction::NAMES.iter().map(|(name, _)| *name);
    functions::all().map(|function| function.name).chain(aggregates).chain(["FULLTEXTSCORE", "RRF"])
}

pub use compile::{Compiled, Options, Resumes};
pub use error::{Error, Result};
pub use functions::cells;
pub use gather::{InnerProgress, Position, Progress, Resume, Rows};
pub use pipeline::{Context, Flow, Pipeline, Udfs};
pub use plan::Plan;
pub use value::KeyValue;
