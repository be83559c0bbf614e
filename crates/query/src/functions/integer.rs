//! INTADD and its kin: arithmetic on 64-bit integers, exact where doubles are not.
//!
//! Numbers with a fraction are undefined, and so is what does not fit 64 bits.

use super::{Function, pure};
use crate::value::Value;

/// The family's table.
pub const FUNCTIONS: &[Function] = &[
    pure("INTADD", (2, 2), |_, args| binary(args, i64::checked_add)),
    pure("INTBITAND", (2, 2), |_, args| binary(args, |a, b| Some(a & b))),
    pure("INTBITLEFTSHIFT", (2, 2), |_, args| binary(args, shift_left)),
    pure("INTBITNOT", (1, 1), |_, args| args[0].as_i64().map(|n| !n).into()),
    pure("INTBITOR", (2, 2), |_, args| binary(args, |a, b| Some(a | b))),
    pure("INTBITRIGHTSHIFT", (2, 2), |_, args| binary(args, shift_right)),
    pure("INTBITXOR", (2, 2), |_, args| binary(args, |a, b| Some(a ^ b))),
    pure("INTDIV", (2, 2), |_, args| binary(args, i64::checked_div)),
    pure("INTMOD", (2, 2), |_, args| binary(args, i64::checked_rem)),
    pure("INTMUL", (2, 2), |_, args| binary(args, i64::checked_mul)),
    // Not documented, but known to Microsoft's own editor.
    pure("INTMULTIPLY", (2, 2), |_, args| binary(args, i64::checked_mul)),
    pure("INTSUB", (2, 2), |_, args| binary(args, i64::checked_sub)),
];

fn binary<'a>(args: &[Value<'a>], f: fn(i64, i64) -> Option<i64>) -> Value<'a> {
    match (args[0].as_i64(), args[1].as_i64()) {
        (Some(a), Some(b)) => f(a, b).into(),
        _ => Value::Undefined,
    }
}

fn shift_left(n: i64, count: i64) -> Option<i64> {
    u32::try_from(count).ok().map(|count| n.checked_shl(count).unwrap_or(0))
}

fn shift_right(n: i64, count: i64) -> Option<i64> {
    u32::try_from(count).ok().map(|count| n >> count.min(63))
}
