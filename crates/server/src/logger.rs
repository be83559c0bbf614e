//! The log: a line an event, on standard error.
//!
//! The storage engine logs through the `log` crate too; below `debug` only its warnings are shown. Keys and bodies are never logged.

use std::io::Write;

use log::{Level, LevelFilter, Log, Metadata, Record};
use model::clock::{Clock, SystemClock};

struct Logger {
    level: LevelFilter,
    clock: SystemClock,
}

/// Begins to log what is at least as important as `level`.
pub fn start(level: LevelFilter) {
    let logger = Box::leak(Box::new(Logger { level, clock: SystemClock::new() }));
    if log::set_logger(logger).is_ok() {
        log::set_max_level(level);
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let ours = ["cosmos", "db", "mongo", "server", "sidereal", "storage"]
            .iter()
            .any(|name| metadata.target().starts_with(name));
        metadata.level() <= self.level
            && (ours || metadata.level() <= Level::Warn || self.level >= LevelFilter::Debug)
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let (now, level, target) = (self.clock.now(), record.level(), record.target());
            let line = format!("{now} {level} {target}: {}\n", record.args());
            // Where standard error is gone there is nobody to tell.
            drop(std::io::stderr().write_all(line.as_bytes()));
        }
    }

    fn flush(&self) {}
}
