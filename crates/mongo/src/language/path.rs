//! Dotted paths, and walking raw documents along them as MongoDB's matcher does.
//!
//! An array on the way stands for each of its elements that is a document; a part that is a number also names the element at that
//! place. An array at the end stands for each of its elements, then for itself. A walk shows what it finds one at a time and stops
//! when it is told to; it allocates nothing.

use std::ops::ControlFlow;

use bson::{RawArray, RawBsonRef, RawDocument};

/// A dotted path, taken apart once.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path {
    text: String,
    parts: Vec<String>,
}

/// How a walk treats an array at the path's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// Shows each element, then the array.
    Expand,
    /// Shows the array only.
    Keep,
}

/// One thing a walk finds.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// The value; none where the path leads nowhere.
    pub value: Option<RawBsonRef<'a>>,
    /// Which element of the outermost array on the way it came from, where an array was gone through.
    pub position: Option<usize>,
}

impl Path {
    /// Takes a path apart at its dots.
    pub fn new(text: &str) -> Self {
        Self { text: text.to_owned(), parts: text.split('.').map(str::to_owned).collect() }
    }

    /// The path as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its parts, at least one.
    pub fn parts(&self) -> &[String] {
        &self.parts
    }

    /// Shows everything the path leads to in a document, until `see` breaks.
    pub fn walk<'a, B>(
        &self,
        document: &'a RawDocument,
        leaf: Leaf,
        see: &mut impl FnMut(Found<'a>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        in_document(document, &self.parts, leaf, None, see)
    }

    /// Shows everything the path leads to in a document.
    pub fn each<'a>(&self, document: &'a RawDocument, leaf: Leaf, mut see: impl FnMut(Found<'a>)) {
        let shown: ControlFlow<()> = self.walk(document, leaf, &mut |found| {
            see(found);
            ControlFlow::Continue(())
        });
        debug_assert!(shown.is_continue());
    }

    /// The value at the path, going through documents only and not through arrays.
    pub fn plain<'a>(&self, document: &'a RawDocument) -> Option<RawBsonRef<'a>> {
        let (last, parents) = self.parts.split_last()?;
        let mut at = document;
        for part in parents {
            at = field(at, part)?.as_document()?;
        }
        field(at, last)
    }
}

/// A field of a document. Every command and every write looks for many: the others are passed over by their lengths, without decoding even
/// their names.
pub fn field<'a>(document: &'a RawDocument, name: &str) -> Option<RawBsonRef<'a>> {
    let bytes = document.as_bytes();
    let mut at = 4;
    loop {
        let kind = *bytes.get(at)?;
        if kind == 0 {
            return None;
        }
        let rest = bytes.get(at + 1..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        let value = rest.get(end + 1..)?;
        if &rest[..end] == name.as_bytes() {
            return simple(kind, value).or_else(|| any(document, name));
        }
        match size(kind, value) {
            Some(size) => at += 1 + end + 1 + size,
            None => return any(document, name),
        }
    }
}

/// A value of one of the usual kinds.
fn simple(kind: u8, value: &[u8]) -> Option<RawBsonRef<'_>> {
    let eight = || value.first_chunk::<8>().copied();
    Some(match kind {
        0x01 => RawBsonRef::Double(f64::from_le_bytes(eight()?)),
        0x02 => {
            let text = value.get(4..size(kind, value)?.checked_sub(1)?)?;
            RawBsonRef::String(std::str::from_utf8(text).ok()?)
        }
        0x03 => {
            RawBsonRef::Document(RawDocument::from_bytes(value.get(..size(kind, value)?)?).ok()?)
        }
        0x07 => RawBsonRef::ObjectId(bson::oid::ObjectId::from_bytes(*value.first_chunk::<12>()?)),
        0x08 => RawBsonRef::Boolean(*value.first()? == 1),
        0x09 => {
            let millis = i64::from_le_bytes(eight()?);
            RawBsonRef::DateTime(bson::DateTime::from_millis(millis))
        }
        0x0A => RawBsonRef::Null,
        0x10 => RawBsonRef::Int32(i32::from_le_bytes(*value.first_chunk::<4>()?)),
        0x12 => RawBsonRef::Int64(i64::from_le_bytes(eight()?)),
        _ => return None,
    })
}

/// How many bytes a value has; `None` for kinds that are rare.
fn size(kind: u8, value: &[u8]) -> Option<usize> {
    let length = || usize::try_from(i32::from_le_bytes(*value.first_chunk::<4>()?)).ok();
    Some(match kind {
        0x01 | 0x09 | 0x11 | 0x12 => 8,
        0x02 => length()?.checked_add(4)?,
        0x03 | 0x04 => length()?,
        0x05 => length()?.checked_add(5)?,
        0x07 => 12,
        0x08 => 1,
        0x0A => 0,
        0x10 => 4,
        0x13 => 16,
        _ => return None,
    })
}

/// A field of any kind, in any document.
fn any<'a>(document: &'a RawDocument, name: &str) -> Option<RawBsonRef<'a>> {
    for element in document.iter_elements() {
        let element = element.ok()?;
        if element.key().as_str() == name {
            return element.value().ok();
        }
    }
    None
}

/// Whether a part of a path may name a place in an array.
pub fn is_index(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())
}

fn in_document<'a, B>(
    document: &'a RawDocument,
    parts: &[String],
    leaf: Leaf,
    position: Option<usize>,
    see: &mut impl FnMut(Found<'a>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let Some((first, rest)) = parts.split_first() else { return ControlFlow::Continue(()) };
    match field(document, first) {
        Some(RawBsonRef::Document(inner)) if !rest.is_empty() => {
            in_document(inner, rest, leaf, position, see)
        }
        Some(RawBsonRef::Array(array)) if !rest.is_empty() => {
            in_array(array, rest, leaf, position, see)
        }
        Some(RawBsonRef::Array(array)) if leaf == Leaf::Expand => elements(array, position, see),
        Some(value) if rest.is_empty() => see(Found { value: Some(value), position }),
        _ => see(Found { value: None, position }),
    }
}

/// Each element of an array at the end of a path, then the array.
fn elements<'a, B>(
    array: &'a RawArray,
    position: Option<usize>,
    see: &mut impl FnMut(Found<'a>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    for (at, value) in array.into_iter().flatten().enumerate() {
        see(Found { value: Some(value), position: position.or(Some(at)) })?;
    }
    see(Found { value: Some(RawBsonRef::Array(array)), position })
}

/// An array on the way: `parts` is what is left of the path, and is not empty.
fn in_array<'a, B>(
    array: &'a RawArray,
    parts: &[String],
    leaf: Leaf,
    position: Option<usize>,
    see: &mut impl FnMut(Found<'a>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let Some((first, rest)) = parts.split_first() else { return ControlFlow::Continue(()) };
    let index = is_index(first).then(|| first.parse::<usize>().ok()).flatten();
    for (at, value) in array.into_iter().flatten().enumerate() {
        if let RawBsonRef::Document(inner) = value {
            in_document(inner, parts, leaf, position.or(Some(at)), see)?;
        }
        if index != Some(at) || (first.len() > 1 && first.starts_with('0')) {
            continue;
        }
        // The path names this very element: nothing was gone through.
        match value {
            _ if rest.is_empty() => see(Found { value: Some(value), position })?,
            RawBsonRef::Document(inner) => in_document(inner, rest, leaf, position, see)?,
            RawBsonRef::Array(inner) => in_array(inner, rest, leaf, position, see)?,
            _ => {}
        }
    }
    ControlFlow::Continue(())
}

#[cfg(test)]
mod tests {
    use bson::{Binary, Decimal128, Regex, Timestamp, rawdoc};

    use super::*;

    #[test]
    fn every_field_is_found_whatever_stands_before_it() {
        let mut document = rawdoc! {
            "double": 1.5, "text": "ünï", "inner": {"a": 1}, "list": [1, "b"], "yes": true, "null": bson::RawBson::Null,
            "int": 1, "long": 1_i64, "at": bson::DateTime::from_millis(-5), "id": bson::oid::ObjectId::new(),
        };
        let binary = Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![1, 2] };
        document.append(bson::cstr!("binary"), binary);
        document.append(bson::cstr!("when"), Timestamp { time: 1, increment: 2 });
        let pattern =
            Regex { pattern: bson::cstr!("a.*").into(), options: bson::cstr!("i").into() };
        document.append(bson::cstr!("pattern"), pattern);
        document.append(bson::cstr!("decimal"), "1.5".parse::<Decimal128>().unwrap());
        document.append(bson::cstr!("min"), bson::RawBson::MinKey);
        document.append(bson::cstr!("last"), "end");
        let mut count = 0;
        for element in document.iter() {
            let (name, value) = element.unwrap();
            assert_eq!(field(&document, name.as_str()), Some(value), "{}", name.as_str());
            count += 1;
        }
        assert_eq!(count, 16);
        for absent in ["", "in", "inte", "a", "end"] {
            assert_eq!(field(&document, absent), None);
        }
    }
}
