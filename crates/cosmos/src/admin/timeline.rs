//! `/_admin/ttl/…` and `/_admin/explain/…`: what expires when, what another default would do, and why one item expires.
//!
//! Answered from the orders of expiry, never from the items: see [`db::timeline`], which also says what is exact.

use std::sync::Arc;

use db::{Container, Due, Explanation, Forecast, ReadOptions, Tally, Timeline};
use http::{HeaderValue, StatusCode};
use model::ttl::{DefaultTtl, Ttl};
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::call::Call;
use crate::error::{Failure, Result};
use crate::headers;

const MINUTE: u64 = 60;
const HOUR: u64 = 3_600;
const DAY: u64 = 86_400;

/// Each series of the answer: its name, the seconds of a step, how many steps.
const SERIES: [(&str, u64, u64); 3] =
    [("minutes", MINUTE, 60), ("hours", HOUR, 48), ("days", DAY, 30)];

/// `GET /_admin/ttl/dbs/{db}/colls/{c}`, with `?default=n`, `-1` or `off` for a dry run.
pub(crate) async fn read(call: &Call<'_>, database: &str, container: &str) -> Result<Answer> {
    let dry_run = call.query_value("default").map(parse_default).transpose()?;
    let container = call.db.owner(database, container)?;
    let timeline = call.db.timeline(&container).await?;
    let lag = call.db.lag_of(&container).await?;
    let usage = call.db.usage_of(&container);
    let (stored, now) = (timeline.stored, timeline.now);
    let mut body = json!({
        "database": container.database_id,
        "container": container.id(),
        "now": now.0,
        "defaultTtl": timeline.ttl.default.to_json(),
        "stored": tally(stored),
        "expired": due(timeline.expired()),
    });
    for (name, secs, steps) in SERIES {
        let step = |number: u64| {
            let (from, to) = (now.plus(secs * number), now.plus(secs * (number + 1)));
            let found = timeline.due(from, to);
            let mut step = due(found);
            step["until"] = to.0.into();
            // Steps in which nothing expires are left out.
            (found.total().items > 0).then_some(step)
        };
        body[name] = (0..steps).filter_map(step).collect();
    }
    let later = timeline.due(now.plus(30 * DAY), now.plus(u64::MAX / 2));
    let ever = timeline.due(now, now.plus(u64::MAX / 2)).total();
    let expired = timeline.expired().total();
    let never = Tally {
        items: stored.items.saturating_sub(ever.items + expired.items),
        bytes: stored.bytes.saturating_sub(ever.bytes + expired.bytes),
    };
    body["later"] = due(later);
    // What is not yet counted may still turn out to expire.
    body["never"] = if timeline.uncounted == 0 { tally(never) } else { Value::Null };
    body["purge"] = json!({
        "itemsBehind": expired.items,
        "secondsBehind": lag.secs,
        "purged": lag.purged,
        "requestCharge": lag.charge,
        // Request units it may use now: what clients have left over. Null is as many as it likes.
        "budget": usage.spare,
    });
    if let Some(default) = dry_run {
        body["dryRun"] = forecast(default, timeline.forecast(default));
    }
    describe_exactness(&timeline, &mut body);
    Ok(Answer::json(StatusCode::OK, &body))
}

/// `GET /_admin/explain/dbs/{db}/colls/{c}/docs/{id}`, with the partition key in its header.
pub(crate) async fn explain(
    call: &Call<'_>,
    database: &str,
    container: &str,
    id: &str,
) -> Result<Answer> {
    let container = items_of(call, database, container)?;
    let key = call.partition_key()?.ok_or_else(|| {
        Failure::bad_request("Name the item's partition key in x-ms-documentdb-partitionkey.")
    })?;
    let found = call.db.explain(&container, &key, id).await?;
    let (effective, source) = effective(&found);
    let body = json!({
        "id": found.id,
        "now": found.now.0,
        "_ts": found.ts.0,
        "ttl": match found.own {
            Ttl::Absent | Ttl::At(_) => Value::Null,
            Ttl::Never => (-1).into(),
            Ttl::Secs(secs) => secs.into(),
        },
        "defaultTtl": found.default.to_json(),
        "effectiveTtl": effective,
        "source": source,
        "expiresAt": found.expires_at.map(|at| at.0),
        "expiresIn": found.expires_at.map(|at| at.since(found.now)),
        "why": why(&found),
    });
    Ok(Answer::json(StatusCode::OK, &body))
}

/// `GET /_admin/explain/dbs/{db}/colls/{c}/docs`: a page of items, each with when it expires and why. Pages as the list of items does.
pub(crate) async fn explain_all(
    call: &Call<'_>,
    database: &str,
    container: &str,
) -> Result<Answer> {
    let container = items_of(call, database, container)?;
    let (scope, page) = (call.scope(&container)?, call.page()?);
    let reply = call.db.list(&container, &scope, &page, ReadOptions::default()).await;
    let page = reply.result?;
    let now = call.db.now();
    let mut text = format!(r#"{{"now":{now},"items":["#).into_bytes();
    for (number, row) in page.rows.iter().enumerate() {
        let found = call.db.explain_item(&container, row)?;
        let expires_at = json!(found.expires_at.map(|at| at.0));
        let separator = if number == 0 { "" } else { "," };
        let source = effective(&found).1;
        text.extend_from_slice(
            format!(r#"{separator}{{"expiresAt":{expires_at},"source":"{source}","item":"#)
                .as_bytes(),
        );
        text.extend_from_slice(row);
        text.push(b'}');
    }
    text.extend_from_slice(b"]}");
    let mut answer = Answer::bytes(StatusCode::OK, text.into());
    if let Some(continuation) = page.continuation
        && let Ok(value) = HeaderValue::try_from(continuation)
    {
        answer.headers.insert(&headers::CONTINUATION, value);
    }
    Ok(answer)
}

/// A container whose items are JSON.
fn items_of(call: &Call<'_>, database: &str, container: &str) -> Result<Arc<Container>> {
    let container = call.db.owner(database, container)?;
    match container.settings.json.contains_key("documents") {
        false => Ok(container),
        true => Err(Failure::bad_request(
            "This is a MongoDB collection: its documents are read with MongoDB's drivers.",
        )),
    }
}

/// The ttl that counts, and where it comes from.
fn effective(found: &Explanation) -> (Option<u64>, &'static str) {
    let secs = found.expires_at.map(|at| at.since(found.ts));
    match (found.default, found.own) {
        (DefaultTtl::Off, _) | (DefaultTtl::NoDefault | DefaultTtl::AfterDate(_), Ttl::Absent) => {
            (secs, "none")
        }
        (_, Ttl::Never | Ttl::Secs(_) | Ttl::At(_)) => (secs, "own"),
        (DefaultTtl::Secs(_), Ttl::Absent) => (secs, "default"),
    }
}

fn why(found: &Explanation) -> String {
    let ts = found.ts;
    match (found.default, found.own) {
        (DefaultTtl::Off, Ttl::Absent) => "Time to live is off for the container.".to_owned(),
        (DefaultTtl::Off, _) => {
            "Time to live is off for the container, so the item's own ttl does not count."
                .to_owned()
        }
        (_, Ttl::Never) => "The item's own ttl is -1: it never expires.".to_owned(),
        (_, Ttl::Secs(secs)) => {
            format!("The item's own ttl of {secs} s, counted from its last write at {ts}.")
        }
        (_, Ttl::At(at)) => format!("The date that the item carries, {at}."),
        (DefaultTtl::AfterDate(_), Ttl::Absent) => {
            "Items of this collection expire by a date that they carry, and this one has none."
                .to_owned()
        }
        (DefaultTtl::NoDefault, Ttl::Absent) => {
            "The item has no ttl of its own, and the container has no default.".to_owned()
        }
        (DefaultTtl::Secs(secs), Ttl::Absent) => {
            format!("The container's default of {secs} s, counted from its last write at {ts}.")
        }
    }
}

fn parse_default(text: &str) -> Result<DefaultTtl> {
    match text {
        "off" | "null" => Ok(DefaultTtl::Off),
        text => {
            let value = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
            DefaultTtl::from_json(Some(&value)).map_err(Failure::bad_request)
        }
    }
}

fn forecast(default: DefaultTtl, forecast: Forecast) -> Value {
    json!({
        "defaultTtl": default.to_json(),
        "atOnce": due(forecast.at_once),
        "hour": due(forecast.hour),
        "day": due(forecast.day),
        "later": due(forecast.later),
    })
}

fn describe_exactness(timeline: &Timeline, body: &mut Value) {
    body["exact"] = timeline.is_exact().into();
    body["uncounted"] = timeline.uncounted.into();
}

fn due(due: Due) -> Value {
    let Tally { items, bytes } = due.total();
    json!({"items": items, "bytes": bytes, "byDefault": due.inherited.items, "byOwnTtl": due.own.items})
}

fn tally(tally: Tally) -> Value {
    json!({"items": tally.items, "bytes": tally.bytes})
}
