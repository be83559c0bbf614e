//! Dates as people write them: calendar, weeks, time zones, formats. Milliseconds since 1970 on the other side.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::language::failure::{Failure, Result};

pub(crate) const DAY_MILLIS: i64 = 86_400_000;
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// A place's time.
#[derive(Clone, Debug)]
pub(crate) enum Zone {
    /// Seconds ahead of UTC.
    Offset(i64),
    Named(TimeZone),
}

impl Zone {
    pub const UTC: Self = Self::Offset(0);

    /// Reads `Europe/Berlin`, `+02:00`, `+0200`, `+02`, `UTC`.
    pub fn parse(text: &str) -> Result<Self> {
        let unknown =
            || Failure::coded(40485, format!("unrecognized time zone identifier: \"{text}\""));
        if matches!(text, "UTC" | "GMT" | "Z" | "z") {
            return Ok(Self::UTC);
        }
        if let Some(offset) = offset(text) {
            return Ok(Self::Offset(offset));
        }
        if text.is_empty() || text.starts_with(['+', '-']) {
            return Err(unknown());
        }
        TimeZone::get(text).map(Self::Named).map_err(|_| unknown())
    }

    /// Seconds ahead of UTC at a moment.
    pub fn offset_at(&self, millis: i64) -> i64 {
        match self {
            Self::Offset(seconds) => *seconds,
            Self::Named(zone) => {
                let bounded =
                    millis.clamp(Timestamp::MIN.as_millisecond(), Timestamp::MAX.as_millisecond());
                let at = Timestamp::from_millisecond(bounded).unwrap_or(Timestamp::UNIX_EPOCH);
                i64::from(zone.to_offset(at).seconds())
            }
        }
    }

    /// What a clock there shows, as if it were UTC.
    pub fn local(&self, millis: i64) -> i64 {
        millis.saturating_add(self.offset_at(millis) * 1000)
    }

    /// The moment at which a clock there shows this.
    pub fn moment(&self, local: i64) -> i64 {
        let first = local.saturating_sub(self.offset_at(local) * 1000);
        let offset = self.offset_at(first) * 1000;
        let second = local.saturating_sub(offset);
        if self.offset_at(second) * 1000 == offset { second } else { first.max(second) }
    }
}

/// `+hh`, `+hhmm` or `+hh:mm`, in seconds.
fn offset(text: &str) -> Option<i64> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'+' => (1, &text[1..]),
        b'-' => (-1, &text[1..]),
        _ => return None,
    };
    let digits: String = rest.chars().filter(|c| *c != ':').collect();
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) || !matches!(digits.len(), 2 | 4) {
        return None;
    }
    let hours: i64 = digits[..2].parse().ok()?;
    let minutes: i64 = digits.get(2..4).map_or(Some(0), |text| text.parse().ok())?;
    Some(sign * (hours * 3600 + minutes * 60))
}

/// The parts of a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    pub year: i64,
    pub month: i64,
    pub day: i64,
    pub hour: i64,
    pub minute: i64,
    pub second: i64,
    pub milli: i64,
}

/// Days since 1970 of a date of the Gregorian calendar; months and days may be out of their range.
pub(crate) fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year.saturating_add((month - 1).div_euclid(12));
    let month = (month - 1).rem_euclid(12) + 1;
    // Years are counted from March, so that a leap day ends one.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468 + day - 1
}

impl Parts {
    /// Of what a clock shows.
    pub fn of(local: i64) -> Self {
        let (day_number, rest) = (local.div_euclid(DAY_MILLIS), local.rem_euclid(DAY_MILLIS));
        let shifted = day_number + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        Self {
            year,
            month,
            day,
            hour: rest / 3_600_000,
            minute: rest / 60_000 % 60,
            second: rest / 1000 % 60,
            milli: rest % 1000,
        }
    }

    /// What a clock shows; parts may be out of their range and carry over.
    pub fn local(&self) -> Option<i64> {
        days(self.year, self.month, self.day)
            .checked_mul(DAY_MILLIS)?
            .checked_add(self.hour.checked_mul(3_600_000)?)?
            .checked_add(self.minute.checked_mul(60_000)?)?
            .checked_add(self.second.checked_mul(1000)?)?
            .checked_add(self.milli)
    }

    pub fn day_number(&self) -> i64 {
        days(self.year, self.month, self.day)
    }

    pub fn day_of_year(&self) -> i64 {
        self.day_number() - days(self.year, 1, 1) + 1
    }

    /// From Sunday, 0.
    pub fn weekday(&self) -> i64 {
        (self.day_number() + 4).rem_euclid(7)
    }

    /// The week of the year, weeks beginning on Sunday; before the first it is week 0.
    pub fn week(&self) -> i64 {
        (self.day_of_year() - 1 + 7 - self.weekday()) / 7
    }

    /// ISO 8601: the year of the week and the week.
    pub fn iso_week(&self) -> (i64, i64) {
        let weekday = (self.weekday() + 6) % 7;
        // The Thursday decides to which year a week belongs.
        let thursday = Self::of((self.day_number() - weekday + 3).saturating_mul(DAY_MILLIS));
        (thursday.year, (thursday.day_of_year() - 1) / 7 + 1)
    }
}

/// How many days a month has.
pub(crate) fn month_days(year: i64, month: i64) -> i64 {
    days(year, month + 1, 1) - days(year, month, 1)
}

/// `2024-02-29T12:34:56.789Z`.
pub(crate) fn iso(millis: i64) -> String {
    format("%Y-%m-%dT%H:%M:%S.%LZ", millis, &Zone::UTC).unwrap_or_default()
}

/// Writes a moment by a format.
pub(crate) fn format(format: &str, millis: i64, zone: &Zone) -> Result<String> {
    let parts = Parts::of(zone.local(millis));
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(char) = chars.next() {
        if char != '%' {
            out.push(char);
            continue;
        }
        let Some(specifier) = chars.next() else {
            return Err(Failure::coded(18535, "Unmatched '%' at end of format string"));
        };
        out.push_str(&match specifier {
            'Y' => {
                if !(0..=9999).contains(&parts.year) {
                    return Err(Failure::coded(
                        18537,
                        format!("Could not convert date to string: date component was outside the supported range of 0-9999: {}", parts.year),
                    ));
                }
                format!("{:04}", parts.year)
            }
            'm' => format!("{:02}", parts.month),
            'd' => format!("{:02}", parts.day),
            'H' => format!("{:02}", parts.hour),
            'M' => format!("{:02}", parts.minute),
            'S' => format!("{:02}", parts.second),
            'L' => format!("{:03}", parts.milli),
            'j' => format!("{:03}", parts.day_of_year()),
            'w' => (parts.weekday() + 1).to_string(),
            'u' => ((parts.weekday() + 6) % 7 + 1).to_string(),
            'U' => format!("{:02}", parts.week()),
            'V' => format!("{:02}", parts.iso_week().1),
            'G' => format!("{:04}", parts.iso_week().0),
            'b' => MONTHS[parts.month as usize - 1][..3].to_owned(),
            'B' => MONTHS[parts.month as usize - 1].to_owned(),
            'z' => {
                let minutes = zone.offset_at(millis) / 60;
                let sign = if minutes < 0 { '-' } else { '+' };
                format!("{sign}{:02}{:02}", minutes.abs() / 60, minutes.abs() % 60)
            }
            'Z' => (zone.offset_at(millis) / 60).to_string(),
            '%' => "%".to_owned(),
            other => {
                return Err(Failure::coded(
                    18536,
                    format!("Invalid format character '%{other}' in format string"),
                ));
            }
        });
    }
    Ok(out)
}

/// Reads a moment, by a format or in ISO 8601's ways.
pub(crate) fn parse(text: &str, format: Option<&str>, zone: Option<&Zone>) -> Result<i64> {
    let failed =
        |why: &str| Failure::coded(241, format!("Error parsing date string '{text}'; {why}"));
    let mut reader = Reader { text: text.trim(), at: 0 };
    let read = match format {
        Some(format) => reader.by_format(format),
        None => reader.iso(),
    };
    let Some(read) = read else { return Err(failed("unexpected character or incomplete date")) };
    if !reader.rest().is_empty() {
        return Err(failed("unexpected characters at the end"));
    }
    let local = read.local().ok_or_else(|| failed("out of range"))?;
    match (read.offset, zone) {
        (Some(_), Some(_)) => Err(failed(
            "you cannot pass in a date/time string with time zone information together with a timezone argument",
        )),
        (Some(offset), None) => Ok(local - offset * 1000),
        (None, Some(zone)) => Ok(zone.moment(local)),
        (None, None) => Ok(local),
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

#[derive(Default)]
struct Read {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    iso_year: Option<i64>,
    iso_week: Option<i64>,
    weekday: Option<i64>,
    time: [i64; 4],
    offset: Option<i64>,
}

impl Read {
    fn local(&self) -> Option<i64> {
        let [hour, minute, second, milli] = self.time;
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let day_number = match (self.iso_year, self.iso_week, self.day_of_year) {
            (Some(year), week, _) => iso_day(year, week.unwrap_or(1), self.weekday.unwrap_or(1)),
            (None, _, Some(day)) => days(self.year?, 1, 1) + day - 1,
            _ => {
                let (month, day) = (self.month.unwrap_or(1), self.day.unwrap_or(1));
                let year = self.year?;
                if !(1..=12).contains(&month) || day < 1 || day > month_days(year, month) {
                    return None;
                }
                days(year, month, day)
            }
        };
        Some(day_number * DAY_MILLIS + ((hour * 60 + minute) * 60 + second) * 1000 + milli)
    }
}

/// The day of an ISO week date.
pub(crate) fn iso_day(year: i64, week: i64, weekday: i64) -> i64 {
    let fourth = days(year, 1, 4);
    let monday = fourth - (fourth + 3).rem_euclid(7);
    monday + (week - 1) * 7 + weekday - 1
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn take(&mut self, wanted: char) -> Option<()> {
        let rest = self.rest();
        rest.strip_prefix(wanted)?;
        self.at += wanted.len_utf8();
        Some(())
    }

    /// Takes a character if it is there.
    fn pass(&mut self, wanted: char) {
        if self.rest().starts_with(wanted) {
            self.at += wanted.len_utf8();
        }
    }

    fn digits(&mut self, min: usize, max: usize) -> Option<i64> {
        let rest = self.rest();
        let count = rest.bytes().take(max).take_while(u8::is_ascii_digit).count();
        if count < min {
            return None;
        }
        self.at += count;
        rest[..count].parse().ok()
    }

    fn name(&mut self, names: &[&str], whole: bool) -> Option<i64> {
        let rest = self.rest();
        let found = names.iter().enumerate().find_map(|(at, name)| {
            let name = if whole { name } else { &name[..3] };
            let there = rest.get(..name.len()).is_some_and(|text| text.eq_ignore_ascii_case(name));
            there.then_some((at as i64 + 1, name.len()))
        })?;
        self.at += found.1;
        Some(found.0)
    }

    fn fraction(&mut self) -> Option<i64> {
        let rest = self.rest();
        let count = rest.bytes().take_while(u8::is_ascii_digit).count();
        if count == 0 {
            return None;
        }
        self.at += count;
        let mut millis: String = rest[..count.min(3)].to_owned();
        while millis.len() < 3 {
            millis.push('0');
        }
        millis.parse().ok()
    }

    fn zone(&mut self) -> Option<i64> {
        if self.take('Z').or_else(|| self.take('z')).is_some() {
            return Some(0);
        }
        for name in ["UTC", "GMT"] {
            if self.rest().starts_with(name) {
                self.at += 3;
                return Some(0);
            }
        }
        let rest = self.rest();
        let end = rest
            .char_indices()
            .find(|(at, c)| {
                !(c.is_ascii_digit() || *c == ':' || (*at == 0 && matches!(c, '+' | '-')))
            })
            .map_or(rest.len(), |(at, _)| at);
        let found = offset(&rest[..end])?;
        self.at += end;
        Some(found)
    }

    /// Year, month, day, and perhaps a time and an offset.
    fn iso(&mut self) -> Option<Read> {
        let mut read = Read::default();
        if self.rest().starts_with(|c: char| c.is_alphabetic()) {
            return self.spoken();
        }
        read.year = Some(self.digits(4, 4)?);
        let separated = self.take('-').or_else(|| self.take('/')).is_some();
        read.month = Some(self.digits(if separated { 1 } else { 2 }, 2)?);
        if separated && self.take('-').or_else(|| self.take('/')).is_none() {
            return Some(read);
        }
        read.day = Some(self.digits(if separated { 1 } else { 2 }, 2)?);
        if self.take('T').or_else(|| self.take('t')).or_else(|| self.take(' ')).is_none() {
            return Some(read);
        }
        self.clock(&mut read)?;
        Some(read)
    }

    /// `12:34:56.789Z` and what of it is there.
    fn clock(&mut self, read: &mut Read) -> Option<()> {
        read.time[0] = self.digits(1, 2)?;
        if self.take(':').is_some() {
            read.time[1] = self.digits(2, 2)?;
            if self.take(':').is_some() {
                read.time[2] = self.digits(2, 2)?;
                if self.take('.').or_else(|| self.take(',')).is_some() {
                    read.time[3] = self.fraction()?;
                }
            }
        } else if let Some(minute) = self.digits(2, 2) {
            read.time[1] = minute;
            read.time[2] = self.digits(2, 2).unwrap_or(0);
        }
        if self.rest().starts_with(' ') && self.rest().len() > 1 {
            self.take(' ')?;
        }
        if !self.rest().is_empty() {
            read.offset = Some(self.zone()?);
        }
        Some(())
    }

    /// `Feb 29 2024 12:34`, `February 29, 2024`.
    fn spoken(&mut self) -> Option<Read> {
        let mut read = Read::default();
        if self.name(&DAYS, true).or_else(|| self.name(&DAYS, false)).is_some() {
            self.pass(',');
            self.take(' ')?;
        }
        read.month = Some(self.name(&MONTHS, true).or_else(|| self.name(&MONTHS, false))?);
        self.take(' ')?;
        read.day = Some(self.digits(1, 2)?);
        self.pass(',');
        self.take(' ')?;
        read.year = Some(self.digits(4, 4)?);
        if self.take(' ').is_some() {
            self.clock(&mut read)?;
        }
        Some(read)
    }

    fn by_format(&mut self, format: &str) -> Option<Read> {
        let mut read = Read::default();
        let mut chars = format.chars();
        while let Some(char) = chars.next() {
            if char != '%' {
                self.take(char)?;
                continue;
            }
            match chars.next()? {
                'Y' => read.year = Some(self.digits(4, 4)?),
                'm' => read.month = Some(self.digits(1, 2)?),
                'd' => read.day = Some(self.digits(1, 2)?),
                'H' => read.time[0] = self.digits(1, 2)?,
                'M' => read.time[1] = self.digits(1, 2)?,
                'S' => read.time[2] = self.digits(1, 2)?,
                'L' => read.time[3] = self.fraction()?,
                'j' => read.day_of_year = Some(self.digits(1, 3)?),
                'G' => read.iso_year = Some(self.digits(4, 4)?),
                'V' => read.iso_week = Some(self.digits(1, 2)?),
                'u' => read.weekday = Some(self.digits(1, 1)?),
                'b' => read.month = Some(self.name(&MONTHS, false)?),
                'B' => read.month = Some(self.name(&MONTHS, true)?),
                'z' => read.offset = Some(self.zone()?),
                'Z' => {
                    let sign = if self.take('-').is_some() { -1 } else { 1 };
                    self.pass('+');
                    read.offset = Some(sign * self.digits(1, 4)? * 60);
                }
                '%' => self.take('%')?,
                _ => return None,
            }
        }
        Some(read)
    }
}
