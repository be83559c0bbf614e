//! Between owned values and raw ones, and the names of the types.

use bson::spec::ElementType;
use bson::{Bson, Document, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::failure::{Failure, Result};

/// Decodes a raw value.
pub fn owned(value: RawBsonRef<'_>) -> Result<Bson> {
    Ok(Bson::try_from(value)?)
}

/// Decodes a raw document.
pub fn owned_document(document: &RawDocument) -> Result<Document> {
    Ok(Document::try_from(document)?)
}

/// Encodes a document.
pub fn raw_document(document: &Document) -> Result<RawDocumentBuf> {
    Ok(RawDocumentBuf::try_from(document)?)
}

/// Encodes a value. A name with a zero byte in it cannot be written, and is refused.
pub fn raw(value: Bson) -> Result<RawBson> {
    RawBson::try_from(value).map_err(Failure::from)
}

/// Shows an owned value as a raw one. Scalars are borrowed, what must be encoded is.
pub fn with_raw<T>(value: &Bson, see: impl FnOnce(RawBsonRef<'_>) -> T) -> T {
    match value {
        Bson::String(text) => see(RawBsonRef::String(text)),
        Bson::Int32(n) => see(RawBsonRef::Int32(*n)),
        Bson::Int64(n) => see(RawBsonRef::Int64(*n)),
        Bson::Double(n) => see(RawBsonRef::Double(*n)),
        Bson::Boolean(b) => see(RawBsonRef::Boolean(*b)),
        Bson::Null => see(RawBsonRef::Null),
        Bson::Undefined => see(RawBsonRef::Undefined),
        Bson::ObjectId(id) => see(RawBsonRef::ObjectId(*id)),
        Bson::DateTime(date) => see(RawBsonRef::DateTime(*date)),
        other => match RawBson::try_from(other.clone()) {
            Ok(raw) => see(raw.as_raw_bson_ref()),
            Err(_) => see(RawBsonRef::Undefined),
        },
    }
}

/// The name that `$type` gives a kind and takes for it.
pub fn type_name(kind: ElementType) -> &'static str {
    use ElementType as T;
    match kind {
        T::Double => "double",
        T::String => "string",
        T::EmbeddedDocument => "object",
        T::Array => "array",
        T::Binary => "binData",
        T::Undefined => "undefined",
        T::ObjectId => "objectId",
        T::Boolean => "bool",
        T::DateTime => "date",
        T::Null => "null",
        T::RegularExpression => "regex",
        T::DbPointer => "dbPointer",
        T::JavaScriptCode => "javascript",
        T::Symbol => "symbol",
        T::JavaScriptCodeWithScope => "javascriptWithScope",
        T::Int32 => "int",
        T::Timestamp => "timestamp",
        T::Int64 => "long",
        T::Decimal128 => "decimal",
        T::MaxKey => "maxKey",
        T::MinKey => "minKey",
    }
}

/// A value as MongoDB writes it in error messages: field names bare, strings quoted.
pub fn shown(value: &Bson) -> String {
    match value {
        Bson::String(text) | Bson::Symbol(text) => format!("\"{text}\""),
        Bson::Document(document) if document.is_empty() => "{}".to_owned(),
        Bson::Document(document) => {
            let fields: Vec<String> =
                document.iter().map(|(name, value)| format!("{name}: {}", shown(value))).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        Bson::Array(items) if items.is_empty() => "[]".to_owned(),
        Bson::Array(items) => {
            let items: Vec<String> = items.iter().map(shown).collect();
            format!("[ {} ]", items.join(", "))
        }
        Bson::Double(n) => shown_double(*n),
        Bson::Int32(n) => n.to_string(),
        Bson::Int64(n) => n.to_string(),
        Bson::Boolean(b) => b.to_string(),
        Bson::Null => "null".to_owned(),
        Bson::Undefined => "undefined".to_owned(),
        Bson::ObjectId(id) => format!("ObjectId('{id}')"),
        Bson::DateTime(date) => format!("new Date({})", date.timestamp_millis()),
        Bson::Timestamp(t) => format!("Timestamp({}, {})", t.time, t.increment),
        Bson::Decimal128(n) => n.to_string(),
        Bson::RegularExpression(regex) => format!("/{}/{}", regex.pattern, regex.options),
        Bson::MinKey => "MinKey".to_owned(),
        Bson::MaxKey => "MaxKey".to_owned(),
        other => other.to_string(),
    }
}

/// A raw value as MongoDB writes it in error messages.
pub fn shown_raw(value: RawBsonRef<'_>) -> String {
    owned(value).map_or_else(|_| String::new(), |value| shown(&value))
}

/// A double as MongoDB's messages write it: always with a point.
pub fn shown_double(n: f64) -> String {
    if n.is_finite() && n == n.trunc() && n.abs() < 1e15 {
        format!("{n:.1}")
    } else {
        n.to_string()
    }
}
