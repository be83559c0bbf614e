//! An order-preserving encoding of BSON values: comparing the bytes is [`order`](super::compare::order) of the values.
//!
//! | value | bytes after the kind's rank |
//! |---|---|
//! | number | class (NaN, -∞, below zero, zero, above, ∞); then the place of the leading decimal digit and the digits, two a byte, ended by `00`; all inverted below zero |
//! | string | the bytes, `00` written `00 FF`, ended by `00 00` |
//! | document | for each field its value's rank, name, value; ended by `00` |
//! | array | for each element rank and value; ended by `00` |
//! | date, timestamp | eight bytes, big endian |
//! | others | their parts in the order in which they are compared |
//!
//! Equal values of different number types have one encoding, so an index finds `1` by `1.0`, and a group is one group. No
//! encoding is the prefix of another, so encodings can follow one another in a compound key.

use bson::{Bson, RawBsonRef, RawDocument};

use super::collation::Collation;
use super::compare::{rank, rank_of};
use super::decimal::{Decimal, digits};
use super::number::Number;

/// The key of a value.
pub fn key(value: RawBsonRef<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(16);
    append(&mut out, value, None);
    out
}

/// The key of an owned value.
pub fn key_of(value: &Bson, by: Option<&Collation>) -> Vec<u8> {
    let mut out = Vec::with_capacity(16);
    super::value::with_raw(value, |value| append(&mut out, value, by));
    out
}

/// Appends the key of a value; strings by a collation, if there is one.
pub fn append(out: &mut Vec<u8>, value: RawBsonRef<'_>, by: Option<&Collation>) {
    use RawBsonRef as V;
    out.push(rank(value));
    match value {
        V::MinKey | V::MaxKey | V::Null | V::Undefined => {}
        V::String(text) | V::Symbol(text) => match by {
            Some(collation) => terminated(out, &collation.key(text)),
            None => terminated(out, text.as_bytes()),
        },
        V::Document(document) => fields(out, document, by),
        V::Array(array) => {
            for value in array.into_iter().flatten() {
                append(out, value, by);
            }
            out.push(0);
        }
        V::Binary(binary) => {
            let twice = u32::from(u8::from(binary.subtype) == 2) * 4;
            out.extend((binary.bytes.len() as u32 + twice).to_be_bytes());
            out.push(binary.subtype.into());
            out.extend(binary.bytes);
        }
        V::ObjectId(id) => out.extend(id.bytes()),
        V::Boolean(flag) => out.push(flag.into()),
        V::DateTime(date) => {
            out.extend((date.timestamp_millis().cast_unsigned() ^ (1 << 63)).to_be_bytes());
        }
        V::Timestamp(at) => {
            out.extend(at.time.to_be_bytes());
            out.extend(at.increment.to_be_bytes());
        }
        V::RegularExpression(regex) => {
            terminated(out, regex.pattern.as_str().as_bytes());
            terminated(out, regex.options.as_str().as_bytes());
        }
        V::JavaScriptCode(code) => terminated(out, code.as_bytes()),
        V::JavaScriptCodeWithScope(code) => {
            terminated(out, code.code.as_bytes());
            fields(out, code.scope, None);
        }
        V::DbPointer(pointer) => terminated(out, format!("{pointer:?}").as_bytes()),
        V::Int32(_) | V::Int64(_) | V::Double(_) | V::Decimal128(_) => {
            if let Some(found) = Number::of(value) {
                number(out, found);
            }
        }
    }
}

fn fields(out: &mut Vec<u8>, document: &RawDocument, by: Option<&Collation>) {
    for element in document.iter_elements().flatten() {
        let Ok(value) = element.value() else { break };
        out.push(rank_of(element.element_type()));
        terminated(out, element.key().as_str().as_bytes());
        append(out, value, by);
    }
    out.push(0);
}

fn terminated(out: &mut Vec<u8>, bytes: &[u8]) {
    for (i, run) in bytes.split(|byte| *byte == 0).enumerate() {
        if i > 0 {
            out.extend([0, 0xFF]);
        }
        out.extend(run);
    }
    out.extend([0, 0]);
}

/// The classes of numbers, in their order.
mod class {
    pub const NAN: u8 = 1;
    pub const MINUS_INFINITY: u8 = 2;
    pub const NEGATIVE: u8 = 3;
    pub const ZERO: u8 = 4;
    pub const POSITIVE: u8 = 5;
    pub const INFINITY: u8 = 6;
}

fn number(out: &mut Vec<u8>, number: Number) {
    let decimal = match number.to_i64_exact() {
        Some(whole) => Decimal::from_i64(whole),
        None => number.exact_decimal(),
    };
    match decimal {
        Decimal::Nan => out.push(class::NAN),
        Decimal::Infinite { negative: true } => out.push(class::MINUS_INFINITY),
        Decimal::Infinite { negative: false } => out.push(class::INFINITY),
        Decimal::Finite { coefficient: 0, .. } => out.push(class::ZERO),
        Decimal::Finite { negative, coefficient, exponent } => {
            out.push(if negative { class::NEGATIVE } else { class::POSITIVE });
            let start = out.len();
            let count = digits(coefficient);
            // Above -6176 and below 6145.
            let place = (exponent + count as i32 + 8192) as u16;
            out.extend(place.to_be_bytes());
            // The digits as a fraction, two at a time; no pair is written as zero.
            let mut rest = coefficient * 10u128.pow(38 - count);
            while rest != 0 {
                out.push((rest / 10u128.pow(36)) as u8 + 1);
                rest = rest % 10u128.pow(36) * 100;
            }
            out.push(0);
            if negative {
                out[start..].iter_mut().for_each(|byte| *byte = !*byte);
            }
        }
    }
}
