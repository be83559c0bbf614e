//! `sidereal check`: verifies a data directory that no server uses.

use std::io::{IsTerminal, Write};
use std::path::Path;

use anyhow::{Result, ensure};
use storage::Engine;

/// Verifies `data` and prints what it finds. Whether all is well.
pub async fn run(data: &Path) -> Result<bool> {
    ensure!(data.is_dir(), "there is no data directory {}", data.display());
    let engine = crate::open(data)?;
    let mut bar = Bar { shown: std::io::stderr().is_terminal(), percent: None };
    let report = db::check::run(&engine, Some(mongo::layout::compile), &mut |done, total| {
        bar.show(done, total)
    })
    .await;
    bar.clear();
    engine.close().await?;
    let report = report?;

    for (count, name) in [
        (report.containers, "containers"),
        (report.items, "items"),
        (report.entries, "other entries"),
    ] {
        println!("{count:>12} {name}");
    }
    for problem in &report.problems {
        println!("problem: {problem}");
    }
    match report.problem_count {
        0 => println!("{}: no problems", data.display()),
        count => {
            println!("{}: {count} problem(s), {} shown", data.display(), report.problems.len())
        }
    }
    Ok(report.problems.is_empty())
}

/// A bar that grows on a terminal, and nothing elsewhere.
struct Bar {
    shown: bool,
    percent: Option<u64>,
}

impl Bar {
    const WIDTH: usize = 40;

    fn show(&mut self, done: u64, total: u64) {
        let percent = (done.min(total) * 100).checked_div(total).unwrap_or(100);
        if !self.shown || self.percent == Some(percent) {
            return;
        }
        self.percent = Some(percent);
        let filled = percent as usize * Self::WIDTH / 100;
        let (full, empty) = ("#".repeat(filled), ".".repeat(Self::WIDTH - filled));
        self.write(&format!("\r[{full}{empty}] {percent:>3} %"));
    }

    fn clear(&mut self) {
        if self.percent.is_some() {
            self.write(&format!("\r{}\r", " ".repeat(Self::WIDTH + 8)));
        }
    }

    fn write(&mut self, text: &str) {
        let mut out = std::io::stderr();
        // A terminal that is gone needs no bar.
        self.shown &= out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok();
    }
}
