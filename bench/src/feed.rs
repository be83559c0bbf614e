//! Many items at a time: batches against single creates, and the change feed against a query that reads everything.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::api::Api;
use crate::items;
use crate::options::Options;
use crate::process::Server;
use crate::report::Report;
use crate::steady;

/// The most operations in a batch.
const BATCH: u64 = 100;

/// A batch of creates against as many single ones, on one connection.
pub fn batch(options: &Options, report: &mut Report) -> Result<()> {
    let directory = options.directory()?;
    let server = Server::start(&options.server, Some(directory.path()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (single, batched) = runtime.block_on(async {
        let mut api = Api::open(server.address).await?;
        let container = api.create_container("batch", None).await?;
        let feed = format!("{container}/docs");
        let (mut single, mut batched) = (Vec::new(), Vec::new());
        for round in 0..options.rounds * 10 {
            let start = Instant::now();
            for number in 0..BATCH {
                let body = item(round, number, "s");
                let headers = [("x-ms-documentdb-partitionkey", r#"["p"]"#)];
                api.call("POST", &feed, &headers, body.as_bytes())
                    .await?
                    .expect(&[201], "create")?;
            }
            single.push(start.elapsed());
            let mut body = String::from("[");
            for number in 0..BATCH {
                let comma = if number > 0 { "," } else { "" };
                let item = item(round, number, "b");
                write!(body, r#"{comma}{{"operationType":"Create","resourceBody":{item}}}"#)?;
            }
            body.push(']');
            let headers = [
                ("x-ms-documentdb-partitionkey", r#"["p"]"#),
                ("x-ms-cosmos-is-batch-request", "true"),
                ("x-ms-cosmos-batch-atomic", "true"),
            ];
            let start = Instant::now();
            api.call("POST", &feed, &headers, body.as_bytes()).await?.expect(&[200], "batch")?;
            batched.push(start.elapsed());
        }
        anyhow::Ok((median(&mut single), median(&mut batched)))
    })?;
    let rate = |time: Duration| BATCH as f64 / time.as_secs_f64();
    report.line(format!(
        "| {BATCH} creates, one connection | median ms | items/s |\n|---|---:|---:|\n\
         | one by one | {:.1} | {:.0} |\n| in one batch | {:.1} | {:.0} |\n",
        single.as_secs_f64() * 1e3,
        rate(single),
        batched.as_secs_f64() * 1e3,
        rate(batched),
    ));
    let ratio = rate(batched) / rate(single);
    report.bar(
        ratio >= 5.0,
        format!("a batch writes {ratio:.1} times the items per second (5 or more)"),
    );
    server.stop()?;
    Ok(())
}

/// The change feed: read while items are created at full rate, and read from the start.
pub fn feed(options: &Options, report: &mut Report) -> Result<()> {
    let directory = options.directory()?;
    let server = Server::start(&options.server, Some(directory.path()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut api = runtime.block_on(Api::open(server.address))?;
    let container = runtime.block_on(api.create_container("feed", None))?;

    let (done, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let reader = {
        let (address, container, done, seen) =
            (server.address, container.clone(), done.clone(), seen.clone());
        std::thread::spawn(move || follow(address, &container, &done, &seen))
    };
    let start = Instant::now();
    steady::fill(&server, options.plan, &container, options.items)?;
    let created_in = start.elapsed();
    let behind = options.items.saturating_sub(seen.load(Ordering::Relaxed));
    done.store(true, Ordering::Relaxed);
    reader.join().expect("the reader does not panic")?;
    let caught_up_in = start.elapsed().saturating_sub(created_in);
    report.line(format!(
        "{} items created in {:.1} s ({:.0}/s) beside a reader of the feed; when the last was acknowledged it was {behind} behind, \
         and {:.0} ms later it had them all.\n",
        options.items,
        created_in.as_secs_f64(),
        options.items as f64 / created_in.as_secs_f64(),
        caught_up_in.as_secs_f64() * 1e3,
    ));
    let seen = seen.load(Ordering::Relaxed);
    report.bar(
        seen == options.items && caught_up_in < Duration::from_secs(1),
        format!("the reader has seen all {seen} within a second of the last create"),
    );

    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..options.rounds.max(3) {
        let start = Instant::now();
        runtime.block_on(read_feed(&mut api, &container, options.items))?;
        times[0].push(start.elapsed());
        let start = Instant::now();
        runtime.block_on(read_query(&mut api, &container, options.items))?;
        times[1].push(start.elapsed());
    }
    let [feed, query] = &mut times;
    let (feed, query) = (median(feed), median(query));
    report.line(format!(
        "| all {} items, pages of 1000 | median ms |\n|---|---:|\n| the feed from the start | {:.0} |\n| SELECT * FROM c | {:.0} |\n",
        options.items,
        feed.as_secs_f64() * 1e3,
        query.as_secs_f64() * 1e3,
    ));
    let ratio = feed.as_secs_f64() / query.as_secs_f64();
    report.bar(
        ratio < 1.0,
        format!("the feed takes {ratio:.2} of a query that reads everything (less than 1)"),
    );
    server.stop()?;
    Ok(())
}

/// Reads the feed until there is nothing new and nothing will be.
fn follow(
    address: std::net::SocketAddr,
    container: &str,
    done: &AtomicBool,
    seen: &AtomicU64,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut api = Api::open(address).await?;
        let mut etag: Option<String> = None;
        loop {
            let last_look = done.load(Ordering::Relaxed);
            let answer = changes(&mut api, container, etag.as_deref()).await?;
            seen.fetch_add(answer.items, Ordering::Relaxed);
            etag = answer.etag;
            if answer.items == 0 {
                if last_look {
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    })
}

/// A page of changes: how many, and where to go on.
struct Changes {
    items: u64,
    etag: Option<String>,
}

async fn changes(api: &mut Api, container: &str, etag: Option<&str>) -> Result<Changes> {
    let mut headers = vec![("a-im", "Incremental feed"), ("x-ms-max-item-count", "1000")];
    headers.extend(etag.map(|etag| ("if-none-match", etag)));
    let answer = api.call("GET", &format!("{container}/docs"), &headers, b"").await?;
    let answer = answer.expect(&[200, 304], "changes")?;
    Ok(Changes { items: count(&answer.body), etag: answer.etag })
}

async fn read_feed(api: &mut Api, container: &str, items: u64) -> Result<()> {
    let (mut seen, mut etag) = (0, None);
    loop {
        let page = changes(api, container, etag.as_deref()).await?;
        seen += page.items;
        etag = page.etag;
        if page.items == 0 {
            anyhow::ensure!(seen == items, "the feed has {seen} items instead of {items}");
            return Ok(());
        }
    }
}

async fn read_query(api: &mut Api, container: &str, items: u64) -> Result<()> {
    let (mut seen, mut continuation) = (0, None::<String>);
    loop {
        let mut headers = vec![
            ("x-ms-documentdb-isquery", "true"),
            ("x-ms-documentdb-query-enablecrosspartition", "true"),
            ("x-ms-max-item-count", "1000"),
        ];
        headers.extend(continuation.as_deref().map(|token| ("x-ms-continuation", token)));
        let body = br#"{"query":"SELECT * FROM c","parameters":[]}"#;
        let answer = api.call("POST", &format!("{container}/docs"), &headers, body).await?;
        let answer = answer.expect(&[200], "query")?;
        seen += count(&answer.body);
        continuation = answer.continuation;
        if continuation.is_none() {
            anyhow::ensure!(seen == items, "the query has {seen} items instead of {items}");
            return Ok(());
        }
    }
}

/// The `_count` that a feed ends with.
fn count(body: &[u8]) -> u64 {
    let text = std::str::from_utf8(body).unwrap_or_default();
    let digits = text.rsplit_once("\"_count\":").map_or("", |(_, rest)| rest.trim_end_matches('}'));
    digits.parse().unwrap_or(0)
}

fn item(round: u64, number: u64, kind: &str) -> String {
    let filler = "x".repeat(items::ITEM_BYTES.saturating_sub(60));
    format!(r#"{{"id":"{kind}{round}-{number}","pk":"p","filler":"{filler}"}}"#)
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
