//! MongoDB clients against our own REST front end: the same documents, the same durability, the same machine.
//!
//! OP_MSG is written by hand, as HTTP is for the other loads: the client shares the cores with the server. Documents are the
//! items of all loads as BSON, `_id` in the place of `id`; what changes from request to request is patched into bytes made once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use bson::{Bson, RawDocument, RawDocumentBuf, rawdoc};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::api::{self, Api};
use crate::http::{Request, Response};
use crate::items;
use crate::load::{Client, Outcome, Part, Plan, Window, Workload, drive, drive_clients};
use crate::options::Options;
use crate::process::Server;
use crate::report::Report;
use crate::sign::Signer;
use crate::steady::{self, Reads, describe, merge};

/// Connections of these loads.
const CONNECTIONS: usize = 32;

/// Documents in an insert.
const BATCH: u64 = 1_000;

/// Operations in a bulk request: what the service allows, and SDKs send.
const BULK: u64 = 100;

/// A message's header, its flags, and the kind of its first section.
const BODY_AT: usize = 21;

/// One OP_MSG: a body, and documents beside it.
fn message(body: &RawDocument, documents: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(body.as_bytes().len() + documents.len() + 64);
    for field in [0, 1, 0, 2013, 0_i32] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    bytes.push(0);
    bytes.extend_from_slice(body.as_bytes());
    if !documents.is_empty() {
        bytes.push(1);
        bytes.extend_from_slice(&(documents.len() as i32 + 14).to_le_bytes());
        bytes.extend_from_slice(b"documents\0");
        bytes.extend_from_slice(documents);
    }
    let length = bytes.len() as i32;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// An item as a document.
fn document(number: u64) -> Result<RawDocumentBuf> {
    let mut json = Vec::new();
    items::write(number, 0, &mut json);
    let Value::Object(item) = serde_json::from_slice(&json)? else {
        anyhow::bail!("an item is an object")
    };
    let mut document = bson::doc! {"_id": items::id(number)};
    for (name, value) in item.into_iter().filter(|(name, _)| name != "id") {
        document.insert(name, Bson::try_from(value)?);
    }
    Ok(RawDocumentBuf::try_from(&document)?)
}

/// What drivers send with every command.
fn session(index: usize) -> RawDocumentBuf {
    let mut bytes = vec![0; 16];
    bytes[..8].copy_from_slice(&(index as u64).to_le_bytes());
    let id = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes };
    rawdoc! {"id": id}
}

/// A connection that carries one message at a time.
struct Connection {
    stream: TcpStream,
    reply: Vec<u8>,
}

impl Connection {
    async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await.context("cannot connect")?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, reply: Vec::with_capacity(8192) })
    }

    /// Sends a message; gives the body of the reply.
    async fn exchange(&mut self, message: &[u8]) -> Result<&RawDocument> {
        self.stream.write_all(message).await?;
        self.reply.clear();
        loop {
            ensure!(self.stream.read_buf(&mut self.reply).await? > 0, "the server has hung up");
            if let Some(length) = self.reply.first_chunk::<4>() {
                let length = i32::from_le_bytes(*length) as usize;
                if self.reply.len() >= length {
                    return Ok(RawDocument::from_bytes(&self.reply[BODY_AT..length])?);
                }
            }
        }
    }
}

/// Finds one document after the other by its `_id`.
struct Finds {
    address: SocketAddr,
    message: Vec<u8>,
    id_at: usize,
    count: u64,
    random: fastrand::Rng,
}

impl Finds {
    fn new(address: SocketAddr, count: u64, index: usize) -> Self {
        let id = items::id(0);
        let body = rawdoc! {
            "find": "items", "filter": {"_id": id.as_str()}, "limit": 1, "singleBatch": true,
            "lsid": session(index), "$db": "bench",
        };
        let message = message(&body, &[]);
        let id_at = memchr::memmem::find(&message, id.as_bytes()).expect("it is in there");
        let random = fastrand::Rng::with_seed(index as u64);
        Self { address, message, id_at, count, random }
    }
}

impl Client for Finds {
    async fn run(mut self, window: Window) -> Result<Part> {
        let mut part = Part::new();
        let mut connection = Connection::open(self.address).await?;
        let mut sent = Instant::now();
        while sent < window.end {
            let id = items::id(self.random.u64(..self.count));
            self.message[self.id_at..self.id_at + id.len()].copy_from_slice(id.as_bytes());
            let reply = connection.exchange(&self.message).await?;
            let received = Instant::now();
            let found = memchr::memmem::find(reply.as_bytes(), id.as_bytes()).is_some();
            if !found || reply.as_bytes().len() < items::ITEM_BYTES {
                part.wrong(0, || format!("{reply:?}"));
            }
            part.count(sent, received, window);
            sent = received;
        }
        Ok(part)
    }
}

/// Inserts a thousand documents at a time, their numbers drawn from a counter that all connections share.
struct Inserts {
    address: SocketAddr,
    message: Vec<u8>,
    /// Where the `_id` of each document is.
    ids: Vec<usize>,
    next: Arc<AtomicU64>,
    limit: u64,
}

impl Inserts {
    fn new(address: SocketAddr, next: &Arc<AtomicU64>, limit: u64, index: usize) -> Result<Self> {
        let (mut documents, mut ids) = (Vec::new(), Vec::new());
        for number in 0..BATCH {
            // Its length, the type and name of `_id`, and the length of the text.
            ids.push(documents.len() + 4 + 1 + 4 + 4);
            documents.extend_from_slice(document(number)?.as_bytes());
        }
        let body = rawdoc! {
            "insert": "items", "ordered": false, "writeConcern": {"w": "majority", "j": true},
            "lsid": session(index), "$db": "bench",
        };
        let message = message(&body, &documents);
        let start = message.len() - documents.len();
        ids.iter_mut().for_each(|at| *at += start);
        Ok(Self { address, message, ids, next: next.clone(), limit })
    }
}

impl Client for Inserts {
    async fn run(mut self, window: Window) -> Result<Part> {
        let mut part = Part::new();
        let mut connection = Connection::open(self.address).await?;
        let mut sent = Instant::now();
        while sent < window.end {
            let first = self.next.fetch_add(BATCH, Ordering::Relaxed);
            if first >= self.limit {
                break;
            }
            for (at, number) in self.ids.iter().zip(first..) {
                let id = items::id(number);
                self.message[*at..*at + id.len()].copy_from_slice(id.as_bytes());
            }
            let reply = connection.exchange(&self.message).await?;
            let received = Instant::now();
            if reply.get_i32("n").ok() != Some(BATCH as i32) {
                part.wrong(0, || format!("{reply:?}"));
            }
            part.count(sent, received, window);
            sent = received;
        }
        Ok(part)
    }
}

/// Bulk requests of REST SDKs: operations that stand by themselves.
struct Bulks {
    feed: String,
    next: Arc<AtomicU64>,
}

impl Workload for Bulks {
    fn request(&mut self, signer: &mut Signer, request: &mut Request) -> bool {
        let first = self.next.fetch_add(BULK, Ordering::Relaxed);
        request.start(signer, "POST", &self.feed);
        for (name, value) in [
            ("x-ms-cosmos-is-batch-request", "True"),
            ("x-ms-cosmos-batch-atomic", "False"),
            ("x-ms-cosmos-batch-continue-on-error", "True"),
            ("x-ms-documentdb-partitionkeyrangeid", "0"),
        ] {
            request.header(name, value);
        }
        let body = request.body();
        for number in first..first + BULK {
            body.push(if number == first { b'[' } else { b',' });
            let key = items::key(number);
            let operation = format!(
                r#"{{"operationType":"Create","minimalReturnPreference":true,"partitionKey":"[\"{key}\"]","resourceBody":"#
            );
            body.extend_from_slice(operation.as_bytes());
            items::write(number, 0, body);
            body.push(b'}');
        }
        body.push(b']');
        request.end_body();
        true
    }

    fn accept(&mut self, response: &Response<'_>) -> bool {
        response.status == 200
    }
}

fn plan(options: &Options) -> Plan {
    Plan { connections: CONNECTIONS, ..options.plan }
}

/// Finds by `_id`, against point reads of the same items.
pub fn find(options: &Options, report: &mut Report) -> Result<()> {
    let directory = options.directory()?;
    let (server, mongo) = Server::start_for_mongo(&options.server, directory.path())?;
    let container = steady::prepare(&server, "rest")?;
    steady::fill(&server, options.plan, &container, options.items)?;
    let plan = plan(options);
    let (next, limit) = (Arc::new(AtomicU64::new(0)), options.items.next_multiple_of(BATCH));
    let whole = Plan {
        warmup: std::time::Duration::ZERO,
        duration: std::time::Duration::from_secs(3_600),
        connections: 4,
        ..plan
    };
    drive_clients(&server, whole, |index| {
        Inserts::new(mongo, &next, limit, index).expect("items are documents")
    })?
    .check()?;
    report.line(format!("{} items of 1 KB, {}.\n", options.items, describe(options, plan)));
    let (mut rest, mut ours) = (None, None);
    for _ in 0..options.rounds {
        let reads = |index: usize| Reads::new(&container, options.items, index as u64);
        merge(&mut rest, drive(&server, plan, reads)?.check()?);
        let finds = |index: usize| Finds::new(mongo, options.items, index);
        merge(&mut ours, drive_clients(&server, plan, finds)?.check()?);
    }
    let (rest, ours) = (rest.context("a round")?, ours.context("a round")?);
    report.load_table();
    report.load("REST point reads", &rest);
    report.load("finds by _id", &ours);
    let ratio = ours.rate() / rest.rate();
    report.line("");
    report.bar(ratio >= 1.0, format!("finds are {ratio:.2} times the point reads (1 or more)"));
    server.stop()?;
    Ok(())
}

/// Unordered inserts, against bulk requests.
pub fn insert(options: &Options, report: &mut Report) -> Result<()> {
    let plan = plan(options);
    let (mut indexed, mut bare, mut ours) = (None, None, None);
    for _ in 0..options.rounds {
        merge(&mut indexed, bulk(options, plan, true)?);
        merge(&mut bare, bulk(options, plan, false)?);
        let directory = options.directory()?;
        let (server, mongo) = Server::start_for_mongo(&options.server, directory.path())?;
        let next = Arc::new(AtomicU64::new(0));
        let outcome = drive_clients(&server, plan, |index| {
            Inserts::new(mongo, &next, u64::MAX, index).expect("items are documents")
        })?;
        merge(&mut ours, outcome.check()?);
        server.stop()?;
    }
    let rates = [(&indexed, BULK), (&bare, BULK), (&ours, BATCH)].map(|(outcome, each)| {
        outcome.as_ref().map_or(0.0, |outcome: &Outcome| outcome.rate() * each as f64)
    });
    let (indexed, bare) = (indexed.context("a round")?, bare.context("a round")?);
    report.line(format!("Documents of 1 KB, {}.\n", describe(options, plan)));
    report.load_table();
    report.load("REST bulk of 100, default indexing", &indexed);
    report.load("REST bulk of 100, nothing indexed", &bare);
    report.load("inserts of 1,000, unordered, majority", &ours.context("a round")?);
    report.line(format!(
        "\nDurable documents a second: REST {:.0} (default indexing) and {:.0} (nothing indexed), MongoDB {:.0}.\n",
        rates[0], rates[1], rates[2]
    ));
    let ratio = rates[2] / rates[0].max(rates[1]);
    report.bar(
        ratio >= 1.0,
        format!("inserts are {ratio:.2} times the faster of the two (1 or more)"),
    );
    Ok(())
}

fn bulk(options: &Options, plan: Plan, indexed: bool) -> Result<Outcome> {
    let directory = options.directory()?;
    let server = Server::start(&options.server, Some(directory.path()))?;
    let mut definition = api::definition("items", None);
    if !indexed {
        definition["indexingPolicy"] = json!({
            "indexingMode": "consistent", "automatic": true, "includedPaths": [], "excludedPaths": [{"path": "/*"}],
        });
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let container = runtime
        .block_on(async { Api::open(server.address).await?.create_defined(&definition).await })?;
    let next = Arc::new(AtomicU64::new(0));
    let feed = format!("{container}/docs");
    let outcome =
        drive(&server, plan, |_| Bulks { feed: feed.clone(), next: next.clone() })?.check()?;
    server.stop()?;
    Ok(outcome)
}
