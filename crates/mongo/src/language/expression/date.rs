//! Dates: their parts, arithmetic with calendar units, and text.

use bson::{Bson, DateTime, doc};

use super::NamedFunction;
use super::calendar::{self, DAY_MILLIS, Parts, Zone, days, iso_day, month_days};
use super::eval::{Scope, is_nullish, kind};
use crate::language::failure::{Failure, Result};
use crate::language::number::Number;
use crate::language::value::shown;

const fn part(
    name: &'static str,
    call: fn(&[Option<Bson>], &Scope<'_>) -> Result<Bson>,
) -> NamedFunction {
    NamedFunction { name, names: &["date", "timezone"], required: 1, call }
}

pub(super) const NAMED: &[NamedFunction] = &[
    part("$year", |v, _| of(v, |p| p.year)),
    part("$month", |v, _| of(v, |p| p.month)),
    part("$dayOfMonth", |v, _| of(v, |p| p.day)),
    part("$dayOfWeek", |v, _| of(v, |p| p.weekday() + 1)),
    part("$dayOfYear", |v, _| of(v, |p| p.day_of_year())),
    part("$week", |v, _| of(v, |p| p.week())),
    part("$hour", |v, _| of(v, |p| p.hour)),
    part("$minute", |v, _| of(v, |p| p.minute)),
    part("$second", |v, _| of(v, |p| p.second)),
    part("$millisecond", |v, _| of(v, |p| p.milli)),
    part("$isoDayOfWeek", |v, _| of(v, |p| (p.weekday() + 6) % 7 + 1)),
    part("$isoWeek", |v, _| of(v, |p| p.iso_week().1)),
    part("$isoWeekYear", |v, _| match of(v, |p| p.iso_week().0)? {
        Bson::Int32(year) => Ok(Bson::Int64(i64::from(year))),
        other => Ok(other),
    }),
    NamedFunction {
        name: "$dateToParts",
        names: &["date", "timezone", "iso8601"],
        required: 1,
        call: |v, _| to_parts(v),
    },
    NamedFunction {
        name: "$dateFromParts",
        names: &PARTS,
        required: 0,
        call: |v, _| from_parts(v),
    },
    NamedFunction {
        name: "$dateToString",
        names: &["date", "format", "timezone", "onNull"],
        required: 1,
        call: |v, _| to_string(v),
    },
    NamedFunction {
        name: "$dateFromString",
        names: &["dateString", "format", "timezone", "onError", "onNull"],
        required: 1,
        call: |v, _| from_string(v),
    },
    NamedFunction {
        name: "$dateAdd",
        names: &["startDate", "unit", "amount", "timezone"],
        required: 3,
        call: |v, _| shift("$dateAdd", v, 1),
    },
    NamedFunction {
        name: "$dateSubtract",
        names: &["startDate", "unit", "amount", "timezone"],
        required: 3,
        call: |v, _| shift("$dateSubtract", v, -1),
    },
    NamedFunction {
        name: "$dateDiff",
        names: &["startDate", "endDate", "unit", "timezone", "startOfWeek"],
        required: 3,
        call: |v, _| difference(v),
    },
    NamedFunction {
        name: "$dateTrunc",
        names: &["date", "unit", "binSize", "timezone", "startOfWeek"],
        required: 2,
        call: |v, _| truncate(v),
    },
];

/// Whether an operator takes a date without naming it.
pub(super) fn is_part(name: &str) -> bool {
    matches!(
        name,
        "$year"
            | "$month"
            | "$dayOfMonth"
            | "$dayOfWeek"
            | "$dayOfYear"
            | "$week"
            | "$hour"
            | "$minute"
            | "$second"
            | "$millisecond"
            | "$isoDayOfWeek"
            | "$isoWeek"
            | "$isoWeekYear"
    )
}

/// The moment that a value stands for; none for null.
fn moment(value: Option<&Bson>) -> Result<Option<i64>> {
    match value {
        None => Ok(None),
        Some(Bson::DateTime(at)) => Ok(Some(at.timestamp_millis())),
        Some(Bson::Timestamp(at)) => Ok(Some(i64::from(at.time) * 1000)),
        Some(Bson::ObjectId(id)) => Ok(Some(id.timestamp().timestamp_millis())),
        Some(value) if is_nullish(value) => Ok(None),
        Some(other) => Err(Failure::coded(
            16006,
            format!("can't convert from BSON type {} to Date", kind(other)),
        )),
    }
}

/// The zone of an argument: UTC if it is not there, none if it is null.
fn zone(value: Option<&Bson>) -> Result<Option<Zone>> {
    match value {
        None => Ok(Some(Zone::UTC)),
        Some(Bson::String(text)) => Zone::parse(text).map(Some),
        Some(value) if is_nullish(value) => Ok(None),
        Some(other) => Err(Failure::coded(
            40517,
            format!("timezone must evaluate to a string, found {}", kind(other)),
        )),
    }
}

fn of(values: &[Option<Bson>], get: fn(&Parts) -> i64) -> Result<Bson> {
    let (Some(millis), Some(zone)) = (moment(values[0].as_ref())?, zone(values[1].as_ref())?)
    else {
        return Ok(Bson::Null);
    };
    Ok(Bson::Int32(get(&Parts::of(zone.local(millis))) as i32))
}

fn date(millis: i64) -> Bson {
    Bson::DateTime(DateTime::from_millis(millis))
}

fn to_parts(values: &[Option<Bson>]) -> Result<Bson> {
    let (Some(millis), Some(zone)) = (moment(values[0].as_ref())?, zone(values[1].as_ref())?)
    else {
        return Ok(Bson::Null);
    };
    let iso = match &values[2] {
        None => false,
        Some(Bson::Boolean(flag)) => *flag,
        Some(value) if is_nullish(value) => return Ok(Bson::Null),
        Some(other) => {
            return Err(Failure::coded(
                40521,
                format!("iso8601 must evaluate to a bool, found {}", kind(other)),
            ));
        }
    };
    let parts = Parts::of(zone.local(millis));
    let mut out = if iso {
        let (year, week) = parts.iso_week();
        doc! {
            "isoWeekYear": year as i32,
            "isoWeek": week as i32,
            "isoDayOfWeek": ((parts.weekday() + 6) % 7 + 1) as i32,
        }
    } else {
        doc! { "year": parts.year as i32, "month": parts.month as i32, "day": parts.day as i32 }
    };
    out.extend(doc! {
        "hour": parts.hour as i32,
        "minute": parts.minute as i32,
        "second": parts.second as i32,
        "millisecond": parts.milli as i32,
    });
    Ok(Bson::Document(out))
}

/// The arguments of `$dateFromParts`: numbers, and at the end the time zone.
const PARTS: [&str; 11] = [
    "year",
    "month",
    "day",
    "isoWeekYear",
    "isoWeek",
    "isoDayOfWeek",
    "hour",
    "minute",
    "second",
    "millisecond",
    "timezone",
];

fn from_parts(values: &[Option<Bson>]) -> Result<Bson> {
    let mut numbers = [None; PARTS.len() - 1];
    for (at, name) in PARTS[..numbers.len()].iter().enumerate() {
        numbers[at] = match &values[at] {
            None => None,
            Some(value) if is_nullish(value) => return Ok(Bson::Null),
            Some(value) => {
                let wrong = || {
                    Failure::coded(
                        40515,
                        format!(
                            "'{name}' must evaluate to an integer, found {} with value {}",
                            kind(value),
                            shown(value)
                        ),
                    )
                };
                let number =
                    Number::of_bson(value).and_then(Number::to_i64_exact).ok_or_else(wrong)?;
                if !(-32_768..=32_767).contains(&number) && at < 8 {
                    return Err(Failure::coded(
                        31034,
                        format!(
                            "'{name}' must evaluate to a value in the range [-32768, 32767]; value {number} is not in range"
                        ),
                    ));
                }
                Some(number)
            }
        };
    }
    let [year, month, day, iso_year, iso_week, iso_weekday, hour, minute, second, milli] = numbers;
    let Some(zone) = zone(values[10].as_ref())? else { return Ok(Bson::Null) };
    let day_number = match (year, iso_year) {
        (Some(_), Some(_)) => {
            return Err(Failure::coded(
                40489,
                "$dateFromParts does not allow mixing natural dates with ISO dates",
            ));
        }
        (None, None) => {
            return Err(Failure::coded(
                40516,
                "$dateFromParts requires either 'year' or 'isoWeekYear' to be present",
            ));
        }
        (Some(year), None) => {
            if iso_week.is_some() || iso_weekday.is_some() {
                return Err(Failure::coded(
                    40489,
                    "$dateFromParts does not allow mixing natural dates with ISO dates",
                ));
            }
            check_year("year", year)?;
            days(year, month.unwrap_or(1), 1) + day.unwrap_or(1) - 1
        }
        (None, Some(year)) => {
            if month.is_some() || day.is_some() {
                return Err(Failure::coded(
                    40525,
                    "$dateFromParts does not allow mixing ISO dates with natural dates",
                ));
            }
            check_year("isoWeekYear", year)?;
            iso_day(year, iso_week.unwrap_or(1), iso_weekday.unwrap_or(1))
        }
    };
    let clock = Parts {
        year: 1970,
        month: 1,
        day: 1,
        hour: hour.unwrap_or(0),
        minute: minute.unwrap_or(0),
        second: second.unwrap_or(0),
        milli: milli.unwrap_or(0),
    };
    let local = clock
        .local()
        .and_then(|clock| day_number.checked_mul(DAY_MILLIS)?.checked_add(clock))
        .ok_or_else(|| Failure::coded(15, "date overflow"))?;
    Ok(date(zone.moment(local)))
}

fn check_year(name: &str, year: i64) -> Result<()> {
    if (1..=9999).contains(&year) {
        return Ok(());
    }
    Err(Failure::coded(
        40523,
        format!("'{name}' must evaluate to an integer in the range 1 to 9999, found {year}"),
    ))
}

fn to_string(values: &[Option<Bson>]) -> Result<Bson> {
    let format = match &values[1] {
        None => None,
        Some(Bson::String(format)) => Some(format.as_str()),
        Some(value) if is_nullish(value) => return Ok(Bson::Null),
        Some(other) => {
            return Err(Failure::coded(
                18533,
                format!(
                    "$dateToString requires that 'format' be a string, found: {} with value {}",
                    kind(other),
                    shown(other)
                ),
            ));
        }
    };
    let zone_given = values[2].is_some();
    let Some(zone) = zone(values[2].as_ref())? else { return Ok(Bson::Null) };
    let Some(millis) = moment(values[0].as_ref())? else {
        return Ok(values[3].clone().unwrap_or(Bson::Null));
    };
    let utc = !zone_given || zone.offset_at(millis) == 0;
    let format =
        format.unwrap_or(if utc { "%Y-%m-%dT%H:%M:%S.%LZ" } else { "%Y-%m-%dT%H:%M:%S.%L" });
    calendar::format(format, millis, &zone).map(Bson::String)
}

fn from_string(values: &[Option<Bson>]) -> Result<Bson> {
    let on_error = |failure: Failure| match &values[3] {
        Some(value) => Ok(value.clone()),
        None => Err(failure),
    };
    let format = match &values[1] {
        None => None,
        Some(Bson::String(format)) => Some(format.as_str()),
        Some(value) if is_nullish(value) => return Ok(Bson::Null),
        Some(other) => {
            return Err(Failure::coded(
                40684,
                format!(
                    "$dateFromString requires that 'format' be a string, found: {} with value {}",
                    kind(other),
                    shown(other)
                ),
            ));
        }
    };
    let zone = match &values[2] {
        None => None,
        given => match zone(given.as_ref())? {
            Some(zone) => Some(zone),
            None => return Ok(Bson::Null),
        },
    };
    match &values[0] {
        Some(Bson::String(text)) => match calendar::parse(text, format, zone.as_ref()) {
            Ok(millis) => Ok(date(millis)),
            Err(failure) => on_error(failure),
        },
        Some(value) if is_nullish(value) => Ok(values[4].clone().unwrap_or(Bson::Null)),
        other => on_error(Failure::coded(
            241,
            format!(
                "$dateFromString requires that 'dateString' be a string, found: {}",
                other.as_ref().map_or("missing", kind)
            ),
        )),
    }
}

/// A unit of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// So many months.
    Months(i64),
    /// So many milliseconds of a clock on the wall: days and weeks.
    Days(i64),
    /// So many milliseconds.
    Millis(i64),
}

impl Unit {
    pub fn parse(operator: &str, value: &Bson) -> Result<Self> {
        let Bson::String(name) = value else {
            return Err(Failure::coded(
                5439013,
                format!("{operator} requires 'unit' to be a string, but got {}", kind(value)),
            ));
        };
        Ok(match name.as_str() {
            "year" => Self::Months(12),
            "quarter" => Self::Months(3),
            "month" => Self::Months(1),
            "week" => Self::Days(7),
            "day" => Self::Days(1),
            "hour" => Self::Millis(3_600_000),
            "minute" => Self::Millis(60_000),
            "second" => Self::Millis(1000),
            "millisecond" => Self::Millis(1),
            _ => {
                return Err(Failure::failed_to_parse(format!("unknown time unit value: {name}")));
            }
        })
    }

    /// So many units later; months end where the shorter month does.
    pub fn add(self, millis: i64, amount: i64, zone: &Zone) -> Option<i64> {
        match self {
            Self::Millis(unit) => millis.checked_add(unit.checked_mul(amount)?),
            Self::Days(unit) => {
                let by = unit.checked_mul(amount)?.checked_mul(DAY_MILLIS)?;
                Some(zone.moment(zone.local(millis).checked_add(by)?))
            }
            Self::Months(unit) => {
                let parts = Parts::of(zone.local(millis));
                let months = (parts.month - 1).checked_add(unit.checked_mul(amount)?)?;
                let (year, month) = (parts.year + months.div_euclid(12), months.rem_euclid(12) + 1);
                if year.abs() > 290_000_000 {
                    return None;
                }
                let day = parts.day.min(month_days(year, month));
                Some(zone.moment(Parts { year, month, day, ..parts }.local()?))
            }
        }
    }
}

fn shift(name: &str, values: &[Option<Bson>], sign: i64) -> Result<Bson> {
    if values.iter().flatten().any(is_nullish) {
        return Ok(Bson::Null);
    }
    let start = match moment(values[0].as_ref()) {
        Ok(Some(start)) => start,
        _ => {
            return Err(Failure::coded(
                5166403,
                format!("{name} requires startDate to be convertible to a date"),
            ));
        }
    };
    let unit = Unit::parse(name, values[1].as_ref().unwrap_or(&Bson::Null))?;
    let amount =
        values[2].as_ref().and_then(Number::of_bson).and_then(Number::to_i64_exact).ok_or_else(
            || Failure::coded(5166405, format!("{name} expects integer amount of time units")),
        )?;
    let zone = zone(values[3].as_ref())?.unwrap_or(Zone::UTC);
    amount
        .checked_mul(sign)
        .and_then(|amount| unit.add(start, amount, &zone))
        .map(date)
        .ok_or_else(|| Failure::coded(5166406, format!("{name} overflowed")))
}

/// The weekday that weeks begin with, from Sunday 0.
fn start_of_week(name: &str, value: Option<&Bson>) -> Result<i64> {
    let Some(value) = value else { return Ok(0) };
    let Bson::String(day) = value else {
        return Err(Failure::coded(
            5439015,
            format!("{name} requires 'startOfWeek' to be a string, but got {}", kind(value)),
        ));
    };
    let day = day.to_lowercase();
    ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"]
        .iter()
        .position(|full| *full == day || full[..3] == day)
        .map(|at| at as i64)
        .ok_or_else(|| Failure::failed_to_parse(format!("unknown day of week value: {day}")))
}

/// The number of the week that a day belongs to.
fn week_number(day: i64, start: i64) -> i64 {
    // Day 0 was a Thursday.
    (day + 4 - start).div_euclid(7)
}

fn difference(values: &[Option<Bson>]) -> Result<Bson> {
    if values.iter().flatten().any(is_nullish) {
        return Ok(Bson::Null);
    }
    let at = |value: &Option<Bson>, which: &str| match moment(value.as_ref()) {
        Ok(Some(millis)) => Ok(millis),
        _ => Err(Failure::coded(5166307, format!("$dateDiff requires '{which}' to be a date"))),
    };
    let (start, end) = (at(&values[0], "startDate")?, at(&values[1], "endDate")?);
    let unit = Unit::parse("$dateDiff", values[2].as_ref().unwrap_or(&Bson::Null))?;
    let zone = zone(values[3].as_ref())?.unwrap_or(Zone::UTC);
    let (a, b) = (zone.local(start), zone.local(end));
    let count = match unit {
        Unit::Months(months) => {
            let number = |local| {
                let parts = Parts::of(local);
                (parts.year * 12 + parts.month - 1).div_euclid(months)
            };
            number(b) - number(a)
        }
        Unit::Days(1) => b.div_euclid(DAY_MILLIS) - a.div_euclid(DAY_MILLIS),
        Unit::Days(_) => {
            let first = start_of_week("$dateDiff", values[4].as_ref())?;
            week_number(b.div_euclid(DAY_MILLIS), first)
                - week_number(a.div_euclid(DAY_MILLIS), first)
        }
        // Clocks that jump do not change how many hours there were.
        Unit::Millis(unit) => {
            let shift = zone.offset_at(start) * 1000;
            end.saturating_add(shift).div_euclid(unit)
                - start.saturating_add(shift).div_euclid(unit)
        }
    };
    Ok(Bson::Int64(count))
}

fn truncate(values: &[Option<Bson>]) -> Result<Bson> {
    if values.iter().flatten().any(is_nullish) {
        return Ok(Bson::Null);
    }
    let millis = match moment(values[0].as_ref()) {
        Ok(Some(millis)) => millis,
        _ => return Err(Failure::coded(5439012, "$dateTrunc requires 'date' to be a date")),
    };
    let unit = Unit::parse("$dateTrunc", values[1].as_ref().unwrap_or(&Bson::Null))?;
    let bin = match &values[2] {
        None => 1,
        Some(value) => Number::of_bson(value)
            .and_then(Number::to_i64_exact)
            .filter(|bin| *bin > 0)
            .ok_or_else(|| {
                Failure::coded(
                    5439018,
                    format!(
                        "$dateTrunc requires 'binSize' to be greater than 0, but got value {}",
                        shown(value)
                    ),
                )
            })?,
    };
    let zone = zone(values[3].as_ref())?.unwrap_or(Zone::UTC);
    let local = zone.local(millis);
    // Bins are counted from the beginning of 2000.
    let epoch = days(2000, 1, 1);
    let cut = match unit {
        Unit::Months(months) => {
            let parts = Parts::of(local);
            let size = months.saturating_mul(bin);
            let number = ((parts.year - 2000) * 12 + parts.month - 1).div_euclid(size) * size;
            let year = number.div_euclid(12).saturating_add(2000).clamp(-300_000_000, 300_000_000);
            days(year, number.rem_euclid(12) + 1, 1).checked_mul(DAY_MILLIS)
        }
        Unit::Days(1) => floored(local.div_euclid(DAY_MILLIS), epoch, bin)
            .and_then(|day| day.checked_mul(DAY_MILLIS)),
        Unit::Days(_) => {
            let first = start_of_week("$dateTrunc", values[4].as_ref())?;
            // The first such weekday of 2000 or after; 1 January 2000 was a Saturday.
            let anchor = epoch + (first - 6).rem_euclid(7);
            floored(local.div_euclid(DAY_MILLIS), anchor, bin.saturating_mul(7))
                .and_then(|day| day.checked_mul(DAY_MILLIS))
        }
        Unit::Millis(unit) => {
            let shift = zone.offset_at(millis) * 1000;
            let at = millis.checked_add(shift);
            let at = at.and_then(|at| floored(at, epoch * DAY_MILLIS, unit.saturating_mul(bin)));
            let at = at.and_then(|at| at.checked_sub(shift));
            return at.map(date).ok_or_else(out_of_range);
        }
    };
    let cut = cut.ok_or_else(out_of_range)?;
    Ok(date(zone.moment(cut)))
}

fn out_of_range() -> Failure {
    Failure::coded(15, "date overflow")
}

/// The start of the bin that a place falls into, bins of a size being counted from an anchor.
fn floored(at: i64, anchor: i64, size: i64) -> Option<i64> {
    at.checked_sub(anchor)?.div_euclid(size).checked_mul(size)?.checked_add(anchor)
}
