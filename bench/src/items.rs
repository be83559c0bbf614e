//! The items that all loads write: about 1 KB of JSON in 14 fields, the same for the same number.

use std::io::Write;

/// The size of an item as it is sent, in bytes.
pub const ITEM_BYTES: usize = 1024;

/// How many partition keys the items spread over.
const KEYS: u64 = 10_000;

/// An item's id.
pub fn id(number: u64) -> String {
    format!("item-{number:010}")
}

/// An item's partition key.
pub fn key(number: u64) -> String {
    format!("tenant-{:05}", number % KEYS)
}

/// Appends an item's JSON. `version` tells apart the items written to one id.
pub fn write(number: u64, version: u64, out: &mut Vec<u8>) {
    const CITIES: [&str; 8] =
        ["Uppsala", "Greenwich", "Pisa", "Prague", "Toruń", "Leiden", "Samarkand", "Jaipur"];
    let start = out.len();
    let mix = (number ^ version << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    let city = CITIES[(mix % 8) as usize];
    let (quantity, cents) = (mix % 500, mix / 500 % 100_000);
    write!(
        out,
        "{{\"id\":\"item-{number:010}\",\"pk\":\"tenant-{:05}\",\"version\":{version},\
         \"kind\":\"observation\",\"name\":\"Observation {number}\",\
         \"email\":\"observer{}@example.com\",\"city\":\"{city}\",\"quantity\":{quantity},\
         \"price\":{}.{:02},\"active\":{},\"rating\":{},\"tags\":[\"t{}\",\"t{}\",\"t{}\"],\
         \"place\":{{\"latitude\":{}.5,\"longitude\":{}.25,\"code\":\"{:06}\"}},\"notes\":\"",
        number % KEYS,
        mix % 50_000,
        cents / 100,
        cents % 100,
        mix.is_multiple_of(2),
        mix % 5 + 1,
        mix % 10,
        mix / 10 % 10,
        mix / 100 % 10,
        mix % 90,
        mix % 180,
        mix % 1_000_000,
    )
    .expect("writing to memory");
    // Letters that do not repeat, so that neither the engine's compression nor a cache gains more than it would on text.
    let mut state = mix | 1;
    while out.len() - start < ITEM_BYTES - 2 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        for byte in state.to_le_bytes() {
            if out.len() - start < ITEM_BYTES - 2 {
                out.push(b"abcdefghijklmnopqrstuvwxyz     ."[usize::from(byte & 31)]);
            }
        }
    }
    out.extend_from_slice(b"\"}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_one_kilobyte_of_json() {
        for number in [0, 1, 77, 999_999, 4_000_000_000] {
            let mut out = Vec::new();
            write(number, 3, &mut out);
            assert!(out.len().abs_diff(ITEM_BYTES) < 4, "{} bytes", out.len());
            let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
            assert_eq!(value["id"], id(number));
            assert_eq!(value["pk"], key(number));
            assert_eq!(value.as_object().unwrap().len(), 14);
        }
    }
}
