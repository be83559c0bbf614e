//! Documents and their fields.

use bson::{Bson, Document};

use super::eval::{Scope, is_nullish, kind};
use super::{Function, MANY, NamedFunction};
use crate::language::failure::{Failure, Result};
use crate::language::value::raw_document;

pub(super) const FUNCTIONS: &[Function] = &[
    Function { name: "$mergeObjects", min: 0, max: MANY, call: |v, _| merge(v) },
    Function { name: "$objectToArray", min: 1, max: 1, call: |v, _| to_array(&v[0]) },
    Function { name: "$arrayToObject", min: 1, max: 1, call: |v, _| from_array(&v[0]) },
    Function { name: "$bsonSize", min: 1, max: 1, call: |v, _| bson_size(&v[0]) },
    Function { name: "$binarySize", min: 1, max: 1, call: |v, _| binary_size(&v[0]) },
    Function {
        name: "$tsSecond",
        min: 1,
        max: 1,
        call: |v, _| timestamp("$tsSecond", 5687301, &v[0]),
    },
    Function {
        name: "$tsIncrement",
        min: 1,
        max: 1,
        call: |v, _| timestamp("$tsIncrement", 5687302, &v[0]),
    },
];

pub(super) const NAMED: &[NamedFunction] = &[
    NamedFunction { name: "$getField", names: &["field", "input"], required: 1, call: get_field },
    NamedFunction {
        name: "$setField",
        names: &["field", "input", "value"],
        required: 3,
        call: |v, _| set_field(v),
    },
    NamedFunction {
        name: "$unsetField",
        names: &["field", "input"],
        required: 2,
        call: |v, _| unset_field(v),
    },
];

fn merge(values: &[Bson]) -> Result<Bson> {
    let mut out = Document::new();
    // One argument that is an array stands for its elements.
    let values = match values {
        [Bson::Array(items)] => items,
        values => values,
    };
    for value in values {
        match value {
            Bson::Document(document) => {
                for (name, value) in document {
                    out.insert(name, value.clone());
                }
            }
            value if is_nullish(value) => {}
            other => {
                return Err(Failure::coded(
                    40400,
                    format!(
                        "$mergeObjects requires object inputs, but input {other} is of type {}",
                        kind(other)
                    ),
                ));
            }
        }
    }
    Ok(Bson::Document(out))
}

fn to_array(value: &Bson) -> Result<Bson> {
    match value {
        value if is_nullish(value) => Ok(Bson::Null),
        Bson::Document(document) => Ok(Bson::Array(
            document
                .iter()
                .map(|(name, value)| {
                    Bson::Document(bson::doc! { "k": name.as_str(), "v": value.clone() })
                })
                .collect(),
        )),
        other => Err(Failure::coded(
            40390,
            format!("$objectToArray requires a document input, found: {}", kind(other)),
        )),
    }
}

fn from_array(value: &Bson) -> Result<Bson> {
    let items = match value {
        value if is_nullish(value) => return Ok(Bson::Null),
        Bson::Array(items) => items,
        other => {
            return Err(Failure::coded(
                40386,
                format!("$arrayToObject requires an array input, found: {}", kind(other)),
            ));
        }
    };
    let mut out = Document::new();
    for item in items {
        let (name, value) = match item {
            Bson::Array(pair) => match &pair[..] {
                [name, value] => (name, value),
                _ => {
                    return Err(Failure::coded(
                        40397,
                        format!(
                            "$arrayToObject requires an array of size 2 arrays,found array of size: {}",
                            pair.len()
                        ),
                    ));
                }
            },
            Bson::Document(pair) => match (pair.get("k"), pair.get("v"), pair.len()) {
                (Some(name), Some(value), 2) => (name, value),
                (_, _, 2) => {
                    return Err(Failure::coded(
                        40393,
                        "$arrayToObject requires an object with keys 'k' and 'v'. Missing either or both keys",
                    ));
                }
                (_, _, count) => {
                    return Err(Failure::coded(
                        40392,
                        format!(
                            "$arrayToObject requires an object keys of 'k' and 'v'. Found incorrect number of keys:{count}"
                        ),
                    ));
                }
            },
            other => {
                return Err(Failure::coded(
                    40398,
                    format!("Unrecognised input type format for $arrayToObject: {}", kind(other)),
                ));
            }
        };
        let Bson::String(name) = name else {
            let code = if matches!(item, Bson::Array(_)) { 40395 } else { 40394 };
            return Err(Failure::coded(
                code,
                format!(
                    "$arrayToObject requires an array of key-value pairs, where the key must be of type string. Found key type: {}",
                    kind(name)
                ),
            ));
        };
        if name.contains('\0') {
            return Err(Failure::coded(4940401, "Key field cannot contain an embedded null byte"));
        }
        out.insert(name, value.clone());
    }
    Ok(Bson::Document(out))
}

fn bson_size(value: &Bson) -> Result<Bson> {
    match value {
        value if is_nullish(value) => Ok(Bson::Null),
        Bson::Document(document) => {
            Ok(Bson::Int32(raw_document(document)?.as_bytes().len() as i32))
        }
        other => Err(Failure::coded(
            31393,
            format!("$bsonSize requires a document input, found: {}", kind(other)),
        )),
    }
}

fn binary_size(value: &Bson) -> Result<Bson> {
    match value {
        value if is_nullish(value) => Ok(Bson::Null),
        Bson::String(text) => Ok(Bson::Int32(text.len() as i32)),
        Bson::Binary(binary) => Ok(Bson::Int32(binary.bytes.len() as i32)),
        other => Err(Failure::coded(
            51276,
            format!("$binarySize requires a string or BinData argument, found: {}", kind(other)),
        )),
    }
}

fn timestamp(name: &str, code: i32, value: &Bson) -> Result<Bson> {
    match value {
        value if is_nullish(value) => Ok(Bson::Null),
        Bson::Timestamp(at) if name == "$tsSecond" => Ok(Bson::Int64(i64::from(at.time))),
        Bson::Timestamp(at) => Ok(Bson::Int64(i64::from(at.increment))),
        other => Err(Failure::coded(
            code,
            format!(" Argument to {name} must be a timestamp, but is {}", kind(other)),
        )),
    }
}

fn field_name<'b>(operator: &str, value: &'b Option<Bson>) -> Result<&'b str> {
    match value {
        Some(Bson::String(name)) => Ok(name),
        other => Err(Failure::coded(
            3041704,
            format!(
                "{operator} requires 'field' to evaluate to type String, but got {}",
                other.as_ref().map_or("missing", kind)
            ),
        )),
    }
}

fn get_field(values: &[Option<Bson>], scope: &Scope<'_>) -> Result<Bson> {
    let name = field_name("$getField", &values[0])?;
    let current;
    let input = match &values[1] {
        Some(input) => input,
        None => {
            current = scope.current()?;
            &current
        }
    };
    Ok(match input {
        Bson::Document(document) => document.get(name).cloned().unwrap_or(Bson::Undefined),
        Bson::Null => Bson::Null,
        _ => Bson::Undefined,
    })
}

fn set_field(values: &[Option<Bson>]) -> Result<Bson> {
    let name = field_name("$setField", &values[0])?;
    let mut document = match &values[1] {
        Some(Bson::Document(document)) => document.clone(),
        Some(value) if is_nullish(value) => return Ok(Bson::Null),
        other => {
            return Err(Failure::coded(
                4161105,
                format!(
                    "$setField requires 'input' to evaluate to type Object, but got {}",
                    other.as_ref().map_or("missing", kind)
                ),
            ));
        }
    };
    match &values[2] {
        None | Some(Bson::Undefined) => drop(document.remove(name)),
        Some(value) => drop(document.insert(name, value.clone())),
    }
    Ok(Bson::Document(document))
}

fn unset_field(values: &[Option<Bson>]) -> Result<Bson> {
    set_field(&[values[0].clone(), values[1].clone(), None])
}
