//! ABS to TRUNC: arithmetic on doubles. What is not a number, in or out, is undefined.

use super::{Depends, Function, Host, pure};
use crate::value::Value;

/// The family's table.
pub const FUNCTIONS: &[Function] = &[
    pure("ABS", (1, 1), |_, args| unary(args, f64::abs)),
    pure("ACOS", (1, 1), |_, args| unary(args, f64::acos)),
    pure("ASIN", (1, 1), |_, args| unary(args, f64::asin)),
    pure("ATAN", (1, 1), |_, args| unary(args, f64::atan)),
    pure("ATN2", (2, 2), |_, args| binary(args, f64::atan2)),
    pure("CEILING", (1, 1), |_, args| unary(args, f64::ceil)),
    pure("COS", (1, 1), |_, args| unary(args, f64::cos)),
    pure("COT", (1, 1), |_, args| unary(args, |n| n.tan().recip())),
    pure("DEGREES", (1, 1), |_, args| unary(args, f64::to_degrees)),
    pure("EXP", (1, 1), |_, args| unary(args, f64::exp)),
    pure("FLOOR", (1, 1), |_, args| unary(args, f64::floor)),
    pure("LOG", (1, 2), log),
    pure("LOG10", (1, 1), |_, args| unary(args, f64::log10)),
    pure("NUMBERBIN", (1, 2), number_bin),
    pure("PI", (0, 0), |_, _| std::f64::consts::PI.into()),
    pure("POWER", (2, 2), |_, args| binary(args, f64::powf)),
    pure("RADIANS", (1, 1), |_, args| unary(args, f64::to_radians)),
    Function { depends: Depends::Chance, ..pure("RAND", (0, 0), |host, _| host.random().into()) },
    pure("ROUND", (1, 2), round),
    pure("SIGN", (1, 1), |_, args| unary(args, sign)),
    pure("SIN", (1, 1), |_, args| unary(args, f64::sin)),
    pure("SQRT", (1, 1), |_, args| unary(args, f64::sqrt)),
    pure("SQUARE", (1, 1), |_, args| unary(args, |n| n * n)),
    pure("TAN", (1, 1), |_, args| unary(args, f64::tan)),
    pure("TRUNC", (1, 1), |_, args| unary(args, f64::trunc)),
];

fn unary<'a>(args: &[Value<'a>], f: fn(f64) -> f64) -> Value<'a> {
    args[0].as_f64().map(f).into()
}

fn binary<'a>(args: &[Value<'a>], f: fn(f64, f64) -> f64) -> Value<'a> {
    match (args[0].as_f64(), args[1].as_f64()) {
        (Some(a), Some(b)) => f(a, b).into(),
        _ => Value::Undefined,
    }
}

/// The natural logarithm, or the one to the given base.
fn log<'a>(_: &Host, args: &[Value<'a>]) -> Value<'a> {
    match args {
        [_] => unary(args, f64::ln),
        _ => binary(args, |n, base| match base {
            // The common bases have their own, exact functions.
            2.0 => n.log2(),
            10.0 => n.log10(),
            base => n.log(base),
        }),
    }
}

/// The start of the bin of the given width (1 by default) that a number falls into.
fn number_bin<'a>(_: &Host, args: &[Value<'a>]) -> Value<'a> {
    match args {
        [_] => unary(args, f64::floor),
        _ => binary(args, |n, width| (n / width).floor() * width),
    }
}

/// To the nearest integer, or to so many decimal places; halves go away from zero.
fn round<'a>(_: &Host, args: &[Value<'a>]) -> Value<'a> {
    match args {
        [_] => unary(args, f64::round),
        _ => binary(args, |n, places| {
            // So far doubles reach in either direction.
            let scale = 10f64.powf(places.trunc().clamp(-323.0, 308.0));
            let scaled = n * scale;
            // From here on they have no fraction.
            const WHOLE: f64 = (1u64 << 52) as f64;
            if scaled.abs() >= WHOLE { n } else { scaled.round() / scale }
        }),
    }
}

fn sign(n: f64) -> f64 {
    if n == 0.0 { 0.0 } else { n.signum() }
}
