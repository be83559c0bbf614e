//! Queries: text in, rows out. No I/O, no async, no clock.
//!
//! 1. [`sql::parse`] reads the text into a tree;
//! 2. [`Compiled::new`] binds parameters, resolves names and refuses what cannot run;
//! 3. [`Compiled::plan`] says what to read;
//! 4. the caller feeds items to a [`Pipeline`], which filters, groups, sorts and shapes, and says
//!    when it has seen enough.
//!
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

pub use compile::{Compiled, Options};
pub use error::{Error, Result};
pub use gather::{Position, Progress, Rows};
pub use pipeline::{Context, Flow, Pipeline, Udfs};
pub use plan::Plan;
