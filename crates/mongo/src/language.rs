//! MongoDB's language: filters, updates, projections, sort orders, expressions and pipelines over raw BSON.
//!
//! Pure: nothing here reads or writes anything, or looks at the clock; the moment is handed in with [`Vars`]. Documents come as
//! `&RawDocument` and go as `RawDocumentBuf`. Numbers and words of refusals are MongoDB's, because drivers look at them.
//!
//! | module | what |
//! |---|---|
//! | [`compare`], [`keycode`] | the order of all values; the same order as bytes, for indexes, groups and sorting |
//! | [`filter`] | conditions, what they say about an index, what an upsert starts from |
//! | [`update`] | replacements, operators, update pipelines |
//! | [`projection`], [`sort`] | which fields, in which order |
//! | [`difference`] | what an update has changed |
//! | [`expression`], [`aggregate`] | computing values; stages, fed with documents one by one |
//!
//! Callers keep documents within BSON's limit of nesting: recursion here is as deep as the input.

pub mod aggregate;
pub mod collation;
pub mod compare;
pub mod decimal;
pub mod difference;
pub mod expression;
pub mod failure;
pub mod filter;
pub mod geo;
pub mod keycode;
pub mod number;
pub mod path;
pub mod pattern;
pub mod projection;
pub mod sort;
pub mod update;
pub mod value;
pub mod vars;

pub use collation::Collation;
pub use failure::{Failure, Result};
pub use filter::Filter;
pub use projection::Projection;
pub use sort::Sort;
pub use update::Update;
pub use vars::Vars;
