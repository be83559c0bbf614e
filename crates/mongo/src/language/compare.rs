//! MongoDB's order over all BSON values.
//!
//! Values of different kinds are ordered by kind ([`rank`]); all numbers are one kind, strings and symbols another. Documents are
//! compared field by field: kind, then name, then value; the shorter first. Nothing is decoded but what is compared.

use std::cmp::Ordering;

use bson::spec::{BinarySubtype, ElementType};
use bson::{Bson, RawBsonRef, RawDocument};

use super::collation::Collation;
use super::number::Number;

/// The order of two values: MinKey, undefined, null, numbers, strings, objects, arrays, binary, ObjectId, booleans, dates,
/// timestamps, regular expressions, pointers, code, code with scope, MaxKey.
pub fn order(a: RawBsonRef<'_>, b: RawBsonRef<'_>) -> Ordering {
    order_by(a, b, None)
}

/// Whether two values count as the same: numbers by value, everything else by kind and content.
pub fn equal(a: RawBsonRef<'_>, b: RawBsonRef<'_>) -> bool {
    order(a, b).is_eq()
}

/// The order of two values, strings by a collation.
pub fn order_by(a: RawBsonRef<'_>, b: RawBsonRef<'_>, by: Option<&Collation>) -> Ordering {
    use RawBsonRef as V;
    match (a, b) {
        (V::String(a), V::String(b)) => strings(a, b, by),
        (V::Int32(a), V::Int32(b)) => a.cmp(&b),
        (V::Document(a), V::Document(b)) => documents(a, b, by),
        (V::Array(a), V::Array(b)) => array_elements(a.iter_elements(), b.iter_elements(), by),
        (V::ObjectId(a), V::ObjectId(b)) => a.bytes().cmp(&b.bytes()),
        (V::Boolean(a), V::Boolean(b)) => a.cmp(&b),
        (V::DateTime(a), V::DateTime(b)) => a.cmp(&b),
        (V::Timestamp(a), V::Timestamp(b)) => (a.time, a.increment).cmp(&(b.time, b.increment)),
        (V::Binary(a), V::Binary(b)) => {
            let (a_len, b_len) = (binary_len(a.subtype, a.bytes), binary_len(b.subtype, b.bytes));
            a_len
                .cmp(&b_len)
                .then_with(|| u8::from(a.subtype).cmp(&u8::from(b.subtype)))
                .then_with(|| a.bytes.cmp(b.bytes))
        }
        (V::RegularExpression(a), V::RegularExpression(b)) => {
            (a.pattern.as_str(), a.options.as_str()).cmp(&(b.pattern.as_str(), b.options.as_str()))
        }
        (V::JavaScriptCode(a), V::JavaScriptCode(b)) => a.cmp(b),
        (V::JavaScriptCodeWithScope(a), V::JavaScriptCodeWithScope(b)) => {
            a.code.cmp(b.code).then_with(|| documents(a.scope, b.scope, None))
        }
        // Pointers do not show their parts; nobody has written one since 2010, and their bytes order them well enough.
        (V::DbPointer(a), V::DbPointer(b)) => format!("{a:?}").cmp(&format!("{b:?}")),
        _ => match (text(a), text(b), Number::of(a), Number::of(b)) {
            (Some(a), Some(b), _, _) => strings(a, b, by),
            (_, _, Some(a), Some(b)) => a.order(b),
            _ => rank(a).cmp(&rank(b)),
        },
    }
}

/// The old binary subtype writes its length twice, and MongoDB counts both.
fn binary_len(subtype: BinarySubtype, bytes: &[u8]) -> usize {
    bytes.len() + if subtype == BinarySubtype::BinaryOld { 4 } else { 0 }
}

fn text(value: RawBsonRef<'_>) -> Option<&str> {
    match value {
        RawBsonRef::String(text) | RawBsonRef::Symbol(text) => Some(text),
        _ => None,
    }
}

fn strings(a: &str, b: &str, by: Option<&Collation>) -> Ordering {
    match by {
        Some(collation) => collation.order(a, b),
        None => a.cmp(b),
    }
}

/// The order of two documents, field by field.
pub fn documents(a: &RawDocument, b: &RawDocument, by: Option<&Collation>) -> Ordering {
    let (mut left, mut right) = (a.iter_elements(), b.iter_elements());
    loop {
        // Bytes that do not decode end a document: what is stored was checked when it came in.
        match (left.next().and_then(Result::ok), right.next().and_then(Result::ok)) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(a), Some(b)) => {
                let by_name = rank_of(a.element_type())
                    .cmp(&rank_of(b.element_type()))
                    .then_with(|| a.key().as_str().cmp(b.key().as_str()));
                if by_name.is_ne() {
                    return by_name;
                }
                let (Ok(a), Ok(b)) = (a.value(), b.value()) else { return Ordering::Equal };
                let by_value = order_by(a, b, by);
                if by_value.is_ne() {
                    return by_value;
                }
            }
        }
    }
}

fn array_elements(
    left: bson::raw::RawIter<'_>,
    right: bson::raw::RawIter<'_>,
    by: Option<&Collation>,
) -> Ordering {
    let mut left = left.flatten().flat_map(|element| element.value().ok());
    let mut right = right.flatten().flat_map(|element| element.value().ok());
    loop {
        match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(a), Some(b)) => {
                let by_value = rank(a).cmp(&rank(b)).then_with(|| order_by(a, b, by));
                if by_value.is_ne() {
                    return by_value;
                }
            }
        }
    }
}

/// Where the value's kind stands among the kinds.
pub fn rank(value: RawBsonRef<'_>) -> u8 {
    rank_of(value.element_type())
}

/// Where a kind stands among the kinds.
pub fn rank_of(kind: ElementType) -> u8 {
    use ElementType as T;
    match kind {
        T::MinKey => 1,
        T::Undefined => 2,
        T::Null => 5,
        T::Double | T::Int32 | T::Int64 | T::Decimal128 => 10,
        T::String | T::Symbol => 15,
        T::EmbeddedDocument => 20,
        T::Array => 25,
        T::Binary => 30,
        T::ObjectId => 35,
        T::Boolean => 40,
        T::DateTime => 45,
        T::Timestamp => 47,
        T::RegularExpression => 50,
        T::DbPointer => 55,
        T::JavaScriptCode => 60,
        T::JavaScriptCodeWithScope => 65,
        T::MaxKey => 127,
    }
}

/// The order of two owned values, as [`order`].
pub fn order_values(a: &Bson, b: &Bson, by: Option<&Collation>) -> Ordering {
    match (a, b) {
        (Bson::Document(a), Bson::Document(b)) => {
            let mut right = b.iter();
            for (name, value) in a {
                let Some((other_name, other)) = right.next() else { return Ordering::Greater };
                let order = rank_of(value.element_type())
                    .cmp(&rank_of(other.element_type()))
                    .then_with(|| name.cmp(other_name))
                    .then_with(|| order_values(value, other, by));
                if order.is_ne() {
                    return order;
                }
            }
            if right.next().is_some() { Ordering::Less } else { Ordering::Equal }
        }
        (Bson::Array(a), Bson::Array(b)) => {
            for (a, b) in a.iter().zip(b) {
                let order = order_values(a, b, by);
                if order.is_ne() {
                    return order;
                }
            }
            a.len().cmp(&b.len())
        }
        (Bson::String(a), Bson::String(b)) => strings(a, b, by),
        _ => {
            let ranks = rank_of(a.element_type()).cmp(&rank_of(b.element_type()));
            if ranks.is_ne() {
                return ranks;
            }
            match (Number::of_bson(a), Number::of_bson(b)) {
                (Some(a), Some(b)) => a.order(b),
                _ => {
                    super::value::with_raw(a, |a| super::value::with_raw(b, |b| order_by(a, b, by)))
                }
            }
        }
    }
}

/// Whether two owned values count as the same.
pub fn same(a: &Bson, b: &Bson) -> bool {
    order_values(a, b, None).is_eq()
}
