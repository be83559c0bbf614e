//! `sidereal copy`: moves a database from one store to another; and `--copy-to`, which does the same while it answers reads.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use db::copy::Progress;
use model::clock::Clock;
use storage::Engine;

/// Copies and compares; prints how far it is.
pub async fn run(from: &[String], to: &[String]) -> Result<bool> {
    ensure!(from != to, "the source and the target are the same");
    if let [path] = from {
        ensure!(is_address(path) || Path::new(path).is_dir(), "there is no data directory {path}");
    }
    let source = open(from).await.context("the source")?;
    let copied = between(&*source, to).await?;
    source.close().await?;
    println!("{copied}");
    if !is_directory(from) {
        println!("the source takes no writes any more; sidereal copy --release lets it again");
    }
    Ok(true)
}

/// Lets a store be written to again.
pub async fn release(from: &[String]) -> Result<bool> {
    ensure!(!is_directory(from), "a directory need not be released: start a server on it");
    let source = open(from).await?;
    db::copy::release(&*source).await?;
    source.close().await?;
    println!("the store takes writes again");
    Ok(true)
}

/// Copies an engine that is open to a store, with progress; says what was done.
pub async fn between(source: &dyn Engine, to: &[String]) -> Result<String> {
    let target = open(to).await.context("the target")?;
    let mut shown = Shown::new();
    let copied = db::copy::run(source, &*target, &mut |progress| shown.show(progress)).await;
    shown.end();
    let copied = copied?;
    target.close().await?;
    Ok(format!(
        "copied {} items in {} entries; {} are the same in both",
        copied.items, copied.entries, copied.compared
    ))
}

/// Progress, for people.
struct Shown {
    clock: model::clock::SystemClock,
    is_terminal: bool,
    /// When the last line was written.
    last: Option<f64>,
}

impl Shown {
    fn new() -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self { clock: model::clock::SystemClock::new(), is_terminal, last: None }
    }

    /// A line that changes; now and then one of its own where nobody sees it change.
    fn show(&mut self, progress: Progress) {
        let secs = self.clock.stopwatch().as_secs_f64();
        let pause = if self.is_terminal { 0.2 } else { 5.0 };
        if self.last.is_some_and(|last| secs < last + pause) {
            return;
        }
        self.last = Some(secs);
        let rate = (progress.entries - progress.before + progress.compared) as f64 / secs;
        let (start, end) = if self.is_terminal { ("\r", "   ") } else { ("", "\n") };
        eprint!(
            "{start}{} % of about {} entries: {} items, {} entries copied, {} compared; {rate:.0} entries/s, {} s left{end}",
            progress.percent(),
            progress.all,
            progress.items,
            progress.entries,
            progress.compared,
            progress.secs_left(secs)
        );
        std::io::stderr().flush().unwrap_or_default();
    }

    fn end(&self) {
        if self.is_terminal {
            eprintln!();
        }
    }
}

fn is_directory(store: &[String]) -> bool {
    matches!(store, [path] if !is_address(path))
}

fn is_address(store: &str) -> bool {
    store.starts_with("postgres://") || store.starts_with("postgresql://")
}

/// A directory, or all the addresses of a store.
async fn open(store: &[String]) -> Result<Arc<dyn Engine>> {
    Ok(match store {
        [path] if is_directory(store) => Arc::new(crate::open(Path::new(path))?),
        _ => Arc::new(crate::open_store(store).await?),
    })
}
