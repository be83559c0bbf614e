//! The operators on values. Operands of a wrong type make them undefined.

use std::cmp::Ordering;

use crate::sql::ast::{BinaryOp, UnaryOp};
use crate::value::Value;

/// An operator before its operand.
pub fn unary<'a>(op: UnaryOp, operand: Value<'a>) -> Value<'a> {
    match op {
        UnaryOp::Not => operand.as_bool().map(|b| !b).into(),
        UnaryOp::Plus => operand.as_f64().into(),
        UnaryOp::Minus => operand.as_f64().map(|n| -n).into(),
        UnaryOp::BitNot => operand.as_f64().map(|n| i64::from(!to_i32(n))).into(),
    }
}

/// An operator between two operands.
pub fn binary<'a>(op: BinaryOp, a: &Value<'a>, b: &Value<'a>) -> Value<'a> {
    match op {
        BinaryOp::Equal => equality(a, b),
        BinaryOp::NotEqual => equality(a, b).as_bool().map(|equal| !equal).into(),
        BinaryOp::Less => order(a, b, Ordering::is_lt),
        BinaryOp::LessOrEqual => order(a, b, Ordering::is_le),
        BinaryOp::Greater => order(a, b, Ordering::is_gt),
        BinaryOp::GreaterOrEqual => order(a, b, Ordering::is_ge),
        BinaryOp::Concat => match (a.as_str(), b.as_str()) {
            (Some(a), Some(b)) => Value::from(format!("{a}{b}")),
            _ => Value::Undefined,
        },
        _ => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => arithmetic(op, a, b),
            _ => Value::Undefined,
        },
    }
}

/// Whether a value is at least one other and at most a third, as AND would join the two.
pub fn between<'a>(value: &Value<'a>, low: &Value<'a>, high: &Value<'a>) -> Value<'a> {
    let above = value.compare_same_type(low).map(Ordering::is_ge);
    let below = value.compare_same_type(high).map(Ordering::is_le);
    match (above, below) {
        (Some(false), _) | (_, Some(false)) => false.into(),
        (Some(true), Some(true)) => true.into(),
        _ => Value::Undefined,
    }
}

/// Undefined if either side is; otherwise values of different types simply differ.
fn equality<'a>(a: &Value<'a>, b: &Value<'a>) -> Value<'a> {
    if a.is_undefined() || b.is_undefined() {
        return Value::Undefined;
    }
    a.equals(b).into()
}

fn order<'a>(a: &Value<'a>, b: &Value<'a>, holds: fn(Ordering) -> bool) -> Value<'a> {
    a.compare_same_type(b).map(holds).into()
}

fn arithmetic<'a>(op: BinaryOp, a: f64, b: f64) -> Value<'a> {
    // Shifts use the low five bits of their count, as 32-bit machines do.
    let count = to_i32(b) as u32 & 31;
    match op {
        BinaryOp::Add => (a + b).into(),
        BinaryOp::Subtract => (a - b).into(),
        BinaryOp::Multiply => (a * b).into(),
        BinaryOp::Divide => (a / b).into(),
        BinaryOp::Modulo => (a % b).into(),
        BinaryOp::BitAnd => i64::from(to_i32(a) & to_i32(b)).into(),
        BinaryOp::BitOr => i64::from(to_i32(a) | to_i32(b)).into(),
        BinaryOp::BitXor => i64::from(to_i32(a) ^ to_i32(b)).into(),
        BinaryOp::ShiftLeft => i64::from(to_i32(a) << count).into(),
        BinaryOp::ShiftRight => i64::from(to_i32(a) >> count).into(),
        BinaryOp::ShiftRightZero => i64::from(to_i32(a) as u32 >> count).into(),
        _ => Value::Undefined,
    }
}

/// A double as the bitwise operators see it: its integer part, the low 32 bits.
fn to_i32(n: f64) -> i32 {
    const WRAP: f64 = 4_294_967_296.0;
    n.trunc().rem_euclid(WRAP) as u32 as i32
}
