//! Commits: a few lanes, each one session and one transaction at a time.
//!
//! All commits of a bucket go through the same lane, so they reach the store in the order in which they were made. A transaction is one statement
//! and one round trip ([`Text`]); a check that does not hold is made an error (a division by the number of rows that were as
//! expected), which undoes everything.
//!
//! ```text
//! writer row: seq = n, if it is still open     else: this lane was closed, nothing of it may count
//! checked rows: as expected, or 1 / 0           locked from here on
//! deletes, puts
//! ```
//!
//! **Puts are plain inserts at first** where a batch deletes nothing: it then adds, as a rule, and to add without a look whether the row is there
//! costs a third less. If one was there after all, the batch is sent again with puts that look.
//!
//! A check that a row is absent needs two statements more (the row is made, so that it is locked, and unmade). Such a batch is sent as a
//! transaction of several, its COMMIT included: also one round trip.
//!
//! **Nothing is guessed about a lost commit.** The lane has a row of its own, and each transaction writes its number there. A lane that has lost its
//! session closes that row from a new one, which waits for whatever the old one may still be doing, and reads the number: it is
//! the transaction's, and then it was made; or it is not, and then it never will be, because its row is closed. Only when the store cannot be
//! reached in time is the answer [`Error::Unknown`].
//!
//! **A batch for several stores** is a transaction on each, begun in the order of the stores and ended only when all checks hold: first the others,
//! then the one that the lane is at home in, which has the batch's first check. If a store is lost between the two, the others' part may be there
//! without that one, never the other way round.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::Statement;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use super::address::reason;
use super::rows::{Kept, Rows, Spot};
use super::shard::{PATIENCE, Session, Shard, Values};
use crate::{Error, Result};

/// How long a transaction may take before its session is given up. Synchronous replication waits while a standby is being replaced.
const COMMIT_LIMIT: Duration = Duration::from_secs(10);

/// How often a transaction is tried that the store has undone for the sake of another.
const ATTEMPTS_MAX: u32 = 10;

/// Why a transaction was given up that was always undone.
const BUSY: &str = "others keep using the same rows";

const OPEN: &str = "INSERT INTO sidereal_writer SELECT $1::bigint, 0, true, now() \
                    WHERE NOT EXISTS (SELECT 1 FROM sidereal_writer WHERE id = 0)";
const CLOSE: &str = "UPDATE sidereal_writer SET open = false WHERE id = $1::bigint RETURNING seq";
const BEGIN: &str = "BEGIN";
const MAKE: &str = "INSERT INTO sidereal_kv (b, k, v) VALUES ($1::bigint, $2::bytea, ''::bytea)";
const UNMAKE: &str = "DELETE FROM sidereal_kv WHERE b = $1::bigint AND k = $2::bytea";
const COMMIT: &str = "COMMIT";

/// What must not depend on the settings of the database. A transaction whose end never comes must not hold its locks for ever.
const SETTINGS: &str = "SET idle_in_transaction_session_timeout = '10s'; \
                        SET default_transaction_isolation = 'read committed'";

/// Something for a lane to do.
pub(super) enum Job {
    /// Rows of each store, in the order of the stores.
    Commit(Vec<(usize, Rows)>, oneshot::Sender<Result<()>>),
    /// Answers when all that came before is done.
    Close(oneshot::Sender<Result<()>>),
}

/// Commits one batch after the other.
pub(super) struct Lane {
    /// The store whose lane it is.
    home: usize,
    /// A seat in every store; those in others are taken when a batch needs them.
    seats: Vec<Seat>,
}

/// A session that commits in one store.
struct Seat {
    shard: Arc<Shard>,
    session: Option<(Session, Writer)>,
    /// A session of a store that is frozen, and so has no row for it.
    waiting: Option<Session>,
    /// The row of a session that was lost, and not yet closed.
    lost: Option<Writer>,
    /// Whether the store was there the last time.
    reached: bool,
}

/// A row of `sidereal_writer`.
#[derive(Clone, Copy)]
struct Writer {
    id: i64,
    /// The number of the last transaction.
    seq: i64,
}

/// Why a transaction was not made, or may not have been.
enum Fault {
    /// A check does not hold.
    Conflict,
    /// A row that was to be added is there.
    There,
    /// Undone for the sake of another.
    Again,
    /// Undone for another reason.
    Refused(Error),
    /// Undone, and the session is of no use.
    Useless(String),
    /// Nobody knows.
    Lost(String),
}

impl Lane {
    /// Starts a lane of one of the stores; it ends with its queue.
    pub fn start(
        home: usize,
        stores: &[Arc<Shard>],
        tasks: &tokio::runtime::Handle,
    ) -> mpsc::UnboundedSender<Job> {
        let (jobs, mut queue) = mpsc::unbounded_channel();
        let mut lane = Self { home, seats: stores.iter().cloned().map(Seat::new).collect() };
        tasks.spawn(async move {
            while let Some(job) = queue.recv().await {
                // Who has gone away has no use for the answer.
                match job {
                    Job::Commit(parts, reply) => {
                        let made = match &parts[..] {
                            [(_, rows)] => lane.seats[home].commit(rows).await,
                            _ => lane.commit_all(&parts).await,
                        };
                        drop(reply.send(made));
                    }
                    Job::Close(reply) => drop(reply.send(Ok(()))),
                }
            }
        });
        jobs
    }

    /// Commits in several stores.
    async fn commit_all(&mut self, parts: &[(usize, Rows)]) -> Result<()> {
        for attempt in 0.. {
            for (place, _) in parts {
                let seat = &mut self.seats[*place];
                seat.shard.check_open()?;
                seat.connect(seat.patience()).await?;
            }
            match self.begin_all(parts).await {
                Ok(()) => return self.end_all(parts).await,
                Err(fault) => {
                    self.undo(parts.iter().map(|(place, _)| *place)).await;
                    match fault {
                        Fault::Conflict => return Err(Error::Conflict),
                        Fault::Refused(error) => return Err(error),
                        Fault::There | Fault::Again | Fault::Useless(_) | Fault::Lost(_)
                            if attempt < ATTEMPTS_MAX =>
                        {
                            tokio::time::sleep(Duration::from_millis(1 << attempt.min(6))).await;
                        }
                        Fault::There | Fault::Again => {
                            return Err(Error::Unavailable(BUSY.into()));
                        }
                        // Nothing was ended, so nothing was made.
                        Fault::Useless(text) | Fault::Lost(text) => {
                            return Err(Error::Unavailable(text));
                        }
                    }
                }
            }
        }
        Err(Error::Closed)
    }

    /// Has a transaction on each store that only has to be ended.
    async fn begin_all(&mut self, parts: &[(usize, Rows)]) -> std::result::Result<(), Fault> {
        for (place, rows) in parts {
            let seat = &mut self.seats[*place];
            let Some((session, writer)) = &mut seat.session else {
                return Err(Fault::Useless("its session is gone".into()));
            };
            writer.seq += 1;
            let begun = transact(session, *writer, rows, (Puts::Set, End::Later));
            match tokio::time::timeout(COMMIT_LIMIT, begun).await {
                Ok(begun) => begun?,
                Err(_) => {
                    seat.session = None;
                    return Err(Fault::Lost("it does not answer".into()));
                }
            }
        }
        Ok(())
    }

    /// Ends the transactions, that of the lane's own store last.
    async fn end_all(&mut self, parts: &[(usize, Rows)]) -> Result<()> {
        let places = parts.iter().map(|(place, _)| *place);
        let mut places: Vec<usize> = places.filter(|place| *place != self.home).collect();
        places.push(self.home);
        for (number, place) in places.iter().enumerate() {
            let seat = &mut self.seats[*place];
            match seat.end().await {
                Ok(true) => {
                    seat.shard.commits.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) if *place == self.home => return Err(error),
                // Without the last one the others say nothing.
                Ok(false) | Err(_) => {
                    self.undo(places[number..].iter().copied()).await;
                    return Err(Error::Unavailable("a store was lost during a commit".into()));
                }
            }
        }
        Ok(())
    }

    /// Takes back transactions that were not ended.
    async fn undo(&mut self, places: impl Iterator<Item = usize>) {
        for place in places {
            let seat = &mut self.seats[place];
            let Some((session, _)) = &seat.session else { continue };
            let undone = session.client.batch_execute("ROLLBACK");
            if !matches!(tokio::time::timeout(PATIENCE, undone).await, Ok(Ok(()))) {
                // It ends with its session.
                seat.session = None;
            }
        }
    }
}

impl Seat {
    fn new(shard: Arc<Shard>) -> Self {
        Self { shard, session: None, waiting: None, lost: None, reached: true }
    }

    /// How long to wait for the store: once it was not there, nobody waits for it in turn.
    fn patience(&self) -> Duration {
        if self.reached { PATIENCE } else { Duration::from_millis(1) }
    }

    /// Ends the transaction that was begun; says whether it was made.
    async fn end(&mut self) -> Result<bool> {
        let Some((session, writer)) = &self.session else { return Ok(false) };
        let writer = *writer;
        let ended = tokio::time::timeout(COMMIT_LIMIT, session.client.batch_execute(COMMIT)).await;
        if let Ok(Ok(())) = ended {
            return Ok(true);
        }
        self.session = None;
        self.lost = Some(writer);
        match self.connect(PATIENCE).await {
            Ok(closed) => Ok(closed == Some(writer.seq)),
            Err(error) => Err(Error::Unknown(error.to_string())),
        }
    }

    async fn commit(&mut self, rows: &Rows) -> Result<()> {
        self.shard.check_open()?;
        let mut puts = if rows.deletes.is_empty() { Puts::Add } else { Puts::Set };
        for attempt in 0.. {
            self.connect(self.patience()).await?;
            let Some((session, writer)) = &mut self.session else { continue };
            writer.seq += 1;
            let made = transact(session, *writer, rows, (puts, End::Now));
            let made = tokio::time::timeout(COMMIT_LIMIT, made).await;
            let fault = match made {
                Ok(Ok(())) => {
                    self.shard.commits.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                Ok(Err(fault)) => fault,
                Err(_) => Fault::Lost("it does not answer".into()),
            };
            match fault {
                Fault::Conflict => return Err(Error::Conflict),
                Fault::Refused(error) => return Err(error),
                Fault::There => puts = Puts::Set,
                Fault::Again if attempt < ATTEMPTS_MAX => {
                    tokio::time::sleep(Duration::from_millis(1 << attempt.min(6))).await;
                }
                Fault::Again => {
                    return Err(Error::Unavailable(BUSY.into()));
                }
                Fault::Useless(text) => {
                    self.session = None;
                    if attempt >= ATTEMPTS_MAX {
                        return Err(Error::Unavailable(text));
                    }
                }
                Fault::Lost(text) => {
                    let lost = self.session.take().map(|(_, writer)| writer);
                    let seq = lost.map(|writer| writer.seq);
                    self.lost = lost;
                    match self.connect(PATIENCE).await {
                        Ok(closed) if closed.is_some() && closed == seq => {
                            self.shard.commits.fetch_add(1, Ordering::Relaxed);
                            return Ok(());
                        }
                        Ok(_) if attempt < ATTEMPTS_MAX => {}
                        Ok(_) => return Err(Error::Unavailable(text)),
                        Err(_) => return Err(Error::Unknown(text)),
                    }
                }
            }
        }
        Err(Error::Closed)
    }

    /// Has a session, and no row of a lost one; gives the last number of that row if it was closed here.
    async fn connect(&mut self, patience: Duration) -> Result<Option<i64>> {
        if let Some((session, _)) = &self.session
            && self.shard.is_current(session)
        {
            return Ok(None);
        }
        self.session = None;
        let shard = self.shard.clone();
        let mut session = match self.waiting.take() {
            Some(session) if shard.is_current(&session) => session,
            _ => {
                let connected = shard.connect_within(patience.max(CONNECT_MIN)).await;
                self.reached = connected.is_ok();
                connected?
            }
        };
        let opened = tokio::time::timeout(PATIENCE, self.open(&mut session)).await;
        let unavailable = |error: tokio_postgres::Error| Error::Unavailable(reason(&error));
        let late = || Error::Unavailable("it is still busy with a transaction of ours".into());
        let (writer, closed) = opened.map_err(|_| late())?.map_err(unavailable)?;
        let Some(writer) = writer else {
            self.waiting = Some(session);
            // What became of a lost transaction is known all the same.
            return match closed {
                Some(closed) => Ok(Some(closed)),
                None => Err(Error::Unavailable(FROZEN.into())),
            };
        };
        self.session = Some((session, writer));
        Ok(closed)
    }

    /// Closes the row of the lost session, and makes one for the new, unless the store is frozen.
    async fn open(
        &mut self,
        session: &mut Session,
    ) -> std::result::Result<(Option<Writer>, Option<i64>), tokio_postgres::Error> {
        session.client.batch_execute(SETTINGS).await?;
        let mut closed = None;
        if let Some(lost) = self.lost {
            let rows = session.client.query(CLOSE, &[&lost.id]).await?;
            closed = Some(rows.first().map_or(0, |row| row.get(0)));
            self.lost = None;
        }
        let id = (random_u64() >> 1) as i64;
        let made = session.client.execute(OPEN, &[&id]).await?;
        Ok(((made == 1).then_some(Writer { id, seq: 0 }), closed))
    }
}

/// Why a frozen store refuses a commit.
const FROZEN: &str = "it is being copied or was moved, and takes no writes; reads go on";

/// The least time for a connection.
const CONNECT_MIN: Duration = Duration::from_millis(500);

/// When a transaction is ended.
#[derive(Clone, Copy, PartialEq)]
enum End {
    /// In the same round trip.
    Now,
    /// When those of other stores are as far.
    Later,
}

/// How rows are put.
#[derive(Clone, Copy, PartialEq)]
enum Puts {
    /// They are new; if one is not, nothing is done.
    Add,
    /// They may be there.
    Set,
}

/// Sends a transaction as a whole.
async fn transact(
    session: &mut Session,
    writer: Writer,
    rows: &Rows,
    (puts, end): (Puts, End),
) -> std::result::Result<(), Fault> {
    let useless = |error: tokio_postgres::Error| Fault::Useless(reason(&error));
    let (sql, parameters) = Text::of(writer, rows, puts);
    let statement = session.prepare(sql).await.map_err(useless)?;
    let parameters: Vec<_> = parameters.iter().map(|parameter| &**parameter as _).collect();
    let is_absent = |(_, kept): &&(Spot, Kept)| *kept == Kept::Absent;
    if end == End::Now && !rows.checks.iter().any(|check| is_absent(&check)) {
        let made = session.client.execute(&statement, &parameters).await;
        return made.map(drop).map_err(|error| fault(&error, puts));
    }
    let make = &session.prepare(MAKE).await.map_err(useless)?;
    let unmake = &session.prepare(UNMAKE).await.map_err(useless)?;
    let client = &session.client;
    let run = async |statement, parameters: &Values<'_>| {
        client.execute::<Statement>(statement, parameters).await.map(drop)
    };
    let mut sent: Vec<Sent<'_>> = vec![Sent::new(client.batch_execute(BEGIN))];
    for (Spot { bucket, key }, _) in rows.checks.iter().filter(is_absent) {
        sent.push(Sent::new(async move { run(make, &[bucket, key]).await }));
        sent.push(Sent::new(async move { run(unmake, &[bucket, key]).await }));
    }
    sent.push(Sent::new(run(&statement, &parameters)));
    if end == End::Now {
        sent.push(Sent::new(client.batch_execute(COMMIT)));
    }
    poll_fn(|context| {
        // In their order; each is on its way once it was polled.
        let mut pending = false;
        for sent in &mut sent {
            if sent.result.is_none() {
                match sent.future.as_mut().poll(context) {
                    Poll::Ready(result) => sent.result = Some(result),
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    // The first error is why the others are.
    match sent.into_iter().find_map(|sent| sent.result?.err()) {
        None => Ok(()),
        Some(error) => Err(fault(&error, puts)),
    }
}

/// A statement on its way.
struct Sent<'a> {
    future:
        Pin<Box<dyn Future<Output = std::result::Result<(), tokio_postgres::Error>> + Send + 'a>>,
    result: Option<std::result::Result<(), tokio_postgres::Error>>,
}

impl<'a> Sent<'a> {
    fn new(
        future: impl Future<Output = std::result::Result<(), tokio_postgres::Error>> + Send + 'a,
    ) -> Self {
        Self { future: Box::pin(future), result: None }
    }
}

/// A transaction as one statement: parts that look at rows or change them, and a last one that fails if one of them has found too few.
/// Batches of one kind have the same text, so that it is prepared once.
struct Text<'a> {
    parts: String,
    last: String,
    parameters: Vec<Parameter<'a>>,
}

type Parameter<'a> = Box<dyn ToSql + Sync + Send + 'a>;

impl<'a> Text<'a> {
    fn of(writer: Writer, rows: &'a Rows, puts: Puts) -> (String, Vec<Parameter<'a>>) {
        let mut text = Self {
            parts: "WITH w AS (UPDATE sidereal_writer SET seq = $2::bigint, used = now() \
                    WHERE id = $1::bigint AND open RETURNING 1)"
                .into(),
            // Another error than that of a check.
            last: "SELECT ln((SELECT count(*) FROM w)::float8)".into(),
            parameters: vec![Box::new(writer.id), Box::new(writer.seq)],
        };
        for (number, (spot, kept)) in rows.checks.iter().enumerate() {
            text.check(number, spot, kept);
        }
        if !rows.deletes.is_empty() {
            let (buckets, keys): (Vec<i64>, Vec<&[u8]>) =
                rows.deletes.iter().map(|spot| (spot.bucket, &spot.key[..])).unzip();
            let (buckets, keys) = (text.value("bigint[]", buckets), text.value("bytea[]", keys));
            text.part(
                "d",
                &format!(
                    "DELETE FROM sidereal_kv t USING unnest({buckets}, {keys}) AS d (b, k) \
                     WHERE t.b = d.b AND t.k = d.k"
                ),
            );
        }
        if !rows.puts.values.is_empty() {
            let values: Vec<&[u8]> = rows.puts.values.iter().map(Bytes::as_ref).collect();
            let buckets = text.value("bigint[]", &rows.puts.buckets);
            let keys = text.value("bytea[]", &rows.puts.keys);
            let values = text.value("bytea[]", values);
            let looking = match puts {
                Puts::Add => "",
                Puts::Set => " ON CONFLICT (b, k) DO UPDATE SET v = excluded.v",
            };
            text.part(
                "p",
                &format!(
                    "INSERT INTO sidereal_kv (b, k, v) \
                     SELECT * FROM unnest({buckets}, {keys}, {values}){looking}"
                ),
            );
        }
        (text.parts + " " + &text.last, text.parameters)
    }

    fn check(&mut self, number: usize, spot: &'a Spot, kept: &'a Kept) {
        if *kept == Kept::Absent {
            return;
        }
        let name = format!("c{number}");
        let (bucket, key) = (self.value("bigint", spot.bucket), self.value("bytea", &spot.key));
        let row = format!("b = {bucket} AND k = {key} AND v");
        let sql = match kept {
            Kept::Absent => return,
            Kept::Same(old) => {
                let old = self.value("bytea", &old[..]);
                format!("SELECT 1 FROM sidereal_kv WHERE {row} = {old} FOR SHARE")
            }
            Kept::Replaced(old, new) => {
                let (old, new) = (self.value("bytea", &old[..]), self.value("bytea", &new[..]));
                format!("UPDATE sidereal_kv SET v = {new} WHERE {row} = {old} RETURNING 1")
            }
            // If it is there, that is an error by itself.
            Kept::Made(new) => {
                let new = self.value("bytea", &new[..]);
                format!(
                    "INSERT INTO sidereal_kv (b, k, v) VALUES ({bucket}, {key}, {new}) RETURNING 1"
                )
            }
        };
        self.part(&name, &sql);
        self.last.push_str(&format!(", 1 / (SELECT count(*) FROM {name})"));
    }

    fn part(&mut self, name: &str, sql: &str) {
        self.parts.push_str(&format!(", {name} AS ({sql})"));
    }

    /// A placeholder for a value.
    fn value(&mut self, kind: &str, value: impl ToSql + Sync + Send + 'a) -> String {
        self.parameters.push(Box::new(value));
        format!("${}::{kind}", self.parameters.len())
    }
}

/// What the first error of a transaction means.
fn fault(error: &tokio_postgres::Error, puts: Puts) -> Fault {
    let text = reason(error);
    let Some(state) = error.code() else { return Fault::Lost(text) };
    let is = |states: &[&SqlState]| states.contains(&state);
    if is(&[&SqlState::INVALID_ARGUMENT_FOR_LOG]) {
        return Fault::Useless("its lane was closed".into());
    }
    if is(&[&SqlState::UNIQUE_VIOLATION]) && puts == Puts::Add {
        return Fault::There;
    }
    if is(&[&SqlState::DIVISION_BY_ZERO, &SqlState::UNIQUE_VIOLATION]) {
        return Fault::Conflict;
    }
    if is(&[&SqlState::T_R_SERIALIZATION_FAILURE, &SqlState::T_R_DEADLOCK_DETECTED]) {
        return Fault::Again;
    }
    if is(&[&SqlState::DISK_FULL]) {
        return Fault::Refused(Error::Full(text));
    }
    if is(&[&SqlState::READ_ONLY_SQL_TRANSACTION]) {
        return Fault::Useless("it has become read-only".into());
    }
    // A node that stops, connections that break: whether it got as far as COMMIT is not said.
    if ["57P", "08", "25P"].iter().any(|class| state.code().starts_with(class)) {
        return Fault::Lost(text);
    }
    Fault::Refused(Error::Unavailable(text))
}

/// A number that no other session has.
pub(super) fn random_u64() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
