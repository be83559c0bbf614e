//! Reading filters.

use bson::{RawBson, RawBsonRef, RawDocument};

use super::operators::{Bits, Comparison, Kinds, Mask};
use super::schema::Schema;
use super::{Node, Test};
use crate::language::expression::Expression;
use crate::language::failure::{Failure, Result};
use crate::language::geo::{Near, Region};
use crate::language::number::Number;
use crate::language::path::Path;
use crate::language::pattern::Pattern;
use crate::language::value::shown_raw;
use crate::language::vars::Vars;

/// A whole filter; `top` where the operators that only stand outside may be used.
pub fn filter(document: &RawDocument, vars: &Vars, top: bool) -> Result<Node> {
    let mut nodes = Vec::new();
    for element in document.iter() {
        let (name, value) = element?;
        let name = name.as_str();
        if name.starts_with('$') {
            nodes.extend(top_level(name, value, vars, top)?);
        } else {
            field(&Path::new(name), value, vars, &mut nodes)?;
        }
    }
    Ok(match nodes.len() {
        1 => nodes.swap_remove(0),
        _ => Node::All(nodes),
    })
}

fn top_level(name: &str, value: RawBsonRef<'_>, vars: &Vars, top: bool) -> Result<Option<Node>> {
    Ok(Some(match name {
        "$and" => Node::All(branches(name, value, vars, top)?),
        "$or" => Node::Any(branches(name, value, vars, top)?),
        "$nor" => Node::None(branches(name, value, vars, top)?),
        "$comment" => return Ok(None),
        "$expr" => Node::Expression(Box::new(Expression::parse_raw(value, vars)?)),
        "$jsonSchema" => match value {
            RawBsonRef::Document(schema) => Node::Schema(Box::new(Schema::parse(schema)?)),
            _ => return Err(Failure::type_mismatch("$jsonSchema must be an object")),
        },
        "$alwaysTrue" => Node::Constant(true),
        "$alwaysFalse" => Node::Constant(false),
        "$sampleRate" => {
            let rate = Number::of(value).map(Number::to_f64).ok_or_else(|| {
                Failure::bad_value("argument to $sampleRate must be a numeric type")
            })?;
            if !(0.0..=1.0).contains(&rate) {
                return Err(Failure::bad_value(
                    "numeric argument to $sampleRate must be in [0, 1]",
                ));
            }
            Node::Sample(rate)
        }
        "$where" => {
            return Err(Failure::coded(
                115,
                "$where is not supported: there is no server-side JavaScript. Use $expr instead.",
            ));
        }
        "$text" => {
            return Err(Failure::coded(115, "$text is not supported. Use $regex instead."));
        }
        _ => {
            return Err(Failure::bad_value(format!(
                "unknown top level operator: {name}. If you have a field name that starts with a '$' symbol, consider using $getField or $setField."
            )));
        }
    }))
}

fn branches(name: &str, value: RawBsonRef<'_>, vars: &Vars, top: bool) -> Result<Vec<Node>> {
    let RawBsonRef::Array(array) = value else {
        return Err(Failure::bad_value(format!("{name} argument must be an array")));
    };
    let mut nodes = Vec::new();
    for value in array {
        let RawBsonRef::Document(document) = value? else {
            return Err(Failure::bad_value("$or/$and/$nor entries need to be full objects"));
        };
        nodes.push(filter(document, vars, top)?);
    }
    if nodes.is_empty() {
        return Err(Failure::bad_value("$and/$or/$nor must be a nonempty array"));
    }
    Ok(nodes)
}

/// The condition on one field: operators, a pattern, or a value to equal.
pub fn field(path: &Path, value: RawBsonRef<'_>, vars: &Vars, out: &mut Vec<Node>) -> Result<()> {
    match value {
        RawBsonRef::Document(document) if is_operators(document)? => {
            operators(path, document, vars, out)
        }
        RawBsonRef::RegularExpression(regex) => {
            let pattern =
                Pattern::compile(regex.pattern.as_str(), regex.options.as_str(), "$regex")?;
            out.push(Node::Path(path.clone(), Test::Pattern(pattern)));
            Ok(())
        }
        value => {
            out.push(compare(path, Comparison::Equal, value)?);
            Ok(())
        }
    }
}

/// Whether a document's first field is an operator; a DBRef's is not.
fn is_operators(document: &RawDocument) -> Result<bool> {
    Ok(match document.iter().next().transpose()? {
        Some((name, _)) => {
            let name = name.as_str();
            name.starts_with('$') && !matches!(name, "$ref" | "$id" | "$db")
        }
        None => false,
    })
}

fn compare(path: &Path, comparison: Comparison, value: RawBsonRef<'_>) -> Result<Node> {
    if matches!(value, RawBsonRef::Undefined) {
        return Err(Failure::bad_value("cannot compare to undefined"));
    }
    if comparison != Comparison::Equal && matches!(value, RawBsonRef::RegularExpression(_)) {
        return Err(Failure::bad_value(format!(
            "Can't have RegEx as arg to predicate over field '{}'.",
            path.as_str()
        )));
    }
    Ok(Node::Path(path.clone(), Test::Compare(comparison, RawBson::from(value))))
}

/// `{$op: value, …}` on a path.
pub fn operators(
    path: &Path,
    document: &RawDocument,
    vars: &Vars,
    out: &mut Vec<Node>,
) -> Result<()> {
    for element in document.iter() {
        let (name, value) = element?;
        let name = name.as_str();
        match name {
            "$not" => out.push(Node::Not(Box::new(negated(path, value, vars)?))),
            "$ne" => {
                if matches!(value, RawBsonRef::RegularExpression(_)) {
                    return Err(Failure::bad_value("Can't have regex as arg to $ne."));
                }
                out.push(Node::Not(Box::new(compare(path, Comparison::Equal, value)?)));
            }
            "$nin" => {
                let test = Node::Path(path.clone(), within(name, value)?);
                out.push(Node::Not(Box::new(test)));
            }
            "$exists" => {
                let test = Node::Path(path.clone(), Test::Exists);
                out.push(if truthy(value) { test } else { Node::Not(Box::new(test)) });
            }
            "$all" => out.push(all(path, value, vars)?),
            "$near" | "$nearSphere" | "$geoNear" => {
                out.push(Node::Near(path.clone(), Near::parse(name, value, document)?));
            }
            // Read with the operator that they belong to.
            "$options" => {
                if document.get("$regex")?.is_none() {
                    return Err(Failure::bad_value("$options needs a $regex"));
                }
            }
            "$maxDistance" | "$minDistance" => {
                if document.get("$near")?.is_none() && document.get("$nearSphere")?.is_none() {
                    return Err(Failure::bad_value(format!("unknown operator: {name}")));
                }
            }
            "$comment" => {}
            _ => match comparison(name) {
                Some(comparison) => out.push(compare(path, comparison, value)?),
                None => out.push(Node::Path(path.clone(), test(name, value, document, vars)?)),
            },
        }
    }
    Ok(())
}

fn negated(path: &Path, value: RawBsonRef<'_>, vars: &Vars) -> Result<Node> {
    let mut nodes = Vec::new();
    match value {
        RawBsonRef::RegularExpression(_) => field(path, value, vars, &mut nodes)?,
        RawBsonRef::Document(document) => {
            if document.is_empty() {
                return Err(Failure::bad_value("$not cannot be empty"));
            }
            if let Some((name, _)) = document.iter().next().transpose()?
                && !name.as_str().starts_with('$')
            {
                return Err(Failure::bad_value(format!("unknown operator: {name}")));
            }
            operators(path, document, vars, &mut nodes)?;
        }
        _ => return Err(Failure::bad_value("$not needs a regex or a document")),
    }
    Ok(Node::All(nodes))
}

/// `$all`: each value must be found, or each `$elemMatch` matched; of nothing nothing is found.
fn all(path: &Path, value: RawBsonRef<'_>, vars: &Vars) -> Result<Node> {
    let RawBsonRef::Array(array) = value else {
        return Err(Failure::bad_value("$all needs an array"));
    };
    let mut nodes = Vec::new();
    let mut element_matches = None;
    for value in array {
        let value = value?;
        let is_match = matches!(value, RawBsonRef::Document(document)
            if document.iter().next().is_some_and(|first| first.is_ok_and(|(name, _)| name == "$elemMatch")));
        match value {
            RawBsonRef::Document(document) if is_operators(document)? && !is_match => {
                return Err(Failure::bad_value("no $ expressions in $all"));
            }
            _ if *element_matches.get_or_insert(is_match) != is_match => {
                return Err(Failure::bad_value(if is_match {
                    "no $ expressions in $all"
                } else {
                    "$all/$elemMatch has to be consistent"
                }));
            }
            value => field(path, value, vars, &mut nodes)?,
        }
    }
    Ok(if nodes.is_empty() { Node::Constant(false) } else { Node::All(nodes) })
}

fn comparison(name: &str) -> Option<Comparison> {
    Some(match name {
        "$eq" => Comparison::Equal,
        "$lt" => Comparison::Less,
        "$lte" => Comparison::AtMost,
        "$gt" => Comparison::Greater,
        "$gte" => Comparison::AtLeast,
        _ => return None,
    })
}

/// An operator that tests values.
fn test(name: &str, value: RawBsonRef<'_>, all: &RawDocument, vars: &Vars) -> Result<Test> {
    match name {
        "$in" => within(name, value),
        "$regex" => {
            let options = match all.get("$options")? {
                None => None,
                Some(RawBsonRef::String(options)) => Some(options),
                Some(_) => return Err(Failure::bad_value("$options has to be a string")),
            };
            match value {
                RawBsonRef::String(source) => {
                    Ok(Test::Pattern(Pattern::compile(source, options.unwrap_or(""), "$regex")?))
                }
                RawBsonRef::RegularExpression(regex) => {
                    let own = regex.options.as_str();
                    if options.is_some() && !own.is_empty() {
                        return Err(Failure::coded(
                            51074,
                            "options set in both $regex and $options",
                        ));
                    }
                    let pattern = regex.pattern.as_str();
                    Ok(Test::Pattern(Pattern::compile(pattern, options.unwrap_or(own), "$regex")?))
                }
                _ => Err(Failure::bad_value("$regex has to be a string")),
            }
        }
        "$type" => Ok(Test::Type(Kinds::parse(value)?)),
        "$mod" => modulo(value),
        "$size" => size(value),
        "$elemMatch" => element_match(value, vars),
        "$bitsAllSet" => Ok(Test::Bits(Bits::AllSet, Mask::parse(name, value)?)),
        "$bitsAllClear" => Ok(Test::Bits(Bits::AllClear, Mask::parse(name, value)?)),
        "$bitsAnySet" => Ok(Test::Bits(Bits::AnySet, Mask::parse(name, value)?)),
        "$bitsAnyClear" => Ok(Test::Bits(Bits::AnyClear, Mask::parse(name, value)?)),
        "$geoWithin" | "$within" | "$geoIntersects" => Ok(Test::Geo(Region::parse(name, value)?)),
        "$expr" | "$and" | "$or" | "$nor" | "$where" | "$text" | "$jsonSchema" => {
            Err(Failure::bad_value(format!("unknown operator: {name}")))
        }
        _ => Err(Failure::bad_value(format!("unknown operator: {name}"))),
    }
}

fn within(name: &str, value: RawBsonRef<'_>) -> Result<Test> {
    let RawBsonRef::Array(array) = value else {
        return Err(Failure::bad_value(format!("{name} needs an array")));
    };
    let (mut values, mut patterns) = (Vec::new(), Vec::new());
    for value in array {
        match value? {
            RawBsonRef::RegularExpression(regex) => patterns.push(Pattern::compile(
                regex.pattern.as_str(),
                regex.options.as_str(),
                "$regex",
            )?),
            RawBsonRef::Document(document) if is_operators(document)? => {
                return Err(Failure::bad_value(format!("cannot nest $ under {name}")));
            }
            value => values.push(RawBson::from(value)),
        }
    }
    values
        .sort_by(|a, b| crate::language::compare::order(a.as_raw_bson_ref(), b.as_raw_bson_ref()));
    Ok(Test::In { values, patterns })
}

fn modulo(value: RawBsonRef<'_>) -> Result<Test> {
    let RawBsonRef::Array(array) = value else {
        return Err(Failure::bad_value("malformed mod, needs to be an array"));
    };
    let mut terms = Vec::new();
    for (at, value) in array.into_iter().enumerate() {
        let value = value?;
        let which = if at == 0 { "divisor" } else { "remainder" };
        let number = Number::of(value)
            .ok_or_else(|| Failure::bad_value(format!("malformed mod, {which} not a number")))?;
        if !number.to_f64().is_finite() || number.to_f64().abs() >= 9.3e18 {
            return Err(Failure::bad_value(format!(
                "malformed mod, {which} value is invalid :: caused by :: Unable to coerce NaN/Inf to integral type"
            )));
        }
        terms.push(number.to_i64_clamped());
    }
    match terms[..] {
        [0, _] => Err(Failure::bad_value("divisor cannot be 0")),
        [divisor, remainder] => Ok(Test::Mod { divisor, remainder }),
        [] | [_] => Err(Failure::bad_value("malformed mod, not enough elements")),
        _ => Err(Failure::bad_value("malformed mod, too many elements")),
    }
}

fn size(value: RawBsonRef<'_>) -> Result<Test> {
    let wrong = |what: &str| {
        Failure::failed_to_parse(format!(
            "Failed to parse $size. {what} in: $size: {}",
            shown_raw(value)
        ))
    };
    let number = Number::of(value).ok_or_else(|| wrong("Expected a number"))?;
    let size = number.to_i64_exact().ok_or_else(|| wrong("Expected an integer"))?;
    if size < 0 {
        return Err(wrong("Expected a non-negative number"));
    }
    Ok(Test::Size(size))
}

fn element_match(value: RawBsonRef<'_>, vars: &Vars) -> Result<Test> {
    let RawBsonRef::Document(document) = value else {
        return Err(Failure::bad_value("$elemMatch needs an Object"));
    };
    let first = document.iter().next().transpose()?.map(|(name, _)| name.as_str().to_owned());
    let is_value = first.is_some_and(|name| {
        name.starts_with('$')
            && !matches!(&*name, "$and" | "$or" | "$nor" | "$where" | "$expr" | "$jsonSchema")
    });
    if !is_value {
        return Ok(Test::ElementMatches(Box::new(filter(document, vars, false)?)));
    }
    let mut nodes = Vec::new();
    operators(&Path::new(""), document, vars, &mut nodes)?;
    let mut tests = Vec::new();
    for node in nodes {
        flatten(node, true, &mut tests)?;
    }
    Ok(Test::ElementPasses(tests))
}

/// Tests of an element, each with whether it must pass or fail.
fn flatten(node: Node, wanted: bool, out: &mut Vec<(bool, Test)>) -> Result<()> {
    match node {
        Node::Path(_, test) => out.push((wanted, test)),
        Node::Not(inner) => match *inner {
            Node::Path(_, test) => out.push((!wanted, test)),
            // `$not` of several: wrapped, so that all of them together are negated.
            Node::All(nodes) if nodes.len() == 1 => {
                for node in nodes {
                    flatten(node, !wanted, out)?;
                }
            }
            Node::All(nodes) => {
                let mut tests = Vec::new();
                for node in nodes {
                    flatten(node, true, &mut tests)?;
                }
                out.push((!wanted, Test::Together(tests)));
            }
            _ => return Err(Failure::bad_value("$elemMatch cannot contain this operator")),
        },
        Node::All(nodes) => {
            for node in nodes {
                flatten(node, wanted, out)?;
            }
        }
        _ => return Err(Failure::bad_value("$elemMatch cannot contain this operator")),
    }
    Ok(())
}

/// What counts as true where a flag is wanted: anything but false, null and zero.
pub fn truthy(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Boolean(flag) => flag,
        RawBsonRef::Null | RawBsonRef::Undefined => false,
        value => Number::of(value).is_none_or(|number| !number.is_zero()),
    }
}
