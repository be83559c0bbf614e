//! What was measured, for people: printed as it comes, and kept in RESULTS.md, one section a subcommand.

use std::fmt::Display;
use std::path::Path;

use anyhow::Result;

use crate::load::Outcome;
use crate::sign::{civil, unix_secs};

/// The order of the sections in RESULTS.md.
const ORDER: [&str; 17] = [
    "read",
    "create",
    "upsert",
    "mixed",
    "batch",
    "feed",
    "query",
    "mongo-find",
    "mongo-insert",
    "purge",
    "churn",
    "ttl-default",
    "timeline",
    "start",
    "crash",
    "postgres",
    "batching",
];

const PREFACE: &str = "# Results\n\n\
    Written by `bench` (see README.md beside this file). Each section is one run, with its command; a bar is a promise of the\n\
    project, and holds on the machine named in the section. Ratios compare two things measured in the same run.\n";

/// The results of one subcommand.
pub struct Report {
    name: &'static str,
    text: String,
    /// Bars that were missed.
    pub failed: usize,
}

impl Report {
    /// Begins a section.
    pub fn new(name: &'static str, command: &str) -> Self {
        let mut report = Self { name, text: String::new(), failed: 0 };
        report.line(format!("## {name}\n"));
        report.line(format!("`{command}`  \n{}\n", machine()));
        report
    }

    /// A line of Markdown.
    pub fn line(&mut self, text: impl Display) {
        println!("{text}");
        self.text.push_str(&format!("{text}\n"));
    }

    /// The head of a table of loads.
    pub fn load_table(&mut self) {
        self.line(
            "| load | requests/s | p50 ms | p99 ms | p99.9 ms | server CPU µs/request | client CPU µs/request | other load |\n\
             |---|---:|---:|---:|---:|---:|---:|---:|",
        );
    }

    /// A row of it.
    pub fn load(&mut self, name: &str, outcome: &Outcome) {
        self.line(format!(
            "| {name} | {:.0} | {:.2} | {:.2} | {:.2} | {:.1} | {:.1} | {:.0} % |",
            outcome.rate(),
            outcome.percentile(50.0),
            outcome.percentile(99.0),
            outcome.percentile(99.9),
            outcome.server_micros(),
            outcome.client_micros(),
            outcome.other_percent(),
        ));
    }

    /// A bar and whether it is met.
    pub fn bar(&mut self, met: bool, text: impl Display) {
        self.failed += usize::from(!met);
        self.line(format!("- **{}** {text}", if met { "PASS" } else { "FAIL" }));
    }

    /// Puts the section into the file in place of the one there.
    pub fn save(&self, path: &Path) -> Result<()> {
        let old = std::fs::read_to_string(path).unwrap_or_default();
        let mut text = PREFACE.to_owned();
        for name in ORDER {
            let section =
                if name == self.name { Some(self.text.as_str()) } else { section(&old, name) };
            if let Some(section) = section {
                text.push('\n');
                text.push_str(section.trim());
                text.push('\n');
            }
        }
        Ok(std::fs::write(path, text)?)
    }
}

/// The section of a name, head line included.
fn section<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let start = text.find(&format!("## {name}\n"))?;
    let rest = &text[start..];
    let end = rest[3..].find("\n## ").map_or(rest.len(), |at| at + 3);
    Some(&rest[..end])
}

/// When, and on what kind of machine.
fn machine() -> String {
    let (year, month, day) = civil(unix_secs() / 86_400);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes: u64 = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok())
        .unwrap_or_default();
    let system = std::env::consts::OS;
    format!(
        "{year}-{month:02}-{day:02}, {cores} cores, {} GB of memory, {system}",
        kilobytes.div_ceil(1 << 20)
    )
}

/// Megabytes with one digit.
pub fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_replaced_and_the_others_stay() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("r.md");
        for (name, text) in [("read", "first run"), ("crash", "kept"), ("read", "second run")] {
            let mut report = Report::new(name, "bench");
            report.line(text);
            report.save(&path).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            !text.contains("first run") && text.contains("second run") && text.contains("kept")
        );
        assert!(text.find("## read").unwrap() < text.find("## crash").unwrap());
    }
}
