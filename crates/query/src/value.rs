//! A value during evaluation: undefined, a primitive, or an array or object that is not yet a tree.
//!
//! Arrays and objects of an item stay as the bytes they are ([`Value::Raw`]) for as long as the query
//! only passes them on or steps into them. The rules of equality and order are those of
//! [`model::value`]; here they are applied without building trees where that is possible.

mod key;
mod text;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::rc::Rc;

use model::value::{self as rules, Kind};
use serde_json::{Number, Value as Json};

pub use key::KeyValue;
use text::read_number;
pub use text::{write_json, write_number, write_string};

use crate::lazy;

/// A value that lives while one item is evaluated.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// Not there.
    Undefined,
    /// `null`.
    Null,
    /// `true`, `false`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// Text, from the item if it has no escapes.
    String(Cow<'a, str>),
    /// An array or object of the item, as text.
    Raw(&'a [u8]),
    /// An array or object of the query: a literal or a parameter.
    Literal(&'a Json),
    /// An array or object that was computed.
    Built(Rc<Json>),
}

impl<'a> Value<'a> {
    /// Reads JSON text; arrays and objects stay text.
    pub fn read(text: &'a [u8]) -> Self {
        match text.first() {
            Some(b'n') => Value::Null,
            Some(b't') => Value::Bool(true),
            Some(b'f') => Value::Bool(false),
            Some(b'"') => Self::read_string(text),
            Some(b'{' | b'[') => Value::Raw(text),
            _ => read_number(text).map_or(Value::Undefined, Value::Number),
        }
    }

    fn read_string(text: &'a [u8]) -> Self {
        let inner = text.get(1..text.len().saturating_sub(1)).unwrap_or_default();
        if memchr::memchr(b'\\', inner).is_some() {
            return lazy::unescape(inner).map_or(Value::Undefined, Value::from);
        }
        str::from_utf8(inner).map_or(Value::Undefined, |s| Value::String(Cow::Borrowed(s)))
    }

    /// A constant of the query.
    pub fn literal(json: &'a Json) -> Self {
        match json {
            Json::Null => Value::Null,
            Json::Bool(b) => Value::Bool(*b),
            Json::Number(n) => Value::Number(n.clone()),
            Json::String(s) => Value::String(Cow::Borrowed(s)),
            Json::Array(_) | Json::Object(_) => Value::Literal(json),
        }
    }

    /// A value that was computed.
    pub fn built(json: Json) -> Self {
        match json {
            Json::Null => Value::Null,
            Json::Bool(b) => Value::Bool(b),
            Json::Number(n) => Value::Number(n),
            Json::String(s) => Value::String(Cow::Owned(s)),
            Json::Array(_) | Json::Object(_) => Value::Built(Rc::new(json)),
        }
    }

    /// An array of the values that are defined.
    pub fn array(values: impl IntoIterator<Item = Value<'a>>) -> Self {
        Value::Built(Rc::new(Json::Array(values.into_iter().filter_map(|v| v.to_json()).collect())))
    }

    /// Its type.
    pub fn kind(&self) -> Kind {
        match self {
            Value::Undefined => Kind::Undefined,
            Value::Null => Kind::Null,
            Value::Bool(_) => Kind::Boolean,
            Value::Number(_) => Kind::Number,
            Value::String(_) => Kind::String,
            Value::Raw(text) if text.first() == Some(&b'[') => Kind::Array,
            Value::Raw(_) => Kind::Object,
            Value::Literal(json) => Kind::of(Some(json)),
            Value::Built(json) => Kind::of(Some(json)),
        }
    }

    /// Whether it is not there.
    pub fn is_undefined(&self) -> bool {
        matches!(self, Value::Undefined)
    }

    /// Whether it is `true`; everything else, undefined included, is not.
    pub fn is_true(&self) -> bool {
        matches!(self, Value::Bool(true))
    }

    /// The double, if it is a number.
    pub fn as_f64(&self) -> Option<f64> {
        if let Value::Number(n) = self { Some(rules::to_f64(n)) } else { None }
    }

    /// The integer, if it is a number without a fraction that fits.
    pub fn as_i64(&self) -> Option<i64> {
        let Value::Number(n) = self else { return None };
        n.as_i64().or_else(|| {
            let double = rules::to_f64(n);
            const LIMIT: f64 = 9_223_372_036_854_775_808.0;
            let fits = double.trunc() == double && (-LIMIT..LIMIT).contains(&double);
            fits.then_some(double as i64)
        })
    }

    /// The text, if it is a string.
    pub fn as_str(&self) -> Option<&str> {
        if let Value::String(s) = self { Some(s) } else { None }
    }

    /// The truth value, if it is a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Bool(b) = self { Some(*b) } else { None }
    }

    /// The bytes of its text, where that is long enough to matter.
    pub fn text_len(&self) -> usize {
        match self {
            Value::String(s) => s.len(),
            Value::Raw(text) => text.len(),
            _ => 0,
        }
    }

    /// As a tree; `None` if undefined.
    pub fn to_json(&self) -> Option<Json> {
        match self {
            Value::Undefined => None,
            Value::Null => Some(Json::Null),
            Value::Bool(b) => Some(Json::Bool(*b)),
            Value::Number(n) => Some(Json::Number(n.clone())),
            Value::String(s) => Some(Json::String(s.to_string())),
            Value::Raw(text) => serde_json::from_slice(text).ok(),
            Value::Literal(json) => Some((*json).clone()),
            Value::Built(json) => Some((**json).clone()),
        }
    }

    /// The member of an object; undefined for anything else.
    pub fn member(&self, name: &str) -> Value<'a> {
        match self {
            Value::Raw(text) if text.first() == Some(&b'{') => {
                let mut members = lazy::Members::new(text);
                let found = members.find(|(written, _)| lazy::is_named(written, name));
                found.map_or(Value::Undefined, |(_, value)| Value::read(value))
            }
            Value::Literal(Json::Object(map)) => {
                map.get(name).map_or(Value::Undefined, Value::literal)
            }
            Value::Built(json) => {
                json.get(name).map_or(Value::Undefined, |value| Value::built(value.clone()))
            }
            _ => Value::Undefined,
        }
    }

    /// The element of an array; undefined for anything else.
    pub fn element(&self, index: usize) -> Value<'a> {
        match self.elements() {
            Some(mut elements) => elements.nth(index).unwrap_or(Value::Undefined),
            None => Value::Undefined,
        }
    }

    /// The elements, if it is an array.
    pub fn elements(&self) -> Option<Elements<'a>> {
        match self {
            Value::Raw(text) if text.first() == Some(&b'[') => {
                Some(Elements::Raw(lazy::Elements::new(text)))
            }
            Value::Literal(Json::Array(items)) => Some(Elements::Literal(items.iter())),
            Value::Built(json) if json.is_array() => Some(Elements::Built(json.clone(), 0)),
            _ => None,
        }
    }

    /// The members, if it is an object.
    pub fn members(&self) -> Option<Vec<(String, Value<'a>)>> {
        match self {
            Value::Raw(text) if text.first() == Some(&b'{') => {
                let members = lazy::Members::new(text);
                let name = |written: &[u8]| lazy::unescape(written).unwrap_or_default();
                Some(members.map(|(written, v)| (name(written), Value::read(v))).collect())
            }
            Value::Literal(Json::Object(map)) => {
                Some(map.iter().map(|(name, v)| (name.clone(), Value::literal(v))).collect())
            }
            Value::Built(json) => {
                let map = json.as_object()?;
                Some(map.iter().map(|(name, v)| (name.clone(), Value::built(v.clone()))).collect())
            }
            _ => None,
        }
    }

    /// Whether two defined values are the same; undefined equals nothing.
    pub fn equals(&self, other: &Value<'_>) -> bool {
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::Number(a), Value::Number(b)) => rules::to_f64(a) == rules::to_f64(b),
            (Value::String(a), Value::String(b)) => a == b,
            (Value::Raw(a), Value::Raw(b)) if a == b => true,
            _ if self.kind() != other.kind() || self.kind().is_primitive() => false,
            _ => match (self.to_json(), other.to_json()) {
                (Some(a), Some(b)) => rules::equal(&a, &b),
                _ => false,
            },
        }
    }

    /// The order of two primitives of one type; `None` (undefined) for everything else.
    pub fn compare_same_type(&self, other: &Value<'_>) -> Option<Ordering> {
        match (self, other) {
            (Value::Number(a), Value::Number(b)) => {
                Some(rules::compare_numbers(rules::to_f64(a), rules::to_f64(b)))
            }
            (Value::String(a), Value::String(b)) => Some(a.as_ref().cmp(b.as_ref())),
            (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            (Value::Null, Value::Null) => Some(Ordering::Equal),
            _ => None,
        }
    }

    /// Appends JSON text; nothing if undefined.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Value::Undefined => {}
            Value::Null => out.extend_from_slice(b"null"),
            Value::Bool(b) => out.extend_from_slice(if *b { b"true" } else { b"false" }),
            Value::Number(n) => write_number(n, out),
            Value::String(s) => write_string(s, out),
            Value::Raw(text) => out.extend_from_slice(text),
            Value::Literal(json) => write_json(json, out),
            Value::Built(json) => write_json(json, out),
        }
    }
}

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}

impl From<String> for Value<'_> {
    fn from(value: String) -> Self {
        Value::String(Cow::Owned(value))
    }
}

/// The result of a computation; undefined where it is not a finite number.
impl From<f64> for Value<'_> {
    fn from(value: f64) -> Self {
        rules::from_f64(value).map_or(Value::Undefined, Value::Number)
    }
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Value::Number(value.into())
    }
}

/// Undefined for `None`.
impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Undefined, Into::into)
    }
}

/// The elements of an array, in whatever form it has.
#[derive(Clone, Debug)]
pub enum Elements<'a> {
    /// Of the item's text.
    Raw(lazy::Elements<'a>),
    /// Of a literal.
    Literal(std::slice::Iter<'a, Json>),
    /// Of a computed array, from a place on.
    Built(Rc<Json>, usize),
}

impl<'a> Iterator for Elements<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        match self {
            Elements::Raw(elements) => elements.next().map(Value::read),
            Elements::Literal(items) => items.next().map(Value::literal),
            Elements::Built(json, at) => {
                let element = json.get(*at)?.clone();
                *at += 1;
                Some(Value::built(element))
            }
        }
    }
}
