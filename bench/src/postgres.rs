//! A server on one PostgreSQL node, against what the node can do without it.
//!
//! Both are measured on the same node, one after the other, over TCP. **The floor of creates** is a plain program that inserts the very rows
//! that the server writes for the same items, in transactions of as many creates as the server had in one on average, on as
//! many connections as the server writes with; each transaction is sent as a whole, and nothing is read, checked or answered to
//! anybody. **The floor of reads** is a prepared SELECT of an item's row by its primary key, one at a time on each of as
//! many connections as the readers of the server have.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use storage::postgres::Postgres;
use storage::{Batch, Engine, Family};
use tokio_postgres::Config;

use crate::api::Api;
use crate::load::{Client, Outcome, Part, Plan, Watch, Window, drive_watched, drive_with_store};
use crate::node::{Node, connect, runtime};
use crate::options::Options;
use crate::process::Server;
use crate::report::Report;
use crate::steady::{Creates, Reads, describe, fill, merge, prepare};
use crate::{node, raw};

/// Partitions of the container in the comparisons.
const PARTITIONS: u32 = 8;

/// How long a session stays after its last statement: the processor time of one that has gone is hard to find.
const LINGER: Duration = Duration::from_millis(10);

/// The curve.
const CURVE: [u32; 5] = [1, 2, 4, 8, 16];

/// What was measured of creates.
pub struct Created {
    /// The load.
    pub outcome: Outcome,
    /// Creates in a transaction, on average.
    pub per_commit: f64,
}

/// The comparisons and the curve.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let node = Node::start(options)?;
    let items = options.items_given.unwrap_or(30_000);
    report.line(format!(
        "PostgreSQL {} with the settings of `initdb` (fsync and synchronous_commit on), over TCP on the same machine; {PARTITIONS} partitions, {}.\n",
        node.version,
        describe(options, options.plan)
    ));
    head(report);
    let creates = create_bar(options, report, &node)?;
    let reads = read_bar(options, report, &node, items)?;
    report.line("");
    report.bar(
        creates >= 0.5,
        format!("durable creates are {creates:.2} of a plain program that inserts the same rows in the same batches (at least 0.5)"),
    );
    report.bar(
        reads >= 0.6,
        format!(
            "point reads are {reads:.2} of the rate of a prepared primary-key SELECT (at least 0.6)"
        ),
    );
    report.line("\nCreates over partitions, in per cent of all processors:\n");
    report.line(
        "| partitions | creates/s | a commit | commits/s | p50 ms | p99 ms | PostgreSQL | server | client | idle |\n\
         |---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    );
    for partitions in CURVE {
        let created = create(options, &node, partitions, Duration::from_secs(5))?;
        curve_row(report, partitions, &created);
    }
    Ok(())
}

fn head(report: &mut Report) {
    report.line(
        "| load | per second | a commit | p50 ms | p99 ms | PostgreSQL CPU µs | server CPU µs | client CPU µs | other load |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|",
    );
}

fn row(report: &mut Report, name: &str, outcome: &Outcome, per_commit: Option<f64>) {
    let micros = |cpu: Duration| cpu.as_secs_f64() * 1e6 / outcome.requests.max(1) as f64;
    report.line(format!(
        "| {name} | {:.0} | {} | {:.2} | {:.2} | {:.1} | {:.1} | {:.1} | {:.0} % |",
        outcome.rate(),
        per_commit.map_or(String::new(), |creates| format!("{creates:.1}")),
        outcome.percentile(50.0),
        outcome.percentile(99.0),
        micros(outcome.store_cpu),
        micros(outcome.server_cpu),
        micros(outcome.client_cpu),
        outcome.other_percent(),
    ));
}

fn curve_row(report: &mut Report, partitions: u32, created: &Created) {
    let Created { outcome, per_commit } = created;
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let part = |cpu: Duration| cpu.as_secs_f64() * 100.0 / (outcome.elapsed.as_secs_f64() * cores);
    let (store, server, client) =
        (part(outcome.store_cpu), part(outcome.server_cpu), part(outcome.client_cpu));
    report.line(format!(
        "| {partitions} | {:.0} | {per_commit:.1} | {:.0} | {:.1} | {:.1} | {store:.0} | {server:.0} | {client:.0} | {:.0} |",
        outcome.rate(),
        outcome.rate() / per_commit,
        outcome.percentile(50.0),
        outcome.percentile(99.0),
        (100.0 - store - server - client - outcome.other_percent()).max(0.0),
    ));
}

/// Creates of the server, then of the floor, round by round; their ratio.
fn create_bar(options: &Options, report: &mut Report, node: &Node) -> Result<f64> {
    let batches = runtime()?.block_on(raw::record(options.items, PARTITIONS))?;
    let (mut ours, mut least, mut per_commit) = (None, None, 0.0);
    for _ in 0..options.rounds {
        let created = create(options, node, PARTITIONS, options.plan.duration)?;
        per_commit += created.per_commit / options.rounds as f64;
        merge(&mut ours, created.outcome);
        merge(&mut least, insert(options, node, &batches, created.per_commit)?);
    }
    let (ours, least) = (ours.expect("a round"), least.expect("a round"));
    row(report, "the same rows inserted", &least, Some(per_commit));
    row(report, "creates", &ours, Some(per_commit));
    Ok(ours.rate() / least.rate())
}

/// Creates over HTTP in an empty database.
pub fn create(options: &Options, node: &Node, partitions: u32, time: Duration) -> Result<Created> {
    let url = node.database("creates")?;
    let flag = partitions.to_string();
    let server = Server::start_on(&options.server, &url, &["--partitions", &flag])?;
    let container = prepare(&server, "items")?;
    let next = Arc::new(AtomicU64::new(0));
    let commits = || {
        runtime()?.block_on(async {
            Api::open(server.address).await?.metric("sidereal_storage_commits_total").await
        })
    };
    let before = commits()?;
    let load = |_| Creates::new(&container, &next, u64::MAX);
    let plan = Plan { duration: time, ..options.plan };
    let outcome = drive_with_store(&server, &|| node.cpu(), plan, load)?.check()?;
    let created = next.load(Ordering::Relaxed);
    let per_commit = created as f64 / (commits()? - before).max(1) as f64;
    server.stop()?;
    node.drop_database("creates")?;
    Ok(Created { outcome, per_commit })
}

/// The rows of a transaction as columns, and the partition's head.
struct Rows {
    buckets: Vec<i64>,
    keys: Vec<Vec<u8>>,
    values: Vec<Bytes>,
    head: (i64, Vec<u8>, Bytes),
    creates: u64,
}

impl Rows {
    fn of(batches: &[Batch]) -> Self {
        let place = |write: &storage::Write| {
            let bucket = (db::BUCKETS.of)(write.family, &write.key) as i64;
            (bucket, [&[write.family as u8][..], &write.key].concat())
        };
        let mut writes = raw::merge(batches).writes;
        writes.sort_by_cached_key(place);
        let mut rows = Self {
            buckets: Vec::new(),
            keys: Vec::new(),
            values: Vec::new(),
            head: (0, Vec::new(), Bytes::new()),
            creates: batches.len() as u64,
        };
        for write in writes {
            let (bucket, key) = place(&write);
            let value = write.value.unwrap_or_default();
            if write.family == Family::Catalog {
                rows.head = (bucket, key, value);
            } else {
                rows.buckets.push(bucket);
                rows.keys.push(key);
                rows.values.push(value);
            }
        }
        rows
    }
}

/// The floor: inserts the rows of creates that were made beforehand, so many creates in a transaction.
fn insert(options: &Options, node: &Node, batches: &[Batch], per_commit: f64) -> Result<Outcome> {
    let mut partitions: BTreeMap<u64, Vec<Batch>> = BTreeMap::new();
    for batch in batches {
        let home = &batch.checks[0];
        let bucket = (db::BUCKETS.of)(home.family, &home.key);
        partitions.entry(bucket).or_default().push(batch.clone());
    }
    let transactions: Vec<Arc<Vec<Rows>>> = partitions
        .into_values()
        .map(|batches| {
            let (mut rows, mut at) = (Vec::new(), 0);
            while at < batches.len() {
                // Whole creates, and the right number on average.
                let end = ((rows.len() + 1) as f64 * per_commit).round() as usize;
                let end = end.clamp(at + 1, batches.len());
                rows.push(Rows::of(&batches[at..end]));
                at = end;
            }
            Arc::new(rows)
        })
        .collect();
    let url = node.database("floor")?;
    runtime()?.block_on(async {
        // The tables are the server's own.
        Postgres::open(&[&url], db::BUCKETS, Default::default()).await?.close().await?;
        let client = node.connect("floor").await?;
        for rows in &transactions {
            let (bucket, key, value) = &rows[0].head;
            let sql = "INSERT INTO sidereal_kv (b, k, v) VALUES ($1, $2, $3)";
            client.execute(sql, &[bucket, key, &&value[..]]).await?;
        }
        anyhow::Ok(())
    })?;
    let config = node.config("floor");
    let plan = Plan { connections: transactions.len(), ..options.plan };
    let watch = Watch { server: &|| Duration::ZERO, store: &|| node.cpu() };
    let outcome = drive_watched(watch, plan, |index| Inserts {
        config: config.clone(),
        transactions: transactions[index].clone(),
    })?;
    node.drop_database("floor")?;
    outcome.check()
}

/// A connection that inserts.
struct Inserts {
    config: Config,
    transactions: Arc<Vec<Rows>>,
}

impl Client for Inserts {
    async fn run(self, window: Window) -> Result<Part> {
        let mut part = Part::new();
        let client = node::connect(&self.config).await?;
        let insert = client
            .prepare(
                "INSERT INTO sidereal_kv (b, k, v) \
                 SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[])",
            )
            .await?;
        let update =
            client.prepare("UPDATE sidereal_kv SET v = $3 WHERE b = $1 AND k = $2").await?;
        let mut sent = Instant::now();
        for rows in &*self.transactions {
            if sent >= window.end {
                break;
            }
            let (bucket, key, head) = &rows.head;
            let (head, values) = (&head[..], rows.values.iter().map(|value| &value[..]));
            let values: Vec<&[u8]> = values.collect();
            let made = tokio::try_join!(
                client.batch_execute("BEGIN"),
                async { client.execute(&update, &[bucket, key, &head]).await },
                async { client.execute(&insert, &[&rows.buckets, &rows.keys, &values]).await },
                client.batch_execute("COMMIT"),
            );
            made?;
            let received = Instant::now();
            (0..rows.creates).for_each(|_| part.count(sent, received, window));
            sent = received;
        }
        std::thread::sleep(LINGER);
        Ok(part)
    }
}

/// Point reads of the server, and the floor's; their ratio.
fn read_bar(options: &Options, report: &mut Report, node: &Node, items: u64) -> Result<f64> {
    let url = node.database("reads")?;
    let flag = PARTITIONS.to_string();
    let server = Server::start_on(&options.server, &url, &["--partitions", &flag])?;
    let container = prepare(&server, "items")?;
    fill(&server, options.plan, &container, items)?;
    let places: Vec<(i64, Vec<u8>)> = runtime()?.block_on(async {
        let client = node.connect("reads").await?;
        client.batch_execute("VACUUM ANALYZE sidereal_kv").await?;
        client.batch_execute("CHECKPOINT").await?;
        let (first, last) = (vec![Family::Item as u8], vec![Family::Item as u8 + 1]);
        let sql = "SELECT b, k FROM sidereal_kv WHERE k >= $1 AND k < $2";
        let rows = client.query(sql, &[&first, &last]).await?;
        anyhow::Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    })?;
    anyhow::ensure!(places.len() as u64 == items, "{} items are stored", places.len());
    let places = Arc::new(places);
    let config = node.config("reads");
    let store = || node.cpu();
    let (mut ours, mut least) = (None, None);
    for _ in 0..options.rounds {
        let watch = Watch { server: &|| Duration::ZERO, store: &store };
        let floor = drive_watched(watch, options.plan, |index| Selects {
            config: config.clone(),
            places: places.clone(),
            random: fastrand::Rng::with_seed(index as u64),
        })?;
        merge(&mut least, floor.check()?);
        let reads = |index: usize| Reads::new(&container, items, index as u64);
        let reads = drive_with_store(&server, &store, options.plan, reads)?;
        merge(&mut ours, reads.check()?);
    }
    server.stop()?;
    let (ours, least) = (ours.expect("a round"), least.expect("a round"));
    row(report, "SELECT by primary key", &least, None);
    row(report, "point reads", &ours, None);
    Ok(ours.rate() / least.rate())
}

/// A connection that selects.
struct Selects {
    config: Config,
    places: Arc<Vec<(i64, Vec<u8>)>>,
    random: fastrand::Rng,
}

impl Client for Selects {
    async fn run(mut self, window: Window) -> Result<Part> {
        let mut part = Part::new();
        let client = connect(&self.config).await?;
        let select = client.prepare("SELECT v FROM sidereal_kv WHERE b = $1 AND k = $2").await?;
        let mut sent = Instant::now();
        while sent < window.end {
            let (bucket, key) = &self.places[self.random.usize(..self.places.len())];
            let row = client.query_one(&select, &[bucket, key]).await?;
            if row.get::<_, &[u8]>(0).len() < crate::items::ITEM_BYTES {
                part.wrong(0, || "a row that is no item".into());
            }
            let received = Instant::now();
            part.count(sent, received, window);
            sent = received;
        }
        std::thread::sleep(LINGER);
        Ok(part)
    }
}
