//! Reading updates.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use bson::{Bson, Document, RawBsonRef, RawDocument};

use super::array::{self, ArrayChange, Pull, Push};
use super::field::{BitOperation, FieldChange};
use super::target::{Part, written};
use super::{Change, ElementCondition, Kind, PathChange};
use crate::language::failure::{Failure, Result};
use crate::language::filter::{ElementFilter, Filter};
use crate::language::number::Number;
use crate::language::path::is_index;
use crate::language::pattern::Pattern;
use crate::language::value::{owned, owned_document, shown, shown_raw, type_name};
use crate::language::vars::Vars;

/// A replacement: any document whose fields are no operators.
pub fn replacement(document: &RawDocument) -> Result<Document> {
    for element in document.iter() {
        let (name, _) = element?;
        if name.as_str().starts_with('$') {
            return Err(Failure::coded(
                52,
                format!(
                    "The dollar ($) prefixed field '{name}' in '{name}' is not allowed in the context of an update's replacement document. Consider using an aggregation pipeline with $replaceWith."
                ),
            ));
        }
    }
    owned_document(document)
}

/// The operators, by name.
const OPERATORS: [&str; 16] = [
    "$set",
    "$unset",
    "$inc",
    "$mul",
    "$min",
    "$max",
    "$rename",
    "$setOnInsert",
    "$currentDate",
    "$bit",
    "$addToSet",
    "$push",
    "$pop",
    "$pull",
    "$pullAll",
    "$pushAll",
];

/// An update by operators.
pub fn operators(
    document: &RawDocument,
    array_filters: &[&RawDocument],
    vars: &Vars,
) -> Result<Kind> {
    let filters = element_conditions(array_filters, vars)?;
    let mut changes = Vec::new();
    for element in document.iter() {
        let (name, value) = element?;
        let Some(operator) = OPERATORS.iter().find(|known| **known == name.as_str()) else {
            return Err(Failure::failed_to_parse(format!(
                "Unknown modifier: {name}. Expected a valid update modifier or pipeline-style update specified as an array"
            )));
        };
        let RawBsonRef::Document(fields) = value else {
            return Err(Failure::failed_to_parse(format!(
                "Modifiers operate on fields but we found type {} instead. For example: {{$mod: {{<field>: ...}}}} not {{{name}: {}}}",
                type_name(value.element_type()),
                shown_raw(value)
            )));
        };
        for field in fields.iter() {
            let (path, value) = field?;
            let path = path.as_str();
            let parts = parts(path)?;
            let change = change(operator, path, value, vars)?;
            if let Change::Rename(to, text) = &change {
                // What is renamed to counts as touched, too.
                changes.push((to.clone(), text.clone(), None));
            }
            changes.push((parts, path.to_owned(), Some((*operator, change))));
        }
    }
    conflicts(&mut changes)?;
    let changes: Vec<PathChange> = changes
        .into_iter()
        .filter_map(|(parts, path, change)| {
            change.map(|(operator, change)| PathChange { operator, path, parts, change })
        })
        .collect();
    used(&changes, &filters, document)?;
    Ok(Kind::Operators { changes, filters })
}

type Touched = (Vec<Part>, String, Option<(&'static str, Change)>);

/// Sorts by path and refuses two changes where one path is, or leads through, the other.
fn conflicts(changes: &mut [Touched]) -> Result<()> {
    for (at, (parts, path, _)) in changes.iter().enumerate() {
        for (earlier, _, _) in &changes[..at] {
            let shared = earlier.len().min(parts.len());
            if earlier[..shared] == parts[..shared] {
                return Err(Failure::coded(
                    40,
                    format!(
                        "Updating the path '{path}' would create a conflict at '{}'",
                        written(&parts[..shared])
                    ),
                ));
            }
        }
    }
    changes.sort_by(|(a, _, _), (b, _, _)| order(a, b));
    Ok(())
}

/// Names by their letters, places by their number.
fn order(a: &[Part], b: &[Part]) -> Ordering {
    for (a, b) in a.iter().zip(b) {
        let (a, b) = (a.text(), b.text());
        let by_part = match (is_index(&a), is_index(&b)) {
            (true, true) => a.len().cmp(&b.len()).then_with(|| a.cmp(&b)),
            _ => a.cmp(&b),
        };
        if by_part.is_ne() {
            return by_part;
        }
    }
    a.len().cmp(&b.len())
}

/// Takes a path apart and refuses what no document can have.
fn parts(path: &str) -> Result<Vec<Part>> {
    if path.is_empty() {
        return Err(Failure::coded(56, "An empty update path is not valid."));
    }
    let mut parts = Vec::new();
    for (at, part) in path.split('.').enumerate() {
        let step = match part {
            "" => {
                return Err(Failure::coded(
                    56,
                    format!(
                        "The update path '{path}' contains an empty field name, which is not allowed."
                    ),
                ));
            }
            "$" => Part::Matched,
            "$[]" => Part::Every,
            part if part.starts_with("$[") && part.ends_with(']') => {
                Part::Filtered(part[2..part.len() - 1].to_owned())
            }
            part if part.starts_with('$') && !matches!(part, "$ref" | "$id" | "$db") => {
                return Err(Failure::coded(
                    52,
                    format!(
                        "The dollar ($) prefixed field '{part}' in '{path}' is not allowed in the context of an update's replacement document. Consider using an aggregation pipeline with $replaceWith."
                    ),
                ));
            }
            part => Part::Name(part.to_owned()),
        };
        if at == 0 && !matches!(step, Part::Name(_)) {
            let which =
                if step == Part::Matched { "positional (i.e. '$')" } else { "array filter" };
            return Err(Failure::bad_value(format!(
                "Cannot have {which} element in the first position in path '{path}'"
            )));
        }
        if step == Part::Matched && parts.contains(&Part::Matched) {
            return Err(Failure::bad_value(format!(
                "Too many positional (i.e. '$') elements found in path '{path}'"
            )));
        }
        parts.push(step);
    }
    Ok(parts)
}

fn change(operator: &str, path: &str, value: RawBsonRef<'_>, vars: &Vars) -> Result<Change> {
    let number = |verb: &str| {
        Number::of(value).ok_or_else(|| {
            Failure::type_mismatch(format!(
                "Cannot {verb} with non-numeric argument: {{{path}: {}}}",
                shown_raw(value)
            ))
        })
    };
    Ok(match operator {
        "$set" => Change::Field(FieldChange::Set(owned(value)?)),
        "$setOnInsert" => Change::SetOnInsert(owned(value)?),
        "$unset" => Change::Unset,
        "$inc" => Change::Field(FieldChange::Increment(number("increment")?)),
        "$mul" => Change::Field(FieldChange::Multiply(number("multiply")?)),
        "$min" => Change::Field(FieldChange::Min(owned(value)?)),
        "$max" => Change::Field(FieldChange::Max(owned(value)?)),
        "$rename" => rename(path, value)?,
        "$currentDate" => Change::Field(current_date(value)?),
        "$bit" => Change::Field(FieldChange::Bit(bit(path, value)?)),
        "$push" => Change::Array(ArrayChange::Push(push(&owned(value)?)?)),
        "$addToSet" => Change::Array(ArrayChange::AddToSet(add_to_set(owned(value)?)?)),
        "$pop" => Change::Array(pop(value)?),
        "$pull" => Change::Array(ArrayChange::Pull(pull(value, vars)?)),
        _ => match owned(value)? {
            Bson::Array(values) if operator == "$pullAll" => {
                Change::Array(ArrayChange::PullAll(values))
            }
            // What `$push` with `$each` was before there was `$each`; the service still takes it.
            Bson::Array(values) => Change::Array(ArrayChange::Push(Push::of(values))),
            other => {
                return Err(Failure::bad_value(format!(
                    "{operator} requires an array argument but was given a {}",
                    type_name(other.element_type())
                )));
            }
        },
    })
}

fn rename(path: &str, value: RawBsonRef<'_>) -> Result<Change> {
    let RawBsonRef::String(to) = value else {
        return Err(Failure::bad_value(format!(
            "The 'to' field for $rename must be a string: {path}: {}",
            shown_raw(value)
        )));
    };
    if path == to {
        return Err(Failure::bad_value(format!(
            "The source and target field for $rename must differ: {path}: \"{to}\""
        )));
    }
    for (which, text) in [("source", path), ("destination", to)] {
        if parts(text)?.iter().any(|part| !matches!(part, Part::Name(_))) {
            return Err(Failure::bad_value(format!(
                "The {which} field for $rename may not be dynamic: {text}"
            )));
        }
    }
    let (source, target) = (parts(path)?, parts(to)?);
    let shared = source.len().min(target.len());
    if source[..shared] == target[..shared] {
        return Err(Failure::bad_value(format!(
            "The source and target field for $rename must not be on the same path: {path}: \"{to}\""
        )));
    }
    Ok(Change::Rename(target, to.to_owned()))
}

fn current_date(value: RawBsonRef<'_>) -> Result<FieldChange> {
    match value {
        RawBsonRef::Boolean(_) => Ok(FieldChange::CurrentDate),
        RawBsonRef::Document(spec) => {
            for element in spec.iter() {
                let (name, _) = element?;
                if name != "$type" {
                    return Err(Failure::bad_value(format!(
                        "Unrecognized $currentDate option: {name}"
                    )));
                }
            }
            match spec.get("$type")? {
                Some(RawBsonRef::String("date")) => Ok(FieldChange::CurrentDate),
                Some(RawBsonRef::String("timestamp")) => Ok(FieldChange::CurrentTimestamp),
                _ => Err(Failure::bad_value(
                    "The '$type' string field is required to be 'date' or 'timestamp': {$currentDate: {field : {$type: 'date'}}}",
                )),
            }
        }
        other => Err(Failure::bad_value(format!(
            "{} is not valid type for $currentDate. Please use a boolean ('true') or a $type expression ({{$type: 'timestamp/date'}}).",
            type_name(other.element_type())
        ))),
    }
}

fn bit(path: &str, value: RawBsonRef<'_>) -> Result<Vec<(BitOperation, Number)>> {
    let RawBsonRef::Document(spec) = value else {
        return Err(Failure::bad_value(format!(
            "The $bit modifier is not compatible with a {}. You must pass in an embedded document: {{$bit: {{field: {{and/or/xor: #}}}}",
            type_name(value.element_type())
        )));
    };
    let mut operations = Vec::new();
    for element in spec.iter() {
        let (name, value) = element?;
        let operation = match name.as_str() {
            "and" => BitOperation::And,
            "or" => BitOperation::Or,
            "xor" => BitOperation::Xor,
            _ => {
                return Err(Failure::bad_value(format!(
                    "The $bit modifier only supports 'and', 'or', and 'xor', not '{name}' which is an unknown operator: {{{name}: {}}}",
                    shown_raw(value)
                )));
            }
        };
        match Number::of(value) {
            Some(number @ (Number::Int(_) | Number::Long(_))) => {
                operations.push((operation, number));
            }
            _ => {
                return Err(Failure::bad_value(format!(
                    "The $bit modifier field must be an Integer(32/64 bit); a '{}' is not supported here: {{{name}: {}}}",
                    type_name(value.element_type()),
                    shown_raw(value)
                )));
            }
        }
    }
    if operations.is_empty() {
        return Err(Failure::bad_value(format!(
            "You must pass in at least one bitwise operation. The format is: {{$bit: {{{path}: {{and/or/xor: #}}}}"
        )));
    }
    Ok(operations)
}

fn push(value: &Bson) -> Result<Push> {
    let mut push = Push::of(Vec::new());
    let Bson::Document(spec) = value else {
        push.values.push(value.clone());
        return Ok(push);
    };
    let Some(values) = spec.get("$each") else {
        if let Some((name, _)) = spec
            .iter()
            .next()
            .filter(|(name, _)| matches!(name.as_str(), "$slice" | "$sort" | "$position"))
        {
            return Err(Failure::coded(
                52,
                format!(
                    "The dollar ($) prefixed field '{name}' in '{name}' is not valid for storage."
                ),
            ));
        }
        push.values.push(value.clone());
        return Ok(push);
    };
    push.values = array::each("$push", values)?;
    for (name, value) in spec {
        let whole = |what: &str| match Number::of_bson(value) {
            None => Err(Failure::bad_value(format!(
                "The value for {what} must be an integer value but was given type: {}",
                type_name(value.element_type())
            ))),
            Some(number) => number.to_i64_exact().ok_or_else(|| {
                Failure::bad_value(format!(
                    "The value for {what} must be an integer value but was given: {}",
                    shown(value)
                ))
            }),
        };
        match name.as_str() {
            "$each" => {}
            "$slice" => push.slice = Some(whole("$slice")?),
            "$position" => push.position = Some(whole("$position")?),
            "$sort" => push.sort = Some(array::order(value)?),
            _ => {
                return Err(Failure::bad_value(format!("Unrecognized clause in $push: {name}")));
            }
        }
    }
    Ok(push)
}

fn add_to_set(value: Bson) -> Result<Vec<Bson>> {
    match &value {
        Bson::Document(spec) if spec.contains_key("$each") => {
            if let Some(other) = spec.keys().find(|name| *name != "$each") {
                return Err(Failure::bad_value(format!(
                    "Found unexpected fields after $each in $addToSet: {}",
                    shown(&Bson::Document(
                        spec.iter()
                            .filter(|(k, _)| *k == other)
                            .map(|(k, v)| (k.clone(), v.clone()))
                            .collect()
                    ))
                )));
            }
            array::each("$addToSet", &spec["$each"])
        }
        _ => Ok(vec![value]),
    }
}

fn pop(value: RawBsonRef<'_>) -> Result<ArrayChange> {
    let Some(number) = Number::of(value) else {
        return Err(Failure::failed_to_parse(format!(
            "Expected a number in: {}",
            shown_raw(value)
        )));
    };
    match number.to_i64_exact() {
        Some(1) => Ok(ArrayChange::PopLast),
        Some(-1) => Ok(ArrayChange::PopFirst),
        _ => Err(Failure::failed_to_parse(format!(
            "$pop expects 1 or -1, found: {}",
            shown_raw(value)
        ))),
    }
}

fn pull(value: RawBsonRef<'_>, vars: &Vars) -> Result<Pull> {
    Ok(match value {
        RawBsonRef::Document(condition) => {
            let first = condition.iter().next().transpose()?;
            match first {
                Some((name, _))
                    if name.as_str().starts_with('$')
                        && !matches!(name.as_str(), "$and" | "$or" | "$nor" | "$expr") =>
                {
                    Pull::Operators(ElementFilter::parse_operators(condition, vars)?)
                }
                _ => Pull::Fields(Filter::parse(condition, vars)?),
            }
        }
        RawBsonRef::RegularExpression(regex) => Pull::Pattern(Pattern::compile(
            regex.pattern.as_str(),
            regex.options.as_str(),
            "$regex",
        )?),
        value => Pull::Value(owned(value)?),
    })
}

fn element_conditions(
    filters: &[&RawDocument],
    vars: &Vars,
) -> Result<BTreeMap<String, ElementCondition>> {
    let mut found = BTreeMap::new();
    for filter in filters {
        let mut names = BTreeSet::new();
        top_names(filter, &mut names)?;
        let mut names = names.into_iter();
        let Some(identifier) = names.next() else {
            return Err(Failure::failed_to_parse(
                "Cannot use an expression without a top-level field name in arrayFilters",
            ));
        };
        if let Some(second) = names.next() {
            return Err(Failure::failed_to_parse(format!(
                "Error parsing array filter :: caused by :: Expected a single top-level field name, found '{identifier}' and '{second}'"
            )));
        }
        let valid = identifier.starts_with(|c: char| c.is_ascii_lowercase())
            && identifier.chars().all(|c| c.is_ascii_alphanumeric());
        if !valid {
            return Err(Failure::bad_value(format!(
                "Error parsing array filter :: caused by :: The top-level field name must be an alphanumeric string beginning with a lowercase letter, found '{identifier}'"
            )));
        }
        let condition = ElementCondition { filter: Filter::parse(filter, vars)? };
        if found.insert(identifier.clone(), condition).is_some() {
            return Err(Failure::failed_to_parse(format!(
                "Found multiple array filters with the same top-level field name {identifier}"
            )));
        }
    }
    Ok(found)
}

/// The first parts of all paths in a filter.
fn top_names(filter: &RawDocument, names: &mut BTreeSet<String>) -> Result<()> {
    for element in filter.iter() {
        let (name, value) = element?;
        let name = name.as_str();
        match (name.starts_with('$'), value) {
            (false, _) => {
                names.insert(name.split('.').next().unwrap_or_default().to_owned());
            }
            (true, RawBsonRef::Array(branches)) => {
                for branch in branches {
                    if let RawBsonRef::Document(branch) = branch? {
                        top_names(branch, names)?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Every identifier must have a filter and every filter an identifier.
fn used(
    changes: &[PathChange],
    filters: &BTreeMap<String, ElementCondition>,
    update: &RawDocument,
) -> Result<()> {
    let mut names = BTreeSet::new();
    for change in changes {
        for part in &change.parts {
            if let Part::Filtered(identifier) = part {
                if !filters.contains_key(identifier) {
                    return Err(Failure::bad_value(format!(
                        "No array filter found for identifier '{identifier}' in path '{}'",
                        change.path
                    )));
                }
                names.insert(identifier.as_str());
            }
        }
    }
    match filters.keys().find(|identifier| !names.contains(identifier.as_str())) {
        None => Ok(()),
        Some(unused) => Err(Failure::failed_to_parse(format!(
            "The array filter for identifier '{unused}' was not used in the update {}",
            shown_raw(update.into())
        ))),
    }
}
