//! What a statement does to one document, decided in the partition's writer on the document as it is then.

use std::sync::{Arc, Mutex};

use bson::oid::ObjectId;
use bson::{Bson, RawBsonRef};
use bytes::Bytes;
use db::Container;
use db::documents::{Edit, Edited};
use model::clock::Timestamp;

use super::{check_document, refusal_of};
use crate::error::{Refusal, Result};
use crate::language::filter::Filter;
use crate::language::path::field;
use crate::language::sort::Sort;
use crate::language::update::Update;
use crate::layout;
use crate::options::document;

/// A statement of an update or delete, ready to run.
#[derive(Debug)]
pub(super) struct Statement {
    pub filter: Arc<Filter>,
    /// Whether strings are not compared by their bytes.
    pub collated: bool,
    pub hint: Option<String>,
    pub sort: Option<Sort>,
    pub multi: bool,
    pub change: Change,
    /// Whether the collection's validator counts.
    pub checked: bool,
}

/// What to do with a matching document.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Update { update: Arc<Update>, upsert: bool },
    Remove,
}

/// What an edit did.
#[derive(Clone, Debug, Default)]
pub(super) struct Done {
    pub matched: bool,
    pub modified: bool,
    pub upserted: Option<Bson>,
    pub before: Option<Bytes>,
    pub after: Option<Bytes>,
}

impl Statement {
    /// The name of the document, if the filter says which it is.
    pub fn point(&self, _container: &Container) -> Option<Vec<u8>> {
        let id = self.filter.id()?.as_raw_bson_ref();
        let text =
            matches!(id, RawBsonRef::String(_) | RawBsonRef::Symbol(_) | RawBsonRef::Document(_));
        let odd = matches!(id, RawBsonRef::RegularExpression(_) | RawBsonRef::Array(_));
        let usable = !odd && (!self.collated || !text) && self.hint.is_none();
        usable.then(|| layout::name_of(id))
    }

    pub fn upserts(&self) -> bool {
        matches!(self.change, Change::Update { upsert: true, .. })
    }

    pub fn edit(&self, container: &Arc<Container>, id: ObjectId) -> Arc<StatementEdit> {
        Arc::new(StatementEdit {
            filter: self.filter.clone(),
            change: self.change.clone(),
            container: container.clone(),
            checked: self.checked,
            id,
            done: Mutex::default(),
        })
    }

    /// The same for a document that was found.
    pub fn without_upsert(&self, container: &Arc<Container>) -> Arc<StatementEdit> {
        let change = match &self.change {
            Change::Update { update, .. } => {
                Change::Update { update: update.clone(), upsert: false }
            }
            Change::Remove => Change::Remove,
        };
        Arc::new(StatementEdit {
            filter: self.filter.clone(),
            change,
            container: container.clone(),
            checked: self.checked,
            id: ObjectId::new(),
            done: Mutex::default(),
        })
    }
}

/// A statement applied to one document.
#[derive(Debug)]
pub(super) struct StatementEdit {
    filter: Arc<Filter>,
    change: Change,
    container: Arc<Container>,
    checked: bool,
    /// The `_id` of what an upsert inserts, where nothing names one.
    id: ObjectId,
    done: Mutex<Option<Result<Done>>>,
}

impl StatementEdit {
    /// What it did, after the writer has made it.
    pub fn done(&self) -> Done {
        let done = self.done.lock().expect("nothing panics here");
        done.as_ref().and_then(|done| done.as_ref().ok()).cloned().unwrap_or_default()
    }

    /// Why it was refused: by itself, or by the writer.
    pub fn refusal(&self, error: db::Error, container: &Container) -> Refusal {
        match &*self.done.lock().expect("nothing panics here") {
            Some(Err(refusal)) => refusal.clone(),
            Some(Ok(Done { after: Some(body), .. })) => refusal_of(error, container, body),
            _ => refusal_of(error, container, &[]),
        }
    }

    /// What an upsert would insert.
    pub fn insertion(&self) -> Result<Bytes> {
        match &self.change {
            Change::Update { update, .. } => {
                Ok(update.insert(&self.filter, self.id)?.into_bytes().into())
            }
            Change::Remove => Err(Refusal::new(1, "a removal inserts nothing")),
        }
    }

    fn decide(&self, old: Option<&Bytes>) -> Result<(Edited, Done)> {
        let matched = match old {
            None => (false, None),
            Some(old) => self.filter.matches_at(document(old)?)?,
        };
        let (Some(old), (true, position)) = (old, matched) else {
            return match &self.change {
                Change::Update { upsert: true, .. } => self.insert(old.is_some()),
                _ => Ok((Edited::Keep, Done::default())),
            };
        };
        let before = Some(old.clone());
        match &self.change {
            Change::Remove => Ok((
                Edited::Remove,
                Done { matched: true, modified: true, before, ..Done::default() },
            )),
            Change::Update { update, .. } => match update.apply(document(old)?, position)? {
                None => {
                    let after = before.clone();
                    Ok((Edited::Keep, Done { matched: true, before, after, ..Done::default() }))
                }
                Some(new) => {
                    let body: Bytes = new.into_bytes().into();
                    check_document(&self.container, document(&body)?, self.checked)?;
                    let after = Some(body.clone());
                    let done =
                        Done { matched: true, modified: true, before, after, upserted: None };
                    Ok((Edited::Put(body), done))
                }
            },
        }
    }

    fn insert(&self, taken: bool) -> Result<(Edited, Done)> {
        let body = self.insertion()?;
        let inserted = document(&body)?;
        check_document(&self.container, inserted, self.checked)?;
        if taken {
            // The name is another document's, which does not match.
            return Err(refusal_of(db::Error::Exists, &self.container, &body));
        }
        let upserted = field(inserted, "_id").map(Bson::try_from).transpose()?;
        let done = Done { upserted, after: Some(body.clone()), ..Done::default() };
        Ok((Edited::Put(body), done))
    }
}

impl Edit for StatementEdit {
    fn edit(&self, old: Option<&Bytes>, _now: Timestamp) -> db::Result<Edited> {
        let decided = self.decide(old);
        let (edited, done) = match decided {
            Ok((edited, done)) => (Ok(edited), Ok(done)),
            Err(refusal) => (Err(db::Error::Invalid(refusal.message.clone())), Err(refusal)),
        };
        *self.done.lock().expect("nothing panics here") = Some(done);
        edited
    }

    fn is_partial(&self) -> bool {
        matches!(&self.change, Change::Update { update, .. } if !update.is_replacement())
    }
}
