//! Reading `$out` and `$merge`.

use bson::{RawBsonRef, RawDocumentBuf};

use super::{Matched, Output, Unmatched};
use crate::language::failure::{Failure, Result};
use crate::language::value::{shown_raw, type_name};

pub fn out(value: RawBsonRef<'_>) -> Result<Output> {
    let (database, collection) = namespace("$out", value)?;
    Ok(Output::Out { database, collection })
}

/// `"c"` or `{db: "d", coll: "c"}`.
fn namespace(stage: &str, value: RawBsonRef<'_>) -> Result<(Option<String>, String)> {
    match value {
        RawBsonRef::String("") => {
            Err(Failure::coded(73, format!("Invalid {stage} target namespace, ''")))
        }
        RawBsonRef::String(collection) => Ok((None, collection.to_owned())),
        RawBsonRef::Document(spec) => {
            let (mut database, mut collection) = (None, None);
            for element in spec.iter() {
                let (name, value) = element?;
                match (name.as_str(), value) {
                    ("db", RawBsonRef::String(text)) => database = Some(text.to_owned()),
                    ("coll", RawBsonRef::String(text)) => collection = Some(text.to_owned()),
                    (other, _) => {
                        return Err(Failure::coded(
                            40415,
                            format!("BSON field '{stage}.{other}' is an unknown field."),
                        ));
                    }
                }
            }
            let collection = collection.ok_or_else(|| {
                Failure::coded(
                    40414,
                    format!("BSON field '{stage}.coll' is missing but a required field"),
                )
            })?;
            Ok((database, collection))
        }
        other => Err(Failure::coded(
            16990,
            format!(
                "{stage} only supports a string or object argument, but found {}",
                type_name(other.element_type())
            ),
        )),
    }
}

pub fn merge(value: RawBsonRef<'_>) -> Result<Output> {
    let RawBsonRef::Document(spec) = value else {
        let RawBsonRef::String(_) = value else {
            return Err(Failure::coded(
                51182,
                format!(
                    "$merge requires a string or object argument, but found {}",
                    type_name(value.element_type())
                ),
            ));
        };
        let (database, collection) = namespace("$merge", value)?;
        return Ok(Output::Merge {
            database,
            collection,
            on: vec!["_id".to_owned()],
            matched: Matched::Merge,
            unmatched: Unmatched::Insert,
        });
    };
    let mut into = None;
    let mut on = vec!["_id".to_owned()];
    let mut matched = Matched::Merge;
    let mut unmatched = Unmatched::Insert;
    let mut variables: Option<RawDocumentBuf> = None;
    for element in spec.iter() {
        let (name, value) = element?;
        match (name.as_str(), value) {
            ("into", value) => into = Some(namespace("$merge", value)?),
            ("on", value) => on = fields(value)?,
            ("let", RawBsonRef::Document(spec)) => variables = Some(spec.to_owned()),
            ("whenMatched", RawBsonRef::String(mode)) => {
                matched = match mode {
                    "replace" => Matched::Replace,
                    "keepExisting" => Matched::Keep,
                    "merge" => Matched::Merge,
                    "fail" => Matched::Fail,
                    other => return Err(mode_unknown("whenMatched", other)),
                }
            }
            ("whenMatched", RawBsonRef::Array(array)) => {
                let mut stages = Vec::new();
                for stage in array {
                    match stage? {
                        RawBsonRef::Document(stage) => stages.push(stage.to_owned()),
                        _ => {
                            return Err(Failure::type_mismatch(
                                "Each element of the 'pipeline' array must be an object",
                            ));
                        }
                    }
                }
                matched = Matched::Pipeline { stages, variables: None };
            }
            ("whenNotMatched", RawBsonRef::String(mode)) => {
                unmatched = match mode {
                    "insert" => Unmatched::Insert,
                    "discard" => Unmatched::Discard,
                    "fail" => Unmatched::Fail,
                    other => return Err(mode_unknown("whenNotMatched", other)),
                }
            }
            (other, _) => {
                return Err(Failure::coded(
                    40415,
                    format!(
                        "BSON field '$merge.{other}' is an unknown field or has the wrong type."
                    ),
                ));
            }
        }
    }
    match &mut matched {
        Matched::Pipeline { variables: slot, .. } => *slot = variables,
        _ if variables.is_some() => {
            return Err(Failure::coded(
                51199,
                "Cannot use 'let' variables with 'whenMatched: merge' mode",
            ));
        }
        _ => {}
    }
    let (database, collection) = into.ok_or_else(|| {
        Failure::coded(40414, "BSON field '$merge.into' is missing but a required field")
    })?;
    Ok(Output::Merge { database, collection, on, matched, unmatched })
}

fn mode_unknown(name: &str, mode: &str) -> Failure {
    Failure::bad_value(format!(
        "Enumeration value '{mode}' for field '{name}' is not a valid value."
    ))
}

fn fields(value: RawBsonRef<'_>) -> Result<Vec<String>> {
    match value {
        RawBsonRef::String(name) => Ok(vec![name.to_owned()]),
        RawBsonRef::Array(names) => {
            let mut out = Vec::new();
            for name in names {
                match name? {
                    RawBsonRef::String(name) => out.push(name.to_owned()),
                    other => {
                        return Err(Failure::coded(
                            51134,
                            format!(
                                "$merge 'on' array elements must be strings, but found {}",
                                type_name(other.element_type())
                            ),
                        ));
                    }
                }
            }
            if out.is_empty() {
                return Err(Failure::coded(
                    51187,
                    "If explicitly specifying $merge 'on', must include at least one field",
                ));
            }
            Ok(out)
        }
        other => Err(Failure::coded(
            51186,
            format!(
                "$merge 'on' field must be either a string or an array of strings, but found {}",
                shown_raw(other)
            ),
        )),
    }
}
