//! Dates and times: strings such as `2024-02-29T12:34:56.7890000Z`, always UTC.
//!
//! Inside, a moment is a number of *ticks* of 100 nanoseconds since 1970. Anything that is no
//! date, or lies outside the years 1 to 9999, is undefined.

use super::calendar::{Moment, Part, TICKS_PER_MILLI};
use super::{Function, Host, pure, timely};
use crate::value::Value;

/// The family's table.
pub const FUNCTIONS: &[Function] = &[
    timely("AGO", (2, 2), |host, args| shifted(&now(host), &args[0], &args[1], -1.0)),
    pure("DATETIMEADD", (3, 3), |_, args| match moment(&args[2]) {
        Some(moment) => shifted(&moment, &args[0], &args[1], 1.0),
        None => Value::Undefined,
    }),
    pure("DATETIMEBIN", (2, 4), bin),
    pure("DATETIMEDIFF", (3, 3), difference),
    pure("DATETIMEFORMAT", (2, 2), |_, args| match (moment(&args[0]), args[1].as_str()) {
        (Some(moment), Some(format)) => moment.format(format).into(),
        _ => Value::Undefined,
    }),
    pure("DATETIMEFROMPARTS", (3, 7), from_parts),
    pure("DATETIMEPART", (2, 2), |_, args| match (part(&args[0]), moment(&args[1])) {
        (Some(part), Some(moment)) => moment.part(part).into(),
        _ => Value::Undefined,
    }),
    pure("DATETIMETOTICKS", (1, 1), |_, args| moment(&args[0]).map(|m| m.ticks).into()),
    pure("DATETIMETOTIMESTAMP", (1, 1), |_, args| moment(&args[0]).map(|m| m.millis()).into()),
    pure("DAY", (1, 1), |_, args| moment(&args[0]).map(|m| m.part(Part::Day)).into()),
    timely("GETCURRENTDATETIME", (0, 0), |host, _| now(host).to_string().into()),
    timely("GETCURRENTDATETIMESTATIC", (0, 0), |host, _| now(host).to_string().into()),
    timely("GETCURRENTTICKS", (0, 0), |host, _| now(host).ticks.into()),
    timely("GETCURRENTTICKSSTATIC", (0, 0), |host, _| now(host).ticks.into()),
    timely("GETCURRENTTIMESTAMP", (0, 0), |host, _| host.now_millis.into()),
    timely("GETCURRENTTIMESTAMPSTATIC", (0, 0), |host, _| host.now_millis.into()),
    pure("IS_DATETIME", (1, 1), |_, args| moment(&args[0]).is_some().into()),
    pure("MONTH", (1, 1), |_, args| moment(&args[0]).map(|m| m.part(Part::Month)).into()),
    timely("NOW", (0, 2), |host, args| match args {
        [] => now(host).to_string().into(),
        [part, amount] => shifted(&now(host), part, amount, 1.0),
        _ => Value::Undefined,
    }),
    pure("TICKSTODATETIME", (1, 1), |_, args| {
        args[0].as_i64().and_then(Moment::from_ticks).map(|m| m.to_string()).into()
    }),
    pure("TIMESTAMPTODATETIME", (1, 1), |_, args| {
        let ticks = args[0].as_i64().and_then(|millis| millis.checked_mul(TICKS_PER_MILLI));
        ticks.and_then(Moment::from_ticks).map(|m| m.to_string()).into()
    }),
    pure("YEAR", (1, 1), |_, args| moment(&args[0]).map(|m| m.part(Part::Year)).into()),
];

fn now(host: &Host) -> Moment {
    let ticks = host.now_millis.saturating_mul(TICKS_PER_MILLI);
    Moment::from_ticks(ticks).unwrap_or(Moment { ticks: 0 })
}

fn moment(value: &Value<'_>) -> Option<Moment> {
    Moment::parse(value.as_str()?)
}

fn part(value: &Value<'_>) -> Option<Part> {
    Part::named(value.as_str()?)
}

/// A moment moved by an amount of a part.
fn shifted<'a>(moment: &Moment, name: &Value<'a>, amount: &Value<'a>, sign: f64) -> Value<'a> {
    match (part(name), amount.as_f64()) {
        (Some(part), Some(amount)) => {
            moment.add(part, (sign * amount).trunc() as i64).map(|m| m.to_string()).into()
        }
        _ => Value::Undefined,
    }
}

/// The start of the bin that a moment falls into. Years and months, which differ in length, make no
/// bins.
fn bin<'a>(_: &Host, args: &[Value<'a>]) -> Value<'a> {
    let (Some(moment), Some(part)) = (moment(&args[0]), part(&args[1])) else {
        return Value::Undefined;
    };
    let size = match args.get(2).map(Value::as_i64) {
        None => 1,
        Some(Some(size)) if size >= 1 => size,
        Some(_) => return Value::Undefined,
    };
    let origin = match args.get(3).map(self::moment) {
        None => Moment { ticks: 0 },
        Some(Some(origin)) => origin,
        Some(None) => return Value::Undefined,
    };
    // A bin of nanoseconds is counted in ticks of a hundred.
    let width = match part {
        Part::Nanosecond => Some((size / 100).max(1)),
        part => part.ticks().and_then(|ticks| ticks.checked_mul(size)),
    };
    let Some(width) = width else { return Value::Undefined };
    let within = (moment.ticks - origin.ticks).rem_euclid(width);
    Moment::from_ticks(moment.ticks - within).map(|m| m.to_string()).into()
}

/// How many boundaries of the part lie between two moments.
fn difference<'a>(_: &Host, args: &[Value<'a>]) -> Value<'a> {
    let (Some(part), Some(start), Some(end)) = (part(&args[0]), moment(&args[1]), moment(&args[2]))
    else {
        return Value::Undefined;
    };
    let years = end.part(Part::Year) - start.part(Part::Year);
    match part {
        Part::Year => years.into(),
        Part::Month => (years * 12 + end.part(Part::Month) - start.part(Part::Month)).into(),
        Part::Nanosecond => ((end.ticks - start.ticks) * 100).into(),
        part => {
            let Some(ticks) = part.ticks() else { return Value::Undefined };
            (end.ticks.div_euclid(ticks) - start.ticks.div_euclid(ticks)).into()
        }
    }
}

/// Year, month, day, hour, minute, second, and the fraction of a second in ticks.
fn from_parts<'a>(_: &Host, args: &[Value<'a>]) -> Value<'a> {
    let mut parts = [0; 7];
    for (part, arg) in parts.iter_mut().zip(args) {
        match arg.as_i64() {
            Some(value) => *part = value,
            None => return Value::Undefined,
        }
    }
    Moment::from_parts(parts).map(|m| m.to_string()).into()
}
