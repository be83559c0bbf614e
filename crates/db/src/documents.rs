//! Documents: containers whose items are not JSON but what another front end has given them to be.
//!
//! The database knows such an item as bytes with a name. What is stored beside it (its own ttl, its index terms, its unique entries) is told
//! by the container's [`Layout`], which the front end makes from the container's definition. All else is what it is for every
//! container: catalog, writer, feed, horizon, purge, request units.

mod memo;
mod scan;
mod upkeep;

use std::sync::Arc;

use bytes::Bytes;
use model::clock::Timestamp;
use model::ttl::Ttl;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::charge::{self, RequestCharge};
use crate::items::{Content, Prepared, PreparedBody, Verb};
use crate::writer::{Mode, Op, Outcome, Transaction};
use crate::{Container, Db, Error, Reply, Result};

pub(crate) use memo::Found;
pub use memo::{Memo, Remembered, Text};
pub use scan::{ChangePosition, Document, DocumentChange, DocumentScan, Route};
pub(crate) use upkeep::{Upkeep, UpkeepDone};

/// How a front end reads its documents. Pure: the same bytes always give the same answer.
pub trait Layout: std::any::Any + Send + Sync + std::fmt::Debug {
    /// What is to be stored beside a document, or why it cannot be stored.
    fn describe(&self, body: &[u8]) -> Result<Description>;

    /// A document for people: JSON in which what JSON has no word for is told.
    fn show(&self, body: &[u8]) -> Result<Value>;

    /// The names of the documents that a person may mean by an id, written as [`Layout::show`] writes it.
    fn names(&self, id: &str) -> Vec<Vec<u8>>;
}

/// Makes a layout from the `documents` part of a container's definition.
pub type Layouts = fn(&Value) -> std::result::Result<Arc<dyn Layout>, String>;

/// What is stored beside a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Its own ttl.
    pub own_ttl: Ttl,
    /// Its index terms, each once.
    pub terms: Vec<Vec<u8>>,
    /// What no other document of the container may have.
    pub unique: Vec<Vec<u8>>,
}

/// A change of one document, decided by the writer on the document as it is then.
pub trait Edit: Send + Sync + std::fmt::Debug {
    /// What becomes of a document that is (or is not) there. May be asked again, if the change could not be made
    /// the first time: the last answer counts.
    fn edit(&self, old: Option<&Bytes>, now: Timestamp) -> Result<Edited>;

    /// Whether it changes parts of a document rather than putting another in its place: what the log calls it.
    fn is_partial(&self) -> bool;
}

/// What an edit makes of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edited {
    /// It stays as it is.
    Keep,
    /// It becomes this.
    Put(Bytes),
    /// It goes.
    Remove,
}

/// A write of one document.
#[derive(Clone, Debug)]
pub struct DocumentWrite {
    /// Its name: what must be unique in the container.
    pub name: Bytes,
    /// What to do.
    pub action: Action,
}

/// What to do with a document.
#[derive(Clone, Debug)]
pub enum Action {
    /// The name must be free.
    Insert(Bytes),
    /// Whatever the edit says.
    Edit(Arc<dyn Edit>),
}

/// How the writes of one request hang together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Together {
    /// All or none.
    Atomic,
    /// Each by itself, up to the first that is refused.
    Ordered,
    /// Each by itself.
    Unordered,
}

impl Db {
    /// Reads the document with a name.
    pub async fn document(&self, container: &Container, name: &[u8]) -> Reply<Option<Bytes>> {
        let partition = container.partition();
        let session = partition.session();
        let mut charge = charge::MISS;
        let result = async {
            // Who is sent away pays nothing: asking again and again must not make the wait longer.
            self.admit(partition).inspect_err(|_| charge = RequestCharge::default())?;
            let horizon = container.runtime.ttl.horizon(self.now());
            let record = self.find(partition, name).await?;
            let record = record.filter(|record| horizon.is_live(record.ts, record.own_ttl));
            if let Some(record) = &record {
                charge = charge::read(record.body.len());
            }
            Ok(record.map(|record| record.body))
        }
        .await;
        self.settle(partition, charge);
        Reply { result, charge, session: Some(session), other_sessions: Vec::new() }
    }

    /// Writes documents, in one round of the writer where they are not too many. Durable when it returns. After the first refusal of
    /// ordered or atomic writes, the outcome of those that were not tried is [`Error::FailedDependency`]. With a memo they are made
    /// once only: from then on the outcome is [`Error::Repeated`].
    pub async fn write_documents(
        &self,
        container: &Container,
        writes: Vec<DocumentWrite>,
        together: Together,
        memo: Option<Memo>,
    ) -> Reply<Vec<Outcome>> {
        let partition = container.partition();
        let result = async {
            self.admit(partition)?;
            let ops = prepare(container, writes, together)?;
            let mode = match together {
                Together::Atomic => Mode::Atomic,
                Together::Ordered => Mode::Ordered,
                Together::Unordered => Mode::Unordered,
            };
            let (reply, outcomes) = oneshot::channel();
            if partition.submit(Op::Write(Transaction { ops, mode, memo }, reply))?.is_some() {
                return Err(Error::OwnerNotFound);
            }
            let outcomes: Vec<Outcome> = outcomes.await.map_err(|_| Error::OwnerNotFound)?;
            match outcomes.first() {
                Some(Outcome { result: Err(Error::Repeated), .. }) => Err(Error::Repeated),
                _ => Ok(outcomes),
            }
        }
        .await;
        let mut charge = RequestCharge::default();
        for outcome in result.iter().flatten() {
            charge += outcome.charge;
        }
        self.settle(partition, charge);
        let session = Some(partition.session());
        Reply { result, charge, session, other_sessions: Vec::new() }
    }
}

/// Reads what is stored beside each new document. One that cannot be stored is refused by the writer, in its turn.
fn prepare(
    container: &Container,
    writes: Vec<DocumentWrite>,
    together: Together,
) -> Result<Vec<Prepared>> {
    let settings = container.runtime.settings();
    let layout = settings.layout.as_ref().ok_or_else(not_documents)?;
    let mut ops = Vec::with_capacity(writes.len());
    for DocumentWrite { name, action } in writes {
        let (verb, content) = match action {
            Action::Edit(edit) => (Verb::Upsert, Content::Edit(edit)),
            Action::Insert(body) => match layout.describe(&body) {
                Ok(description) => {
                    let body = PreparedBody::document(body, description);
                    (Verb::Create, Content::Body(body))
                }
                Err(error) if together == Together::Atomic => return Err(error),
                Err(error) => (Verb::Create, Content::Refused(error)),
            },
        };
        let layout = Some(layout.clone());
        let (if_match, if_none_match, renamed) = (None, None, None);
        let key = Vec::new();
        ops.push(Prepared { verb, key, name, renamed, content, if_match, if_none_match, layout });
    }
    Ok(ops)
}

impl PreparedBody {
    pub(crate) fn document(text: Bytes, description: Description) -> Self {
        let Description { own_ttl, mut terms, unique } = description;
        terms.sort_unstable();
        Self { text, own_ttl, terms, indexing_epoch: 0, unique }
    }
}

pub(crate) fn not_documents() -> Error {
    Error::Invalid("This container holds JSON items: use it through the NoSQL API.".into())
}

/// Why the NoSQL API does not serve a container of documents.
pub(crate) fn not_json() -> Error {
    Error::Invalid(
        "This container is a MongoDB collection: its documents can only be used through the MongoDB endpoint.".into(),
    )
}
