//! DOCUMENTID and IIF: what fits no other family.

use super::{Function, Host, pure};
use crate::value::Value;

/// The family's table.
pub const FUNCTIONS: &[Function] = &[
    pure("DOCUMENTID", (1, 1), document_id),
    // A conditional by the time it is compiled, so that only the chosen side is computed.
    pure(
        "IIF",
        (3, 3),
        |_, args| if args[0].is_true() { args[1].clone() } else { args[2].clone() },
    ),
];

/// The item's number within its partition: the last eight bytes of its `_rid`.
fn document_id<'a>(_: &Host, args: &[Value<'a>]) -> Value<'a> {
    const START: usize = 8;
    let rid = args[0].member("_rid");
    let bytes = rid.as_str().and_then(decode_base64);
    let number = bytes.and_then(|bytes| <[u8; 8]>::try_from(bytes.get(START..)?).ok());
    number.and_then(|number| i64::try_from(u64::from_le_bytes(number)).ok()).into()
}

/// Base64 as `_rid` uses it: with `-` for `/`.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for c in text.trim_end_matches('=').bytes() {
        let digit = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' | b'-' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}
