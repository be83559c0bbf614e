//! What the server has been doing: a ring of samples for plots, and the latest slow queries.
//!
//! Nothing here reads a clock: whoever samples says when it is.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use model::clock::Timestamp;
use serde_json::{Value, json};

/// Samples that are kept: an hour, one every [`SAMPLE_SECS`].
const SAMPLES_MAX: usize = 360;

/// How often to sample.
pub const SAMPLE_SECS: u64 = 10;

/// Slow queries that are kept.
const SLOW_MAX: usize = 50;

/// From when on a query is slow.
const SLOW: Duration = Duration::from_millis(100);

/// How much of a slow query's text is kept.
const TEXT_MAX: usize = 2_000;

/// Counters and gauges at one moment; counters since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) at: Timestamp,
    pub(crate) requests: u64,
    pub(crate) throttled: u64,
    pub(crate) failed: u64,
    pub(crate) micros: u64,
    pub(crate) charge: f64,
    pub(crate) purged: u64,
    pub(crate) seconds_behind: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) connections: u64,
}

/// A query that took long.
#[derive(Clone, Debug)]
struct SlowQuery {
    at: Timestamp,
    path: String,
    text: String,
    took: Duration,
    ok: bool,
}

/// What is remembered.
#[derive(Default)]
pub(crate) struct History {
    samples: Mutex<VecDeque<Sample>>,
    slow: Mutex<VecDeque<SlowQuery>>,
}

impl History {
    /// Remembers a sample.
    pub(crate) fn push(&self, sample: Sample) {
        let mut samples = lock(&self.samples);
        if samples.len() == SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// Remembers a query if it was slow; its text is only asked for then.
    pub(crate) fn note(
        &self,
        at: Timestamp,
        took: Duration,
        (path, ok): (&str, bool),
        text: impl FnOnce() -> String,
    ) {
        if took < SLOW {
            return;
        }
        let text = text().chars().take(TEXT_MAX).collect();
        let mut slow = lock(&self.slow);
        if slow.len() == SLOW_MAX {
            slow.pop_front();
        }
        slow.push_back(SlowQuery { at, path: path.to_owned(), text, took, ok });
    }

    /// The samples, oldest first, a list for each number; rates are those between a sample and the one before.
    pub(crate) fn to_json(&self) -> Value {
        let samples: Vec<Sample> = lock(&self.samples).iter().copied().collect();
        let pairs: Vec<(&Sample, &Sample)> = samples.iter().zip(samples.iter().skip(1)).collect();
        let rates = |of: fn(&Sample) -> f64| -> Vec<f64> {
            let rate = |(before, after): &(&Sample, &Sample)| {
                let secs = after.at.since(before.at).max(1) as f64;
                ((of(after) - of(before)) / secs * 100.0).round() / 100.0
            };
            pairs.iter().map(rate).collect()
        };
        let gauges = |of: fn(&Sample) -> u64| -> Vec<u64> {
            pairs.iter().map(|(_, after)| of(after)).collect()
        };
        let mean = |(before, after): &(&Sample, &Sample)| {
            let requests = after.requests.saturating_sub(before.requests);
            let micros = after.micros.saturating_sub(before.micros);
            (requests > 0).then(|| micros as f64 / requests as f64 / 1e3)
        };
        json!({
            "everySeconds": SAMPLE_SECS,
            "at": gauges(|sample| sample.at.0),
            "requestsPerSecond": rates(|sample| sample.requests as f64),
            "throttledPerSecond": rates(|sample| sample.throttled as f64),
            "failedPerSecond": rates(|sample| sample.failed as f64),
            "requestUnitsPerSecond": rates(|sample| sample.charge),
            "millisecondsMean": pairs.iter().map(mean).collect::<Vec<_>>(),
            "purgedPerSecond": rates(|sample| sample.purged as f64),
            "secondsBehind": gauges(|sample| sample.seconds_behind),
            "diskBytes": gauges(|sample| sample.disk_bytes),
            "memoryBytes": gauges(|sample| sample.memory_bytes),
            "connections": gauges(|sample| sample.connections),
        })
    }

    /// The latest slow queries, newest first.
    pub(crate) fn slow_queries(&self) -> Value {
        let slow = |query: &SlowQuery| {
            json!({
                "at": query.at.0,
                "container": query.path,
                "query": query.text,
                "milliseconds": query.took.as_secs_f64() * 1e3,
                "ok": query.ok,
            })
        };
        lock(&self.slow).iter().rev().map(slow).collect()
    }
}

/// Memory that the process occupies, where the system tells.
pub(crate) fn memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kilobytes * 1_024)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics while it holds the history")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_kept_and_rates_are_differences() {
        let history = History::default();
        for number in 0..400 {
            let at = Timestamp(1_000 + number * SAMPLE_SECS);
            history.push(Sample { at, requests: number * 50, ..Sample::default() });
        }
        let json = history.to_json();
        let rates = json["requestsPerSecond"].as_array().unwrap();
        assert_eq!(rates.len(), SAMPLES_MAX - 1);
        assert!(rates.iter().all(|rate| *rate == 5.0));
        assert_eq!(json["at"][0], 1_000 + 41 * SAMPLE_SECS);
    }

    #[test]
    fn only_slow_queries_are_kept() {
        let history = History::default();
        let note = |millis, text: &str| {
            let took = Duration::from_millis(millis);
            history.note(Timestamp(5), took, ("dbs/d/colls/c", true), || text.to_owned());
        };
        note(99, "quick");
        note(100, "slow");
        let slow = history.slow_queries();
        assert_eq!(slow.as_array().unwrap().len(), 1);
        assert_eq!(slow[0]["query"], "slow");
    }
}
