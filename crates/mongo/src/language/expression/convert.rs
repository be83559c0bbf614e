//! From one type to another.

use bson::oid::ObjectId;
use bson::{Bson, DateTime};

use super::eval::{Scope, is_nullish, kind};
use super::{Function, NamedFunction, calendar};
use crate::language::decimal::Decimal;
use crate::language::failure::{Failure, Result};
use crate::language::number::Number;
use crate::language::value::shown;

const fn to(name: &'static str, call: fn(&[Bson], &Scope<'_>) -> Result<Bson>) -> Function {
    Function { name, min: 1, max: 1, call }
}

pub(super) const FUNCTIONS: &[Function] = &[
    to("$toBool", |v, _| convert(&v[0], "bool")),
    to("$toInt", |v, _| convert(&v[0], "int")),
    to("$toLong", |v, _| convert(&v[0], "long")),
    to("$toDouble", |v, _| convert(&v[0], "double")),
    to("$toDecimal", |v, _| convert(&v[0], "decimal")),
    to("$toString", |v, _| convert(&v[0], "string")),
    to("$toObjectId", |v, _| convert(&v[0], "objectId")),
    to("$toDate", |v, _| convert(&v[0], "date")),
];

pub(super) const NAMED: &[NamedFunction] = &[NamedFunction {
    name: "$convert",
    names: &["input", "to", "onError", "onNull", "format"],
    required: 2,
    call: |v, _| named(v),
}];

fn named(values: &[Option<Bson>]) -> Result<Bson> {
    let target = match &values[1] {
        Some(Bson::String(name)) => name.clone(),
        Some(Bson::Document(spec)) => {
            spec.get("type").and_then(Bson::as_str).unwrap_or_default().to_owned()
        }
        Some(value) if is_nullish(value) => return Ok(Bson::Null),
        Some(value) => match Number::of_bson(value).and_then(Number::to_i64_exact) {
            Some(code) => match code {
                1 => "double",
                2 => "string",
                7 => "objectId",
                8 => "bool",
                9 => "date",
                16 => "int",
                18 => "long",
                19 => "decimal",
                _ => "",
            }
            .to_owned(),
            None => {
                return Err(Failure::failed_to_parse(
                    "$convert's 'to' argument must be a string or number, but is ".to_owned()
                        + kind(value),
                ));
            }
        },
        None => String::new(),
    };
    if !matches!(
        &*target,
        "double" | "string" | "objectId" | "bool" | "date" | "int" | "long" | "decimal"
    ) {
        return Err(Failure::bad_value(format!("Unknown type name: {target}")));
    }
    let input = values[0].as_ref().unwrap_or(&Bson::Undefined);
    if is_nullish(input) {
        return Ok(values[3].clone().unwrap_or(Bson::Null));
    }
    match (convert(input, &target), &values[2]) {
        (Err(failure), Some(on_error)) if failure.code == 241 => Ok(on_error.clone()),
        (result, _) => result,
    }
}

fn failed(message: String) -> Failure {
    Failure::coded(241, message)
}

fn unsupported(value: &Bson, target: &str) -> Failure {
    failed(format!(
        "Unsupported conversion from {} to {target} in $convert with no onError value",
        kind(value)
    ))
}

fn unparsable(text: &str, target: &str, why: &str) -> Failure {
    failed(format!(
        "Failed to parse number '{text}' in $convert with no onError value: {why}{target}"
    ))
}

/// A value as another type; null stays null.
pub(crate) fn convert(value: &Bson, target: &str) -> Result<Bson> {
    if is_nullish(value) {
        return Ok(Bson::Null);
    }
    match target {
        "bool" => Ok(Bson::Boolean(super::eval::truth(value))),
        "string" => text(value).map(Bson::String),
        "objectId" => match value {
            Bson::ObjectId(_) => Ok(value.clone()),
            Bson::String(text) => ObjectId::parse_str(text).map(Bson::ObjectId).map_err(|_| {
                failed(format!(
                    "Failed to parse objectId '{text}' in $convert with no onError value: Invalid string length for parsing to OID, expected 24 but found {}",
                    text.len()
                ))
            }),
            other => Err(unsupported(other, target)),
        },
        "date" => date(value),
        _ => number(value, target),
    }
}

fn number(value: &Bson, target: &str) -> Result<Bson> {
    let number = match value {
        Bson::Boolean(flag) => Number::Int(i32::from(*flag)),
        Bson::DateTime(at) if target != "int" => Number::Long(at.timestamp_millis()),
        Bson::String(text) => return parsed(text, target),
        value => Number::of_bson(value).ok_or_else(|| unsupported(value, target))?,
    };
    let whole = |low: i64, high: i64| -> Result<i64> {
        let n = number.to_f64();
        if n.is_nan() {
            return Err(failed(
                "Attempt to convert NaN value to integer type in $convert with no onError value"
                    .to_owned(),
            ));
        }
        if n.is_infinite() {
            return Err(failed("Attempt to convert infinity value to integer type in $convert with no onError value".to_owned()));
        }
        let fits = match number {
            Number::Double(n) => n.trunc() >= low as f64 && n.trunc() < high as f64 + 1.0,
            Number::Decimal(n) => n.to_i64().is_some_and(|n| (low..=high).contains(&n)),
            other => (low..=high).contains(&other.to_i64_clamped()),
        };
        if !fits {
            return Err(failed(format!(
                "Conversion would overflow target type in $convert with no onError value: {}",
                shown(&number.to_bson())
            )));
        }
        Ok(number.to_i64_clamped())
    };
    Ok(match target {
        "int" => Bson::Int32(whole(i64::from(i32::MIN), i64::from(i32::MAX))? as i32),
        "long" => Bson::Int64(whole(i64::MIN, i64::MAX)?),
        "double" => {
            let n = number.to_f64();
            if let Number::Decimal(d) = number
                && n.is_infinite()
                && !matches!(d, Decimal::Infinite { .. })
            {
                return Err(failed(format!(
                    "Conversion would overflow target type in $convert with no onError value: {}",
                    d.encode()
                )));
            }
            Bson::Double(n)
        }
        _ => Bson::Decimal128(number.to_decimal().encode()),
    })
}

fn parsed(text: &str, target: &str) -> Result<Bson> {
    let wrong = || unparsable(text, "", "Did not consume whole string.");
    if text.is_empty() {
        return Err(unparsable(text, "", "No digits"));
    }
    if text.starts_with(char::is_whitespace) || text.ends_with(char::is_whitespace) {
        return Err(wrong());
    }
    let digits = text.strip_prefix('+').unwrap_or(text);
    Ok(match target {
        "int" => Bson::Int32(digits.parse().map_err(|_| wrong())?),
        "long" => Bson::Int64(digits.parse().map_err(|_| wrong())?),
        "double" => Bson::Double(digits.parse().map_err(|_| wrong())?),
        _ => Bson::Decimal128(Decimal::parse(text).ok_or_else(wrong)?.encode()),
    })
}

fn text(value: &Bson) -> Result<String> {
    Ok(match value {
        Bson::String(text) | Bson::Symbol(text) => text.clone(),
        Bson::Boolean(flag) => flag.to_string(),
        Bson::Int32(n) => n.to_string(),
        Bson::Int64(n) => n.to_string(),
        Bson::Double(n) => double_text(*n),
        Bson::Decimal128(n) => n.to_string(),
        Bson::ObjectId(id) => id.to_hex(),
        Bson::DateTime(at) => calendar::iso(at.timestamp_millis()),
        Bson::Binary(binary)
            if binary.subtype == bson::spec::BinarySubtype::Uuid && binary.bytes.len() == 16 =>
        {
            let hex: String = binary.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
        }
        other => return Err(unsupported(other, "string")),
    })
}

fn date(value: &Bson) -> Result<Bson> {
    let millis = match value {
        Bson::DateTime(_) => return Ok(value.clone()),
        Bson::ObjectId(id) => id.timestamp().timestamp_millis(),
        Bson::Timestamp(at) => i64::from(at.time) * 1000,
        Bson::String(text) => {
            calendar::parse(text, None, None).map_err(|failure| failed(failure.message))?
        }
        Bson::Int32(_) => return Err(unsupported(value, "date")),
        value => match Number::of_bson(value) {
            Some(number) => number.to_i64_clamped(),
            None => return Err(unsupported(value, "date")),
        },
    };
    Ok(Bson::DateTime(DateTime::from_millis(millis)))
}

/// A double as `$toString` writes it: the shortest digits that give it back, with an exponent where it is very large or small.
pub(crate) fn double_text(n: f64) -> String {
    if n.is_nan() {
        return "NaN".to_owned();
    }
    if n.is_infinite() {
        return if n > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let size = n.abs();
    if n != 0.0 && !(1e-5..1e15).contains(&size) {
        let text = format!("{n:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        return format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs());
    }
    n.to_string()
}
