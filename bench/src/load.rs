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
    /// Processor time of the server's store while counting, where that is a process of its own.
    pub store_cpu: Duration,
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
        self.store_cpu += other.store_cpu;
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

/// When a run counts.
#[derive(Clone, Copy)]
pub struct Window {
    /// From when on.
    pub counting: Instant,
    /// Until when it goes.
    pub end: Instant,
}

/// One connection's part of a load, whatever it speaks.
pub trait Client: Send + 'static {
    /// Sends and receives until the window closes or nothing is left to send.
    fn run(self, window: Window) -> impl Future<Output = Result<Part>> + Send;
}

/// Whose processor time is measured.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// The server's.
    pub server: &'a dyn Fn() -> Duration,
    /// Its store's.
    pub store: &'a dyn Fn() -> Duration,
}

/// Runs a load against a server over HTTP: connection `i` sends what `workload(i)` says, until the time is over or none has
/// anything left to send.
pub fn drive<W: Workload>(
    server: &Server,
    plan: Plan,
    workload: impl Fn(usize) -> W,
) -> Result<Outcome> {
    drive_clients(server, plan, |index| HttpClient {
        address: server.address,
        workload: workload(index),
    })
}

/// The same with a look at the store behind the server.
pub fn drive_with_store<W: Workload>(
    server: &Server,
    store: &dyn Fn() -> Duration,
    plan: Plan,
    workload: impl Fn(usize) -> W,
) -> Result<Outcome> {
    drive_watched(Watch { server: &|| server.cpu(), store }, plan, |index| HttpClient {
        address: server.address,
        workload: workload(index),
    })
}

/// Runs a load of any clients.
pub fn drive_clients<C: Client>(
    server: &Server,
    plan: Plan,
    client: impl Fn(usize) -> C,
) -> Result<Outcome> {
    drive_watched(Watch { server: &|| server.cpu(), store: &|| Duration::ZERO }, plan, client)
}

/// Runs a load of any clients against anything.
pub fn drive_watched<C: Client>(
    watch: Watch<'_>,
    plan: Plan,
    client: impl Fn(usize) -> C,
) -> Result<Outcome> {
    let start = Instant::now() + Duration::from_millis(20);
    let counting = start + plan.warmup;
    let end = counting + plan.duration;
    let mut groups: Vec<Vec<C>> = (0..plan.threads).map(|_| Vec::new()).collect();
    for index in 0..plan.connections {
        groups[index % plan.threads].push(client(index));
    }
    std::thread::scope(|scope| {
        let window = Window { counting, end };
        let threads: Vec<_> =
            groups.into_iter().map(|group| scope.spawn(move || run_group(group, window))).collect();
        std::thread::sleep(counting.saturating_duration_since(Instant::now()));
        let (server_before, client_before) = ((watch.server)(), own_cpu());
        let store_before = (watch.store)();
        let machine_before = machine_cpu();
        // A finite load may end before its time.
        while Instant::now() < end && !threads.iter().all(|thread| thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(5).min(end - Instant::now().min(end)));
        }
        let elapsed = counting.elapsed().min(plan.duration);
        let server_cpu = (watch.server)().saturating_sub(server_before);
        let store_cpu = (watch.store)().saturating_sub(store_before);
        let client_cpu = own_cpu().saturating_sub(client_before);
        let other_cpu = machine_cpu()
            .saturating_sub(machine_before)
            .saturating_sub(server_cpu + client_cpu + store_cpu);
        let mut outcome = Outcome {
            requests: 0,
            elapsed,
            latency: histogram(),
            wrong: BTreeMap::new(),
            server_cpu,
            client_cpu,
            store_cpu,
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

/// What one connection has seen.
pub struct Part {
    latency: Histogram<u64>,
    wrong: BTreeMap<u16, (u64, String)>,
}

impl Part {
    /// Nothing yet.
    pub fn new() -> Self {
        Self { latency: histogram(), wrong: BTreeMap::new() }
    }

    /// A request that was sent and answered at these moments.
    pub fn count(&mut self, sent: Instant, received: Instant, window: Window) {
        if sent >= window.counting && received <= window.end {
            self.latency.saturating_record((received - sent).as_micros() as u64);
        }
    }

    /// An answer that is not the right one.
    pub fn wrong(&mut self, status: u16, example: impl FnOnce() -> String) {
        self.wrong.entry(status).or_insert_with(|| (0, example())).0 += 1;
    }
}

fn run_group<C: Client>(group: Vec<C>, window: Window) -> Result<Vec<Part>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let loops: Vec<_> =
            group.into_iter().map(|client| tokio::spawn(client.run(window))).collect();
        let mut parts = Vec::new();
        for task in loops {
            parts.push(task.await??);
        }
        Ok(parts)
    })
}

struct HttpClient<W> {
    address: SocketAddr,
    workload: W,
}

impl<W: Workload> Client for HttpClient<W> {
    async fn run(mut self, window: Window) -> Result<Part> {
        let mut part = Part::new();
        let mut connection = Connection::open(self.address).await?;
        let mut signer = Signer::new(KEY);
        let mut request = Request::new();
        let mut sent = Instant::now();
        while sent < window.end && self.workload.request(&mut signer, &mut request) {
            let response = connection.exchange(&request).await?;
            let received = Instant::now();
            if !self.workload.accept(&response) {
                part.wrong(response.status, || response.describe());
            }
            part.count(sent, received, window);
            sent = received;
        }
        Ok(part)
    }
}
