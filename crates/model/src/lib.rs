//! The words everyone uses: time, time to live, partition keys, paths, resource ids.
//!
//! Plain values and pure functions. No I/O, no async; only [`clock`] knows what time it is.

pub mod cells;
pub mod clock;
pub mod partition_key;
pub mod path;
pub mod resource;
pub mod ttl;
pub mod value;
