//! `kill -9` under load, again and again on one data directory.
//!
//! Every connection owns some ids, so it knows what each must be: what was last acknowledged, or, for the one request that was
//! under way when the server died, either that or what it asked for. Anything else is a lost write, a torn one, or one
//! that nobody made.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::api::Api;
use crate::http::{Connection, Request};
use crate::options::Options;
use crate::process::Server;
use crate::report::Report;
use crate::sign::{KEY, Signer};
use crate::{items, steady};

/// Ids that a connection owns.
const IDS: u64 = 20;

/// How often the store is checked offline as well.
const CHECK_EVERY: u64 = 10;

/// A worker's knowledge: the version of each id that exists, and what is under way.
struct Worker {
    first: u64,
    known: BTreeMap<u64, u64>,
    pending: Option<Pending>,
    next_version: u64,
    random: fastrand::Rng,
    acknowledged: u64,
}

/// A request without an answer: what its id will be if it was done.
#[derive(Clone, Copy)]
struct Pending {
    number: u64,
    after: Option<u64>,
}

/// The rounds.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let rounds = options.rounds_given.unwrap_or(100);
    let directory = options.directory()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let server = Server::start(&options.server, Some(directory.path()))?;
    let container: Arc<str> = steady::prepare(&server, "crash")?.into();
    server.stop()?;
    let mut random = fastrand::Rng::with_seed(options.seed);
    let mut workers: Vec<Worker> = (0..options.plan.connections as u64)
        .map(|index| Worker::new(index * IDS, random.fork()))
        .collect();
    let (mut faults, mut unknown, mut slowest) = (Vec::new(), (0, 0), Duration::ZERO);
    for round in 0..=rounds {
        let server = Server::start(&options.server, Some(directory.path()))?;
        slowest = slowest.max(server.ready);
        let stored = runtime.block_on(stored(server.address, &container))?;
        for worker in &mut workers {
            worker.compare(&stored, round, &mut faults, &mut unknown);
        }
        let owned = workers.iter().map(|worker| worker.known.len()).sum::<usize>();
        if stored.len() != owned {
            faults.push(format!("round {round}: {} items stored, {owned} known", stored.len()));
        }
        if round < rounds {
            let lifetime = Duration::from_millis(random.u64(100..1_500));
            workers = runtime.block_on(load(server, &container, workers, lifetime))?;
        } else {
            server.stop()?;
        }
        if round % CHECK_EVERY == 0 {
            check_offline(&options.server, directory.path(), round, &mut faults)?;
        }
        if !faults.is_empty() {
            break;
        }
    }
    let acknowledged: u64 = workers.iter().map(|worker| worker.acknowledged).sum();
    report.line(format!(
        "Seed {}; creates, upserts, replaces and deletes on {} connections, killed after 0.1 to 1.5 s; every item \
         compared after every restart; `sidereal check` every {CHECK_EVERY} rounds.\n",
        options.seed, options.plan.connections
    ));
    report.bar(
        faults.is_empty(),
        format!(
            "{} faults (lost, torn or unasked-for) in {rounds} rounds of kill -9 with {acknowledged} acknowledged writes",
            faults.len()
        ),
    );
    for fault in faults.iter().take(10) {
        report.line(format!("  - {fault}"));
    }
    report.line(format!(
        "- of {} requests that the kill left without an answer, {} had been done; slowest start {:.0} ms",
        unknown.0,
        unknown.1,
        slowest.as_secs_f64() * 1e3
    ));
    Ok(())
}

/// Works until the server is killed.
async fn load(
    server: Server,
    container: &Arc<str>,
    workers: Vec<Worker>,
    lifetime: Duration,
) -> Result<Vec<Worker>> {
    let address = server.address;
    let tasks: Vec<_> = workers
        .into_iter()
        .map(|worker| tokio::spawn(worker.work(address, container.clone())))
        .collect();
    tokio::time::sleep(lifetime).await;
    server.kill()?;
    let mut workers = Vec::new();
    for task in tasks {
        workers.push(task.await??);
    }
    Ok(workers)
}

impl Worker {
    fn new(first: u64, random: fastrand::Rng) -> Self {
        let known = BTreeMap::new();
        Self { first, known, pending: None, next_version: 1, random, acknowledged: 0 }
    }

    async fn work(mut self, address: SocketAddr, container: Arc<str>) -> Result<Self> {
        let Ok(mut connection) = Connection::open(address).await else { return Ok(self) };
        let (mut signer, mut request) = (Signer::new(KEY), Request::new());
        loop {
            let number = self.first + self.random.u64(..IDS);
            let expected = self.prepare(number, &container, &mut signer, &mut request);
            // An error is the kill: the request stays pending.
            let Ok(response) = connection.exchange(&request).await else { return Ok(self) };
            if !expected.contains(&response.status) {
                bail!("item {number}: {}", response.describe());
            }
            let done = self.pending.take().context("a request was pending")?;
            self.settle(done);
            self.acknowledged += 1;
        }
    }

    /// Writes a random request for an id and notes what it does; the statuses that say it is done.
    fn prepare(
        &mut self,
        number: u64,
        container: &str,
        signer: &mut Signer,
        request: &mut Request,
    ) -> &'static [u16] {
        let exists = self.known.contains_key(&number);
        let resource = format!("{container}/docs/{}", items::id(number));
        let feed = format!("{container}/docs");
        let key = items::key(number);
        if exists && self.random.u32(..4) == 0 {
            self.pending = Some(Pending { number, after: None });
            request.start(signer, "DELETE", &resource);
            request.partition_key(&key).end();
            return &[204];
        }
        let version = self.next_version;
        self.next_version += 1;
        self.pending = Some(Pending { number, after: Some(version) });
        let expected: &[u16] = match (exists, self.random.bool()) {
            (true, true) => {
                request.start(signer, "PUT", &resource);
                &[200]
            }
            (false, true) => {
                request.start(signer, "POST", &feed);
                &[201]
            }
            (_, false) => {
                request.start(signer, "POST", &feed);
                request.header("x-ms-documentdb-is-upsert", "True");
                if exists { &[200] } else { &[201] }
            }
        };
        request.partition_key(&key);
        items::write(number, version, request.body());
        request.end_body();
        expected
    }

    fn settle(&mut self, done: Pending) {
        match done.after {
            Some(version) => drop(self.known.insert(done.number, version)),
            None => drop(self.known.remove(&done.number)),
        }
    }

    /// Compares what is stored with what is known, and takes it over where it was open.
    fn compare(
        &mut self,
        stored: &BTreeMap<u64, Value>,
        round: u64,
        faults: &mut Vec<String>,
        unknown: &mut (u64, u64),
    ) {
        if let Some(pending) = self.pending.take() {
            unknown.0 += 1;
            let version = stored.get(&pending.number).and_then(|item| item["version"].as_u64());
            if version == pending.after {
                unknown.1 += 1;
                self.settle(pending);
            }
        }
        for number in self.first..self.first + IDS {
            let known = self.known.get(&number);
            let fault = match (known, stored.get(&number)) {
                (None, None) => None,
                (Some(version), None) => Some(format!("version {version} is lost")),
                (None, Some(item)) => Some(format!("version {} is there", item["version"])),
                (Some(&version), Some(item)) => difference(number, version, item),
            };
            faults.extend(fault.map(|fault| format!("round {round}, item {number}: {fault}")));
        }
    }
}

/// How a stored item differs from the version it should be.
fn difference(number: u64, version: u64, item: &Value) -> Option<String> {
    let mut text = Vec::new();
    items::write(number, version, &mut text);
    let expected: Value = serde_json::from_slice(&text).expect("our own JSON");
    let fields = expected.as_object().expect("an object");
    if item["version"] != expected["version"] {
        return Some(format!("version {} instead of {version}", item["version"]));
    }
    let torn = fields.iter().find(|(name, value)| item.get(name.as_str()) != Some(*value));
    torn.map(|(name, _)| format!("version {version} is torn at {name}"))
}

/// All items, as the list shows them; each must be what a point read shows too.
async fn stored(address: SocketAddr, container: &str) -> Result<BTreeMap<u64, Value>> {
    let mut api = Api::open(address).await?;
    let mut stored = BTreeMap::new();
    let mut continuation: Option<String> = None;
    loop {
        let page = api.list(container, continuation.as_deref()).await?.expect(&[200], "list")?;
        for item in page.json()["Documents"].as_array().context("a list of items")? {
            let id =
                item["id"].as_str().and_then(|id| id.strip_prefix("item-")).context("an id")?;
            stored.insert(id.parse()?, item.clone());
        }
        continuation = page.continuation;
        if continuation.is_none() {
            break;
        }
    }
    for (number, item) in &stored {
        let read = api.read(container, *number).await?.expect(&[200], "read a listed item")?;
        if read.json() != *item {
            bail!("item {number} is listed as {item} and read as {}", read.json());
        }
    }
    Ok(stored)
}

fn check_offline(
    server: &Path,
    directory: &Path,
    round: u64,
    faults: &mut Vec<String>,
) -> Result<()> {
    let output = Command::new(server).arg("check").arg(directory).output()?;
    if !output.status.success() {
        faults.push(format!(
            "round {round}: sidereal check: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    Ok(())
}
