//! Change streams, on the log of the collections: every change, every removal, in the order in which they were made.
//!
//! The first stream on a collection turns its log on ([`db::history`]), and from then on the collection keeps a day of its changes, or a gigabyte of them; `collMod` with
//! `changeStreamPreAndPostImages: {enabled: false}` ends that. Collections that come into being under a stream have a log from the beginning. An
//! expired document shows as a `delete`, once, when it is removed (R24).
//!
//! Of what happened before the log, `startAtOperationTime` gives what the feed still has: each living document at its last change, as an `insert`.
//!
//! A resume token names the next entry of the log of every collection that is watched. Changes of one collection come in the order
//! in which they were made; those of several by their second (`clusterTime`), as far as they can be seen when the stream looks.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bson::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use bytes::Bytes;
use db::documents::{ChangePosition, DocumentChange, Together};
use db::history::{Change, LogPosition, Version};
use db::{Container, Db};
use model::clock::Timestamp;
use serde_json::{Value, json};

use super::Call;
use crate::cursors::{self, Batch, Cursor, Owner, Source};
use crate::error::{Refusal, Result};
use crate::language::aggregate::{Pipeline, Step};
use crate::language::difference::difference;
use crate::language::path::field;
use crate::language::vars::Vars;
use crate::layout;
use crate::options::{Fields, document};

/// How long a look for changes waits, where the client does not say.
const WAIT: Duration = Duration::from_secs(1);

/// How often it looks meanwhile.
const NAP: Duration = Duration::from_millis(20);

/// What the token of an `invalidate` ends with.
const END: &str = "i";

/// Changes read at a time.
const CHANGES_MAX: usize = 1_000;

/// What a collection with a log says of it: a day, and what documents were that have expired.
pub(super) fn log_policy() -> Value {
    json!({"retentionDuration": 24 * 60, "expiredBodies": true})
}

/// What has been read of a collection and not yet told.
struct Queue {
    container: Owner,
    waiting: VecDeque<Waiting>,
    /// Whether there may be more behind it.
    more: bool,
}

impl Queue {
    fn new(container: Owner) -> Self {
        Self { container, waiting: VecDeque::new(), more: true }
    }
}

/// A change that waits for its turn.
struct Waiting {
    ts: Timestamp,
    /// Where the stream stands after it.
    after: Position,
    what: Told,
}

/// What there is to tell.
enum Told {
    /// Of a document that the feed has.
    Found(DocumentChange),
    /// Of an entry of the log.
    Version(Version),
    /// Nothing: the feed ends, and the log begins.
    Nothing,
}

/// An open stream.
pub(crate) struct Stream {
    scope: Scope,
    /// Where it stands, by the number of the container.
    positions: BTreeMap<u32, Position>,
    /// The names of the collections that it knows, by number.
    names: BTreeMap<u32, (String, String)>,
    /// Changes before this are passed over.
    since: Timestamp,
    full: FullDocument,
    before: Before,
    stages: Vec<RawDocumentBuf>,
    vars: Vars,
    /// Whether what it watched is gone: there is nothing more to come.
    over: bool,
    /// How long the next look waits.
    pub wait: Duration,
}

/// What a stream watches.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Scope {
    Collection(String, String),
    Database(String),
    Everything,
}

/// Where a stream stands in a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// In the feed, among changes that are older than the log, of which `until` is the last.
    Feed { at: ChangePosition, until: u64 },
    /// At the next entry of the log.
    Log(LogPosition),
}

/// What `fullDocument` asks for beside an update.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FullDocument {
    Default,
    /// As it is now.
    Lookup,
    /// As the change has left it.
    AfterChange,
}

/// What `fullDocumentBeforeChange` asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Off,
    WhenAvailable,
}

/// Opens a stream: the first stage is `$changeStream`.
pub(super) async fn open(
    call: &mut Call<'_>,
    collection: Option<&str>,
    options: &RawDocument,
    stages: &[RawBsonRef<'_>],
    size: usize,
) -> Result<RawDocumentBuf> {
    let options = Fields(options);
    let mut rest = Vec::new();
    for stage in stages {
        let stage = stage
            .as_document()
            .ok_or_else(|| Refusal::type_mismatch("a stage must be a document"))?;
        rest.push(stage.to_owned());
    }
    // What cannot be read is refused now, not with the first change.
    Pipeline::parse(stages, &call.vars()?)?;
    let scope = match (collection, options.flag("allChangesForCluster")?) {
        (Some(collection), _) => Scope::Collection(call.database.into(), collection.into()),
        (None, false) => Scope::Database(call.database.into()),
        (None, true) => Scope::Everything,
    };
    call.front_end.watched.watch(&scope_name(&scope));
    let mut stream = Stream {
        scope,
        positions: BTreeMap::new(),
        names: BTreeMap::new(),
        since: Timestamp(0),
        full: full_document(options)?,
        before: before_change(options)?,
        stages: rest,
        vars: call.vars()?,
        over: false,
        wait: Duration::ZERO,
    };
    let level = call.fields().document("readConcern")?;
    let level = level.map(|concern| Fields(concern).text("level")).transpose()?.flatten();
    if let Some(level) = level.filter(|level| *level != "majority") {
        return Err(Refusal::new(
            72,
            format!("$changeStream cannot run with the read concern '{level}': use majority."),
        ));
    }
    let resumed = options.document("resumeAfter")?;
    if resumed.is_some_and(|token| token.get_str("_data").is_ok_and(|data| data.ends_with(END))) {
        return Err(Refusal::new(
            260,
            "The resume token is that of an invalidate event, after which nothing comes: begin anew with startAfter.",
        ));
    }
    let token = resumed.or(options.document("startAfter")?);
    stream.start(call.db(), token, options.get("startAtOperationTime")).await?;
    let batch = stream.next(call.db(), size).await?;
    let namespace = call.namespace(collection.unwrap_or("$cmd.aggregate"));
    let session = call.fields().document("lsid")?.map(|session| session.as_bytes().to_vec());
    stream.wait = WAIT;
    let source = Source::Changes(Box::new(stream));
    let cursor = Cursor { namespace: namespace.clone(), source, session, patient: false };
    let number = match batch.done {
        true => 0,
        false => call.front_end.cursors.open_new(cursor, call.db().clock().elapsed())?,
    };
    Ok(cursors::reply_batch(number, &namespace, true, &batch))
}

fn full_document(options: Fields<'_>) -> Result<FullDocument> {
    match options.text("fullDocument")? {
        None | Some("default") => Ok(FullDocument::Default),
        Some("updateLookup") => Ok(FullDocument::Lookup),
        Some("whenAvailable" | "required") => Ok(FullDocument::AfterChange),
        Some(other) => Err(Refusal::bad_value(format!(
            "Enumeration value '{other}' for field '$changeStream.fullDocument' is not valid: use default, updateLookup, whenAvailable or required."
        ))),
    }
}

fn before_change(options: Fields<'_>) -> Result<Before> {
    match options.text("fullDocumentBeforeChange")? {
        None | Some("off") => Ok(Before::Off),
        // The log has what was before every change.
        Some("whenAvailable" | "required") => Ok(Before::WhenAvailable),
        Some(other) => Err(Refusal::bad_value(format!(
            "Enumeration value '{other}' for field '$changeStream.fullDocumentBeforeChange' is not valid: use off, whenAvailable or required."
        ))),
    }
}

/// What a stream watches, as [`Watched`] knows it: a database, or all if it has no name.
fn scope_name(scope: &Scope) -> String {
    match scope {
        Scope::Collection(database, _) | Scope::Database(database) => database.clone(),
        Scope::Everything => String::new(),
    }
}

/// The databases on which this server has had streams: collections made in them have a log from the beginning.
#[derive(Default)]
pub(crate) struct Watched(std::sync::Mutex<std::collections::BTreeSet<String>>);

impl Watched {
    fn watch(&self, database: &str) {
        self.lock().insert(database.to_owned());
    }

    pub fn contains(&self, database: &str) -> bool {
        let watched = self.lock();
        watched.contains(database) || watched.contains("")
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, std::collections::BTreeSet<String>> {
        self.0.lock().expect("nothing panics while it holds this lock")
    }
}

/// Turns a collection's log on, and waits until it has all that is written from now on.
async fn with_log(db: &Db, container: Owner) -> Result<Owner> {
    if container.settings.history.is_some() {
        return Ok(container);
    }
    let edit = |json: &mut serde_json::Map<String, Value>| {
        json.insert("changeFeedPolicy".into(), log_policy());
    };
    let container = db.replace_collection(&container.database_id, container.id(), edit).await?;
    // A round of the writer that had begun before ends before this one.
    db.write_documents(&container, Vec::new(), Together::Ordered, None).await.result?;
    Ok(container)
}

impl Stream {
    fn containers(&self, db: &Db) -> Vec<Owner> {
        let all = |database: &str| db.containers(database).unwrap_or_default();
        let found = match &self.scope {
            Scope::Collection(database, collection) => {
                db.container(database, collection).into_iter().collect()
            }
            Scope::Database(database) => all(database),
            Scope::Everything => {
                db.databases().iter().flat_map(|database| all(&database.id)).collect()
            }
        };
        let ours = |container: &Owner| {
            layout::of(container).is_some() && !container.id().starts_with("tmp.agg_out.")
        };
        found.into_iter().filter(ours).collect()
    }

    /// Takes its place: after a token, at a moment, or now.
    async fn start(
        &mut self,
        db: &Db,
        token: Option<&RawDocument>,
        at: Option<RawBsonRef<'_>>,
    ) -> Result<()> {
        if let Some(token) = token {
            self.positions = read_token(token)?;
        }
        if let Some(RawBsonRef::Timestamp(at)) = at {
            self.since = Timestamp(at.time.into());
        }
        for container in self.containers(db) {
            let container = with_log(db, container).await?;
            self.name(&container);
            let number = container.rid.number;
            if self.positions.contains_key(&number) {
                continue;
            }
            let (complete_from, end) = db.log_of(&container);
            let position = match (token.is_some(), self.since) {
                (false, Timestamp(0)) => Position::Log(end),
                _ => self.past_position(db, &container, complete_from).await?,
            };
            self.positions.insert(number, position);
        }
        Ok(())
    }

    /// The place of a stream that wants what came before it: the log, if that has it all.
    async fn past_position(
        &self,
        db: &Db,
        container: &Container,
        complete_from: LogPosition,
    ) -> Result<Position> {
        let first = db.document_versions(container, complete_from, 1).await?.unwrap_or_default();
        let covered = first.first().is_some_and(|(_, version)| version.ts < self.since);
        Ok(match complete_from.lsn <= 1 || covered {
            true => Position::Log(complete_from),
            false => Position::Feed { at: ChangePosition::default(), until: complete_from.lsn - 1 },
        })
    }

    fn name(&mut self, container: &Container) {
        let names = (container.database_id.to_string(), container.id().to_owned());
        self.names.insert(container.rid.number, names);
    }

    /// The next events; waits a while for the first.
    pub async fn next(&mut self, db: &Db, rows_max: usize) -> Result<Batch> {
        let mut left = self.wait;
        loop {
            let rows = self.look(db, rows_max.min(CHANGES_MAX)).await?;
            if !rows.is_empty() || left.is_zero() || self.over {
                let token = Some(rawdoc! {"_data": self.token()});
                return Ok(Batch { rows, done: self.over, token });
            }
            let nap = left.min(NAP);
            tokio::time::sleep(nap).await;
            left -= nap;
        }
    }

    /// From where a stream goes on; after the end of what was watched it says so.
    fn token(&self) -> String {
        write_token(&self.positions) + if self.over { END } else { "" }
    }

    async fn look(&mut self, db: &Db, rows_max: usize) -> Result<Vec<Bytes>> {
        let mut rows = Vec::new();
        let there = self.containers(db);
        for container in &there {
            let number = container.rid.number;
            if !self.positions.contains_key(&number) {
                // It has come into being since.
                let container = with_log(db, container.clone()).await?;
                self.name(&container);
                let (complete_from, _) = db.log_of(&container);
                let position = self.past_position(db, &container, complete_from).await?;
                self.positions.insert(number, position);
            }
        }
        let moved = self.moved(db, &there);
        let mut queues: Vec<Queue> = there.iter().cloned().chain(moved).map(Queue::new).collect();
        while rows.len() < rows_max {
            for queue in queues.iter_mut().filter(|queue| queue.waiting.is_empty() && queue.more) {
                queue.waiting = self.read(db, &queue.container, rows_max - rows.len()).await?;
                queue.more = !queue.waiting.is_empty();
            }
            // The oldest of all comes next; in one second, and in one collection, as they stand.
            let next = queues.iter_mut().filter(|queue| !queue.waiting.is_empty());
            let Some(queue) = next.min_by_key(|queue| queue.waiting[0].ts) else { break };
            let Some(waiting) = queue.waiting.pop_front() else { break };
            self.positions.insert(queue.container.rid.number, waiting.after);
            if waiting.ts < self.since {
                continue;
            }
            let event = match waiting.what {
                Told::Nothing => continue,
                Told::Found(change) => self.found(&queue.container, &change)?,
                Told::Version(version) => self.event(db, &queue.container, &version).await?,
            };
            rows.extend(self.through_stages(event)?);
        }
        // Whoever leaves has been heard out.
        if rows.len() < rows_max {
            self.take_leave(db, &there, &mut rows)?;
        }
        Ok(rows)
    }

    /// Collections that are watched no more because they have got another name: what was changed before is still to be told.
    fn moved(&self, db: &Db, there: &[Owner]) -> Vec<Owner> {
        let gone = |number: &u32| there.iter().all(|container| container.rid.number != *number);
        let named = |(number, (database, _)): (&u32, &(String, String))| {
            let all = db.containers(database).ok()?;
            all.into_iter().find(|container| container.rid.number == *number)
        };
        let known = self.names.iter().filter(|(number, _)| self.positions.contains_key(*number));
        known.filter(|(number, _)| gone(number)).filter_map(named).collect()
    }

    /// Which document an event is about, and of which collection, by the name that it was watched under.
    fn name_document(&self, event: &mut RawDocumentBuf, container: &Container, body: &RawDocument) {
        let id = field(body, "_id").map_or(RawBson::Null, RawBson::from);
        let names = match self.names.get(&container.rid.number) {
            Some((database, name)) => rawdoc! {"db": database.as_str(), "coll": name.as_str()},
            None => rawdoc! {"db": &*container.database_id, "coll": container.id()},
        };
        event.append(bson::cstr!("ns"), names);
        event.append(bson::cstr!("documentKey"), rawdoc! {"_id": id});
    }

    /// What comes next in one collection.
    async fn read(
        &self,
        db: &Db,
        container: &Container,
        wanted: usize,
    ) -> Result<VecDeque<Waiting>> {
        match self.positions[&container.rid.number] {
            Position::Feed { at, until } => {
                let changes = db.document_changes(container, at, wanted).await?;
                let mut over = changes.is_empty();
                let mut waiting = VecDeque::new();
                for change in changes {
                    over |= change.position.lsn > until;
                    if over {
                        break;
                    }
                    let after = Position::Feed { at: change.position, until };
                    waiting.push_back(Waiting {
                        ts: change.ts(),
                        after,
                        what: Told::Found(change),
                    });
                }
                if over {
                    let after = Position::Log(LogPosition { lsn: until + 1, seq: 0 });
                    let ts = waiting.back().map_or(Timestamp(0), |last| last.ts);
                    waiting.push_back(Waiting { ts, after, what: Told::Nothing });
                }
                Ok(waiting)
            }
            Position::Log(from) => {
                let versions = db.document_versions(container, from, wanted).await?;
                let versions = versions.ok_or_else(history_lost)?;
                let waiting = versions.into_iter().map(|(after, version)| Waiting {
                    ts: version.ts,
                    after: Position::Log(after),
                    what: Told::Version(version),
                });
                Ok(waiting.collect())
            }
        }
    }

    /// An event's first fields.
    fn head(&self, kind: &str, at: Timestamp) -> RawDocumentBuf {
        let millis = at.0.saturating_mul(1_000).cast_signed();
        rawdoc! {
            "_id": {"_data": write_token(&self.positions)},
            "operationType": kind,
            "clusterTime": bson::Timestamp { time: at.0 as u32, increment: 1 },
            "wallTime": bson::DateTime::from_millis(millis),
        }
    }

    /// What the feed tells of a time before the log.
    fn found(&self, container: &Container, change: &DocumentChange) -> Result<RawDocumentBuf> {
        let body = document(&change.document.body)?;
        let mut event = self.head("insert", change.ts());
        event.append(bson::cstr!("fullDocument"), body.to_owned());
        self.name_document(&mut event, container, body);
        Ok(event)
    }

    async fn event(
        &self,
        db: &Db,
        container: &Container,
        version: &Version,
    ) -> Result<RawDocumentBuf> {
        let kind = match version.change {
            Change::Create => "insert",
            Change::Replace => "replace",
            Change::Update => "update",
            Change::Delete | Change::Expiry => "delete",
        };
        let gone = kind == "delete";
        let body = document(if gone { &version.previous } else { &version.current })?;
        let mut event = self.head(kind, version.ts);
        let full = match (version.change, self.full) {
            (Change::Delete | Change::Expiry, _) | (Change::Update, FullDocument::Default) => None,
            (Change::Update, FullDocument::Lookup) => {
                let now = db.document(container, &version.name).await.result?;
                Some(match &now {
                    Some(now) => RawBson::Document(document(now)?.to_owned()),
                    None => RawBson::Null,
                })
            }
            _ => Some(RawBson::Document(body.to_owned())),
        };
        if let Some(full) = full {
            event.append(bson::cstr!("fullDocument"), full);
        }
        self.name_document(&mut event, container, body);
        if version.change == Change::Update {
            let description = difference(document(&version.previous)?, body)?;
            event.append(bson::cstr!("updateDescription"), description);
        }
        if self.before == Before::WhenAvailable && version.change != Change::Create {
            let before = document(&version.previous)?.to_owned();
            event.append(bson::cstr!("fullDocumentBeforeChange"), before);
        }
        Ok(event)
    }

    /// Tells of collections that were dropped or have another name now.
    fn take_leave(&mut self, db: &Db, there: &[Owner], rows: &mut Vec<Bytes>) -> Result<()> {
        let stays = |(number, (_, name)): &(&u32, &(String, String))| {
            there.iter().any(|found| found.rid.number == **number && found.id() == name)
        };
        let left: Vec<u32> =
            self.names.iter().filter(|known| !stays(known)).map(|k| *k.0).collect();
        if left.is_empty() {
            return Ok(());
        }
        let now = db.now();
        for number in left {
            let Some((database, name)) = self.names.remove(&number) else { continue };
            let others = db.containers(&database).unwrap_or_default();
            let renamed = others.iter().find(|container| container.rid.number == number);
            if there.iter().all(|container| container.rid.number != number) {
                self.positions.remove(&number);
            }
            let mut event = self.head(if renamed.is_some() { "rename" } else { "drop" }, now);
            event.append(bson::cstr!("ns"), rawdoc! {"db": database.as_str(), "coll": name});
            if let Some(renamed) = renamed {
                event.append(bson::cstr!("to"), rawdoc! {"db": database, "coll": renamed.id()});
                self.name(renamed);
            }
            rows.extend(self.through_stages(event)?);
            self.over |= matches!(self.scope, Scope::Collection(..));
        }
        if let Scope::Database(database) = &self.scope
            && there.is_empty()
            && db.containers(database).is_err()
        {
            let mut event = self.head("dropDatabase", now);
            event.append(bson::cstr!("ns"), rawdoc! {"db": database.as_str()});
            rows.extend(self.through_stages(event)?);
            self.over = true;
        }
        if self.over {
            let mut event = RawDocumentBuf::new();
            for element in self.head("invalidate", now).iter() {
                let (name, value) = element?;
                match name.as_str() {
                    "_id" => event.append(name, rawdoc! {"_data": self.token()}),
                    _ => event.append(name, value),
                }
            }
            rows.extend(self.through_stages(event)?);
        }
        Ok(())
    }

    fn through_stages(&self, event: RawDocumentBuf) -> Result<Vec<Bytes>> {
        if self.stages.is_empty() {
            return Ok(vec![event.into_bytes().into()]);
        }
        let stages: Vec<RawBsonRef<'_>> =
            self.stages.iter().map(|stage| RawBsonRef::Document(stage)).collect();
        let token = field(&event, "_id").map(RawBson::from);
        let mut pipeline = Pipeline::parse(&stages, &self.vars)?;
        let (mut event, mut rows) = (Some(event), Vec::new());
        loop {
            match pipeline.step()? {
                Step::Document(row) => {
                    // A client could not go on without it.
                    if field(&row, "_id").map(RawBson::from) != token {
                        return Err(Refusal::new(
                            280,
                            "Encountered an event whose _id field, which contains the resume token, was modified by the pipeline. Modifying the _id field of an event makes it impossible to resume the stream from that point. Only transformations that retain the unmodified _id field are allowed.",
                        )
                        .labelled("NonResumableChangeStreamError"));
                    }
                    rows.push(row.into_bytes().into());
                }
                Step::Input => match event.take() {
                    Some(event) => pipeline.feed(event),
                    None => pipeline.end(),
                },
                Step::Foreign(_) => {
                    return Err(Refusal::new(20, "This stage is not allowed in a change stream."));
                }
                Step::Done => return Ok(rows),
            }
        }
    }
}

fn history_lost() -> Refusal {
    Refusal::new(
        286,
        "Resume of change stream was not possible, as the resume point may no longer be in the log of changes: it keeps a day. Begin a new stream.",
    )
    .labelled("NonResumableChangeStreamError")
}

/// A token: for each collection its number, where the stream stands (a letter), and the numbers of that place; all in hex.
fn write_token(positions: &BTreeMap<u32, Position>) -> String {
    let mut token = String::new();
    for (number, position) in positions {
        let place = match position {
            Position::Log(LogPosition { lsn, seq }) => format!("{number:08x}a{lsn:016x}{seq:08x}"),
            Position::Feed { at, until } => format!(
                "{number:08x}b{:016x}{:016x}{:016x}{until:016x}",
                at.lsn, at.ordinal, at.newest
            ),
        };
        token.push_str(&place);
    }
    token
}

fn read_token(token: &RawDocument) -> Result<BTreeMap<u32, Position>> {
    let invalid =
        || Refusal::new(260, "The resume token cannot be read: it is none of this server's.");
    let text = token.get_str("_data").map_err(|_| invalid())?;
    let mut text = text.strip_suffix(END).unwrap_or(text);
    let mut positions = BTreeMap::new();
    let mut take = |digits: usize| {
        let (taken, rest) = text.split_at_checked(digits)?;
        text = rest;
        Some(taken)
    };
    while let Some(number) = take(8) {
        let number = u32::from_str_radix(number, 16).map_err(|_| invalid())?;
        let kind = take(1).ok_or_else(invalid)?;
        let mut hex = |digits: usize| {
            take(digits).and_then(|hex| u64::from_str_radix(hex, 16).ok()).ok_or_else(invalid)
        };
        let position = match kind {
            "a" => Position::Log(LogPosition { lsn: hex(16)?, seq: hex(8)? as u32 }),
            "b" => {
                let at = ChangePosition { lsn: hex(16)?, ordinal: hex(16)?, newest: hex(16)? };
                Position::Feed { at, until: hex(16)? }
            }
            _ => return Err(invalid()),
        };
        positions.insert(number, position);
    }
    match text {
        "" => Ok(positions),
        _ => Err(invalid()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_where_a_stream_stands() {
        let at = ChangePosition { lsn: 3, ordinal: 9, newest: u64::MAX };
        let positions = BTreeMap::from([
            (1, Position::Log(LogPosition { lsn: u64::MAX, seq: 7 })),
            (2, Position::Feed { at, until: 5 }),
            (u32::MAX, Position::Log(LogPosition { lsn: 1, seq: 0 })),
        ]);
        let token = write_token(&positions);
        let read = |text: &str| read_token(&rawdoc! {"_data": text});
        assert_eq!(read(&token).unwrap(), positions);
        for cut in 1..token.len() {
            // A whole place less is a token, too; anything else is none.
            if let Ok(found) = read(&token[..cut]) {
                assert!(found.len() < positions.len());
            }
        }
        assert!(read("0000000zz").is_err());
        assert!(read("ü").is_err());
    }
}
