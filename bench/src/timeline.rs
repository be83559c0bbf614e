//! What expires when in a full container: how long the question takes, the first time and later, with and without a dry run.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::api::Api;
use crate::load::Outcome;
use crate::million::LONG;
use crate::options::Options;
use crate::process::Server;
use crate::report::Report;
use crate::steady;

/// How often each kind of question is timed.
const QUESTIONS: usize = 200;

/// Items with an own ttl, in batches of a hundred.
const OWN: u64 = 20_000;

/// The bar for every answer.
const BAR: Duration = Duration::from_millis(100);

/// The timeline of a full container.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let count = options.items_given.unwrap_or(1_000_000);
    let directory = options.directory()?;
    let server = Server::start(&options.server, Some(directory.path()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut api = runtime.block_on(Api::open(server.address))?;
    let container = runtime.block_on(api.create_container("timeline", Some(LONG)))?;
    let filled = steady::fill(&server, options.plan, &container, count)?;
    runtime.block_on(fill_own(&mut api, &container))?;
    describe(report, &filled, count);
    runtime.block_on(ask(&mut api, &container, count, "after the items were written", report))?;
    server.stop()?;

    let server = Server::start(&options.server, Some(directory.path()))?;
    let mut api = runtime.block_on(Api::open(server.address))?;
    runtime.block_on(ask(&mut api, &container, count, "after a restart", report))?;
    server.stop()?;
    Ok(())
}

async fn fill_own(api: &mut Api, container: &str) -> Result<()> {
    let headers = [
        ("x-ms-documentdb-partitionkey", "[\"own\"]"),
        ("x-ms-cosmos-is-batch-request", "True"),
        ("x-ms-cosmos-batch-atomic", "True"),
    ];
    for first in (0..OWN).step_by(100) {
        let create = |number: u64| {
            let item =
                json!({"id": format!("own-{number}"), "pk": "own", "ttl": 600 + number * 60});
            json!({"operationType": "Create", "resourceBody": item})
        };
        let body = Value::from_iter((first..first + 100).map(create)).to_string();
        let path = format!("{container}/docs");
        api.call("POST", &path, &headers, body.as_bytes()).await?.expect(&[200], "a batch")?;
    }
    Ok(())
}

async fn ask(
    api: &mut Api,
    container: &str,
    count: u64,
    when: &str,
    report: &mut Report,
) -> Result<()> {
    let path = format!("/_admin/ttl{container}");
    let dry = format!("{path}?default=60");
    let (first, answer) = timed(api, &path).await?;
    let begun = Instant::now();
    let mut counted = answer.clone();
    while counted["uncounted"] != 0 {
        ensure!(begun.elapsed() < Duration::from_secs(60), "it counts for ever: {counted}");
        counted = timed(api, &path).await?.1;
    }
    let waited = begun.elapsed();
    let all: u64 =
        ["minutes", "hours", "days"].iter().map(|name| items(&counted[name])).max().unwrap_or(0);
    ensure!(counted["stored"]["items"] == count + OWN && all <= count + OWN, "wrong: {counted}");
    let (mut later, mut dried) = (Vec::new(), Vec::new());
    for _ in 0..QUESTIONS {
        later.push(timed(api, &path).await?.0);
        dried.push(timed(api, &dry).await?.0);
    }
    later.sort();
    dried.sort();
    report.line(format!(
        "\n| {when} | ms |\n|---|---:|\n| the first question | {:.1} |\n| (items it left to count: {}, done {:.0} ms later) | |\n\
         | later ones, median of {QUESTIONS} | {:.2} |\n| the worst of them | {:.2} |\n\
         | with a dry run, median | {:.2} |\n| the worst of them | {:.2} |\n",
        millis(first),
        answer["uncounted"],
        millis(waited),
        millis(later[QUESTIONS / 2]),
        millis(later[QUESTIONS - 1]),
        millis(dried[QUESTIONS / 2]),
        millis(dried[QUESTIONS - 1]),
    ));
    let worst = first.max(later[QUESTIONS - 1]).max(dried[QUESTIONS - 1]);
    report.bar(
        worst < BAR,
        format!(
            "the timeline of {} items, {when}, answers within {:.1} ms (under 100 ms)",
            count + OWN,
            millis(worst)
        ),
    );
    Ok(())
}

async fn timed(api: &mut Api, path: &str) -> Result<(Duration, Value)> {
    let start = Instant::now();
    let answer = api.call("GET", path, &[], b"").await?;
    let took = start.elapsed();
    Ok((took, answer.expect(&[200], "the timeline")?.json()))
}

fn items(steps: &Value) -> u64 {
    steps.as_array().into_iter().flatten().filter_map(|step| step["items"].as_u64()).sum()
}

fn describe(report: &mut Report, filled: &Outcome, count: u64) {
    report.line(format!(
        "{count} items of 1 KB that follow a default of 30 days, written in {:.0} s, and {OWN} with a ttl of their own.",
        filled.elapsed.as_secs_f64(),
    ));
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
