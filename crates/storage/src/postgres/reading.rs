//! Reads: gets that come at the same time share a statement, as commits share a sync; scans and snapshots have a session of the pool.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::Instant;
use tokio_postgres::Row;

use super::Inner;
use super::address::reason;
use super::rows::{Spot, alike, is_cut, pair_of, put_in_order, stored_range, value_of};
use super::shard::{Borrowed, OFFICE, PATIENCE, READ_LIMIT, Session, Shard};
use crate::{Answer, Direction, Error, Family, Pair, Pulse, Result, Snapshot};

/// The most keys of a statement.
const KEYS_MAX: usize = 512;

const GET: &str = "SELECT 1::bigint, v FROM sidereal_kv WHERE b = $1::bigint AND k = $2::bytea";
const GET_MANY: &str = "SELECT o.i, t.v FROM unnest($1::bigint[], $2::bytea[]) WITH ORDINALITY AS o (b, k, i) \
                        JOIN sidereal_kv t ON t.b = o.b AND t.k = o.k";
const PULSE: &str = "SELECT floor(extract(epoch FROM clock_timestamp()))::bigint, \
                     (SELECT v FROM sidereal_kv WHERE b = $1::bigint AND k = $2::bytea)";

/// Values, in the order of the keys asked for.
type Values = Vec<Option<Bytes>>;

/// Something to read.
pub(super) enum Ask {
    Get(Vec<Spot>, oneshot::Sender<Result<Values>>),
    Pulse(Spot, oneshot::Sender<Result<Pulse>>),
    /// A pulse at the first, and then the value at the second.
    Both(Spot, Spot, oneshot::Sender<Result<(Pulse, Option<Bytes>)>>),
}

/// A session that reads single keys for everybody.
pub(super) struct ReadLane {
    shard: Arc<Shard>,
    session: Option<Session>,
    reached: bool,
}

impl ReadLane {
    /// Starts a lane; it ends with its queue.
    pub fn start(shard: Arc<Shard>, tasks: &tokio::runtime::Handle) -> mpsc::UnboundedSender<Ask> {
        let (asks, mut queue) = mpsc::unbounded_channel::<Ask>();
        let mut lane = Self { shard, session: None, reached: true };
        tasks.spawn(async move {
            while let Some(first) = queue.recv().await {
                let mut group = vec![first];
                let mut keys = group[0].spots().len();
                while keys < KEYS_MAX
                    && let Ok(next) = queue.try_recv()
                {
                    keys += next.spots().len();
                    group.push(next);
                }
                lane.answer(group).await;
            }
        });
        asks
    }

    async fn answer(&mut self, mut group: Vec<Ask>) {
        while !group.is_empty() {
            // All want the pulse of the same key, as a rule.
            let beat = group.iter().find_map(Ask::beat).cloned();
            let (now, later) = group
                .into_iter()
                .partition(|ask| ask.beat().is_none_or(|other| Some(other) == beat.as_ref()));
            group = later;
            self.answer_alike(now, beat).await;
        }
    }

    /// Answers all with one look.
    async fn answer_alike(&mut self, group: Vec<Ask>, beat: Option<Spot>) {
        let spots: Vec<Spot> = group.iter().flat_map(Ask::spots).cloned().collect();
        let asked = Arc::new((beat, spots));
        let mut found = self
            .retried(move |session| {
                let asked = asked.clone();
                Box::pin(async move { look(session, asked.0.as_ref(), &asked.1).await })
            })
            .await;
        for ask in group {
            let count = ask.spots().len();
            let part = match &mut found {
                Ok((pulse, values)) => Ok((pulse.clone(), values.drain(..count).collect())),
                Err(error) => Err(error.clone()),
            };
            ask.reply(part);
        }
    }

    /// Reads with a session that works. A read that was lost is made again, and so is one whose answer may be old.
    async fn retried<T>(
        &mut self,
        read: impl for<'s> Fn(&'s mut Session) -> Reading<'s, T> + Send + Sync,
    ) -> Result<T> {
        let mut attempts = 0;
        loop {
            self.shard.check_open()?;
            attempts += 1;
            if !self.session.as_ref().is_some_and(|session| self.shard.is_current(session)) {
                // Once it was not there, nobody waits for it in turn.
                let patience = if self.reached { PATIENCE } else { Duration::from_millis(500) };
                let connected = self.shard.connect_within(patience).await;
                self.reached = connected.is_ok();
                self.session = Some(connected?);
            }
            let Some(session) = &mut self.session else { continue };
            let asked = Instant::now();
            let result = match tokio::time::timeout(PATIENCE, read(session)).await {
                Ok(Ok(read)) => {
                    self.shard.hear(asked);
                    current(&self.shard, session).map(|()| read)
                }
                Ok(Err(error)) => Err(error),
                Err(_) => Err(Error::Unavailable("it does not answer".into())),
            };
            match result {
                Err(Error::Unavailable(text)) => {
                    self.session = None;
                    if attempts == 3 {
                        return Err(Error::Unavailable(text));
                    }
                }
                result => return result,
            }
        }
    }
}

impl Ask {
    /// The keys to get.
    fn spots(&self) -> &[Spot] {
        match self {
            Self::Get(spots, _) => spots,
            Self::Pulse(..) => &[],
            Self::Both(_, spot, _) => std::slice::from_ref(spot),
        }
    }

    /// The key whose pulse is wanted.
    fn beat(&self) -> Option<&Spot> {
        match self {
            Self::Get(..) => None,
            Self::Pulse(beat, _) | Self::Both(beat, ..) => Some(beat),
        }
    }

    /// Tells what was found. Who has gone away has no use for it.
    fn reply(self, found: Result<(Option<Pulse>, Values)>) {
        let no_time = || Error::Unavailable("it has no time".into());
        match self {
            Self::Get(_, reply) => drop(reply.send(found.map(|(_, values)| values))),
            Self::Pulse(_, reply) => {
                drop(reply.send(found.and_then(|(pulse, _)| pulse.ok_or_else(no_time))));
            }
            Self::Both(_, _, reply) => drop(reply.send(found.and_then(|(pulse, mut values)| {
                Ok((pulse.ok_or_else(no_time)?, values.pop().flatten()))
            }))),
        }
    }
}

/// Asks something of the leader whenever nobody else does, so that it is always known whether it is one.
pub(super) fn listen(
    shard: &Arc<Shard>,
    lane: &mpsc::UnboundedSender<Ask>,
    tasks: &tokio::runtime::Handle,
) {
    let (shard, lane) = (Arc::downgrade(shard), lane.downgrade());
    tasks.spawn(async move {
        loop {
            tokio::time::sleep(OFFICE / 3).await;
            let (Some(shard), Some(lane)) = (shard.upgrade(), lane.upgrade()) else { return };
            if shard.silence() >= OFFICE / 3 {
                let (reply, answered) = oneshot::channel();
                // A store that is not there is asked again, whatever became of this.
                drop(lane.send(Ask::Pulse(Spot { bucket: 0, key: Vec::new() }, reply)));
                drop(answered.await);
            }
        }
    });
}

/// Refuses what was read with a session that is no longer the leader's, or may not be.
fn current(shard: &Shard, session: &Session) -> Result<()> {
    let replaced = || Error::Unavailable("another node may have replaced it meanwhile".into());
    shard.is_current(session).then_some(()).ok_or_else(replaced)
}

/// A pulse, and then values, in one round trip: the store answers in the order in which it is asked.
async fn look(
    session: &mut Session,
    beat: Option<&Spot>,
    spots: &[Spot],
) -> Result<(Option<Pulse>, Values)> {
    let unavailable = |error: tokio_postgres::Error| Error::Unavailable(reason(&error));
    let looked = async {
        let pulse = session.prepare(PULSE).await.map_err(unavailable)?;
        let get = if spots.len() == 1 { GET } else { GET_MANY };
        let get = session.prepare(get).await.map_err(unavailable)?;
        let client = &session.client;
        let pulse = async {
            let Some(Spot { bucket, key }) = beat else { return Ok(None) };
            client.query_opt(&pulse, &[bucket, key]).await
        };
        let values = async {
            match spots {
                [] => Ok(Vec::new()),
                [Spot { bucket, key }] => client.query(&get, &[bucket, key]).await,
                _ => {
                    let buckets: Vec<i64> = spots.iter().map(|spot| spot.bucket).collect();
                    let keys: Vec<&[u8]> = spots.iter().map(|spot| &spot.key[..]).collect();
                    client.query(&get, &[&buckets, &keys]).await
                }
            }
        };
        // The first is sent first.
        tokio::try_join!(biased; pulse, values).map_err(unavailable)
    };
    let looked = tokio::time::timeout(READ_LIMIT, looked).await;
    let (pulse, rows) =
        looked.map_err(|_| Error::Unavailable("it does not answer".into())).flatten()?;
    let mut values = vec![None; spots.len()];
    for row in rows {
        let at = row.get::<_, i64>(0) as usize - 1;
        values[at] = Some(value_of(&spots[at].key, row.get(1))?);
    }
    let pulse = match (pulse, beat) {
        (Some(row), Some(beat)) => {
            let value: Option<&[u8]> = row.get(1);
            let value = value.map(|value| value_of(&beat.key, value)).transpose()?;
            Some(Pulse { value, now_secs: row.get::<_, i64>(0) as u64 })
        }
        _ => None,
    };
    Ok((pulse, values))
}

async fn get(session: &mut Session, spots: &[Spot]) -> Result<Values> {
    look(session, None, spots).await.map(|(_, values)| values)
}

/// A range of a family in one store.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    pub family: Family,
    pub range: Range<Bytes>,
    /// The first and last bucket; `None` for all, in the catalog.
    pub buckets: Option<(i64, i64)>,
    pub direction: Direction,
    pub limit: usize,
}

impl Reach {
    /// Reads up to `limit` pairs.
    async fn read(&self, session: &mut Session) -> Result<Vec<Pair>> {
        let mut stored = stored_range(self.family, &self.range);
        let mut pairs: Vec<Pair> = Vec::new();
        while pairs.len() < self.limit && stored.start < stored.end {
            // No more than a page at a time, however many are wanted.
            let page = (self.limit - pairs.len()).min(PAGE_ROWS);
            let rows = self.rows(session, &stored, page).await?;
            let count = rows.len();
            let mut found = rows.iter().map(pair_of_row).collect::<Result<Vec<_>>>()?;
            let last: Option<Vec<u8>> = rows.last().map(|row| row.get::<_, &[u8]>(0).to_vec());
            if let Some(last) = last {
                // Those that begin like the last one, and come before it by their whole keys, may not have been on the page.
                let beyond = match (is_cut(&last), self.direction) {
                    (false, Direction::Forward) => [&last[..], &[0]].concat(),
                    (false, Direction::Backward) => last,
                    (true, direction) => {
                        let alike = alike(&last);
                        let rest = match direction {
                            Direction::Forward => [&last[..], &[0]].concat()..alike.end.clone(),
                            Direction::Backward => [&alike.start[..], &[0]].concat()..last,
                        };
                        let rows = self.rows(session, &rest, usize::MAX).await?;
                        for row in &rows {
                            found.push(pair_of_row(row)?);
                        }
                        match direction {
                            Direction::Forward => alike.end,
                            Direction::Backward => [&alike.start[..], &[0]].concat(),
                        }
                    }
                };
                match self.direction {
                    Direction::Forward => stored.start = beyond,
                    Direction::Backward => stored.end = beyond,
                }
            }
            put_in_order(&mut found);
            if self.direction == Direction::Backward {
                found.reverse();
            }
            found.retain(|(key, _)| self.range.contains(key));
            pairs.extend(found);
            if count < page {
                break;
            }
        }
        pairs.truncate(self.limit);
        Ok(pairs)
    }

    async fn rows(
        &self,
        session: &mut Session,
        stored: &Range<Vec<u8>>,
        limit: usize,
    ) -> Result<Vec<Row>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let (start, end) = (&stored.start, &stored.end);
        let forward = self.direction == Direction::Forward;
        match self.buckets {
            None => {
                let sql = match forward {
                    true => {
                        "SELECT k, v FROM sidereal_kv WHERE k >= $1::bytea AND k < $2::bytea AND k < '\\x01'::bytea \
                         ORDER BY k LIMIT $3::bigint"
                    }
                    false => {
                        "SELECT k, v FROM sidereal_kv WHERE k >= $1::bytea AND k < $2::bytea AND k < '\\x01'::bytea \
                         ORDER BY k DESC LIMIT $3::bigint"
                    }
                };
                session.rows(sql, &[start, end, &limit]).await
            }
            Some((first, last)) if first == last => {
                let sql = match forward {
                    true => {
                        "SELECT k, v FROM sidereal_kv WHERE b = $1::bigint AND k >= $2::bytea AND k < $3::bytea \
                         ORDER BY k LIMIT $4::bigint"
                    }
                    false => {
                        "SELECT k, v FROM sidereal_kv WHERE b = $1::bigint AND k >= $2::bytea AND k < $3::bytea \
                         ORDER BY k DESC LIMIT $4::bigint"
                    }
                };
                session.rows(sql, &[&first, start, end, &limit]).await
            }
            Some((first, last)) => {
                let sql = match forward {
                    true => {
                        "SELECT k, v FROM sidereal_kv WHERE b >= $1::bigint AND b <= $2::bigint AND k >= $3::bytea \
                         AND k < $4::bytea ORDER BY b, k LIMIT $5::bigint"
                    }
                    false => {
                        "SELECT k, v FROM sidereal_kv WHERE b >= $1::bigint AND b <= $2::bigint AND k >= $3::bytea \
                         AND k < $4::bytea ORDER BY b DESC, k DESC LIMIT $5::bigint"
                    }
                };
                session.rows(sql, &[&first, &last, start, end, &limit]).await
            }
        }
    }
}

/// The most rows of one answer.
const PAGE_ROWS: usize = 10_000;

fn pair_of_row(row: &Row) -> Result<Pair> {
    pair_of(row.get(0), row.get(1))
}

/// A snapshot: a transaction on each store that it has read, begun at the first read.
pub(super) struct PostgresSnapshot {
    inner: Arc<Inner>,
    pins: Arc<Vec<Mutex<Pin>>>,
}

/// A store's part of a snapshot.
#[derive(Default)]
enum Pin {
    #[default]
    Unread,
    Open(Box<Borrowed>),
    Broken,
}

impl PostgresSnapshot {
    pub fn new(inner: Arc<Inner>) -> Self {
        let pins = inner.shards.iter().map(|_| Mutex::default()).collect();
        Self { inner, pins: Arc::new(pins) }
    }

    /// Reads one store's part.
    fn read<T: Send + 'static>(
        &self,
        shard: usize,
        read: impl for<'s> FnOnce(&'s mut Session) -> Reading<'s, T> + Send + 'static,
    ) -> Answer<'static, T> {
        let (inner, pins) = (self.inner.clone(), self.pins.clone());
        on(&self.inner.clone().tasks, async move {
            let store = &inner.shards[shard].store;
            store.check_open()?;
            let mut pin = pins[shard].lock().await;
            // What it sees is of the first read.
            let first = matches!(*pin, Pin::Unread);
            if first {
                let borrowed = store.borrow().await?;
                let begun = borrowed.session.client.batch_execute(BEGIN).await;
                begun.map_err(|error| Error::Unavailable(reason(&error)))?;
                *pin = Pin::Open(Box::new(borrowed));
            }
            let Pin::Open(borrowed) = &mut *pin else {
                return Err(Error::Unavailable("the connection of this snapshot was lost".into()));
            };
            let mut result = read(&mut borrowed.session).await;
            if first && result.is_ok() {
                result = current(store, &borrowed.session).and(result);
            }
            if result.is_err() {
                *pin = Pin::Broken;
            }
            result
        })
    }
}

/// What a reader of a session gives back.
type Reading<'s, T> = std::pin::Pin<Box<dyn Future<Output = Result<T>> + Send + 's>>;

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

impl Snapshot for PostgresSnapshot {
    fn get(&self, family: Family, key: &[u8]) -> Answer<'_, Option<Bytes>> {
        let spot = self.inner.buckets.spot(family, key);
        let shard = self.inner.shard_of(spot.bucket);
        let values = self.read(shard, move |session| {
            Box::pin(async move { get(session, std::slice::from_ref(&spot)).await })
        });
        Box::pin(async move { Ok(values.await?.pop().flatten()) })
    }

    fn get_many(&self, family: Family, keys: Vec<Bytes>) -> Answer<'_, Vec<Option<Bytes>>> {
        Box::pin(async move {
            let (parts, places) = self.inner.parted(family, &keys);
            let mut all = Vec::with_capacity(parts.len());
            for (shard, spots) in parts.into_iter().enumerate() {
                all.push(match spots.is_empty() {
                    true => Vec::new(),
                    false => {
                        let read = self.read(shard, move |session| {
                            Box::pin(async move { get(session, &spots).await })
                        });
                        read.await?
                    }
                });
            }
            Ok(places.into_iter().map(|(shard, at)| all[shard][at].take()).collect())
        })
    }

    fn scan(
        &self,
        family: Family,
        range: Range<Bytes>,
        direction: Direction,
        limit: usize,
    ) -> Answer<'_, Vec<Pair>> {
        let Some((reach, shards)) = self.inner.reach(family, range, direction, limit) else {
            return Box::pin(async {
                self.inner.shards[0].store.check_open().map(|()| Vec::new())
            });
        };
        Box::pin(async move {
            let mut found = Vec::new();
            for shard in shards {
                let reach = reach.clone();
                let read = self
                    .read(shard, move |session| Box::pin(async move { reach.read(session).await }));
                found.push(read.await?);
            }
            Ok(merged(found, direction, limit))
        })
    }
}

impl Drop for PostgresSnapshot {
    fn drop(&mut self) {
        let (inner, pins) = (self.inner.clone(), self.pins.clone());
        // One that is locked is being read by a call that was given up.
        let is_unread = |pin: &Mutex<Pin>| matches!(pin.try_lock().as_deref(), Ok(Pin::Unread));
        if !pins.iter().all(is_unread) {
            end(inner, pins);
        }
    }
}

/// Ends the transactions of a snapshot that nobody reads any more.
fn end(inner: Arc<Inner>, pins: Arc<Vec<Mutex<Pin>>>) {
    inner.tasks.clone().spawn(async move {
        for (shard, pin) in inner.shards.iter().zip(&*pins) {
            let pin = std::mem::replace(&mut *pin.lock().await, Pin::Broken);
            let Pin::Open(borrowed) = pin else { continue };
            let ended = borrowed.session.client.batch_execute("COMMIT");
            if let Ok(Ok(())) = tokio::time::timeout(PATIENCE, ended).await {
                shard.store.give_back(*borrowed);
            }
        }
    });
}

/// Reads of which each sees the latest state.
pub(super) struct Latest(pub Arc<Inner>);

impl Snapshot for Latest {
    fn get(&self, family: Family, key: &[u8]) -> Answer<'_, Option<Bytes>> {
        self.0.get(family, key)
    }

    fn get_many(&self, family: Family, keys: Vec<Bytes>) -> Answer<'_, Vec<Option<Bytes>>> {
        let (parts, places) = self.0.parted(family, &keys);
        let asked: Vec<_> = parts
            .into_iter()
            .enumerate()
            .map(|(shard, spots)| (!spots.is_empty()).then(|| self.0.ask(shard, spots)))
            .collect();
        Box::pin(async move {
            let mut all = Vec::with_capacity(asked.len());
            for asked in asked {
                all.push(match asked {
                    Some(asked) => asked.await?,
                    None => Vec::new(),
                });
            }
            Ok(places.into_iter().map(|(shard, at)| all[shard][at].take()).collect())
        })
    }

    fn scan(
        &self,
        family: Family,
        range: Range<Bytes>,
        direction: Direction,
        limit: usize,
    ) -> Answer<'_, Vec<Pair>> {
        let Some((reach, shards)) = self.0.reach(family, range, direction, limit) else {
            return Box::pin(async { self.0.shards[0].store.check_open().map(|()| Vec::new()) });
        };
        let inner = self.0.clone();
        on(&self.0.tasks, async move {
            let mut found = Vec::new();
            for shard in shards {
                let store = &inner.shards[shard].store;
                let mut borrowed = store.borrow().await?;
                let pairs = reach.read(&mut borrowed.session).await?;
                current(store, &borrowed.session)?;
                store.give_back(borrowed);
                found.push(pairs);
            }
            Ok(merged(found, direction, limit))
        })
    }
}

/// Runs on the engine's own runtime: the caller may have none.
pub(super) fn on<T: Send + 'static>(
    tasks: &tokio::runtime::Handle,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Answer<'static, T> {
    let running = tasks.spawn(work);
    Box::pin(async move { running.await.unwrap_or(Err(Error::Closed)) })
}

/// The pairs of several stores as one.
fn merged(mut found: Vec<Vec<Pair>>, direction: Direction, limit: usize) -> Vec<Pair> {
    if found.len() == 1 {
        return found.pop().unwrap_or_default();
    }
    let mut pairs: Vec<Pair> = found.into_iter().flatten().collect();
    put_in_order(&mut pairs);
    if direction == Direction::Backward {
        pairs.reverse();
    }
    pairs.truncate(limit);
    pairs
}
