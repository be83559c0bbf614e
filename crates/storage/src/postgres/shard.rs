//! One store: its address, its tables, and sessions with the node of it that takes writes.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use super::address::{Address, Unreachable, reason};
use crate::{Error, Result};

/// The version of the tables.
const FORMAT: i64 = 2;

/// How long a call waits for a store that cannot be reached before it says so.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The same when it was not there the last time.
const SHORT_PATIENCE: Duration = Duration::from_millis(500);

/// How long a read may take before its connection is given up.
pub(super) const READ_LIMIT: Duration = Duration::from_secs(30);

/// How long a leader that was heard of counts as one. A leader that is frozen loses its office meanwhile, and does not know it when it wakes up:
/// what it answers then is old. So this is shorter than a failover can be.
pub(crate) const OFFICE: Duration = Duration::from_secs(3);

/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(100);

/// A lane needs an open row of its own; while the row 0 is there, none can be made. The lock waits for all transactions that have used a row.
const FREEZE: &str = "BEGIN; SET LOCAL lock_timeout = '30s'; LOCK TABLE sidereal_writer IN EXCLUSIVE MODE; \
                      INSERT INTO sidereal_writer VALUES (0, 0, false, 'infinity') ON CONFLICT (id) DO NOTHING; \
                      UPDATE sidereal_writer SET open = false WHERE open; COMMIT";
const THAW: &str = "DELETE FROM sidereal_writer WHERE id = 0";

/// Values of a statement.
pub(super) type Values<'a> = [&'a (dyn ToSql + Sync)];

/// One of the stores that hold the buckets.
pub(super) struct Shard {
    address: Address,
    /// The last timeline that was seen: who is on an earlier one has lost its office.
    timeline: AtomicU64,
    /// When the leader was asked what it has answered last, in milliseconds since `opened`.
    heard: AtomicU64,
    opened: Instant,
    /// Sessions that nobody uses.
    idle: Mutex<Vec<Session>>,
    permits: Arc<Semaphore>,
    /// Whether the last one who needed a session got it.
    was_there: AtomicBool,
    pub closed: AtomicBool,
    pub commits: AtomicU64,
    pub disk_bytes: AtomicU64,
    pub keys: AtomicU64,
}

/// A connection and the statements that are prepared on it.
pub(super) struct Session {
    pub client: Client,
    timeline: u64,
    prepared: HashMap<Cow<'static, str>, Statement>,
}

impl Session {
    /// A statement, prepared once.
    pub async fn prepare(
        &mut self,
        sql: impl Into<Cow<'static, str>>,
    ) -> std::result::Result<Statement, tokio_postgres::Error> {
        let sql = sql.into();
        if let Some(statement) = self.prepared.get(&sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(&sql).await?;
        self.prepared.insert(sql, statement.clone());
        Ok(statement)
    }

    /// The rows of a query; gives up after [`READ_LIMIT`].
    pub async fn rows(&mut self, sql: &'static str, values: &Values<'_>) -> Result<Vec<Row>> {
        let query = async {
            let statement = self.prepare(sql).await?;
            self.client.query(&statement, values).await
        };
        match tokio::time::timeout(READ_LIMIT, query).await {
            Ok(rows) => rows.map_err(|error| Error::Unavailable(reason(&error))),
            Err(_) => Err(Error::Unavailable("it does not answer".into())),
        }
    }
}

/// A session of the pool, and the right to have it.
pub(super) struct Borrowed {
    pub session: Session,
    _permit: OwnedSemaphorePermit,
}

impl Shard {
    pub fn new(address: Address, sessions_max: usize) -> Self {
        Self {
            address,
            timeline: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            opened: Instant::now(),
            idle: Mutex::default(),
            permits: Arc::new(Semaphore::new(sessions_max)),
            was_there: AtomicBool::new(true),
            closed: AtomicBool::new(false),
            commits: AtomicU64::new(0),
            disk_bytes: AtomicU64::new(0),
            keys: AtomicU64::new(0),
        }
    }

    pub fn shown(&self) -> String {
        self.address.shown()
    }

    pub fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// A new session, at the first attempt.
    pub async fn connect(&self) -> std::result::Result<Session, Unreachable> {
        let asked = Instant::now();
        let connected = self.address.connect(self.timeline.load(Ordering::Acquire)).await?;
        let before = self.timeline.fetch_max(connected.timeline, Ordering::AcqRel);
        if before != 0 && before < connected.timeline {
            log::warn!("the store has a new leader: {}", connected.node);
        }
        self.hear(asked);
        let super::address::Connected { client, timeline, .. } = connected;
        Ok(Session { client, timeline, prepared: HashMap::new() })
    }

    /// A new session, as soon as there is one.
    pub async fn connect_within(&self, patience: Duration) -> Result<Session> {
        let mut last = String::from("it does not answer");
        let connected = tokio::time::timeout(patience, async {
            loop {
                self.check_open()?;
                match self.connect().await {
                    Ok(session) => return Ok(session),
                    Err(Unreachable(text)) => last = text,
                }
                tokio::time::sleep(RETRY).await;
            }
        })
        .await;
        connected.unwrap_or(Err(Error::Unavailable(last)))
    }

    /// Whether a session is with the node that takes writes. An answer of one that is not may be old.
    pub fn is_current(&self, session: &Session) -> bool {
        let newest = session.timeline >= self.timeline.load(Ordering::Acquire);
        newest && self.silence() < OFFICE && !session.client.is_closed()
    }

    /// The leader has answered what it was asked then.
    pub fn hear(&self, asked: Instant) {
        let asked = asked.duration_since(self.opened).as_millis() as u64;
        self.heard.fetch_max(asked, Ordering::AcqRel);
    }

    /// How long nothing was heard of the leader.
    pub fn silence(&self) -> Duration {
        let heard = Duration::from_millis(self.heard.load(Ordering::Acquire));
        self.opened.elapsed().saturating_sub(heard)
    }

    /// A session of the pool, for a reader who needs it for itself.
    pub async fn borrow(&self) -> Result<Borrowed> {
        self.check_open()?;
        let permit = tokio::time::timeout(PATIENCE, self.permits.clone().acquire_owned()).await;
        let permit = permit.map_err(|_| {
            Error::Unavailable("too many readers hold a snapshot of it; try again".into())
        })?;
        let permit = permit.map_err(|_| Error::Closed)?;
        loop {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match idle {
                Some(session) if self.is_current(&session) => {
                    return Ok(Borrowed { session, _permit: permit });
                }
                Some(_) => {}
                None => {
                    // Once it was not there, nobody waits for it in turn.
                    let was_there = self.was_there.load(Ordering::Relaxed);
                    let patience = if was_there { PATIENCE } else { SHORT_PATIENCE };
                    let session = self.connect_within(patience).await;
                    self.was_there.store(session.is_ok(), Ordering::Relaxed);
                    let session = session?;
                    return Ok(Borrowed { session, _permit: permit });
                }
            }
        }
    }

    /// Takes a session back that has nothing under way.
    pub fn give_back(&self, borrowed: Borrowed) {
        let session = borrowed.session;
        if self.is_current(&session) && self.check_open().is_ok() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
        }
    }

    /// Drops the idle sessions.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Asks how large the tables are.
    pub async fn measure(&self) {
        let Ok(mut borrowed) = self.borrow().await else { return };
        let sql = "SELECT pg_total_relation_size(oid)::bigint, reltuples::bigint FROM pg_class WHERE oid = 'sidereal_kv'::regclass";
        if let Ok(rows) = borrowed.session.rows(sql, &[]).await {
            let number = |at| rows.first().map_or(0, |row| row.get::<_, i64>(at)).max(0) as u64;
            self.disk_bytes.store(number(0), Ordering::Relaxed);
            self.keys.store(number(1), Ordering::Relaxed);
            self.give_back(borrowed);
        }
    }

    /// Has the tables there, made now if need be, and refuses those that are not ours: other versions, or another place in the list of stores.
    async fn prepare(&self, place: (usize, usize), known: Option<Identity>) -> Result<Identity> {
        let session = self.connect().await.map_err(|Unreachable(text)| {
            let (number, of) = (place.0 + 1, place.1);
            let which = if of > 1 { format!(" (number {number} of {of})") } else { String::new() };
            Error::Open(format!("cannot open the store {}{which}: {text}", self.shown()))
        })?;
        let client = &session.client;
        let exists = "SELECT to_regclass('sidereal_store') IS NOT NULL";
        let refused = |error| self.refusal(&error);
        let own = |rows: Vec<Row>| {
            let row = rows.first().ok_or_else(|| {
                let shown = self.shown();
                Error::Open(format!("the table sidereal_store of the store {shown} is empty"))
            })?;
            Ok::<i64, Error>(row.get(0))
        };
        let mut format = FORMAT;
        if client.query_one(exists, &[]).await.map_err(refused)?.get::<_, bool>(0) {
            let rows = client.query("SELECT format FROM sidereal_store", &[]).await;
            format = own(rows.map_err(|error| self.refusal_of_rights(&error))?)?;
        } else {
            if known.is_some_and(|known| known.complete) {
                return Err(Error::Open(format!(
                    "the store {} is empty, but it is number {} of {} of a store that is in use: is this its address? If its data is lost, \
                     restore it from its backup",
                    self.shown(),
                    place.0 + 1,
                    place.1
                )));
            }
            let id =
                known.map_or_else(|| (super::writing::random_u64() >> 1) as i64, |known| known.id);
            self.change_tables(client, &tables(place, id)).await?;
        }
        if format > FORMAT {
            return Err(Error::Open(format!(
                "the store {} was written by a newer version of Sidereal (format {format}; this version knows {FORMAT}): use that \
                 version, or another database",
                self.shown()
            )));
        }
        if format == 1 {
            self.change_tables(client, FROM_1).await?;
        }
        let row = client.query_one("SELECT place, places, id, complete FROM sidereal_store", &[]);
        let row = row.await.map_err(refused)?;
        let (at, of) = (row.get::<_, i64>(0) as usize, row.get::<_, i64>(1) as usize);
        let identity = Identity { id: row.get(2), complete: row.get(3) };
        if (at, of) != place {
            return Err(Error::Open(format!(
                "the store {} is number {} of {of}, and is given here as number {} of {}: give --store for all of them, in the same \
                 order as ever",
                self.shown(),
                at + 1,
                place.0 + 1,
                place.1
            )));
        }
        if known.is_some_and(|known| known.id != identity.id) {
            return Err(Error::Open(format!(
                "the store {} is number {} of another store than the first --store is: give those that belong together",
                self.shown(),
                at + 1
            )));
        }
        let sql = "SELECT p || ' on ' || t || ' is missing' FROM unnest(ARRAY['sidereal_kv', 'sidereal_writer']) t, \
                   unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p WHERE NOT has_table_privilege(t, p) ORDER BY 1";
        let missing = client.query(sql, &[]).await.map_err(refused)?;
        if let Some(missing) = missing.first() {
            return Err(self.want_of_rights(&missing.get::<_, String>(0)));
        }
        // What former servers have left.
        let old = "DELETE FROM sidereal_writer WHERE used < now() - interval '1 day'";
        client.batch_execute(old).await.map_err(refused)?;
        Ok(identity)
    }

    /// Makes or changes the tables, unless another server is faster.
    async fn change_tables(&self, client: &Client, sql: &str) -> Result<()> {
        match client.batch_execute(sql).await {
            Err(error) if is_there_already(&error) => {
                client.batch_execute("ROLLBACK").await.map_err(|error| self.refusal(&error))
            }
            changed => changed.map_err(|error| self.refusal(&error)),
        }
    }

    /// Notes in the first store that all are there: from now on none of them may be empty.
    async fn complete(&self) -> Result<()> {
        let refused = |error| self.refusal(&error);
        let session = self.connect().await.map_err(|Unreachable(text)| Error::Open(text))?;
        let sql = "UPDATE sidereal_store SET complete = true";
        session.client.batch_execute(sql).await.map_err(refused)
    }

    fn refusal_of_rights(&self, error: &tokio_postgres::Error) -> Error {
        match error.code() {
            Some(state) if *state == SqlState::INSUFFICIENT_PRIVILEGE => {
                self.want_of_rights(&reason(error))
            }
            _ => self.refusal(error),
        }
    }

    fn want_of_rights(&self, what: &str) -> Error {
        Error::Open(format!(
            "the user may not use the tables of the store {} ({what}): GRANT SELECT ON sidereal_store TO the user, and GRANT SELECT, INSERT, \
             UPDATE, DELETE ON sidereal_kv, sidereal_writer; or connect as their owner",
            self.shown()
        ))
    }

    /// Has all lanes of all servers refuse to commit, or lets them again. Whatever commits when this is called is waited for.
    pub async fn freeze(&self, frozen: bool) -> Result<()> {
        let session = self.connect_within(PATIENCE).await?;
        let sql = if frozen { FREEZE } else { THAW };
        let done = session.client.batch_execute(sql).await;
        done.map_err(|error| Error::Unavailable(reason(&error)))
    }

    fn refusal(&self, error: &tokio_postgres::Error) -> Error {
        let what_to_do = match error.code() {
            Some(state) if *state == SqlState::INSUFFICIENT_PRIVILEGE => {
                " (GRANT CREATE ON SCHEMA public TO the user, or connect as the owner of the database)"
            }
            _ => "",
        };
        Error::Open(format!(
            "cannot prepare the store {}: {}{what_to_do}",
            self.shown(),
            reason(error)
        ))
    }
}

/// What the parts of a store have in common.
#[derive(Clone, Copy)]
struct Identity {
    id: i64,
    /// Whether all parts were there once; only the first knows.
    complete: bool,
}

/// Has the tables in all parts of a store.
pub(super) async fn prepare(stores: &[Arc<Shard>]) -> Result<()> {
    let Some((first, others)) = stores.split_first() else {
        return Err(Error::Open("no store is given: give --store".into()));
    };
    let identity = first.prepare((0, stores.len()), None).await?;
    for (number, store) in others.iter().enumerate() {
        store.prepare((number + 1, stores.len()), Some(identity)).await?;
    }
    if !identity.complete {
        first.complete().await?;
    }
    Ok(())
}

fn tables((place, places): (usize, usize), id: i64) -> String {
    format!(
        "BEGIN; \
         CREATE TABLE sidereal_kv (b bigint NOT NULL, k bytea NOT NULL, v bytea NOT NULL, PRIMARY KEY (b, k)); \
         CREATE INDEX sidereal_catalog ON sidereal_kv (k) WHERE k < '\\x01'::bytea; \
         CREATE TABLE sidereal_writer (id bigint PRIMARY KEY, seq bigint NOT NULL, open boolean NOT NULL, \
         used timestamptz NOT NULL); \
         CREATE TABLE sidereal_store (format bigint NOT NULL, place bigint NOT NULL, places bigint NOT NULL, \
         id bigint NOT NULL, complete boolean NOT NULL); \
         INSERT INTO sidereal_store VALUES ({FORMAT}, {place}, {places}, {id}, {places} = 1); \
         COMMIT"
    )
}

/// What the tables of the first version lack: a store had one part, and that no name.
const FROM_1: &str = "BEGIN; \
                      ALTER TABLE sidereal_store ADD COLUMN id bigint NOT NULL DEFAULT 0; \
                      ALTER TABLE sidereal_store ADD COLUMN complete boolean NOT NULL DEFAULT true; \
                      UPDATE sidereal_store SET format = 2; \
                      COMMIT";

fn is_there_already(error: &tokio_postgres::Error) -> bool {
    let there = [
        &SqlState::DUPLICATE_TABLE,
        &SqlState::UNIQUE_VIOLATION,
        &SqlState::DUPLICATE_OBJECT,
        &SqlState::DUPLICATE_COLUMN,
    ];
    error.code().is_some_and(|state| there.contains(&state))
}
