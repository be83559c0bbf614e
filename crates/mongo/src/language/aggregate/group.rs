//! `$group` and the stages made of it: `$bucket`, `$bucketAuto`, `$sortByCount`.

use std::collections::HashMap;
use std::vec;

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, RawDocument, RawDocumentBuf};

use super::flow::exceeded;
use super::{Stage, Step, Up};
use crate::language::collation::Collation;
use crate::language::compare::order_values;
use crate::language::expression::Expression;
use crate::language::expression::statistics::{Accumulator, Kind, count_of, shares};
use crate::language::failure::{Failure, Result};
use crate::language::keycode::key_of;
use crate::language::sort::Sort;
use crate::language::value::{raw_document, shown};
use crate::language::vars::Vars;

/// An accumulator as a stage asks for it.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub name: String,
    kind: Kind,
    input: Input,
}

/// What an accumulator is given of each document.
#[derive(Clone, Debug)]
enum Input {
    Value(Expression),
    /// A value with the document's place in an order.
    Sorted(Sort, Expression),
}

impl Wanted {
    /// Reads `name: {$sum: …}`.
    pub fn parse(name: &str, spec: &Bson, vars: &Vars) -> Result<Self> {
        let Bson::Document(spec) = spec else {
            return Err(Failure::coded(
                40234,
                format!("The field '{name}' must be an accumulator object"),
            ));
        };
        if name.contains('.') {
            return Err(Failure::coded(
                40235,
                format!("The field name '{name}' cannot contain '.'"),
            ));
        }
        if name.starts_with('$') {
            return Err(Failure::coded(
                40236,
                format!("The field name '{name}' cannot be an operator name"),
            ));
        }
        let mut fields = spec.iter();
        let (Some((operator, argument)), None) = (fields.next(), fields.next()) else {
            return Err(Failure::coded(
                40238,
                format!("The field '{name}' must specify one accumulator"),
            ));
        };
        let (kind, input) = accumulator(operator, argument, vars)?
            .ok_or_else(|| Failure::coded(15952, format!("unknown group operator '{operator}'")))?;
        Ok(Self { name: name.to_owned(), kind, input })
    }

    /// An accumulator that has seen nothing.
    pub fn start(&self, collation: Option<&Collation>) -> Accumulator {
        Accumulator::new(self.kind.clone(), collation)
    }

    /// What it takes of a document.
    pub fn value(&self, document: &RawDocument) -> Result<Bson> {
        match &self.input {
            Input::Value(expression) => expression.value(document),
            Input::Sorted(sort, expression) => {
                let key = Binary { subtype: BinarySubtype::Generic, bytes: sort.key(document) };
                let value = match expression.value(document)? {
                    Bson::Undefined => Bson::Null,
                    value => value,
                };
                Ok(Bson::Array(vec![Bson::Binary(key), value]))
            }
        }
    }
}

/// The kind of an accumulator and what it is given; none if there is no such.
fn accumulator(operator: &str, argument: &Bson, vars: &Vars) -> Result<Option<(Kind, Input)>> {
    let simple = match operator {
        "$sum" => Some(Kind::Sum),
        "$avg" => Some(Kind::Average),
        "$min" => Some(Kind::Min),
        "$max" => Some(Kind::Max),
        "$first" => Some(Kind::First),
        "$last" => Some(Kind::Last),
        "$push" => Some(Kind::Push),
        "$addToSet" => Some(Kind::AddToSet),
        "$mergeObjects" => Some(Kind::Merge),
        "$stdDevPop" => Some(Kind::DeviationPopulation),
        "$stdDevSamp" => Some(Kind::DeviationSample),
        _ => None,
    };
    if let Some(kind) = simple {
        if let Bson::Array(items) = argument
            && items.len() != 1
        {
            return Err(Failure::coded(
                40237,
                format!("The {operator} accumulator is a unary operator"),
            ));
        }
        let argument = match argument {
            Bson::Array(items) => &items[0],
            other => other,
        };
        return Ok(Some((kind, Input::Value(Expression::parse(argument, vars)?))));
    }
    if operator == "$count" {
        return match argument {
            Bson::Document(none) if none.is_empty() => {
                let nothing = Expression::constant(Bson::Null, vars);
                Ok(Some((Kind::Count, Input::Value(nothing))))
            }
            _ => Err(Failure::type_mismatch("$count takes no arguments, i.e. $count:{}")),
        };
    }
    let named = |names: &[&str]| -> Result<&Document> {
        let Bson::Document(spec) = argument else {
            return Err(Failure::coded(
                5787801,
                format!("specification must be an object; found {}", shown(argument)),
            ));
        };
        match spec.keys().find(|name| !names.contains(&name.as_str())) {
            Some(other) => {
                Err(Failure::coded(5787901, format!("Unknown argument for 'n' operator: {other}")))
            }
            None => Ok(spec),
        }
    };
    let required = |spec: &Document, name: &str| -> Result<Expression> {
        let value = spec
            .get(name)
            .ok_or_else(|| Failure::coded(5788003, format!("Missing value for '{name}'")))?;
        Expression::parse(value, vars)
    };
    let n = |spec: &Document| -> Result<usize> {
        let value = required(spec, "n")?.value(&RawDocumentBuf::new())?;
        count_of(operator, &value)
    };
    let sort = |spec: &Document| -> Result<Sort> {
        match spec.get("sortBy") {
            Some(Bson::Document(by)) => {
                Sort::parse(raw_document(by)?.as_ref(), vars.collation.as_ref())
            }
            _ => Err(Failure::coded(5788005, "Missing value for 'sortBy'")),
        }
    };
    Ok(Some(match operator {
        "$firstN" | "$lastN" | "$minN" | "$maxN" => {
            let spec = named(&["n", "input"])?;
            let count = n(spec)?;
            let kind = match operator {
                "$firstN" => Kind::FirstN(count),
                "$lastN" => Kind::LastN(count),
                "$minN" => Kind::MinN(count),
                _ => Kind::MaxN(count),
            };
            (kind, Input::Value(required(spec, "input")?))
        }
        "$top" | "$bottom" | "$topN" | "$bottomN" => {
            let spec = named(&["n", "output", "sortBy"])?;
            let single = !operator.ends_with('N');
            let count = if single { 1 } else { n(spec)? };
            let bottom = operator.starts_with("$bottom");
            (
                Kind::Top { count, single, bottom },
                Input::Sorted(sort(spec)?, required(spec, "output")?),
            )
        }
        "$median" => {
            let spec = named(&["input", "method"])?;
            (Kind::Median, Input::Value(required(spec, "input")?))
        }
        "$percentile" => {
            let spec = named(&["input", "p", "method"])?;
            let wanted = shares(&required(spec, "p")?.value(&RawDocumentBuf::new())?)?;
            (Kind::Percentile(wanted), Input::Value(required(spec, "input")?))
        }
        "$accumulator" => {
            return Err(Failure::coded(
                115,
                "$accumulator is not supported: there is no server-side JavaScript",
            ));
        }
        _ => return Ok(None),
    }))
}

/// What a document is grouped by.
#[derive(Debug)]
pub enum By {
    Value(Expression),
    /// `$bucket`: the lower bound of the bucket that the value falls into.
    Bucket {
        value: Expression,
        boundaries: Vec<Bson>,
        default: Option<Bson>,
    },
}

impl By {
    fn id(&self, document: &RawDocument, collation: Option<&Collation>) -> Result<Bson> {
        match self {
            Self::Value(expression) => Ok(match expression.value(document)? {
                Bson::Undefined => Bson::Null,
                value => value,
            }),
            Self::Bucket { value, boundaries, default } => {
                let value = value.value(document)?;
                let at = boundaries
                    .partition_point(|bound| order_values(bound, &value, collation).is_le());
                if at > 0 && at < boundaries.len() {
                    return Ok(boundaries[at - 1].clone());
                }
                default.clone().ok_or_else(|| {
                    Failure::coded(
                        40066,
                        "$switch could not find a matching branch for an input, and no default was specified.",
                    )
                })
            }
        }
    }
}

/// `$group` at work.
#[derive(Debug)]
pub struct Group {
    pub by: By,
    pub wanted: Vec<Wanted>,
    /// Results in the order of their ids.
    pub ordered: bool,
    pub collation: Option<Collation>,
    pub bytes_max: usize,
    pub state: State,
}

#[derive(Debug, Default)]
pub struct State {
    places: HashMap<Vec<u8>, usize>,
    groups: Vec<(Bson, Vec<Accumulator>)>,
    bytes: usize,
    results: Option<vec::IntoIter<(Bson, Vec<Accumulator>)>>,
}

impl Group {
    /// The group that a document belongs to.
    fn place(&mut self, document: &RawDocument) -> Result<usize> {
        let all_in_one = matches!(&self.by, By::Value(id) if id.is_constant());
        if all_in_one && !self.state.groups.is_empty() {
            return Ok(0);
        }
        let id = self.by.id(document, self.collation.as_ref())?;
        let key = key_of(&id, self.collation.as_ref());
        if let Some(at) = self.state.places.get(&key) {
            return Ok(*at);
        }
        let state = &mut self.state;
        let at = state.groups.len();
        state.bytes += key.len() * 2 + 128 + self.wanted.len() * 128;
        state.places.insert(key, at);
        let start = |wanted: &Wanted| wanted.start(self.collation.as_ref());
        state.groups.push((id, self.wanted.iter().map(start).collect()));
        Ok(at)
    }

    fn take(&mut self, document: &RawDocument) -> Result<()> {
        let at = self.place(document)?;
        let state = &mut self.state;
        for (wanted, accumulator) in self.wanted.iter().zip(&mut state.groups[at].1) {
            let before = accumulator.bytes();
            accumulator.add(wanted.value(document)?)?;
            state.bytes = (state.bytes + accumulator.bytes()).saturating_sub(before);
        }
        if state.bytes > self.bytes_max {
            return Err(exceeded("$group"));
        }
        Ok(())
    }
}

impl Stage for Group {
    fn next(&mut self, up: &mut Up<'_>) -> Result<Step> {
        loop {
            if let Some(results) = &mut self.state.results {
                let Some((id, accumulators)) = results.next() else { return Ok(Step::Done) };
                let mut out = Document::new();
                out.insert("_id", id);
                for (wanted, accumulator) in self.wanted.iter().zip(accumulators) {
                    out.insert(&wanted.name, accumulator.finish());
                }
                return Ok(Step::Document(raw_document(&out)?));
            }
            match up()? {
                Step::Document(document) => self.take(&document)?,
                Step::Done => {
                    self.state.places.clear();
                    let mut groups = std::mem::take(&mut self.state.groups);
                    if self.ordered {
                        let by = self.collation.as_ref();
                        groups.sort_by(|(a, _), (b, _)| order_values(a, b, by));
                    }
                    self.state.results = Some(groups.into_iter());
                }
                other => return Ok(other),
            }
        }
    }
}

/// `$bucketAuto`: as many buckets of about the same size.
pub struct AutoBuckets {
    pub by: Expression,
    pub count: usize,
    pub wanted: Vec<Wanted>,
    pub collation: Option<Collation>,
}

impl AutoBuckets {
    pub fn fill(&self, documents: Vec<RawDocumentBuf>) -> Result<Vec<RawDocumentBuf>> {
        let by = self.collation.as_ref();
        let mut keyed = Vec::with_capacity(documents.len());
        for document in documents {
            let value = match self.by.value(&document)? {
                Bson::Undefined => Bson::Null,
                value => value,
            };
            keyed.push((value, document));
        }
        keyed.sort_by(|(a, _), (b, _)| order_values(a, b, by));
        let mut out: Vec<Document> = Vec::new();
        let total = keyed.len();
        let size = (total as f64 / self.count as f64).round().max(1.0) as usize;
        let mut rest = keyed.into_iter().peekable();
        while rest.peek().is_some() {
            let mut accumulators: Vec<Accumulator> =
                self.wanted.iter().map(|wanted| wanted.start(by)).collect();
            let mut first = None;
            let mut last = Bson::Null;
            let mut held = 0;
            let is_last = out.len() + 1 == self.count;
            while let Some((value, _)) = rest.peek() {
                // What is equal stays together.
                let full = held >= size && !is_last;
                if full && order_values(value, &last, by).is_ne() {
                    break;
                }
                let Some((value, document)) = rest.next() else { break };
                for (wanted, accumulator) in self.wanted.iter().zip(&mut accumulators) {
                    accumulator.add(wanted.value(&document)?)?;
                }
                first.get_or_insert_with(|| value.clone());
                last = value;
                held += 1;
            }
            // A bucket ends where the next begins, the last one with its largest value.
            let max = rest.peek().map_or(last, |(value, _)| value.clone());
            let mut bucket = Document::new();
            bucket.insert("_id", bson::doc! { "min": first.unwrap_or(Bson::Null), "max": max });
            for (wanted, accumulator) in self.wanted.iter().zip(accumulators) {
                bucket.insert(&wanted.name, accumulator.finish());
            }
            out.push(bucket);
        }
        out.iter().map(raw_document).collect()
    }
}
