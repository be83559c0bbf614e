//! `sidereal import` and `export`: items in and out of a running server as JSON lines.
//!
//! Both can be stopped and go on where they were: how far they are stands in a file beside the lines, `FILE.progress`, which is gone at
//! the end. A line that is imported twice is the same item twice, so nothing is lost and nothing doubled.

use std::io::{BufRead, BufReader, IsTerminal, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use model::clock::{Clock, SystemClock};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::config::{ContainerName, Remote};
use crate::insight::{duration, group};
use crate::remote::{Client, refusal};

/// Connections that an import writes through.
const CONNECTIONS: usize = 16;

/// Lines that are written before progress is kept.
const LINES: usize = 2_000;

/// Items read at a time by an export.
const PAGE: &str = "1000";

/// Refused lines that are shown.
const PROBLEMS_MAX: u64 = 20;

/// Where what the server adds to an item begins.
const SYSTEM: &str = ",\"_rid\":\"";

/// Writes each line of a file as an item.
pub async fn import(remote: &Remote, name: &ContainerName, path: &Path) -> Result<bool> {
    let file =
        std::fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let size = file.metadata().context("cannot read the file's size")?.len();
    let progress = Progress::of(path, name);
    let (mut done, mut number) = match progress.read()? {
        Some(kept) => (kept["bytes"].as_u64().unwrap_or(0), kept["lines"].as_u64().unwrap_or(0)),
        None => (0, 0),
    };
    ensure!(done <= size, "{} is shorter than when the import was stopped", path.display());
    let mut lines = BufReader::new(file);
    lines.seek(SeekFrom::Start(done)).context("cannot read the file")?;
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(Client::connect(remote).await?);
    }
    let path: Arc<[String]> =
        ["dbs", &name.database, "colls", &name.container, "docs"].map(str::to_owned).into();
    let mut bar = Bar::new(Mark { items: number, done });
    let refused = Arc::new(AtomicU64::new(0));
    loop {
        let mut round = Vec::with_capacity(LINES);
        let mut bytes = 0;
        while round.len() < LINES {
            let mut line = Vec::new();
            let read = lines.read_until(b'\n', &mut line).context("cannot read the file")?;
            if read == 0 {
                break;
            }
            bytes += read as u64;
            number += 1;
            round.push((number, Bytes::from(line)));
        }
        if round.is_empty() {
            break;
        }
        clients = write_round(clients, round, &path, &refused).await?;
        done += bytes;
        progress.keep(&json!({"bytes": done, "lines": number}))?;
        bar.show(Mark { items: number, done }, size);
    }
    bar.clear();
    progress.end()?;
    let refused = refused.load(Ordering::Relaxed);
    println!("{} lines, {} refused", group(number), group(refused));
    Ok(refused == 0)
}

/// Writes lines through all connections at once; gives these back.
async fn write_round(
    clients: Vec<Client>,
    round: Vec<(u64, Bytes)>,
    path: &Arc<[String]>,
    refused: &Arc<AtomicU64>,
) -> Result<Vec<Client>> {
    let round = Arc::new(round);
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for mut client in clients {
        let (round, next, path, refused) =
            (round.clone(), next.clone(), path.clone(), refused.clone());
        tasks.spawn(async move {
            let parts: Vec<&str> = path.iter().map(String::as_str).collect();
            let headers = [
                ("x-ms-documentdb-is-upsert", "true"),
                ("x-ms-cosmos-populate-content-response-on-write", "false"),
                ("content-type", "application/json"),
            ];
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed) as usize;
                let Some((number, line)) = round.get(at) else {
                    return Ok::<_, anyhow::Error>(client);
                };
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                let answer = client.send("POST", (&parts, ""), &headers, line.clone()).await?;
                if [401, 403, 404].contains(&answer.status.as_u16())
                    || answer.status.is_server_error()
                {
                    bail!("{}", refusal(&answer));
                }
                if !answer.status.is_success() {
                    let count = refused.fetch_add(1, Ordering::Relaxed);
                    if count < PROBLEMS_MAX {
                        eprintln!("line {number}: {}", refusal(&answer));
                    }
                }
            }
        });
    }
    let mut clients = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        clients.push(ended.context("a connection's task has failed")??);
    }
    Ok(clients)
}

/// Writes all items into a file.
pub async fn export(remote: &Remote, name: &ContainerName, path: &Path) -> Result<bool> {
    let mut client = Client::connect(remote).await?;
    let progress = Progress::of(path, name);
    let kept = progress.read()?;
    if kept.is_none() && path.exists() {
        bail!("{} exists: remove it, or name another file", path.display());
    }
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    let kept = kept.unwrap_or_default();
    let mut bytes = kept["bytes"].as_u64().unwrap_or(0);
    let mut items = kept["items"].as_u64().unwrap_or(0);
    let mut token = kept["continuation"].as_str().map(str::to_owned);
    file.set_len(bytes).context("cannot write the file")?;
    file.seek(SeekFrom::End(0)).context("cannot write the file")?;
    let parts = ["dbs", &name.database, "colls", &name.container, "docs"];
    let statistics =
        client.get(&["_admin", "ttl", "dbs", &name.database, "colls", &name.container], "").await?;
    let total = statistics["stored"]["items"].as_u64().unwrap_or_default();
    let mut bar = Bar::new(Mark { items, done: items });
    loop {
        let mut headers = vec![("x-ms-max-item-count", PAGE)];
        headers.extend(token.as_deref().map(|token| ("x-ms-continuation", token)));
        let answer = client.ask("GET", (&parts, ""), &headers, Bytes::new()).await?;
        let page: Page = parse_page(&answer.body)?;
        let mut text = String::with_capacity(answer.body.len());
        for item in &page.rows {
            text.push_str(&without_system(item.get()));
            text.push('\n');
        }
        file.write_all(text.as_bytes()).context("cannot write the file")?;
        items += page.rows.len() as u64;
        bytes += text.len() as u64;
        bar.show(Mark { items, done: items }, total.max(items));
        token = answer.header("x-ms-continuation").map(str::to_owned);
        match &token {
            None => break,
            Some(token) => {
                progress.keep(&json!({"bytes": bytes, "items": items, "continuation": token}))?
            }
        }
    }
    file.sync_all().context("cannot write the file")?;
    bar.clear();
    progress.end()?;
    println!("{} items in {}", group(items), path.display());
    Ok(true)
}

/// A page of items, each as it was sent.
struct Page {
    rows: Vec<Box<RawValue>>,
}

fn parse_page(body: &[u8]) -> Result<Page> {
    let bad = "the server's answer is not a page of items";
    let page: std::collections::BTreeMap<String, Box<RawValue>> =
        serde_json::from_slice(body).context(bad)?;
    let rows = page.get("Documents").context(bad)?;
    Ok(Page { rows: serde_json::from_str(rows.get()).context(bad)? })
}

/// An item on one line, without what the server adds at its end; everything else, to the last digit, as it was written.
fn without_system(item: &str) -> String {
    let line = item.replace(['\n', '\r'], " ");
    match line.rfind(SYSTEM) {
        Some(end) => format!("{}}}", &line[..end]),
        None => line,
    }
}

/// How far a transfer is, in a file beside its own.
struct Progress {
    path: PathBuf,
    /// What it is a transfer of: the progress of another is not taken for this one's.
    what: String,
}

impl Progress {
    fn of(path: &Path, name: &ContainerName) -> Self {
        let mut file = path.as_os_str().to_owned();
        file.push(".progress");
        Self { path: file.into(), what: format!("{}/{}", name.database, name.container) }
    }

    fn read(&self) -> Result<Option<Value>> {
        let mut text = String::new();
        match std::fs::File::open(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", self.path.display()));
            }
            Ok(mut file) => {
                file.read_to_string(&mut text).context("cannot read the progress")?;
            }
        }
        let kept: Value = serde_json::from_str(&text).with_context(|| {
            format!("{} cannot be read: remove it to begin anew", self.path.display())
        })?;
        ensure!(
            kept["of"] == self.what.as_str(),
            "{} is about {}: remove it to begin anew",
            self.path.display(),
            kept["of"]
        );
        eprintln!("going on where it was stopped");
        Ok(Some(kept))
    }

    fn keep(&self, progress: &Value) -> Result<()> {
        let mut progress = progress.clone();
        progress["of"] = self.what.as_str().into();
        // Written whole or not at all: a stop between the two leaves the older one.
        let next = self.path.with_extension("progress.next");
        std::fs::write(&next, progress.to_string())
            .and_then(|()| std::fs::rename(&next, &self.path))
            .with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn end(&self) -> Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", self.path.display()))
            }
            _ => Ok(()),
        }
    }
}

/// A bar that grows on a terminal, and nothing elsewhere.
struct Bar {
    shown: bool,
    clock: SystemClock,
    began: Mark,
    last: Option<Duration>,
}

/// How far a transfer is.
#[derive(Clone, Copy)]
struct Mark {
    items: u64,
    /// In bytes of the file, or in items.
    done: u64,
}

impl Bar {
    fn new(began: Mark) -> Self {
        let shown = std::io::stderr().is_terminal();
        Self { shown, clock: SystemClock::new(), began, last: None }
    }

    fn show(&mut self, mark: Mark, total: u64) {
        let now = self.clock.stopwatch();
        let soon =
            self.last.is_some_and(|last| now.saturating_sub(last) < Duration::from_millis(200));
        if !self.shown || soon {
            return;
        }
        self.last = Some(now);
        eprint!("\r{}   ", bar(self.began, mark, total, now));
    }

    fn clear(&self) {
        if self.shown {
            eprint!("\r{:90}\r", "");
        }
    }
}

/// The bar of a transfer that began there and is here after a time.
fn bar(began: Mark, mark: Mark, total: u64, took: Duration) -> String {
    let part = (mark.done as f64 / total.max(1) as f64).min(1.0);
    let filled = (part * 30.0) as usize;
    let a_second = |count: u64| count as f64 / took.as_secs_f64().max(0.001);
    let left = total.saturating_sub(mark.done) as f64 / a_second(mark.done - began.done).max(0.001);
    format!(
        "[{}{}] {:>3.0} %  {} items  {:.0}/s  {} left",
        "█".repeat(filled),
        "·".repeat(30 - filled),
        part * 100.0,
        group(mark.items),
        a_second(mark.items - began.items),
        duration(left as u64)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exported_item_is_what_was_written() {
        let stored = r#"{"id":"1","n":12345678901234567890123,"t":",\"_rid\":\"x","_rid":"a==","_self":"b","_etag":"c","_ts":5}"#;
        let line = r#"{"id":"1","n":12345678901234567890123,"t":",\"_rid\":\"x"}"#;
        assert_eq!(without_system(stored), line);
        assert_eq!(without_system("{\n\"id\":\"1\"}"), "{ \"id\":\"1\"}");
    }

    #[test]
    fn the_bar_says_how_far_how_fast_and_how_long() {
        let mark = |items, done| Mark { items, done };
        let ten = Duration::from_secs(10);
        assert_eq!(
            bar(mark(0, 0), mark(25_000, 50), 100, ten),
            "[███████████████···············]  50 %  25,000 items  2500/s  10 s left"
        );
        // Gone on after a stop at 40 %: speed and time are of this run.
        assert_eq!(
            bar(mark(20_000, 40), mark(25_000, 50), 100, ten),
            "[███████████████···············]  50 %  25,000 items  500/s  50 s left"
        );
        let full = bar(mark(0, 0), mark(10, 120), 100, ten);
        assert!(full.starts_with(&format!("[{}] 100 %", "█".repeat(30))), "{full}");
    }
}
