//! Reading a command's fields.

use bson::{RawArray, RawBsonRef, RawDocument};
use bytes::Bytes;

use crate::error::{Refusal, Result};
use crate::language::path::field;

/// A command's document, or one of its statements.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a>(pub &'a RawDocument);

impl<'a> Fields<'a> {
    /// A field; null counts as not given.
    pub fn get(self, name: &str) -> Option<RawBsonRef<'a>> {
        field(self.0, name).filter(|value| !matches!(value, RawBsonRef::Null))
    }

    pub fn text(self, name: &str) -> Result<Option<&'a str>> {
        self.typed(name, "string", |value| value.as_str())
    }

    pub fn document(self, name: &str) -> Result<Option<&'a RawDocument>> {
        self.typed(name, "object", |value| value.as_document())
    }

    pub fn array(self, name: &str) -> Result<Option<&'a RawArray>> {
        self.typed(name, "array", |value| value.as_array())
    }

    /// Anything that can be taken for yes or no, as MongoDB does for most options.
    pub fn flag(self, name: &str) -> Result<bool> {
        match self.get(name) {
            None => Ok(false),
            Some(RawBsonRef::Boolean(flag)) => Ok(flag),
            Some(value) => match whole(value) {
                Some(number) => Ok(number != 0),
                None => Err(wrong(name, "bool", value)),
            },
        }
    }

    pub fn flag_or(self, name: &str, default: bool) -> Result<bool> {
        match self.get(name) {
            None => Ok(default),
            Some(_) => self.flag(name),
        }
    }

    /// A whole number of any numeric type.
    pub fn int(self, name: &str) -> Result<Option<i64>> {
        self.typed(name, "number", whole)
    }

    /// A count: a whole number that is not negative.
    pub fn count(self, name: &str) -> Result<Option<usize>> {
        match self.int(name)? {
            None => Ok(None),
            Some(number) => usize::try_from(number).map(Some).map_err(|_| {
                Refusal::new(
                    51024,
                    format!("BSON field '{name}' value must be >= 0, actual value '{number}'"),
                )
            }),
        }
    }

    pub fn required_text(self, name: &str) -> Result<&'a str> {
        self.text(name)?.ok_or_else(|| missing(name))
    }

    fn typed<T>(
        self,
        name: &str,
        kind: &str,
        read: impl Fn(RawBsonRef<'a>) -> Option<T>,
    ) -> Result<Option<T>> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| wrong(name, kind, value)),
        }
    }
}

pub(crate) fn missing(name: &str) -> Refusal {
    Refusal::new(40414, format!("BSON field '{name}' is missing but a required field"))
}

fn wrong(name: &str, kind: &str, value: RawBsonRef<'_>) -> Refusal {
    let found = crate::language::value::type_name(value.element_type());
    Refusal::type_mismatch(format!(
        "BSON field '{name}' is the wrong type '{found}', expected type '{kind}'"
    ))
}

/// A number without a fraction, of any numeric type.
pub(crate) fn whole(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(number) => Some(number.into()),
        RawBsonRef::Int64(number) => Some(number),
        RawBsonRef::Double(number) if number.fract() == 0.0 && number.abs() < 9e18 => {
            Some(number as i64)
        }
        RawBsonRef::Decimal128(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

/// The documents of an array.
pub(crate) fn documents_of(name: &str, array: &RawArray) -> Result<Vec<Bytes>> {
    array
        .into_iter()
        .map(|value| {
            let value = value?;
            let document = value.as_document().ok_or_else(|| wrong(name, "object", value))?;
            Ok(Bytes::copy_from_slice(document.as_bytes()))
        })
        .collect()
}

/// A document that was checked when it came in or when it was stored.
pub(crate) fn document(bytes: &[u8]) -> Result<&RawDocument> {
    Ok(RawDocument::from_bytes(bytes)?)
}
