//! The MongoDB front end: wire protocol in, [`db::Db`] calls out.
//!
//! [`language`] is pure: filters, updates, expressions and stages over raw BSON, without I/O and without a clock.

pub mod language;
