//! Request units: what operations cost, and the bucket they are paid from.
//!
//! Calibrated to the published figures: a point read of 1 KB is 1, of 100 KB 10; an insert of 1 KB with default indexing is
//! between 5 and 6; a replace removes and inserts.

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
    RequestCharge(size_factor(bytes))
}

/// An insert or a delete.
pub(crate) fn write(bytes: usize, terms: usize) -> RequestCharge {
    RequestCharge(4.9 * size_factor(bytes) + 0.05 * terms as f64)
}

/// A page of a list, query or feed: items looked at, their bytes, and index entries read.
pub(crate) fn scan(items: usize, bytes: usize, entries: usize) -> RequestCharge {
    RequestCharge(2.3 + 0.02 * items as f64 + bytes as f64 / 40_960.0 + 0.005 * entries as f64)
}

/// A page of the change feed: changes looked at, and the bytes given. Reading in the order of changes asks nothing of an index.
pub(crate) fn feed(changes: usize, bytes: usize) -> RequestCharge {
    RequestCharge(1.0 + 0.015 * changes as f64 + bytes as f64 / 51_200.0)
}

/// 1 at up to 1 KB, 10 at 100 KB, in a straight line.
fn size_factor(bytes: usize) -> f64 {
    let kilobytes = (bytes as f64 / 1024.0).max(1.0);
    1.0 + (kilobytes - 1.0) * (9.0 / 99.0)
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
    fn charges_agree_with_published_figures() {
        assert_eq!(read(100).0, 1.0);
        assert_eq!(read(1024).0, 1.0);
        assert!((read(100 * 1024).0 - 10.0).abs() < 1e-9);
        assert!((5.0..=7.0).contains(&write(1024, 12).0));
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
