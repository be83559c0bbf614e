//! What a script does, before it is done: a snapshot, and on top of it what the script has changed.
//!
//! What a script makes has a `_rid` and an `_etag` for the script to use; the final ones are the writer's, and are put into the script's response.

use std::collections::HashMap;
use std::time::Duration;

use ::query::{Flow, Pipeline};
use ::scripts::{
    Answer, Call, Host, Kind as ScriptKind, Limits, Output, Refusal, Script, Verb as Asked,
};
use bytes::Bytes;
use model::partition_key::PartitionKey;
use model::resource::{ChildRid, Etag};
use model::ttl::Ttl;
use serde_json::Value;
use storage::Family;

use crate::charge::{self, RequestCharge};
use crate::items::{Content, item_number};
use crate::keys::{Key, encode_name, encode_partition_key};
use crate::query::query_options;
use crate::record::Record;
use crate::scan::{ItemScan, ScopeFilter, View, fetch};
use crate::writer::{complete, ordinal_of_value};
use crate::{Container, Db, Error, Item, QueryRequest, Result, Scope, Verb, Write};

/// How long a script may run, and how much of it operations are accepted.
pub(super) const TIME_MAX: Duration = Duration::from_secs(5);
const TIME_ACCEPTING: Duration = Duration::from_secs(4);

/// The first number of items that a script has made: beyond all that a partition gives out.
const PROVISIONAL: u64 = 1 << 39;

/// The most documents in a page that a script reads: if it does not say, and if it leaves that to us.
const PAGE_DEFAULT: usize = 100;
const PAGE_DYNAMIC: usize = 1_000;

/// The most bytes of such a page.
const PAGE_BYTES_MAX: usize = 4 << 20;

/// A script's view of its partition key.
pub(crate) struct Work {
    db: Db,
    container: Container,
    key: PartitionKey,
    key_bytes: Vec<u8>,
    view: View,
    /// What the script has touched, by id, and the ids in the order of touching.
    touched: HashMap<String, Touched>,
    order: Vec<String>,
    made: u64,
    charge: RequestCharge,
    begun: Duration,
}

/// An item that a script has written or deleted.
struct Touched {
    /// As the snapshot has it.
    before: Option<Seen>,
    /// As the script has left it.
    now: Option<Seen>,
}

/// A version of an item, as the script sees it.
#[derive(Clone)]
struct Seen {
    ordinal: u64,
    etag: Etag,
    body: Bytes,
}

/// What a client's write between triggers came to.
pub(crate) struct Made {
    pub created: bool,
    /// The id of the item that there is now.
    pub id: Option<String>,
}

/// Changes that are durable.
pub(crate) struct Commit {
    items: HashMap<String, (Seen, Item)>,
    container: Container,
    key: PartitionKey,
    /// What the script has cost, and what its writes have cost.
    pub own_charge: RequestCharge,
    pub writes_charge: RequestCharge,
}

impl Work {
    pub fn new(db: &Db, container: &Container, key: &PartitionKey) -> Self {
        Self {
            db: db.clone(),
            container: container.clone(),
            key: key.clone(),
            key_bytes: encode_partition_key(key),
            view: View::new(db, container),
            touched: HashMap::new(),
            order: Vec::new(),
            made: 0,
            charge: charge::MISS,
            begun: db.clock.stopwatch(),
        }
    }

    /// A script on this container, without source.
    pub fn script(&self, kind: ScriptKind, operation: &'static str) -> Script {
        let (_, bytes) = self.container.usage();
        Script {
            kind,
            source: String::new(),
            arguments: "[]".into(),
            request: None,
            response: None,
            operation,
            self_link: self.container.self_link(),
            alt_link: String::from_utf8_lossy(self.container.path()).into_owned(),
            size_mb: bytes >> 20,
            now_millis: self.db.now().0.cast_signed() * 1_000,
        }
    }

    /// Runs a script on it.
    pub fn run(self, script: &Script) -> Result<(Output, String, Self)> {
        let (clock, end) = (self.db.clock.clone(), self.begun + TIME_MAX);
        let deadline = Box::new(move || clock.stopwatch() >= end);
        let (result, work, log) = ::scripts::run(script, self, Limits::default(), deadline);
        Ok((result?, log, work))
    }

    /// A client's write, and what its response shows.
    pub fn write(&mut self, write: Write) -> Result<(Made, Bytes)> {
        let Write { verb, body, if_match, if_none_match, .. } = write;
        let preconditions = (if_match.as_deref(), if_none_match.as_deref());
        match verb {
            Verb::Create => self.put(None, &body, (Asked::Create, preconditions)),
            Verb::Upsert => self.put(None, &body, (Asked::Upsert, preconditions)),
            Verb::Replace(id) => {
                let id = self.id_of(&id)?;
                self.put(Some(&id), &body, (Asked::Replace, preconditions))
            }
            Verb::Patch(id) => {
                let id = self.id_of(&id)?;
                self.patch(&id, &body, preconditions)
            }
            Verb::Delete(id) => {
                let id = self.id_of(&id)?;
                self.delete(&id, preconditions)?;
                Ok((Made { created: false, id: None }, Bytes::new()))
            }
            Verb::Read(id) => {
                let id = self.id_of(&id)?;
                let seen = self.current(&id)?.ok_or(Error::NotFound)?;
                Ok((Made { created: false, id: Some(id) }, seen.body))
            }
        }
    }

    /// Hands the changes to the writer: all are made, or none.
    pub async fn commit(mut self) -> Result<Commit> {
        let changed = |id: &String| {
            self.touched
                .remove(id)
                .filter(|touched| touched.before.is_some() || touched.now.is_some())
                .map(|touched| (id.clone(), touched))
        };
        let mut changes: Vec<(String, Touched)> = self.order.iter().filter_map(changed).collect();
        // What goes may hold names and unique keys that what comes needs.
        changes.sort_by_key(|(_, touched)| touched.now.is_some());
        let write = |(id, touched): &(String, Touched)| {
            let verb = match (&touched.before, &touched.now) {
                (_, None) => Verb::Delete(id.clone()),
                (None, Some(_)) => Verb::Create,
                (Some(_), Some(_)) => Verb::Replace(id.clone()),
            };
            Write {
                verb,
                partition_key: Some(self.key.clone()),
                body: touched.now.as_ref().map_or_else(Bytes::new, |now| now.body.clone()),
                if_match: touched.before.as_ref().map(|before| before.etag.to_string()),
                if_none_match: None,
            }
        };
        let writes: Vec<Write> = changes.iter().map(write).collect();
        let mut commit = Commit {
            items: HashMap::new(),
            own_charge: self.charge,
            writes_charge: RequestCharge::default(),
            container: self.container.clone(),
            key: self.key.clone(),
        };
        if writes.is_empty() {
            return Ok(commit);
        }
        let reply = self.db.transact(&self.container, writes).await;
        commit.writes_charge = reply.charge;
        let mut first = None;
        for ((id, touched), outcome) in changes.into_iter().zip(reply.result?) {
            match outcome.result {
                Ok(written) => {
                    if let Some(pair) = touched.now.zip(written.item) {
                        commit.items.insert(id, pair);
                    }
                }
                Err(Error::FailedDependency) => first = first.or(Some(Error::FailedDependency)),
                Err(error) => return Err(error),
            }
        }
        first.map_or(Ok(commit), Err)
    }

    /// The item with this id, as the script has it.
    fn current(&mut self, id: &str) -> Result<Option<Seen>> {
        if let Some(touched) = self.touched.get(id) {
            return Ok(touched.now.clone());
        }
        let found = self.db.tasks.clone().block_on(self.stored(id))?;
        let bytes = found.as_ref().map_or(0, |seen| seen.body.len());
        self.charge += charge::read(bytes);
        Ok(found)
    }

    /// The item with this id that the snapshot has.
    async fn stored(&self, id: &str) -> Result<Option<Seen>> {
        let partition = self.container.partition_of(&self.key).id;
        let name = encode_name(&self.key_bytes, id);
        let key = Key::Id { partition, name: &name }.encode();
        let Some(ordinal) = self.view.snapshot.get(Family::Id, &key).await? else {
            return Ok(None);
        };
        let stored = fetch(&*self.view.snapshot, partition, ordinal_of_value(&ordinal)?).await?;
        Ok(self.is_live(&stored.record).then(|| Seen::of(stored.ordinal, &stored.record)))
    }

    fn is_live(&self, record: &Record) -> bool {
        self.view.horizon.is_live(record.ts, record.own_ttl)
    }

    /// The id that a path's last part names: itself, or that of the item with this rid.
    fn id_of(&mut self, id: &str) -> Result<String> {
        let partition = self.container.partition_of(&self.key).clone();
        let Some(ordinal) = item_number(&self.container, &partition, id) else {
            return Ok(id.to_owned());
        };
        if ordinal >= PROVISIONAL {
            let made =
                |touched: &Touched| touched.now.as_ref().is_some_and(|now| now.ordinal == ordinal);
            let found = self.touched.iter().find(|(_, touched)| made(touched));
            return found.map(|(id, _)| id.clone()).ok_or(Error::NotFound);
        }
        let key = Key::Item { partition: partition.id, ordinal }.encode();
        let found = self.view.snapshot.get(Family::Item, &key);
        let found = self.db.tasks.clone().block_on(found)?.ok_or(Error::NotFound)?;
        let record = Record::decode(&key, found)?;
        match record.name.strip_prefix(&self.key_bytes[..]) {
            Some(id) => Ok(String::from_utf8_lossy(id).into_owned()),
            None => Err(Error::NotFound),
        }
    }

    /// Creates, upserts or replaces an item.
    fn put(
        &mut self,
        addressed: Option<&str>,
        body: &Bytes,
        (verb, preconditions): (Asked, Preconditions<'_>),
    ) -> Result<(Made, Bytes)> {
        let write = Write {
            verb: Verb::Upsert,
            partition_key: Some(self.key.clone()),
            body: body.clone(),
            if_match: None,
            if_none_match: None,
        };
        let prepared = self.db.tasks.clone().block_on(self.db.prepare(&self.container, write));
        let prepared = prepared.map(|(_, prepared)| prepared).map_err(|error| match error {
            Error::PartitionKeyMismatch => Error::Invalid(
                "Requests originating from scripts cannot reference partition keys other than the one for which client \
                 request was submitted."
                    .into(),
            ),
            error => error,
        })?;
        let id = String::from_utf8_lossy(&prepared.name[self.key_bytes.len()..]).into_owned();
        let Content::Body(body) = prepared.content else { return Err(Error::NotFound) };
        let old_id = addressed.unwrap_or(&id);
        let old = self.current(old_id)?;
        match (verb, &old) {
            (Asked::Create, Some(_)) => return Err(Error::Exists),
            (Asked::Create | Asked::Upsert, None) => {}
            (_, None) => return Err(Error::NotFound),
            (_, Some(old)) => check(preconditions, old)?,
        }
        if old_id != id {
            if self.current(&id)?.is_some() {
                return Err(Error::Exists);
            }
            self.set(old_id, None)?;
        }
        let created = old.is_none();
        self.made += 1;
        let ordinal = old.map_or(PROVISIONAL + self.made, |old| old.ordinal);
        let partition = self.container.partition_of(&self.key);
        let record = Record {
            // No change will ever have this number.
            lsn: u64::MAX - self.made,
            seq: 0,
            alone: false,
            ts: self.db.now(),
            own_ttl: Ttl::Absent,
            name: Bytes::new(),
            body: Bytes::new(),
        };
        let birthplace = partition.span.birthplace(ordinal);
        let body = complete(&body.text, self.container.rid, (birthplace, ordinal), &record);
        self.set(&id, Some(Seen { ordinal, etag: record.etag(), body: body.clone() }))?;
        Ok((Made { created, id: Some(id) }, body))
    }

    fn patch(
        &mut self,
        id: &str,
        body: &Bytes,
        preconditions: Preconditions<'_>,
    ) -> Result<(Made, Bytes)> {
        let write = Write {
            verb: Verb::Patch(id.to_owned()),
            partition_key: Some(self.key.clone()),
            body: body.clone(),
            if_match: None,
            if_none_match: None,
        };
        let prepared = self.db.tasks.clone().block_on(self.db.prepare(&self.container, write))?.1;
        let Content::Patch(patch) = prepared.content else { return Err(Error::NotFound) };
        let old = self.current(id)?.ok_or(Error::NotFound)?;
        check(preconditions, &old)?;
        if let Some(condition) = &patch.condition
            && !condition.matches(&old.body, &::query::Context::default())?
        {
            return Err(Error::PatchConditionFailed);
        }
        let mut value: Value = serde_json::from_slice(&old.body)
            .map_err(|_| Error::Storage("corrupt data: a stored item is not JSON".into()))?;
        patch.patch.apply(&mut value)?;
        self.put(Some(id), &value.to_string().into(), (Asked::Replace, (None, None)))
    }

    fn delete(&mut self, id: &str, preconditions: Preconditions<'_>) -> Result<()> {
        let old = self.current(id)?.ok_or(Error::NotFound)?;
        check(preconditions, &old)?;
        self.set(id, None)
    }

    /// Notes what the script has made of an item.
    fn set(&mut self, id: &str, now: Option<Seen>) -> Result<()> {
        if !self.touched.contains_key(id) {
            let before = self.db.tasks.clone().block_on(self.stored(id))?;
            self.touched.insert(id.to_owned(), Touched { before, now: None });
            self.order.push(id.to_owned());
        }
        if let Some(touched) = self.touched.get_mut(id) {
            touched.now = now;
        }
        Ok(())
    }

    /// The items of the key after a number, up to so many, as the script has left them.
    fn items_after(&mut self, after: Option<u64>, count_max: usize) -> Result<Vec<(u64, Bytes)>> {
        let mut found = Vec::new();
        if after.is_none_or(|after| after < PROVISIONAL) {
            let partition = self.container.partition_of(&self.key).id;
            let filter = ScopeFilter::new(&self.container, &Scope::Key(self.key.clone()))?;
            let mut scan = ItemScan::new(&self.view, partition, filter, after);
            let replaced: HashMap<u64, &Touched> = self
                .touched
                .values()
                .filter_map(|touched| Some((touched.before.as_ref()?.ordinal, touched)))
                .collect();
            let tasks = self.db.tasks.clone();
            while found.len() < count_max {
                let stored = tasks.block_on(scan.next())?;
                if stored.is_empty() {
                    break;
                }
                for stored in stored {
                    match replaced.get(&stored.ordinal) {
                        None => found.push((stored.ordinal, stored.record.body)),
                        Some(Touched { now: Some(now), .. }) if now.ordinal == stored.ordinal => {
                            found.push((now.ordinal, now.body.clone()));
                        }
                        Some(_) => {}
                    }
                }
            }
            self.charge += scan.tally().charge();
        }
        if found.len() < count_max {
            let made = self.touched.values().filter_map(|touched| touched.now.as_ref());
            let mut made: Vec<_> = made
                .filter(|now| now.ordinal > after.unwrap_or(0).max(PROVISIONAL))
                .map(|now| (now.ordinal, now.body.clone()))
                .collect();
            made.sort_by_key(|(ordinal, _)| *ordinal);
            found.extend(made);
        }
        found.truncate(count_max);
        Ok(found)
    }

    /// A page of all items.
    fn feed(&mut self, options: &Value) -> Result<Answer> {
        let size = page_size(options)?;
        let found = self.items_after(place_of(options, 'i')?, size + 1)?;
        let more = found.len() > size;
        let continuation = found.get(size.saturating_sub(1)).filter(|_| more);
        let continuation = continuation.map(|(ordinal, _)| format!("i{ordinal}"));
        let rows: Vec<Bytes> = found.into_iter().take(size).map(|(_, body)| body).collect();
        Ok(Answer { resource: array(&rows), continuation, not_modified: false })
    }

    /// A page of a query's rows.
    fn query(&mut self, body: &str, options: &Value) -> Result<Answer> {
        const CHUNK: usize = 256;
        let query: Value = serde_json::from_str(body).unwrap_or_default();
        let parameter = |parameter: &Value| {
            Some((parameter["name"].as_str()?.to_owned(), parameter["value"].clone()))
        };
        let parameters = query["parameters"].as_array().into_iter().flatten();
        let request = QueryRequest {
            text: query["query"].as_str().unwrap_or_default().to_owned(),
            parameters: parameters.filter_map(parameter).collect(),
            cross_partition: true,
            scan: true,
            scope: Scope::Key(self.key.clone()),
            resume: None,
        };
        let compiled = request.compile(query_options(&self.container), self.db.now())?;
        let select = &compiled.tree().select;
        let streams = compiled.is_streaming()
            && !select.distinct
            && select.top.is_none()
            && compiled.tree().offset_limit.is_none();
        let mut context = self.db.query_context();
        context.udfs = self.db.functions_for(&self.container, &request.text);
        let mut pipeline = Pipeline::new(compiled, &context);
        let size = page_size(options)?;
        let (mut rows, mut bytes, mut last) = (Vec::new(), 0, None);
        let mut after = if streams { place_of(options, 'i')? } else { None };
        'items: loop {
            let items = self.items_after(after, CHUNK)?;
            if items.is_empty() {
                break;
            }
            for (ordinal, body) in items {
                after = Some(ordinal);
                let flow = pipeline.push(&body, ordinal)?;
                for row in pipeline.take_rows().iter() {
                    bytes += row.len();
                    rows.push(Bytes::copy_from_slice(row));
                }
                if streams && (rows.len() >= size || bytes > PAGE_BYTES_MAX) {
                    last = Some(ordinal);
                    break 'items;
                }
                if flow == Flow::Done {
                    break 'items;
                }
            }
        }
        if streams {
            let continuation = last.map(|ordinal| format!("i{ordinal}"));
            return Ok(Answer { resource: array(&rows), continuation, not_modified: false });
        }
        rows.extend(pipeline.finish()?.iter().map(Bytes::copy_from_slice));
        let start = place_of(options, 'r')?.map_or(0, |start| start as usize).min(rows.len());
        let end = start.saturating_add(size).min(rows.len());
        let continuation = (end < rows.len()).then(|| format!("r{end}"));
        Ok(Answer { resource: array(&rows[start..end]), continuation, not_modified: false })
    }

    /// The id of the item that a link names, which must be in this container.
    fn linked(&mut self, link: &str) -> Result<String> {
        let parts: Vec<&str> = link.split('/').filter(|part| !part.is_empty()).collect();
        match parts[..] {
            ["dbs", _, "colls", _, "docs", id] if self.is_own(&parts[..4]) => self.id_of(id),
            _ => Err(foreign(link)),
        }
    }

    fn is_own(&self, parts: &[&str]) -> bool {
        let own =
            |link: &str| link.split('/').filter(|part| !part.is_empty()).eq(parts.iter().copied());
        own(&self.container.self_link()) || own(&String::from_utf8_lossy(self.container.path()))
    }

    fn answer(&mut self, call: Call<'_>) -> Result<Answer> {
        let options: Value = serde_json::from_str(call.options).unwrap_or_default();
        let etag = options["etag"].as_str();
        let shown = |body: &[u8]| Answer {
            resource: String::from_utf8_lossy(body).into_owned(),
            ..Answer::default()
        };
        if !matches!(call.verb, Asked::Read | Asked::Replace | Asked::Patch | Asked::Delete) {
            let parts: Vec<&str> = call.link.split('/').filter(|part| !part.is_empty()).collect();
            if !self.is_own(&parts) {
                return Err(foreign(call.link));
            }
        }
        match call.verb {
            Asked::Create | Asked::Upsert => {
                let body = with_id(call.body, &options)?;
                Ok(shown(&self.put(None, &body.into(), (call.verb, (etag, None)))?.1))
            }
            Asked::Replace => {
                let id = self.linked(call.link)?;
                let body = Bytes::copy_from_slice(call.body.as_bytes());
                Ok(shown(&self.put(Some(&id), &body, (call.verb, (etag, None)))?.1))
            }
            Asked::Patch => {
                let id = self.linked(call.link)?;
                let body = Bytes::copy_from_slice(call.body.as_bytes());
                Ok(shown(&self.patch(&id, &body, (etag, None))?.1))
            }
            Asked::Delete => {
                let id = self.linked(call.link)?;
                self.delete(&id, (etag, None))?;
                Ok(Answer::default())
            }
            Asked::Read => {
                let id = self.linked(call.link)?;
                let seen = self.current(&id)?.ok_or(Error::NotFound)?;
                let known = options["ifNoneMatch"].as_str();
                if known.is_some_and(|known| known == seen.etag.to_string()) {
                    return Ok(Answer { not_modified: true, ..Answer::default() });
                }
                Ok(shown(&seen.body))
            }
            Asked::Query => self.query(call.body, &options),
            Asked::Feed => self.feed(&options),
        }
    }
}

impl Host for Work {
    fn call(&mut self, call: Call<'_>) -> std::result::Result<Answer, Refusal> {
        self.answer(call)
            .map_err(|error| Refusal { number: number(&error), text: error.to_string() })
    }

    fn accepts(&self) -> bool {
        self.db.clock.stopwatch() < self.begun + TIME_ACCEPTING
    }
}

impl Seen {
    fn of(ordinal: u64, record: &Record) -> Self {
        Self { ordinal, etag: record.etag(), body: record.body.clone() }
    }
}

impl Commit {
    /// An item that was written.
    pub fn item(&self, id: &str) -> Option<Item> {
        self.items.get(id).map(|(_, item)| item.clone())
    }

    /// A text in which the provisional names of what a script has made are the final ones.
    pub fn with_final_names(&self, mut text: String) -> String {
        let partition = self.container.partition_of(&self.key);
        for (seen, item) in self.items.values() {
            let bare = |etag: Etag| etag.to_string().trim_matches('"').to_owned();
            let provisional = bare(seen.etag);
            if text.contains(&provisional) {
                text = text.replace(&provisional, &bare(item.etag));
            }
            if seen.ordinal > PROVISIONAL {
                let birthplace = partition.span.birthplace(seen.ordinal);
                let rid = ChildRid::item(self.container.rid, birthplace, seen.ordinal).to_string();
                if text.contains(&rid) {
                    let body: Value = serde_json::from_slice(&item.body).unwrap_or_default();
                    text = text.replace(&rid, body["_rid"].as_str().unwrap_or(&rid));
                }
            }
        }
        text
    }
}

/// If-Match and If-None-Match.
type Preconditions<'a> = (Option<&'a str>, Option<&'a str>);

fn check((if_match, if_none_match): Preconditions<'_>, seen: &Seen) -> Result<()> {
    let etag = seen.etag.to_string();
    let wanted = if_match.is_none_or(|wanted| wanted == "*" || wanted == etag);
    let unwanted = if_none_match.is_some_and(|unwanted| unwanted == "*" || unwanted == etag);
    match wanted && !unwanted {
        true => Ok(()),
        false => Err(Error::PreconditionFailed),
    }
}

/// The body with an id of its own, where it has none and none is forbidden.
fn with_id(body: &str, options: &Value) -> Result<String> {
    let mut value: Value = serde_json::from_str(body).map_err(|_| {
        Error::Invalid("The input content is invalid: a document must be a JSON object.".into())
    })?;
    if options["disableAutomaticIdGeneration"].as_bool() != Some(true)
        && let Some(members) = value.as_object_mut()
        && !members.contains_key("id")
    {
        let digits = format!("{:032x}", fastrand::u128(..));
        let groups =
            [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        members.insert("id".into(), groups.join("-").into());
        return Ok(value.to_string());
    }
    Ok(body.to_owned())
}

fn page_size(options: &Value) -> Result<usize> {
    match options.get("pageSize") {
        None | Some(Value::Null) => Ok(PAGE_DEFAULT),
        Some(size) if size.as_i64() == Some(-1) => Ok(PAGE_DYNAMIC),
        Some(size) => size.as_u64().filter(|size| *size > 0).map_or_else(
            || {
                Err(Error::Invalid(format!(
                    "The page size {size} is invalid: it must be 1 or more, or -1."
                )))
            },
            |size| Ok(usize::try_from(size).unwrap_or(usize::MAX).min(PAGE_DYNAMIC)),
        ),
    }
}

/// The number in a continuation of this kind.
fn place_of(options: &Value, kind: char) -> Result<Option<u64>> {
    match options.get("continuation") {
        None | Some(Value::Null) => Ok(None),
        Some(token) => {
            let number = token.as_str().and_then(|token| token.strip_prefix(kind)?.parse().ok());
            number.map(Some).ok_or_else(|| Error::Invalid("Invalid Continuation Token".into()))
        }
    }
}

fn array(rows: &[Bytes]) -> String {
    let mut text = String::from("[");
    for (place, row) in rows.iter().enumerate() {
        if place > 0 {
            text.push(',');
        }
        text.push_str(&String::from_utf8_lossy(row));
    }
    text.push(']');
    text
}

fn foreign(link: &str) -> Error {
    Error::Invalid(format!(
        "The link '{link}' is not of the container that the script runs in, or of a document in it."
    ))
}

/// The status that a script is told.
fn number(error: &Error) -> u16 {
    match error {
        Error::NotFound | Error::OwnerNotFound => 404,
        Error::Exists | Error::UniqueKeyViolation { .. } => 409,
        Error::PreconditionFailed | Error::PatchConditionFailed => 412,
        Error::TooLarge(_) => 413,
        Error::Throttled { .. } | Error::Overloaded => 429,
        Error::Storage(_) | Error::Stopping | Error::DiskFull(_) => 500,
        _ => 400,
    }
}
