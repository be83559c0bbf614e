//! `GET /metrics`: the numbers of `/_admin/status` as Prometheus reads them.

use std::fmt::{Display, Write};

use bytes::Bytes;
use db::{TtlLag, Usage};
use http::{HeaderValue, StatusCode};

use crate::FrontEnd;
use crate::answer::Answer;
use crate::call::Call;
use crate::error::Result;
use crate::history::memory_bytes;
use crate::metrics::{counter, gauge};

/// `GET /metrics`
pub(crate) async fn read(front_end: &FrontEnd, call: &Call<'_>) -> Result<Answer> {
    let lags = call.db.lag().await?;
    let mut text = String::with_capacity(8 * 1024);
    write(front_end, call, &lags, &mut text).expect("writing to memory cannot fail");
    let mut answer = Answer::empty(StatusCode::OK);
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    answer.headers.insert(http::header::CONTENT_TYPE, kind);
    answer.body = Bytes::from(text);
    Ok(answer)
}

fn write(
    front_end: &FrontEnd,
    call: &Call<'_>,
    lags: &[TtlLag],
    out: &mut String,
) -> std::fmt::Result {
    crate::metrics::write(call.db.traffic(), out)?;
    let stats = call.db.engine_stats();
    writeln!(
        out,
        "# HELP sidereal_build_info What runs here.\n# TYPE sidereal_build_info gauge\n\
         sidereal_build_info{{version=\"{}\",engine=\"{}\"}} 1",
        env!("CARGO_PKG_VERSION"),
        stats.engine
    )?;
    let uptime = front_end.clock.stopwatch().as_secs();
    gauge(out, "sidereal_uptime_seconds", "Seconds since the start.", uptime)?;
    let help = "The second it is, on the clock that TTL goes by.";
    gauge(out, "sidereal_now_seconds", help, call.db.now())?;
    if let Some(bytes) = memory_bytes() {
        gauge(out, "sidereal_memory_bytes", "Memory of the process.", bytes)?;
    }
    gauge(out, "sidereal_storage_bytes", "Bytes on disk, journals included.", stats.disk_bytes)?;
    gauge(out, "sidereal_storage_journal_bytes", "Bytes of journals.", stats.journal_bytes)?;
    counter(out, "sidereal_storage_commits_total", "Batches committed.", stats.commits)?;
    counter(out, "sidereal_storage_syncs_total", "Syncs that made them durable.", stats.syncs)?;
    write_usage(&call.db.usage(), out)?;
    write_lags(lags, out)?;
    let mut progress = Vec::new();
    for database in call.db.databases() {
        for container in call.db.containers(&database.id).unwrap_or_default() {
            let percent = container.index_progress();
            if percent < 100 {
                progress.push((database.id.clone(), container.id().to_owned(), percent));
            }
        }
    }
    let help = "How much of the index follows the policy in force, while it is rebuilt.";
    family(out, ("sidereal_index_progress_percent", "gauge", help), &progress, |row| {
        (&row.0, &row.1, Some(row.2))
    })
}

fn write_usage(all: &[Usage], out: &mut String) -> std::fmt::Result {
    type Value = fn(&Usage) -> Option<f64>;
    let families: [(&str, &str, &str, Value); 5] = [
        (
            "sidereal_container_items",
            "gauge",
            "Items in storage, expired ones included until they are purged.",
            |usage| Some(usage.items as f64),
        ),
        ("sidereal_container_bytes", "gauge", "Bytes of their bodies.", |usage| {
            Some(usage.bytes as f64)
        }),
        (
            "sidereal_request_units_total",
            "counter",
            "Request units that clients have used.",
            |usage| Some(usage.charge),
        ),
        (
            "sidereal_throttled_total",
            "counter",
            "Requests refused for want of request units.",
            |usage| Some(usage.throttled as f64),
        ),
        (
            "sidereal_ttl_budget_request_units",
            "gauge",
            "Request units that the purge may use now; absent where it has no limit.",
            |usage| usage.spare,
        ),
    ];
    for (name, kind, help, value) in families {
        family(out, (name, kind, help), all, |usage| {
            (&usage.database, &usage.container, value(usage))
        })?;
    }
    Ok(())
}

fn write_lags(all: &[TtlLag], out: &mut String) -> std::fmt::Result {
    type Value = fn(&TtlLag) -> f64;
    let families: [(&str, &str, &str, Value); 4] = [
        ("sidereal_ttl_items_behind", "gauge", "Expired items still in storage.", |lag| {
            lag.items as f64
        }),
        (
            "sidereal_ttl_seconds_behind",
            "gauge",
            "Seconds since the oldest of them expired.",
            |lag| lag.secs as f64,
        ),
        ("sidereal_ttl_purged_total", "counter", "Expired items removed from storage.", |lag| {
            lag.purged as f64
        }),
        ("sidereal_ttl_charge_total", "counter", "Request units that the purge has used.", |lag| {
            lag.charge
        }),
    ];
    for (name, kind, help, value) in families {
        family(out, (name, kind, help), all, |lag| {
            (&lag.database, &lag.container, Some(value(lag)))
        })?;
    }
    Ok(())
}

/// Writes a number of each container; rows without one are left out.
fn family<'a, T, V: Display>(
    out: &mut String,
    (name, kind, help): (&str, &str, &str),
    rows: &'a [T],
    read: impl Fn(&'a T) -> (&'a str, &'a str, Option<V>),
) -> std::fmt::Result {
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}")?;
    for row in rows {
        let (database, container, value) = read(row);
        let (database, container) = (label(database), label(container));
        if let Some(value) = value {
            writeln!(out, r#"{name}{{database="{database}",container="{container}"}} {value}"#)?;
        }
    }
    Ok(())
}

fn label(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}
