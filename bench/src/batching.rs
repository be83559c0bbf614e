//! A simulation of how writes become transactions, and what it says of sizes that nobody here can run.
//!
//! The model: an operation is prepared (processor time of server and client), queues at its partition, and goes with all that wait there into one
//! transaction, as soon as the one before it is made. A transaction takes processor time of the store, `a` for each operation and `b` for itself,
//! and then a sync, during which it holds its lane but no processor. That is all; there is no timer.
//!
//! `a` and `b` are fitted to the processor times of the curve that `bench postgres` has measured, and the sync to its first row. The other
//! rows are predictions, and are compared with what was measured. Then the same model is asked about 1,000 partitions. Seeded, so a
//! run gives the same numbers again.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;

use crate::options::Options;
use crate::report::Report;

/// A row of the measured curve.
struct Measured {
    partitions: usize,
    rate: f64,
    per_commit: f64,
    /// Processor time of PostgreSQL, and of server and client, for a create, in microseconds.
    store: f64,
    rest: f64,
    /// The part of the processors that nothing else on the machine has used.
    available: f64,
}

/// What things cost, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Costs {
    /// The store's time for an operation, and for a transaction.
    store: Line,
    /// The same of server and client.
    rest: Line,
    /// The sync.
    sync: f64,
}

/// `each` for an operation and `once` for a transaction.
#[derive(Clone, Copy, Debug)]
struct Line {
    each: f64,
    once: f64,
}

impl Line {
    /// The line through points of operations a transaction and time an operation, by least squares.
    fn through(points: &[(f64, f64)]) -> Self {
        let count = points.len() as f64;
        let mean =
            |value: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / count;
        let (x, y) = (mean(&|point| 1.0 / point.0), mean(&|point| point.1));
        let covariance = mean(&|point| (1.0 / point.0 - x) * (point.1 - y));
        let variance = mean(&|point| (1.0 / point.0 - x).powi(2));
        let once = covariance / variance;
        Self { each: y - once * x, once }
    }

    fn slower(&self, available: f64) -> Self {
        Self { each: self.each / available, once: self.once / available }
    }

    fn of(&self, operations: usize) -> f64 {
        self.each * operations as f64 + self.once
    }
}

/// What is simulated.
#[derive(Clone, Copy)]
struct Setup {
    partitions: usize,
    /// Clusters that partitions are spread over, and processors of each.
    clusters: usize,
    cores: usize,
    /// Transactions that may be under way in a cluster.
    lanes: usize,
    load: Load,
    costs: Costs,
    /// Whether server and client use the cluster's processors, too.
    shared: bool,
}

#[derive(Clone, Copy)]
enum Load {
    /// So many clients that each send the next when the last is answered.
    Clients(usize),
    /// So many operations a second, whatever happens.
    Rate(f64),
}

/// What came out.
struct Predicted {
    rate: f64,
    per_commit: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// The part of the clusters' processors that was used.
    used: f64,
}

enum Event {
    /// An operation comes from outside.
    Arrival,
    /// A processor of a cluster has done its work.
    Done(usize, Work),
    /// A partition's transaction is synced.
    Synced(usize),
}

enum Work {
    /// An operation that began then, for a partition.
    Prepare(usize, f64),
    /// A partition's transaction.
    Commit(usize),
}

#[derive(Default)]
struct Partition {
    /// When each operation that waits began, and those that are under way.
    waiting: VecDeque<f64>,
    underway: Vec<f64>,
}

#[derive(Default)]
struct Cluster {
    busy: usize,
    /// Work without a processor, and how long it takes.
    queue: VecDeque<(Work, f64)>,
    /// Lanes, each with the partitions that wait for it; the first has it.
    lanes: Vec<VecDeque<usize>>,
}

/// The most operations of a transaction, as in the server.
const ROUND_OPS_MAX: usize = 512;

struct World {
    setup: Setup,
    now: f64,
    number: u64,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    pending: std::collections::HashMap<u64, Event>,
    partitions: Vec<Partition>,
    clusters: Vec<Cluster>,
    random: Rng,
    used: f64,
    commits: u64,
    latencies: Vec<f64>,
}

impl World {
    fn new(setup: Setup, seed: u64) -> Self {
        let lanes = || Cluster {
            lanes: (0..setup.lanes).map(|_| VecDeque::new()).collect(),
            ..Cluster::default()
        };
        Self {
            setup,
            now: 0.0,
            number: 0,
            events: BinaryHeap::new(),
            pending: Default::default(),
            partitions: (0..setup.partitions).map(|_| Partition::default()).collect(),
            clusters: (0..setup.clusters).map(|_| lanes()).collect(),
            random: Rng::with_seed(seed),
            used: 0.0,
            commits: 0,
            latencies: Vec::new(),
        }
    }

    fn at(&mut self, delay: f64, event: Event) {
        self.number += 1;
        // Nanoseconds: order must not depend on rounding.
        let at = ((self.now + delay) * 1e3) as u64;
        self.events.push(Reverse((at, self.number)));
        self.pending.insert(self.number, event);
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.random.f64()).ln()
    }

    fn begin(&mut self) {
        let partition = self.random.usize(..self.setup.partitions);
        let line = self.setup.costs.rest;
        match self.setup.shared {
            true => self.work(
                partition % self.setup.clusters,
                Work::Prepare(partition, self.now),
                line.each,
            ),
            false => self.prepared(partition, self.now),
        }
    }

    fn work(&mut self, cluster: usize, work: Work, time: f64) {
        if self.clusters[cluster].busy < self.setup.cores {
            self.clusters[cluster].busy += 1;
            self.used += time;
            self.at(time, Event::Done(cluster, work));
        } else {
            self.clusters[cluster].queue.push_back((work, time));
        }
    }

    fn prepared(&mut self, partition: usize, began: f64) {
        self.partitions[partition].waiting.push_back(began);
        if self.partitions[partition].underway.is_empty() {
            self.take_turn(partition);
        }
    }

    /// A partition that has nothing under way has something to do.
    fn take_turn(&mut self, partition: usize) {
        let cluster = partition % self.setup.clusters;
        let lane = partition / self.setup.clusters % self.setup.lanes;
        let queue = &mut self.clusters[cluster].lanes[lane];
        if !queue.contains(&partition) {
            queue.push_back(partition);
            if queue.len() == 1 {
                self.commit(partition);
            }
        }
    }

    fn commit(&mut self, partition: usize) {
        let held = &mut self.partitions[partition];
        let count = held.waiting.len().min(ROUND_OPS_MAX);
        held.underway = held.waiting.drain(..count).collect();
        self.commits += 1;
        let costs = self.setup.costs;
        let rest = if self.setup.shared { costs.rest.once } else { 0.0 };
        let time = costs.store.of(count) + rest;
        self.work(partition % self.setup.clusters, Work::Commit(partition), time);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrival => {
                self.begin();
                if let Load::Rate(rate) = self.setup.load {
                    let delay = self.exponential(1e6 / rate);
                    self.at(delay, Event::Arrival);
                }
            }
            Event::Done(cluster, work) => {
                self.clusters[cluster].busy -= 1;
                if let Some((next, time)) = self.clusters[cluster].queue.pop_front() {
                    self.work(cluster, next, time);
                }
                match work {
                    Work::Prepare(partition, began) => self.prepared(partition, began),
                    Work::Commit(partition) => {
                        let sync = self.setup.costs.sync * (0.75 + self.random.f64() / 2.0);
                        self.at(sync, Event::Synced(partition));
                    }
                }
            }
            Event::Synced(partition) => {
                for began in std::mem::take(&mut self.partitions[partition].underway) {
                    self.latencies.push(self.now - began);
                    if let Load::Clients(_) = self.setup.load {
                        self.begin();
                    }
                }
                let cluster = partition % self.setup.clusters;
                let lane = partition / self.setup.clusters % self.setup.lanes;
                self.clusters[cluster].lanes[lane].pop_front();
                if !self.partitions[partition].waiting.is_empty() {
                    self.take_turn(partition);
                }
                let next = self.clusters[cluster].lanes[lane].front().copied();
                if let Some(next) = next.filter(|next| self.partitions[*next].underway.is_empty()) {
                    self.commit(next);
                }
            }
        }
    }
}

fn simulate(setup: Setup, seed: u64, secs: f64) -> Predicted {
    let mut world = World::new(setup, seed);
    match setup.load {
        Load::Clients(count) => (0..count).for_each(|_| world.begin()),
        Load::Rate(_) => world.at(0.0, Event::Arrival),
    }
    while let Some(Reverse((at, number))) = world.events.pop() {
        world.now = at as f64 / 1e3;
        if world.now > secs * 1e6 {
            break;
        }
        let event = world.pending.remove(&number).expect("an event happens once");
        world.handle(event);
    }
    world.latencies.sort_by(f64::total_cmp);
    let percentile = |part: f64| {
        let at = (world.latencies.len() as f64 * part) as usize;
        world.latencies.get(at).copied().unwrap_or_default() / 1e3
    };
    Predicted {
        rate: world.latencies.len() as f64 / secs,
        per_commit: world.latencies.len() as f64 / world.commits.max(1) as f64,
        p50_ms: percentile(0.5),
        p99_ms: percentile(0.99),
        used: world.used / (secs * 1e6 * (setup.clusters * setup.cores) as f64),
    }
}

/// The comparison with the measured curve, and what the model says of 1,000 partitions.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = options.results.clone().unwrap_or_else(|| here.join("RESULTS.md"));
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let curve = curve(&text).context("run `bench postgres` first: its curve is what is fitted")?;
    ensure!(curve.len() > 2, "the curve of `bench postgres` has {} rows", curve.len());
    let fit = |value: fn(&Measured) -> f64| {
        let points: Vec<_> = curve.iter().map(|row| (row.per_commit, value(row))).collect();
        Line::through(&points)
    };
    let mut costs = Costs { store: fit(|row| row.store), rest: fit(|row| row.rest), sync: 0.0 };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // On processors that others use, too, everything takes longer.
    let alike = |row: &Measured, costs: Costs| Setup {
        partitions: row.partitions,
        clusters: 1,
        cores,
        lanes: 8,
        load: Load::Clients(64),
        costs: Costs {
            store: costs.store.slower(row.available),
            rest: costs.rest.slower(row.available),
            ..costs
        },
        shared: true,
    };
    // The longer the sync, the lower the rate.
    let (mut low, mut high) = (0.0, 50_000.0);
    for _ in 0..30 {
        costs.sync = (low + high) / 2.0;
        match simulate(alike(&curve[0], costs), 1, 2.0).rate > curve[0].rate {
            true => low = costs.sync,
            false => high = costs.sync,
        }
    }
    report.line(format!(
        "Fitted to the curve of `bench postgres`: PostgreSQL {:.0} µs an operation and {:.0} a transaction, server and client {:.0} and {:.0}, a sync of {:.1} ms.\n",
        costs.store.each, costs.store.once, costs.rest.each, costs.rest.once, costs.sync / 1e3
    ));
    report.line("| partitions | creates/s measured | predicted | a commit measured | predicted |\n|---:|---:|---:|---:|---:|");
    let mut worst: f64 = 1.0;
    for row in &curve {
        let predicted = simulate(alike(row, costs), 1, 4.0);
        let ratio = predicted.rate / row.rate;
        worst = worst.max(ratio).max(1.0 / ratio);
        report.line(format!(
            "| {} | {:.0} | {:.0} | {:.1} | {:.1} |",
            row.partitions, row.rate, predicted.rate, row.per_commit, predicted.per_commit
        ));
    }
    report.line(format!("\nThe worst prediction is off by a factor of {worst:.2}.\n"));
    large(report, costs);
    Ok(())
}

/// 1,000 partitions on clusters of their own machines, whose commits wait for a standby.
fn large(report: &mut Report, measured: Costs) {
    let costs = Costs { sync: 3_000.0, ..measured };
    report.line(
        "1,000 partitions on clusters of 32 processors, a sync of 3 ms (a disk, and a standby on another machine), servers on machines of their own, 64 lanes a cluster \
         (eight servers):\n\n\
         | creates/s | clusters | made/s | a commit | commits/s and cluster | p50 ms | p99 ms | processors used |\n|---:|---:|---:|---:|---:|---:|---:|---:|",
    );
    for (rate, clusters) in
        [(10_000.0, 1), (100_000.0, 1), (100_000.0, 2), (250_000.0, 4), (1_000_000.0, 8)]
    {
        let load = Load::Rate(rate);
        let setup =
            Setup { partitions: 1_000, clusters, cores: 32, lanes: 64, load, costs, shared: false };
        let predicted = simulate(setup, 1, 1.0);
        report.line(format!(
            "| {rate:.0} | {clusters} | {:.0} | {:.1} | {:.0} | {:.1} | {:.1} | {:.0} % |",
            predicted.rate,
            predicted.per_commit,
            predicted.rate / predicted.per_commit / clusters as f64,
            predicted.p50_ms,
            predicted.p99_ms,
            predicted.used * 100.0
        ));
    }
}

/// The rows of the curve in the results.
fn curve(text: &str) -> Option<Vec<Measured>> {
    let table = text.split_once("| partitions | creates/s | a commit |")?.1;
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|line| {
        let cells: Vec<f64> = line.split('|').filter_map(|cell| cell.trim().parse().ok()).collect();
        let &[partitions, rate, per_commit, _, _, _, store, server, client, idle] = &cells[..]
        else {
            return None;
        };
        // Per cent of all processors into microseconds an operation.
        let micros = |percent: f64| percent / 100.0 * cores * 1e6 / rate;
        Some(Measured {
            partitions: partitions as usize,
            rate,
            per_commit,
            store: micros(store),
            rest: micros(server + client),
            available: (store + server + client + idle) / 100.0,
        })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(partitions: usize, load: Load) -> Setup {
        let line = |each, once| Line { each, once };
        let costs = Costs { store: line(100.0, 200.0), rest: line(50.0, 0.0), sync: 2_000.0 };
        Setup { partitions, clusters: 1, cores: 2, lanes: 8, load, costs, shared: false }
    }

    #[test]
    fn what_waits_goes_together_and_nothing_is_lost() {
        // One partition: those whose transaction is made all come again, and go into the next together.
        let one = simulate(setup(1, Load::Clients(20)), 1, 2.0);
        assert!((19.0..=20.0).contains(&one.per_commit), "{}", one.per_commit);
        // A light load has no batches, and the latency of a transaction.
        let light = simulate(setup(8, Load::Rate(50.0)), 1, 20.0);
        assert!((0.95..1.1).contains(&light.per_commit), "{}", light.per_commit);
        assert!((light.rate - 50.0).abs() < 5.0 && light.p50_ms < 3.0);
        // No more than the processors can do, and the same again for the same seed.
        let full = simulate(setup(16, Load::Clients(500)), 1, 2.0);
        assert!(full.used > 0.95 && full.used <= 1.01, "{}", full.used);
        assert_eq!(full.rate, simulate(setup(16, Load::Clients(500)), 1, 2.0).rate);
    }

    #[test]
    fn a_line_is_found_again() {
        let line = Line::through(&[(1.0, 300.0), (2.0, 200.0), (10.0, 120.0)]);
        assert!((line.each - 100.0).abs() < 1e-6 && (line.once - 200.0).abs() < 1e-6);
    }
}
