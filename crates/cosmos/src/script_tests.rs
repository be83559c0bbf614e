//! Scripts of requests and whole responses, in process: no sockets, a memory engine, a clock that only the script moves.
//!
//! ```text
//! POST dbs/d/colls/c/docs '{"id":"1"}' pk='["a"]'      a signed request; names before `=` are headers (see ALIASES)
//! GET dbs/d/colls/c sign=none                          not signed; also sign=wrong, sign=readonly, sign=bearer
//! GET dbs/d/colls/c/docs/1 date=-1801                  signed that many seconds ago (or, with no sign, ahead)
//! POST dbs/d/colls/c/docs pad=2100000                  an item with a string of that many bytes
//! POST dbs/d/colls/c/docs nest=200                     an item that is nested that deeply
//! POST dbs/d/colls/c/docs idbytes=1024                 an item with an id of that many bytes
//! POST dbs/d/colls/c/sprocs '{"id":"s"}' js='...'      a body with this text as its property `body`
//! POST dbs/d/colls/c/docs sql='SELECT …'               a body with this text as its property `query`
//! POST dbs/d/colls/c/docs hex=80e92c...                a body of these bytes
//! advance 50                                           moves the clock
//! store unreachable                                    the store fails from now on (see storage::testing::Fault)
//! ```
//!
//! A response is printed with all its headers but those that every response has; with the tag `[all]` these too, with
//! `[brief]` of all headers only the substatus and the continuation.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use db::Db;
use goldenscript::{Argument, Context};
use http::{HeaderName, HeaderValue, Request};
use http_body_util::{BodyExt, Full};
use model::clock::{Clock, Timestamp, VirtualClock};
use ring::hmac;
use storage::memory::Memory;
use storage::testing::Failing;

use crate::auth::{Access, Keys, WELL_KNOWN_KEY};
use crate::date::HttpDate;
use crate::{FrontEnd, Options, Peer};

/// When scripts begin.
const START: Timestamp = Timestamp(1_700_000_000);

const READ_ONLY_KEY: &str = "cmVhZC1vbmx5LWtleS1vZi10aGUtdGVzdHM=";
const WRONG_KEY: &str = "d3Jvbmcta2V5LW9mLXRoZS10ZXN0cy0tLS0=";

/// Short names of headers.
const ALIASES: [(&str, &str); 24] = [
    ("activity", "x-ms-activity-id"),
    ("autoscale", "x-ms-cosmos-offer-autopilot-settings"),
    ("batch", "x-ms-cosmos-is-batch-request"),
    ("consistency", "x-ms-consistency-level"),
    ("continuation", "x-ms-continuation"),
    ("cross", "x-ms-documentdb-query-enablecrosspartition"),
    ("scan", "x-ms-documentdb-query-enable-scan"),
    ("end", "x-ms-end-epk"),
    ("format", "x-ms-cosmos-changefeed-wire-format-version"),
    ("indexmetrics", "x-ms-cosmos-populateindexmetrics"),
    ("indexmetrics2", "x-ms-cosmos-populateindexmetrics-v2"),
    ("intended", "x-ms-cosmos-intended-collection-rid"),
    ("keytype", "x-ms-read-key-type"),
    ("max", "x-ms-max-item-count"),
    ("pk", "x-ms-documentdb-partitionkey"),
    ("plan", "x-ms-cosmos-is-query-plan-request"),
    ("query", "x-ms-documentdb-isquery"),
    ("range", "x-ms-documentdb-partitionkeyrangeid"),
    ("session", "x-ms-session-token"),
    ("start", "x-ms-start-epk"),
    ("throughput", "x-ms-offer-throughput"),
    ("tokenlimit", "x-ms-documentdb-responsecontinuationtokenlimitinkb"),
    ("upsert", "x-ms-documentdb-is-upsert"),
    ("version", "x-ms-version"),
];

/// Headers that every response has.
const EVERYWHERE: [&str; 3] = ["x-ms-activity-id", "x-ms-gatewayversion", "x-ms-schemaversion"];

/// The headers of a brief answer.
const BRIEF: [&str; 2] = ["x-ms-continuation", "x-ms-substatus"];

#[test]
fn scripts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testscripts");
    let mut scripts: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    scripts.sort();
    assert!(!scripts.is_empty());
    for script in scripts {
        println!("{}", script.display());
        goldenscript::run(&mut Runner::new(), &script).unwrap();
    }
}

struct Runner {
    runtime: tokio::runtime::Runtime,
    clock: Arc<VirtualClock>,
    store: Arc<Failing>,
    front_end: FrontEnd,
}

impl Runner {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let clock = Arc::new(VirtualClock::frozen(START));
        let store = Arc::new(Failing::new(Arc::new(Memory::new())));
        let open = Db::open(store.clone(), clock.clone(), db::Options::default());
        let db = runtime.block_on(open).unwrap();
        let keys =
            Keys::new(WELL_KNOWN_KEY).unwrap().with(READ_ONLY_KEY, Access::ReadOnly).unwrap();
        let front_end = FrontEnd::new(db, keys, clock.clone(), Options::default());
        Self { runtime, clock, store, front_end }
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        arguments: &[Argument],
    ) -> Result<Request<Full<Bytes>>, Box<dyn Error>> {
        let mut request = Request::builder().method(method).uri(format!("/{path}"));
        let headers = request.headers_mut().ok_or("bad request line")?;
        headers.insert("host", HeaderValue::from_static("localhost:8081"));
        headers.insert("x-ms-version", HeaderValue::from_static("2020-07-15"));
        headers.insert(
            "x-ms-activity-id",
            HeaderValue::from_static("00000000-0000-0000-0000-00000000000a"),
        );
        let (mut sign, mut age, mut body) = ("primary", 0i64, Bytes::new());
        for argument in arguments {
            let (key, value) = split(argument);
            match key {
                None => body = Bytes::copy_from_slice(value.as_bytes()),
                Some("js") => {
                    let mut json: serde_json::Value = serde_json::from_slice(&body)?;
                    json["body"] = value.into();
                    body = json.to_string().into();
                }
                Some("sql") => body = serde_json::json!({"query": value}).to_string().into(),
                Some("sign") => sign = value,
                Some("date") => age = value.parse()?,
                Some("pad") => {
                    body =
                        format!(r#"{{"id":"x","pk":"a","pad":"{}"}}"#, "x".repeat(value.parse()?))
                            .into();
                }
                Some("idbytes") => {
                    body = format!(r#"{{"id":"{}","pk":"a"}}"#, "x".repeat(value.parse()?)).into();
                }
                Some("nest") => {
                    let depth = value.parse()?;
                    body = format!(
                        r#"{{"id":"x","pk":"a","n":{}{}}}"#,
                        "[".repeat(depth),
                        "]".repeat(depth)
                    )
                    .into();
                }
                Some("hex") => {
                    let byte = |at: usize| u8::from_str_radix(&value[at..at + 2], 16);
                    body = (0..value.len())
                        .step_by(2)
                        .map(byte)
                        .collect::<Result<Vec<u8>, _>>()?
                        .into();
                }
                Some(key) => {
                    let name = ALIASES.iter().find(|(alias, _)| *alias == key);
                    let name =
                        name.map_or_else(|| key.replace('_', "-"), |(_, name)| (*name).to_owned());
                    if value == "absent" {
                        headers.remove(&name);
                    } else {
                        headers.insert(HeaderName::try_from(name)?, HeaderValue::try_from(value)?);
                    }
                }
            }
        }
        let date = self.clock.now().0.saturating_add_signed(age);
        if !headers.contains_key("x-ms-date") {
            headers
                .insert("x-ms-date", HeaderValue::try_from(HttpDate(Timestamp(date)).to_string())?);
        }
        let date = headers["x-ms-date"].to_str()?.to_owned();
        let authorization = match sign {
            "none" => None,
            "bearer" => Some(format!("Bearer {WELL_KNOWN_KEY}")),
            "wrong" => Some(signature(WRONG_KEY, method, path, &date)),
            "readonly" => Some(signature(READ_ONLY_KEY, method, path, &date)),
            "primary" => Some(signature(WELL_KNOWN_KEY, method, path, &date)),
            other => Some(other.to_owned()),
        };
        if let Some(authorization) = authorization {
            headers.insert("authorization", HeaderValue::try_from(authorization)?);
        }
        Ok(request.body(Full::new(body))?)
    }

    fn send(&self, request: Request<Full<Bytes>>, tags: &BTreeSet<String>) -> String {
        let shows = |name: &str| match tags {
            tags if tags.contains("brief") => BRIEF.contains(&name),
            tags => tags.contains("all") || !EVERYWHERE.contains(&name),
        };
        let peer = Peer { secure: true, local: false };
        self.runtime.block_on(async {
            let (head, body) = self.front_end.answer(request, peer).await.into_parts();
            let mut out = format!("{}\n", head.status);
            let mut headers: Vec<_> = head.headers.iter().collect();
            headers.sort_by_key(|(name, _)| name.as_str());
            for (name, value) in headers {
                if shows(name.as_str()) {
                    writeln!(out, "{name}: {}", value.to_str().unwrap()).unwrap();
                }
            }
            let body = body.collect().await.unwrap().to_bytes();
            if !body.is_empty() {
                writeln!(out, "{}", String::from_utf8(body.to_vec()).unwrap().trim_end()).unwrap();
            }
            out
        })
    }
}

impl goldenscript::Runner for Runner {
    type Command = goldenscript::Command;

    fn run(
        &mut self,
        command: &goldenscript::Command,
        context: &Context,
    ) -> Result<String, Box<dyn Error>> {
        let [first, rest @ ..] = command.args.as_slice() else { return Err("what about?".into()) };
        if command.name == "advance" {
            self.clock.advance(split(first).1.parse()?);
            return Ok(String::new());
        }
        if command.name == "store" {
            self.store.fail(split(first).1.parse()?);
            return Ok(String::new());
        }
        let request = self.request(&command.name, split(first).1, rest)?;
        Ok(self.send(request, &context.tags))
    }
}

/// An argument's key, if it has one, and its value.
fn split(argument: &Argument) -> (Option<&str>, &str) {
    match argument {
        Argument::Positional(value) => (None, value),
        Argument::KeyValue(key, value) => (Some(key), value),
        _ => unreachable!("there are no other arguments"),
    }
}

/// The authorization header of a request, as an SDK writes it.
pub(crate) fn signature(key: &str, method: &str, path: &str, date: &str) -> String {
    // In an id it is part of the path.
    let path = if path.contains("/docs/") { path } else { path.split('?').next().unwrap() };
    // Signed as what it is done to.
    let path = path.strip_suffix("/operations/partitionkeydelete").unwrap_or(path);
    let path = match path {
        "addresses" => "",
        "operations/dtc" => "distributedtransactionbatch",
        path => path,
    };
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (kind, link) = match parts.len() {
        0 => ("", String::new()),
        count if count % 2 == 1 => (parts[count - 1], parts[..count - 1].join("/")),
        count => (parts[count - 2], parts.join("/")),
    };
    let link = match parts.first() {
        Some(&"offers") => parts.get(1).unwrap_or(&"").to_lowercase(),
        _ => link,
    };
    let kind = kind.to_lowercase();
    sign(key, &format!("{}\n{kind}\n{link}\n{}\n\n", method.to_lowercase(), date.to_lowercase()))
}

/// A payload signed, encoded as a header.
pub(crate) fn sign(key: &str, payload: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(key).unwrap());
    let signature = STANDARD.encode(hmac::sign(&key, payload.as_bytes()));
    let encoded = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    format!("type%3Dmaster%26ver%3D1.0%26sig%3D{encoded}")
}
