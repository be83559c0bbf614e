//! `sidereal copy`: moves a database from one store to another.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use storage::Engine;

/// Copies and compares; prints how far it is.
pub async fn run(from: &[String], to: &[String]) -> Result<bool> {
    ensure!(from != to, "the source and the target are the same");
    if let [path] = from {
        ensure!(is_address(path) || Path::new(path).is_dir(), "there is no data directory {path}");
    }
    let source = open(from).await.context("the source")?;
    let target = open(to).await.context("the target")?;
    let shown = std::io::stderr().is_terminal();
    let mut last = 0;
    let copied = db::copy::run(&*source, &*target, &mut |progress| {
        let sum = progress.entries + progress.compared;
        // A line now and then where nobody sees it move.
        if shown || sum >= last + 100_000 {
            last = sum;
            let (start, end) = if shown { ("\r", "") } else { ("", "\n") };
            eprint!(
                "{start}{} entries copied, {} compared{end}",
                progress.entries, progress.compared
            );
            std::io::stderr().flush().unwrap_or_default();
        }
    })
    .await;
    if shown {
        eprintln!();
    }
    let copied = copied?;
    target.close().await?;
    source.close().await?;
    println!("copied {} entries; {} are the same in both", copied.entries, copied.compared);
    Ok(true)
}

fn is_address(store: &str) -> bool {
    store.starts_with("postgres://") || store.starts_with("postgresql://")
}

/// A directory, or all the addresses of a store.
async fn open(store: &[String]) -> Result<Arc<dyn Engine>> {
    Ok(match store {
        [path] if !is_address(path) => Arc::new(crate::open(Path::new(path))?),
        _ => Arc::new(crate::open_store(store).await?),
    })
}
