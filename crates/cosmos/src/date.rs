//! Dates as HTTP writes them: `Thu, 27 Apr 2017 00:51:12 GMT`.

use std::fmt;

use model::clock::Timestamp;

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Reads a date, whatever the case of its letters; Go's clients write UTC for GMT. The name of the day is not compared with the date.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    let text: &[u8; 29] = text.as_bytes().try_into().ok()?;
    // Each part has its place: this is read with every request.
    let fixed = text[3..5] == *b", "
        && [text[7], text[11], text[16], text[25]] == *b"    "
        && [text[19], text[22]] == *b"::"
        && (text[26..].eq_ignore_ascii_case(b"GMT") || text[26..].eq_ignore_ascii_case(b"UTC"));
    let month =
        1 + MONTHS.iter().position(|name| name.as_bytes().eq_ignore_ascii_case(&text[8..11]))?
            as u64;
    let (day, year) = (digits(&text[5..7])?, digits(&text[12..16])?);
    let (hour, minute, second) =
        (digits(&text[17..19])?, digits(&text[20..22])?, digits(&text[23..25])?);
    let legal = fixed
        && (1..=31).contains(&day)
        && year >= 1970
        && hour < 24
        && minute < 60
        && second <= 60;
    legal.then(|| Timestamp(days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second))
}

/// An instant as HTTP writes it.
pub struct HttpDate(pub Timestamp);

impl fmt::Display for HttpDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (day, time) = (self.0.0 / 86_400, self.0.0 % 86_400);
        let (year, month, date) = date(day);
        let (name, month) = (DAYS[(day % 7) as usize], MONTHS[month as usize - 1]);
        let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
        write!(f, "{name}, {date:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
    }
}

fn digits(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0, |sum, digit| {
        digit.is_ascii_digit().then(|| sum * 10 + u64::from(digit - b'0'))
    })
}

/// Days from 1970-01-01 to a date. Years are counted from March, so that the leap day comes last.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    year * 365 + leap_days + (month * 153 + 2) / 5 + day - 719_469
}

/// The date `days` after 1970-01-01: the inverse of [`days`].
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (year, month) = (era * 400 + year, month + 3);
    if month > 12 { (year + 1, month - 12, date) } else { (year, month, date) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_and_written() {
        for (text, secs) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Thu, 27 Apr 2017 00:51:12 GMT", 1_493_254_272),
            ("Sat, 29 Feb 2020 23:59:59 GMT", 1_583_020_799),
            ("Fri, 31 Dec 9999 23:59:59 GMT", 253_402_300_799),
        ] {
            assert_eq!(parse(text), Some(Timestamp(secs)), "{text}");
            assert_eq!(parse(&text.to_lowercase()), Some(Timestamp(secs)), "{text}");
            assert_eq!(parse(&text.replace("GMT", "UTC")), Some(Timestamp(secs)), "{text}");
            assert_eq!(HttpDate(Timestamp(secs)).to_string(), text);
        }
    }

    #[test]
    fn every_day_comes_back() {
        for day in 0..200_000 {
            let secs = Timestamp(day * 86_400 + 12_345);
            assert_eq!(parse(&HttpDate(secs).to_string()), Some(secs));
        }
    }

    #[test]
    fn what_is_not_a_date_is_refused() {
        for bad in [
            "",
            "yesterday",
            "Thu, 27 Apr 2017 00:51:12",
            "Thu, 27 Apr 2017 00:51:12 CET",
            "Thu, 27 Abc 2017 00:51:12 GMT",
            "Thu, 27 Apr 2017 24:00:00 GMT",
            "Thu, 27 Apr 1969 00:00:00 GMT",
            "Thu, 00 Apr 2017 00:00:00 GMT",
            "2017-04-27T00:51:12Z",
            "Thu, 2７ Apr 2017 00:51:12 GMT",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
