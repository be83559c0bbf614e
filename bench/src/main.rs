//! A load generator for Sidereal that also says whether it keeps the project's bars.
//!
//! The server is always another process, and so is what it is compared with: the [`floor`], the HTTP stack with nothing behind it.
//! Only the [`raw`] engine runs in here, as no HTTP is between it and its entries. Ratios are of numbers from one run on
//! one machine, because nothing else compares.

mod api;
mod batching;
mod churn;
mod crash;
mod feed;
mod floor;
mod http;
mod items;
mod load;
mod million;
mod mongo;
mod node;
mod options;
mod postgres;
mod process;
mod purge;
mod query;
mod raw;
mod report;
mod sign;
mod steady;
mod timeline;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::options::{HELP, Options};
use crate::report::Report;

type Scenario = fn(&Options, &mut Report) -> Result<()>;

/// The scenarios by name, in the order in which `all` runs them.
const SCENARIOS: [(&str, Scenario); 17] = [
    ("read", steady::read),
    ("create", steady::create),
    ("upsert", steady::upsert),
    ("mixed", steady::mixed),
    ("batch", feed::batch),
    ("feed", feed::feed),
    ("query", query::run),
    ("mongo-find", mongo::find),
    ("mongo-insert", mongo::insert),
    ("start", million::start),
    ("ttl-default", million::ttl_default),
    ("timeline", timeline::run),
    ("purge", purge::run),
    ("churn", churn::run),
    ("crash", crash::run),
    ("postgres", postgres::run),
    ("batching", batching::run),
];

fn main() -> Result<ExitCode> {
    let options = Options::parse(std::env::args().skip(1))?;
    let chosen: Vec<_> = match options.command.as_str() {
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            return Ok(ExitCode::SUCCESS);
        }
        "floor" => {
            floor::run(options.argument.as_deref().context("floor needs a file")?)?;
            return Ok(ExitCode::SUCCESS);
        }
        "client" => vec![("client", steady::floor_only as Scenario)],
        "raw" => vec![("raw", steady::raw_only as Scenario)],
        "all" => SCENARIOS.to_vec(),
        name => SCENARIOS.iter().filter(|scenario| scenario.0 == name).copied().collect(),
    };
    if chosen.is_empty() {
        bail!("no such command: {}\n\n{HELP}", options.command);
    }
    let mut failed = 0;
    for (name, scenario) in chosen {
        let mut report = Report::new(name, &options.shown);
        scenario(&options, &mut report).with_context(|| name)?;
        println!();
        failed += report.failed;
        if let Some(path) = options.results.as_ref().filter(|_| !["client", "raw"].contains(&name))
        {
            report.save(path)?;
        }
    }
    println!("{failed} bars missed");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
