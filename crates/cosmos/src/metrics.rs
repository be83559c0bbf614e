//! The counters of both front ends ([`db::traffic`]), as Prometheus reads them, and what this one counts.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use db::traffic::{BOUNDS_MICROS, OUTCOMES, Operation, Outcome, Traffic};
use http::StatusCode;

use crate::call::Intent;
use crate::headers;

/// How a status counts.
pub(crate) fn outcome(status: StatusCode) -> Outcome {
    match status.as_u16() {
        304 => Outcome::NotModified,
        429 => Outcome::Throttled,
        500.. => Outcome::Failed,
        400.. => Outcome::Refused,
        _ => Outcome::Ok,
    }
}

/// The counters as text.
pub(crate) fn write(traffic: &Traffic, out: &mut String) -> std::fmt::Result {
    let operations = || traffic.apis().into_iter().flat_map(|(_, api)| api.operations());
    writeln!(
        out,
        "# HELP sidereal_requests_total Requests by what they were about and how they ended."
    )?;
    writeln!(out, "# TYPE sidereal_requests_total counter")?;
    for operation in operations() {
        let name = operation.name;
        for (outcome, count) in OUTCOMES.iter().zip(operation.outcomes()) {
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
    for operation in operations() {
        write_times(operation, out)?;
    }
    let help = "Connections now open.";
    writeln!(out, "# HELP sidereal_connections {help}\n# TYPE sidereal_connections gauge")?;
    for (api, counters) in traffic.apis() {
        let open = counters.connections.load(Ordering::Relaxed);
        writeln!(out, r#"sidereal_connections{{api="{api}"}} {open}"#)?;
    }
    Ok(())
}

fn write_times(operation: &Operation, out: &mut String) -> std::fmt::Result {
    let (name, counts) = (operation.name, operation.buckets());
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
    writeln!(out, r#"sidereal_request_seconds_bucket{{operation="{name}",le="+Inf"}} {total}"#)?;
    let secs = operation.micros() as f64 / 1e6;
    writeln!(out, r#"sidereal_request_seconds_sum{{operation="{name}"}} {secs}"#)?;
    writeln!(out, r#"sidereal_request_seconds_count{{operation="{name}"}} {total}"#)
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

/// The place in [`db::traffic::NOSQL`]: from the number of segments of the path, which tells resources apart.
pub(crate) fn operation(head: &http::request::Parts) -> usize {
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
