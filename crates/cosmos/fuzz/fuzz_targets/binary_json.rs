//! Any bytes as a body in Cosmos binary JSON: an error, or a text that is JSON.

#![no_main]
#![allow(dead_code, reason = "a module of the front end, taken by its file")]

#[path = "../../src/binary_json.rs"]
mod binary_json;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let body = [&[binary_json::PREAMBLE], bytes].concat();
    if let Ok(text) = binary_json::to_text(&body) {
        serde_json::from_slice::<serde_json::Value>(&text).expect("the text is JSON");
    }
});
