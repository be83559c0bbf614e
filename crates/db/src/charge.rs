//! Request units: what operations cost, and the bucket they are paid from.
//!
//! Calibrated to the published figures: reads and writes follow the service's own table of sizes; an insert of 1 KB with default
//! indexing is between 5 and 7; a replace removes and inserts. `charge_tests.rs` of the NoSQL front end has them all in one table.

use std::time::Duration;

/// Request units.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct RequestCharge(pub f64);

impl std::ops::AddAssign for RequestCharge {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

/// The charge of a request that found or did nothing.
pub(crate) const MISS: RequestCharge = RequestCharge(1.0);

/// The charge of writing or reading a definition.
pub const CATALOG: RequestCharge = RequestCharge(1.0);

/// A point read of so many bytes.
pub(crate) fn read(bytes: usize) -> RequestCharge {
    RequestCharge(by_size(bytes, |published| published.read))
}

/// An insert or a delete.
pub(crate) fn write(bytes: usize, terms: usize) -> RequestCharge {
    // The published write is of an item with hardly anything to index: one term.
    let terms = terms as f64 - 1.0;
    RequestCharge(by_size(bytes, |published| published.write) + 0.05 * terms)
}

/// A page of a list, query or feed: items looked at, their bytes, and index entries read.
pub(crate) fn scan(items: usize, bytes: usize, entries: usize) -> RequestCharge {
    RequestCharge(2.3 + 0.02 * items as f64 + bytes as f64 / 40_960.0 + 0.005 * entries as f64)
}

/// A page of the change feed: changes looked at, and the bytes given. Reading in the order of changes asks nothing of an index.
pub(crate) fn feed(changes: usize, bytes: usize) -> RequestCharge {
    RequestCharge(1.0 + 0.015 * changes as f64 + bytes as f64 / 51_200.0)
}

/// What the service is documented to charge at a size.
struct Published {
    kilobytes: f64,
    read: f64,
    write: f64,
}

const fn published(kilobytes: f64, read: f64, write: f64) -> Published {
    Published { kilobytes, read, write }
}

const PUBLISHED: [Published; 12] = [
    published(1.0, 1.0, 4.95),
    published(2.0, 1.04, 6.29),
    published(4.0, 1.14, 6.67),
    published(8.0, 1.33, 7.04),
    published(16.0, 1.67, 9.52),
    published(32.0, 2.19, 11.23),
    published(64.0, 4.76, 22.67),
    published(128.0, 9.95, 48.19),
    published(256.0, 20.28, 98.29),
    published(512.0, 40.95, 184.57),
    published(1024.0, 145.9, 625.0),
    published(2048.0, 291.8, 1250.0),
];

/// The published charge, and between two published sizes what a straight line gives.
fn by_size(bytes: usize, charge: impl Fn(&Published) -> f64) -> f64 {
    if bytes <= 1024 {
        return charge(&PUBLISHED[0]);
    }
    let kilobytes = bytes as f64 / 1024.0;
    let above = PUBLISHED.partition_point(|published| published.kilobytes < kilobytes);
    let above = above.min(PUBLISHED.len() - 1);
    let (low, high) = (&PUBLISHED[above - 1], &PUBLISHED[above]);
    let part = (kilobytes - low.kilobytes) / (high.kilobytes - low.kilobytes);
    charge(low) + part * (charge(high) - charge(low))
}

/// Request units as they come in and are spent, for one partition.
///
/// It fills at `rate` a second up to one second's worth. What would overflow is what no client can use any more: that, and only
/// that, is left for the purge (R20).
#[derive(Debug)]
pub(crate) struct Bucket {
    /// Request units a second; `None` has no limit (serverless).
    rate: Option<f64>,
    tokens: f64,
    spare: f64,
    filled_at: Duration,
}

/// A client may overdraw by so many seconds' worth before it has to wait.
const DEBT_SECS_MAX: f64 = 1.0;

impl Bucket {
    pub fn new(rate: Option<f64>, at: Duration) -> Self {
        Self { rate, tokens: rate.unwrap_or_default(), spare: 0.0, filled_at: at }
    }

    /// Request units that come in a second, if they are limited.
    #[cfg(test)]
    pub fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// Changes the rate; what has been saved up or overdrawn stays.
    pub fn set_rate(&mut self, rate: Option<f64>, at: Duration) {
        self.fill(at);
        self.rate = rate;
        self.tokens = self.tokens.min(rate.unwrap_or_default());
    }

    /// Whether a client's request may start; if not, after how many milliseconds.
    pub fn admit(&mut self, at: Duration) -> Result<(), u64> {
        self.fill(at);
        match self.rate {
            Some(rate) if self.tokens <= 0.0 => {
                Err(((-self.tokens / rate) * 1000.0).ceil().max(1.0) as u64)
            }
            _ => Ok(()),
        }
    }

    /// A client's request has cost this much.
    pub fn spend(&mut self, charge: RequestCharge, at: Duration) {
        self.fill(at);
        if let Some(rate) = self.rate {
            self.tokens = (self.tokens - charge.0).max(-rate * DEBT_SECS_MAX);
        }
    }

    /// What the purge may spend now; `None` has no limit.
    pub fn spare(&mut self, at: Duration) -> Option<f64> {
        self.fill(at);
        self.rate.map(|_| self.spare)
    }

    /// The purge has spent this much.
    pub fn spend_spare(&mut self, charge: RequestCharge) {
        self.spare -= charge.0;
    }

    fn fill(&mut self, at: Duration) {
        let Some(rate) = self.rate else { return };
        let gained = rate * at.saturating_sub(self.filled_at).as_secs_f64();
        self.filled_at = self.filled_at.max(at);
        let full = self.tokens + gained;
        self.tokens = full.min(rate);
        self.spare = (self.spare + full - self.tokens).min(rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: f64) -> Duration {
        Duration::from_secs_f64(secs)
    }

    #[test]
    fn charges_follow_the_published_sizes() {
        assert_eq!(read(100).0, 1.0);
        for published in &PUBLISHED {
            let bytes = published.kilobytes as usize * 1024;
            assert!((read(bytes).0 - published.read).abs() < 1e-9);
            assert!((write(bytes, 1).0 - published.write).abs() < 1e-9);
        }
        // Between them and beyond them it goes on growing.
        let sizes: Vec<f64> = (1..4_096).map(|kilobytes| read(kilobytes * 1024).0).collect();
        assert!(sizes.is_sorted_by(|small, large| small < large));
    }

    #[test]
    fn a_bucket_refuses_when_it_is_empty_and_says_for_how_long() {
        let mut bucket = Bucket::new(Some(400.0), secs(0.0));
        assert_eq!(bucket.admit(secs(0.0)), Ok(()));
        bucket.spend(RequestCharge(600.0), secs(0.0));
        assert_eq!(bucket.admit(secs(0.0)), Err(500));
        assert_eq!(bucket.admit(secs(0.6)), Ok(()));
    }

    #[test]
    fn ttl_r20_the_purge_gets_only_what_overflows() {
        let mut bucket = Bucket::new(Some(100.0), secs(0.0));
        for second in 0..=10 {
            bucket.spend(RequestCharge(100.0), secs(f64::from(second)));
            assert_eq!(bucket.spare(secs(f64::from(second))), Some(0.0), "clients use it all");
        }
        assert_eq!(bucket.spare(secs(11.0)), Some(0.0), "the clients' second is saved first");
        assert_eq!(bucket.spare(secs(11.5)), Some(50.0), "then the rest is left over");
        assert_eq!(bucket.spare(secs(60.0)), Some(100.0), "at most a second's worth");
    }
}
