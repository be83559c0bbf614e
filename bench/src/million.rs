//! What must not depend on how much is stored: changing a default ttl, and starting.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::api::{Api, definition};
use crate::load::Outcome;
use crate::options::Options;
use crate::process::{Server, disk_bytes};
use crate::report::{Report, megabytes};
use crate::steady;

/// How often each kind of container replace is timed.
const REPLACES: usize = 40;

/// A month: nothing expires while the container fills.
pub const LONG: i64 = 2_592_000;

/// Changing the default of a full container.
pub fn ttl_default(options: &Options, report: &mut Report) -> Result<()> {
    let count = options.items_given.unwrap_or(1_000_000);
    let directory = options.directory()?;
    let server = Server::start(&options.server, Some(directory.path()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut api = runtime.block_on(Api::open(server.address))?;
    let container = runtime.block_on(api.create_container("million", Some(LONG)))?;
    let filled = steady::fill(&server, options.plan, &container, count)?;
    describe_fill(report, &filled, count, directory.path());
    runtime.block_on(change_default(&mut api, &container, report))?;
    runtime.block_on(expire_all(&mut api, &container, count, report, directory.path()))?;
    server.stop()?;
    Ok(())
}

async fn change_default(api: &mut Api, container: &str, report: &mut Report) -> Result<()> {
    let (mut others, mut changes) = (Vec::new(), Vec::new());
    for round in 0..REPLACES as i64 {
        let before = definition("million", Some(LONG - round));
        let after = definition("million", Some(LONG - round - 1));
        others.push(timed(api, container, &before).await?);
        changes.push(timed(api, container, &after).await?);
    }
    let (other, change) = (median(&mut others), median(&mut changes));
    report.line(format!(
        "| container replace, {REPLACES} each | median ms | worst ms |\n|---|---:|---:|\n\
         | same definition | {:.2} | {:.2} |\n| other default | {:.2} | {:.2} |\n",
        millis(other),
        millis(others[REPLACES - 1]),
        millis(change),
        millis(changes[REPLACES - 1]),
    ));
    report.bar(
        change <= other.mul_f64(1.5) + Duration::from_millis(1),
        format!("changing the default takes {:.2} of any other replace", ratio(change, other)),
    );
    Ok(())
}

async fn expire_all(
    api: &mut Api,
    container: &str,
    count: u64,
    report: &mut Report,
    directory: &Path,
) -> Result<()> {
    ensure!(api.read(container, count / 2).await?.status == 200, "an item is missing");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let stored = disk_bytes(directory);
    let took = timed(api, container, &definition("million", Some(1))).await?;
    let start = Instant::now();
    let read = api.read(container, count / 2).await?.status;
    let read_took = start.elapsed();
    let list = api.list(container, None).await?.json();
    let list_took = start.elapsed() - read_took;
    // Back again: what has expired stays so (R13).
    timed(api, container, &definition("million", Some(LONG))).await?;
    let again = api.read(container, count / 2).await?.status;
    let listed = list["_count"].as_u64();
    report.bar(
        (read, listed, again) == (404, Some(0), 404),
        format!(
            "a default of 1 s ends all {count} items: replace {:.2} ms, then a read {read} ({:.2} ms), a list of \
             {listed:?} ({:.2} ms); with the old default back a read {again}",
            millis(took),
            millis(read_took),
            millis(list_took),
        ),
    );
    let start = Instant::now();
    while api.lag().await?.0 > 0 && start.elapsed() < Duration::from_secs(900) {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let secs = start.elapsed().as_secs_f64();
    report.line(format!(
        "\nThe purge removed them in {secs:.0} s ({:.0} items/s) with no other load; disk {} before, {} after; {} left.",
        count as f64 / secs,
        megabytes(stored),
        megabytes(disk_bytes(directory)),
        api.lag().await?.0,
    ));
    Ok(())
}

/// Time to ready and idle cost.
pub fn start(options: &Options, report: &mut Report) -> Result<()> {
    let mut empty = Vec::new();
    let mut server = None;
    let mut keep = None;
    for _ in 0..10 {
        let directory = options.directory()?;
        let started = Server::start(&options.server, Some(directory.path()))?;
        empty.push(started.ready);
        server = Some(started);
        keep = Some(directory);
    }
    let server = server.expect("a server was started");
    let worst = empty.iter().max().copied().unwrap_or_default();
    report.bar(
        worst < Duration::from_millis(200),
        format!(
            "ready on an empty directory in {:.0} ms, at worst {:.0} ms (under 200 ms)",
            millis(median(&mut empty)),
            millis(worst)
        ),
    );
    idle(report, "empty", &server)?;
    server.stop()?;
    drop(keep);

    let count = options.items_given.unwrap_or(1_000_000);
    let directory = options.directory()?;
    let server = Server::start(&options.server, Some(directory.path()))?;
    let container = steady::prepare(&server, "items")?;
    let filled = steady::fill(&server, options.plan, &container, count)?;
    server.kill()?;
    report.line("");
    describe_fill(report, &filled, count, directory.path());

    let server = Server::start(&options.server, Some(directory.path()))?;
    report.bar(
        server.ready < Duration::from_secs(3),
        format!(
            "ready after kill -9 with {count} items in {:.0} ms (under 3 s)",
            millis(server.ready)
        ),
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let missing = runtime.block_on(async {
        let mut api = Api::open(server.address).await?;
        let mut missing = 0;
        for number in (0..count).rev().step_by(count.div_ceil(1_000) as usize) {
            missing += u64::from(api.read(&container, number).await?.status != 200);
        }
        anyhow::Ok(missing)
    })?;
    report.bar(missing == 0, format!("{missing} of 1000 items missing after kill -9"));
    let stopped = server.stop()?;
    let server = Server::start(&options.server, Some(directory.path()))?;
    report.line(format!(
        "- clean stop in {:.0} ms; ready after it in {:.0} ms",
        millis(stopped),
        millis(server.ready)
    ));
    idle(report, &format!("with {count} items"), &server)?;
    server.stop()?;
    Ok(())
}

fn idle(report: &mut Report, what: &str, server: &Server) -> Result<()> {
    std::thread::sleep(Duration::from_secs(2));
    let before = server.cpu();
    std::thread::sleep(Duration::from_secs(10));
    let used = server.cpu() - before;
    let memory = server.rss_bytes();
    report.bar(
        memory < 40_000_000,
        format!("idle, {what}: {} of memory (under 40 MB)", megabytes(memory)),
    );
    report.bar(
        used <= Duration::from_millis(20),
        format!("idle, {what}: {:.0} ms of CPU in 10 s (about 0)", millis(used)),
    );
    Ok(())
}

fn describe_fill(report: &mut Report, filled: &Outcome, count: u64, directory: &Path) {
    report.line(format!(
        "{count} items of 1 KB written in {:.0} s ({:.0}/s, p99 {:.1} ms); disk {}.\n",
        filled.elapsed.as_secs_f64(),
        filled.rate(),
        filled.percentile(99.0),
        megabytes(disk_bytes(directory)),
    ));
}

async fn timed(api: &mut Api, container: &str, definition: &serde_json::Value) -> Result<Duration> {
    let start = Instant::now();
    api.replace_container(container, definition).await?;
    Ok(start.elapsed())
}

/// The middle one; the list is sorted afterwards.
fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}
