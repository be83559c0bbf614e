//! The MongoDB front end: will speak MongoDB's wire protocol. It comes with its own issue; until then this crate is empty.
