//! Change streams, on the feed of the containers: each living document at its last change, in the order of changes.
//!
//! As in the service, what was changed twice between two looks is shown once, and removals are not shown. A document that the stream has not
//! seen before is an `insert`, any other a `replace`. The resume token names the last change read of every collection watched.

use std::collections::BTreeMap;
use std::time::Duration;

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use bytes::Bytes;
use db::Db;
use db::documents::{ChangePosition, DocumentChange};

use super::Call;
use crate::cursors::{self, Batch, Cursor, Source};
use crate::error::{Refusal, Result};
use crate::language::aggregate::{Pipeline, Step};
use crate::language::path::field;
use crate::language::vars::Vars;
use crate::layout;
use crate::options::{Fields, document};

/// How long a look for changes waits, where the client does not say.
const WAIT: Duration = Duration::from_secs(1);

/// How often it looks meanwhile.
const NAP: Duration = Duration::from_millis(20);

/// Changes read at a time.
const CHANGES_MAX: usize = 1_000;

/// An open stream.
pub(crate) struct Stream {
    /// The database; `None` watches all.
    database: Option<String>,
    /// The collection; `None` watches all of the database.
    collection: Option<String>,
    /// Where it stands, by the number of the container.
    positions: BTreeMap<u32, ChangePosition>,
    stages: Vec<RawDocumentBuf>,
    vars: Vars,
    /// How long the next look waits.
    pub wait: Duration,
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
    let cluster = options.flag("allChangesForCluster")?;
    let mut rest = Vec::new();
    for stage in stages {
        let stage = stage
            .as_document()
            .ok_or_else(|| Refusal::type_mismatch("a stage must be a document"))?;
        rest.push(stage.to_owned());
    }
    // What cannot be read is refused now, not with the first change.
    Pipeline::parse(stages, &call.vars()?)?;
    let mut stream = Stream {
        database: (!cluster).then(|| call.database.to_owned()),
        collection: collection.map(str::to_owned),
        positions: BTreeMap::new(),
        stages: rest,
        vars: call.vars()?,
        wait: Duration::ZERO,
    };
    let token = options.document("resumeAfter")?.or(options.document("startAfter")?);
    match token {
        Some(token) => stream.positions = read_token(token)?,
        None => stream.start(call.db(), options.get("startAtOperationTime")),
    }
    let batch = stream.next(call.db(), size).await?;
    let namespace = call.namespace(collection.unwrap_or("$cmd.aggregate"));
    let session = call.fields().document("lsid")?.map(|session| session.as_bytes().to_vec());
    stream.wait = WAIT;
    let source = Source::Changes(Box::new(stream));
    let cursor = Cursor { namespace: namespace.clone(), source, session, patient: false };
    let number = call.front_end.cursors.open_new(cursor, call.db().clock().elapsed())?;
    Ok(cursors::reply(number, &namespace, true, &batch.rows))
}

impl Stream {
    fn containers(&self, db: &Db) -> Vec<cursors::Owner> {
        let all = |database: &str| db.containers(database).unwrap_or_default();
        let found = match (&self.database, &self.collection) {
            (Some(database), Some(collection)) => {
                db.container(database, collection).into_iter().collect()
            }
            (Some(database), None) => all(database),
            (None, _) => db.databases().iter().flat_map(|database| all(&database.id)).collect(),
        };
        found
            .into_iter()
            .filter(|container: &cursors::Owner| layout::of(container).is_some())
            .collect()
    }

    /// Stands at now; or, where an earlier moment is asked for, before everything: older changes are passed over by their time.
    fn start(&mut self, db: &Db, since: Option<RawBsonRef<'_>>) {
        let now = db.now().0;
        let past = matches!(since, Some(RawBsonRef::Timestamp(at)) if u64::from(at.time) < now);
        for container in self.containers(db) {
            let position = match past {
                true => ChangePosition::default(),
                false => db.change_position(&container),
            };
            self.positions.insert(container.rid.number, position);
        }
    }

    /// The next events; waits a while for the first.
    pub async fn next(&mut self, db: &Db, rows_max: usize) -> Result<Batch> {
        let mut left = self.wait;
        loop {
            let rows = self.look(db, rows_max.min(CHANGES_MAX)).await?;
            if !rows.is_empty() || left.is_zero() {
                return Ok(Batch { rows, done: false });
            }
            let nap = left.min(NAP);
            tokio::time::sleep(nap).await;
            left -= nap;
        }
    }

    async fn look(&mut self, db: &Db, rows_max: usize) -> Result<Vec<Bytes>> {
        let mut rows = Vec::new();
        for container in self.containers(db) {
            let number = container.rid.number;
            while rows.len() < rows_max {
                let at = self.positions.get(&number).copied().unwrap_or_default();
                let changes = db.document_changes(&container, at, rows_max - rows.len()).await?;
                if changes.is_empty() {
                    break;
                }
                for change in changes {
                    self.positions.insert(number, change.position);
                    let event = self.event(db, &container, &change)?;
                    rows.extend(self.through_stages(event)?);
                }
            }
        }
        Ok(rows)
    }

    fn event(
        &self,
        db: &Db,
        container: &db::Container,
        change: &DocumentChange,
    ) -> Result<RawDocumentBuf> {
        let body = document(&change.document.body)?;
        let id = field(body, "_id").map_or(bson::RawBson::Null, bson::RawBson::from);
        let time = db.now().0 as u32;
        Ok(rawdoc! {
            "_id": {"_data": write_token(&self.positions)},
            "operationType": if change.is_new { "insert" } else { "replace" },
            "clusterTime": bson::Timestamp { time, increment: 1 },
            "fullDocument": body.to_owned(),
            "ns": {"db": container.database_id.as_str(), "coll": container.id()},
            "documentKey": {"_id": id},
        })
    }

    fn through_stages(&self, event: RawDocumentBuf) -> Result<Vec<Bytes>> {
        if self.stages.is_empty() {
            return Ok(vec![event.into_bytes().into()]);
        }
        let stages: Vec<RawBsonRef<'_>> =
            self.stages.iter().map(|stage| RawBsonRef::Document(stage)).collect();
        let mut pipeline = Pipeline::parse(&stages, &self.vars)?;
        let (mut event, mut rows) = (Some(event), Vec::new());
        loop {
            match pipeline.step()? {
                Step::Document(row) => rows.push(row.into_bytes().into()),
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

fn write_token(positions: &BTreeMap<u32, ChangePosition>) -> String {
    let mut token = String::new();
    for (number, at) in positions {
        token
            .push_str(&format!("{number:08x}{:016x}{:016x}{:016x}", at.lsn, at.ordinal, at.newest));
    }
    token
}

fn read_token(token: &RawDocument) -> Result<BTreeMap<u32, ChangePosition>> {
    let invalid =
        || Refusal::new(260, "The resume token cannot be read: it is none of this server's.");
    let text = token.get_str("_data").map_err(|_| invalid())?;
    if text.len() % 56 != 0 || !text.is_ascii() {
        return Err(invalid());
    }
    let mut positions = BTreeMap::new();
    for at in (0..text.len()).step_by(56) {
        let number = |from: usize, to: usize| {
            u64::from_str_radix(&text[at + from..at + to], 16).map_err(|_| invalid())
        };
        let position = ChangePosition {
            lsn: number(8, 24)?,
            ordinal: number(24, 40)?,
            newest: number(40, 56)?,
        };
        positions.insert(number(0, 8)? as u32, position);
    }
    Ok(positions)
}
