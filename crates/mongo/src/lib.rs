//! The MongoDB front end: wire protocol in, [`db::Db`] calls out.
//!
//! A command's walk: the server accepts, [`connection`] reads a message ([`wire`]), [`commands`] picks the command, which reads its options,
//! asks the [`language`] for filters and updates, and calls the database. It decides nothing about expiry: [`layout`] tells the database what
//! is stored beside a document, and the database does the rest.
//!
//! [`language`] is pure: no I/O, no clock.

pub mod auth;
pub mod commands;
mod connection;
#[cfg(test)]
mod connection_tests;
pub mod cursors;
pub mod error;
pub mod language;
pub mod layout;
mod options;
mod plan;
#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod script_tests;
#[cfg(test)]
mod servers_tests;
pub mod sessions;
#[cfg(test)]
mod support_tests;
#[cfg(test)]
mod ttl_model_tests;
pub mod wire;

use std::sync::atomic::{AtomicI32, Ordering};

use db::Db;

pub use auth::{Access, Keys};

/// How the front end behaves.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Refuse what the service refuses, where we could do it: TTL indexes on other fields than `_ts` (R29).
    pub strict_cosmos: bool,
}

/// All that connections share.
pub struct FrontEnd {
    pub(crate) db: Db,
    /// The account's keys; `None` lets everybody in.
    pub(crate) keys: Option<Keys>,
    pub(crate) options: Options,
    pub(crate) cursors: cursors::Cursors,
    pub(crate) sessions: sessions::Sessions,
    pub(crate) watched: commands::Watched,
    connections: AtomicI32,
}

impl FrontEnd {
    /// A front end for a database that was opened with [`layout::compile`] as its layouts.
    pub fn new(db: Db, keys: Option<Keys>, options: Options) -> Self {
        Self {
            db,
            keys,
            options,
            cursors: cursors::Cursors::default(),
            sessions: sessions::Sessions::default(),
            watched: commands::Watched::default(),
            connections: AtomicI32::new(0),
        }
    }

    /// Finishes what a stop has cut short: indexes that were being built, and what dropped ones have left.
    pub async fn resume(&self) -> error::Result<()> {
        commands::resume(&self.db).await
    }

    /// A number for a new connection.
    pub(crate) fn next_connection(&self) -> i32 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }
}
