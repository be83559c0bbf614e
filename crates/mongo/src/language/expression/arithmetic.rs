//! Arithmetic and trigonometry. Null or missing in, null out; what is no number is refused.

use bson::{Bson, DateTime};

use super::eval::{Scope, is_nullish, kind};
use super::{Function, MANY};
use crate::language::decimal::Decimal;
use crate::language::failure::{Failure, Result};
use crate::language::number::Number;

const fn function(
    name: &'static str,
    min: usize,
    max: usize,
    call: fn(&[Bson], &Scope<'_>) -> Result<Bson>,
) -> Function {
    Function { name, min, max, call }
}

pub(super) const FUNCTIONS: &[Function] = &[
    function("$abs", 1, 1, |v, _| unary("$abs", v, abs)),
    function("$add", 0, MANY, |v, _| add(v)),
    function("$subtract", 2, 2, |v, _| subtract(v)),
    function("$multiply", 0, MANY, |v, _| multiply(v)),
    function("$divide", 2, 2, |v, _| divide(v)),
    function("$mod", 2, 2, |v, _| modulo(v)),
    function("$ceil", 1, 1, |v, _| unary("$ceil", v, |n| Ok(whole(n, f64::ceil, Decimal::ceil)))),
    function("$floor", 1, 1, |v, _| {
        unary("$floor", v, |n| Ok(whole(n, f64::floor, Decimal::floor)))
    }),
    function("$round", 1, 2, |v, _| places("$round", v)),
    function("$trunc", 1, 2, |v, _| places("$trunc", v)),
    function("$exp", 1, 1, |v, _| unary("$exp", v, |n| Ok(real(n, f64::exp)))),
    function("$ln", 1, 1, |v, _| {
        unary("$ln", v, |n| {
            positive(n, 28766, "$ln's argument must be a positive number, but is")?;
            Ok(real(n, f64::ln))
        })
    }),
    function("$log10", 1, 1, |v, _| {
        unary("$log10", v, |n| {
            positive(n, 28761, "$log10's argument must be a positive number, but is")?;
            Ok(real(n, f64::log10))
        })
    }),
    function("$log", 2, 2, |v, _| log(v)),
    function("$pow", 2, 2, |v, _| pow(v)),
    function("$sqrt", 1, 1, |v, _| unary("$sqrt", v, sqrt)),
    function("$sin", 1, 1, |v, _| finite("$sin", v, f64::sin)),
    function("$cos", 1, 1, |v, _| finite("$cos", v, f64::cos)),
    function("$tan", 1, 1, |v, _| finite("$tan", v, f64::tan)),
    function("$asin", 1, 1, |v, _| bounded("$asin", v, -1.0, 1.0, f64::asin)),
    function("$acos", 1, 1, |v, _| bounded("$acos", v, -1.0, 1.0, f64::acos)),
    function("$atan", 1, 1, |v, _| unary("$atan", v, |n| Ok(real(n, f64::atan)))),
    function("$atan2", 2, 2, |v, _| atan2(v)),
    function("$sinh", 1, 1, |v, _| unary("$sinh", v, |n| Ok(real(n, f64::sinh)))),
    function("$cosh", 1, 1, |v, _| unary("$cosh", v, |n| Ok(real(n, f64::cosh)))),
    function("$tanh", 1, 1, |v, _| unary("$tanh", v, |n| Ok(real(n, f64::tanh)))),
    function("$asinh", 1, 1, |v, _| unary("$asinh", v, |n| Ok(real(n, f64::asinh)))),
    function("$acosh", 1, 1, |v, _| bounded("$acosh", v, 1.0, f64::INFINITY, f64::acosh)),
    function("$atanh", 1, 1, |v, _| bounded("$atanh", v, -1.0, 1.0, f64::atanh)),
    function("$degreesToRadians", 1, 1, |v, _| {
        unary("$degreesToRadians", v, |n| Ok(real(n, f64::to_radians)))
    }),
    function("$radiansToDegrees", 1, 1, |v, _| {
        unary("$radiansToDegrees", v, |n| Ok(real(n, f64::to_degrees)))
    }),
];

/// A function of one number.
fn unary(name: &str, values: &[Bson], of: impl Fn(Number) -> Result<Number>) -> Result<Bson> {
    let value = &values[0];
    if is_nullish(value) {
        return Ok(Bson::Null);
    }
    match Number::of_bson(value) {
        Some(number) => Ok(of(number)?.to_bson()),
        None => Err(Failure::coded(
            28765,
            format!("{name} only supports numeric types, not {}", kind(value)),
        )),
    }
}

/// Computed in doubles; decimals stay decimals, with a double's precision.
fn real(number: Number, of: fn(f64) -> f64) -> Number {
    match number {
        Number::Decimal(n) => Number::Decimal(Decimal::from_f64(of(n.to_f64()), 17).shortest()),
        other => Number::Double(of(other.to_f64())),
    }
}

fn whole(number: Number, double: fn(f64) -> f64, decimal: fn(Decimal) -> Decimal) -> Number {
    match number {
        Number::Double(n) => Number::Double(double(n)),
        Number::Decimal(n) => Number::Decimal(decimal(n)),
        other => other,
    }
}

fn abs(number: Number) -> Result<Number> {
    Ok(match number {
        Number::Int(n) => n.checked_abs().map_or(Number::Long(-i64::from(n)), Number::Int),
        Number::Long(n) => Number::Long(
            n.checked_abs()
                .ok_or_else(|| Failure::coded(28680, "can't take $abs of long long min"))?,
        ),
        Number::Double(n) => Number::Double(n.abs()),
        Number::Decimal(n) => Number::Decimal(n.abs()),
    })
}

fn positive(number: Number, code: i32, message: &str) -> Result<()> {
    if number.to_f64() > 0.0 || number.is_nan() {
        return Ok(());
    }
    Err(Failure::coded(
        code,
        format!("{message} {}", crate::language::value::shown(&number.to_bson())),
    ))
}

fn sqrt(number: Number) -> Result<Number> {
    if number.to_f64() < 0.0 {
        return Err(Failure::coded(28714, "$sqrt's argument must be greater than or equal to 0"));
    }
    Ok(match number {
        Number::Decimal(n) => Number::Decimal(n.sqrt()),
        other => real(other, f64::sqrt),
    })
}

fn finite(name: &str, values: &[Bson], of: fn(f64) -> f64) -> Result<Bson> {
    unary(name, values, |number| {
        let n = number.to_f64();
        if n.is_infinite() {
            return Err(Failure::coded(
                50989,
                format!("cannot apply {name} to {n}, value must be in (-inf,inf)"),
            ));
        }
        Ok(real(number, of))
    })
}

fn bounded(name: &str, values: &[Bson], low: f64, high: f64, of: fn(f64) -> f64) -> Result<Bson> {
    unary(name, values, |number| {
        let n = number.to_f64();
        if !n.is_nan() && !(low..=high).contains(&n) {
            let shown = |n: f64| if n.is_infinite() { "inf".to_owned() } else { n.to_string() };
            return Err(Failure::coded(
                50989,
                format!(
                    "cannot apply {name} to {n}, value must be in [{},{}]",
                    shown(low),
                    shown(high)
                ),
            ));
        }
        Ok(real(number, of))
    })
}

/// Two numbers; none if one is null.
fn pair(values: &[Bson], refuse: impl Fn(&Bson) -> Failure) -> Result<Option<(Number, Number)>> {
    if values.iter().any(is_nullish) {
        return Ok(None);
    }
    let number = |value| Number::of_bson(value).ok_or_else(|| refuse(value));
    Ok(Some((number(&values[0])?, number(&values[1])?)))
}

fn add(values: &[Bson]) -> Result<Bson> {
    let mut sum = Number::Int(0);
    let mut date: Option<DateTime> = None;
    for value in values {
        match value {
            value if is_nullish(value) => return Ok(Bson::Null),
            Bson::DateTime(_) if date.is_some() => {
                return Err(Failure::coded(16612, "only one date allowed in an $add expression"));
            }
            Bson::DateTime(at) => date = Some(*at),
            value => match Number::of_bson(value) {
                Some(number) => sum = sum.plus_wide(number),
                None => {
                    return Err(Failure::type_mismatch(format!(
                        "$add only supports numeric or date types, not {}",
                        kind(value)
                    )));
                }
            },
        }
    }
    match date {
        None => Ok(sum.to_bson()),
        Some(date) => {
            let millis = millis(sum)?;
            shifted(date, millis)
        }
    }
}

/// A number added to a date: milliseconds, rounded.
fn millis(number: Number) -> Result<i64> {
    Ok(match number {
        Number::Double(n) => n.round() as i64,
        Number::Decimal(n) => n.round(0).to_i64().unwrap_or(0),
        other => other.to_i64_clamped(),
    })
}

fn shifted(date: DateTime, by: i64) -> Result<Bson> {
    match date.timestamp_millis().checked_add(by) {
        Some(millis) => Ok(Bson::DateTime(DateTime::from_millis(millis))),
        None => Err(Failure::coded(15, "date overflow")),
    }
}

fn subtract(values: &[Bson]) -> Result<Bson> {
    match (&values[0], &values[1]) {
        (a, b) if is_nullish(a) || is_nullish(b) => Ok(Bson::Null),
        (Bson::DateTime(a), Bson::DateTime(b)) => a
            .timestamp_millis()
            .checked_sub(b.timestamp_millis())
            .map(Bson::Int64)
            .ok_or_else(|| Failure::coded(15, "date overflow")),
        (Bson::DateTime(a), b) => match Number::of_bson(b) {
            Some(by) => shifted(*a, millis(by)?.saturating_neg()),
            None => Err(Failure::type_mismatch(format!("can't $subtract {} from Date", kind(b)))),
        },
        (a, b) => match (Number::of_bson(a), Number::of_bson(b)) {
            (Some(a), Some(b)) => Ok(a
                .subtract(b)
                .unwrap_or_else(|| Number::Double(a.to_f64() - b.to_f64()))
                .to_bson()),
            _ => {
                Err(Failure::type_mismatch(format!("can't $subtract {} from {}", kind(b), kind(a))))
            }
        },
    }
}

fn multiply(values: &[Bson]) -> Result<Bson> {
    let mut product = Number::Int(1);
    for value in values {
        if is_nullish(value) {
            return Ok(Bson::Null);
        }
        let number = Number::of_bson(value).ok_or_else(|| {
            Failure::type_mismatch(format!(
                "$multiply only supports numeric types, not {}",
                kind(value)
            ))
        })?;
        product = product.multiply_wide(number);
    }
    Ok(product.to_bson())
}

fn divide(values: &[Bson]) -> Result<Bson> {
    let refuse = |_: &Bson| {
        Failure::type_mismatch(format!(
            "$divide only supports numeric types, not {} and {}",
            kind(&values[0]),
            kind(&values[1])
        ))
    };
    let Some((a, b)) = pair(values, refuse)? else { return Ok(Bson::Null) };
    if b.is_zero() {
        return Err(Failure::bad_value("can't $divide by zero"));
    }
    Ok(match (a, b) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            Number::Decimal(a.to_decimal().divide(b.to_decimal())).to_bson()
        }
        _ => Bson::Double(a.to_f64() / b.to_f64()),
    })
}

fn modulo(values: &[Bson]) -> Result<Bson> {
    let refuse = |_: &Bson| {
        Failure::coded(
            16611,
            format!(
                "$mod only supports numeric types, not {} and {}",
                kind(&values[0]),
                kind(&values[1])
            ),
        )
    };
    let Some((a, b)) = pair(values, refuse)? else { return Ok(Bson::Null) };
    if b.is_zero() {
        return Err(Failure::coded(16610, "can't $mod by zero"));
    }
    Ok(match (a, b) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            Number::Decimal(a.to_decimal().remainder(b.to_decimal()))
        }
        (Number::Double(_), _) | (_, Number::Double(_)) => Number::Double(a.to_f64() % b.to_f64()),
        (Number::Int(a), Number::Int(b)) => Number::Int(a.wrapping_rem(b)),
        _ => Number::Long(a.to_i64_clamped().wrapping_rem(b.to_i64_clamped())),
    }
    .to_bson())
}

/// `$round` and `$trunc`, to a place from -20 to 100.
fn places(name: &str, values: &[Bson]) -> Result<Bson> {
    if values.iter().any(is_nullish) {
        return Ok(Bson::Null);
    }
    let number = Number::of_bson(&values[0]).ok_or_else(|| {
        Failure::coded(
            51081,
            format!("{name} only supports numeric types, not {}", kind(&values[0])),
        )
    })?;
    let place = match values.get(1) {
        None => 0,
        Some(place) => {
            let place = Number::of_bson(place)
                .ok_or_else(|| {
                    Failure::coded(
                        51082,
                        format!("precision argument to  {name} must be a integral value"),
                    )
                })?
                .to_i64_exact()
                .ok_or_else(|| {
                    Failure::coded(
                        51082,
                        format!("precision argument to  {name} must be a integral value"),
                    )
                })?;
            i32::try_from(place).ok().filter(|place| (-20..=100).contains(place)).ok_or_else(|| {
                Failure::coded(
                    51083,
                    format!("cannot apply {name} with precision value {place} value must be in [-20, 100]"),
                )
            })?
        }
    };
    let at = |n: Decimal| if name == "$round" { n.round(place) } else { n.truncate(place) };
    Ok(match number {
        Number::Decimal(n) => Number::Decimal(at(n)),
        Number::Double(n) if !n.is_finite() => Number::Double(n),
        Number::Double(n) if place == 0 && name == "$round" => Number::Double(n.round_ties_even()),
        Number::Double(n) if place == 0 => Number::Double(n.trunc()),
        Number::Double(n) => Number::Double(at(Decimal::from_f64(n, 17)).to_f64()),
        other if place >= 0 => other,
        other => {
            let rounded = at(other.to_decimal()).to_i64().ok_or_else(|| {
                Failure::coded(
                    51080,
                    format!("invalid conversion from Decimal128 result in {name}"),
                )
            })?;
            match other {
                Number::Int(_) => i32::try_from(rounded).map_or(Number::Long(rounded), Number::Int),
                _ => Number::Long(rounded),
            }
        }
    }
    .to_bson())
}

fn numeric(value: &Bson, code: i32, which: &str) -> Result<Number> {
    Number::of_bson(value).ok_or_else(|| {
        Failure::coded(code, format!("{which} must be numeric, not {}", kind(value)))
    })
}

fn log(values: &[Bson]) -> Result<Bson> {
    if values.iter().any(is_nullish) {
        return Ok(Bson::Null);
    }
    let argument = numeric(&values[0], 28756, "$log's argument")?;
    let base = numeric(&values[1], 28757, "$log's base")?;
    positive(argument, 28758, "$log's argument must be a positive number, but is")?;
    if base.to_f64() <= 0.0 || base.to_f64() == 1.0 {
        return Err(Failure::coded(
            28759,
            format!(
                "$log's base must be a positive number not equal to 1, but is {}",
                crate::language::value::shown(&base.to_bson())
            ),
        ));
    }
    let result = argument.to_f64().ln() / base.to_f64().ln();
    Ok(match (argument, base) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            Number::Decimal(Decimal::from_f64(result, 17).shortest()).to_bson()
        }
        _ => Bson::Double(result),
    })
}

fn pow(values: &[Bson]) -> Result<Bson> {
    if values.iter().any(is_nullish) {
        return Ok(Bson::Null);
    }
    let base = numeric(&values[0], 28762, "$pow's base")?;
    let exponent = numeric(&values[1], 28763, "$pow's exponent")?;
    if base.is_zero() && exponent.to_f64() < 0.0 {
        return Err(Failure::coded(28764, "$pow cannot take a base of 0 and a negative exponent"));
    }
    Ok(match (base, exponent) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            Number::Decimal(decimal_power(base.to_decimal(), exponent))
        }
        (Number::Double(_), _) | (_, Number::Double(_)) => {
            Number::Double(base.to_f64().powf(exponent.to_f64()))
        }
        _ => whole_power(base, exponent),
    }
    .to_bson())
}

fn decimal_power(base: Decimal, exponent: Number) -> Decimal {
    match exponent.to_i64_exact() {
        Some(power) if power.unsigned_abs() <= 1000 => {
            let mut result = Decimal::from_i64(1);
            for _ in 0..power.unsigned_abs() {
                result = result.multiply(base);
            }
            if power < 0 { Decimal::from_i64(1).divide(result) } else { result }
        }
        _ => Decimal::from_f64(base.to_f64().powf(exponent.to_f64()), 17).shortest(),
    }
}

fn whole_power(base: Number, exponent: Number) -> Number {
    let power = exponent.to_i64_clamped();
    let double = || Number::Double(base.to_f64().powf(exponent.to_f64()));
    let exact =
        u32::try_from(power).ok().and_then(|power| base.to_i64_clamped().checked_pow(power));
    match (exact, base, exponent) {
        (None, _, _) => double(),
        (Some(n), Number::Int(_), Number::Int(_)) => {
            i32::try_from(n).map_or(Number::Long(n), Number::Int)
        }
        (Some(n), _, _) => Number::Long(n),
    }
}

fn atan2(values: &[Bson]) -> Result<Bson> {
    let refuse = |value: &Bson| {
        Failure::coded(51044, format!("$atan2 only supports numeric types, not {}", kind(value)))
    };
    let Some((y, x)) = pair(values, refuse)? else { return Ok(Bson::Null) };
    let angle = y.to_f64().atan2(x.to_f64());
    Ok(match (y, x) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            Number::Decimal(Decimal::from_f64(angle, 17).shortest()).to_bson()
        }
        _ => Bson::Double(angle),
    })
}
