//! Steady loads: point reads, creates, upserts, and a mixture.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use storage::Batch;

use crate::api::Api;
use crate::http::{Connection, Request, Response};
use crate::load::{Outcome, Plan, Workload, drive};
use crate::options::Options;
use crate::process::Server;
use crate::report::Report;
use crate::sign::{KEY, Signer};
use crate::{items, raw};

/// Reads random items among the first so many.
pub struct Reads {
    path: String,
    count: u64,
    random: fastrand::Rng,
}

impl Reads {
    /// Reads the first `count` items of a container.
    pub fn new(container: &str, count: u64, seed: u64) -> Self {
        Self { path: container.to_owned(), count, random: fastrand::Rng::with_seed(seed) }
    }
}

impl Workload for Reads {
    fn request(&mut self, signer: &mut Signer, request: &mut Request) -> bool {
        let number = self.random.u64(..self.count);
        request.start(signer, "GET", &format!("{}/docs/{}", self.path, items::id(number)));
        request.partition_key(&items::key(number)).end();
        true
    }

    fn accept(&mut self, response: &Response<'_>) -> bool {
        response.status == 200 && response.body.len() >= items::ITEM_BYTES
    }
}

/// Creates new items, their numbers drawn from a counter that all connections share.
pub struct Creates {
    feed: String,
    next: Arc<AtomicU64>,
    limit: u64,
}

impl Creates {
    /// Creates items up to a number.
    pub fn new(container: &str, next: &Arc<AtomicU64>, limit: u64) -> Self {
        Self { feed: format!("{container}/docs"), next: next.clone(), limit }
    }
}

impl Workload for Creates {
    fn request(&mut self, signer: &mut Signer, request: &mut Request) -> bool {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.limit {
            return false;
        }
        request.start(signer, "POST", &self.feed);
        request.partition_key(&items::key(number));
        items::write(number, 0, request.body());
        request.end_body();
        true
    }

    fn accept(&mut self, response: &Response<'_>) -> bool {
        response.status == 201
    }
}

/// Replaces random items among the first so many.
pub struct Upserts {
    feed: String,
    count: u64,
    version: u64,
    random: fastrand::Rng,
}

impl Upserts {
    /// Upserts the first `count` items of a container.
    pub fn new(container: &str, count: u64, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self { feed: format!("{container}/docs"), count, version: 1, random }
    }
}

impl Workload for Upserts {
    fn request(&mut self, signer: &mut Signer, request: &mut Request) -> bool {
        let number = self.random.u64(..self.count);
        self.version += 1;
        request.start(signer, "POST", &self.feed);
        request.header("x-ms-documentdb-is-upsert", "True").partition_key(&items::key(number));
        items::write(number, self.version, request.body());
        request.end_body();
        true
    }

    fn accept(&mut self, response: &Response<'_>) -> bool {
        matches!(response.status, 200 | 201)
    }
}

/// Seven reads, two upserts and a create in ten.
struct Mixed {
    reads: Reads,
    creates: Creates,
    upserts: Upserts,
    turn: u32,
}

impl Workload for Mixed {
    fn request(&mut self, signer: &mut Signer, request: &mut Request) -> bool {
        self.turn = (self.turn + 1) % 10;
        match self.turn {
            0 => self.creates.request(signer, request),
            3 | 6 => self.upserts.request(signer, request),
            _ => self.reads.request(signer, request),
        }
    }

    fn accept(&mut self, response: &Response<'_>) -> bool {
        matches!(response.status, 200 | 201)
    }
}

/// Creates items until the container has `count`, and measures it.
pub fn fill(server: &Server, plan: Plan, container: &str, count: u64) -> Result<Outcome> {
    let next = Arc::new(AtomicU64::new(0));
    let plan = Plan { warmup: Duration::ZERO, duration: Duration::from_secs(3_600), ..plan };
    drive(server, plan, |_| Creates::new(container, &next, count))?.check()
}

/// Point reads, against the floor.
pub fn read(options: &Options, report: &mut Report) -> Result<()> {
    let directory = options.directory()?;
    let server = Server::start(&options.server, Some(directory.path()))?;
    let container = prepare(&server, "items")?;
    fill(&server, options.plan, &container, options.items)?;
    let answer = capture(&server, Reads::new(&container, options.items, 0))?;
    let beside = options.directory()?;
    let file = beside.path().join("answer");
    std::fs::write(&file, answer)?;
    let floor = Server::start_floor(&file)?;

    report.line(format!("{} items of 1 KB, {}.\n", options.items, describe(options, options.plan)));
    let reads = |seed: usize| Reads::new(&container, options.items, seed as u64);
    let (mut least, mut ours) = (None, None);
    for _ in 0..options.rounds {
        merge(&mut least, drive(&floor, options.plan, reads)?.check()?);
        merge(&mut ours, drive(&server, options.plan, reads)?.check()?);
    }
    let (least, ours) = (least.expect("a round"), ours.expect("a round"));
    report.load_table();
    report.load("floor", &least);
    report.load("point reads", &ours);
    let ratio = ours.rate() / least.rate();
    report.line(format!(
        "\nServer CPU per read: {:.2} times the floor's.\n",
        ours.server_micros() / least.server_micros()
    ));
    report.bar(
        ratio >= 0.6,
        format!("point reads are {ratio:.2} of the floor's rate (at least 0.6)"),
    );
    server.stop()?;
    Ok(())
}

/// Durable creates, against the raw engine.
pub fn create(options: &Options, report: &mut Report) -> Result<()> {
    let batches = record(options, report)?;
    let (mut ours, mut raw) = (None, Raw::default());
    for _ in 0..options.rounds {
        raw.run(options, &batches)?;
        let directory = options.directory()?;
        let server = Server::start(&options.server, Some(directory.path()))?;
        let container = prepare(&server, "items")?;
        let next = Arc::new(AtomicU64::new(0));
        let load = |_| Creates::new(&container, &next, u64::MAX);
        merge(&mut ours, drive(&server, options.plan, load)?.check()?);
        server.stop()?;
    }
    let ours = ours.expect("a round");
    report.load_table();
    report.load("creates", &ours);
    report.line("");
    let (group_commit, made_up) = raw.report(options, report);
    let ratio = ours.rate() / group_commit;
    report.bar(
        ratio >= 0.5,
        format!("durable creates are {ratio:.2} of the raw engine's group commit (at least 0.5)"),
    );
    let ratio = ours.rate() / made_up;
    report.line(format!(
        "- they are {ratio:.2} of its rate with batches that are made up beforehand"
    ));
    Ok(())
}

/// The raw engine alone.
pub fn raw_only(options: &Options, report: &mut Report) -> Result<()> {
    let batches = record(options, report)?;
    let mut raw = Raw::default();
    for _ in 0..options.rounds {
        raw.run(options, &batches)?;
    }
    raw.report(options, report);
    Ok(())
}

/// The batches of as many creates as asked for, and what they are like.
fn record(options: &Options, report: &mut Report) -> Result<Vec<Batch>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let batches = runtime.block_on(raw::record(options.items, 1))?;
    let writes = || batches.iter().flat_map(|batch| &batch.writes);
    let bytes = |write: &storage::Write| {
        write.key.len() + write.value.as_ref().map_or(0, |value| value.len())
    };
    report.line(format!(
        "1 KB items with default indexing: {} entries of {} bytes in all for a create; {}.\n",
        writes().count() / batches.len(),
        writes().map(bytes).sum::<usize>() / batches.len(),
        describe(options, options.plan)
    ));
    Ok(batches)
}

/// The raw engine's rates, run by run.
#[derive(Default)]
struct Raw {
    many: Vec<raw::Rate>,
    one: Vec<raw::Rate>,
}

impl Raw {
    fn run(&mut self, options: &Options, batches: &[Batch]) -> Result<()> {
        let clients = options.plan.connections;
        self.many.push(raw::many_committers(options.directory()?.path(), batches, clients)?);
        self.one.push(raw::one_writer(options.directory()?.path(), batches, clients)?);
        Ok(())
    }

    /// Writes the table; the rates of both ways.
    fn report(&self, options: &Options, report: &mut Report) -> (f64, f64) {
        let mean = |rates: &[raw::Rate], value: fn(&raw::Rate) -> f64| {
            rates.iter().map(value).sum::<f64>() / rates.len() as f64
        };
        let clients = options.plan.connections;
        report.line(
            "| raw engine, the same entries | creates/s | creates per sync | CPU µs/create | other load |\n\
             |---|---:|---:|---:|---:|",
        );
        for (name, rates) in [
            (format!("{clients} committers, a create each"), &self.many),
            (format!("one writer, {clients} creates a batch"), &self.one),
        ] {
            report.line(format!(
                "| {name} | {:.0} | {:.1} | {:.1} | {:.0} % |",
                mean(rates, |rate| rate.creates),
                mean(rates, |rate| rate.per_sync),
                mean(rates, |rate| rate.cpu_micros),
                mean(rates, |rate| rate.other_percent),
            ));
        }
        report.line("");
        (mean(&self.many, |rate| rate.creates), mean(&self.one, |rate| rate.creates))
    }
}

/// Upserts of items that are there.
pub fn upsert(options: &Options, report: &mut Report) -> Result<()> {
    steady(options, report, "upserts", |container, seed, _| {
        Upserts::new(container, options.items, seed)
    })
}

/// Reads, upserts and creates together.
pub fn mixed(options: &Options, report: &mut Report) -> Result<()> {
    steady(options, report, "7 reads, 2 upserts, 1 create", |container, seed, next| Mixed {
        reads: Reads::new(container, options.items, seed),
        creates: Creates::new(container, next, u64::MAX),
        upserts: Upserts::new(container, options.items, seed),
        turn: seed as u32,
    })
}

fn steady<W: Workload>(
    options: &Options,
    report: &mut Report,
    name: &str,
    workload: impl Fn(&str, u64, &Arc<AtomicU64>) -> W,
) -> Result<()> {
    let directory = options.directory()?;
    let server = Server::start(&options.server, Some(directory.path()))?;
    let container = prepare(&server, "items")?;
    fill(&server, options.plan, &container, options.items)?;
    let next = Arc::new(AtomicU64::new(options.items));
    let load = |index: usize| workload(&container, index as u64, &next);
    let outcome = drive(&server, options.plan, load)?.check()?;
    report.line(format!("{} items of 1 KB, {}.\n", options.items, describe(options, options.plan)));
    report.load_table();
    report.load(name, &outcome);
    server.stop()?;
    Ok(())
}

/// A container for a load, on a server that has none.
pub fn prepare(server: &Server, name: &str) -> Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { Api::open(server.address).await?.create_container(name, None).await })
}

/// One answer of a load, as it is on the wire.
fn capture(server: &Server, mut workload: impl Workload) -> Result<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut request = Request::new();
        workload.request(&mut Signer::new(KEY), &mut request);
        let mut connection = Connection::open(server.address).await?;
        let response = connection.exchange(&request).await?;
        anyhow::ensure!(workload.accept(&response), "not the answer: {}", response.describe());
        Ok([response.head, response.body].concat())
    })
}

/// Client threads against the floor alone, with an answer made up here: what the load generator itself can do.
pub fn floor_only(options: &Options, report: &mut Report) -> Result<()> {
    let directory = options.directory()?;
    let file = directory.path().join("answer");
    std::fs::write(&file, sample_answer())?;
    let floor = Server::start_floor(&file)?;
    let reads = |seed: usize| Reads::new("/dbs/bench/colls/items", options.items, seed as u64);
    let outcome = drive(&floor, options.plan, reads)?.check()?;
    report.load_table();
    report.load("floor, made-up answer", &outcome);
    Ok(())
}

fn sample_answer() -> Vec<u8> {
    let mut answer = b"HTTP/1.1 200 OK\r\n".to_vec();
    for number in 0..20 {
        answer.extend_from_slice(format!("x-ms-sample-{number}: {:032}\r\n", number).as_bytes());
    }
    answer.extend_from_slice(b"\r\n");
    items::write(0, 0, &mut answer);
    answer.extend_from_slice(&[b' '; 250]);
    answer
}

pub fn merge(sum: &mut Option<Outcome>, outcome: Outcome) {
    match sum {
        Some(sum) => sum.add(outcome),
        None => *sum = Some(outcome),
    }
}

pub fn describe(options: &Options, plan: Plan) -> String {
    format!(
        "{} connections, {} client threads, {} s a run, {} rounds",
        plan.connections,
        plan.threads,
        plan.duration.as_secs(),
        options.rounds
    )
}
