//! Transactions: within one collection, and for five seconds, as the service has them.
//!
//! Until it is committed, what a transaction writes is kept with its session and seen by its own commands only. A commit is one
//! transaction of the partition's writer; a document that is no longer what was seen makes it a conflict, and nothing is written.

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::RawDocumentBuf;
use bytes::Bytes;
use db::documents::{Action, DocumentWrite, Edit, Edited, Memo, Route, Together};
use db::{Container, Outcome, Reply, Written};
use md5::{Digest as _, Md5};
use model::clock::Timestamp;

use super::reading::Matches;
use super::{Call, ok};
use crate::error::{Refusal, Result};
use crate::language::filter::Filter;
use crate::sessions::{Changed, State, TRANSACTION_TIME, Transaction};

/// The most bytes that a transaction may change.
const BYTES_MAX: usize = 16 << 20;

/// The number of the transaction that a command belongs to.
pub(super) fn number(call: &Call<'_>) -> Result<Option<i64>> {
    let fields = call.fields();
    match fields.get("autocommit") {
        Some(bson::RawBsonRef::Boolean(false)) => fields.int("txnNumber"),
        _ => Ok(None),
    }
}

/// Runs a command as part of its transaction.
pub(super) async fn run(call: &mut Call<'_>, number: i64) -> Result<RawDocumentBuf> {
    let fields = call.fields();
    let session = fields
        .document("lsid")?
        .ok_or_else(|| Refusal::new(72, "a transaction needs a session"))?;
    let session = session.as_bytes().to_vec();
    let sessions = &call.front_end.sessions;
    let now = call.db().clock().elapsed();
    let state = sessions.take_transaction(&session);
    let mut open = match state {
        _ if fields.flag("startTransaction")? => {
            Transaction { number, began: now, ..Transaction::default() }
        }
        Some(State::Open(open)) if open.number == number => open,
        Some(State::Committed(last)) if last == number => {
            sessions.put_transaction(&session, State::Committed(last), now);
            return match call.name {
                "commitTransaction" => Ok(ok()),
                _ => Err(Refusal::new(
                    256,
                    format!("Transaction with number {number} has been committed"),
                )),
            };
        }
        other => {
            if let Some(other) = other {
                sessions.put_transaction(&session, other, now);
            } else if call.name == "commitTransaction"
                && was_committed(call, &session, number).await?
            {
                return Ok(ok());
            }
            return Err(gone(number));
        }
    };
    if now.saturating_sub(open.began) > TRANSACTION_TIME {
        sessions.put_transaction(&session, State::Aborted, now);
        return Err(gone(number));
    }
    match call.name {
        "abortTransaction" => {
            sessions.put_transaction(&session, State::Aborted, now);
            Ok(ok())
        }
        "commitTransaction" => {
            let memo = Memo {
                name: memo_name(&session),
                number,
                steps: (0, 1),
                text: Arc::new(|_| Vec::new()),
            };
            let committed = commit(call, &mut open, memo).await;
            let state = match committed {
                Ok(()) => State::Committed(number),
                Err(_) => State::Aborted,
            };
            sessions.put_transaction(&session, state, now);
            committed.map(|()| ok())
        }
        "find" | "getMore" | "killCursors" | "aggregate" | "distinct" | "insert" | "update"
        | "delete" | "findAndModify" | "findandmodify" | "count" | "ping" | "hello" | "create"
        | "createIndexes" => {
            call.transaction = Some(open);
            let result = call.dispatch().await;
            let state = match (&result, call.transaction.take()) {
                (Ok(_), Some(open)) => State::Open(open),
                // A command that fails ends its transaction.
                _ => State::Aborted,
            };
            sessions.put_transaction(&session, state, now);
            result.map_err(|refusal| match refusal.code {
                112 | 251 => refusal.labelled("TransientTransactionError"),
                _ => refusal,
            })
        }
        other => {
            sessions.put_transaction(&session, State::Aborted, now);
            Err(Refusal::new(263, format!("Cannot run '{other}' in a multi-document transaction.")))
        }
    }
}

fn gone(number: i64) -> Refusal {
    Refusal::new(251, format!("Given transaction number {number} does not match any in-progress transactions. Transaction isn't active."))
        .labelled("TransientTransactionError")
}

/// The name of a session in memos.
pub(super) fn memo_name(session: &[u8]) -> [u8; 16] {
    Md5::digest(session).into()
}

/// Whether a transaction that this server knows nothing of was committed: by another, or before it was started again. A commit that is sent
/// again does not say which collection it is about.
async fn was_committed(call: &Call<'_>, session: &[u8], number: i64) -> Result<bool> {
    let name = memo_name(session);
    for database in call.db().databases() {
        let containers = call.db().containers(&database.id).unwrap_or_default();
        for container in containers.iter().filter(|container| container.layout().is_some()) {
            let memo = call.db().memo(container, &name).await?;
            if memo.is_some_and(|memo| memo.number == number) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Hands all changes to the writer, as one.
async fn commit(call: &mut Call<'_>, open: &mut Transaction, memo: Memo) -> Result<()> {
    let Some(container) = open.container.take() else { return Ok(()) };
    let writes: Vec<DocumentWrite> = open
        .changes
        .iter()
        .map(|(name, change)| DocumentWrite {
            name: name.clone(),
            action: Action::Edit(Arc::new(Commit(change.clone()))),
        })
        .collect();
    if writes.is_empty() {
        return Ok(());
    }
    let reply = call.db().write_documents(&container, writes, Together::Atomic, Some(memo)).await;
    call.charge += reply.charge;
    for outcome in reply.result? {
        match outcome.result {
            Ok(_) | Err(db::Error::FailedDependency) => {}
            Err(db::Error::PreconditionFailed) => {
                return Err(Refusal::new(112, "WriteConflict: a document was changed by others since the transaction read it. Please retry the transaction.")
                    .labelled("TransientTransactionError"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A change that stands only if nobody else has changed the document.
#[derive(Debug)]
struct Commit(Changed);

impl Edit for Commit {
    fn edit(&self, old: Option<&Bytes>, _now: Timestamp) -> db::Result<Edited> {
        if old != self.0.before.as_ref() {
            return Err(db::Error::PreconditionFailed);
        }
        Ok(match &self.0.now {
            now if *now == self.0.before => Edited::Keep,
            Some(now) => Edited::Put(now.clone()),
            None => Edited::Remove,
        })
    }

    /// A transaction keeps what a document becomes, not how.
    fn is_partial(&self) -> bool {
        true
    }
}

impl Call<'_> {
    /// Matching documents, as this command may see them.
    pub fn matches(
        &mut self,
        container: Arc<Container>,
        filter: Filter,
        route: Route,
    ) -> Result<Matches> {
        self.db().admit_scan(&container)?;
        let matches = Matches::open(self.db(), container.clone(), filter, route);
        let Some(open) = &mut self.transaction else { return Ok(matches) };
        stay(open, &container)?;
        Ok(matches.within(open.changes.clone()))
    }

    /// The memo of a write that makes these statements of the command, if its driver may send it again. `text` gives what tells, from the
    /// outcomes, what to remember.
    pub fn memo<T>(&self, (first, next): (usize, usize), text: impl FnOnce() -> T) -> Option<Memo>
    where
        T: Fn(&[Outcome]) -> Vec<u8> + Send + Sync + 'static,
    {
        let (name, number) = self.retry.filter(|_| self.transaction.is_none())?;
        Some(Memo { name, number, steps: (first as u32, next as u32), text: Arc::new(text()) })
    }

    /// Refuses a statement of a command that was sent again, if it was made the first time.
    pub async fn check_made(&self, container: &Container, index: usize) -> Result<()> {
        let Some((name, number)) = self.retry else { return Ok(()) };
        let memo = self.db().memo(container, &name).await?;
        match memo.is_some_and(|memo| memo.number == number && memo.next as usize > index) {
            true => Err(db::Error::Repeated.into()),
            false => Ok(()),
        }
    }

    /// Writes documents: at once, or as part of the transaction.
    pub async fn write(
        &mut self,
        container: &Arc<Container>,
        writes: Vec<DocumentWrite>,
        together: Together,
        memo: Option<Memo>,
    ) -> Reply<Vec<Outcome>> {
        match self.transaction.is_some() {
            false => self.db().write_documents(container, writes, together, memo).await,
            true => {
                let result = self.write_later(container, writes, together).await;
                Reply {
                    result,
                    charge: db::RequestCharge::default(),
                    session: None,
                    other_sessions: Vec::new(),
                }
            }
        }
    }

    async fn write_later(
        &mut self,
        container: &Arc<Container>,
        writes: Vec<DocumentWrite>,
        together: Together,
    ) -> db::Result<Vec<Outcome>> {
        let (db, now) = (self.db(), self.db().now());
        let Some(open) = &mut self.transaction else { return Err(db::Error::FailedDependency) };
        if let Err(refusal) = stay(open, container) {
            return Err(db::Error::Invalid(refusal.message));
        }
        let mut changes: BTreeMap<_, _> = BTreeMap::clone(&open.changes);
        let mut outcomes = Vec::with_capacity(writes.len());
        let mut stopped = false;
        for DocumentWrite { name, action } in writes {
            if stopped {
                outcomes.push(Outcome {
                    result: Err(db::Error::FailedDependency),
                    charge: db::RequestCharge::default(),
                });
                continue;
            }
            let known = match changes.get(&name) {
                Some(known) => Changed::clone(known),
                None => {
                    let before = db.document(container, &name).await.result?;
                    Changed { now: before.clone(), before }
                }
            };
            let edited = match action {
                Action::Insert(_) if known.now.is_some() => Err(db::Error::Exists),
                Action::Insert(body) => Ok(Edited::Put(body)),
                Action::Edit(edit) => edit.edit(known.now.as_ref(), now),
            };
            let result = edited.map(|edited| {
                let created = known.now.is_none();
                let next = match edited {
                    Edited::Keep => known.now.clone(),
                    Edited::Put(body) => Some(body),
                    Edited::Remove => None,
                };
                open.bytes += next.as_ref().map_or(0, Bytes::len);
                changes.insert(name, Changed { before: known.before, now: next });
                Written { created, item: None }
            });
            stopped = result.is_err() && together != Together::Unordered;
            outcomes.push(Outcome { result, charge: db::RequestCharge::default() });
        }
        if open.bytes > BYTES_MAX {
            return Err(db::Error::TooLarge(format!(
                "A transaction may change {BYTES_MAX} bytes at most."
            )));
        }
        open.changes = Arc::new(changes);
        Ok(outcomes)
    }
}

/// A transaction is about one collection.
fn stay(open: &mut Transaction, container: &Arc<Container>) -> Result<()> {
    match &open.container {
        Some(mine) if mine.rid != container.rid => Err(Refusal::new(
            263,
            "A transaction may use one collection only: its documents are changed together.",
        )),
        _ => {
            open.container = Some(container.clone());
            Ok(())
        }
    }
}
