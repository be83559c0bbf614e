//! The servers under test, each a process of its own: start, wait for the ready line, look at, stop, kill.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// How long a server may take to say that it is ready.
const READY_MAX: Duration = Duration::from_secs(120);

/// A running server.
pub struct Server {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    /// From starting the process to its ready line.
    pub ready: Duration,
    /// What it says after that.
    lines: mpsc::Receiver<String>,
}

impl Server {
    /// Starts Sidereal on a data directory, or in memory without one.
    pub fn start(program: &Path, data: Option<&Path>) -> Result<Self> {
        Self::start_with(program, data, &[])
    }

    /// The same with more flags.
    pub fn start_with(program: &Path, data: Option<&Path>, flags: &[&str]) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["--port", "0"]).args(flags).env_remove("SIDEREAL_KEY");
        match data {
            Some(directory) => command.arg("--data").arg(directory),
            None => command.arg("--in-memory"),
        };
        Self::launch(command).with_context(|| format!("cannot start {}", program.display()))
    }

    /// Starts it on a store of its own, such as a database.
    pub fn start_on(program: &Path, store: &str, flags: &[&str]) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["--port", "0", "--store", store]).args(flags).env_remove("SIDEREAL_KEY");
        Self::launch(command).with_context(|| format!("cannot start {}", program.display()))
    }

    /// Starts it for MongoDB clients, too, which need no key; gives where they connect.
    pub fn start_for_mongo(program: &Path, data: &Path) -> Result<(Self, SocketAddr)> {
        let mut command = Command::new(program);
        command.args(["--port", "0", "--no-auth", "--data"]).arg(data).env_remove("SIDEREAL_KEY");
        let server =
            Self::launch(command).with_context(|| format!("cannot start {}", program.display()))?;
        loop {
            let line = server.lines.recv_timeout(Duration::from_secs(5));
            let line = line.context("the server names no address for MongoDB clients")?;
            if let Some(port) = endpoint_port(&line).filter(|_| line.contains("mongodb://")) {
                return Ok((server, SocketAddr::from(([127, 0, 0, 1], port))));
            }
        }
    }

    /// Starts the floor server: this program again, answering with what is in a file.
    pub fn start_floor(answer: &Path) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("floor").arg(answer);
        Self::launch(command).context("cannot start the floor server")
    }

    fn launch(mut command: Command) -> Result<Self> {
        let start = Instant::now();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().expect("stdout is piped");
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            // Reads to the end even when nobody listens any more, so that the server never blocks on its output.
            for line in BufReader::new(stdout).lines().map_while(|line| line.ok()) {
                drop(sender.send(line));
            }
        });
        let mut seen = String::new();
        loop {
            match lines.recv_timeout(READY_MAX.saturating_sub(start.elapsed())) {
                Ok(line) => {
                    if let Some(port) = endpoint_port(&line) {
                        let ready = start.elapsed();
                        let address = SocketAddr::from(([127, 0, 0, 1], port));
                        return Ok(Self { child, address, ready, lines });
                    }
                    seen.push_str(&line);
                    seen.push('\n');
                }
                Err(_) => {
                    drop(child.kill());
                    drop(child.wait());
                    bail!("no ready line; it said:\n{seen}");
                }
            }
        }
    }

    /// Processor time used so far.
    pub fn cpu(&self) -> Duration {
        cpu_of(self.child.id())
    }

    /// Waits until the server has nothing left to do of what came before: it has used hardly any processor time for a while.
    pub fn wait_until_idle(&self) -> Result<()> {
        const WHILE: Duration = Duration::from_millis(500);
        const LIMIT: Duration = Duration::from_secs(120);
        let start = Instant::now();
        let mut before = self.cpu();
        while start.elapsed() < LIMIT {
            std::thread::sleep(WHILE);
            let now = self.cpu();
            // Processor time is counted in hundredths of a second.
            if now.saturating_sub(before) <= Duration::from_millis(10) {
                return Ok(());
            }
            before = now;
        }
        bail!("the server is still busy after {} seconds", LIMIT.as_secs())
    }

    /// Resident memory, in bytes.
    pub fn rss_bytes(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kilobytes.unwrap_or_default() * 1024
    }

    /// Asks it to stop and waits; how long that took.
    pub fn stop(mut self) -> Result<Duration> {
        let start = Instant::now();
        self.signal(Signal::TERM)?;
        loop {
            if let Some(status) = self.child.try_wait()? {
                if !status.success() {
                    bail!("the server ended with {status}");
                }
                return Ok(start.elapsed());
            }
            if start.elapsed() > Duration::from_secs(60) {
                bail!("the server did not stop within 60 s of SIGTERM");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.child.id().try_into()?).context("a process id")?;
        Ok(kill_process(pid, signal)?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Processor time of this process so far.
pub fn own_cpu() -> Duration {
    cpu_of(std::process::id())
}

/// Processor time of the whole machine so far, work only.
pub fn machine_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields = text.lines().next().unwrap_or_default().split_whitespace().skip(1);
    // User, nice, system, idle, waiting for disk, interrupts (two kinds), stolen.
    let ticks = fields.take(8).enumerate().filter(|(at, _)| ![3, 4].contains(at));
    ticks_to_time(ticks.filter_map(|(_, ticks)| ticks.parse::<u64>().ok()).sum())
}

/// Processor time of a process and of all whose parent it is, or was.
pub fn family_cpu(pid: u32) -> Duration {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let all = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let own: u64 = stat(pid).iter().skip(11).take(4).sum();
    let children = all.map(stat).filter(|fields| fields.get(1) == Some(&u64::from(pid)));
    ticks_to_time(own + children.map(|fields| fields[11] + fields[12]).sum::<u64>())
}

fn cpu_of(pid: u32) -> Duration {
    ticks_to_time(stat(pid).iter().skip(11).take(2).sum())
}

/// What the system says of a process from its state on: the parent is 1, user and system time are 11 and 12, those of children
/// that have ended 13 and 14. Nothing if there is no such process.
fn stat(pid: u32) -> Vec<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name may hold spaces; what follows it does not.
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    fields.split_whitespace().map(|field| field.parse().unwrap_or_default()).collect()
}

fn ticks_to_time(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// The port of the first URL in a line.
fn endpoint_port(line: &str) -> Option<u16> {
    let rest = line.split_once("://")?.1;
    let authority = rest.split(['/', ' ', ',', '"', ')']).next()?;
    authority.rsplit_once(':')?.1.parse().ok()
}

/// The bytes of all files under a directory, as allocated on disk.
pub fn disk_bytes(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let mut total = 0;
    let mut pending: Vec<PathBuf> = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        // Files come and go while the server works; one that has just gone counts nothing.
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => pending.push(entry.path()),
                Ok(metadata) => total += metadata.blocks() * 512,
                Err(_) => {}
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_found_in_a_ready_line() {
        assert_eq!(
            endpoint_port("sidereal is ready at https://localhost:8081/ (key …)"),
            Some(8081)
        );
        assert_eq!(endpoint_port("ready http://127.0.0.1:41234"), Some(41234));
        assert_eq!(endpoint_port("opening /tmp/x"), None);
    }
}
