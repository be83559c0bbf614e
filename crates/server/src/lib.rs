//! The server: opens an engine, starts the front end and the purge, stops cleanly.
//!
//! # A point read, from crate to crate
//!
//! 1. [`listener::Listener::serve`] accepts; [`cosmos::FrontEnd::answer`] checks the signature and picks the route.
//! 2. The front end reads headers into a typed request and calls [`db::Db::read`].
//! 3. The database takes one `now` from its [`model::clock::Clock`], finds the record in a [`storage::Snapshot`], and leaves out what is dead
//!    under [`model::ttl::Horizon`].
//! 4. The front end puts the record's bytes into the response as they are, or turns the [`db::Error`] into a status.
//!
//! # A query
//!
//! 1. The front end reads body and continuation and calls [`db::Db::query`].
//! 2. The database has the text parsed and planned, scans pages of one snapshot, drops the dead, and pushes the living through the pipeline.
//! 3. Rows and a continuation go back; the next page is a new request with its own `now`.
//!
//! # The purge
//!
//! 1. [`keep_purging`] sleeps until the next item is due or [`db::Db::purge_wanted`] says sooner.
//! 2. [`db::Db::purge`] removes what is dead within the request units that clients have left over, and says when to look again.

pub mod certificate;
pub mod check;
pub mod config;
pub mod copy;
pub mod guard;
pub mod insight;
mod lanes;
pub mod listener;
pub mod logger;
pub mod remote;
pub mod transfer;

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use cosmos::FrontEnd;
use db::Db;
use model::clock::{Clock, StoreClock, SystemClock, VirtualClock};
use storage::Engine;
use storage::embedded::{self, Embedded};
use storage::memory::Memory;
use storage::postgres::{self, Postgres};
use tokio::sync::watch;

use certificate::Identity;
use config::{ClockKind, Serve};
use guard::Guarded;
use listener::{Listener, Protocol, Sockets};

/// Serves until `stop` is told, then finishes what is running and flushes. An error if the store fails meanwhile.
pub async fn serve(config: &Serve, stop: watch::Receiver<bool>) -> Result<()> {
    let (keys, key_hint) = config.keys()?;
    let machine_clock = Arc::new(SystemClock::new());
    let (engine, data): (Arc<dyn Engine>, String) = match (&config.store[..], config.in_memory) {
        ([], true) => (Arc::new(Memory::new()), "in memory, gone when the server stops".into()),
        ([], false) => {
            let engine = open(&config.data)?;
            let path = std::fs::canonicalize(&config.data).unwrap_or_else(|_| config.data.clone());
            (Arc::new(engine), path.display().to_string())
        }
        (urls, _) => {
            let store = open_store(urls).await?;
            let shown = store.shown();
            (Arc::new(store), shown)
        }
    };
    let (guarded, failed) = Guarded::new(engine);
    let clock: Arc<dyn Clock> = match (config.clock, config.store.is_empty()) {
        (ClockKind::System, true) => machine_clock.clone(),
        (ClockKind::System, false) => Arc::new(StoreClock::new()),
        (ClockKind::Virtual, true) => Arc::new(VirtualClock::running()),
        (ClockKind::Virtual, false) => {
            bail!("--clock virtual cannot be used with --store: time is the store's there")
        }
    };
    let (throttle, partitions) = (config.throttle, config.partitions);
    let options = db::Options { throttle, partitions, layouts: Some(mongo::layout::compile) };
    let engine = Arc::new(guarded);
    let db = Db::open(engine.clone(), clock, options).await?;
    if !config.copy_to.is_empty() {
        engine.freeze(true).await?;
    }
    let identity = match (&config.tls_cert, &config.tls_key) {
        (Some(chain), Some(key)) => Identity::load(chain, key)?,
        _ if config.in_memory || !config.store.is_empty() => {
            Identity::in_memory(machine_clock.now())?
        }
        _ => Identity::kept(&config.data, machine_clock.now())?,
    };
    let options = cosmos::Options {
        origins: config.allow_origin.clone(),
        certificate: identity.authority.clone().map(Into::into),
    };
    let front_end = Arc::new(FrontEnd::new(db.clone(), keys, machine_clock, options));
    let sockets = Sockets::new(identity.tls.clone()).context("cannot start threads")?;
    let mut listeners = bind(config, &sockets, &front_end).await?;
    let sampling = tokio::spawn(keep_sampling(front_end.clone()));
    let address = listeners[0].address()?;
    let options = mongo::Options { strict_cosmos: config.mongo_strict_cosmos };
    let mongo = Arc::new(mongo::FrontEnd::new(db.clone(), config.mongo_keys()?, options));
    mongo.resume().await.context("cannot finish building MongoDB indexes")?;
    let mongo_listeners = bind_mongo(config, &sockets, &mongo).await?;
    let mongo_address = mongo_listeners.first().map(Listener::address).transpose()?;
    listeners.extend(mongo_listeners);
    announce((config, &data), &identity, &key_hint, (address, mongo_address));

    let copying = (!config.copy_to.is_empty())
        .then(|| tokio::spawn(copy_to(engine.clone(), config.copy_to.clone())));
    let purging = tokio::spawn(keep_purging(db.clone()));
    let serving = listeners.into_iter().map(|listener| {
        let (stop, failed) = (stop.clone(), failed.clone());
        tokio::spawn(listener.serve(either(stop, failed)))
    });
    for serving in serving.collect::<Vec<_>>() {
        serving.await.context("the listener has ended")?;
    }
    purging.abort();
    sampling.abort();
    if let Some(copying) = copying {
        copying.abort();
    }
    let failure = failed.borrow().clone();
    if let Some(failure) = failure {
        return Err(anyhow!(
            "{failure}. Start the server again: it recovers every acknowledged write."
        ));
    }
    db.close().await.context("cannot close the store")
}

/// Copies the store that is being served, and says what became of it. Reads go on in any case.
async fn copy_to(engine: Arc<dyn Engine>, to: Vec<String>) {
    let text = match copy::between(&*engine, &to).await {
        Ok(copied) => {
            format!("{copied}; reads go on here: start servers on the copy, and stop this one")
        }
        Err(error) => {
            log::error!("the copy has stopped: {error:#}");
            "the copy has stopped, and goes on when the server is started again".to_owned()
        }
    };
    // Nobody need be there to read it.
    writeln!(std::io::stdout(), "{text}").unwrap_or_default();
}

/// Opens the store in `data`.
pub fn open(data: &Path) -> Result<Embedded> {
    Ok(Embedded::open(data, embedded::Options::default())?)
}

/// Opens the store at PostgreSQL addresses: one, or those of all its parts.
pub async fn open_store(urls: &[String]) -> Result<Postgres> {
    Ok(Postgres::open(urls, db::BUCKETS, postgres::Options::default()).await?)
}

/// Returns when the server is to stop, or the store has failed.
async fn either(mut stop: watch::Receiver<bool>, mut failed: watch::Receiver<Option<String>>) {
    // A sender that is gone will never tell: its side then waits for ever.
    let stopped = async {
        if stop.wait_for(|stop| *stop).await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let failed = async {
        if failed.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = stopped => {}
        () = failed => {}
    }
}

async fn bind(
    config: &Serve,
    sockets: &Sockets,
    front_end: &Arc<FrontEnd>,
) -> Result<Vec<Listener>> {
    let mut listeners: Vec<Listener> = Vec::new();
    for ip in config.addresses() {
        // Where any port will do, all addresses get the first one's.
        let port = match listeners.first() {
            None => config.port,
            Some(first) => first.address()?.port(),
        };
        let address = SocketAddr::new(ip, port);
        let protocol = Protocol::Http(front_end.clone());
        match Listener::bind(address, sockets.clone(), protocol).await {
            Ok(listener) => listeners.push(listener),
            Err(error) if listeners.is_empty() => {
                return Err(cannot_bind(address, "--port", &error));
            }
            Err(error) => log::info!("not listening on {address}: {error}"),
        }
    }
    Ok(listeners)
}

/// Listens for MongoDB drivers. A default port that is taken is no reason not to serve the rest.
async fn bind_mongo(
    config: &Serve,
    sockets: &Sockets,
    front_end: &Arc<mongo::FrontEnd>,
) -> Result<Vec<Listener>> {
    let mut listeners: Vec<Listener> = Vec::new();
    for ip in config.addresses() {
        let port = match listeners.first() {
            None => config.mongo_port(),
            Some(first) => first.address()?.port(),
        };
        let address = SocketAddr::new(ip, port);
        let protocol = Protocol::Mongo(front_end.clone());
        match Listener::bind(address, sockets.clone(), protocol).await {
            Ok(listener) => listeners.push(listener),
            Err(error) if listeners.is_empty() && config.mongo_port.is_some() => {
                return Err(cannot_bind(address, "--mongo-port", &error));
            }
            Err(error) if listeners.is_empty() => {
                log::warn!(
                    "MongoDB drivers are not served: {error}, at {address}. Choose another port with --mongo-port."
                );
                return Ok(listeners);
            }
            Err(error) => log::info!("not listening for MongoDB on {address}: {error}"),
        }
    }
    Ok(listeners)
}

fn cannot_bind(address: SocketAddr, flag: &str, error: &std::io::Error) -> anyhow::Error {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => anyhow!(
            "port {} on {} is in use by another process. Stop that, or choose another port with {flag} (0 takes any that is free).",
            address.port(),
            address.ip()
        ),
        std::io::ErrorKind::AddrNotAvailable => {
            anyhow!("this machine does not have the address {}: see --listen.", address.ip())
        }
        std::io::ErrorKind::PermissionDenied => {
            anyhow!(
                "no permission to listen on port {}: choose one above 1023 with {flag}.",
                address.port()
            )
        }
        _ => anyhow!("cannot listen on {address}: {error}"),
    }
}

/// Tells the user where the server is and how to use it.
fn announce(
    (config, data): (&Serve, &str),
    identity: &Identity,
    key_hint: &str,
    (address, mongo): (SocketAddr, Option<SocketAddr>),
) {
    let certificate = match (&identity.path, &identity.authority) {
        (Some(path), _) => format!(
            "{} (made here; clients trust it with NODE_EXTRA_CA_CERTS, REQUESTS_CA_BUNDLE or SSL_CERT_FILE set to this path)",
            path.display()
        ),
        (None, Some(_)) => {
            format!("made for this run (curl -k https://{address}/_explorer/emulator.pem shows it)")
        }
        (None, None) => "yours".to_owned(),
    };
    let clock = match config.clock {
        ClockKind::System if !config.store.is_empty() => "the store's",
        ClockKind::System => "the machine's",
        ClockKind::Virtual => "virtual (POST /_admin/clock moves it)",
    };
    let mongo = match (mongo, config.no_auth) {
        (None, _) => "not served: its port is taken (see --mongo-port)".to_owned(),
        (Some(mongo), true) => format!("mongodb://{mongo}/ (TLS works too; no key needed)"),
        (Some(mongo), false) => {
            format!("mongodb://{mongo}/ (TLS works too; any user name, the key as password)")
        }
    };
    let text = format!(
        "Sidereal {} is ready at https://{address}/ (http:// works too)\n  key          {key_hint}\n  certificate  \
         {certificate}\n  mongodb      {mongo}\n  data         {data}\n  clock        {clock}\n",
        env!("CARGO_PKG_VERSION")
    );
    let mut out = std::io::stdout().lock();
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        log::info!("nobody reads standard output: ready at {address}");
    }
}

/// How long the purge waits for clients to leave request units over.
const THROTTLED_WAIT: Duration = Duration::from_millis(100);

/// How long the purge waits after an error before it tries again.
const ERROR_WAIT: Duration = Duration::from_secs(5);

/// How often a server looks for what has expired of that which others have written.
const SHARED_WAIT_SECS: u64 = 5;

/// How often the clock is stored while requests come in, so that it does not go back after a crash (R13).
const CLOCK_WAIT: Duration = Duration::from_secs(5);

/// Takes a sample for the portal's plots now and then.
async fn keep_sampling(front_end: Arc<FrontEnd>) {
    loop {
        front_end.sample().await;
        tokio::time::sleep(Duration::from_secs(cosmos::SAMPLE_SECS)).await;
    }
}

/// Removes expired items for ever: when the next is due, or a write says sooner.
pub async fn keep_purging(db: Db) {
    loop {
        match db.purge().await {
            Ok(report) if report.throttled => rest(&db, THROTTLED_WAIT).await,
            Ok(report) if report.more => tokio::task::yield_now().await,
            Ok(report) => {
                let now = db.clock().now();
                let secs = report.next_due.map_or(u64::MAX, |due| due.since(now).max(1));
                // What other servers write, nobody tells this one.
                let secs = if db.is_shared() { secs.min(SHARED_WAIT_SECS) } else { secs };
                tokio::select! {
                    () = rest(&db, Duration::from_secs(secs)) => {}
                    () = db.purge_wanted(report.next_due) => {}
                }
            }
            Err(db::Error::Stopping) => return,
            Err(error) => {
                // A store that is frozen or away for now is no error of ours.
                let is_away = matches!(error, db::Error::Unavailable(_));
                let level = if is_away { log::Level::Info } else { log::Level::Error };
                log::log!(level, "the purge: {error}");
                rest(&db, ERROR_WAIT).await;
            }
        }
    }
}

/// Waits, and stores the clock now and then.
async fn rest(db: &Db, wait: Duration) {
    let mut left = wait;
    while !left.is_zero() {
        let nap = left.min(CLOCK_WAIT);
        tokio::time::sleep(nap).await;
        left = left.saturating_sub(nap);
        if let Err(error) = db.keep_clock().await {
            log::info!("the clock cannot be stored: {error}");
        }
    }
}
