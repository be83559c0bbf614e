//! The words everyone uses: values and their order. No I/O, no async.

pub mod value;
