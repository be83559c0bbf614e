//! Reading stages.

use bson::{Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf, doc};

use super::change::Change;
use super::facet::Facet;
use super::flow::{Blocking, Brought, Count, Limit, Match, Skip, Unwind};
use super::group::{AutoBuckets, By, Group, Wanted};
use super::join::{From, Graph, Lookup, Union, kept};
use super::sort::Sorting;
use super::{Pipeline, Source, Stage, fill, output, window};
use crate::language::compare::{order_values, rank_of};
use crate::language::expression::{Expression, check_name};
use crate::language::failure::{Failure, Result};
use crate::language::filter::Filter;
use crate::language::geo::Near;
use crate::language::number::Number;
use crate::language::path::Path;
use crate::language::projection::Tree;
use crate::language::sort::Sort;
use crate::language::value::{owned, owned_document, raw_document, shown_raw, type_name};
use crate::language::vars::Vars;

/// The name of a stage and its argument.
fn named<'a>(stage: &RawBsonRef<'a>) -> Result<(&'a str, RawBsonRef<'a>)> {
    let RawBsonRef::Document(stage) = stage else {
        return Err(Failure::type_mismatch(
            "Each element of the 'pipeline' array must be an object",
        ));
    };
    let mut fields = stage.iter();
    match (fields.next(), fields.next()) {
        (Some(first), None) => {
            let (name, value) = first?;
            Ok((name.as_str(), value))
        }
        _ => Err(Failure::coded(
            40323,
            "A pipeline stage specification object must contain exactly one field.",
        )),
    }
}

/// A whole pipeline.
pub fn pipeline(stages: &[RawBsonRef<'_>], vars: &Vars) -> Result<Pipeline> {
    let mut built: Vec<Box<dyn Stage>> = Vec::new();
    let mut output = None;
    let mut takes_input = true;
    for (at, stage) in stages.iter().enumerate() {
        let (name, value) = named(stage)?;
        let is_last = at + 1 == stages.len();
        match name {
            "$out" | "$merge" => {
                if !is_last {
                    return Err(Failure::coded(
                        40601,
                        format!("{name} can only be the final stage in the pipeline"),
                    ));
                }
                output =
                    Some(if name == "$out" { output::out(value)? } else { output::merge(value)? });
            }
            "$documents" | "$geoNear" if at > 0 => {
                return Err(Failure::coded(
                    40602,
                    format!("{name} is only valid as the first stage in a pipeline."),
                ));
            }
            "$documents" => {
                takes_input = false;
                built.push(Box::new(documents(value, vars)?));
            }
            "$sort" => {
                // A limit that follows, perhaps after a skip, says how many are needed.
                let mut limit = None;
                let mut skipped = 0usize;
                for next in &stages[at + 1..] {
                    match named(next)? {
                        ("$limit", value) => {
                            limit =
                                count("$limit", value).ok().and_then(|n| usize::try_from(n).ok());
                            break;
                        }
                        ("$skip", value) => {
                            skipped =
                                skipped.saturating_add(count("$skip", value).unwrap_or(0) as usize);
                        }
                        _ => break,
                    }
                }
                let limit = limit.map(|limit| limit.saturating_add(skipped));
                built.push(Box::new(sorting(value, limit, vars)?));
            }
            _ => self::stage(name, value, vars, &mut built)?,
        }
    }
    Ok(Pipeline { stages: built, source: Source::default(), output, takes_input })
}

/// The stages of an update.
pub fn update(stages: &[RawBsonRef<'_>], vars: &Vars) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    for stage in stages {
        let (name, value) = named(stage)?;
        match change(name, value, vars)? {
            Some(found) if name != "$redact" => changes.push(found),
            _ if KNOWN.contains(&name) => {
                return Err(Failure::coded(
                    72,
                    format!("{name} is not allowed to be used within an update"),
                ));
            }
            _ => return Err(unrecognized(name)),
        }
    }
    Ok(changes)
}

/// Stages there are, for saying that one is not allowed rather than unknown.
const KNOWN: [&str; 26] = [
    "$match",
    "$limit",
    "$skip",
    "$sort",
    "$group",
    "$unwind",
    "$lookup",
    "$graphLookup",
    "$facet",
    "$bucket",
    "$bucketAuto",
    "$sortByCount",
    "$count",
    "$sample",
    "$redact",
    "$geoNear",
    "$unionWith",
    "$out",
    "$merge",
    "$densify",
    "$fill",
    "$setWindowFields",
    "$documents",
    "$indexStats",
    "$collStats",
    "$changeStream",
];

fn unrecognized(name: &str) -> Failure {
    Failure::coded(40324, format!("Unrecognized pipeline stage name: '{name}'"))
}

fn object<'a>(name: &str, code: i32, value: RawBsonRef<'a>) -> Result<&'a RawDocument> {
    match value {
        RawBsonRef::Document(document) => Ok(document),
        other => Err(Failure::coded(
            code,
            format!(
                "the {name} stage specification must be an object, found {}",
                type_name(other.element_type())
            ),
        )),
    }
}

/// Stages that change one document.
fn change(name: &str, value: RawBsonRef<'_>, vars: &Vars) -> Result<Option<Change>> {
    Ok(Some(match name {
        "$project" => match value {
            RawBsonRef::Document(spec) => Change::Fields(Tree::project(spec, vars)?),
            _ => return Err(Failure::coded(15969, "$project specification must be an object")),
        },
        "$addFields" | "$set" => match value {
            RawBsonRef::Document(spec) => Change::Fields(Tree::add_fields(spec, vars, name)?),
            other => {
                return Err(Failure::coded(
                    40272,
                    format!(
                        "{name} specification stage must be an object, got {}",
                        type_name(other.element_type())
                    ),
                ));
            }
        },
        "$unset" => Change::Fields(Tree::unset(&unset_paths(value)?)?),
        "$replaceRoot" => {
            let spec = match value {
                RawBsonRef::Document(spec) => spec,
                other => {
                    return Err(Failure::coded(
                        40229,
                        format!(
                            "expected an object as specification for $replaceRoot stage, got {}",
                            type_name(other.element_type())
                        ),
                    ));
                }
            };
            let root = spec.get("newRoot")?.ok_or_else(|| {
                Failure::coded(40231, "no newRoot specified for the $replaceRoot stage")
            })?;
            Change::Replace(Expression::parse_raw(root, vars)?)
        }
        "$replaceWith" => Change::Replace(Expression::parse_raw(value, vars)?),
        "$redact" => Change::Redact(Expression::parse_raw(value, vars)?),
        _ => return Ok(None),
    }))
}

fn unset_paths(value: RawBsonRef<'_>) -> Result<Vec<&str>> {
    match value {
        RawBsonRef::String(path) => Ok(vec![path]),
        RawBsonRef::Array(array) => {
            let mut paths = Vec::new();
            for path in array {
                match path? {
                    RawBsonRef::String(path) => paths.push(path),
                    _ => {
                        return Err(Failure::coded(
                            31120,
                            "$unset specification must be a string or an array containing only string values",
                        ));
                    }
                }
            }
            if paths.is_empty() {
                return Err(Failure::coded(
                    31119,
                    "$unset specification must be a string or an array with at least one field",
                ));
            }
            Ok(paths)
        }
        _ => Err(Failure::coded(31002, "$unset specification must be a string or an array")),
    }
}

fn stage(
    name: &str,
    value: RawBsonRef<'_>,
    vars: &Vars,
    out: &mut Vec<Box<dyn Stage>>,
) -> Result<()> {
    if let Some(change) = change(name, value, vars)? {
        out.push(Box::new(change));
        return Ok(());
    }
    let memory = vars.memory_bytes_max;
    match name {
        "$match" => {
            let RawBsonRef::Document(filter) = value else {
                return Err(Failure::coded(
                    15959,
                    "the match filter must be an expression in an object",
                ));
            };
            out.push(Box::new(Match { filter: Some(Filter::parse(filter, vars)?) }));
        }
        "$limit" => {
            let left = count(name, value)?;
            if left == 0 {
                return Err(Failure::coded(15958, "the limit must be positive"));
            }
            out.push(Box::new(Limit { left }));
        }
        "$skip" => out.push(Box::new(Skip { left: count(name, value)? })),
        "$unwind" => out.push(Box::new(unwind(value)?)),
        "$group" => out.push(Box::new(group(object(name, 15947, value)?, vars)?)),
        "$bucket" => out.push(Box::new(bucket(object(name, 40201, value)?, vars)?)),
        "$bucketAuto" => out.push(Box::new(bucket_auto(object(name, 40240, value)?, vars)?)),
        "$sortByCount" => {
            let by = owned(value)?;
            let valid = match &by {
                Bson::String(text) => text.starts_with('$'),
                Bson::Document(document) => {
                    document.keys().next().is_some_and(|k| k.starts_with('$'))
                }
                _ => false,
            };
            if !valid {
                return Err(Failure::coded(
                    40148,
                    "the sortByCount field must be defined as a $-prefixed path or an expression inside an object",
                ));
            }
            let spec = raw_document(&doc! { "_id": by, "count": { "$sum": 1 } })?;
            out.push(Box::new(group(&spec, vars)?));
            let order = raw_document(&doc! { "count": -1 })?;
            let sort = Sort::parse(&order, None)?;
            out.push(Box::new(Sorting::new(sort, None, memory)));
        }
        "$count" => out.push(Box::new(count_stage(value)?)),
        "$sample" => {
            let spec = object(name, 28745, value)?;
            let size = spec
                .get("size")?
                .ok_or_else(|| Failure::coded(28749, "$sample stage must specify a size"))?;
            let size = Number::of(size)
                .ok_or_else(|| Failure::coded(28746, "size argument to $sample must be a number"))?
                .to_i64_clamped();
            let size = usize::try_from(size).ok().filter(|size| *size > 0).ok_or_else(|| {
                Failure::coded(28747, "size argument to $sample must be a positive integer")
            })?;
            let sample = move |mut documents: Vec<RawDocumentBuf>| {
                fastrand::shuffle(&mut documents);
                documents.truncate(size);
                Ok(documents)
            };
            out.push(Box::new(Blocking::new("$sample", memory, Box::new(sample))));
        }
        "$lookup" => out.push(Box::new(lookup(object(name, 9, value)?, vars)?)),
        "$graphLookup" => out.push(Box::new(graph(object(name, 40327, value)?, vars)?)),
        "$unionWith" => out.push(Box::new(union(value, vars)?)),
        "$facet" => out.push(Box::new(facet(value, vars)?)),
        "$densify" => {
            let densify = fill::Densify::parse(object(name, 5733402, value)?, vars)?;
            let together = move |documents| densify.run(documents);
            out.push(Box::new(Blocking::new("$densify", memory, Box::new(together))));
        }
        "$fill" => {
            let fill = fill::Fill::parse(object(name, 9, value)?, vars)?;
            let together = move |documents| fill.run(documents);
            out.push(Box::new(Blocking::new("$fill", memory, Box::new(together))));
        }
        "$setWindowFields" | "$_internalSetWindowFields" => {
            let windows = window::Windows::parse(object(name, 9, value)?, vars)?;
            let together = move |documents| windows.run(documents);
            out.push(Box::new(Blocking::new("$setWindowFields", memory, Box::new(together))));
        }
        "$geoNear" => {
            let near = Near::parse_stage(object(name, 10024, value)?, vars)?;
            let condition = near.condition();
            let together = move |documents| near.run(documents);
            let stage = Blocking::new("$geoNear", memory, Box::new(together));
            out.push(Box::new(stage.with_condition(condition)));
        }
        _ => return Err(unrecognized(name)),
    }
    Ok(())
}

/// The number of `$limit` and `$skip`.
fn count(name: &str, value: RawBsonRef<'_>) -> Result<i64> {
    let (code, negative) = if name == "$limit" {
        (2107201, "Expected a non-negative number")
    } else {
        (5107200, "Expected a non-negative number")
    };
    let failed = |what: &str| {
        Failure::coded(
            code,
            format!("invalid argument to {name} stage: {what} in: {name}: {}", shown_raw(value)),
        )
    };
    let number = Number::of(value).ok_or_else(|| failed("Expected a number"))?;
    let whole = number.to_i64_exact().ok_or_else(|| failed("Expected an integer"))?;
    if whole < 0 { Err(failed(negative)) } else { Ok(whole) }
}

fn sorting(value: RawBsonRef<'_>, limit: Option<usize>, vars: &Vars) -> Result<Sorting> {
    let RawBsonRef::Document(spec) = value else {
        return Err(Failure::coded(15973, "the $sort key specification must be an object"));
    };
    let sort = Sort::parse(spec, vars.collation.as_ref())?;
    if sort.is_empty() {
        return Err(Failure::coded(15976, "$sort stage must have at least one sort key"));
    }
    Ok(Sorting::new(sort, limit, vars.memory_bytes_max))
}

fn documents(value: RawBsonRef<'_>, vars: &Vars) -> Result<Brought> {
    let wrong = || {
        Failure::coded(
            5858203,
            "an array is expected: an array of documents is required by $documents",
        )
    };
    let Bson::Array(items) = Expression::parse_raw(value, vars)?.value(&RawDocumentBuf::new())?
    else {
        return Err(wrong());
    };
    let documents = items
        .iter()
        .map(|item| match item {
            Bson::Document(document) => raw_document(document),
            _ => Err(wrong()),
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(Brought { documents: documents.into_iter() })
}

fn unwind(value: RawBsonRef<'_>) -> Result<Unwind> {
    let (mut path, mut index, mut preserve) = (None, None, false);
    match value {
        RawBsonRef::String(text) => path = Some(text),
        RawBsonRef::Document(spec) => {
            for element in spec.iter() {
                let (name, value) = element?;
                match (name.as_str(), value) {
                    ("path", RawBsonRef::String(text)) => path = Some(text),
                    ("path", other) => {
                        return Err(Failure::coded(
                            28808,
                            format!(
                                "expected a string as the path for $unwind stage, got {}",
                                type_name(other.element_type())
                            ),
                        ));
                    }
                    ("preserveNullAndEmptyArrays", RawBsonRef::Boolean(flag)) => preserve = flag,
                    ("preserveNullAndEmptyArrays", other) => {
                        return Err(Failure::coded(
                            28809,
                            format!(
                                "expected a boolean for the preserveNullAndEmptyArrays option to $unwind stage, got {}",
                                type_name(other.element_type())
                            ),
                        ));
                    }
                    ("includeArrayIndex", RawBsonRef::String(text)) if !text.is_empty() => {
                        if text.starts_with('$') {
                            return Err(Failure::coded(
                                28822,
                                format!(
                                    "includeArrayIndex option to $unwind stage should not be prefixed with a '$': {text}"
                                ),
                            ));
                        }
                        index = Some(text.to_owned());
                    }
                    ("includeArrayIndex", other) => {
                        return Err(Failure::coded(
                            28810,
                            format!(
                                "expected a non-empty string for the includeArrayIndex  option to $unwind stage, got {}",
                                type_name(other.element_type())
                            ),
                        ));
                    }
                    (other, _) => {
                        return Err(Failure::coded(
                            28811,
                            format!("unrecognized option to $unwind stage: {other}"),
                        ));
                    }
                }
            }
        }
        other => {
            return Err(Failure::coded(
                15981,
                format!(
                    "expected either a string or an object as specification for $unwind stage, got {}",
                    type_name(other.element_type())
                ),
            ));
        }
    }
    let path = path.ok_or_else(|| Failure::coded(28812, "no path specified to $unwind stage"))?;
    let Some(path) = path.strip_prefix('$').filter(|path| !path.is_empty()) else {
        return Err(Failure::coded(
            28818,
            format!("path option to $unwind stage should be prefixed with a '$': {path}"),
        ));
    };
    Ok(Unwind { path: Path::new(path), index, preserve, pending: Vec::new().into_iter() })
}

fn group(spec: &RawDocument, vars: &Vars) -> Result<Group> {
    let mut by = None;
    let mut wanted = Vec::new();
    for (name, value) in owned_document(spec)? {
        if name == "_id" {
            by = Some(By::Value(Expression::parse(&value, vars)?));
        } else {
            wanted.push(Wanted::parse(&name, &value, vars)?);
        }
    }
    let by =
        by.ok_or_else(|| Failure::coded(15955, "a group specification must include an _id"))?;
    Ok(grouping(by, wanted, false, vars))
}

fn grouping(by: By, wanted: Vec<Wanted>, ordered: bool, vars: &Vars) -> Group {
    Group {
        by,
        wanted,
        ordered,
        collation: vars.collation.clone(),
        bytes_max: vars.memory_bytes_max,
        state: super::group::State::default(),
    }
}

/// The accumulators of `$bucket` and `$bucketAuto`; without any, a count.
fn bucket_output(value: Option<&Bson>, vars: &Vars) -> Result<Vec<Wanted>> {
    let counted = doc! { "count": { "$sum": 1 } };
    let spec = match value {
        None => &counted,
        Some(Bson::Document(spec)) => spec,
        Some(_) => {
            return Err(Failure::coded(40196, "The $bucket 'output' field must be an object"));
        }
    };
    spec.iter().map(|(name, value)| Wanted::parse(name, value, vars)).collect()
}

fn bucket(spec: &RawDocument, vars: &Vars) -> Result<Group> {
    let spec = owned_document(spec)?;
    if let Some(other) = spec
        .keys()
        .find(|name| !matches!(name.as_str(), "groupBy" | "boundaries" | "default" | "output"))
    {
        return Err(Failure::coded(40197, format!("Unrecognized option to $bucket: {other}.")));
    }
    let (Some(by), Some(boundaries)) = (spec.get("groupBy"), spec.get("boundaries")) else {
        return Err(Failure::coded(
            40198,
            "$bucket requires 'groupBy' and 'boundaries' to be specified.",
        ));
    };
    let value = Expression::parse(by, vars)?;
    if !matches!(by, Bson::String(text) if text.starts_with('$'))
        && !matches!(by, Bson::Document(_))
    {
        return Err(Failure::coded(
            40202,
            "The $bucket 'groupBy' field must be defined as a $-prefixed path or an expression"
                .to_owned(),
        ));
    }
    let nowhere = RawDocumentBuf::new();
    let Bson::Array(boundaries) = Expression::parse(boundaries, vars)?.value(&nowhere)? else {
        return Err(Failure::coded(40200, "The $bucket 'boundaries' field must be an array"));
    };
    if boundaries.len() < 2 {
        return Err(Failure::coded(
            40192,
            format!(
                "The $bucket 'boundaries' field must have at least 2 values, but found {} value(s).",
                boundaries.len()
            ),
        ));
    }
    let by_collation = vars.collation.as_ref();
    for pair in boundaries.windows(2) {
        if rank_of(pair[0].element_type()) != rank_of(pair[1].element_type()) {
            return Err(Failure::coded(
                40193,
                "All values in the the 'boundaries' option to $bucket must have the same type.",
            ));
        }
        if order_values(&pair[0], &pair[1], by_collation).is_ge() {
            return Err(Failure::coded(
                40194,
                "The 'boundaries' option to $bucket must be sorted, but elements are not in ascending order",
            ));
        }
    }
    let default = spec
        .get("default")
        .map(|value| Expression::parse(value, vars)?.value(&nowhere))
        .transpose()?;
    if let Some(default) = &default {
        let inside = order_values(default, &boundaries[0], by_collation).is_ge()
            && order_values(default, &boundaries[boundaries.len() - 1], by_collation).is_lt();
        if inside {
            return Err(Failure::coded(
                40199,
                "The $bucket 'default' field must be less than the lowest boundary or greater than or equal to the highest boundary.",
            ));
        }
    }
    let wanted = bucket_output(spec.get("output"), vars)?;
    Ok(grouping(By::Bucket { value, boundaries, default }, wanted, true, vars))
}

fn bucket_auto(spec: &RawDocument, vars: &Vars) -> Result<Blocking> {
    let spec = owned_document(spec)?;
    if let Some(other) = spec
        .keys()
        .find(|name| !matches!(name.as_str(), "groupBy" | "buckets" | "granularity" | "output"))
    {
        return Err(Failure::coded(40245, format!("Unrecognized option to $bucketAuto: {other}.")));
    }
    if spec.contains_key("granularity") {
        return Err(Failure::coded(238, "$bucketAuto does not support 'granularity'"));
    }
    let (Some(by), Some(count)) = (spec.get("groupBy"), spec.get("buckets")) else {
        return Err(Failure::coded(
            40246,
            "$bucketAuto requires 'groupBy' and 'buckets' to be specified.",
        ));
    };
    let count = Number::of_bson(count)
        .ok_or_else(|| {
            Failure::coded(40241, "The $bucketAuto 'buckets' field must be a numeric value")
        })?
        .to_i64_exact()
        .and_then(|count| usize::try_from(count).ok())
        .filter(|count| *count > 0)
        .ok_or_else(|| {
            Failure::coded(40243, "The $bucketAuto 'buckets' field must be greater than 0")
        })?;
    let buckets = AutoBuckets {
        by: Expression::parse(by, vars)?,
        count,
        wanted: bucket_output(spec.get("output"), vars)?,
        collation: vars.collation.clone(),
    };
    let together = move |documents| buckets.fill(documents);
    Ok(Blocking::new("$bucketAuto", vars.memory_bytes_max, Box::new(together)))
}

fn count_stage(value: RawBsonRef<'_>) -> Result<Count> {
    let RawBsonRef::String(name) = value else {
        return Err(Failure::coded(40156, "the count field must be a non-empty string"));
    };
    match name {
        "" => Err(Failure::coded(40156, "the count field must be a non-empty string")),
        name if name.starts_with('$') => {
            Err(Failure::coded(40158, "the count field cannot be a $-prefixed path"))
        }
        name if name.contains('.') => {
            Err(Failure::coded(40160, "the count field cannot contain '.'"))
        }
        name => Ok(Count { name: name.to_owned(), seen: 0, done: false }),
    }
}

/// `"c"` or `{db: "d", coll: "c"}`.
fn from(value: RawBsonRef<'_>) -> Result<From> {
    match value {
        RawBsonRef::String(name) => Ok(From { database: None, collection: Some(name.to_owned()) }),
        RawBsonRef::Document(spec) => Ok(From {
            database: spec.get("db")?.and_then(RawBsonRef::as_str).map(str::to_owned),
            collection: spec.get("coll")?.and_then(RawBsonRef::as_str).map(str::to_owned),
        }),
        _ => Err(Failure::failed_to_parse("$lookup argument 'from' must be a string")),
    }
}

fn stages<'a>(value: RawBsonRef<'a>) -> Result<Vec<RawBsonRef<'a>>> {
    let RawBsonRef::Array(array) = value else {
        return Err(Failure::type_mismatch("'pipeline' option must be specified as an array"));
    };
    let mut out = Vec::new();
    for stage in array {
        out.push(stage?);
    }
    Ok(out)
}

/// Whether stages bring their own documents.
fn bring_their_own(stages: &[RawBsonRef<'_>]) -> bool {
    stages.first().is_some_and(|first| named(first).is_ok_and(|(name, _)| name == "$documents"))
}

/// Checks an inner pipeline now rather than when it first runs.
fn check_inner(stages: &[RawBsonRef<'_>], names: &[&str], vars: &Vars) -> Result<()> {
    let mut known = vars.clone();
    for name in names {
        known.variables.insert(*name, Bson::Null);
    }
    for stage in stages {
        if let ("$out" | "$merge", _) = named(stage)? {
            return Err(Failure::coded(
                51047,
                format!("{} is not allowed within a $lookup's sub-pipeline", named(stage)?.0),
            ));
        }
    }
    pipeline(stages, &known).map(drop)
}

fn lookup(spec: &RawDocument, vars: &Vars) -> Result<Lookup> {
    let (mut source, mut local, mut there, mut name) = (None, None, None, None);
    let mut variables = Vec::new();
    let mut inner = Vec::new();
    let mut has_pipeline = false;
    for element in spec.iter() {
        let (key, value) = element?;
        let text = || {
            value.as_str().ok_or_else(|| {
                Failure::failed_to_parse(format!(
                    "$lookup argument '{key}: {}' must be a string, is type {}",
                    shown_raw(value),
                    type_name(value.element_type())
                ))
            })
        };
        match key.as_str() {
            "from" => source = Some(from(value)?),
            "localField" => local = Some(text()?),
            "foreignField" => there = Some(text()?),
            "as" => name = Some(text()?),
            "let" => {
                let RawBsonRef::Document(spec) = value else {
                    return Err(Failure::failed_to_parse(
                        "$lookup argument 'let' must be an object",
                    ));
                };
                for (name, value) in owned_document(spec)? {
                    check_name(&name)?;
                    variables.push((name, Expression::parse(&value, vars)?));
                }
            }
            "pipeline" => {
                inner = stages(value)?;
                has_pipeline = true;
            }
            other => {
                return Err(Failure::failed_to_parse(format!(
                    "unknown argument to $lookup: {other}"
                )));
            }
        }
    }
    let names: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
    check_inner(&inner, &names, vars)?;
    let name =
        name.ok_or_else(|| Failure::failed_to_parse("must specify 'as' field for a $lookup"))?;
    let fields = match (local, there) {
        (Some(local), Some(there)) => Some((Path::new(local), there.to_owned())),
        (None, None) if has_pipeline => None,
        _ => {
            return Err(Failure::failed_to_parse(
                "$lookup requires both or neither of 'localField' and 'foreignField' to be specified",
            ));
        }
    };
    let from = match source {
        Some(source) => source,
        None if bring_their_own(&inner) => From { database: None, collection: None },
        None => return Err(Failure::failed_to_parse("must specify 'from' field for a $lookup")),
    };
    Ok(Lookup {
        from,
        fields,
        variables,
        stages: kept(&inner),
        name: name.to_owned(),
        vars: vars.clone(),
        state: super::join::LookupState::default(),
    })
}

fn graph(spec: &RawDocument, vars: &Vars) -> Result<Graph> {
    let required = |name: &str| {
        spec.get(name)?.ok_or_else(|| {
            Failure::coded(
                40105,
                "$graphLookup requires 'from', 'as', 'startWith', 'connectFromField', and 'connectToField' to be specified.",
            )
        })
    };
    let text = |name: &str| -> Result<&str> {
        let value = required(name)?;
        value.as_str().ok_or_else(|| {
            Failure::coded(
                40103,
                format!("expected string as argument for {name}, found: {}", shown_raw(value)),
            )
        })
    };
    let depth_max = match spec.get("maxDepth")? {
        None => None,
        Some(value) => Some(
            Number::of(value)
                .ok_or_else(|| Failure::coded(40100, "maxDepth must be numeric"))?
                .to_i64_exact()
                .filter(|depth| *depth >= 0)
                .ok_or_else(|| Failure::coded(40101, "maxDepth requires a nonnegative argument"))?,
        ),
    };
    let restrict: Option<Document> = match spec.get("restrictSearchWithMatch")? {
        None => None,
        Some(RawBsonRef::Document(filter)) => {
            Filter::parse(filter, vars)?;
            Some(owned_document(filter)?)
        }
        Some(_) => {
            return Err(Failure::coded(40185, "restrictSearchWithMatch must be an object"));
        }
    };
    Ok(Graph {
        from: from(required("from")?)?,
        start: Expression::parse_raw(required("startWith")?, vars)?,
        connect_from: Path::new(text("connectFromField")?),
        connect_to: text("connectToField")?.to_owned(),
        name: text("as")?.to_owned(),
        depth_max,
        depth_field: spec.get("depthField")?.and_then(RawBsonRef::as_str).map(str::to_owned),
        restrict,
        vars: vars.clone(),
        search: None,
    })
}

fn union(value: RawBsonRef<'_>, vars: &Vars) -> Result<Union> {
    let (source, inner) = match value {
        RawBsonRef::String(_) => (from(value)?, Vec::new()),
        RawBsonRef::Document(spec) => {
            let inner = spec.get("pipeline")?.map(stages).transpose()?.unwrap_or_default();
            let source = match spec.get("coll")? {
                Some(RawBsonRef::String(name)) => From {
                    database: spec.get("db")?.and_then(RawBsonRef::as_str).map(str::to_owned),
                    collection: Some(name.to_owned()),
                },
                None if bring_their_own(&inner) => From { database: None, collection: None },
                _ => {
                    return Err(Failure::failed_to_parse(
                        "$unionWith stage without explicit collection must have a pipeline with $documents as first stage",
                    ));
                }
            };
            (source, inner)
        }
        other => {
            return Err(Failure::failed_to_parse(format!(
                "the $unionWith stage specification must be an object or string, but found {}",
                type_name(other.element_type())
            )));
        }
    };
    check_inner(&inner, &[], vars)?;
    Ok(Union {
        from: source,
        stages: kept(&inner),
        vars: vars.clone(),
        state: super::join::UnionState::default(),
    })
}

fn facet(value: RawBsonRef<'_>, vars: &Vars) -> Result<Facet> {
    let spec = match value {
        RawBsonRef::Document(spec) if !spec.is_empty() => spec,
        _ => {
            return Err(Failure::coded(
                40169,
                format!(
                    "the $facet specification must be a non-empty object, but found: {}",
                    shown_raw(value)
                ),
            ));
        }
    };
    let mut branches = Vec::new();
    for element in spec.iter() {
        let (name, value) = element?;
        if name.as_str().starts_with('$') || name.as_str().contains('.') {
            return Err(Failure::coded(
                16410,
                format!(
                    "FieldPath field names may not start with '$' or contain '.'. Field: {name}"
                ),
            ));
        }
        let RawBsonRef::Array(_) = value else {
            return Err(Failure::coded(
                40170,
                format!(
                    "arguments to $facet must be arrays, {name} is type {}",
                    type_name(value.element_type())
                ),
            ));
        };
        let inner = stages(value)?;
        for stage in &inner {
            let (stage, _) = named(stage)?;
            if matches!(
                stage,
                "$out"
                    | "$merge"
                    | "$facet"
                    | "$geoNear"
                    | "$indexStats"
                    | "$collStats"
                    | "$documents"
            ) {
                return Err(Failure::coded(
                    40600,
                    format!("{stage} is not allowed to be used within a $facet stage"),
                ));
            }
        }
        branches.push((name.as_str().to_owned(), pipeline(&inner, vars)?));
    }
    Ok(Facet::new(branches, vars.memory_bytes_max))
}
