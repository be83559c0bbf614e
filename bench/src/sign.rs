//! Master-key signatures, made anew for every request as an SDK does, but without allocating.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// The emulator's key, which is public and which the server takes by default.
pub const KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// Signs requests; keeps the key's half of the work and the text of the current second.
#[derive(Clone)]
pub struct Signer {
    mac: Hmac<Sha256>,
    second: u64,
    date: String,
    date_lower: String,
    text: Vec<u8>,
}

impl Signer {
    /// A signer with a base64 key.
    pub fn new(key: &str) -> Self {
        let key = STANDARD.decode(key).expect("the key is base64");
        let mac = Hmac::new_from_slice(&key).expect("any length of key will do");
        Self { mac, second: 0, date: String::new(), date_lower: String::new(), text: Vec::new() }
    }

    /// Appends the two headers that authorize a request.
    pub fn sign(&mut self, verb: &str, path: &str, out: &mut Vec<u8>) {
        self.refresh();
        let (kind, link) = resource(path);
        self.text.clear();
        for part in [&verb.to_ascii_lowercase(), kind, link, &self.date_lower, ""] {
            self.text.extend_from_slice(part.as_bytes());
            self.text.push(b'\n');
        }
        let mut mac = self.mac.clone();
        mac.update(&self.text);
        let mut signature = [0; 44];
        let length = STANDARD
            .encode_slice(mac.finalize().into_bytes(), &mut signature)
            .expect("32 bytes are 44 characters");
        out.extend_from_slice(b"x-ms-date: ");
        out.extend_from_slice(self.date.as_bytes());
        out.extend_from_slice(b"\r\nauthorization: type%3Dmaster%26ver%3D1.0%26sig%3D");
        for &byte in &signature[..length] {
            match byte {
                b'+' => out.extend_from_slice(b"%2B"),
                b'/' => out.extend_from_slice(b"%2F"),
                b'=' => out.extend_from_slice(b"%3D"),
                _ => out.push(byte),
            }
        }
        out.extend_from_slice(b"\r\n");
    }

    fn refresh(&mut self) {
        let second = unix_secs();
        if second != self.second {
            self.second = second;
            self.date = http_date(second);
            self.date_lower = self.date.to_ascii_lowercase();
        }
    }
}

/// The second it is.
pub fn unix_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is after 1970").as_secs()
}

/// The resource type and link that a path stands for: a feed signs its parent, a resource signs itself.
fn resource(path: &str) -> (&str, &str) {
    let path = path.split('?').next().unwrap_or_default().trim_matches('/');
    if path.is_empty() {
        return ("", "");
    }
    match path.split('/').count() % 2 {
        1 => match path.rsplit_once('/') {
            Some((link, kind)) => (kind, link),
            None => (path, ""),
        },
        _ => {
            let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
            (parent.rsplit_once('/').map_or(parent, |(_, kind)| kind), path)
        }
    }
}

/// `Sun, 15 Nov 2026 10:17:10 GMT`.
fn http_date(second: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (year, month, day) = civil(second / 86_400);
    let weekday = DAYS[(second / 86_400 % 7) as usize];
    let month = MONTHS[month as usize - 1];
    let (hour, minute) = (second / 3_600 % 24, second / 60 % 60);
    format!("{weekday}, {day:02} {month} {year} {hour:02}:{minute:02}:{:02} GMT", second % 60)
}

/// Year, month and day of a day number since 1970, counting years from March so that leap days come last.
pub fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_sign_as_their_resource() {
        assert_eq!(resource("/"), ("", ""));
        assert_eq!(resource("/dbs"), ("dbs", ""));
        assert_eq!(resource("/dbs/d"), ("dbs", "dbs/d"));
        assert_eq!(resource("/dbs/d/colls/c/docs"), ("docs", "dbs/d/colls/c"));
        assert_eq!(resource("/dbs/d/colls/c/docs/1"), ("docs", "dbs/d/colls/c/docs/1"));
    }

    #[test]
    fn dates_are_rfc_1123() {
        assert_eq!(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http_date(1_794_737_830), "Sun, 15 Nov 2026 10:17:10 GMT");
        assert_eq!(http_date(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
    }
}
