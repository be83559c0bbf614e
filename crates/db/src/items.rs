//! Items: create, read, replace, upsert, delete, list.
//!
//! A write is prepared here, in the request's own task: parsed, validated, its index terms computed. Only then does it queue for
//! the partition's writer ([`crate::writer`]), which decides.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use model::partition_key::{Component, PartitionKey};
use model::resource::{ChildRid, Etag, SessionToken};
use model::ttl::{Horizon, TTL_SECS_MAX, Ttl, TtlState};
use serde_json::{Map, Value};
use storage::{Family, Snapshot};
use tokio::sync::oneshot;

use crate::account::Account;
use crate::charge::{self, RequestCharge};
use crate::documents::{Edit, Layout, not_json};
use crate::fan::{self, Fan};
use crate::index::is_system_property;
use crate::keys::{Key, decode_partition_key, encode_name, encode_partition_key};
use crate::partition::Partition;
use crate::patch::Patch;
use crate::ranges::{Place, Places, Target};
use crate::record::Record;
use crate::servers::Seen;
use crate::writer::{Mode, Op, Outcome, Transaction, ordinal_of_value};
use crate::{Container, Db, Error, Reply, Result, Settings};

/// The most bytes of an item's JSON.
pub const ITEM_BYTES_MAX: usize = 2 << 20;

/// The most bytes of an item's id.
pub const ID_BYTES_MAX: usize = 1_023;

/// The most bytes of a partition key's component.
pub const KEY_BYTES_MAX: usize = 2_048;

/// How often an item is looked for whose number others keep changing.
const LOOKS_MAX: usize = 10;

/// The most bytes of rows in a page.
pub const PAGE_BYTES_MAX: usize = 4 << 20;

/// An item as it goes to the client.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its JSON, system properties included.
    pub body: Bytes,
    /// Its version.
    pub etag: Etag,
    /// The change that wrote it.
    pub lsn: u64,
}

/// What a read may ask for beyond the item.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOptions<'a> {
    /// What the client has already seen: [`Error::SessionNotAvailable`] if this server has not.
    pub session: &'a [SessionToken],
}

/// What a write does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// The id must be free.
    Create,
    /// Creates or replaces.
    Upsert,
    /// The item with this id must exist (addressed by id or rid).
    Replace(String),
    /// The item with this id must exist (addressed by id or rid).
    Delete(String),
    /// The item with this id must exist; the body is a patch.
    Patch(String),
    /// Reads, within a transaction.
    Read(String),
}

/// A write of one item.
#[derive(Clone, Debug)]
pub struct Write {
    /// What to do.
    pub verb: Verb,
    /// The partition key the client gave; read from the body where it gave none (needed for delete).
    pub partition_key: Option<PartitionKey>,
    /// The item's or patch's JSON text; empty for delete and read.
    pub body: Bytes,
    /// The version that must be there, quotes included, or `*`. An upsert checks it only where the item exists.
    pub if_match: Option<String>,
    /// `*`: the item must not be there.
    pub if_none_match: Option<String>,
}

/// A write that happened.
#[derive(Clone, Debug)]
pub struct Written {
    /// Whether a new item was made (201) or an old one replaced (200) or removed (204).
    pub created: bool,
    /// The item as it now is; `None` after a delete.
    pub item: Option<Item>,
}

/// Which items of a container.
#[derive(Clone, Debug)]
pub enum Scope {
    /// All.
    Container,
    /// Those of one partition key, or of a prefix of a hierarchical one.
    Key(PartitionKey),
    /// Those of one partition key range, by its id.
    Partition(u32),
    /// Those whose hash is at least `min` and below `max` (upper-case hex).
    Hashes {
        /// The first hash.
        min: String,
        /// The first hash beyond.
        max: String,
    },
}

/// How much to answer, and where to go on.
#[derive(Clone, Debug)]
pub struct PageRequest {
    /// The most items in a page.
    pub items_max: usize,
    /// The token of the page before.
    pub continuation: Option<String>,
}

/// A page of rows.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Each row's JSON.
    pub rows: Vec<Bytes>,
    /// Where to go on, if there may be more.
    pub continuation: Option<String>,
    /// What it took, if it is of a query.
    pub account: Account,
}

/// A write, ready for the writer.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub verb: Verb,
    /// The stored form of the partition key.
    pub key: Vec<u8>,
    /// The stored form of partition key and id.
    pub name: Bytes,
    /// The name that a replace gives the item, where that is another.
    pub renamed: Option<Bytes>,
    pub content: Content,
    pub if_match: Option<String>,
    pub if_none_match: Option<String>,
    /// The layout that a document's body was read by.
    pub layout: Option<Arc<dyn Layout>>,
}

/// What a write brings.
#[derive(Debug)]
pub(crate) enum Content {
    /// A whole item.
    Body(PreparedBody),
    /// Changes to the item that is there.
    Patch(Box<PreparedPatch>),
    /// A change of a document, or none.
    Edit(Arc<dyn Edit>),
    /// A document that cannot be stored.
    Refused(Error),
    /// Nothing: a delete or a read.
    Nothing,
}

/// A patch that can be applied.
#[derive(Debug)]
pub(crate) struct PreparedPatch {
    pub patch: Patch,
    pub condition: Option<query::Compiled>,
}

/// What will be stored of an item.
#[derive(Debug)]
pub(crate) struct PreparedBody {
    /// The JSON text without system properties and without its last brace; or the whole document.
    pub text: Bytes,
    pub own_ttl: Ttl,
    pub terms: Vec<Vec<u8>>,
    /// The policy that the terms are of.
    pub indexing_epoch: u64,
    pub unique: Vec<Vec<u8>>,
}

impl Prepared {
    pub fn body_bytes(&self) -> usize {
        match &self.content {
            Content::Body(body) => body.text.len(),
            Content::Patch(_) | Content::Edit(_) | Content::Refused(_) | Content::Nothing => 0,
        }
    }
}

impl PreparedBody {
    /// Validates an item and computes what is stored beside it.
    pub fn new(settings: &Settings, ttl: TtlState, value: &Value) -> Result<Self> {
        let members = value.as_object().ok_or_else(not_an_object)?;
        let mut own_ttl = own_ttl(members.get("ttl"), ttl.default.is_on())?;
        if let Some(path) = &settings.ttl_path {
            own_ttl = Ttl::from_base(path.find(value), own_ttl).map_err(|_| {
                Error::Invalid(
                    "The input ttl is invalid: in a container with a 'ttlPropertyPath' an item's own ttl can only be '-1', \
                     which means never expire."
                        .into(),
                )
            })?;
        }
        let unique = settings.unique_entries(value)?;
        let terms = settings.indexing.terms(value);
        let text = text_of(members);
        if text.len() > ITEM_BYTES_MAX {
            return Err(too_large());
        }
        Ok(Self { text, own_ttl, terms, indexing_epoch: settings.indexing_epoch, unique })
    }
}

impl Item {
    pub(crate) fn of(record: &Record) -> Self {
        Self { body: record.body.clone(), etag: record.etag(), lsn: record.lsn }
    }
}

impl Db {
    /// Reads one item by id (or rid).
    pub async fn read(
        &self,
        container: &Container,
        key: &PartitionKey,
        id: &str,
        options: ReadOptions<'_>,
    ) -> Reply<Item> {
        let partition = container.partition_of(key);
        let session = partition.session();
        let found = async {
            self.check_read(container, partition, key, options)?;
            // Before the item is looked for: it may be given longer to live meanwhile.
            let horizon = container.runtime.ttl.horizon(self.now());
            Ok((horizon, self.find_item(container, partition, key, id).await?))
        };
        self.answer_read(partition, session, found.await)
    }

    /// Reads one item by id for a request that has not asked the store first ([`Db::refresh`]), both in one question. `None` if that cannot
    /// be, or if the container was found in a catalog that is not the store's: the request has to be made the long way.
    pub async fn read_at_once(
        &self,
        (seen, container): (Seen, &Container),
        key: &PartitionKey,
        id: &str,
        options: ReadOptions<'_>,
    ) -> Option<Reply<Item>> {
        let partition = container.partition_of(key);
        let session = partition.session();
        self.check_read(container, partition, key, options).ok()?;
        if item_number(container, partition, id).is_some() {
            return None;
        }
        let name = encode_name(&encode_partition_key(key), id);
        let ordinal = self.names.guess(self.names.place(partition.id, &name))?;
        let item = Key::Item { partition: partition.id, ordinal }.encode();
        let found = async {
            let Some((now, bytes)) = self.get_if_current(seen, Family::Item, &item).await? else {
                return Ok(None);
            };
            let horizon = container.runtime.ttl.horizon(now);
            let record = bytes.map(|bytes| Record::decode(&item, bytes)).transpose()?;
            Ok(Some(match record.filter(|record| record.name == name) {
                Some(record) => (horizon, Some(record)),
                None => (horizon, self.find(partition, &name).await?),
            }))
        };
        let found = found.await.transpose()?;
        Some(self.answer_read(partition, session, found))
    }

    fn check_read(
        &self,
        container: &Container,
        partition: &Partition,
        key: &PartitionKey,
        options: ReadOptions<'_>,
    ) -> Result<()> {
        check_key(container, key)?;
        self.check_session(partition, options)?;
        self.admit(partition)
    }

    /// The answer to a read that has found a record, dead or alive, or none.
    fn answer_read(
        &self,
        partition: &Partition,
        session: SessionToken,
        found: Result<(Horizon, Option<Record>)>,
    ) -> Reply<Item> {
        let record = found.and_then(|(horizon, record)| {
            let record = record.filter(|record| horizon.is_live(record.ts, record.own_ttl));
            record.ok_or(Error::NotFound)
        });
        let charge = match &record {
            Ok(record) => charge::read(record.body.len()),
            // Who is sent away pays nothing: asking again and again must not make the wait longer.
            Err(Error::Throttled { .. }) => RequestCharge::default(),
            Err(_) => charge::MISS,
        };
        self.settle(partition, charge);
        let result = record.map(|record| Item::of(&record));
        Reply { result, charge, session: Some(session), other_sessions: Vec::new() }
    }

    /// Creates, upserts, replaces, patches or deletes one item. Durable when it returns.
    pub async fn write(&self, container: &Container, write: Write) -> Reply<Written> {
        let reply = self.transact(container, vec![write]).await;
        let result = reply.result.and_then(|mut outcomes| {
            outcomes.pop().map_or(Err(Error::Stopping), |outcome| outcome.result)
        });
        let Reply { charge, session, other_sessions, .. } = reply;
        Reply { result, charge, session, other_sessions }
    }

    /// Makes several writes, all or none. Durable when it returns; if one is refused, the others fail with
    /// [`Error::FailedDependency`].
    pub async fn transact(&self, container: &Container, writes: Vec<Write>) -> Reply<Vec<Outcome>> {
        let given = writes.first().and_then(|write| write.partition_key.as_ref());
        let mut partition = match given {
            Some(key) => container.partition_of(key),
            None => &container.partitions.all[0],
        };
        let result = async {
            let count = writes.len();
            let mut ops: Vec<Prepared> = Vec::with_capacity(count);
            for (number, write) in writes.into_iter().enumerate() {
                let prepared = self.prepare(container, write).await;
                match prepared.and_then(|prepared| same_key(&ops, prepared)) {
                    Ok((place, prepared)) => {
                        partition = place;
                        ops.push(prepared);
                    }
                    Err(error) => {
                        return Ok(Outcome::all_refused(count, number, error, charge::MISS));
                    }
                }
            }
            let transaction = Transaction { ops, mode: Mode::Atomic };
            let outcomes = self.submit(container, partition, transaction).await?;
            // The writer drops what it has not answered only when the container goes.
            outcomes.await.map_err(|_| Error::OwnerNotFound)
        }
        .await;
        let charge = result.iter().flatten().map(|outcome: &Outcome| outcome.charge.0).sum();
        let charge = RequestCharge(charge);
        self.settle(partition, charge);
        // A partition that was split meanwhile has nothing to say of what its successor has done.
        let session = (!partition.is_closed()).then(|| partition.session());
        Reply { result, charge, session, other_sessions: Vec::new() }
    }

    /// Makes several writes, each by itself, in one go: some may be made and others refused.
    pub async fn bulk(&self, container: &Container, writes: Vec<Write>) -> Reply<Vec<Outcome>> {
        let mut pending = Vec::with_capacity(writes.len());
        for write in writes {
            let prepared = self.prepare(container, write).await;
            pending.push(match prepared {
                Err(error) => Err(error),
                Ok((partition, prepared)) => {
                    let transaction = Transaction { ops: vec![prepared], mode: Mode::Atomic };
                    let submitted = self.submit(container, partition, transaction).await;
                    submitted.map(|answer| (partition, answer))
                }
            });
        }
        let mut outcomes = Vec::with_capacity(pending.len());
        let (mut sum, mut sessions) = (RequestCharge::default(), Vec::new());
        for pending in pending {
            let mut place = None;
            let outcome = match pending {
                Ok((partition, answer)) => {
                    place = Some(partition);
                    answer.await.ok().and_then(|mut outcomes| outcomes.pop())
                }
                Err(error) => Some(Outcome::refused(error)),
            };
            let outcome = outcome.unwrap_or_else(|| Outcome::refused(Error::OwnerNotFound));
            sum += outcome.charge;
            if let Some(partition) = place {
                self.settle(partition, outcome.charge);
                sessions.push(partition.session());
            }
            outcomes.push(outcome);
        }
        let (session, other_sessions) = last_words(container, sessions);
        Reply { result: Ok(outcomes), charge: sum, session, other_sessions }
    }

    /// The same one after the other: behind one that is refused, none is tried ([`Error::FailedDependency`]).
    pub async fn bulk_until_refused(
        &self,
        container: &Container,
        writes: Vec<Write>,
    ) -> Reply<Vec<Outcome>> {
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(writes.len());
        let (mut charge, mut sessions) = (RequestCharge::default(), Vec::new());
        for write in writes {
            if outcomes.last().is_some_and(|outcome| outcome.result.is_err()) {
                outcomes.push(Outcome::refused(Error::FailedDependency));
                continue;
            }
            let reply = self.bulk(container, vec![write]).await;
            charge += reply.charge;
            sessions.extend(reply.session);
            outcomes.extend(reply.result.into_iter().flatten());
        }
        let (session, other_sessions) = last_words(container, sessions);
        Reply { result: Ok(outcomes), charge, session, other_sessions }
    }

    /// Queues a transaction for the writer, if there are request units for it.
    async fn submit(
        &self,
        container: &Container,
        partition: &Partition,
        transaction: Transaction,
    ) -> Result<oneshot::Receiver<Vec<Outcome>>> {
        self.admit(partition)?;
        let (reply, outcomes) = oneshot::channel();
        if let Some(op) = partition.submit(Op::Write(transaction, reply))? {
            Box::pin(self.submit_again(container, op)).await?;
        }
        Ok(outcomes)
    }

    /// Queues what found no writer: if that is because of a split, its partition's successor has one as soon as the split is made.
    pub(crate) async fn submit_again(&self, container: &Container, op: Op) -> Result<()> {
        drop(self.catalog_lock.lock().await);
        let Op::Write(transaction, reply) = op else { return Err(Error::OwnerNotFound) };
        let current = self.current(container).ok_or(Error::OwnerNotFound)?;
        let paths = current.settings.partition_key.paths.len();
        let key = transaction.ops.first().map(|op| decode_partition_key(&op.key, paths));
        let key = key.transpose()?.unwrap_or_default();
        match current.partition_of(&key).submit(Op::Write(transaction, reply))? {
            None => Ok(()),
            Some(_) => Err(Error::OwnerNotFound),
        }
    }

    /// The container as it is now.
    pub(crate) fn current(&self, container: &Container) -> Option<Arc<Container>> {
        self.catalog.load().containers().find(|current| current.rid == container.rid).cloned()
    }

    /// The items of a scope, partition by partition, in the order of their creation.
    pub async fn list(
        &self,
        container: &Container,
        scope: &Scope,
        page: &PageRequest,
        options: ReadOptions<'_>,
    ) -> Reply<Page> {
        let listed = self.list_as(container, (scope, page), options, |record| record.body).await;
        let Reply { result, charge, session, other_sessions } = listed;
        let result =
            result.map(|(rows, continuation)| Page { rows, continuation, ..Page::default() });
        Reply { result, charge, session, other_sessions }
    }

    /// The same, with what `take` makes of each item; and where to go on.
    pub(crate) async fn list_as<T>(
        &self,
        container: &Container,
        (scope, page): (&Scope, &PageRequest),
        options: ReadOptions<'_>,
        take: impl Fn(Record) -> T,
    ) -> Reply<(Vec<T>, Option<String>)> {
        let mut charge = charge::MISS;
        let (mut session, mut other_sessions) = (None, Vec::new());
        let result = async {
            let targets = container.targets(scope)?;
            (session, other_sessions) = fan::sessions(&targets);
            self.check_sessions(&targets, options)?;
            self.admit_all(&targets)?;
            let places = page.continuation.as_deref().map(Places::parse).transpose()?;
            let places = places.unwrap_or_default();
            let mut fan = Fan::new(self, container, &targets, scope, &places)?;
            let mut rows = Vec::new();
            let (mut bytes, mut last, mut more) = (0, None, false);
            'page: loop {
                let items = fan.next().await?;
                if items.is_empty() {
                    break;
                }
                for item in items {
                    bytes += item.record.body.len();
                    if rows.len() == page.items_max || (bytes > PAGE_BYTES_MAX && !rows.is_empty())
                    {
                        more = true;
                        break 'page;
                    }
                    last = Some((fan.stop(), Place::behind(item.ordinal)));
                    rows.push(take(item.record));
                }
            }
            charge = self.settle_all(&fan);
            let last = last.filter(|_| more);
            let continuation = last.map(|(stop, place)| fan.places(stop, place).text());
            Ok((rows, continuation))
        }
        .await;
        Reply { result, charge, session, other_sessions }
    }

    /// Lets a client's request begin, or says when to come again.
    pub(crate) fn admit(&self, partition: &Partition) -> Result<()> {
        match self.options.throttle {
            true => partition.admit(self.clock.elapsed()),
            false => Ok(()),
        }
    }

    /// Books a client's charge.
    pub(crate) fn settle(&self, partition: &Partition, charge: RequestCharge) {
        partition.spent_millis.fetch_add((charge.0 * 1e3) as u64, Ordering::Relaxed);
        if self.options.throttle {
            partition.bucket().spend(charge, self.clock.elapsed());
        }
    }

    /// Parses and validates a write. Nothing here looks at what is stored, but for an item that is named by its rid.
    pub(crate) async fn prepare<'c>(
        &self,
        container: &'c Container,
        write: Write,
    ) -> Result<(&'c Arc<Partition>, Prepared)> {
        let Write { verb, partition_key, body, if_match, if_none_match } = write;
        let settings = container.runtime.settings();
        if settings.layout.is_some() {
            return Err(not_json());
        }
        if let Verb::Delete(id) | Verb::Read(id) | Verb::Patch(id) = &verb {
            let key = partition_key.ok_or_else(missing_key)?;
            check_key(container, &key)?;
            let partition = container.partition_of(&key);
            let key = encode_partition_key(&key);
            let id = self.id_of(container, partition, id).await?;
            let name = encode_name(&key, &id).into();
            let content = match verb {
                Verb::Patch(_) => {
                    Content::Patch(Box::new(prepare_patch(&settings, &parse(&body)?)?))
                }
                _ => Content::Nothing,
            };
            let (renamed, layout) = (None, None);
            let prepared =
                Prepared { verb, key, name, renamed, content, if_match, if_none_match, layout };
            return Ok((partition, prepared));
        }
        let value = parse(&body)?;
        let id = item_id(value.as_object().ok_or_else(not_an_object)?)?;
        let key = settings.partition_key.extract(&value);
        if let Some(given) = &partition_key {
            check_key(container, given)?;
            if *given != key {
                return Err(Error::PartitionKeyMismatch);
            }
        }
        check_key_size(&key)?;
        let body = PreparedBody::new(&settings, container.runtime.ttl.state(), &value)?;
        let partition = container.partition_of(&key);
        let key = encode_partition_key(&key);
        let mut name: Bytes = encode_name(&key, id).into();
        let mut renamed = None;
        if let Verb::Replace(addressed) = &verb {
            let addressed = self.id_of(container, partition, addressed).await?;
            if addressed != id {
                renamed = Some(std::mem::replace(&mut name, encode_name(&key, &addressed).into()));
            }
        }
        let (content, layout) = (Content::Body(body), None);
        let prepared =
            Prepared { verb, key, name, renamed, content, if_match, if_none_match, layout };
        Ok((partition, prepared))
    }

    /// The record under a name, dead or alive: callers apply the horizon.
    pub(crate) async fn find(&self, partition: &Partition, name: &[u8]) -> Result<Option<Record>> {
        let place = self.names.place(partition.id, name);
        if let Some(ordinal) = self.names.guess(place)
            && let Some(record) = self.record(partition, ordinal).await?
            && record.name == name
        {
            return Ok(Some(record));
        }
        for _ in 0..LOOKS_MAX {
            let latest = self.engine.latest();
            let key = Key::Id { partition: partition.id, name }.encode();
            let Some(ordinal) = latest.get(Family::Id, &key).await? else { return Ok(None) };
            let ordinal = ordinal_of_value(&ordinal)?;
            self.names.remember(place, ordinal);
            let record = self.record_in(&*latest, partition, ordinal).await?;
            // On a shared store the two looks may be of two states, and the item have another number by the second.
            if !self.is_shared() || record.as_ref().is_some_and(|record| record.name == name) {
                return Ok(record);
            }
        }
        Err(Error::Contention)
    }

    /// The record of an item by id or rid, dead or alive.
    pub(crate) async fn find_item(
        &self,
        container: &Container,
        partition: &Partition,
        key: &PartitionKey,
        id: &str,
    ) -> Result<Option<Record>> {
        let key = encode_partition_key(key);
        match item_number(container, partition, id) {
            None => self.find(partition, &encode_name(&key, id)).await,
            Some(ordinal) => {
                let record = self.record(partition, ordinal).await?;
                Ok(record.filter(|record| record.name.starts_with(&key)))
            }
        }
    }

    /// The record with a number, dead or alive.
    async fn record(&self, partition: &Partition, ordinal: u64) -> Result<Option<Record>> {
        let key = Key::Item { partition: partition.id, ordinal }.encode();
        let bytes = self.engine.get(Family::Item, &key).await?;
        Ok(bytes.map(|bytes| Record::decode(&key, bytes)).transpose()?)
    }

    async fn record_in(
        &self,
        state: &dyn Snapshot,
        partition: &Partition,
        ordinal: u64,
    ) -> Result<Option<Record>> {
        let key = Key::Item { partition: partition.id, ordinal }.encode();
        let bytes = state.get(Family::Item, &key).await?;
        Ok(bytes.map(|bytes| Record::decode(&key, bytes)).transpose()?)
    }

    /// The id that a path names: itself, or that of the item with this rid.
    async fn id_of(
        &self,
        container: &Container,
        partition: &Partition,
        id: &str,
    ) -> Result<String> {
        let Some(ordinal) = item_number(container, partition, id) else {
            return Ok(id.to_owned());
        };
        let record = self.record(partition, ordinal).await?;
        let value: Value = match record {
            None => return Err(Error::NotFound),
            Some(record) => crate::writer::parse_stored(&record)?,
        };
        Ok(value["id"].as_str().unwrap_or_default().to_owned())
    }
}

/// The number of the item that `id` names if it is a rid of this container and the item can be in this partition.
pub(crate) fn item_number(container: &Container, partition: &Partition, id: &str) -> Option<u64> {
    if id.len() != 24 {
        return None;
    }
    let (owner, birthplace, ordinal) = ChildRid::parse_item(id)?;
    (owner == container.rid && birthplace == partition.span.birthplace(ordinal)).then_some(ordinal)
}

/// Of each partition the last word, the first one apart; without any, what the first partition has to say.
fn last_words(
    container: &Container,
    mut sessions: Vec<SessionToken>,
) -> (Option<SessionToken>, Vec<SessionToken>) {
    sessions.reverse();
    sessions.sort_by_key(|session| session.partition);
    sessions.dedup_by_key(|session| session.partition);
    let mut sessions = sessions.into_iter();
    let first = sessions.next().or_else(|| Some(container.partitions.all[0].session()));
    (first, sessions.collect())
}

/// A write and where it goes, if it is to the same partition key as the rest of its transaction.
fn same_key<T>(transaction: &[Prepared], write: (T, Prepared)) -> Result<(T, Prepared)> {
    match transaction.first().is_none_or(|first| first.key == write.1.key) {
        true => Ok(write),
        false => Err(Error::PartitionKeyMismatch),
    }
}

impl Db {
    /// The same for a request to several partitions.
    pub(crate) fn check_sessions(
        &self,
        targets: &[Target],
        options: ReadOptions<'_>,
    ) -> Result<()> {
        targets.iter().try_for_each(|target| self.check_session(&target.partition, options))
    }

    /// Whether this server has seen what the client has. On a shared store every read sees all that any server has acknowledged, so it has.
    pub(crate) fn check_session(
        &self,
        partition: &Partition,
        options: ReadOptions<'_>,
    ) -> Result<()> {
        let have = partition.session();
        let ahead =
            |wanted: &&SessionToken| wanted.partition == have.partition && wanted.lsn > have.lsn;
        match options.session.iter().find(ahead) {
            Some(wanted) if self.is_shared() => {
                partition.saw(wanted.lsn);
                Ok(())
            }
            Some(_) => Err(Error::SessionNotAvailable),
            None => Ok(()),
        }
    }
}

/// Whether a key has as many components as the container's definition.
pub(crate) fn check_key(container: &Container, key: &PartitionKey) -> Result<()> {
    let (given, defined) = (key.0.len(), container.settings.partition_key.paths.len());
    if given < defined {
        return Err(Error::BadPartitionKey(
            "PartitionKey has fewer components than defined the collection resource.",
        ));
    }
    if given > defined {
        return Err(Error::BadPartitionKey(
            "PartitionKey has more components than defined the collection resource.",
        ));
    }
    Ok(())
}

fn check_key_size(key: &PartitionKey) -> Result<()> {
    let too_long = |component: &Component| matches!(component, Component::String(text) if text.len() > KEY_BYTES_MAX);
    match key.0.iter().any(too_long) {
        true => Err(Error::Invalid(format!(
            "The partition key value is too long: the most is {KEY_BYTES_MAX} bytes."
        ))),
        false => Ok(()),
    }
}

fn missing_key() -> Error {
    Error::Invalid("PartitionKey value must be supplied for this operation.".into())
}

fn not_an_object() -> Error {
    Error::Invalid("The input content is invalid: an item must be a JSON object.".into())
}

fn too_large() -> Error {
    Error::TooLarge("Request size is too large".into())
}

fn prepare_patch(settings: &Settings, body: &Value) -> Result<PreparedPatch> {
    let patch = Patch::parse(body, settings)?;
    let condition = patch.condition.as_deref().map(query::Compiled::condition).transpose()?;
    Ok(PreparedPatch { patch, condition })
}

fn parse(body: &[u8]) -> Result<Value> {
    if body.len() > ITEM_BYTES_MAX {
        return Err(too_large());
    }
    serde_json::from_slice(body).map_err(|error| {
        Error::Invalid(format!(
            "The input content is invalid because it is not well-formed JSON, or is nested deeper than 128 levels: {error}."
        ))
    })
}

/// The `id` of an item, validated.
fn item_id(members: &Map<String, Value>) -> Result<&str> {
    let id = match members.get("id") {
        None => {
            return Err(Error::Invalid(
                "The input content is invalid because the required properties - 'id; ' - are missing".into(),
            ));
        }
        Some(Value::String(id)) => id,
        Some(_) => {
            return Err(Error::Invalid(
                "One of the specified inputs is invalid: 'id' must be a string.".into(),
            ));
        }
    };
    if id.is_empty() {
        return Err(Error::Invalid(
            "One of the specified inputs is invalid: 'id' must not be empty.".into(),
        ));
    }
    if id.len() > ID_BYTES_MAX {
        return Err(Error::Invalid(format!(
            "One of the specified inputs is invalid: 'id' is too long. Ensure to provide a unique non-empty string less \
             than '{}' characters.",
            ID_BYTES_MAX + 1
        )));
    }
    if let Some(bad) = id.chars().find(|c| matches!(c, '/' | '\\' | '#')) {
        return Err(Error::Invalid(format!(
            "One of the specified inputs is invalid: 'id' contains the invalid character '{bad}'."
        )));
    }
    Ok(id)
}

/// An item's own ttl under R04 (container on) or R05 (off).
fn own_ttl(value: Option<&Value>, on: bool) -> Result<Ttl> {
    match Ttl::from_json(value) {
        Ok(ttl) => Ok(ttl),
        Err(_) if !on && !value.is_some_and(Value::is_number) => Ok(Ttl::Absent),
        Err(_) => Err(Error::Invalid(format!(
            "The input ttl '{}' is invalid. Ensure to provide a nonzero positive integer less than or equal to \
             '{TTL_SECS_MAX}', or '-1' which means never expire.",
            value.map_or_else(String::new, Value::to_string)
        ))),
    }
}

/// The item's JSON without system properties and without the last brace, which the writer adds.
fn text_of(members: &Map<String, Value>) -> Bytes {
    let mut text = Vec::with_capacity(1_024);
    for (name, value) in members.iter().filter(|(name, _)| !is_system_property(name)) {
        text.push(if text.is_empty() { b'{' } else { b',' });
        serde_json::to_writer(&mut text, name).expect("a string can be written");
        text.push(b':');
        serde_json::to_writer(&mut text, value).expect("a value can be written");
    }
    text.into()
}
