//! Arrays, objects and sets. In sets, values count once, in the order they are first met.

use std::collections::HashSet;

use model::value::compare_defined;
use serde_json::{Value as Json, json};

use super::{Function, Host, MANY, pure};
use crate::value::Value;

/// The family's table.
pub const FUNCTIONS: &[Function] = &[
    pure("ARRAY_AVG", (1, 1), |_, args| {
        numbers(&args[0]).map(|all| all.iter().sum::<f64>() / all.len() as f64).into()
    }),
    pure("ARRAY_CONCAT", (2, MANY), concat),
    pure("ARRAY_CONTAINS", (2, 3), contains),
    pure("ARRAY_CONTAINS_ALL", (2, MANY), |_, args| contains_several(args, true)),
    pure("ARRAY_CONTAINS_ANY", (2, MANY), |_, args| contains_several(args, false)),
    pure("ARRAY_LENGTH", (1, 1), |_, args| {
        args[0].elements().map(|elements| elements.count() as i64).into()
    }),
    pure("ARRAY_MAX", (1, 1), |_, args| extreme(&args[0], true)),
    pure("ARRAY_MEDIAN", (1, 1), median),
    pure("ARRAY_MIN", (1, 1), |_, args| extreme(&args[0], false)),
    pure("ARRAY_SLICE", (2, 3), slice),
    pure("ARRAY_SUM", (1, 1), |_, args| {
        numbers(&args[0]).map(|all| all.iter().sum::<f64>()).into()
    }),
    pure("CHOOSE", (2, MANY), choose),
    pure("OBJECTTOARRAY", (1, 3), object_to_array),
    pure("SETDIFFERENCE", (2, 2), |_, args| select(&args[0], &args[1], false)),
    pure("SETEQUAL", (2, 2), set_equal),
    pure("SETINTERSECT", (2, 2), |_, args| select(&args[1], &args[0], true)),
    pure("SETUNION", (2, 2), union),
];

/// The elements as doubles, if all are numbers.
fn numbers(value: &Value<'_>) -> Option<Vec<f64>> {
    value.elements()?.map(|element| element.as_f64()).collect()
}

fn key(value: &Value<'_>) -> Vec<u8> {
    let mut key = Vec::new();
    value.write_key(&mut key);
    key
}

fn concat<'a>(_: &Host, args: &[Value<'a>]) -> Value<'a> {
    let arrays: Option<Vec<_>> = args.iter().map(Value::elements).collect();
    arrays.map_or(Value::Undefined, |arrays| Value::array(arrays.into_iter().flatten()))
}

/// With a third argument of `true`, an object is found in one that has all it has and maybe more.
fn contains<'a>(_: &Host, args: &[Value<'a>]) -> Value<'a> {
    let Some(mut elements) = args[0].elements() else { return Value::Undefined };
    let wanted = &args[1];
    if wanted.is_undefined() {
        return Value::Undefined;
    }
    match args.get(2).map(Value::as_bool) {
        None | Some(Some(false)) => elements.any(|element| element.equals(wanted)).into(),
        Some(Some(true)) => {
            let Some(wanted) = wanted.to_json() else { return Value::Undefined };
            elements.filter_map(|element| element.to_json()).any(|e| covers(&e, &wanted)).into()
        }
        Some(None) => Value::Undefined,
    }
}

/// Whether a value is the wanted one, or an object with at least its members.
fn covers(value: &Json, wanted: &Json) -> bool {
    match (value, wanted) {
        (Json::Object(value), Json::Object(wanted)) => wanted
            .iter()
            .all(|(name, wanted)| value.get(name).is_some_and(|value| covers(value, wanted))),
        _ => model::value::equal(value, wanted),
    }
}

/// Several questions joined by AND or OR, undefined ones included.
fn contains_several<'a>(args: &[Value<'a>], all: bool) -> Value<'a> {
    let Some(elements) = args[0].elements() else { return Value::Undefined };
    let keys: HashSet<Vec<u8>> = elements.map(|element| key(&element)).collect();
    if keys.is_empty() {
        return false.into();
    }
    let wanted = args[1..].iter();
    let found = wanted.map(|value| (!value.is_undefined()).then(|| keys.contains(&key(value))));
    super::joined(found, all)
}

/// The smallest or largest of primitives; undefined with anything else, or nothing, among them.
fn extreme<'a>(value: &Value<'a>, largest: bool) -> Value<'a> {
    let Some(elements) = value.elements() else { return Value::Undefined };
    let elements: Option<Vec<Json>> =
        elements.map(|e| e.kind().is_primitive().then(|| e.to_json()).flatten()).collect();
    let elements = elements.unwrap_or_default().into_iter();
    let best =
        if largest { elements.max_by(compare_defined) } else { elements.min_by(compare_defined) };
    best.map_or(Value::Undefined, Value::built)
}

fn median<'a>(_: &Host, args: &[Value<'a>]) -> Value<'a> {
    let Some(mut all) = numbers(&args[0]).filter(|all| !all.is_empty()) else {
        return Value::Undefined;
    };
    all.sort_by(f64::total_cmp);
    let middle = all.len() / 2;
    if all.len() % 2 == 1 {
        all[middle].into()
    } else {
        ((all[middle - 1] + all[middle]) / 2.0).into()
    }
}

/// From a place (counted from the end if negative), so many elements or all.
fn slice<'a>(_: &Host, args: &[Value<'a>]) -> Value<'a> {
    let (Some(elements), Some(start)) = (args[0].elements(), args[1].as_f64()) else {
        return Value::Undefined;
    };
    let length = match args.get(2).map(Value::as_f64) {
        None => usize::MAX,
        Some(Some(length)) => length.max(0.0) as usize,
        Some(None) => return Value::Undefined,
    };
    let start = if start < 0.0 {
        elements.clone().count().saturating_sub(-start as usize)
    } else {
        start as usize
    };
    Value::array(elements.skip(start).take(length))
}

/// The argument with the given number, counted from 1.
fn choose<'a>(_: &Host, args: &[Value<'a>]) -> Value<'a> {
    let chosen = args[0].as_i64().filter(|n| *n > 0).and_then(|n| args.get(n as usize));
    chosen.cloned().unwrap_or(Value::Undefined)
}

/// The members as objects of name and value, under `k` and `v` or the given names.
fn object_to_array<'a>(_: &Host, args: &[Value<'a>]) -> Value<'a> {
    let name = |n: usize, default: &str| match args.get(n) {
        None => Some(default.to_owned()),
        Some(name) => name.as_str().map(str::to_owned),
    };
    let (Some(members), Some(k), Some(v)) = (args[0].members(), name(1, "k"), name(2, "v")) else {
        return Value::Undefined;
    };
    Value::array(members.into_iter().map(|(name, value)| {
        let value = value.to_json().unwrap_or(Json::Null);
        Value::built(json!({k.as_str(): name, v.as_str(): value}))
    }))
}

/// Those elements of the one array, each once, that the other has or has not.
fn select<'a>(from: &Value<'a>, other: &Value<'a>, wanted: bool) -> Value<'a> {
    let (Some(elements), Some(other)) = (from.elements(), other.elements()) else {
        return Value::Undefined;
    };
    let other: HashSet<Vec<u8>> = other.map(|element| key(&element)).collect();
    let mut seen = HashSet::new();
    Value::array(elements.filter(|element| {
        let key = key(element);
        other.contains(&key) == wanted && seen.insert(key)
    }))
}

fn union<'a>(_: &Host, args: &[Value<'a>]) -> Value<'a> {
    let (Some(a), Some(b)) = (args[0].elements(), args[1].elements()) else {
        return Value::Undefined;
    };
    let mut seen = HashSet::new();
    Value::array(a.chain(b).filter(|element| seen.insert(key(element))))
}

fn set_equal<'a>(_: &Host, args: &[Value<'a>]) -> Value<'a> {
    let keys = |value: &Value<'a>| -> Option<HashSet<Vec<u8>>> {
        Some(value.elements()?.map(|element| key(&element)).collect())
    };
    match (keys(&args[0]), keys(&args[1])) {
        (Some(a), Some(b)) => (a == b).into(),
        _ => Value::Undefined,
    }
}
