//! Moments: parsing, printing and reckoning with dates of the Gregorian calendar.

use std::fmt;

/// Ticks of 100 nanoseconds in a millisecond.
pub const TICKS_PER_MILLI: i64 = 10_000;
const TICKS_PER_SECOND: i64 = 1000 * TICKS_PER_MILLI;
const TICKS_PER_DAY: i64 = 86_400 * TICKS_PER_SECOND;

/// A moment within the years 1 to 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Since 1970.
    pub ticks: i64,
}

/// A part of a date or time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Year.
    Year,
    /// Month, 1 to 12.
    Month,
    /// Day of the month.
    Day,
    /// Hour, 0 to 23.
    Hour,
    /// Minute.
    Minute,
    /// Second.
    Second,
    /// Thousandths of the second.
    Millisecond,
    /// Millionths of the second.
    Microsecond,
    /// Billionths of the second, in steps of 100.
    Nanosecond,
}

impl Part {
    /// The part of this name or abbreviation, in any case.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "year" | "yyyy" | "yy" => Part::Year,
            "month" | "mm" | "m" => Part::Month,
            "day" | "dd" | "d" => Part::Day,
            "hour" | "hh" => Part::Hour,
            "minute" | "mi" | "n" => Part::Minute,
            "second" | "ss" | "s" => Part::Second,
            "millisecond" | "ms" => Part::Millisecond,
            "microsecond" | "mcs" => Part::Microsecond,
            "nanosecond" | "ns" => Part::Nanosecond,
            _ => return None,
        })
    }

    /// How many ticks it lasts; `None` for those that vary or are shorter than a tick.
    pub fn ticks(self) -> Option<i64> {
        Some(match self {
            Part::Year | Part::Month | Part::Nanosecond => return None,
            Part::Day => TICKS_PER_DAY,
            Part::Hour => 3600 * TICKS_PER_SECOND,
            Part::Minute => 60 * TICKS_PER_SECOND,
            Part::Second => TICKS_PER_SECOND,
            Part::Millisecond => TICKS_PER_MILLI,
            Part::Microsecond => 10,
        })
    }
}

impl Moment {
    /// The moment with this number, if it lies within the calendar.
    pub fn from_ticks(ticks: i64) -> Option<Self> {
        let years = days_from_date(1, 1, 1)..days_from_date(10_000, 1, 1);
        years.contains(&ticks.div_euclid(TICKS_PER_DAY)).then_some(Self { ticks })
    }

    /// From year, month, day, hour, minute, second and ticks of the second.
    pub fn from_parts([year, month, day, hour, minute, second, ticks]: [i64; 7]) -> Option<Self> {
        let valid = (1..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=days_in_month(year, month)).contains(&day)
            && (0..24).contains(&hour)
            && (0..60).contains(&minute)
            && (0..60).contains(&second)
            && (0..TICKS_PER_SECOND).contains(&ticks);
        valid.then(|| {
            let seconds = hour * 3600 + minute * 60 + second;
            let days = days_from_date(year, month, day);
            Self { ticks: days * TICKS_PER_DAY + seconds * TICKS_PER_SECOND + ticks }
        })
    }

    /// Reads `YYYY-MM-DD`, then nothing or `T` (or a blank) and `hh:mm:ss` with up to seven digits
    /// of a fraction, then nothing or `Z`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_suffix('Z').unwrap_or(text);
        let (date, time) = match text.split_once(['T', ' ']) {
            Some((date, time)) => (date, Some(time)),
            None => (text, None),
        };
        let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
        let Some(time) = time else {
            return Self::from_parts([year, month, day, 0, 0, 0, 0]);
        };
        let (time, ticks) = match time.split_once('.') {
            None => (time, 0),
            Some((time, fraction)) => {
                let digits = fraction.len();
                let valid =
                    (1..=7).contains(&digits) && fraction.bytes().all(|b| b.is_ascii_digit());
                let fraction: i64 = if valid { fraction.parse().ok()? } else { return None };
                (time, fraction * 10i64.pow(7 - digits as u32))
            }
        };
        let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
        Self::from_parts([year, month, day, hour, minute, second, ticks])
    }

    /// Milliseconds since 1970.
    pub fn millis(&self) -> i64 {
        self.ticks.div_euclid(TICKS_PER_MILLI)
    }

    /// One part of it.
    pub fn part(&self, part: Part) -> i64 {
        let (year, month, day) = date_from_days(self.ticks.div_euclid(TICKS_PER_DAY));
        let of_second = self.ticks.rem_euclid(TICKS_PER_SECOND);
        let second = self.ticks.rem_euclid(TICKS_PER_DAY) / TICKS_PER_SECOND;
        match part {
            Part::Year => year,
            Part::Month => month,
            Part::Day => day,
            Part::Hour => second / 3600,
            Part::Minute => second / 60 % 60,
            Part::Second => second % 60,
            Part::Millisecond => of_second / TICKS_PER_MILLI,
            Part::Microsecond => of_second / 10,
            Part::Nanosecond => of_second * 100,
        }
    }

    /// Moved by so many of a part; a day that the target month lacks becomes its last.
    pub fn add(&self, part: Part, amount: i64) -> Option<Self> {
        let months = match part {
            Part::Year => amount.checked_mul(12)?,
            Part::Month => amount,
            Part::Nanosecond => return Self::from_ticks(self.ticks.checked_add(amount / 100)?),
            part => {
                let ticks = part.ticks()?.checked_mul(amount)?;
                return Self::from_ticks(self.ticks.checked_add(ticks)?);
            }
        };
        let month = self.part(Part::Year) * 12 + self.part(Part::Month) - 1;
        let month = month.checked_add(months)?;
        let (year, month) = (month.div_euclid(12), month.rem_euclid(12) + 1);
        if !(1..=9999).contains(&year) {
            return None;
        }
        let day = self.part(Part::Day).min(days_in_month(year, month));
        let of_day = self.ticks.rem_euclid(TICKS_PER_DAY);
        Self::from_ticks(days_from_date(year, month, day) * TICKS_PER_DAY + of_day)
    }

    /// By a pattern of letters: `yyyy MM dd HH hh mm ss fff FFF tt ddd MMM`, doubled or not, as .NET
    /// has them; a backslash makes the next character plain.
    pub fn format(&self, pattern: &str) -> String {
        let mut out = String::new();
        let mut rest = pattern.chars();
        while let Some(letter) = rest.next() {
            if letter == '\\' {
                out.extend(rest.next());
                continue;
            }
            let mut count = 1;
            while rest.as_str().starts_with(letter) {
                rest.next();
                count += 1;
            }
            self.format_letters(letter, count, &mut out);
        }
        out
    }

    fn format_letters(&self, letter: char, count: usize, out: &mut String) {
        const DAYS: [&str; 7] =
            ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];
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
        let named = |name: &str| if count == 3 { name[..3].to_owned() } else { name.to_owned() };
        let hour = self.part(Part::Hour);
        let number = match letter {
            'y' if count <= 2 => self.part(Part::Year) % 100,
            'y' => self.part(Part::Year),
            'M' if count >= 3 => {
                out.push_str(&named(MONTHS[self.part(Part::Month) as usize - 1]));
                return;
            }
            'M' => self.part(Part::Month),
            'd' if count >= 3 => {
                let day = self.ticks.div_euclid(TICKS_PER_DAY).rem_euclid(7) as usize;
                out.push_str(&named(DAYS[day]));
                return;
            }
            'd' => self.part(Part::Day),
            'H' => hour,
            'h' => (hour + 11) % 12 + 1,
            'm' => self.part(Part::Minute),
            's' => self.part(Part::Second),
            'f' | 'F' if count <= 7 => {
                let digits = format!("{:07}", self.ticks.rem_euclid(TICKS_PER_SECOND));
                let digits = &digits[..count];
                out.push_str(if letter == 'F' { digits.trim_end_matches('0') } else { digits });
                return;
            }
            't' => {
                let half = if hour < 12 { "AM" } else { "PM" };
                out.push_str(&half[..count.min(2)]);
                return;
            }
            other => {
                out.extend(std::iter::repeat_n(other, count));
                return;
            }
        };
        out.push_str(&format!("{number:0count$}"));
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |part| self.part(part);
        write!(f, "{:04}-{:02}-{:02}", part(Part::Year), part(Part::Month), part(Part::Day))?;
        write!(f, "T{:02}:{:02}:{:02}", part(Part::Hour), part(Part::Minute), part(Part::Second))?;
        write!(f, ".{:07}Z", self.ticks.rem_euclid(TICKS_PER_SECOND))
    }
}

/// Three numbers of given widths between separators.
fn numbers(text: &str, separator: char, widths: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; 3];
    for (number, width) in numbers.iter_mut().zip(widths) {
        let part = parts.next()?;
        if part.len() != width || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970. Years are counted from March, so that a leap day comes last.
fn days_from_date(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day of a number of days since 1970.
fn date_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_agree() {
        for days in (-719_162..2_932_896).step_by(97) {
            let (year, month, day) = date_from_days(days);
            assert_eq!(days_from_date(year, month, day), days);
        }
        assert_eq!(date_from_days(0), (1970, 1, 1));
        assert_eq!(date_from_days(19_782), (2024, 2, 29));
    }
}
