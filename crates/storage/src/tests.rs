//! What every engine must do: the scripts in `testscripts`, random histories, crashes.

mod crash;
mod lost;
mod open;
mod postgres;
mod random;
mod scripts;
mod tls;

use crate::{Batch, Error, Family, Result};

/// Why a store was not opened.
fn refusal<T>(opened: Result<T>) -> String {
    match opened {
        Err(Error::Open(text)) => text,
        Err(error) => panic!("another error: {error:?}"),
        Ok(_) => panic!("it was opened"),
    }
}

/// A batch of one item.
fn put(key: &str, value: &str) -> Batch {
    let mut batch = Batch::default();
    batch.put(Family::Item, key.to_string(), value.to_string());
    batch
}
