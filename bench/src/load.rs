//! Closed loops: every connection sends its next request as soon as the last is answered.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use hdrhistogram::Histogram;

use crate::http::{Connection, Request, Response};
use crate::process::{Server, machine_cpu, own_cpu};
use crate::sign::{KEY, Signer};

/// How much load, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Connections in all.
    pub connections: usize,
    /// Client threads that share them.
    pub threads: usize,
    /// Before counting.
    pub warmup: Duration,
    /// While counting.
    pub duration: Duration,
}

/// What one connection sends.
pub trait Workload: Send + 'static {
    /// Writes the next request; `false` when there is nothing left to send.
    fn request(&mut self, signer: &mut Signer, request: &mut Request) -> bool;

    /// Whether the answer is the right one.
    fn accept(&mut self, response: &Response<'_>) -> bool;
}

/// What was measured.
pub struct Outcome {
    /// Requests answered while counting.
    pub requests: u64,
    /// How long that was.
    pub elapsed: Duration,
    /// Their latencies, in microseconds.
    pub latency: Histogram<u64>,
    /// Wrong answers by status, over the whole run, with an example.
    pub wrong: BTreeMap<u16, (u64, String)>,
    /// Processor time of the server while counting.
    pub server_cpu: Duration,
    /// Processor time of the client while counting.
    pub client_cpu: Duration,
    /// Processor time of everything else on the machine while counting: what the numbers suffer from.
    pub other_cpu: Duration,
}

impl Outcome {
    /// Requests a second.
    pub fn rate(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }

    /// The server's processor time for one request, in microseconds.
    pub fn server_micros(&self) -> f64 {
        self.server_cpu.as_secs_f64() * 1e6 / self.requests.max(1) as f64
    }

    /// The client's processor time for one request, in microseconds.
    pub fn client_micros(&self) -> f64 {
        self.client_cpu.as_secs_f64() * 1e6 / self.requests.max(1) as f64
    }

    /// What part of the machine everything else took, in per cent.
    pub fn other_percent(&self) -> f64 {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        self.other_cpu.as_secs_f64() * 100.0 / (self.elapsed.as_secs_f64() * cores as f64)
    }

    /// A latency in milliseconds.
    pub fn percentile(&self, percent: f64) -> f64 {
        self.latency.value_at_percentile(percent) as f64 / 1e3
    }

    /// Adds another run of the same load.
    pub fn add(&mut self, other: Outcome) {
        self.requests += other.requests;
        self.elapsed += other.elapsed;
        self.latency.add(&other.latency).expect("the same bounds");
        self.server_cpu += other.server_cpu;
        self.client_cpu += other.client_cpu;
        self.other_cpu += other.other_cpu;
        for (status, (count, example)) in other.wrong {
            self.wrong.entry(status).or_insert((0, example)).0 += count;
        }
    }

    /// An error if any answer was wrong.
    pub fn check(self) -> Result<Self> {
        if let Some((status, (count, example))) = self.wrong.first_key_value() {
            bail!("{count} answers with status {status}, such as: {example}");
        }
        Ok(self)
    }
}

/// A histogram of microseconds, up to a minute.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("sound bounds")
}

/// Runs a load against a server: connection `i` sends what `workload(i)` says, until the time is over or none has
/// anything left to send.
pub fn drive<W: Workload>(
    server: &Server,
    plan: Plan,
    workload: impl Fn(usize) -> W,
) -> Result<Outcome> {
    let start = Instant::now() + Duration::from_millis(20);
    let counting = start + plan.warmup;
    let end = counting + plan.duration;
    let mut groups: Vec<Vec<W>> = (0..plan.threads).map(|_| Vec::new()).collect();
    for index in 0..plan.connections {
        groups[index % plan.threads].push(workload(index));
    }
    std::thread::scope(|scope| {
        let address = server.address;
        let threads: Vec<_> = groups
            .into_iter()
            .map(|group| scope.spawn(move || run_group(address, group, counting, end)))
            .collect();
        std::thread::sleep(counting.saturating_duration_since(Instant::now()));
        let (server_before, client_before) = (server.cpu(), own_cpu());
        let machine_before = machine_cpu();
        // A finite load may end before its time.
        while Instant::now() < end && !threads.iter().all(|thread| thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(5).min(end - Instant::now().min(end)));
        }
        let elapsed = counting.elapsed().min(plan.duration);
        let server_cpu = server.cpu().saturating_sub(server_before);
        let client_cpu = own_cpu().saturating_sub(client_before);
        let other_cpu =
            machine_cpu().saturating_sub(machine_before).saturating_sub(server_cpu + client_cpu);
        let mut outcome = Outcome {
            requests: 0,
            elapsed,
            latency: histogram(),
            wrong: BTreeMap::new(),
            server_cpu,
            client_cpu,
            other_cpu,
        };
        for thread in threads {
            for part in thread.join().expect("a client thread does not panic")? {
                outcome.requests += part.latency.len();
                outcome.latency.add(&part.latency).expect("the same bounds");
                for (status, (count, example)) in part.wrong {
                    outcome.wrong.entry(status).or_insert((0, example)).0 += count;
                }
            }
        }
        Ok(outcome)
    })
}

struct Part {
    latency: Histogram<u64>,
    wrong: BTreeMap<u16, (u64, String)>,
}

fn run_group<W: Workload>(
    address: SocketAddr,
    group: Vec<W>,
    counting: Instant,
    end: Instant,
) -> Result<Vec<Part>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let loops: Vec<_> = group
            .into_iter()
            .map(|workload| tokio::spawn(run_loop(address, workload, counting, end)))
            .collect();
        let mut parts = Vec::new();
        for task in loops {
            parts.push(task.await??);
        }
        Ok(parts)
    })
}

async fn run_loop<W: Workload>(
    address: SocketAddr,
    mut workload: W,
    counting: Instant,
    end: Instant,
) -> Result<Part> {
    let mut part = Part { latency: histogram(), wrong: BTreeMap::new() };
    let mut connection = Connection::open(address).await?;
    let mut signer = Signer::new(KEY);
    let mut request = Request::new();
    let mut sent = Instant::now();
    while sent < end && workload.request(&mut signer, &mut request) {
        let response = connection.exchange(&request).await?;
        let received = Instant::now();
        if !workload.accept(&response) {
            let example = || (0, response.describe());
            part.wrong.entry(response.status).or_insert_with(example).0 += 1;
        }
        if sent >= counting && received <= end {
            part.latency.saturating_record((received - sent).as_micros() as u64);
        }
        sent = received;
    }
    Ok(part)
}
