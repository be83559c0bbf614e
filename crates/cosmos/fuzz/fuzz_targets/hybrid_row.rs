//! Any bytes as a batch of the .NET SDK: an error, or operations.

#![no_main]
#![allow(dead_code, reason = "modules of the front end, taken by their files")]

#[path = "../../src/binary_json.rs"]
mod binary_json;
#[path = "../../src/hybrid_row.rs"]
mod hybrid_row;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    hybrid_row::operations(bytes).ok();
    // As one row, too: few bytes have the right checksum.
    hybrid_row::operation(bytes).ok();
});
