//! For the people who run the server: metrics, the virtual clock, the purge. `/_health` and `/_ready` are in the routes.
//!
//! | route | answer |
//! |---|---|
//! | `GET /metrics` | counters and gauges for Prometheus ([`metrics`]) |
//! | `GET /_admin/clock` | `{"mode": "system" or "virtual", "now": unix seconds, "frozen": bool}` |
//! | `POST /_admin/clock` | moves a virtual clock: `{"advance": secs}`, `{"set": unix seconds}`, `{"freeze": bool}`, or several of them |
//! | `GET /_admin/ttl` | how far the purge is behind, container by container |
//! | `GET /_admin/ttl/dbs/{db}/colls/{c}` | what expires when: the next 60 minutes, 48 hours, 30 days; what is expired, never expires; the purge ([`timeline`]) |
//! | `GET /_admin/ttl/dbs/{db}/colls/{c}?default=n` | the same with a dry run of another default: n, `-1` or `off` |
//! | `GET /_admin/explain/dbs/{db}/colls/{c}/docs/{id}` | an item's effective ttl, where it comes from, and when it ends |
//! | `GET /_admin/explain/dbs/{db}/colls/{c}/docs` | a page of items with the same; pages as the list of items does |
//! | `GET /_admin/status` | health, engine, disk, memory, connections, request units, containers, slow queries ([`status`]) |
//! | `GET /_admin/history` | the last hour, a sample every ten seconds |
//! | `POST /_admin/purge` | removes what is expired now, whatever it costs |
//! | `POST /_admin/split` | puts two partitions in the place of one: `{"database": …, "container": …, "partition": id}` |
//!
//! A POST answers when the purge has settled, and says how many items went. The clock never goes back (R13).
//!
//! Who may: whoever has an account key, as a signature like any other request's or as `Authorization: Bearer <key>`; a
//! read-only key may read. `/metrics` alone is open to this machine while the account has the well-known key. `/_health` and
//! `/_ready` are open to all: a supervisor has no key, and they tell nothing.

pub(crate) mod metrics;
pub(crate) mod status;
pub(crate) mod timeline;

use db::TtlLag;
use http::StatusCode;
use model::clock::{Timestamp, VirtualClock};
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::call::Call;
use crate::error::{Failure, Result};

/// The last second of the year 9999: no date of the wire can be later.
const LATEST: u64 = 253_402_300_799;

/// `GET /_admin/clock`
pub(crate) fn read_clock(call: &Call<'_>) -> Result<Answer> {
    Ok(Answer::json(StatusCode::OK, &clock(call)))
}

/// `POST /_admin/clock`
pub(crate) async fn move_clock(call: &mut Call<'_>) -> Result<Answer> {
    let order = Order::parse(&call.json_object()?)?;
    let controls = call.db.clock().controls().ok_or_else(|| {
        Failure::bad_request("The clock is the machine's and cannot be moved. Start the server with --clock virtual.")
    })?;
    // By whichever purge: the one in the background may be faster.
    let purged = call.db.purged();
    order.apply(controls)?;
    call.db.wake_purge();
    call.db.purge_all().await?;
    let mut answer = clock(call);
    answer["purged"] = call.db.purged().saturating_sub(purged).into();
    Ok(Answer::json(StatusCode::OK, &answer))
}

/// `GET /_admin/ttl`
pub(crate) async fn ttl(call: &Call<'_>) -> Result<Answer> {
    let lags = call.db.lag().await?;
    let container = |lag: &TtlLag| {
        json!({
            "database": lag.database,
            "container": lag.container,
            "itemsBehind": lag.items,
            "secondsBehind": lag.secs,
            "purged": lag.purged,
            "requestCharge": lag.charge,
        })
    };
    let body = json!({
        "now": call.db.now().0,
        "itemsBehind": lags.iter().map(|lag| lag.items).sum::<u64>(),
        "secondsBehind": lags.iter().map(|lag| lag.secs).max().unwrap_or(0),
        "containers": lags.iter().map(container).collect::<Vec<_>>(),
    });
    Ok(Answer::json(StatusCode::OK, &body))
}

/// `POST /_admin/purge`
pub(crate) async fn purge(call: &Call<'_>) -> Result<Answer> {
    let report = call.db.purge_all().await?;
    let next_due = report.next_due.map(|instant| instant.0);
    let body = json!({"now": call.db.now().0, "purged": report.purged, "nextDue": next_due});
    Ok(Answer::json(StatusCode::OK, &body))
}

/// `POST /_admin/split`
pub(crate) async fn split(call: &mut Call<'_>) -> Result<Answer> {
    let order = call.json_object()?;
    let text = |name: &str| {
        order[name].as_str().ok_or_else(|| {
            Failure::bad_request(format!(
                "Say which {name}: a split needs \"database\", \"container\" and \"partition\"."
            ))
        })
    };
    let number = match &order["partition"] {
        Value::String(id) => id.parse().ok(),
        id => id.as_u64().and_then(|id| u32::try_from(id).ok()),
    };
    let number = number.ok_or_else(|| {
        Failure::bad_request(
            "The \"partition\" to split is the id of a partition key range, such as 0.",
        )
    })?;
    let children = call.db.split(text("database")?, text("container")?, number).await?;
    let children: Vec<String> = children.iter().map(u32::to_string).collect();
    Ok(Answer::json(StatusCode::OK, &json!({"parent": number.to_string(), "children": children})))
}

fn clock(call: &Call<'_>) -> Value {
    let controls = call.db.clock().controls();
    json!({
        "mode": if controls.is_some() { "virtual" } else { "system" },
        "now": call.db.now().0,
        "frozen": controls.is_some_and(VirtualClock::is_frozen),
    })
}

/// What to do with the clock.
struct Order {
    freeze: Option<bool>,
    set: Option<u64>,
    advance: Option<u64>,
}

impl Order {
    fn parse(body: &Value) -> Result<Self> {
        let object = body.as_object().expect("an object was asked for");
        let mut order = Self { freeze: None, set: None, advance: None };
        for (name, value) in object {
            let number = || {
                value.as_u64().ok_or_else(|| {
                    Failure::bad_request(format!(
                        "'{name}' must be a whole number of seconds, not {value}."
                    ))
                })
            };
            match name.as_str() {
                "freeze" => {
                    let freeze = value.as_bool().ok_or_else(|| {
                        Failure::bad_request(format!(
                            "'freeze' must be true or false, not {value}."
                        ))
                    })?;
                    order.freeze = Some(freeze);
                }
                "set" => order.set = Some(number()?),
                "advance" => order.advance = Some(number()?),
                _ => {
                    return Err(Failure::bad_request(format!(
                        "'{name}' is not one of freeze, set, advance."
                    )));
                }
            }
        }
        match order {
            Self { freeze: None, set: None, advance: None } => {
                Err(Failure::bad_request("Say what to do with the clock: freeze, set or advance."))
            }
            Self { set: Some(_), advance: Some(_), .. } => Err(Failure::bad_request(
                "The clock can be set or advanced, not both in one request.",
            )),
            order => Ok(order),
        }
    }

    fn apply(&self, clock: &VirtualClock) -> Result<()> {
        use model::clock::Clock;

        let now = clock.now();
        let target = self.set.unwrap_or_else(|| now.0.saturating_add(self.advance.unwrap_or(0)));
        if target > LATEST {
            return Err(Failure::bad_request("The clock cannot go beyond the year 9999."));
        }
        if self.set.is_some_and(|target| !clock.set_forward(Timestamp(target))) {
            let now = clock.now();
            return Err(Failure::bad_request(format!(
                "The clock never goes back: it is {now} already."
            )));
        }
        if let Some(secs) = self.advance {
            clock.advance(secs);
        }
        match self.freeze {
            Some(true) => clock.freeze(),
            Some(false) => clock.resume(),
            None => {}
        }
        Ok(())
    }
}
