//! Arrays.

use bson::Bson;

use super::eval::{Scope, is_nullish, kind};
use super::{Function, MANY, NamedFunction};
use crate::language::compare::order_values;
use crate::language::failure::{Failure, Result};
use crate::language::number::Number;
use crate::language::sort::Sort;
use crate::language::value::shown;

pub(super) const FUNCTIONS: &[Function] = &[
    Function { name: "$arrayElemAt", min: 2, max: 2, call: |v, _| element_at(v) },
    Function { name: "$concatArrays", min: 0, max: MANY, call: |v, _| concat(v) },
    Function { name: "$in", min: 2, max: 2, call: |v, scope| contains("$in", v, scope) },
    Function { name: "$nin", min: 2, max: 2, call: |v, scope| contains("$nin", v, scope) },
    Function { name: "$indexOfArray", min: 2, max: 4, call: index_of },
    Function {
        name: "$isArray",
        min: 1,
        max: 1,
        call: |v, _| Ok(Bson::Boolean(matches!(v[0], Bson::Array(_)))),
    },
    Function { name: "$range", min: 2, max: 3, call: |v, _| range(v) },
    Function { name: "$reverseArray", min: 1, max: 1, call: |v, _| reverse(&v[0]) },
    Function { name: "$size", min: 1, max: 1, call: |v, _| size(&v[0]) },
    Function { name: "$slice", min: 2, max: 3, call: |v, _| slice(v) },
    Function { name: "$first", min: 1, max: 1, call: |v, _| end("$first", &v[0]) },
    Function { name: "$last", min: 1, max: 1, call: |v, _| end("$last", &v[0]) },
];

pub(super) const NAMED: &[NamedFunction] = &[
    NamedFunction {
        name: "$sortArray",
        names: &["input", "sortBy"],
        required: 2,
        call: sort_array,
    },
    NamedFunction {
        name: "$zip",
        names: &["inputs", "useLongestLength", "defaults"],
        required: 1,
        call: |v, _| zip(v),
    },
];

/// A whole number of 32 bits.
fn whole(value: &Bson) -> Option<i64> {
    Number::of_bson(value).and_then(Number::to_i64_exact).filter(|n| i32::try_from(*n).is_ok())
}

fn element_at(values: &[Bson]) -> Result<Bson> {
    let (array, at) = (&values[0], &values[1]);
    if is_nullish(array) || is_nullish(at) {
        return Ok(Bson::Null);
    }
    let Bson::Array(items) = array else {
        return Err(Failure::coded(
            28689,
            format!("$arrayElemAt's first argument must be an array, but is {}", kind(array)),
        ));
    };
    if Number::of_bson(at).is_none() {
        return Err(Failure::coded(
            28690,
            format!("$arrayElemAt's second argument must be a numeric value, but is {}", kind(at)),
        ));
    }
    let Some(at) = whole(at) else {
        return Err(Failure::coded(
            28691,
            format!(
                "$arrayElemAt's second argument must be representable as a 32-bit integer: {}",
                shown(at)
            ),
        ));
    };
    let place = if at < 0 { items.len() as i64 + at } else { at };
    Ok(usize::try_from(place)
        .ok()
        .and_then(|place| items.get(place).cloned())
        .unwrap_or(Bson::Undefined))
}

fn end(name: &str, value: &Bson) -> Result<Bson> {
    match value {
        value if is_nullish(value) => Ok(Bson::Null),
        Bson::Array(items) => {
            let found = if name == "$first" { items.first() } else { items.last() };
            Ok(found.cloned().unwrap_or(Bson::Undefined))
        }
        other => Err(Failure::coded(
            28689,
            format!("{name}'s argument must be an array, but is {}", kind(other)),
        )),
    }
}

fn concat(values: &[Bson]) -> Result<Bson> {
    let mut out = Vec::new();
    for value in values {
        match value {
            value if is_nullish(value) => return Ok(Bson::Null),
            Bson::Array(items) => out.extend(items.iter().cloned()),
            other => {
                return Err(Failure::coded(
                    28664,
                    format!("$concatArrays only supports arrays, not {}", kind(other)),
                ));
            }
        }
    }
    Ok(Bson::Array(out))
}

/// `$in`, and `$nin`, which only the service has among expressions.
fn contains(name: &str, values: &[Bson], scope: &Scope<'_>) -> Result<Bson> {
    let Bson::Array(items) = &values[1] else {
        return Err(Failure::coded(
            40081,
            format!("{name} requires an array as a second argument, found: {}", kind(&values[1])),
        ));
    };
    let by = scope.vars.collation.as_ref();
    let found = items.iter().any(|item| order_values(item, &values[0], by).is_eq());
    Ok(Bson::Boolean(found == (name == "$in")))
}

fn index_of(values: &[Bson], scope: &Scope<'_>) -> Result<Bson> {
    let items = match &values[0] {
        value if is_nullish(value) => return Ok(Bson::Null),
        Bson::Array(items) => items,
        other => {
            return Err(Failure::coded(
                40090,
                format!(
                    "$indexOfArray requires an array as a first argument, found: {}",
                    kind(other)
                ),
            ));
        }
    };
    let (start, end) = super::string::bounds("$indexOfArray", values, items.len())?;
    let by = scope.vars.collation.as_ref();
    let found = (start..end).find(|at| order_values(&items[*at], &values[1], by).is_eq());
    Ok(Bson::Int32(found.map_or(-1, |at| at as i32)))
}

fn range(values: &[Bson]) -> Result<Bson> {
    let number = |at: usize, code: i32, which: &str| -> Result<i64> {
        let value = &values[at];
        if Number::of_bson(value).is_none() {
            return Err(Failure::coded(
                code,
                format!(
                    "$range requires a numeric {which} value, found value of type: {}",
                    kind(value)
                ),
            ));
        }
        whole(value).ok_or_else(|| {
            Failure::coded(
                code + 1,
                format!("$range requires a {which} value that can be represented as a 32-bit integer, found value: {}", shown(value)),
            )
        })
    };
    let (start, end) = (number(0, 34443, "starting")?, number(1, 34445, "ending")?);
    let step = if values.len() == 3 { number(2, 34447, "step")? } else { 1 };
    if step == 0 {
        return Err(Failure::coded(34449, "$range requires a non-zero step value"));
    }
    let count = if (end - start).signum() == step.signum() {
        ((end - start).abs() + step.abs() - 1) / step.abs()
    } else {
        0
    };
    if count > 4_000_000 {
        return Err(Failure::coded(146, "$range would use too much memory"));
    }
    Ok(Bson::Array((0..count).map(|at| Bson::Int32((start + at * step) as i32)).collect()))
}

fn reverse(value: &Bson) -> Result<Bson> {
    match value {
        value if is_nullish(value) => Ok(Bson::Null),
        Bson::Array(items) => Ok(Bson::Array(items.iter().rev().cloned().collect())),
        other => Err(Failure::coded(
            34435,
            format!(
                "The argument to $reverseArray must be an array, but was of type: {}",
                kind(other)
            ),
        )),
    }
}

fn size(value: &Bson) -> Result<Bson> {
    match value {
        Bson::Array(items) => Ok(Bson::Int32(items.len() as i32)),
        other => Err(Failure::coded(
            17124,
            format!("The argument to $size must be an array, but was of type: {}", kind(other)),
        )),
    }
}

fn slice(values: &[Bson]) -> Result<Bson> {
    if values.iter().any(is_nullish) {
        return Ok(Bson::Null);
    }
    let Bson::Array(items) = &values[0] else {
        return Err(Failure::coded(
            28724,
            format!(
                "First argument to $slice must be an array, but is of type: {}",
                kind(&values[0])
            ),
        ));
    };
    let number = |at: usize, which: &str| -> Result<i64> {
        let value = &values[at];
        if Number::of_bson(value).is_none() {
            return Err(Failure::coded(
                28725,
                format!(
                    "{which} argument to $slice must be numeric, but is of type: {}",
                    kind(value)
                ),
            ));
        }
        whole(value).ok_or_else(|| {
            Failure::coded(
                28726,
                format!(
                    "{which} argument to $slice can't be represented as a 32-bit integer: {}",
                    shown(value)
                ),
            )
        })
    };
    let len = items.len() as i64;
    let first = number(1, "Second")?;
    let (start, count) = if values.len() == 2 {
        if first < 0 { ((len + first).max(0), -first) } else { (0, first) }
    } else {
        let count = number(2, "Third")?;
        if count <= 0 {
            return Err(Failure::coded(
                28729,
                format!("Third argument to $slice must be positive: {count}"),
            ));
        }
        (if first < 0 { (len + first).max(0) } else { first.min(len) }, count)
    };
    let end = (start + count).min(len);
    Ok(Bson::Array(items[start as usize..end as usize].to_vec()))
}

fn sort_array(values: &[Option<Bson>], scope: &Scope<'_>) -> Result<Bson> {
    let mut items = match &values[0] {
        Some(Bson::Array(items)) => items.clone(),
        Some(value) if is_nullish(value) => return Ok(Bson::Null),
        other => {
            return Err(Failure::coded(
                2942504,
                format!(
                    "The input argument to $sortArray must be an array, but was of type: {}",
                    other.as_ref().map_or("missing", kind)
                ),
            ));
        }
    };
    match &values[1] {
        Some(Bson::Document(spec)) => Sort::parse_push(spec)?.sort_values(&mut items),
        Some(order) => match Number::of_bson(order).and_then(Number::to_i64_exact) {
            Some(direction @ (1 | -1)) => items.sort_by(|a, b| {
                let order = order_values(a, b, scope.vars.collation.as_ref());
                if direction > 0 { order } else { order.reverse() }
            }),
            _ => {
                return Err(Failure::coded(
                    2942505,
                    "The $sort is invalid: use 1/-1 to sort the whole element, or {field:1/-1} to sort embedded fields",
                ));
            }
        },
        None => {}
    }
    Ok(Bson::Array(items))
}

fn zip(values: &[Option<Bson>]) -> Result<Bson> {
    let inputs = match &values[0] {
        Some(Bson::Array(inputs)) if !inputs.is_empty() => inputs,
        Some(Bson::Array(_)) => {
            return Err(Failure::coded(34465, "$zip requires at least one input array"));
        }
        other => {
            return Err(Failure::coded(
                34461,
                format!(
                    "inputs must be an array of expressions, found {}",
                    other.as_ref().map_or("missing", kind)
                ),
            ));
        }
    };
    let mut arrays = Vec::new();
    for input in inputs {
        match input {
            value if is_nullish(value) => return Ok(Bson::Null),
            Bson::Array(items) => arrays.push(items),
            other => {
                return Err(Failure::coded(
                    34468,
                    format!("$zip found a non-array expression in input: {other}"),
                ));
            }
        }
    }
    let longest = match &values[1] {
        None => false,
        Some(Bson::Boolean(flag)) => *flag,
        Some(other) => {
            return Err(Failure::coded(
                34463,
                format!("useLongestLength must be a bool, found {}", kind(other)),
            ));
        }
    };
    let defaults = match &values[2] {
        None => None,
        Some(Bson::Array(defaults)) if longest => Some(defaults),
        Some(Bson::Array(_)) => {
            return Err(Failure::coded(
                34466,
                "cannot specify defaults unless useLongestLength is true",
            ));
        }
        Some(other) => {
            return Err(Failure::coded(
                34462,
                format!("defaults must be an array of expressions, found {}", kind(other)),
            ));
        }
    };
    if defaults.is_some_and(|defaults| defaults.len() != arrays.len()) {
        return Err(Failure::coded(34467, "defaults and inputs must have the same length"));
    }
    let lengths = arrays.iter().map(|array| array.len());
    let length = if longest { lengths.max() } else { lengths.min() }.unwrap_or(0);
    let rows = (0..length).map(|at| {
        let row = arrays.iter().enumerate().map(|(which, array)| {
            array
                .get(at)
                .or_else(|| defaults.and_then(|defaults| defaults.get(which)))
                .cloned()
                .unwrap_or(Bson::Null)
        });
        Bson::Array(row.collect())
    });
    Ok(Bson::Array(rows.collect()))
}

/// The fields `n` and `input` of `$firstN` and its kin.
pub(super) fn n_and_input(name: &str, values: &[Option<Bson>]) -> Result<(usize, Vec<Bson>)> {
    let n = count_of(name, values[0].as_ref().unwrap_or(&Bson::Undefined))?;
    match &values[1] {
        Some(Bson::Array(items)) => Ok((n, items.clone())),
        other => Err(Failure::coded(
            5788200,
            format!(
                "Input must be an array, but got {} in {name}",
                other.as_ref().map_or("missing", kind)
            ),
        )),
    }
}

/// A whole number above zero.
pub(crate) fn count_of(name: &str, value: &Bson) -> Result<usize> {
    let Some(number) = Number::of_bson(value) else {
        return Err(Failure::coded(
            5787902,
            format!("Value for 'n' must be of integral type, but found {} in {name}", shown(value)),
        ));
    };
    let n = number.to_i64_exact().ok_or_else(|| {
        Failure::coded(
            5787903,
            format!("Value for 'n' must be of integral type, but found {}", shown(value)),
        )
    })?;
    usize::try_from(n)
        .ok()
        .filter(|n| *n > 0)
        .ok_or_else(|| Failure::coded(5787908, format!("'n' must be greater than 0, found {n}")))
}
