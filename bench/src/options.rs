//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::load::Plan;

/// What `bench --help` says.
pub const HELP: &str = "\
bench: loads a Sidereal server and says whether it keeps the project's bars

usage: bench COMMAND [OPTIONS]

commands
  read         point reads, against a server that does nothing (the floor)
  create       durable creates, against the raw engine's group commit
  upsert       upserts of existing items
  mixed        reads, upserts and creates together
  batch        100 creates in one batch, against 100 single ones on one connection
  feed         the change feed beside creates at full rate, and from the start against a query that reads everything
  query        queries by index, in order, counted, filtered and paged, over 1,000,000 items
  mongo-find   finds by _id of a MongoDB client on 32 connections, against point reads over REST
  mongo-insert unordered inserts of 1,000 documents on 32 connections, against the bulk requests of REST SDKs
  purge        clients that use all of their request units: what the purge takes from them, and how it catches up
  churn        inserts at full rate that expire after 10 s, with readers that look for expired items
  ttl-default  a container with 1,000,000 items: changing its default ttl, and what the next read sees
  timeline     the same container: how long the question takes what expires when, at first and later
  start        time to ready, empty and after kill -9 with 1,000,000 items; idle memory and CPU
  crash        kill -9 under load, again and again: nothing acknowledged lost, nothing torn
  postgres     a server on one PostgreSQL node: creates and point reads against the node itself, and creates over 1 to 16 partitions
  batching     a simulation of how writes become transactions: against the measured curve of postgres, and of 1,000 partitions
  all          all of these
  client       the load generator against the floor alone
  raw          the raw engine alone

options
  --server PATH      the server                        [../target/release/sidereal]
  --dir PATH         where data directories are made   [the system's temporary directory]
  --connections N    [64]        --threads N   client threads            [2]
  --seconds N        a run of a steady load [10]; churn [300]; purge [20]
  --warmup N         seconds before counting [2]
  --rounds N         alternating runs of read and create [2]; crash [100]
  --items N          items in a steady load [100000]; query, ttl-default, timeline and start [1000000]
  --seed N           of random choices [fresh]
  --results FILE     where results are kept [RESULTS.md beside bench's Cargo.toml]
  --dry              keep no results
";

/// What the command line asks for.
#[derive(Clone)]
pub struct Options {
    /// The subcommand.
    pub command: String,
    /// What follows the subcommand of `floor`.
    pub argument: Option<PathBuf>,
    /// The server's program.
    pub server: PathBuf,
    /// Where data directories are made.
    pub parent: PathBuf,
    /// The load.
    pub plan: Plan,
    /// Seconds asked for, if any.
    pub seconds: Option<u64>,
    /// Rounds of a steady load.
    pub rounds: u64,
    /// Rounds asked for, if any.
    pub rounds_given: Option<u64>,
    /// Items of a steady load.
    pub items: u64,
    /// Items asked for, if any.
    pub items_given: Option<u64>,
    /// Seed of random choices.
    pub seed: u64,
    /// Where results are kept, if they are.
    pub results: Option<PathBuf>,
    /// The command line without paths, for the results.
    pub shown: String,
}

impl Options {
    /// Reads the command line.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self> {
        let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let command = arguments.next().unwrap_or_else(|| "--help".into());
        let mut shown = format!("bench {command}");
        let mut options = Self {
            argument: None,
            server: here.join("../target/release/sidereal"),
            parent: std::env::temp_dir(),
            plan: Plan {
                connections: 64,
                threads: 2,
                warmup: Duration::from_secs(2),
                duration: Duration::from_secs(10),
            },
            seconds: None,
            rounds: 2,
            rounds_given: None,
            items: 100_000,
            items_given: None,
            seed: fastrand::u64(..),
            results: Some(here.join("RESULTS.md")),
            shown: String::new(),
            command,
        };
        while let Some(name) = arguments.next() {
            if name == "--dry" {
                options.results = None;
                continue;
            }
            if !name.starts_with("--") {
                options.argument = Some(name.into());
                continue;
            }
            let value = arguments.next().with_context(|| format!("{name} needs a value"))?;
            let number =
                || value.parse::<u64>().with_context(|| format!("{name} {value}: a number"));
            match name.as_str() {
                "--server" => options.server = (&value).into(),
                "--dir" => options.parent = (&value).into(),
                "--results" => options.results = Some((&value).into()),
                "--connections" => options.plan.connections = number()? as usize,
                "--threads" => options.plan.threads = number()? as usize,
                "--warmup" => options.plan.warmup = Duration::from_secs(number()?),
                "--seconds" => options.seconds = Some(number()?),
                "--rounds" => options.rounds_given = Some(number()?),
                "--items" => options.items_given = Some(number()?),
                "--seed" => options.seed = number()?,
                _ => bail!("no such option: {name}\n\n{HELP}"),
            }
            if !["--server", "--dir", "--results"].contains(&name.as_str()) {
                shown.push_str(&format!(" {name} {value}"));
            }
        }
        options.plan.duration = Duration::from_secs(options.seconds.unwrap_or(10));
        options.rounds = options.rounds_given.unwrap_or(2);
        options.items = options.items_given.unwrap_or(100_000);
        options.shown = shown;
        Ok(options)
    }

    /// A fresh directory, removed when dropped.
    pub fn directory(&self) -> Result<TempDir> {
        tempfile::Builder::new().prefix("sidereal-bench-").tempdir_in(&self.parent).context("--dir")
    }
}
