//! The aggregates: what is kept of the rows of a group, and what it comes to in the end.

use std::collections::HashSet;

use model::value::{Kind, compare_defined};
use serde_json::Value as Json;

use crate::expr::AggregateFunction;
use crate::value::Value;

/// One aggregate of one group on its way. Undefined values leave no trace in any of them.
#[derive(Debug)]
pub enum Accumulator {
    /// Defined values, or true ones.
    Count {
        /// How many so far.
        count: u64,
        /// Whether only `true` counts.
        only_true: bool,
    },
    /// Numbers added up.
    Sum {
        /// So far.
        sum: f64,
        /// How many.
        count: u64,
        /// Something else than a number was met: the result is undefined.
        spoiled: bool,
        /// Whether the mean is asked for.
        mean: bool,
    },
    /// The smallest or the largest.
    Extreme {
        /// So far.
        best: Option<Json>,
        /// An array or object was met: the result is undefined.
        spoiled: bool,
        /// Whether the largest is asked for.
        largest: bool,
    },
    /// All values.
    List {
        /// So far.
        values: Vec<Json>,
        /// Their keys, if only those that differ are asked for.
        keys: Option<HashSet<Vec<u8>>>,
    },
}

impl Accumulator {
    /// The aggregate of no rows yet.
    pub fn new(function: AggregateFunction) -> Self {
        use AggregateFunction::*;
        match function {
            Count => Accumulator::Count { count: 0, only_true: false },
            CountIf => Accumulator::Count { count: 0, only_true: true },
            Sum | Average => {
                Accumulator::Sum { sum: 0.0, count: 0, spoiled: false, mean: function == Average }
            }
            Min | Max => {
                Accumulator::Extreme { best: None, spoiled: false, largest: function == Max }
            }
            MakeList => Accumulator::List { values: Vec::new(), keys: None },
            MakeSet => Accumulator::List { values: Vec::new(), keys: Some(HashSet::new()) },
        }
    }

    /// Takes in one more value; gives the bytes it now holds because of it, roughly.
    pub fn add(&mut self, value: &Value<'_>) -> usize {
        if value.is_undefined() {
            return 0;
        }
        match self {
            Accumulator::Count { count, only_true } => {
                *count += u64::from(!*only_true || value.is_true());
            }
            Accumulator::Sum { sum, count, spoiled, .. } => {
                *count += 1;
                match value.as_f64() {
                    Some(number) => *sum += number,
                    None => *spoiled = true,
                }
            }
            Accumulator::Extreme { best, spoiled, largest } => {
                if matches!(value.kind(), Kind::Array | Kind::Object) {
                    *spoiled = true;
                } else if let Some(value) = value.to_json() {
                    let better = best.as_ref().is_none_or(|best| {
                        let order = compare_defined(&value, best);
                        if *largest { order.is_gt() } else { order.is_lt() }
                    });
                    if better {
                        *best = Some(value);
                    }
                }
            }
            Accumulator::List { values, keys } => {
                let mut key = Vec::new();
                value.write_key(&mut key);
                let held = key.len() + size_of::<Json>();
                if keys.as_mut().is_none_or(|keys| keys.insert(key)) {
                    values.extend(value.to_json());
                    return held;
                }
            }
        }
        0
    }

    /// What it comes to.
    pub fn result<'a>(self) -> Value<'a> {
        match self {
            Accumulator::Count { count, .. } => Value::Number(count.into()),
            Accumulator::Sum { spoiled: true, .. } | Accumulator::Extreme { spoiled: true, .. } => {
                Value::Undefined
            }
            // 0 / 0 is not a number, hence undefined: the mean of nothing.
            Accumulator::Sum { sum, count, mean: true, .. } => (sum / count as f64).into(),
            Accumulator::Sum { sum, .. } => sum.into(),
            Accumulator::Extreme { best, .. } => best.map_or(Value::Undefined, Value::built),
            Accumulator::List { values, .. } => Value::built(Json::Array(values)),
        }
    }
}
