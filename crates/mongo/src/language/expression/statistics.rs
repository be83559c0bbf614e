//! Accumulators, in groups and windows and as expressions over arrays.

use std::collections::BTreeSet;

use bson::{Bson, Document};

pub(crate) use super::array::count_of;
use super::array::n_and_input;
use super::eval::{Scope, is_nullish};
use super::{Function, MANY, NamedFunction};
use crate::language::collation::Collation;
use crate::language::compare::order_values;
use crate::language::decimal::Decimal;
use crate::language::failure::{Failure, Result};
use crate::language::keycode::key_of;
use crate::language::number::Number;

/// What an accumulator does with the values that it gets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Sum,
    Average,
    Min,
    Max,
    First,
    Last,
    Push,
    AddToSet,
    Merge,
    Count,
    DeviationPopulation,
    DeviationSample,
    FirstN(usize),
    LastN(usize),
    MinN(usize),
    MaxN(usize),
    /// The best by a sort key, which comes as a pair `[key, value]`. Whether one alone is wanted, from the end or not.
    Top {
        count: usize,
        single: bool,
        bottom: bool,
    },
    Median,
    Percentile(Vec<f64>),
}

/// An accumulator at work.
#[derive(Clone, Debug)]
pub(crate) struct Accumulator {
    kind: Kind,
    collation: Option<Collation>,
    state: State,
    bytes: usize,
}

#[derive(Clone, Debug)]
enum State {
    Sum(Sum),
    Average(Sum, i64),
    /// One value, if any came.
    One(Option<Bson>),
    Many(Vec<Bson>),
    Set(BTreeSet<Vec<u8>>, Vec<Bson>),
    Document(Document),
    Count(i64),
    /// Count, mean, sum of squared distances (Welford's).
    Deviation(f64, f64, f64, bool),
    Keyed(Vec<(Vec<u8>, Bson)>),
    Numbers(Vec<f64>),
}

/// A sum that stays exact as long as it can: longs in 128 bits, doubles with what rounding lost.
#[derive(Clone, Copy, Debug)]
struct Sum {
    whole: i128,
    double: f64,
    lost: f64,
    decimal: Option<Decimal>,
    /// The widest kind so far: 0 int, 1 long, 2 double, 3 decimal.
    width: u8,
}

impl Sum {
    const ZERO: Self = Self { whole: 0, double: 0.0, lost: 0.0, decimal: None, width: 0 };

    fn add(&mut self, number: Number) {
        match number {
            Number::Int(n) => self.whole += i128::from(n),
            Number::Long(n) => {
                self.whole += i128::from(n);
                self.width = self.width.max(1);
            }
            Number::Double(n) => {
                // Neumaier's summation.
                let sum = self.double + n;
                if sum.is_finite() {
                    self.lost += if self.double.abs() >= n.abs() {
                        (self.double - sum) + n
                    } else {
                        (n - sum) + self.double
                    };
                }
                self.double = sum;
                self.width = self.width.max(2);
            }
            Number::Decimal(n) => {
                self.decimal = Some(self.decimal.unwrap_or(Decimal::ZERO).plus(n));
                self.width = 3;
            }
        }
    }

    fn floating(&self) -> f64 {
        self.double + self.lost + self.whole as f64
    }

    fn total_decimal(&self) -> Decimal {
        let whole = Decimal::parse(&self.whole.to_string()).unwrap_or(Decimal::ZERO);
        let mut total = self.decimal.unwrap_or(Decimal::ZERO).plus(whole);
        let doubles = self.double + self.lost;
        if doubles != 0.0 || doubles.is_nan() {
            total = total.plus(Decimal::from_f64(doubles, 15));
        }
        total
    }

    fn value(&self) -> Bson {
        match self.width {
            3 => Bson::Decimal128(self.total_decimal().encode()),
            2 => Bson::Double(self.floating()),
            width => match (i32::try_from(self.whole), i64::try_from(self.whole)) {
                (Ok(n), _) if width == 0 => Bson::Int32(n),
                (_, Ok(n)) => Bson::Int64(n),
                _ => Bson::Double(self.whole as f64),
            },
        }
    }

    fn average(&self, count: i64) -> Bson {
        match self.width {
            3 => Bson::Decimal128(self.total_decimal().divide(Decimal::from_i64(count)).encode()),
            _ => Bson::Double(self.floating() / count as f64),
        }
    }
}

impl Accumulator {
    pub fn new(kind: Kind, collation: Option<&Collation>) -> Self {
        let state = match &kind {
            Kind::Sum => State::Sum(Sum::ZERO),
            Kind::Average => State::Average(Sum::ZERO, 0),
            Kind::Min | Kind::Max | Kind::First | Kind::Last => State::One(None),
            Kind::Push | Kind::FirstN(_) | Kind::LastN(_) | Kind::MinN(_) | Kind::MaxN(_) => {
                State::Many(Vec::new())
            }
            Kind::AddToSet => State::Set(BTreeSet::new(), Vec::new()),
            Kind::Merge => State::Document(Document::new()),
            Kind::Count => State::Count(0),
            Kind::DeviationPopulation | Kind::DeviationSample => {
                State::Deviation(0.0, 0.0, 0.0, false)
            }
            Kind::Top { .. } => State::Keyed(Vec::new()),
            Kind::Median | Kind::Percentile(_) => State::Numbers(Vec::new()),
        };
        Self { kind, collation: collation.cloned(), state, bytes: 0 }
    }

    /// About how much memory it holds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes one value.
    pub fn add(&mut self, value: Bson) -> Result<()> {
        let by = self.collation.as_ref();
        match (&self.kind, &mut self.state) {
            (_, State::Sum(sum)) => {
                if let Some(number) = Number::of_bson(&value) {
                    sum.add(number);
                }
            }
            (_, State::Average(sum, count)) => {
                if let Some(number) = Number::of_bson(&value) {
                    sum.add(number);
                    *count += 1;
                }
            }
            (Kind::First, State::One(first)) => {
                if first.is_none() {
                    *first = Some(value);
                }
            }
            (Kind::Last, State::One(last)) => *last = Some(value),
            (kind, State::One(best)) => {
                if !is_nullish(&value) {
                    let better = best.as_ref().is_none_or(|best| {
                        let order = order_values(&value, best, by);
                        if *kind == Kind::Min { order.is_lt() } else { order.is_gt() }
                    });
                    if better {
                        *best = Some(value);
                    }
                }
            }
            (Kind::Push, State::Many(items)) => {
                if value != Bson::Undefined {
                    self.bytes += size(&value);
                    items.push(value);
                }
            }
            (Kind::FirstN(n), State::Many(items)) => {
                if items.len() < *n {
                    self.bytes += size(&value);
                    items.push(null_if_missing(value));
                }
            }
            (Kind::LastN(n), State::Many(items)) => {
                self.bytes += size(&value);
                items.push(null_if_missing(value));
                if items.len() > *n {
                    self.bytes = self.bytes.saturating_sub(size(&items.remove(0)));
                }
            }
            (kind, State::Many(items)) => {
                let (n, ascending) = match kind {
                    Kind::MinN(n) => (*n, true),
                    Kind::MaxN(n) => (*n, false),
                    _ => (0, true),
                };
                if !is_nullish(&value) {
                    let at = items.partition_point(|item| {
                        let order = order_values(item, &value, by);
                        if ascending { order.is_le() } else { order.is_ge() }
                    });
                    self.bytes += size(&value);
                    items.insert(at, value);
                    items.truncate(n);
                }
            }
            (_, State::Set(keys, items)) => {
                if value != Bson::Undefined && keys.insert(key_of(&value, by)) {
                    self.bytes += size(&value) * 2;
                    items.push(value);
                }
            }
            (_, State::Document(merged)) => match value {
                Bson::Document(document) => {
                    self.bytes += size(&Bson::Document(document.clone()));
                    merged.extend(document);
                }
                value if is_nullish(&value) => {}
                other => {
                    return Err(Failure::coded(
                        40400,
                        format!(
                            "$mergeObjects requires object inputs, but input {other} is of type {}",
                            super::eval::kind(&other)
                        ),
                    ));
                }
            },
            (_, State::Count(count)) => *count += 1,
            (_, State::Deviation(count, mean, squares, decimal)) => {
                if let Some(number) = Number::of_bson(&value) {
                    *decimal |= matches!(number, Number::Decimal(_));
                    let n = number.to_f64();
                    *count += 1.0;
                    let delta = n - *mean;
                    *mean += delta / *count;
                    *squares += delta * (n - *mean);
                }
            }
            (Kind::Top { count, bottom, .. }, State::Keyed(items)) => {
                let Bson::Array(pair) = value else { return Ok(()) };
                let mut pair = pair.into_iter();
                let (Some(Bson::Binary(key)), Some(value)) = (pair.next(), pair.next()) else {
                    return Ok(());
                };
                let at = items.partition_point(|(other, _)| *other <= key.bytes);
                self.bytes += size(&value) + key.bytes.len();
                items.insert(at, (key.bytes, value));
                if items.len() > *count {
                    if *bottom { drop(items.remove(0)) } else { items.truncate(*count) }
                }
            }
            (_, State::Keyed(_)) => {}
            (_, State::Numbers(numbers)) => {
                if let Some(number) = Number::of_bson(&value).filter(|number| !number.is_nan()) {
                    self.bytes += 8;
                    numbers.push(number.to_f64());
                }
            }
        }
        Ok(())
    }

    /// The result.
    pub fn finish(self) -> Bson {
        match (self.kind, self.state) {
            (_, State::Sum(sum)) => sum.value(),
            (_, State::Average(_, 0)) => Bson::Null,
            (_, State::Average(sum, count)) => sum.average(count),
            (_, State::One(value)) => null_if_missing(value.unwrap_or(Bson::Null)),
            (_, State::Many(items)) | (_, State::Set(_, items)) => Bson::Array(items),
            (_, State::Document(document)) => Bson::Document(document),
            (_, State::Count(count)) => {
                i32::try_from(count).map_or(Bson::Int64(count), Bson::Int32)
            }
            (kind, State::Deviation(count, _, squares, _)) => {
                let over = if kind == Kind::DeviationSample { count - 1.0 } else { count };
                if over > 0.0 { Bson::Double((squares / over).sqrt()) } else { Bson::Null }
            }
            (Kind::Top { single: true, .. }, State::Keyed(items)) => {
                items.into_iter().next().map_or(Bson::Null, |(_, value)| value)
            }
            (_, State::Keyed(items)) => {
                Bson::Array(items.into_iter().map(|(_, value)| value).collect())
            }
            (Kind::Percentile(wanted), State::Numbers(mut numbers)) => {
                numbers.sort_by(f64::total_cmp);
                Bson::Array(wanted.iter().map(|p| percentile(&numbers, *p)).collect())
            }
            (_, State::Numbers(mut numbers)) => {
                numbers.sort_by(f64::total_cmp);
                percentile(&numbers, 0.5)
            }
        }
    }
}

/// The value at a share of the sorted numbers, as the nearest rank.
fn percentile(numbers: &[f64], share: f64) -> Bson {
    if numbers.is_empty() {
        return Bson::Null;
    }
    let rank = (share * numbers.len() as f64).ceil() as usize;
    Bson::Double(numbers[rank.clamp(1, numbers.len()) - 1])
}

fn null_if_missing(value: Bson) -> Bson {
    if value == Bson::Undefined { Bson::Null } else { value }
}

/// About how much memory a value takes.
pub(crate) fn size(value: &Bson) -> usize {
    match value {
        Bson::String(text) | Bson::Symbol(text) => 32 + text.len(),
        Bson::Array(items) => 32 + items.iter().map(size).sum::<usize>(),
        Bson::Document(document) => {
            64 + document.iter().map(|(name, value)| 40 + name.len() + size(value)).sum::<usize>()
        }
        Bson::Binary(binary) => 32 + binary.bytes.len(),
        _ => 32,
    }
}

/// The shares that `$percentile` asks for.
pub(crate) fn shares(value: &Bson) -> Result<Vec<f64>> {
    let wrong = || {
        Failure::coded(
            7750301,
            "The $percentile 'p' field must be an array of numbers from [0.0, 1.0], but found: "
                .to_owned()
                + &value.to_string(),
        )
    };
    let Bson::Array(items) = value else { return Err(wrong()) };
    let shares: Vec<f64> = items
        .iter()
        .map(|item| {
            Number::of_bson(item)
                .map(Number::to_f64)
                .filter(|share| (0.0..=1.0).contains(share))
                .ok_or_else(wrong)
        })
        .collect::<Result<_>>()?;
    if shares.is_empty() { Err(wrong()) } else { Ok(shares) }
}

const fn over(name: &'static str, call: fn(&[Bson], &Scope<'_>) -> Result<Bson>) -> Function {
    Function { name, min: 0, max: MANY, call }
}

pub(super) const FUNCTIONS: &[Function] = &[
    over("$sum", |v, s| all(Kind::Sum, v, s)),
    over("$avg", |v, s| all(Kind::Average, v, s)),
    over("$min", |v, s| all(Kind::Min, v, s)),
    over("$max", |v, s| all(Kind::Max, v, s)),
    over("$stdDevPop", |v, s| all(Kind::DeviationPopulation, v, s)),
    over("$stdDevSamp", |v, s| all(Kind::DeviationSample, v, s)),
];

/// One argument that is an array stands for its elements; several stand for themselves.
fn all(kind: Kind, values: &[Bson], scope: &Scope<'_>) -> Result<Bson> {
    let mut accumulator = Accumulator::new(kind, scope.vars.collation.as_ref());
    let values = match values {
        [Bson::Array(items)] => items,
        values => values,
    };
    for value in values {
        accumulator.add(value.clone())?;
    }
    Ok(accumulator.finish())
}

const fn n(
    name: &'static str,
    call: fn(&[Option<Bson>], &Scope<'_>) -> Result<Bson>,
) -> NamedFunction {
    NamedFunction { name, names: &["n", "input"], required: 2, call }
}

pub(super) const NAMED: &[NamedFunction] = &[
    n("$firstN", |v, s| some("$firstN", Kind::FirstN, v, s)),
    n("$lastN", |v, s| some("$lastN", Kind::LastN, v, s)),
    n("$minN", |v, s| some("$minN", Kind::MinN, v, s)),
    n("$maxN", |v, s| some("$maxN", Kind::MaxN, v, s)),
    NamedFunction {
        name: "$median",
        names: &["input", "method"],
        required: 2,
        call: |v, s| {
            let input = [v[0].clone().unwrap_or(Bson::Null)];
            all(Kind::Median, &input, s)
        },
    },
    NamedFunction {
        name: "$percentile",
        names: &["input", "p", "method"],
        required: 3,
        call: |v, s| {
            let shares = shares(v[1].as_ref().unwrap_or(&Bson::Null))?;
            let input = [v[0].clone().unwrap_or(Bson::Null)];
            all(Kind::Percentile(shares), &input, s)
        },
    },
];

fn some(
    name: &str,
    kind: fn(usize) -> Kind,
    values: &[Option<Bson>],
    scope: &Scope<'_>,
) -> Result<Bson> {
    let (n, items) = n_and_input(name, values)?;
    all(kind(n), &[Bson::Array(items)], scope)
}
