//! Churn: items that expire after ten seconds, inserted as fast as the server takes them, while readers look for one
//! that should be gone, or is gone too soon.
//!
//! Client and server share the machine's clock, and the server's `now` is a whole second, so the seconds before sending and
//! after receiving bound the `now` of a request from both sides: what was dead before sending must not be seen, and what
//! lives on after receiving must be.

use std::collections::{HashSet, VecDeque};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;
use memchr::memmem;

use crate::api::{Answer, Api};
use crate::http::{Connection, Request};
use crate::items;
use crate::load::histogram;
use crate::options::Options;
use crate::process::{Server, disk_bytes};
use crate::report::{Report, megabytes};
use crate::sign::{KEY, Signer, unix_secs};

/// Seconds an item lives.
const TTL: u64 = 10;

/// Seconds after its end during which an item is still read, to see that it is not there.
const AFTERLIFE: u64 = 3;

/// Connections that read points, one request after another.
const READERS: u64 = 8;

/// Between the pages of those who read lists, queries and the change feed.
const PAGE_PAUSE: Duration = Duration::from_millis(25);

/// What all connections of a run know.
struct Shared {
    container: String,
    expires: bool,
    next: AtomicU64,
    stop: AtomicBool,
    /// Numbers and `_ts` of the items written lately, oldest first.
    recent: Mutex<VecDeque<(u64, u64)>>,
    seen: Mutex<Seen>,
}

/// What they have seen.
struct Seen {
    inserts: u64,
    reads: u64,
    pages: u64,
    page_items: u64,
    reused: u64,
    latency: Histogram<u64>,
    faults: Vec<String>,
}

/// One look at the server.
struct Sample {
    second: u64,
    inserts: u64,
    disk: u64,
    memory: u64,
    lag_items: u64,
    lag_secs: u64,
}

impl Shared {
    fn recent(&self) -> MutexGuard<'_, VecDeque<(u64, u64)>> {
        self.recent.lock().expect("nobody panics with it")
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("nobody panics with it")
    }

    fn fault(&self, text: String) {
        let mut seen = self.seen();
        if seen.faults.len() < 20 {
            println!("FAULT {text}");
        }
        seen.faults.push(text);
    }

    /// Items written earlier are read no more.
    fn forget_before(&self, oldest: u64) {
        let mut recent = self.recent();
        while recent.front().is_some_and(|&(_, ts)| ts < oldest) {
            recent.pop_front();
        }
    }

    fn running(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// The items of a page must all be alive at the second before it was asked for.
    fn check_page(&self, what: &str, asked: u64, answer: &Answer) {
        let mut count = 0;
        for ts in timestamps(&answer.body) {
            count += 1;
            if self.expires && ts + TTL <= asked {
                self.fault(format!("{what}: an item with _ts {ts} at {asked}"));
            }
        }
        let mut seen = self.seen();
        seen.pages += 1;
        seen.page_items += count;
    }
}

/// Churn with expiry, and the same load without.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let seconds = options.seconds.unwrap_or(300);
    report.line(format!(
        "Inserts of 1 KB items at full rate for {seconds} s, default ttl {TTL} s: {} connections insert, {READERS} read points, one \
         each walks list, query and change feed, one creates expired ids anew.\n",
        options.plan.connections
    ));
    let plain = phase(options, seconds, false)?;
    let (seen, samples, after) = phase(options, seconds, true)?;
    report.line(
        "| second | inserts/s | disk | memory | dead items stored | oldest dead for |\n|---:|---:|---:|---:|---:|---:|",
    );
    let step = (samples.len() / 15).max(1);
    for pair in samples.iter().step_by(step).collect::<Vec<_>>().windows(2) {
        let secs = (pair[1].second - pair[0].second).max(1);
        report.line(format!(
            "| {} | {} | {} | {} | {} | {} s |",
            pair[1].second,
            (pair[1].inserts - pair[0].inserts) / secs,
            megabytes(pair[1].disk),
            megabytes(pair[1].memory),
            pair[1].lag_items,
            pair[1].lag_secs
        ));
    }
    report.line(format!("\nAfter the load: {after}\n"));
    report.line("| load | inserts/s | point reads/s | read p50 ms | read p99 ms |\n|---|---:|---:|---:|---:|");
    for (name, seen) in [("without expiry", &plain.0), ("with expiry", &seen)] {
        report.line(format!(
            "| {name} | {} | {} | {:.2} | {:.2} |",
            seen.inserts / seconds,
            seen.reads / seconds,
            seen.latency.value_at_percentile(50.0) as f64 / 1e3,
            seen.latency.value_at_percentile(99.0) as f64 / 1e3,
        ));
    }
    report.line("");
    judge(report, &plain.0, &seen, &samples);
    Ok(())
}

fn judge(report: &mut Report, plain: &Seen, seen: &Seen, samples: &[Sample]) {
    report.bar(
        seen.faults.is_empty() && plain.faults.is_empty(),
        format!(
            "{} faults (expired items seen, live ones missing, ids not free) in {} point reads, {} pages with {} items, \
             {} ids used again",
            seen.faults.len() + plain.faults.len(),
            seen.reads,
            seen.pages,
            seen.page_items,
            seen.reused
        ),
    );
    for fault in seen.faults.iter().chain(&plain.faults).take(5) {
        report.line(format!("  - {fault}"));
    }
    let quarter = samples.len() / 4;
    let mean = |part: &[Sample], value: &dyn Fn(&Sample) -> u64| {
        part.iter().map(value).sum::<u64>() as f64 / part.len().max(1) as f64
    };
    let mut bounded = |name: &str, slack: f64, value: &dyn Fn(&Sample) -> u64| {
        let early = mean(&samples[quarter..2 * quarter], value);
        let late = mean(&samples[3 * quarter..], value);
        report.bar(
            late <= early * 1.25 + slack,
            format!("{name}: {early:.0} in the second quarter, {late:.0} in the last (at most a quarter more)"),
        );
    };
    bounded("disk, MB", 16.0, &|sample| sample.disk / 1_000_000);
    bounded("memory, MB", 16.0, &|sample| sample.memory / 1_000_000);
    bounded("purge lag, s", 3.0, &|sample| sample.lag_secs);
    let p99 = |seen: &Seen| seen.latency.value_at_percentile(99.0) as f64;
    let ratio = p99(seen) / p99(plain);
    report.bar(
        ratio <= 1.5,
        format!("p99 of point reads is {ratio:.2} of that without expiry (at most 1.5)"),
    );
}

/// One run: what was seen, the samples, and how the purge ended.
fn phase(options: &Options, seconds: u64, expires: bool) -> Result<(Seen, Vec<Sample>, String)> {
    let directory = options.directory()?;
    let server = Server::start(&options.server, Some(directory.path()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let address = server.address;
    let shared = runtime.block_on(async {
        let mut api = Api::open(address).await?;
        let ttl = expires.then_some(TTL as i64);
        anyhow::Ok(Arc::new(Shared {
            container: api.create_container("churn", ttl).await?,
            expires,
            next: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            recent: Mutex::default(),
            seen: Mutex::new(Seen {
                inserts: 0,
                reads: 0,
                pages: 0,
                page_items: 0,
                reused: 0,
                latency: histogram(),
                faults: Vec::new(),
            }),
        }))
    })?;
    let (samples, after) = runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..options.plan.connections {
            tasks.spawn(insert(address, shared.clone()));
        }
        for index in 0..READERS {
            let seed = options.seed.wrapping_add(index);
            tasks.spawn(read(address, shared.clone(), fastrand::Rng::with_seed(seed)));
        }
        tasks.spawn(walk_list(address, shared.clone()));
        tasks.spawn(walk_query(address, shared.clone()));
        tasks.spawn(walk_changes(address, shared.clone()));
        if expires {
            tasks.spawn(reuse(address, shared.clone()));
        }
        let mut api = Api::open(address).await?;
        let samples = watch(&mut api, &server, directory.path(), &shared, seconds).await?;
        shared.stop.store(true, Ordering::Relaxed);
        while let Some(task) = tasks.join_next().await {
            task??;
        }
        anyhow::Ok((samples, catch_up(&mut api, &server, directory.path(), expires).await?))
    })?;
    server.stop()?;
    let shared = Arc::into_inner(shared).expect("all tasks have ended");
    Ok((shared.seen.into_inner().expect("nobody panics with it"), samples, after))
}

async fn watch(
    api: &mut Api,
    server: &Server,
    directory: &Path,
    shared: &Shared,
    seconds: u64,
) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for second in 0..=seconds {
        let (lag_items, lag_secs) = api.lag().await?;
        samples.push(Sample {
            second,
            inserts: shared.seen().inserts,
            disk: disk_bytes(directory),
            memory: server.rss_bytes(),
            lag_items,
            lag_secs,
        });
        shared.forget_before(unix_secs().saturating_sub(TTL + AFTERLIFE));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(samples)
}

/// Waits until nothing dead is left in the store.
async fn catch_up(
    api: &mut Api,
    server: &Server,
    directory: &Path,
    expires: bool,
) -> Result<String> {
    if !expires {
        return Ok(String::new());
    }
    let start = Instant::now();
    tokio::time::sleep(Duration::from_secs(TTL + 1)).await;
    let mut waited = Duration::ZERO;
    while api.lag().await?.0 > 0 && start.elapsed() < Duration::from_secs(600) {
        tokio::time::sleep(Duration::from_millis(250)).await;
        waited = start.elapsed().saturating_sub(Duration::from_secs(TTL));
    }
    Ok(format!(
        "{} dead items stored {:.1} s after the last had expired; disk {}, memory {}.",
        api.lag().await?.0,
        waited.as_secs_f64(),
        megabytes(disk_bytes(directory)),
        megabytes(server.rss_bytes())
    ))
}

async fn insert(address: SocketAddr, shared: Arc<Shared>) -> Result<()> {
    let mut connection = Connection::open(address).await?;
    let (mut signer, mut request) = (Signer::new(KEY), Request::new());
    let feed = format!("{}/docs", shared.container);
    while shared.running() {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        create(&mut request, &mut signer, &feed, number);
        let response = connection.exchange(&request).await?;
        match timestamps(response.body).next() {
            Some(ts) if response.status == 201 => {
                shared.recent().push_back((number, ts));
                shared.seen().inserts += 1;
            }
            _ => shared.fault(format!("create: {}", response.describe())),
        }
    }
    Ok(())
}

fn create(request: &mut Request, signer: &mut Signer, feed: &str, number: u64) {
    request.start(signer, "POST", feed);
    request.partition_key(&items::key(number));
    items::write(number, 0, request.body());
    request.end_body();
}

async fn read(address: SocketAddr, shared: Arc<Shared>, mut random: fastrand::Rng) -> Result<()> {
    let mut connection = Connection::open(address).await?;
    let (mut signer, mut request) = (Signer::new(KEY), Request::new());
    while shared.running() {
        let chosen = {
            let recent = shared.recent();
            (!recent.is_empty()).then(|| recent[random.usize(..recent.len())])
        };
        let Some((number, written)) = chosen else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        request.start(
            &mut signer,
            "GET",
            &format!("{}/docs/{}", shared.container, items::id(number)),
        );
        request.partition_key(&items::key(number)).end();
        let (asked, start) = (unix_secs(), Instant::now());
        let response = connection.exchange(&request).await?;
        let (latency, answered) = (start.elapsed(), unix_secs());
        match (response.status, timestamps(response.body).next()) {
            (200, Some(ts)) if shared.expires && ts + TTL <= asked => {
                shared.fault(format!("read: an item with _ts {ts} at {asked}"));
            }
            (200, Some(_)) => {}
            (404, _) if shared.expires && written + TTL <= answered => {}
            (404, _) => shared.fault(format!("read: no item with _ts {written} at {answered}")),
            _ => shared.fault(format!("read: {}", response.describe())),
        }
        let mut seen = shared.seen();
        seen.reads += 1;
        seen.latency.saturating_record(latency.as_micros() as u64);
    }
    Ok(())
}

/// Lists from the start again and again: that is where what dies next is.
async fn walk_list(address: SocketAddr, shared: Arc<Shared>) -> Result<()> {
    let mut api = Api::open(address).await?;
    let mut continuation: Option<String> = None;
    let mut pages = 0;
    while shared.running() {
        let asked = unix_secs();
        let answer = api.list(&shared.container, continuation.as_deref()).await?;
        if answer.status != 200 {
            shared.fault(format!(
                "list: {} {}",
                answer.status,
                String::from_utf8_lossy(&answer.body)
            ));
        }
        shared.check_page("list", asked, &answer);
        pages += 1;
        continuation = answer.continuation.filter(|_| pages % 10 != 0);
        tokio::time::sleep(PAGE_PAUSE).await;
    }
    Ok(())
}

async fn walk_query(address: SocketAddr, shared: Arc<Shared>) -> Result<()> {
    let mut api = Api::open(address).await?;
    let mut continuation: Option<String> = None;
    let mut pages = 0;
    while shared.running() {
        let asked = unix_secs();
        let text = "SELECT * FROM c";
        let answer = api.query(&shared.container, text, continuation.as_deref()).await?;
        if answer.status != 200 {
            shared.fault(format!(
                "query: {} {}",
                answer.status,
                String::from_utf8_lossy(&answer.body)
            ));
        }
        shared.check_page("query", asked, &answer);
        pages += 1;
        continuation = answer.continuation.filter(|_| pages % 10 != 0);
        tokio::time::sleep(PAGE_PAUSE).await;
    }
    Ok(())
}

async fn walk_changes(address: SocketAddr, shared: Arc<Shared>) -> Result<()> {
    let mut api = Api::open(address).await?;
    let mut etag: Option<String> = None;
    let mut pages = 0;
    while shared.running() {
        let asked = unix_secs();
        let answer = api.changes(&shared.container, etag.as_deref()).await?;
        if !matches!(answer.status, 200 | 304) {
            let body = String::from_utf8_lossy(&answer.body);
            shared.fault(format!("change feed: {} {body}", answer.status));
        }
        shared.check_page("change feed", asked, &answer);
        pages += 1;
        etag = answer.etag.filter(|_| pages % 10 != 0);
        tokio::time::sleep(PAGE_PAUSE).await;
    }
    Ok(())
}

/// Creates ids that have just expired: they must be free (R09).
async fn reuse(address: SocketAddr, shared: Arc<Shared>) -> Result<()> {
    let mut connection = Connection::open(address).await?;
    let (mut signer, mut request) = (Signer::new(KEY), Request::new());
    let feed = format!("{}/docs", shared.container);
    let mut used = HashSet::new();
    while shared.running() {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let asked = unix_secs();
        // The one that died last: answers come in about the order of their seconds, so it is near where the living begin.
        let expired = {
            let recent = shared.recent();
            let alive = recent.partition_point(|&(_, ts)| ts + TTL <= asked);
            let dead = |&&(number, ts): &&(u64, u64)| ts + TTL <= asked && !used.contains(&number);
            recent.range(..alive).rev().take(1_000).find(dead).map(|&(number, _)| number)
        };
        let Some(number) = expired else { continue };
        used.insert(number);
        create(&mut request, &mut signer, &feed, number);
        let response = connection.exchange(&request).await?;
        if response.status != 201 {
            shared.fault(format!("an expired id at {asked}: {}", response.describe()));
        }
        shared.seen().reused += 1;
    }
    Ok(())
}

/// The values of all `_ts` in a text of items.
fn timestamps(body: &[u8]) -> impl Iterator<Item = u64> {
    const NAME: &[u8] = b"\"_ts\":";
    memmem::find_iter(body, NAME).map(|at| {
        let digits = body[at + NAME.len()..].iter().skip_while(|byte| **byte == b' ');
        let digits = digits.take_while(|byte| byte.is_ascii_digit());
        digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_found_in_pages() {
        let page = br#"{"Documents":[{"id":"1","_ts":17},{"_ts": 18}],"_count":2}"#;
        assert_eq!(timestamps(page).collect::<Vec<_>>(), [17, 18]);
    }
}
