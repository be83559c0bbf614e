//! Values to JSON text, and numbers back.

use serde_json::{Number, Value as Json};

/// Appends a string as JSON.
pub fn write_string(s: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, s).expect("a string is written to memory");
}

/// Appends a number as JSON: without a fraction where it has none.
pub fn write_number(number: &Number, out: &mut Vec<u8>) {
    match number.as_f64() {
        Some(double) if number.is_f64() && double.trunc() == double && double.abs() < 1e21 => {
            // Adding zero turns -0 into 0.
            out.extend_from_slice((double + 0.0).to_string().as_bytes());
        }
        _ => out.extend_from_slice(number.to_string().as_bytes()),
    }
}

/// Appends a tree as JSON.
pub fn write_json(json: &Json, out: &mut Vec<u8>) {
    match json {
        Json::Null => out.extend_from_slice(b"null"),
        Json::Bool(b) => out.extend_from_slice(if *b { b"true" } else { b"false" }),
        Json::Number(n) => write_number(n, out),
        Json::String(s) => write_string(s, out),
        Json::Array(items) => {
            out.push(b'[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_json(item, out);
            }
            out.push(b']');
        }
        Json::Object(map) => {
            out.push(b'{');
            for (i, (name, value)) in map.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_string(name, out);
                out.push(b':');
                write_json(value, out);
            }
            out.push(b'}');
        }
    }
}

/// A JSON number; exact if it is an integer of 64 bits.
pub(super) fn read_number(text: &[u8]) -> Option<Number> {
    let text = str::from_utf8(text).ok()?;
    if let Ok(integer) = text.parse::<i64>() {
        return Some(integer.into());
    }
    text.parse::<f64>().ok().and_then(Number::from_f64)
}

#[cfg(test)]
mod tests {
    use super::super::Value;

    #[test]
    fn numbers_print_without_needless_fractions() {
        let print = |value: Value<'_>| {
            let mut out = Vec::new();
            value.write(&mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(print(Value::from(3.0)), "3");
        assert_eq!(print(Value::from(0.1 + 0.2)), "0.30000000000000004");
        assert_eq!(print(Value::read(b"1.0")), "1");
        assert_eq!(print(Value::read(b"-0.0")), "0");
        assert_eq!(print(Value::read(b"9007199254740993")), "9007199254740993");
        assert_eq!(print(Value::from(1e300)), "1e+300");
        assert_eq!(print(Value::from(f64::NAN)), "");
    }
}
