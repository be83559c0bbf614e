//! Queries: what an index saves, what a scan costs, and what pages of large results take of the server's memory.
//!
//! Times of single queries are the server's CPU time, because that does not depend on what else the machine does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::api::Api;
use crate::options::Options;
use crate::process::Server;
use crate::report::{Report, megabytes};
use crate::steady;

/// Requests of each kind whose cost is compared, in rounds that alternate. CPU time is counted in steps of a hundredth of a second, so a
/// round must be much longer than that.
const REQUESTS: u64 = 20_000;
const REQUEST_ROUNDS: u64 = 10;

/// Sorted pages of each container in a round, and rounds.
const SORTS: u64 = 400;
const ROUNDS: u64 = 4;

/// Clients that page through everything at once.
const CLIENTS: u64 = 8;

/// All bars of queries, on a container of 1,000,000 items and one of a tenth.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let count = options.items_given.unwrap_or(1_000_000);
    let directory = options.directory()?;
    let server = Server::start(&options.server, Some(directory.path()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut api = runtime.block_on(Api::open(server.address))?;
    let (small, large) = runtime.block_on(async {
        anyhow::Ok((create(&mut api, "small").await?, create(&mut api, "large").await?))
    })?;
    steady::fill(&server, options.plan, &small, count / 10)?;
    let filled = steady::fill(&server, options.plan, &large, count)?;
    report.line(format!(
        "{count} items of 1 KB, and {} in another container, all paths indexed but two; written at {:.0}/s.\n",
        count / 10,
        filled.rate()
    ));
    server.wait_until_idle()?;
    runtime.block_on(async {
        equality(&server, &mut api, &large, count, report).await?;
        sorted(&server, &mut api, (&small, &large), report).await?;
        counted(&server, &mut api, &large, count, report).await?;
        filtered(&server, &mut api, &large, count, report).await
    })?;
    memory(&server, &large, count, report)?;
    server.stop()?;
    Ok(())
}

/// A container in which the longest text and one other field are not indexed.
async fn create(api: &mut Api, name: &str) -> Result<String> {
    let definition = json!({
        "id": name, "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2},
        "indexingPolicy": {
            "includedPaths": [{"path": "/*"}],
            "excludedPaths": [{"path": "/notes/?"}, {"path": "/email/?"}],
        },
    });
    api.create_defined(&definition).await
}

async fn equality(
    server: &Server,
    api: &mut Api,
    container: &str,
    count: u64,
    report: &mut Report,
) -> Result<()> {
    let (mut reads, mut queries) = (Duration::ZERO, Duration::ZERO);
    let mut number = 0;
    for _ in 0..REQUEST_ROUNDS {
        let before = server.cpu();
        for step in 0..REQUESTS / REQUEST_ROUNDS {
            let answer = api.read(container, (number + step * 7_919) % count).await?;
            answer.expect(&[200], "a point read")?;
        }
        let between = server.cpu();
        for step in 0..REQUESTS / REQUEST_ROUNDS {
            let text = format!(
                "SELECT * FROM c WHERE c.name = 'Observation {}'",
                (number + step * 7_919) % count
            );
            let answer = api.query(container, &text, None).await?.expect(&[200], "a query")?;
            ensure!(answer.json()["_count"] == 1, "{text} found another number of items");
        }
        reads += between - before;
        queries += server.cpu() - between;
        number += REQUESTS / REQUEST_ROUNDS * 7_919;
    }
    let micros = |time: Duration| time.as_secs_f64() * 1e6 / REQUESTS as f64;
    let ratio = queries.as_secs_f64() / reads.as_secs_f64();
    report.bar(
        ratio < 3.0,
        format!(
            "an indexed equality that finds 1 of {count} takes {ratio:.2} of a point read: {:.0} and {:.0} µs of CPU (under 3)",
            micros(queries),
            micros(reads)
        ),
    );
    Ok(())
}

async fn sorted(
    server: &Server,
    api: &mut Api,
    containers: (&str, &str),
    report: &mut Report,
) -> Result<()> {
    for text in [
        "SELECT TOP 100 c.id, c.name FROM c ORDER BY c.name",
        "SELECT TOP 100 c.id, c.price FROM c ORDER BY c.price DESC",
    ] {
        let (mut small, mut large) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..ROUNDS {
            small += timed(server, api, containers.0, text).await?;
            large += timed(server, api, containers.1, text).await?;
        }
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / (ROUNDS * SORTS) as f64;
        let ratio = large.as_secs_f64() / small.as_secs_f64();
        report.bar(
            ratio < 2.0,
            format!(
                "`{text}` takes {ratio:.2} of what it takes on a tenth of the items: {:.0} and {:.0} µs of CPU \
                 (under 2: what grows is the depth of the store)",
                micros(large),
                micros(small)
            ),
        );
    }
    Ok(())
}

async fn timed(server: &Server, api: &mut Api, container: &str, text: &str) -> Result<Duration> {
    let before = server.cpu();
    for _ in 0..SORTS {
        let answer = api.query(container, text, None).await?.expect(&[200], text)?;
        ensure!(answer.json()["_count"] == 100, "{text} gave another number of rows");
    }
    Ok(server.cpu() - before)
}

async fn counted(
    server: &Server,
    api: &mut Api,
    container: &str,
    count: u64,
    report: &mut Report,
) -> Result<()> {
    let text = "SELECT VALUE COUNT(1) FROM c WHERE c.quantity >= 100 AND c.quantity < 200";
    let before = server.cpu();
    let answer = api.query(container, text, None).await?.expect(&[200], text)?;
    let took = server.cpu() - before;
    let found = answer.json()["Documents"][0].as_u64().context("a count")?;
    let metrics = answer.metrics.context("no query metrics")?;
    let read = metrics.split(';').find_map(|part| part.strip_prefix("retrievedDocumentCount="));
    report.bar(
        read == Some("0") && found > count / 10 && found < count / 3,
        format!(
            "`{text}` counts {found} of {count} and reads {} items: {:.0} ms of CPU (none)",
            read.unwrap_or("?"),
            took.as_secs_f64() * 1e3
        ),
    );
    Ok(())
}

async fn filtered(
    server: &Server,
    api: &mut Api,
    container: &str,
    count: u64,
    report: &mut Report,
) -> Result<()> {
    let text = "SELECT VALUE COUNT(1) FROM c WHERE c.email = 'nobody@example.com'";
    let mut best = 0.0_f64;
    for _ in 0..3 {
        let before = server.cpu();
        let answer = api.query(container, text, None).await?.expect(&[200], text)?;
        let took = server.cpu() - before;
        ensure!(answer.json()["Documents"][0] == 0, "nobody was found");
        let metrics = answer.metrics.context("no query metrics")?;
        let size = |name: &str| {
            let value = metrics.split(';').find_map(|part| part.strip_prefix(name))?;
            value.parse::<f64>().ok()
        };
        ensure!(
            size("retrievedDocumentCount=") == Some(count as f64),
            "not all items were read: {metrics}"
        );
        let bytes = size("retrievedDocumentSize=").context("no size")?;
        best = best.max(bytes / 1e6 / took.as_secs_f64());
    }
    report.bar(
        best >= 400.0,
        format!("a filter on a field without index passes {best:.0} MB of items a second and core (at least 400)"),
    );
    Ok(())
}

/// Pages of 4 MB, as fast as eight clients take them.
fn memory(server: &Server, container: &str, count: u64, report: &mut Report) -> Result<()> {
    server.wait_until_idle()?;
    let idle = server.rss_bytes();
    let bytes = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (address, container, bytes) = (server.address, container.to_owned(), bytes.clone());
            std::thread::spawn(move || -> Result<u64> {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(async {
                    let mut api = Api::open(address).await?;
                    let (mut rows, mut token) = (0, None);
                    loop {
                        let text = "SELECT * FROM c";
                        let page =
                            api.query_page(&container, text, token.as_deref(), "100000").await?;
                        let page = page.expect(&[200], text)?;
                        bytes.fetch_add(page.body.len() as u64, Ordering::Relaxed);
                        rows += page.count.context("no count of rows")?;
                        token = page.continuation;
                        if token.is_none() {
                            return Ok(rows);
                        }
                    }
                })
            })
        })
        .collect();
    let mut most = idle;
    while !clients.iter().all(|client| client.is_finished()) {
        most = most.max(server.rss_bytes());
        std::thread::sleep(Duration::from_millis(20));
    }
    for client in clients {
        let rows = client.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
        ensure!(rows == count, "a client was given {rows} rows of {count}");
    }
    let over = most.saturating_sub(idle);
    report.bar(
        over < 200_000_000,
        format!(
            "while {CLIENTS} clients page through {} each, the server takes {} more than idle ({}; under 200 MB)",
            megabytes(bytes.load(Ordering::Relaxed) / CLIENTS),
            megabytes(over),
            megabytes(idle)
        ),
    );
    Ok(())
}
