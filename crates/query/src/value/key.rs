//! The sortable form of values: bytes that compare as the values do.

use model::value as rules;
use serde_json::Value as Json;

use super::Value;

/// How deep arrays and objects are looked into, so that no item can exhaust the stack.
const DEPTH_MAX: usize = 128;

impl Value<'_> {
    /// Appends bytes that sort as the values do ([`model::value::compare`]); equal values, and only
    /// they, have equal bytes, and no value's bytes begin another's.
    pub fn write_key(&self, out: &mut Vec<u8>) {
        self.write_key_at(0, out);
    }

    fn write_key_at(&self, depth: usize, out: &mut Vec<u8>) {
        out.push(self.kind() as u8);
        match self {
            Value::Undefined | Value::Null => {}
            Value::Bool(b) => out.push(u8::from(*b)),
            Value::Number(n) => out.extend(ordered_bits(rules::to_f64(n)).to_be_bytes()),
            Value::String(s) => write_key_string(s, out),
            // No stored item is that deep; whatever is, is taken as the text that it is.
            Value::Raw(text) if depth > DEPTH_MAX => {
                write_key_string(&String::from_utf8_lossy(text), out);
            }
            _ => {
                if let Some(elements) = self.elements() {
                    elements.for_each(|element| {
                        out.push(1);
                        element.write_key_at(depth + 1, out);
                    });
                } else if let Some(mut members) = self.members() {
                    members.sort_unstable_by(|a, b| a.0.cmp(&b.0));
                    members.iter().for_each(|(name, value)| {
                        out.push(1);
                        write_key_string(name, out);
                        value.write_key_at(depth + 1, out);
                    });
                }
                out.push(0);
            }
        }
    }
}

/// What a sortable form says about the value it was made of.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyValue {
    /// It was not there.
    Undefined,
    /// It was this.
    Scalar(Json),
    /// It was an array or object.
    Compound,
}

impl KeyValue {
    /// Reads the form at the beginning of `bytes`, and gives what follows; `None` if there is none. What follows an array or object is not found.
    pub fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (kind, rest) = bytes.split_first()?;
        let is = |wanted: rules::Kind| *kind == wanted as u8;
        if is(rules::Kind::Undefined) {
            return Some((Self::Undefined, rest));
        }
        if is(rules::Kind::Array) || is(rules::Kind::Object) {
            return Some((Self::Compound, &[]));
        }
        let (value, rest) = if is(rules::Kind::Null) {
            (Json::Null, rest)
        } else if is(rules::Kind::Boolean) {
            let (value, rest) = rest.split_first()?;
            (Json::Bool(*value != 0), rest)
        } else if is(rules::Kind::Number) {
            let (bits, rest) = rest.split_first_chunk::<8>()?;
            (Json::Number(rules::from_f64(double(u64::from_be_bytes(*bits)))?), rest)
        } else if is(rules::Kind::String) {
            let (text, rest) = read_key_string(rest)?;
            (Json::String(text), rest)
        } else {
            return None;
        };
        Some((Self::Scalar(value), rest))
    }
}

/// The double whose ordered bits these are.
fn double(ordered: u64) -> f64 {
    f64::from_bits(if ordered >> 63 == 1 { ordered & !(1 << 63) } else { !ordered })
}

fn read_key_string(bytes: &[u8]) -> Option<(String, &[u8])> {
    let mut text = Vec::new();
    let mut rest = bytes;
    loop {
        let end = memchr::memchr(0, rest)?;
        text.extend_from_slice(&rest[..end]);
        let mark = *rest.get(end + 1)?;
        rest = &rest[end + 2..];
        if mark == 1 {
            return Some((String::from_utf8(text).ok()?, rest));
        }
        text.push(0);
    }
}

/// The bits of a double, changed so that they sort as the doubles do.
fn ordered_bits(double: f64) -> u64 {
    // Adding zero turns -0 into 0.
    let bits = (double + 0.0).to_bits();
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

/// A string that ends with `00 01`; zeros within are `00 FF`, so that a prefix sorts first.
fn write_key_string(s: &str, out: &mut Vec<u8>) {
    for byte in s.bytes() {
        out.push(byte);
        if byte == 0 {
            out.push(0xff);
        }
    }
    out.extend([0, 1]);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    #[test]
    fn depth_is_bounded() {
        let deep = "[".repeat(1 << 16) + &"]".repeat(1 << 16);
        let mut key = Vec::new();
        Value::read(deep.as_bytes()).write_key(&mut key);
        assert!(key.len() > 1 << 16);
    }

    /// Numbers come back as doubles do.
    fn rules_number(value: &Json) -> Json {
        value.as_f64().and_then(rules::from_f64).map_or(value.clone(), Json::Number)
    }

    #[test]
    fn keys_sort_as_values_do() {
        let values = [
            json!(null),
            json!(false),
            json!(true),
            json!(-1e300),
            json!(-1),
            json!(0),
            json!(0.5),
            json!(3),
            json!(""),
            json!("\0"),
            json!("a"),
            json!("a\0b"),
            json!("ab"),
            json!([]),
            json!([1]),
            json!([1, 2]),
            json!({}),
            json!({"a": 1}),
            json!({"b": 1, "a": 1}),
            json!({"a": 2}),
        ];
        let key = |value: &Json| {
            let mut key = Vec::new();
            Value::literal(value).write_key(&mut key);
            let (mut raw, text) = (Vec::new(), value.to_string());
            Value::read(text.as_bytes()).write_key(&mut raw);
            assert_eq!(key, raw, "in place as from a tree");
            let expected = match value {
                Json::Array(_) | Json::Object(_) => (KeyValue::Compound, &b""[..]),
                scalar => (KeyValue::Scalar(rules_number(scalar)), &b"rest"[..]),
            };
            key.extend_from_slice(b"rest");
            assert_eq!(KeyValue::read(&key), Some(expected));
            key.truncate(key.len() - 4);
            key
        };
        for (i, a) in values.iter().enumerate() {
            for (j, b) in values.iter().enumerate() {
                assert_eq!(key(a).cmp(&key(b)), i.cmp(&j), "{a} and {b}");
                assert_eq!(rules::compare_defined(a, b), i.cmp(&j), "{a} and {b}");
            }
        }
    }
}
