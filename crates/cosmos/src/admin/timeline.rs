//! `/_admin/ttl/…` and `/_admin/explain/…`: what expires when, what another default would do, and why one item expires.
//!
//! Answered from the orders of expiry, never from the items: see [`db::timeline`], which also says what is exact.

use db::{Container, Due, Explanation, Forecast, Scope, Tally, Timeline};
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
    let container = call.db.owner(database, container)?;
    let default = call.query_value("default");
    let dry_run = default.map(|default| parse_default(&container, default)).transpose()?;
    let timeline = call.db.timeline(&container).await?;
    let lag = call.db.lag_of(&container).await?;
    let usage = call.db.usage_of(&container);
    let (stored, now) = (timeline.stored, timeline.now);
    let mut body = json!({
        "database": container.database_id,
        "container": container.id(),
        "now": now.0,
        "defaultTtl": timeline.ttl.default.to_json(),
        "ttlPropertyPath": property_of(&container),
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

/// `GET /_admin/explain/dbs/{db}/colls/{c}/docs/{id}`, with the partition key in its header. A document of a MongoDB collection is named by
/// its `_id` in extended JSON, or by the bare text of a string or an object id; the answer has the document too.
pub(crate) async fn explain(
    call: &Call<'_>,
    database: &str,
    container: &str,
    id: &str,
) -> Result<Answer> {
    let container = call.db.owner(database, container)?;
    let found = match container.layout() {
        Some(_) => call.db.explain_document(&container, id).await?,
        None => {
            let key = call.partition_key()?.ok_or_else(|| {
                Failure::bad_request(
                    "Name the item's partition key in x-ms-documentdb-partitionkey.",
                )
            })?;
            call.db.explain(&container, &key, id).await?
        }
    };
    let (effective, source) = effective(&found);
    let mut body = json!({
        "id": id,
        "now": found.now.0,
        "_ts": found.ts.0,
        "ttl": match (found.default, found.own) {
            (DefaultTtl::AfterDate(_), _) | (_, Ttl::Absent | Ttl::At(_)) => Value::Null,
            (_, Ttl::Never) => (-1).into(),
            (_, Ttl::Secs(secs)) => secs.into(),
        },
        "defaultTtl": found.default.to_json(),
        "effectiveTtl": effective,
        "source": source,
        "expiresAt": found.expires_at.map(|at| at.0),
        "expiresIn": found.expires_at.map(|at| at.since(found.now)),
        "why": why(&container, &found),
    });
    if let Some(layout) = container.layout() {
        body["item"] = layout.show(&found.body)?;
    }
    Ok(Answer::json(StatusCode::OK, &body))
}

/// `GET /_admin/explain/dbs/{db}/colls/{c}/docs`: a page of items, each with when it expires and why. Pages as the list of items does. Documents
/// of MongoDB collections are shown in extended JSON.
pub(crate) async fn explain_all(
    call: &Call<'_>,
    database: &str,
    container: &str,
) -> Result<Answer> {
    let container = call.db.owner(database, container)?;
    let scope = match container.layout() {
        Some(_) => Scope::Container,
        None => call.scope(&container)?,
    };
    let page = call.db.explain_page(&container, &scope, &call.page()?).await?;
    let now = call.db.now();
    let mut text = format!(r#"{{"now":{now},"items":["#).into_bytes();
    for (number, found) in page.rows.iter().enumerate() {
        let expires_at = json!(found.expires_at.map(|at| at.0));
        let separator = if number == 0 { "" } else { "," };
        let source = effective(found).1;
        text.extend_from_slice(
            format!(r#"{separator}{{"expiresAt":{expires_at},"source":"{source}","item":"#)
                .as_bytes(),
        );
        match container.layout() {
            None => text.extend_from_slice(&found.body),
            Some(layout) => {
                text.extend_from_slice(layout.show(&found.body)?.to_string().as_bytes());
            }
        }
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

/// The property that time counts from, where it is not the last write.
fn property_of(container: &Container) -> Option<&str> {
    let by_date = matches!(container.ttl().default, DefaultTtl::AfterDate(_));
    by_date.then(|| container.settings.json.get("ttlPropertyPath")?.as_str()).flatten()
}

/// The ttl that counts, and where it comes from.
fn effective(found: &Explanation) -> (Option<u64>, &'static str) {
    let secs = found.expires_at.map(|at| at.since(found.ts));
    match (found.default, found.own) {
        (DefaultTtl::Off, _) | (DefaultTtl::NoDefault, Ttl::Absent) => (secs, "none"),
        (DefaultTtl::AfterDate(_), _) => (secs, "date"),
        (_, Ttl::Never | Ttl::Secs(_) | Ttl::At(_)) => (secs, "own"),
        (DefaultTtl::Secs(_), Ttl::Absent) => (secs, "default"),
    }
}

fn why(container: &Container, found: &Explanation) -> String {
    let ts = found.ts;
    match (found.default, found.own) {
        (DefaultTtl::Off, Ttl::Absent) => "Time to live is off for the container.".to_owned(),
        (DefaultTtl::Off, _) => {
            "Time to live is off for the container, so the item's own ttl does not count."
                .to_owned()
        }
        (DefaultTtl::AfterDate(secs), own) => {
            let path = property_of(container).unwrap_or_default();
            match own {
                Ttl::At(at) => {
                    format!(
                        "The container's {secs} s, counted from the item's {path}, which is {at}."
                    )
                }
                _ => format!(
                    "Items of this container expire by the time at {path}; this one has none there, or a ttl of -1."
                ),
            }
        }
        (_, Ttl::Never) => "The item's own ttl is -1: it never expires.".to_owned(),
        (_, Ttl::Secs(secs)) => {
            format!("The item's own ttl of {secs} s, counted from its last write at {ts}.")
        }
        (_, Ttl::At(at)) => format!("The date that the item carries, {at}."),
        (DefaultTtl::NoDefault, Ttl::Absent) => {
            "The item has no ttl of its own, and the container has no default.".to_owned()
        }
        (DefaultTtl::Secs(secs), Ttl::Absent) => {
            format!("The container's default of {secs} s, counted from its last write at {ts}.")
        }
    }
}

fn parse_default(container: &Container, text: &str) -> Result<DefaultTtl> {
    match text {
        "off" | "null" => Ok(DefaultTtl::Off),
        text => {
            let value = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
            Ok(container.settings.default_of(&value)?)
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
