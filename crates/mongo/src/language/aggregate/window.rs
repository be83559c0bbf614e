//! `$setWindowFields`: values computed over a document's neighbours.

use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};

use super::flow::with_field;
use super::group::Wanted;
use crate::language::collation::Collation;
use crate::language::expression::Expression;
use crate::language::expression::calendar::Zone;
use crate::language::expression::date::Unit;
use crate::language::expression::is_nullish;
use crate::language::failure::{Failure, Result};
use crate::language::keycode::key_of;
use crate::language::number::Number;
use crate::language::sort::Sort;
use crate::language::value::{owned_document, raw, raw_document, shown};
use crate::language::vars::Vars;

/// The stage.
#[derive(Debug)]
pub struct Windows {
    partition: Option<Expression>,
    sort: Option<Sort>,
    /// The one field of the sort, for windows by value.
    along: Option<Expression>,
    outputs: Vec<(String, Output)>,
    collation: Option<Collation>,
}

#[derive(Debug)]
enum Output {
    Accumulate(Wanted, Bounds),
    Rank,
    DenseRank,
    DocumentNumber,
    Shift { output: Expression, by: i64, default: Bson },
    MovingAverage { input: Expression, alpha: f64 },
    Derivative { input: Expression, unit: Option<f64>, bounds: Bounds },
    Integral { input: Expression, unit: Option<f64>, bounds: Bounds },
    Covariance { inputs: Box<[Expression; 2]>, sample: bool, bounds: Bounds },
    CarryForward(Expression),
    LinearFill(Expression),
}

/// Which neighbours count.
#[derive(Clone, Debug)]
enum Bounds {
    /// So many documents before and after; none is all.
    Documents(Option<i64>, Option<i64>),
    /// Values of the sort field so far below and above.
    Range(Option<f64>, Option<f64>, Option<Unit>),
}

fn wrong(message: impl Into<String>) -> Failure {
    Failure::failed_to_parse(message)
}

impl Windows {
    pub fn parse(spec: &RawDocument, vars: &Vars) -> Result<Self> {
        let spec = owned_document(spec)?;
        if let Some(other) =
            spec.keys().find(|name| !matches!(name.as_str(), "partitionBy" | "sortBy" | "output"))
        {
            return Err(Failure::coded(
                40415,
                format!("BSON field '$setWindowFields.{other}' is an unknown field."),
            ));
        }
        let Some(Bson::Document(outputs)) = spec.get("output") else {
            return Err(Failure::coded(
                40414,
                "BSON field '$setWindowFields.output' is missing but a required field",
            ));
        };
        let partition =
            spec.get("partitionBy").map(|by| Expression::parse(by, vars)).transpose()?;
        let (sort, along) = match spec.get("sortBy") {
            None => (None, None),
            Some(Bson::Document(by)) => {
                let (sort, along) = sort_by(by, vars)?;
                (Some(sort), along)
            }
            Some(_) => return Err(wrong("sortBy must be an object")),
        };
        let mut parsed = Vec::new();
        for (path, spec) in outputs {
            let Bson::Document(spec) = spec else {
                return Err(wrong(format!("The field '{path}' must be an object")));
            };
            let output = output(spec, vars)?;
            let needs_sort =
                !matches!(output, Output::Accumulate(_, Bounds::Documents(None, None)));
            if needs_sort && sort.is_none() && !matches!(output, Output::Accumulate(..)) {
                return Err(Failure::coded(5371602, "this window function requires a sortBy"));
            }
            if let Output::Accumulate(_, bounds) = &output {
                match bounds {
                    Bounds::Documents(None, None) => {}
                    Bounds::Documents(..) if sort.is_none() => {
                        return Err(Failure::coded(
                            5339901,
                            "Document-based bounds require a sortBy",
                        ));
                    }
                    Bounds::Range(..) if along.is_none() => {
                        return Err(Failure::coded(
                            5339902,
                            "Range-based bounds require sortBy a single field",
                        ));
                    }
                    _ => {}
                }
            }
            parsed.push((path.clone(), output));
        }
        Ok(Self { partition, sort, along, outputs: parsed, collation: vars.collation.clone() })
    }

    pub fn run(&self, documents: Vec<RawDocumentBuf>) -> Result<Vec<RawDocumentBuf>> {
        let mut keyed = Vec::with_capacity(documents.len());
        for document in documents {
            let partition = match &self.partition {
                Some(by) => key_of(&by.value(&document)?, self.collation.as_ref()),
                None => Vec::new(),
            };
            let place = self.sort.as_ref().map(|sort| sort.key(&document)).unwrap_or_default();
            keyed.push((partition, place, document));
        }
        keyed.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        let mut out = Vec::with_capacity(keyed.len());
        for group in keyed.chunk_by(|a, b| a.0 == b.0) {
            let members: Vec<&RawDocumentBuf> =
                group.iter().map(|(_, _, document)| document).collect();
            let places: Vec<&[u8]> = group.iter().map(|(_, place, _)| place.as_slice()).collect();
            let mut changed: Vec<RawDocumentBuf> =
                members.iter().map(|each| (*each).clone()).collect();
            for (path, output) in &self.outputs {
                let values = self.values(output, &members, &places)?;
                for (document, value) in changed.iter_mut().zip(values) {
                    let value = if value == Bson::Undefined { Bson::Null } else { value };
                    *document = with_field(document, path, Some(raw(value)?.as_raw_bson_ref()))?;
                }
            }
            out.extend(changed);
        }
        Ok(out)
    }

    /// One value for each member of a partition.
    fn values(
        &self,
        output: &Output,
        members: &[&RawDocumentBuf],
        places: &[&[u8]],
    ) -> Result<Vec<Bson>> {
        let each = |input: &Expression| -> Result<Vec<Bson>> {
            members.iter().map(|member| input.value(member)).collect()
        };
        Ok(match output {
            Output::Accumulate(wanted, bounds) => self.accumulated(wanted, bounds, members)?,
            Output::DocumentNumber => (1..=members.len()).map(|n| Bson::Int32(n as i32)).collect(),
            Output::Rank | Output::DenseRank => {
                let dense = matches!(output, Output::DenseRank);
                let mut rank = 0;
                let mut out = Vec::new();
                for at in 0..members.len() {
                    if at == 0 || places[at] != places[at - 1] {
                        rank = if dense { rank + 1 } else { at as i32 + 1 };
                    }
                    out.push(Bson::Int32(rank));
                }
                out
            }
            Output::Shift { output, by, default } => {
                let values = each(output)?;
                (0..values.len() as i64)
                    .map(|at| {
                        usize::try_from(at.saturating_add(*by))
                            .ok()
                            .and_then(|at| values.get(at).cloned())
                            .unwrap_or_else(|| default.clone())
                    })
                    .collect()
            }
            Output::MovingAverage { input, alpha } => {
                let mut average: Option<f64> = None;
                each(input)?
                    .iter()
                    .map(|value| {
                        if let Some(number) = Number::of_bson(value).map(Number::to_f64) {
                            average = Some(match average {
                                None => number,
                                Some(before) => number * alpha + before * (1.0 - alpha),
                            });
                        }
                        average.map_or(Bson::Null, Bson::Double)
                    })
                    .collect()
            }
            Output::CarryForward(input) => {
                let mut last = Bson::Null;
                each(input)?
                    .into_iter()
                    .map(|value| {
                        if !is_nullish(&value) {
                            last = value;
                        }
                        last.clone()
                    })
                    .collect()
            }
            Output::LinearFill(input) => linear(&each(input)?, &self.positions(members)?),
            Output::Derivative { input, unit, bounds } => {
                let (xs, ys) = (self.positions(members)?, each(input)?);
                self.over(bounds, members, |from, to| {
                    let (Some(x0), Some(x1)) = (xs[from], xs[to - 1]) else { return Bson::Null };
                    let number = |at: usize| Number::of_bson(&ys[at]).map(Number::to_f64);
                    match (number(from), number(to - 1)) {
                        (Some(y0), Some(y1)) if x1 != x0 => {
                            Bson::Double((y1 - y0) / ((x1 - x0) / unit.unwrap_or(1.0)))
                        }
                        _ => Bson::Null,
                    }
                })?
            }
            Output::Integral { input, unit, bounds } => {
                let (xs, ys) = (self.positions(members)?, each(input)?);
                self.over(bounds, members, |from, to| {
                    let points: Vec<(f64, f64)> = (from..to)
                        .filter_map(|at| Some((xs[at]?, Number::of_bson(&ys[at])?.to_f64())))
                        .collect();
                    let area = points
                        .windows(2)
                        .map(|pair| {
                            (pair[1].0 - pair[0].0) / unit.unwrap_or(1.0) * (pair[0].1 + pair[1].1)
                                / 2.0
                        })
                        .fold(0.0, |area, piece| area + piece);
                    Bson::Double(area)
                })?
            }
            Output::Covariance { inputs, sample, bounds } => {
                let (xs, ys) = (each(&inputs[0])?, each(&inputs[1])?);
                self.over(bounds, members, |from, to| {
                    let pairs: Vec<(f64, f64)> = (from..to)
                        .filter_map(|at| {
                            Some((
                                Number::of_bson(&xs[at])?.to_f64(),
                                Number::of_bson(&ys[at])?.to_f64(),
                            ))
                        })
                        .collect();
                    covariance(&pairs, *sample)
                })?
            }
        })
    }

    /// A value for each window, given as from and to.
    fn over(
        &self,
        bounds: &Bounds,
        members: &[&RawDocumentBuf],
        value: impl Fn(usize, usize) -> Bson,
    ) -> Result<Vec<Bson>> {
        let windows = self.windows(bounds, members)?;
        Ok(windows
            .into_iter()
            .map(|(from, to)| if from < to { value(from, to) } else { Bson::Null })
            .collect())
    }

    fn accumulated(
        &self,
        wanted: &Wanted,
        bounds: &Bounds,
        members: &[&RawDocumentBuf],
    ) -> Result<Vec<Bson>> {
        let values: Vec<Bson> =
            members.iter().map(|member| wanted.value(member)).collect::<Result<_>>()?;
        let by = self.collation.as_ref();
        let windows = self.windows(bounds, members)?;
        let mut out: Vec<Bson> = Vec::with_capacity(values.len());
        // As long as windows begin at the same place and only grow, one accumulator goes along.
        let mut running = wanted.start(by);
        let mut covered = (0, 0);
        for (from, to) in windows {
            if from != covered.0 || to < covered.1 {
                running = wanted.start(by);
                covered = (from, from);
            } else if to == covered.1
                && let Some(last) = out.last()
            {
                out.push(last.clone());
                continue;
            }
            for value in &values[covered.1.min(to)..to] {
                running.add(value.clone())?;
            }
            covered.1 = to.max(from);
            out.push(running.clone().finish());
        }
        Ok(out)
    }

    /// The places of the sort field as numbers: milliseconds for dates.
    fn positions(&self, members: &[&RawDocumentBuf]) -> Result<Vec<Option<f64>>> {
        let along = self.along.as_ref().ok_or_else(|| {
            Failure::coded(5371602, "this window function requires a sortBy of a single field")
        })?;
        members
            .iter()
            .map(|member| {
                Ok(match along.value(member)? {
                    Bson::DateTime(at) => Some(at.timestamp_millis() as f64),
                    value => Number::of_bson(&value).map(Number::to_f64),
                })
            })
            .collect()
    }

    /// For each member, where its window begins and ends (one beyond).
    fn windows(&self, bounds: &Bounds, members: &[&RawDocumentBuf]) -> Result<Vec<(usize, usize)>> {
        let len = members.len();
        Ok(match bounds {
            Bounds::Documents(low, high) => (0..len as i64)
                .map(|at| {
                    let from =
                        low.map_or(0, |low| at.saturating_add(low).clamp(0, len as i64)) as usize;
                    let to = high.map_or(len as i64, |high| {
                        at.saturating_add(high).saturating_add(1).clamp(0, len as i64)
                    }) as usize;
                    (from, to.max(from))
                })
                .collect(),
            Bounds::Range(low, high, unit) => {
                let xs = self.positions(members)?;
                let shift = |x: f64, by: f64| match unit {
                    None => x + by,
                    Some(unit) => {
                        unit.add(x as i64, by as i64, &Zone::UTC).unwrap_or(x as i64) as f64
                    }
                };
                (0..len)
                    .map(|at| {
                        let Some(x) = xs[at] else { return (at, at + 1) };
                        let least = low.map(|low| shift(x, low));
                        let most = high.map(|high| shift(x, high));
                        let inside = |at: &usize| {
                            xs[*at].is_some_and(|x| {
                                least.is_none_or(|least| x >= least)
                                    && most.is_none_or(|most| x <= most)
                            })
                        };
                        let from = (0..len).find(inside).unwrap_or(len);
                        let to = (from..len).take_while(inside).count() + from;
                        (from, to)
                    })
                    .collect()
            }
        })
    }
}

fn covariance(pairs: &[(f64, f64)], sample: bool) -> Bson {
    let count = pairs.len() as f64;
    let over = if sample { count - 1.0 } else { count };
    if over <= 0.0 {
        return Bson::Null;
    }
    let mean_x = pairs.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = pairs.iter().map(|(_, y)| y).sum::<f64>() / count;
    Bson::Double(pairs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum::<f64>() / over)
}

/// A sort, and the field that windows and gaps go along if it is by one alone.
pub fn sort_by(by: &Document, vars: &Vars) -> Result<(Sort, Option<Expression>)> {
    let sort = Sort::parse(raw_document(by)?.as_ref(), vars.collation.as_ref())?;
    let along = match sort.fields() {
        [one] => Some(Expression::parse(&Bson::String(format!("${}", one.path.as_str())), vars)?),
        _ => None,
    };
    Ok((sort, along))
}

/// Fills what is null between two numbers on the line through them.
pub fn linear(values: &[Bson], xs: &[Option<f64>]) -> Vec<Bson> {
    let known: Vec<(usize, f64, f64)> = values
        .iter()
        .enumerate()
        .filter_map(|(at, value)| Some((at, xs[at]?, Number::of_bson(value)?.to_f64())))
        .collect();
    values
        .iter()
        .enumerate()
        .map(|(at, value)| {
            if !is_nullish(value) {
                return value.clone();
            }
            let before = known.iter().rev().find(|(place, _, _)| *place < at);
            let after = known.iter().find(|(place, _, _)| *place > at);
            match (before, after, xs[at]) {
                (Some((_, x0, y0)), Some((_, x1, y1)), Some(x)) if x1 != x0 => {
                    Bson::Double(y0 + (y1 - y0) * (x - x0) / (x1 - x0))
                }
                _ => Bson::Null,
            }
        })
        .collect()
}

fn output(spec: &Document, vars: &Vars) -> Result<Output> {
    let mut operator = None;
    let mut window = None;
    for (name, value) in spec {
        if name == "window" {
            window = Some(value);
        } else if operator.replace((name.as_str(), value)).is_some() {
            return Err(wrong(format!(
                "Cannot specify two functions in window function spec: {}",
                shown(&Bson::Document(spec.clone()))
            )));
        }
    }
    let Some((name, argument)) = operator else {
        return Err(wrong("Expected a $-prefixed window function"));
    };
    let named = |field: &str| -> Result<&Bson> {
        argument
            .as_document()
            .and_then(|document| document.get(field))
            .ok_or_else(|| wrong(format!("{name} requires '{field}'")))
    };
    let input = || Expression::parse(named("input")?, vars);
    // Milliseconds of a unit of time.
    let unit = || -> Result<Option<f64>> {
        match argument.as_document().and_then(|document| document.get("unit")) {
            None => Ok(None),
            Some(unit) => match Unit::parse(name, unit)? {
                Unit::Millis(millis) => Ok(Some(millis as f64)),
                Unit::Days(days) => Ok(Some(days as f64 * 86_400_000.0)),
                Unit::Months(_) => Err(wrong("unit must be 'week' or smaller")),
            },
        }
    };
    let bounds = bounds(window)?;
    Ok(match name {
        "$rank" => Output::Rank,
        "$denseRank" => Output::DenseRank,
        "$documentNumber" => Output::DocumentNumber,
        "$shift" => Output::Shift {
            output: Expression::parse(named("output")?, vars)?,
            by: Number::of_bson(named("by")?)
                .and_then(Number::to_i64_exact)
                .ok_or_else(|| wrong("$shift requires 'by' as an integer value"))?,
            default: match argument.as_document().and_then(|document| document.get("default")) {
                None => Bson::Null,
                Some(value) => Expression::parse(value, vars)?.value(&RawDocumentBuf::new())?,
            },
        },
        "$expMovingAvg" => {
            let number = |field| named(field).ok().and_then(Number::of_bson).map(Number::to_f64);
            let alpha = match (number("N"), number("alpha")) {
                (Some(n), None) if n >= 1.0 => 2.0 / (n + 1.0),
                (None, Some(alpha)) if alpha > 0.0 && alpha < 1.0 => alpha,
                _ => {
                    return Err(wrong(
                        "$expMovingAvg requires either 'N' above 0 or 'alpha' between 0 and 1",
                    ));
                }
            };
            Output::MovingAverage { input: input()?, alpha }
        }
        "$derivative" => Output::Derivative { input: input()?, unit: unit()?, bounds },
        "$integral" => Output::Integral { input: input()?, unit: unit()?, bounds },
        "$covariancePop" | "$covarianceSamp" => {
            let Bson::Array(inputs) = argument else {
                return Err(wrong(format!("{name} requires two inputs")));
            };
            let [x, y] = &inputs[..] else {
                return Err(wrong(format!("{name} requires two inputs")));
            };
            Output::Covariance {
                inputs: Box::new([Expression::parse(x, vars)?, Expression::parse(y, vars)?]),
                sample: name == "$covarianceSamp",
                bounds,
            }
        }
        "$locf" => Output::CarryForward(Expression::parse(argument, vars)?),
        "$linearFill" => Output::LinearFill(Expression::parse(argument, vars)?),
        _ => {
            let wanted =
                Wanted::parse("value", &Bson::Document(doc! { name: argument.clone() }), vars)
                    .map_err(|failure| match failure.code {
                        15952 => wrong(format!("Unrecognized window function, {name}")),
                        _ => failure,
                    })?;
            Output::Accumulate(wanted, bounds)
        }
    })
}

fn bounds(window: Option<&Bson>) -> Result<Bounds> {
    let Some(window) = window else { return Ok(Bounds::Documents(None, None)) };
    let Bson::Document(spec) = window else {
        return Err(wrong("'window' field must be an object"));
    };
    let pair = |value: &Bson| -> Result<[Option<f64>; 2]> {
        let Bson::Array(items) = value else {
            return Err(wrong("Window bounds must be an array of two elements"));
        };
        let [low, high] = &items[..] else {
            return Err(wrong("Window bounds must be an array of two elements"));
        };
        let bound = |value: &Bson| match value {
            Bson::String(text) if text == "unbounded" => Ok(None),
            Bson::String(text) if text == "current" => Ok(Some(0.0)),
            value => Number::of_bson(value)
                .map(|number| Some(number.to_f64()))
                .ok_or_else(|| wrong("Window bounds must be 'unbounded', 'current', or a number")),
        };
        let (low, high) = (bound(low)?, bound(high)?);
        if let (Some(low), Some(high)) = (low, high)
            && low > high
        {
            return Err(Failure::coded(5339900, "Lower bound must not exceed upper bound"));
        }
        Ok([low, high])
    };
    match (spec.get("documents"), spec.get("range")) {
        (Some(documents), None) => {
            let [low, high] = pair(documents)?;
            Ok(Bounds::Documents(low.map(|n| n as i64), high.map(|n| n as i64)))
        }
        (None, Some(range)) => {
            let [low, high] = pair(range)?;
            let unit = spec.get("unit").map(|unit| Unit::parse("window", unit)).transpose()?;
            Ok(Bounds::Range(low, high, unit))
        }
        (None, None) => Ok(Bounds::Documents(None, None)),
        _ => Err(wrong("Window bounds can specify either 'documents' or 'unit', not both.")),
    }
}
