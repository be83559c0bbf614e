//! `/_admin/status` and `/_admin/history`: the numbers of `/metrics` for people, and the last hour of them.

use std::sync::atomic::Ordering;

use http::StatusCode;
use serde_json::{Value, json};

use crate::FrontEnd;
use crate::answer::Answer;
use crate::call::Call;
use crate::error::Result;
use crate::history::{Sample, memory_bytes};
use crate::query;

/// `GET /_admin/status`
pub(crate) async fn status(front_end: &FrontEnd, call: &Call<'_>) -> Result<Answer> {
    let stats = call.db.engine_stats();
    let totals = call.db.traffic().totals();
    let lags = call.db.lag().await?;
    let container = |usage: &db::Usage| {
        let is =
            |lag: &&db::TtlLag| lag.database == usage.database && lag.container == usage.container;
        let lag = lags.iter().find(is);
        json!({
            "database": usage.database,
            "container": usage.container,
            "items": usage.items,
            "bytes": usage.bytes,
            "requestCharge": usage.charge,
            "throttled": usage.throttled,
            "budget": usage.spare,
            "itemsBehind": lag.map_or(0, |lag| lag.items),
            "secondsBehind": lag.map_or(0, |lag| lag.secs),
            "purged": lag.map_or(0, |lag| lag.purged),
        })
    };
    let usage = call.db.usage();
    let body = json!({
        "status": if front_end.stopping.load(Ordering::Relaxed) { "stopping" } else { "ok" },
        "version": env!("CARGO_PKG_VERSION"),
        "engine": stats.engine,
        "now": call.db.now().0,
        "clock": super::clock(call),
        "uptimeSeconds": front_end.clock.stopwatch().as_secs(),
        "diskBytes": stats.disk_bytes,
        "journalBytes": stats.journal_bytes,
        "commits": stats.commits,
        "syncs": stats.syncs,
        "memoryBytes": memory_bytes(),
        "connections": call.db.traffic().connections(),
        "requests": totals.requests,
        "throttled": totals.throttled,
        "failed": totals.failed,
        "requestCharge": usage.iter().map(|usage| usage.charge).sum::<f64>(),
        "containers": usage.iter().map(container).collect::<Vec<_>>(),
        "slowQueries": front_end.history.slow_queries(),
    });
    Ok(Answer::json(StatusCode::OK, &body))
}

/// `GET /_admin/history`
pub(crate) fn history(front_end: &FrontEnd) -> Result<Answer> {
    Ok(Answer::json(StatusCode::OK, &front_end.history.to_json()))
}

/// Runs a query, and remembers it if it was slow.
pub(crate) async fn watch(
    front_end: &FrontEnd,
    call: &mut Call<'_>,
    database: &str,
    container: &str,
) -> Result<Answer> {
    let (begun, body) = (front_end.clock.stopwatch(), call.body.clone());
    let answer = query::run(call, database, container).await;
    let took = front_end.clock.stopwatch().saturating_sub(begun);
    let path = format!("dbs/{database}/colls/{container}");
    let text = || match serde_json::from_slice::<Value>(&body) {
        Ok(body) => body["query"].as_str().unwrap_or_default().to_owned(),
        Err(_) => String::new(),
    };
    front_end.history.note(front_end.clock.now(), took, (&path, answer.is_ok()), text);
    answer
}

impl FrontEnd {
    /// Takes a sample for the plots of the last hour; to be called every [`crate::SAMPLE_SECS`].
    pub async fn sample(&self) {
        let totals = self.db.traffic().totals();
        let usage = self.db.usage();
        self.history.push(Sample {
            at: self.clock.now(),
            requests: totals.requests,
            throttled: totals.throttled,
            failed: totals.failed,
            micros: totals.micros,
            charge: usage.iter().map(|usage| usage.charge).sum(),
            purged: self.db.purged(),
            // A store that cannot be read says so elsewhere.
            seconds_behind: self.db.seconds_behind().await.unwrap_or_default(),
            disk_bytes: self.db.engine_stats().disk_bytes,
            memory_bytes: memory_bytes().unwrap_or_default(),
            connections: self.db.traffic().connections(),
        });
    }
}
