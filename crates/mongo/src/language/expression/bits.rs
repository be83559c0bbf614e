//! Bits of whole numbers.

use bson::Bson;

use super::eval::{is_nullish, kind};
use super::{Function, MANY};
use crate::language::failure::{Failure, Result};

pub(super) const FUNCTIONS: &[Function] = &[
    Function {
        name: "$bitAnd",
        min: 0,
        max: MANY,
        call: |v, _| fold("$bitAnd", v, -1, |a, b| a & b),
    },
    Function { name: "$bitOr", min: 0, max: MANY, call: |v, _| fold("$bitOr", v, 0, |a, b| a | b) },
    Function {
        name: "$bitXor",
        min: 0,
        max: MANY,
        call: |v, _| fold("$bitXor", v, 0, |a, b| a ^ b),
    },
    Function { name: "$bitNot", min: 1, max: 1, call: |v, _| not(&v[0]) },
];

fn fold(name: &str, values: &[Bson], empty: i64, of: fn(i64, i64) -> i64) -> Result<Bson> {
    let (mut result, mut wide) = (empty, false);
    for value in values {
        match value {
            value if is_nullish(value) => return Ok(Bson::Null),
            Bson::Int32(n) => result = of(result, i64::from(*n)),
            Bson::Int64(n) => {
                result = of(result, *n);
                wide = true;
            }
            other => return Err(refused(name, other)),
        }
    }
    Ok(if wide { Bson::Int64(result) } else { Bson::Int32(result as i32) })
}

fn not(value: &Bson) -> Result<Bson> {
    match value {
        value if is_nullish(value) => Ok(Bson::Null),
        Bson::Int32(n) => Ok(Bson::Int32(!n)),
        Bson::Int64(n) => Ok(Bson::Int64(!n)),
        other => Err(refused("$bitNot", other)),
    }
}

fn refused(name: &str, value: &Bson) -> Failure {
    Failure::type_mismatch(format!(
        "{name} only supports int and long operands, not {}.",
        kind(value)
    ))
}
