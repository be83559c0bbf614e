//! Sessions: what a retried write was answered the first time.
//!
//! And transactions: what a session has changed and not yet committed. They are kept here, beside the database; a commit hands all changes
//! to the partition's writer as one, which refuses them if a document is not what the transaction has seen.
//!
//! A driver that does not hear the answer to a write sends it again, with the same session and number. The answer is then given again,
//! and nothing is written twice. What this server has forgotten, or another has made, is told by the memo in the store
//! ([`db::documents::Memo`]).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf};
use bytes::Bytes;
use db::Container;

/// Sessions that are remembered.
const SESSIONS_MAX: usize = 10_000;

/// How long one is remembered.
const LIFE: Duration = Duration::from_secs(30 * 60);

/// Minutes that drivers are told.
pub const LIFE_MINUTES: i32 = 30;

/// How long a transaction may take: as the service's.
pub const TRANSACTION_TIME: Duration = Duration::from_secs(5);

/// All sessions that have written.
#[derive(Default)]
pub struct Sessions {
    last: Mutex<HashMap<Vec<u8>, Last>>,
    transactions: Mutex<HashMap<Vec<u8>, State>>,
}

/// A transaction of a session.
pub(crate) enum State {
    /// Open; taken out while a command runs.
    Open(Transaction),
    /// Committed: a commit that is sent again is answered alike.
    Committed(i64),
    /// Gone.
    Aborted,
}

/// What a transaction has done so far.
#[derive(Default)]
pub(crate) struct Transaction {
    pub number: i64,
    pub began: Duration,
    /// The collection that it is about: one only.
    pub container: Option<Arc<Container>>,
    pub changes: Arc<Changes>,
    pub bytes: usize,
}

/// Changed documents by name.
pub(crate) type Changes = BTreeMap<Bytes, Changed>;

/// A document that a transaction has changed.
#[derive(Clone, Debug)]
pub(crate) struct Changed {
    /// As it was stored when the transaction first saw it.
    pub before: Option<Bytes>,
    /// As the transaction has left it.
    pub now: Option<Bytes>,
}

/// The last write of a session.
struct Last {
    number: i64,
    reply: RawDocumentBuf,
    at: Duration,
}

impl Sessions {
    /// What a write was answered, if this is that write again.
    pub fn answered(&self, session: &[u8], number: i64) -> Option<RawDocumentBuf> {
        let sessions = self.lock();
        let last = sessions.get(session)?;
        (last.number == number).then(|| last.reply.clone())
    }

    /// Remembers what a write was answered.
    pub fn remember(&self, session: &[u8], number: i64, reply: &RawDocumentBuf, now: Duration) {
        let mut sessions = self.lock();
        if sessions.len() >= SESSIONS_MAX {
            sessions.retain(|_, last| now.saturating_sub(last.at) < LIFE);
            if sessions.len() >= SESSIONS_MAX {
                sessions.clear();
            }
        }
        sessions.insert(session.to_vec(), Last { number, reply: reply.clone(), at: now });
    }

    /// Sessions that have written, and when each did last; the current one among them.
    pub fn listed(&self, current: Option<&RawDocument>) -> Vec<(RawDocumentBuf, Duration)> {
        let known = self.lock();
        let mut all: Vec<_> = known
            .iter()
            .filter_map(|(session, last)| {
                Some((RawDocumentBuf::from_bytes(session.clone()).ok()?, last.at))
            })
            .collect();
        if let Some(current) = current
            && !known.contains_key(current.as_bytes())
        {
            all.push((current.to_owned(), Duration::MAX));
        }
        all
    }

    /// Forgets a session; its open transaction is as if it had never been.
    pub fn end(&self, session: &[u8]) {
        self.lock().remove(session);
        self.transactions().remove(session);
    }

    /// Takes a session's transaction out.
    pub(crate) fn take_transaction(&self, session: &[u8]) -> Option<State> {
        self.transactions().remove(session)
    }

    /// Puts it back.
    pub(crate) fn put_transaction(&self, session: &[u8], state: State, now: Duration) {
        let mut all = self.transactions();
        if all.len() >= SESSIONS_MAX {
            all.retain(|_, state| {
                matches!(state, State::Open(open) if now.saturating_sub(open.began) < TRANSACTION_TIME)
            });
        }
        all.insert(session.to_vec(), state);
    }

    fn transactions(&self) -> std::sync::MutexGuard<'_, HashMap<Vec<u8>, State>> {
        self.transactions.lock().expect("nothing panics while it holds this lock")
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Vec<u8>, Last>> {
        self.last.lock().expect("nothing panics while it holds this lock")
    }
}
