//! The purge beside clients that use all of their request units: what it takes from them, and how it catches up when they pause.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::api::Api;
use crate::http::{Connection, Request};
use crate::items;
use crate::options::Options;
use crate::process::Server;
use crate::report::Report;
use crate::sign::{KEY, Signer};

/// Seconds an item lives.
const TTL: i64 = 3;

/// Connections that create, more than the throughput has room for.
const CLIENTS: usize = 16;

/// What clients have got, and how far the purge was behind.
struct Seen {
    creates: u64,
    refused: u64,
    /// The lag in items, a second apart.
    lag: Vec<u64>,
    /// From the end of the load, and of the last life, until nothing dead was left.
    caught_up_in: Duration,
}

/// The same load with and without expiry.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let seconds = options.seconds.unwrap_or(20);
    report.line(format!(
        "{CLIENTS} connections create 1 KB items for {seconds} s in a container of 10,000 RU/s with `--throttle`, default ttl {TTL} s, and come again \
         when they are told to.\n"
    ));
    let plain = phase(options, seconds, false)?;
    let seen = phase(options, seconds, true)?;
    report.line("| load | creates/s | refused (429)/s |\n|---|---:|---:|");
    for (name, seen) in [("without expiry", &plain), ("with expiry", &seen)] {
        report.line(format!(
            "| {name} | {} | {} |",
            seen.creates / seconds,
            seen.refused / seconds
        ));
    }
    let lag: Vec<String> = seen.lag.iter().map(u64::to_string).collect();
    report.line(format!("\nDead items stored, second by second: {}.\n", lag.join(" ")));
    let ratio = seen.creates as f64 / plain.creates as f64;
    report.bar(
        ratio >= 0.97,
        format!(
            "clients have {ratio:.3} of the creates that they have without expiry (at least 0.97)"
        ),
    );
    report.bar(
        seen.caught_up_in < Duration::from_secs(2 * seconds),
        format!(
            "when they pause, the purge has removed all {} within {:.1} s of the end of the last (in twice the time of the load)",
            seen.creates,
            seen.caught_up_in.as_secs_f64()
        ),
    );
    Ok(())
}

fn phase(options: &Options, seconds: u64, expires: bool) -> Result<Seen> {
    let directory = options.directory()?;
    let server = Server::start_with(&options.server, Some(directory.path()), &["--throttle"])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let seen = runtime.block_on(async {
        let mut api = Api::open(server.address).await?;
        let container = api.create_container("purge", expires.then_some(TTL)).await?;
        let counts = Arc::new(Counts::default());
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..CLIENTS {
            tasks.spawn(create(server.address, container.clone(), counts.clone()));
        }
        let mut lag = Vec::new();
        for _ in 0..seconds {
            tokio::time::sleep(Duration::from_secs(1)).await;
            lag.push(api.lag().await?.0);
        }
        counts.stop.store(true, Ordering::Relaxed);
        while let Some(task) = tasks.join_next().await {
            task??;
        }
        tokio::time::sleep(Duration::from_secs(TTL as u64)).await;
        let start = Instant::now();
        while expires && api.lag().await?.0 > 0 {
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        anyhow::Ok(Seen {
            creates: counts.created.load(Ordering::Relaxed),
            refused: counts.refused.load(Ordering::Relaxed),
            lag,
            caught_up_in: start.elapsed(),
        })
    })?;
    server.stop()?;
    Ok(seen)
}

#[derive(Default)]
struct Counts {
    next: AtomicU64,
    created: AtomicU64,
    refused: AtomicU64,
    stop: AtomicBool,
}

/// Creates item after item, and waits as long as it is told to.
async fn create(address: SocketAddr, container: String, counts: Arc<Counts>) -> Result<()> {
    let mut connection = Connection::open(address).await?;
    let (mut signer, mut request) = (Signer::new(KEY), Request::new());
    let feed = format!("{container}/docs");
    while !counts.stop.load(Ordering::Relaxed) {
        let number = counts.next.fetch_add(1, Ordering::Relaxed);
        request.start(&mut signer, "POST", &feed);
        request.partition_key(&items::key(number));
        items::write(number, 0, request.body());
        request.end_body();
        let response = connection.exchange(&request).await?;
        match response.status {
            201 => drop(counts.created.fetch_add(1, Ordering::Relaxed)),
            429 => {
                counts.refused.fetch_add(1, Ordering::Relaxed);
                let wait =
                    response.header("x-ms-retry-after-ms").and_then(|text| text.parse().ok());
                tokio::time::sleep(Duration::from_millis(wait.unwrap_or(1))).await;
            }
            _ => bail!("create: {}", response.describe()),
        }
    }
    Ok(())
}
