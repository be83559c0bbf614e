//! Counters of the front end, as Prometheus reads them.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::StatusCode;

use crate::call::Intent;
use crate::headers;

/// What a request was about, as far as metrics tell them apart.
const OPERATIONS: [&str; 9] =
    ["account", "database", "container", "read", "write", "list", "query", "changes", "other"];

/// How requests end, as far as metrics tell them apart.
const OUTCOMES: [&str; 5] = ["ok", "not_modified", "refused", "throttled", "failed"];

/// Upper bounds of the latency buckets, in microseconds.
const BOUNDS_MICROS: [u64; 12] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 2_000_000];

/// Counters since the start.
#[derive(Default)]
pub(crate) struct Metrics {
    operations: [Operation; OPERATIONS.len()],
    /// Connections now open.
    pub(crate) connections: AtomicU64,
}

/// Sums over all operations since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// Requests answered.
    pub(crate) requests: u64,
    /// Of these, with 429.
    pub(crate) throttled: u64,
    /// Of these, with 500 or more.
    pub(crate) failed: u64,
    /// Microseconds they took together.
    pub(crate) micros: u64,
}

#[derive(Default)]
struct Operation {
    outcomes: [AtomicU64; OUTCOMES.len()],
    buckets: [AtomicU64; BOUNDS_MICROS.len() + 1],
    micros: AtomicU64,
}

impl Metrics {
    /// Counts a request that took `time`.
    pub(crate) fn count(&self, head: &http::request::Parts, status: StatusCode, time: Duration) {
        let operation = &self.operations[operation(head)];
        let outcome = match status.as_u16() {
            304 => 1,
            429 => 3,
            500.. => 4,
            400.. => 2,
            _ => 0,
        };
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket =
            BOUNDS_MICROS.iter().position(|bound| micros <= *bound).unwrap_or(BOUNDS_MICROS.len());
        operation.outcomes[outcome].fetch_add(1, Ordering::Relaxed);
        operation.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        operation.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// The counters over all operations.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for operation in &self.operations {
            let [ok, same, refused, throttled, failed] =
                operation.outcomes.each_ref().map(|count| count.load(Ordering::Relaxed));
            totals.requests += ok + same + refused + throttled + failed;
            totals.throttled += throttled;
            totals.failed += failed;
            totals.micros += operation.micros.load(Ordering::Relaxed);
        }
        totals
    }

    /// The counters as text.
    pub(crate) fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "# HELP sidereal_requests_total Requests by what they were about and how they ended."
        )?;
        writeln!(out, "# TYPE sidereal_requests_total counter")?;
        for (name, operation) in OPERATIONS.iter().zip(&self.operations) {
            for (outcome, count) in OUTCOMES.iter().zip(&operation.outcomes) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    writeln!(
                        out,
                        r#"sidereal_requests_total{{operation="{name}",outcome="{outcome}"}} {count}"#
                    )?;
                }
            }
        }
        writeln!(out, "# HELP sidereal_request_seconds Time from a request's head to its answer.")?;
        writeln!(out, "# TYPE sidereal_request_seconds histogram")?;
        for (name, operation) in OPERATIONS.iter().zip(&self.operations) {
            operation.write_times(name, out)?;
        }
        gauge(
            out,
            "sidereal_connections",
            "Connections now open.",
            self.connections.load(Ordering::Relaxed),
        )
    }
}

impl Operation {
    fn write_times(&self, name: &str, out: &mut String) -> std::fmt::Result {
        let counts = self.buckets.each_ref().map(|count| count.load(Ordering::Relaxed));
        let total: u64 = counts.iter().sum();
        if total == 0 {
            return Ok(());
        }
        let mut sum = 0;
        for (bound, count) in BOUNDS_MICROS.iter().zip(counts) {
            sum += count;
            let secs = *bound as f64 / 1e6;
            writeln!(
                out,
                r#"sidereal_request_seconds_bucket{{operation="{name}",le="{secs}"}} {sum}"#
            )?;
        }
        writeln!(
            out,
            r#"sidereal_request_seconds_bucket{{operation="{name}",le="+Inf"}} {total}"#
        )?;
        let secs = self.micros.load(Ordering::Relaxed) as f64 / 1e6;
        writeln!(out, r#"sidereal_request_seconds_sum{{operation="{name}"}} {secs}"#)?;
        writeln!(out, r#"sidereal_request_seconds_count{{operation="{name}"}} {total}"#)
    }
}

/// Writes one gauge with its description.
pub(crate) fn gauge(
    out: &mut String,
    name: &str,
    help: &str,
    value: impl std::fmt::Display,
) -> std::fmt::Result {
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}")
}

/// Writes one counter with its description.
pub(crate) fn counter(
    out: &mut String,
    name: &str,
    help: &str,
    value: impl std::fmt::Display,
) -> std::fmt::Result {
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}")
}

/// The place in [`OPERATIONS`]: from the number of segments of the path, which tells resources apart.
fn operation(head: &http::request::Parts) -> usize {
    let path = head.uri.path().trim_end_matches('/');
    let depth = path.bytes().filter(|byte| *byte == b'/').count();
    let get = head.method == http::Method::GET || head.method == http::Method::HEAD;
    let databases = path.get(..4).is_some_and(|first| first.eq_ignore_ascii_case("/dbs"));
    match depth {
        0 => 0,
        _ if !databases => 8,
        1 | 2 => 1,
        3 | 4 => 2,
        5 if get && head.headers.contains_key(&headers::A_IM) && path.ends_with("docs") => 7,
        5 if get => 5,
        5 => match Intent::of(&head.headers) {
            Intent::Query | Intent::Plan => 6,
            Intent::Create | Intent::Upsert | Intent::Batch => 4,
        },
        6 if get => 3,
        6 => 4,
        _ => 8,
    }
}
