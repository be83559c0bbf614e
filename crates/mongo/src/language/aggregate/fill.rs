//! `$densify` and `$fill`: gaps in series.

use std::collections::BTreeMap;

use bson::{Bson, DateTime, RawDocument, RawDocumentBuf};

use super::flow::with_field;
use super::window::{linear, sort_by};
use crate::language::expression::calendar::Zone;
use crate::language::expression::date::Unit;
use crate::language::expression::{Expression, is_nullish};
use crate::language::failure::{Failure, Result};
use crate::language::keycode::key_of;
use crate::language::number::Number;
use crate::language::sort::Sort;
use crate::language::value::{owned_document, raw};
use crate::language::vars::Vars;

/// How many documents `$densify` may make.
const MADE_MAX: usize = 500_000;

/// `$densify`: documents for the values that a field lacks.
#[derive(Debug)]
pub struct Densify {
    field: String,
    value: Expression,
    partition: Vec<(String, Expression)>,
    step: f64,
    unit: Option<Unit>,
    bounds: Bounds,
}

#[derive(Debug)]
enum Bounds {
    /// From the least to the greatest of all documents.
    Full,
    /// From the least to the greatest of a partition.
    Partition,
    /// From the first on and below the second.
    Given(f64, f64),
}

fn missing(name: &str) -> Failure {
    Failure::coded(40414, format!("BSON field '{name}' is missing but a required field"))
}

/// Fields to partition by, each with the expression that reads it.
fn partition_fields(value: Option<&Bson>, vars: &Vars) -> Result<Vec<(String, Expression)>> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let Bson::Array(names) = value else {
        return Err(Failure::type_mismatch("'partitionByFields' must be an array"));
    };
    names
        .iter()
        .map(|name| match name {
            Bson::String(name) if !name.starts_with('$') => {
                Ok((name.clone(), Expression::parse(&Bson::String(format!("${name}")), vars)?))
            }
            _ => Err(Failure::coded(5733409, "partitionByFields must be field names")),
        })
        .collect()
}

/// A value as a place on a line: a number or a date.
fn place(value: &Bson) -> Option<f64> {
    match value {
        Bson::DateTime(at) => Some(at.timestamp_millis() as f64),
        value => Number::of_bson(value).map(Number::to_f64),
    }
}

impl Densify {
    pub fn parse(spec: &RawDocument, vars: &Vars) -> Result<Self> {
        let spec = owned_document(spec)?;
        let Some(Bson::String(field)) = spec.get("field") else {
            return Err(missing("$densify.field"));
        };
        let Some(Bson::Document(range)) = spec.get("range") else {
            return Err(missing("$densify.range"));
        };
        let step = range
            .get("step")
            .and_then(Number::of_bson)
            .map(Number::to_f64)
            .ok_or_else(|| missing("$densify.range.step"))?;
        if !step.is_finite() || step <= 0.0 {
            return Err(Failure::coded(
                5733401,
                "the step parameter in a range statement must be a strictly positive numeric value",
            ));
        }
        let unit = range.get("unit").map(|unit| Unit::parse("$densify", unit)).transpose()?;
        if unit.is_some() && step.fract() != 0.0 {
            return Err(Failure::coded(
                6586400,
                "The step parameter in a range statement must be a whole number when densifying a date range",
            ));
        }
        let bounds = match range.get("bounds") {
            Some(Bson::String(text)) if text == "full" => Bounds::Full,
            Some(Bson::String(text)) if text == "partition" => Bounds::Partition,
            Some(Bson::Array(pair)) => match &pair[..] {
                [low, high] => match (place(low), place(high)) {
                    (Some(low), Some(high)) if low <= high => Bounds::Given(low, high),
                    _ => {
                        return Err(Failure::coded(
                            5733402,
                            "the bounds in a range statement must be ascending numbers or dates",
                        ));
                    }
                },
                _ => {
                    return Err(Failure::coded(
                        5733403,
                        "a bounding array in a range statement must have exactly two elements",
                    ));
                }
            },
            _ => return Err(missing("$densify.range.bounds")),
        };
        let partition = partition_fields(spec.get("partitionByFields"), vars)?;
        if matches!(bounds, Bounds::Partition) && partition.is_empty() {
            return Err(Failure::coded(
                5733408,
                "one may not specify the bounds as 'partition' without specifying a non-empty array of partitionByFields. You may have meant to specify 'full' bounds.",
            ));
        }
        Ok(Self {
            field: field.clone(),
            value: Expression::parse(&Bson::String(format!("${field}")), vars)?,
            partition,
            step,
            unit,
            bounds,
        })
    }

    pub fn run(&self, documents: Vec<RawDocumentBuf>) -> Result<Vec<RawDocumentBuf>> {
        type Members = Vec<(f64, RawDocumentBuf)>;
        let mut without = Vec::new();
        let mut partitions: BTreeMap<Vec<u8>, (Vec<Bson>, Members)> = BTreeMap::new();
        let mut dates = self.unit.is_some();
        for document in documents {
            let value = self.value.value(&document)?;
            let Some(at) = place(&value) else {
                if is_nullish(&value) {
                    without.push(document);
                    continue;
                }
                return Err(Failure::coded(
                    5733201,
                    "Densify field type must be numeric or a date",
                ));
            };
            dates |= matches!(value, Bson::DateTime(_));
            let mut key = Vec::new();
            let mut values = Vec::new();
            for (_, by) in &self.partition {
                let value = by.value(&document)?;
                key.extend(key_of(&value, None));
                values.push(value);
            }
            partitions.entry(key).or_insert_with(|| (values, Vec::new())).1.push((at, document));
        }
        let all = || partitions.values().flat_map(|(_, members)| members.iter().map(|(at, _)| *at));
        let full = (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
        let mut out = without;
        let mut made = 0;
        for (values, mut members) in partitions.into_values() {
            members.sort_by(|(a, _), (b, _)| a.total_cmp(b));
            let (from, to, beyond) = match self.bounds {
                Bounds::Full => (full.0, full.1, false),
                Bounds::Partition => (members[0].0, members[members.len() - 1].0, false),
                Bounds::Given(from, to) => (from, to, true),
            };
            let mut members = members.into_iter().peekable();
            let mut count = 0;
            loop {
                let at = self.after(from, count);
                // A step too small to be seen beside the value would never arrive.
                if count > 0 && at <= self.after(from, count - 1) {
                    return Err(Failure::coded(
                        5733401,
                        "the step parameter in a range statement is too small for its values",
                    ));
                }
                // Given bounds leave out their end.
                if at > to || (beyond && at >= to) {
                    break;
                }
                let mut there = false;
                while let Some((_, document)) = members.next_if(|(member, _)| *member <= at) {
                    out.push(document);
                    there = true;
                }
                let exact = there
                    && out.last().is_some_and(|last| {
                        self.value.value(last).ok().as_ref().and_then(place) == Some(at)
                    });
                if !exact {
                    made += 1;
                    if made > MADE_MAX {
                        return Err(Failure::coded(
                            5897900,
                            format!(
                                "Generated {MADE_MAX} documents in $densify, which is over the limit"
                            ),
                        ));
                    }
                    out.push(self.make(&values, at, dates)?);
                }
                count += 1;
            }
            out.extend(members.map(|(_, document)| document));
        }
        Ok(out)
    }

    fn after(&self, from: f64, count: i64) -> f64 {
        match self.unit {
            None => from + self.step * count as f64,
            Some(unit) => unit
                .add(from as i64, (self.step as i64).saturating_mul(count), &Zone::UTC)
                .map_or(f64::INFINITY, |millis| millis as f64),
        }
    }

    fn make(&self, values: &[Bson], at: f64, dates: bool) -> Result<RawDocumentBuf> {
        let mut out = RawDocumentBuf::new();
        for ((name, _), value) in self.partition.iter().zip(values) {
            if *value != Bson::Undefined {
                out = with_field(&out, name, Some(raw(value.clone())?.as_raw_bson_ref()))?;
            }
        }
        let value = match (dates, i32::try_from(at as i64)) {
            (true, _) => Bson::DateTime(DateTime::from_millis(at as i64)),
            (false, Ok(whole)) if at.fract() == 0.0 => Bson::Int32(whole),
            _ => Bson::Double(at),
        };
        with_field(&out, &self.field, Some(raw(value)?.as_raw_bson_ref()))
    }
}

/// `$fill`: values for what is null or missing.
#[derive(Debug)]
pub struct Fill {
    partition: Vec<Expression>,
    sort: Option<(Sort, Option<Expression>)>,
    outputs: Vec<(String, Expression, Method)>,
}

#[derive(Debug)]
enum Method {
    Value(Expression),
    CarryForward,
    Linear,
}

impl Fill {
    pub fn parse(spec: &RawDocument, vars: &Vars) -> Result<Self> {
        let spec = owned_document(spec)?;
        let mut partition: Vec<Expression> = partition_fields(spec.get("partitionByFields"), vars)?
            .into_iter()
            .map(|(_, by)| by)
            .collect();
        if let Some(by) = spec.get("partitionBy") {
            if !partition.is_empty() {
                return Err(Failure::coded(
                    6050204,
                    "Maximum one of 'partitionBy' and 'partitionByFields can be specified in '$fill'",
                ));
            }
            partition.push(Expression::parse(by, vars)?);
        }
        let sort = match spec.get("sortBy") {
            Some(Bson::Document(by)) => Some(sort_by(by, vars)?),
            _ => None,
        };
        let Some(Bson::Document(wanted)) = spec.get("output") else {
            return Err(missing("$fill.output"));
        };
        let mut outputs = Vec::new();
        for (name, how) in wanted {
            let Bson::Document(how) = how else {
                return Err(Failure::type_mismatch(format!(
                    "$fill output '{name}' must be an object"
                )));
            };
            let method = match (how.get("value"), how.get("method").and_then(Bson::as_str)) {
                (Some(value), None) => Method::Value(Expression::parse(value, vars)?),
                (None, Some("locf")) => Method::CarryForward,
                (None, Some("linear")) => Method::Linear,
                _ => {
                    return Err(Failure::coded(
                        6050202,
                        "Method must be either locf or linear, or a 'value' given",
                    ));
                }
            };
            if sort.is_none() && !matches!(method, Method::Value(_)) {
                return Err(Failure::coded(5371602, "$fill with a method requires a sortBy"));
            }
            let current = Expression::parse(&Bson::String(format!("${name}")), vars)?;
            outputs.push((name.clone(), current, method));
        }
        Ok(Self { partition, sort, outputs })
    }

    pub fn run(&self, documents: Vec<RawDocumentBuf>) -> Result<Vec<RawDocumentBuf>> {
        let mut keyed = Vec::with_capacity(documents.len());
        for document in documents {
            let mut key = Vec::new();
            for by in &self.partition {
                key.extend(key_of(&by.value(&document)?, None));
            }
            let place = self.sort.as_ref().map(|(sort, _)| sort.key(&document)).unwrap_or_default();
            keyed.push((key, place, document));
        }
        if self.sort.is_some() {
            keyed.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        }
        let mut out = Vec::with_capacity(keyed.len());
        for group in keyed.chunk_by(|a, b| a.0 == b.0) {
            let mut members: Vec<RawDocumentBuf> =
                group.iter().map(|(_, _, document)| document.clone()).collect();
            for (name, current, method) in &self.outputs {
                for (at, value) in self.filled(&members, current, method)?.into_iter().enumerate() {
                    if let Some(value) = value {
                        members[at] =
                            with_field(&members[at], name, Some(raw(value)?.as_raw_bson_ref()))?;
                    }
                }
            }
            out.extend(members);
        }
        Ok(out)
    }

    /// The new value of each member, where there is one.
    fn filled(
        &self,
        members: &[RawDocumentBuf],
        current: &Expression,
        method: &Method,
    ) -> Result<Vec<Option<Bson>>> {
        let values: Vec<Bson> =
            members.iter().map(|member| current.value(member)).collect::<Result<_>>()?;
        match method {
            Method::Value(expression) => values
                .iter()
                .zip(members)
                .map(|(value, member)| match is_nullish(value) {
                    true => expression.value(member).map(Some),
                    false => Ok(None),
                })
                .collect(),
            Method::CarryForward => {
                let mut last = Bson::Null;
                Ok(values
                    .into_iter()
                    .map(|value| {
                        if is_nullish(&value) {
                            return Some(last.clone());
                        }
                        last = value;
                        None
                    })
                    .collect())
            }
            Method::Linear => {
                let along =
                    self.sort.as_ref().and_then(|(_, along)| along.as_ref()).ok_or_else(|| {
                        Failure::coded(605001, "$linearFill requires a sortBy of a single field")
                    })?;
                let xs = members
                    .iter()
                    .map(|member| Ok(place(&along.value(member)?)))
                    .collect::<Result<Vec<_>>>()?;
                Ok(linear(&values, &xs)
                    .into_iter()
                    .zip(&values)
                    .map(|(next, before)| is_nullish(before).then_some(next))
                    .collect())
            }
        }
    }
}
